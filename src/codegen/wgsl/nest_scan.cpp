// Scans: running combinations along rows, stored on the way.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "codegen/wgsl/nest.h"
#include "codegen/wgsl/nest_parts.h"
#include "codegen/wgsl/nest_rows.h"
#include "kernel/visit.h"

namespace tensorgrad::wgsl {

using kernel::ExprNode;
using kernel::Fn;
using kernel::Kernel;
using kernel::Stage;

namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// A row is the work of `parts` workgroups. Each takes its columns in blocks, a column an
/// invocation: the block is scanned in workgroup memory and goes on from what came before. With
/// several parts a pass before leaves the total of each in scratch.
class ScanRenderer {
 public:
  ScanRenderer(const FlatNest& flat, std::int64_t lanes, std::int64_t parts, const Target& target,
               const std::vector<bool>& writable)
      : flat_(flat),
        stage_(flat.kernel.nest.stages.front()),
        count_(flat.stages.front().count),
        lanes_(lanes),
        parts_(parts),
        chunk_(ceil_div(ceil_div(count_, parts), lanes) * lanes),
        target_(target),
        writable_(writable) {}

  void render(RenderedKernel& out) const {
    if (parts_ > 1) {
      std::int64_t words = 0;
      for (const kernel::Accumulator& a : stage_.accumulators) {
        words += Running{&a, {}, {}}.indexed() ? 2 : 1;
      }
      out.scratch_bytes.push_back(words * flat_.rows * parts_ * element_bytes);
      out.passes.push_back(Pass(*this).total());
    }
    out.passes.push_back(Pass(*this).scan());
  }

 private:
  class Pass {
   public:
    explicit Pass(const ScanRenderer& owner)
        : owner_(owner),
          builder_(owner.flat_.kernel, owner.target_, owner.writable_, owner.lanes_,
                   owner.flat_.rows * owner.parts_),
          writer_(builder_.writer()),
          expressions_(builder_.expressions()) {
      expressions_.count_nest();
      if (owner.parts_ == 1) {
        writer_.line("let row = group;");
      } else {
        writer_.line(fmt::format("let row = group / {}u;", owner.parts_));
        writer_.line(fmt::format("let part = group % {}u;", owner.parts_));
        writer_.line(fmt::format("let first = part * {}u;", owner.chunk_));
        writer_.line(fmt::format("let end = min(first + {}u, {}u);", owner.chunk_, owner.count_));
      }
      expressions_.bind_loop(0, named("row"));
    }

    /// Leaves the total of the part in scratch.
    RenderedPass total() {
      std::vector<Running> running = start_all();
      writer_.open(fmt::format("for (var c = first + local; c < end; c += {}u)", owner_.lanes_));
      bind_column("c");
      for (const Running& item : running) take(builder_, item);
      writer_.close();
      scan_block(running);
      writer_.open(fmt::format("if (local == {}u)", owner_.lanes_ - 1));
      std::int64_t base = 0;
      const auto put = [&](const std::string& value) {
        writer_.line(fmt::format("{} = bitcast<u32>({});", word(base, "part"), value));
        base += owner_.flat_.rows * owner_.parts_;
      };
      for (const Running& item : running) {
        put(item.value);
        if (item.indexed()) put(item.position);
      }
      writer_.close();
      return builder_.finish();
    }

    /// Stores the running values.
    RenderedPass scan() {
      const std::vector<Running> before = start_all();
      if (owner_.parts_ > 1) take_parts(before);
      const bool split = owner_.parts_ > 1;
      writer_.open(fmt::format(
          "for (var block = {}; block < {}; block += {}u)", split ? "first" : "0u",
          split ? std::string("end") : fmt::format("{}u", owner_.count_), owner_.lanes_));
      writer_.line("let c = block + local;");
      const std::string inside = split ? "c < end" : fmt::format("c < {}u", owner_.count_);
      const std::vector<Running> running = start_all();
      writer_.open(fmt::format("if ({})", inside));
      bind_column("c");
      for (const Running& item : running) take(builder_, item);
      writer_.close();
      scan_block(running);
      for (std::size_t slot = 0; slot < running.size(); ++slot) {
        take(builder_, running[slot], before[slot].value, before[slot].position);
      }
      writer_.open(fmt::format("if ({})", inside));
      bind_column("c");
      bind_results(running);
      render_stores(builder_, owner_.stage_, "");
      writer_.close();
      // What the last invocation holds goes before the next block.
      for (std::size_t slot = 0; slot < running.size(); ++slot) {
        take_shared(before[slot], slot, fmt::format("{}u", owner_.lanes_ - 1));
      }
      // The memory is written again only after all have read it.
      writer_.line("workgroupBarrier();");
      writer_.close();
      return builder_.finish();
    }

   private:
    std::vector<Running> start_all() {
      std::vector<Running> running;
      for (const kernel::Accumulator& a : owner_.stage_.accumulators) {
        running.push_back(start(builder_, a));
      }
      return running;
    }

    void bind_column(const std::string& name) {
      expressions_.bind_loop(owner_.flat_.stages.front().var, named(name, writer_.depth()));
    }

    std::string word(std::int64_t base, const std::string& part) {
      return fmt::format("{}[{}u + row * {}u + {}]", builder_.scratch(0), base, owner_.parts_,
                         part);
    }

