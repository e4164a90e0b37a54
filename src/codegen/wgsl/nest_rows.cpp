// Rows: reductions over the columns of each row, and stores that read their results. A row is the
// work of one invocation, of several, or of several workgroups that leave partial results in
// scratch for the next pass.
#include "codegen/wgsl/nest_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "codegen/wgsl/nest.h"
#include "codegen/wgsl/nest_kept.h"
#include "codegen/wgsl/nest_lanes.h"
#include "codegen/wgsl/nest_parts.h"
#include "kernel/visit.h"

namespace tensorgrad::wgsl {

using kernel::Accumulator;
using kernel::Expr;
using kernel::ExprNode;
using kernel::Fn;
using kernel::Kernel;
using kernel::Stage;

namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Partial results of one accumulator in scratch: `rows * parts` words, then as many positions.
struct Partial {
  std::int64_t values = 0, positions = 0;
};

class RowRenderer {
 public:
  RowRenderer(const FlatNest& flat, const Target& target, const std::vector<bool>& writable,
              const RowLayout& layout)
      : flat_(flat), kernel_(flat.kernel), target_(target), writable_(writable), layout_(layout) {}

  void render(RenderedKernel& out) {
    if (layout_.parts > 1) {
      plan_scratch(out);
      for (std::size_t i = 0; i < kernel_.nest.stages.size(); ++i) {
        if (partial_.contains({i, 0})) out.passes.push_back(Pass(*this, i, layout_).run());
      }
      // Nothing but a few results a row is left to store in most cases.
      RowLayout last = layout_;
      if (!stores_columns() || overwrites_for_others()) last.parts = 1;
      out.passes.push_back(Pass(*this, kernel_.nest.stages.size(), last).run());
    } else {
      out.passes.push_back(Pass(*this, kernel_.nest.stages.size(), layout_).run());
    }
  }

 private:
  bool stores_columns() const {
    for (std::size_t i = 0; i < kernel_.nest.stages.size(); ++i) {
      if (!kernel_.nest.stages[i].stores.empty() && flat_.stages[i].count > 1) return true;
    }
    return false;
  }

  /// Whether a part of a row would store what other parts load: each runs again the stages without
  /// partial results.
  bool overwrites_for_others() const {
    const auto& stages = kernel_.nest.stages;
    for (std::size_t i = 0; i < stages.size(); ++i) {
      if (partial_.contains({i, 0})) continue;
      const std::set<int> loads = touched(kernel_, stages[i]).loads;
      for (std::size_t j = 0; j < stages.size(); ++j) {
        if (j == i) continue;
        for (const kernel::Store& s : stages[j].stores) {
          if (loads.contains(s.buffer)) return true;
        }
      }
    }
    return false;
  }

  void plan_scratch(RenderedKernel& out) {
    std::int64_t words = 0;
    const std::int64_t step = flat_.rows * layout_.parts;
    for (std::size_t i = 0; i < kernel_.nest.stages.size(); ++i) {
      const auto& accumulators = kernel_.nest.stages[i].accumulators;
      // Short stages are run again by every pass that needs them.
      if (flat_.stages[i].count < 2 * layout_.parts) continue;
      for (std::size_t slot = 0; slot < accumulators.size(); ++slot) {
        const bool indexed = Running{&accumulators[slot], {}, {}}.indexed();
        partial_[{i, slot}] = {words, words + step};
        words += indexed ? 2 * step : step;
      }
    }
    scratch_ = static_cast<int>(out.scratch_bytes.size());
    out.scratch_bytes.push_back(4 * std::max<std::int64_t>(words, 1));
  }

  /// One pass: up to the partial results of stage `target_stage`, or all of the rest.
  class Pass {
   public:
    Pass(const RowRenderer& owner, std::size_t target_stage, const RowLayout& layout)
        : owner_(owner),
          flat_(owner.flat_),
          kernel_(owner.kernel_),
          layout_(layout),
          target_stage_(target_stage),
          groups_(ceil_div(flat_.rows, layout.rows)),
          builder_(kernel_, owner.target_, owner.writable_, layout.lanes * layout.rows,
                   groups_ * layout.parts),
          writer_(builder_.writer()),
          expressions_(builder_.expressions()),
          lanes_(builder_, owner.target_, layout_) {}

