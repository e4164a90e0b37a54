#include "codegen/wgsl/nest_kept.h"

#include <fmt/format.h>

#include <map>

#include "codegen/wgsl/expressions.h"
#include "kernel/visit.h"

namespace tensorgrad::wgsl {

using kernel::Expr;
using kernel::ExprNode;
using kernel::Fn;
using kernel::Kernel;
using kernel::Stage;

namespace {

/// Most columns of a row that one invocation keeps, and most numbers in all.
constexpr std::int64_t most_kept = 16, most_registers = 64;

class Chooser {
 public:
  Chooser(const FlatNest& flat, const std::vector<std::size_t>& run, const RowLayout& layout)
      : flat_(flat), kernel_(flat.kernel), run_(run), layout_(layout) {}
  std::vector<Kept> choose() const;

 private:
  std::int64_t turns(std::size_t i) const { return layout_.turns(flat_.stages[i].count); }
  /// The expressions that a stage computes.
  std::set<std::int32_t> reachable(const Stage& stage) const;
  void choose_shared(std::size_t i, int var,
                     const std::map<std::int32_t, std::set<std::size_t>>& users,
                     std::set<std::int32_t>& chosen) const;
  /// Buffers that stages before `stage` store to.
  std::set<int> changed_before(std::size_t stage) const;
  /// Whether an expression loads, depends on the column, and reads nothing that changes before
  /// stage `last`.
  bool is_worth_keeping(Expr expr, int var, std::size_t last) const;

  const FlatNest& flat_;
  const Kernel& kernel_;
  const std::vector<std::size_t>& run_;
  const RowLayout& layout_;
};

std::vector<Kept> Chooser::choose() const {
  std::vector<Kept> kept;
  std::map<int, std::vector<std::size_t>> by_var;
  for (const std::size_t i : run_) {
    if (flat_.stages[i].var >= 0 && turns(i) <= most_kept) {
      by_var[flat_.stages[i].var].push_back(i);
    }
  }
  std::int64_t registers = 0;
  for (const auto& [var, stages] : by_var) {
    if (stages.size() < 2) continue;
    std::map<std::int32_t, std::set<std::size_t>> users;
    for (const std::size_t i : stages) {
      for (const std::int32_t id : reachable(kernel_.nest.stages[i])) users[id].insert(i);
    }
    std::set<std::int32_t> chosen;
    for (const std::size_t i : stages) choose_shared(i, var, users, chosen);
    for (const std::int32_t id : chosen) {
      const std::int64_t size = turns(stages.front());
      if (registers + size > most_registers) break;
      registers += size;
      const std::string_view type = value_type(kernel_.pool.node(Expr{id}).dtype);
      kept.push_back({Expr{id}, var, users[id], fmt::format("r{}", kept.size()), type, size});
    }
  }
  return kept;
}

std::set<std::int32_t> Chooser::reachable(const Stage& stage) const {
  std::set<std::int32_t> seen;
  std::vector<Expr> stack = kernel::roots(stage).exprs;
  while (!stack.empty()) {
    const Expr top = stack.back();
    stack.pop_back();
    if (!seen.insert(top.id).second) continue;
    for (const std::int32_t arg : kernel_.pool.node(top).args) {
      if (arg >= 0) stack.push_back(Expr{arg});
    }
  }
  return seen;
}

void Chooser::choose_shared(std::size_t i, int var,
                            const std::map<std::int32_t, std::set<std::size_t>>& users,
                            std::set<std::int32_t>& chosen) const {
  std::set<std::int32_t> seen;
  std::vector<Expr> stack = kernel::roots(kernel_.nest.stages[i]).exprs;
  while (!stack.empty()) {
    const Expr top = stack.back();
    stack.pop_back();
    if (!seen.insert(top.id).second || chosen.contains(top.id)) continue;
    const ExprNode& node = kernel_.pool.node(top);
    const std::set<std::size_t>& mine = users.at(top.id);
    if (mine.size() > 1 && is_worth_keeping(top, var, *mine.rbegin())) {
      chosen.insert(top.id);
      continue;
    }
    for (const std::int32_t arg : node.args) {
      if (arg >= 0) stack.push_back(Expr{arg});
    }
  }
}

std::set<int> Chooser::changed_before(std::size_t stage) const {
  std::set<int> changed;
  for (const std::size_t i : run_) {
    if (i >= stage) break;
    for (const kernel::Store& s : kernel_.nest.stages[i].stores) changed.insert(s.buffer);
  }
  return changed;
}

bool Chooser::is_worth_keeping(Expr expr, int var, std::size_t last) const {
  if (kernel_.pool.node(expr).dtype == DType::bool_) return false;
  const std::set<int> changed = changed_before(last);
  bool depends = false;
  bool loads = false;
  bool stays = true;
  kernel::for_each_part(
      kernel_.pool, expr,
      [&](const kernel::IndexNode& n) {
        depends = depends || (n.kind == kernel::IndexNode::Kind::loop && n.var == var);
      },
      [&](const ExprNode& n) {
        if (n.fn != Fn::load) return;
        loads = true;
        stays = stays && !changed.contains(n.buffer);
      });
  return depends && loads && stays;
}

}  // namespace

std::vector<Kept> choose_kept(const FlatNest& flat, const std::vector<std::size_t>& run,
                              const RowLayout& layout) {
  // Parts of a row leave little of it to each.
  if (layout.parts > 1) return {};
  return Chooser(flat, run, layout).choose();
}

}  // namespace tensorgrad::wgsl