    void bind_results(const std::vector<Running>& running) {
      for (std::size_t slot = 0; slot < running.size(); ++slot) {
        const Running& item = running[slot];
        std::string text = item.indexed() ? item.position : item.value;
        if (!item.indexed() && item.accumulator->dtype == DType::bool_) {
          text = fmt::format("({} != 0u)", text);
        }
        expressions_.bind_accumulator(0, static_cast<int>(slot), named(text, writer_.depth()));
      }
    }

    /// Takes in the totals of the parts before this one.
    void take_parts(const std::vector<Running>& before) {
      writer_.open("for (var p = 0u; p < part; p++)");
      std::int64_t base = 0;
      const auto get = [&](std::string_view type) {
        const std::string text = word(base, "p");
        base += owner_.flat_.rows * owner_.parts_;
        return writer_.let(writer_.depth(),
                           type == "u32" ? text : fmt::format("bitcast<{}>({})", type, text));
      };
      for (const Running& item : before) {
        const std::string value = get(running_type(*item.accumulator));
        take(builder_, item, value, item.indexed() ? get("i32") : "");
      }
      writer_.close();
    }

    struct Places {
      std::string values, positions;
    };

    /// Each invocation's running values become the combination of those of all up to it; they also
    /// stand in workgroup memory.
    void scan_block(const std::vector<Running>& running) {
      for (const Running& item : running) {
        Places& place = places_.emplace_back();
        place.values = builder_.workgroup_array(running_type(*item.accumulator), owner_.lanes_);
        if (item.indexed()) place.positions = builder_.workgroup_array("i32", owner_.lanes_);
      }
      const auto share = [&] {
        for (std::size_t slot = 0; slot < running.size(); ++slot) {
          writer_.line(fmt::format("{}[local] = {};", places_[slot].values, running[slot].value));
          if (!running[slot].indexed()) continue;
          writer_.line(
              fmt::format("{}[local] = {};", places_[slot].positions, running[slot].position));
        }
      };
      share();
      writer_.line("workgroupBarrier();");
      writer_.open(fmt::format("for (var step = 1u; step < {}u; step <<= 1u)", owner_.lanes_));
      writer_.open("if (local >= step)");
      for (std::size_t slot = 0; slot < running.size(); ++slot) {
        take_shared(running[slot], slot, "local - step");
      }
      writer_.close();
      writer_.line("workgroupBarrier();");
      share();
      writer_.line("workgroupBarrier();");
      writer_.close();
    }

    void take_shared(const Running& running, std::size_t slot, const std::string& at) {
      const auto read = [&](const std::string& array) {
        return writer_.let(writer_.depth(), fmt::format("{}[{}]", array, at));
      };
      const std::string value = read(places_[slot].values);
      take(builder_, running, value, running.indexed() ? read(places_[slot].positions) : "");
    }

    const ScanRenderer& owner_;
    PassBuilder builder_;
    Writer& writer_;
    ExpressionRenderer& expressions_;
    std::vector<Places> places_;
  };

  const FlatNest& flat_;
  const Stage& stage_;
  std::int64_t count_, lanes_, parts_, chunk_;
  const Target& target_;
  const std::vector<bool>& writable_;
};

/// Whether a point reads what the stage stores at no other point.
bool points_are_apart(const Kernel& kernel, const Stage& stage) {
  bool apart = true;
  kernel::for_each_part(
      kernel.pool, kernel::roots(stage), [](const kernel::IndexNode&) {},
      [&](const ExprNode& n) {
        if (n.fn != Fn::load) return;
        for (const kernel::Store& s : stage.stores) {
          apart = apart && (s.buffer != n.buffer || (s.index == n.index && !s.accumulate));
        }
      });
  return apart && std::none_of(stage.stores.begin(), stage.stores.end(),
                               [](const kernel::Store& s) { return s.accumulate; });
}

}  // namespace

void render_scan(const Kernel& kernel, const Target& target, const std::vector<bool>& writable,
                 RenderedKernel& out) {
  const FlatNest flat = flatten_rows(kernel);
  const std::int64_t count = flat.stages.front().count;
  if (count == 0) return;
  RowLayout layout = row_layouts(kernel, flat, target).front();
  constexpr std::int64_t shortest = 32;  // worth the steps of a scan by many
  constexpr std::int64_t many_rows = 4096;
  const bool alone = target.cpu || count < shortest || (layout.columns && flat.rows >= many_rows) ||
                     !points_are_apart(flat.kernel, flat.kernel.nest.stages.front());
  if (alone) {
    render_rows(flat, layout, target, writable, out);
    return;
  }
  const std::int64_t lanes =
      static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(std::min<std::int64_t>(
          {256, target.invocations,
           static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(count)))}))));
  std::int64_t parts = 1;
  const std::int64_t units = std::max(target.units, 64);
  constexpr std::int64_t least = 4096;  // columns worth a workgroup
  if (flat.rows < 2 * units && static_cast<int>(kernel.args.size()) < target.storage_buffers) {
    parts =
        std::clamp<std::int64_t>(std::min(ceil_div(2 * units, flat.rows), count / least), 1, 256);
  }
  ScanRenderer(flat, lanes, parts, target, writable).render(out);
}

}  // namespace tensorgrad::wgsl