    RenderedPass run() {
      find_needed();
      place();
      kept_ = choose_kept(flat_, needed_, layout_);
      for (const Kept& kept : kept_) {
        writer_.line(fmt::format("var {}: array<{}, {}>;", kept.name, kept.type, kept.turns));
      }
      for (const std::size_t i : needed_) {
        const Stage& stage = kernel_.nest.stages[i];
        if (stage.accumulators.empty()) {
          store(i);
        } else if (i == target_stage_) {
          reduce(i);
        } else if (owner_.partial_.contains({i, 0})) {
          combine_parts(i);
        } else {
          reduce(i);
        }
      }
      RenderedPass pass = builder_.finish();
      pass.text = fmt::format("// {}\n{}", to_string(layout_), pass.text);
      return pass;
    }

   private:
    bool is_last() const { return target_stage_ == kernel_.nest.stages.size(); }

    /// The stages that the pass runs, with the reductions whose results those read.
    void find_needed() {
      std::set<std::size_t> needed;
      std::vector<std::size_t> pending;
      const auto need = [&](std::size_t i) {
        if (needed.insert(i).second) pending.push_back(i);
      };
      if (is_last()) {
        for (std::size_t i = 0; i < kernel_.nest.stages.size(); ++i) {
          if (!kernel_.nest.stages[i].stores.empty() && flat_.stages[i].count > 0) need(i);
        }
      } else {
        need(target_stage_);
      }
      while (!pending.empty()) {
        const std::size_t i = pending.back();
        pending.pop_back();
        // Partial results of another pass are only combined.
        if (i != target_stage_ && owner_.partial_.contains({i, 0})) continue;
        kernel::for_each_part(
            kernel_.pool, kernel::roots(kernel_.nest.stages[i]), [](const kernel::IndexNode&) {},
            [&](const ExprNode& n) {
              if (n.fn == Fn::acc && n.stage >= 0) need(static_cast<std::size_t>(n.stage));
            });
      }
      needed_.assign(needed.begin(), needed.end());
      for (const std::size_t i : needed_) {
        const kernel::Roots roots = kernel::roots(kernel_.nest.stages[i]);
        for (const Expr e : roots.exprs) expressions_.count(e);
        for (const kernel::Index e : roots.indices) expressions_.count(e);
      }
    }

    /// Defines row, lane, part and live.
    void place() {
      std::string row_group = "group";
      if (layout_.parts > 1) {
        writer_.line(fmt::format("let part = group % {}u;", layout_.parts));
        row_group = groups_ > 1 ? fmt::format("group / {}u", layout_.parts) : "0u";
      }
      std::string in_group = "local";
      if (layout_.lanes > 1 && layout_.rows > 1) {
        const char* lane = layout_.columns ? "/" : "%";
        const char* row = layout_.columns ? "%" : "/";
        const std::int64_t unit = layout_.columns ? layout_.rows : layout_.lanes;
        writer_.line(fmt::format("let lane = local {} {}u;", lane, unit));
        in_group = fmt::format("local {} {}u", row, unit);
      } else if (layout_.lanes > 1) {
        writer_.line("let lane = local;");
        in_group = "0u";
      }
      const std::string row = layout_.rows == 1
                                  ? row_group
                                  : fmt::format("{} * {}u + {}", row_group, layout_.rows, in_group);
      if (flat_.rows % layout_.rows == 0) {
        writer_.line(fmt::format("let row = {};", row));
      } else if (layout_.lanes == 1) {
        writer_.line(fmt::format("let row = {};", row));
        writer_.line(fmt::format("if (row >= {}u) {{ return; }}", flat_.rows));
      } else {
        // Barriers are for all: rows beyond the last compute it once more, and store nothing.
        writer_.line(fmt::format("let row = min({}, {}u);", row, flat_.rows - 1));
        writer_.line(fmt::format("let live = {} < {}u;", row, flat_.rows));
        live_ = "live";
      }
      expressions_.bind_loop(0, named("row"));
    }

    /// Opens the loop over this invocation's columns of a stage.
    void open_columns(std::size_t i) {
      const std::int64_t count = flat_.stages[i].count;
      std::string begin = layout_.lanes > 1 ? "lane" : "0u";
      std::string end = fmt::format("{}u", count);
      if (layout_.parts > 1 && splits(i)) {
        const std::int64_t chunk =
            ceil_div(ceil_div(count, layout_.parts), layout_.lanes) * layout_.lanes;
        const std::string first = writer_.let(writer_.depth(), fmt::format("part * {}u", chunk));
        end = chunk * layout_.parts == count ? fmt::format("{} + {}u", first, chunk)
                                             : fmt::format("min({} + {}u, {})", first, chunk, end);
        end = writer_.let(writer_.depth(), end);
        begin = layout_.lanes > 1 ? fmt::format("{} + lane", first) : first;
      }
      if (keeps_columns(i)) {
        open_kept(i);
        return;
      }
      writer_.open(fmt::format("for (var c = {}; c < {}; c += {}u)", begin, end, layout_.lanes));
      expressions_.bind_loop(flat_.stages[i].var, named("c", writer_.depth()));
    }
    void close_columns() {
      for (; open_blocks_ > 0; --open_blocks_) writer_.close();
      writer_.close();
    }

