#include "codegen/llvm/writer.h"

#include <fmt/format.h>

#include <utility>

namespace tensorgrad::llvm_ir {

Writer::Writer() { scopes_.emplace_back().block = "entry"; }

std::string Writer::text() const {
  return fmt::format("entry:\n{}{}", allocations_, scopes_.front().text);
}

std::string Writer::allocate(std::string_view type, std::int64_t elements) {
  std::string name = fresh();
  allocations_ += fmt::format("  {} = alloca [{} x {}], align 64\n", name, elements, type);
  return name;
}

std::string Writer::fresh() { return fmt::format("%v{}", next_name_++); }

std::string Writer::assign(int depth, std::string_view instruction) {
  std::string name = fresh();
  scopes_[static_cast<std::size_t>(depth)].text += fmt::format("  {} = {}\n", name, instruction);
  return name;
}

void Writer::line(int depth, std::string_view instruction) {
  scopes_[static_cast<std::size_t>(depth)].text += fmt::format("  {}\n", instruction);
}

Writer::Branch Writer::open_branch(int depth, const std::string& condition) {
  Scope& scope = scopes_[static_cast<std::size_t>(depth)];
  const std::string inside = fmt::format("then{}", next_block_);
  Branch branch{scope.block, fmt::format("join{}", next_block_++)};
  scope.text += fmt::format("  br i1 {}, label %{}, label %{}\n{}:\n", condition, inside,
                            branch.after, inside);
  scope.block = inside;
  return branch;
}

void Writer::close_branch(int depth, const Branch& branch) {
  Scope& scope = scopes_[static_cast<std::size_t>(depth)];
  scope.text += fmt::format("  br label %{0}\n{0}:\n", branch.after);
  scope.block = branch.after;
}

std::string Writer::join(int depth, std::string_view type, const std::string& value,
                         const std::string& from, std::string_view otherwise,
                         const std::string& before) {
  return assign(
      depth, fmt::format("phi {} [ {}, %{} ], [ {}, %{} ]", type, value, from, otherwise, before));
}

std::string Writer::open_loop(std::string begin, std::string end, std::int64_t step,
                              std::vector<Carried> carried) {
  std::string variable = fmt::format("%i{}", next_name_++);
  for (Carried& value : carried) value.name = fresh();
  scopes_.push_back({.text = {},
                     .block = fmt::format("head.{}", std::string_view(variable).substr(1)),
                     .variable = variable,
                     .begin = std::move(begin),
                     .end = std::move(end),
                     .step = step,
                     .carried = std::move(carried)});
  return variable;
}

void Writer::close_loop(const std::vector<std::string>& next) {
  Scope loop = std::move(scopes_.back());
  scopes_.pop_back();
  Scope& outer = scopes_.back();
  const std::string label = fmt::format("head.{}", loop.variable.substr(1));
  const std::string exit = fmt::format("done.{}", loop.variable.substr(1));
  const std::string back = loop.block;
  std::string text = fmt::format("  br label %{0}\n{0}:\n", label);
  text += fmt::format("  {0} = phi i64 [ {1}, %{2} ], [ {0}.next, %{3} ]\n", loop.variable,
                      loop.begin, outer.block, back);
  for (std::size_t i = 0; i < loop.carried.size(); ++i) {
    const Carried& value = loop.carried[i];
    text += fmt::format("  {} = phi {} [ {}, %{} ], [ {}, %{} ]\n", value.name, value.type,
                        value.initial, outer.block, next[i], back);
  }
  text += loop.text;
  text += fmt::format("  {0}.next = add nuw nsw i64 {0}, {1}\n", loop.variable, loop.step);
  text += fmt::format("  {0}.more = icmp slt i64 {0}.next, {1}\n", loop.variable, loop.end);
  text +=
      fmt::format("  br i1 {}.more, label %{}, label %{}\n{}:\n", loop.variable, label, exit, exit);
  outer.text += text;
  outer.block = exit;
}

}  // namespace tensorgrad::llvm_ir
