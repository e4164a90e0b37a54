// Maps over many points: a thread four neighbouring ones, whose elements are loaded and stored as
// vectors where they lie side by side.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/wgsl/nest.h"
#include "codegen/wgsl/pass_builder.h"
#include "kernel/visit.h"

namespace tensorgrad::wgsl {

using kernel::ExprNode;
using kernel::Fn;
using kernel::Index;
using kernel::IndexNode;
using kernel::Kernel;
using kernel::Stage;

namespace {

constexpr std::int64_t width = 4;
constexpr std::string_view components = "xyzw";

/// An index at the four points from a multiple of four on.
struct Run {
  std::int64_t stride = 0;  ///< from each to the next
  bool whole = false;       ///< whether the first is a multiple of four
  bool is_vector() const { return stride == 1 && whole; }
};

/// Nothing where the steps differ or are not known. All loops of the kernel are one.
std::optional<Run> run(const Kernel& kernel, Index index) {
  const IndexNode& node = kernel.pool.node(index);
  switch (node.kind) {
    case IndexNode::Kind::loop:
      return Run{1, true};
    case IndexNode::Kind::value:
      return std::nullopt;
    case IndexNode::Kind::div:
    case IndexNode::Kind::mod: {
      const auto of = run(kernel, Index{node.arg});
      const bool is_division = node.kind == IndexNode::Kind::div;
      const bool fits = node.divisor % width == 0;
      if (!of || (of->stride != 0 && !(of->is_vector() && fits))) return std::nullopt;
      return is_division ? Run{} : Run{of->stride, of->whole && fits};
    }
    case IndexNode::Kind::sum:
      break;
  }
  Run total{0, node.constant % width == 0};
  for (const auto& [atom, factor] : node.terms) {
    const auto of = run(kernel, Index{atom});
    if (!of) return std::nullopt;
    total.stride += factor * of->stride;
    total.whole = total.whole && (of->whole || factor % width == 0);
  }
  return total;
}

/// A load without a condition, by the steps of its index.
struct Load {
  int buffer;
  Index index;
  Run steps;
  std::string name;  ///< of its vector, or of the element that all four points read; or ""
};

/// What the stages of a kernel touch.
struct Accesses {
  std::vector<bool> vectors;  ///< by buffer: whether all of its accesses are of vectors
  std::vector<Load> loads;
  std::size_t parts = 0;  ///< of expressions
};

Accesses accesses_of(const Kernel& kernel) {
  Accesses out;
  out.vectors.assign(kernel.args.size(), true);
  const auto note = [&](int buffer, const std::optional<Run>& steps, bool always) {
    if (!always || !steps || !steps->is_vector()) {
      out.vectors[static_cast<std::size_t>(buffer)] = false;
    }
  };
  for (const Stage& stage : kernel.nest.stages) {
    for (const kernel::Store& s : stage.stores) {
      note(s.buffer, run(kernel, s.index), !s.cond.defined() && !s.accumulate);
    }
    kernel::for_each_part(
        kernel.pool, kernel::roots(stage), [](const IndexNode&) {},
        [&](const ExprNode& n) {
          ++out.parts;
          if (n.fn != Fn::load) return;
          const auto steps = run(kernel, n.index);
          const bool always = n.args[0] < 0;
          note(n.buffer, steps, always);
          const bool is_new = std::none_of(out.loads.begin(), out.loads.end(), [&](const Load& l) {
            return l.buffer == n.buffer && l.index.id == n.index.id;
          });
          if (always && steps && is_new) out.loads.push_back({n.buffer, n.index, *steps, {}});
        });
  }
  return out;
}

/// Renders the points of one kernel.
class Quads {
 public:
  Quads(PassBuilder& pass, const Kernel& kernel, Accesses& accesses)
      : pass_(pass),
        kernel_(kernel),
        accesses_(accesses),
        places_(kernel, pass.writer(), pass.helpers()) {
    for (std::size_t buffer = 0; buffer < accesses.vectors.size(); ++buffer) {
      if (accesses.vectors[buffer]) pass.use_vectors(static_cast<int>(buffer));
    }
    places_.bind_loop(0, named("i"));
  }