    bool keeps_columns(std::size_t i) const {
      return std::any_of(kept_.begin(), kept_.end(),
                         [&](const Kept& kept) { return kept.var == flat_.stages[i].var; });
    }

    void open_kept(std::size_t i) {
      const std::int64_t count = flat_.stages[i].count;
      writer_.open(fmt::format("for (var k = 0u; k < {}u; k++)", layout_.turns(count)));
      const std::string column =
          layout_.lanes == 1 ? "k" : fmt::format("k * {}u + lane", layout_.lanes);
      const std::string name = writer_.let(writer_.depth(), column);
      if (count % layout_.lanes != 0) {
        writer_.open(fmt::format("if ({} < {}u)", name, count));
        open_blocks_ = 1;
      }
      expressions_.bind_loop(flat_.stages[i].var, named(name, writer_.depth()));
      for (const Kept& kept : kept_) {
        if (kept.var != flat_.stages[i].var || !kept.stages.contains(i)) continue;
        if (*kept.stages.begin() == i) {
          const Rendered value = expressions_.render_named(kept.expr);
          writer_.line(fmt::format("{}[k] = {};", kept.name, value.text));
        } else {
          expressions_.bind(kept.expr, fmt::format("{}[k]", kept.name));
        }
      }
    }

    /// Whether the parts of a row share the columns of a stage.
    bool splits(std::size_t i) const {
      return i == target_stage_ || !kernel_.nest.stages[i].stores.empty();
    }

    void reduce(std::size_t i) {
      const Stage& stage = kernel_.nest.stages[i];
      std::vector<Running> running;
      for (const Accumulator& a : stage.accumulators) running.push_back(start(builder_, a));
      const std::int64_t count = flat_.stages[i].count;
      if (count > 0) {
        const bool loops = flat_.stages[i].var >= 0;
        if (loops) {
          open_columns(i);
        } else if (layout_.lanes > 1) {
          writer_.open("if (lane == 0u)");
        }
        for (const Running& item : running) take(builder_, item);
        if (scans(stage)) store_running(i, running);
        if (loops) {
          close_columns();
        } else if (layout_.lanes > 1) {
          writer_.close();
        }
      }
      const std::set<int> loads = touched(kernel_, stage).loads;
      loaded_.insert(loads.begin(), loads.end());
      finish(i, running);
    }

    /// The stores of a scan at the current point. The row has one invocation.
    void store_running(std::size_t i, const std::vector<Running>& running) {
      bind_results(i, running);
      render_stores(builder_, kernel_.nest.stages[i], live_);
      expressions_.memory_changed();
      const Touched mine = touched(kernel_, kernel_.nest.stages[i]);
      stored_.insert(mine.stores.begin(), mine.stores.end());
    }

    void combine_parts(std::size_t i) {
      const Stage& stage = kernel_.nest.stages[i];
      const std::string scratch = builder_.scratch(owner_.scratch_);
      std::vector<Running> running;
      for (const Accumulator& a : stage.accumulators) running.push_back(start(builder_, a));
      const std::int64_t parts = owner_.layout_.parts;
      writer_.open(fmt::format("for (var p = {}; p < {}u; p += {}u)",
                               layout_.lanes > 1 ? "lane" : "0u", parts, layout_.lanes));
      for (std::size_t slot = 0; slot < running.size(); ++slot) {
        const Partial& place = owner_.partial_.at({i, slot});
        const auto word = [&](std::int64_t base) {
          return fmt::format("{}[{}u + row * {}u + p]", scratch, base, parts);
        };
        const std::string_view type = running_type(*running[slot].accumulator);
        const std::string value =
            writer_.let(writer_.depth(),
                        type == "u32" ? word(place.values)
                                      : fmt::format("bitcast<{}>({})", type, word(place.values)));
        std::string position;
        if (running[slot].indexed()) {
          position = writer_.let(writer_.depth(), fmt::format("i32({})", word(place.positions)));
        }
        take(builder_, running[slot], value, position);
      }
      writer_.close();
      finish(i, running);
    }

