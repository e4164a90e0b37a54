// Maps over many points: a thread four neighbouring ones, whose elements are loaded and stored as
// vectors where they lie side by side.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

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

bool is_vector(const Kernel& kernel, Index index) {
  const auto of = run(kernel, index);
  return of && of->is_vector();
}

/// What the stages of a kernel touch.
struct Accesses {
  std::set<int> vectors;            ///< buffers all of whose accesses are of vectors
  std::map<int, Index> loads;       ///< of those, by the index's number
  std::map<int, std::set<int>> of;  ///< the buffers that are loaded by it
  bool stores_are_vectors = true;
  std::size_t parts = 0;  ///< of expressions
};

Accesses accesses_of(const Kernel& kernel) {
  Accesses out;
  std::set<int> others;
  const auto note = [&](int buffer, Index index, bool always) {
    (always && is_vector(kernel, index) ? out.vectors : others).insert(buffer);
  };
  kernel::Roots roots;
  for (const Stage& stage : kernel.nest.stages) {
    const kernel::Roots more = kernel::roots(stage);
    roots.exprs.insert(roots.exprs.end(), more.exprs.begin(), more.exprs.end());
    roots.indices.insert(roots.indices.end(), more.indices.begin(), more.indices.end());
    for (const kernel::Store& s : stage.stores) {
      note(s.buffer, s.index, !s.cond.defined() && !s.accumulate);
    }
  }
  kernel::for_each_part(
      kernel.pool, roots, [](const IndexNode&) {},
      [&](const ExprNode& n) {
        ++out.parts;
        if (n.fn != Fn::load) return;
        note(n.buffer, n.index, n.args[0] < 0);
        if (n.args[0] >= 0) return;
        out.loads[n.index.id] = n.index;
        out.of[n.index.id].insert(n.buffer);
      });
  for (const int buffer : others) out.vectors.erase(buffer);
  for (const Stage& stage : kernel.nest.stages) {
    for (const kernel::Store& s : stage.stores) {
      out.stores_are_vectors = out.stores_are_vectors && out.vectors.contains(s.buffer);
    }
  }
  return out;
}

/// Renders the points of one kernel.
class Quads {
 public:
  Quads(PassBuilder& pass, const Kernel& kernel, const Accesses& accesses)
      : pass_(pass),
        kernel_(kernel),
        accesses_(accesses),
        places_(kernel, pass.writer(), pass.helpers()) {
    for (const int buffer : accesses.vectors) pass.use_vectors(buffer);
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

  void load() {
    for (const auto& [id, index] : accesses_.loads) {
      const auto steps = run(kernel_, index);
      for (const int buffer : accesses_.of.at(id)) {
        if (!accesses_.vectors.contains(buffer)) {
          if (!steps || steps->stride != 0) continue;
          shared_[{buffer, id}] =
              pass_.writer().let(0, places_.element(buffer, places_.render_access(index).text));
          continue;
        }
        loaded_[{buffer, id}] = pass_.writer().let(0, fmt::format("b{}[{}]", buffer, place(index)));
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
      if (const auto found = shared_.find({n.buffer, n.index.id}); found != shared_.end()) {
        return named(found->second);
      }
      const auto found = loaded_.find({n.buffer, n.index.id});
      if (found == loaded_.end()) return std::nullopt;
      const std::string text = fmt::format("{}.{}", found->second, component);
      return named(n.dtype == DType::bool_ ? fmt::format("({} != 0u)", text) : text,
                   writer.depth());
    });
    std::size_t results = 0;
    for (const Stage& stage : kernel_.nest.stages) {
      for (const kernel::Store& s : stage.stores) {
        const std::string value = expressions.render(s.value).text;
        const bool is_bool = pass_.dtype(s.buffer) == DType::bool_;
        writer.line(fmt::format("r{}.{} = {};", results++, component,
                                is_bool ? fmt::format("u32({})", value) : value));
      }
    }
    expressions.set_load_hook(nullptr);
    expressions.unbind_loop(0);
    writer.close();
  }

  PassBuilder& pass_;
  const Kernel& kernel_;
  const Accesses& accesses_;
  ExpressionRenderer places_;                          ///< of vectors, outside the points' blocks
  std::map<std::pair<int, int>, std::string> loaded_;  ///< vectors, by buffer and index
  std::map<std::pair<int, int>, std::string> shared_;  ///< elements that all points read
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
  const Accesses accesses = accesses_of(flat);
  if (!accesses.stores_are_vectors || accesses.parts > longest) return false;
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