  void render() {
    load();
    std::size_t results = 0;
    for (const Stage& stage : kernel_.nest.stages) {
      for (const kernel::Store& s : stage.stores) {
        pass_.writer().line(
            fmt::format("var r{}: vec4<{}>;", results++, memory_type(pass_.dtype(s.buffer))));
      }
    }
    pass_.expressions().count_nest();
    for (std::int64_t point = 0; point < width; ++point) compute(point);
    results = 0;
    for (const Stage& stage : kernel_.nest.stages) {
      for (const kernel::Store& s : stage.stores) {
        pass_.writer().line(fmt::format("b{}[{}] = r{};", s.buffer, place(s.index), results++));
      }
    }
  }

 private:
  /// The number of the vector that an index begins.
  std::string place(Index index) {
    if (kernel_.pool.node(index).kind == IndexNode::Kind::loop) return "quad";
    return fmt::format("{} / {}u", places_.render_access(index).operand(Strength::product), width);
  }

  bool is_vector(int buffer) const { return accesses_.vectors[static_cast<std::size_t>(buffer)]; }

  void load() {
    for (Load& l : accesses_.loads) {
      if (is_vector(l.buffer)) {
        l.name = pass_.writer().let(0, fmt::format("b{}[{}]", l.buffer, place(l.index)));
      } else if (l.steps.stride == 0) {
        l.name =
            pass_.writer().let(0, places_.element(l.buffer, places_.render_access(l.index).text));
      }
    }
  }

  void compute(std::int64_t point) {
    Writer& writer = pass_.writer();
    ExpressionRenderer& expressions = pass_.expressions();
    writer.open("");
    const char component = components[static_cast<std::size_t>(point)];
    Rendered i = named("i", writer.depth());
    if (point > 0) {
      i.text = fmt::format("i + {}u", point);
      i.strength = Strength::sum;
      i.trivial = false;
    }
    expressions.bind_loop(0, i);
    expressions.set_load_hook([&](const ExprNode& n) -> std::optional<Rendered> {
      if (n.args[0] >= 0) return std::nullopt;
      for (const Load& l : accesses_.loads) {
        if (l.buffer != n.buffer || l.index.id != n.index.id || l.name.empty()) continue;
        if (!is_vector(n.buffer)) return named(l.name);
        return named(from_memory(n.dtype, fmt::format("{}.{}", l.name, component)), writer.depth());
      }
      return std::nullopt;
    });
    std::size_t results = 0;
    for (const Stage& stage : kernel_.nest.stages) {
      for (const kernel::Store& s : stage.stores) {
        const std::string value = expressions.render(s.value).text;
        writer.line(fmt::format("r{}.{} = {};", results++, component,
                                to_memory(pass_.dtype(s.buffer), value)));
      }
    }
    expressions.set_load_hook(nullptr);
    expressions.unbind_loop(0);
    writer.close();
  }

  PassBuilder& pass_;
  const Kernel& kernel_;
  Accesses& accesses_;
  ExpressionRenderer places_;  ///< of vectors, outside the points' blocks
};

}  // namespace

bool render_quads(const Kernel& flat, const Target& target, const std::vector<bool>& writable,
                  RenderedKernel& out) {
  // Where fewer threads than the adapter keeps in flight would be left, they hide less of the
  // memory's latency; long expressions wait for arithmetic, and their text is four times as long.
  constexpr std::int64_t in_flight = 2048;
  constexpr std::size_t longest = 128;
  if (target.cpu || flat.loops.size() != 1) return false;
  const std::int64_t count = flat.loops.front().extent;
  if (count % width != 0 || count / width < in_flight * std::max(target.units, 1)) return false;
  Accesses accesses = accesses_of(flat);
  if (accesses.parts > longest) return false;
  for (const Stage& stage : flat.nest.stages) {
    for (const kernel::Store& s : stage.stores) {
      if (!accesses.vectors[static_cast<std::size_t>(s.buffer)]) return false;
    }
  }
  const std::int64_t invocations = std::min<std::int64_t>(256, target.invocations);
  const std::int64_t quads = count / width;
  PassBuilder pass(flat, target, writable, invocations, (quads + invocations - 1) / invocations);
  Writer& writer = pass.writer();
  writer.line(fmt::format("let quad = group * {}u + local;", invocations));
  if (quads % invocations != 0) writer.line(fmt::format("if (quad >= {}u) {{ return; }}", quads));
  writer.line(fmt::format("let i = quad * {}u;", width));
  Quads(pass, flat, accesses).render();
  out.passes.push_back(pass.finish());
  return true;
}

}  // namespace tensorgrad::wgsl