    /// Combines the lanes of a row; then binds the results, or leaves them in scratch.
    void finish(std::size_t i, std::vector<Running>& running) {
      if (layout_.lanes > 1) lanes_.combine(running);
      if (i == target_stage_) {
        const std::string scratch = builder_.scratch(owner_.scratch_);
        std::string guard = layout_.lanes > 1 ? "lane == 0u" : "";
        if (!live_.empty()) guard += " && " + live_;
        if (!guard.empty()) writer_.open(fmt::format("if ({})", guard));
        for (std::size_t slot = 0; slot < running.size(); ++slot) {
          const Partial& place = owner_.partial_.at({i, slot});
          const auto put = [&](std::int64_t base, const std::string& value) {
            writer_.line(fmt::format("{}[{}u + row * {}u + part] = bitcast<u32>({});", scratch,
                                     base, layout_.parts, value));
          };
          put(place.values, running[slot].value);
          if (running[slot].indexed()) put(place.positions, running[slot].position);
        }
        if (!guard.empty()) writer_.close();
        return;
      }
      bind_results(i, running);
    }

    /// Makes running values what accumulators are read as.
    void bind_results(std::size_t i, const std::vector<Running>& running) {
      for (std::size_t slot = 0; slot < running.size(); ++slot) {
        std::string result = running[slot].value;
        const Accumulator& a = *running[slot].accumulator;
        if (running[slot].indexed()) {
          // Nothing was reduced if no position is known.
          result = flat_.stages[i].count > 0 ? running[slot].position : "0i";
        } else if (a.dtype == DType::bool_) {
          result = fmt::format("({} != 0u)", result);
        }
        expressions_.bind_accumulator(static_cast<int>(i), static_cast<int>(slot),
                                      named(result, writer_.depth()));
      }
    }

    void store(std::size_t i) {
      const Stage& stage = kernel_.nest.stages[i];
      const Touched mine = touched(kernel_, stage);
      // Lanes see what others of their row stored, and read what they will overwrite.
      const auto meets = [&](const std::set<int>& a, const std::set<int>& b) {
        return std::any_of(a.begin(), a.end(), [&](int x) { return b.contains(x); });
      };
      if (layout_.lanes > 1 && (meets(mine.loads, stored_) || meets(mine.stores, stored_) ||
                                meets(mine.stores, loaded_))) {
        writer_.line("storageBarrier();");
      }
      std::string guard = live_;
      const bool loops = flat_.stages[i].var >= 0;
      if (!loops) {
        if (layout_.lanes > 1) guard = guard.empty() ? "lane == 0u" : "lane == 0u && " + guard;
        if (layout_.parts > 1) guard = guard.empty() ? "part == 0u" : "part == 0u && " + guard;
      }
      if (!guard.empty()) writer_.open(fmt::format("if ({})", guard));
      if (loops) open_columns(i);
      render_stores(builder_, stage, "");
      if (loops) close_columns();
      if (!guard.empty()) writer_.close();
      expressions_.memory_changed();
      stored_.insert(mine.stores.begin(), mine.stores.end());
      loaded_.insert(mine.loads.begin(), mine.loads.end());
    }

    const RowRenderer& owner_;
    const FlatNest& flat_;
    const Kernel& kernel_;
    RowLayout layout_;
    std::size_t target_stage_;
    std::int64_t groups_;
    PassBuilder builder_;
    Writer& writer_;
    ExpressionRenderer& expressions_;
    LaneCombiner lanes_;
    std::vector<std::size_t> needed_;
    std::string live_;
    std::vector<Kept> kept_;
    int open_blocks_ = 0;
    std::set<int> stored_, loaded_;
  };

  const FlatNest& flat_;
  const Kernel& kernel_;
  const Target& target_;
  const std::vector<bool>& writable_;
  RowLayout layout_;
  std::map<std::pair<std::size_t, std::size_t>, Partial> partial_;
  int scratch_ = -1;
};

}  // namespace

void render_rows(const FlatNest& flat, const RowLayout& layout, const Target& target,
                 const std::vector<bool>& writable, RenderedKernel& out) {
  RowRenderer(flat, target, writable, layout).render(out);
}

void render_rows(const Kernel& kernel, const Target& target, const std::vector<bool>& writable,
                 RenderedKernel& out) {
  const FlatNest flat = flatten_rows(kernel);
  render_rows(flat, row_layouts(kernel, flat, target).front(), target, writable, out);
}

}  // namespace tensorgrad::wgsl
