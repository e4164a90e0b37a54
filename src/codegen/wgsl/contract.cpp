// Renders a contraction: chooses a tile, multiplies, sums the parts of a divided k, and hands each
// result to the epilogue.
#include "codegen/wgsl/contract.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "codegen/wgsl/contract_epilogue.h"
#include "codegen/wgsl/expressions.h"
#include "codegen/wgsl/pass_builder.h"
#include "tensorgrad/error.h"

namespace tensorgrad::wgsl {
namespace {

using kernel::Kernel;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

constexpr int scratch_arg = -1;

/// A module: bindings, functions, entry point.
RenderedPass assemble(const Kernel& kernel, const Target& target, const std::vector<bool>& writable,
                      const Body& body, const Epilogue& epilogue, const WideArgs& wide,
                      std::set<int> args, bool scratch, bool scratch_is_wide,
                      const std::string& choice) {
  RenderedPass pass;
  pass.text = fmt::format("// {}\n", choice);
  pass.groups = body.groups;
  args.insert(epilogue.reads.begin(), epilogue.reads.end());
  args.insert(epilogue.writes.begin(), epilogue.writes.end());
  for (const int arg : args) {
    const auto i = static_cast<std::size_t>(arg);
    const bool writes = epilogue.writes.contains(arg) || (i < writable.size() && writable[i]);
    const std::string type = array_type(kernel.args[i].dtype, kernel.args[i].elements,
                                        wide.contains(arg) ? 4 : 1, target);
    pass.text += bind(pass, {arg, -1, writes}, type);
  }
  if (scratch) {
    pass.text += bind(pass, {-1, 0, true}, scratch_is_wide ? "array<vec4f>" : "array<f32>");
  }
  pass.text += "\n" + epilogue.functions + body.functions + "\n" + body.text;
  return pass;
}

Body render_body(const Problem& problem, const Tile& tile, const Target& target,
                 const WideArgs& wide) {
  switch (tile.kind) {
    case Tile::Kind::tiled:
      return render_tiled(problem, tile, target, wide);
    case Tile::Kind::direct:
      return render_direct(problem, tile, target, wide);
    case Tile::Kind::dot:
      break;
  }
  return render_dot(problem, tile, target, wide);
}

/// The tile with no part of k left empty.
Tile without_empty_parts(Tile tile, const Problem& problem) {
  const std::int64_t depth = std::max<std::int64_t>(problem.depth(), 1);
  const std::int64_t step = tile.kind == Tile::Kind::tiled ? tile.bk : 1;
  const std::int64_t part = ceil_div(ceil_div(depth, tile.splits), step) * step;
  tile.splits = ceil_div(depth, part);
  return tile;
}

/// Adds the parts of a divided k in order, and hands on the sums.
Body render_sum(const Problem& problem, const Tile& tile, const Target& target) {
  const bool wide = problem.columns() % 4 == 0;
  const std::int64_t count =
      problem.batches() * problem.rows() * problem.columns() / (wide ? 4 : 1);
  constexpr std::int64_t threads = 64;
  const Grid grid = linear_grid(ceil_div(count, threads), target);
  const std::int64_t columns = problem.columns() / (wide ? 4 : 1);
  Body body;
  body.groups = grid.groups;
  Lines out;
  out.line("@compute @workgroup_size({})", threads);
  out.open("fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) t: u32)");
  out.line("let item = {} * {}u + t;", grid.number, threads);
  out.line("if (item >= {}u) {{ return; }}", count);
  out.line("var total = s0[item];");
  out.open("for (var part = 1u; part < {}u; part++)", tile.splits);
  out.line("total += s0[item + part * {}u];", count);
  out.close();
  out.line("{}(item / {}u, item / {}u % {}u, item % {}u{}, total);", wide ? "finish4" : "finish",
           columns * problem.rows(), columns, problem.rows(), columns, wide ? " * 4u" : "");
  out.close();
  body.text = out.text();
  return body;
}

/// Has a body hand on its results by way of `exact`.
void leave_out_edges(Body& body, const Problem& problem, const WideArgs& wide) {
  const auto rename = [&](const std::string& from, const std::string& to) {
    bool any = false;
    for (std::size_t at = body.text.find(from); at != std::string::npos;
         at = body.text.find(from, at + to.size())) {
      body.text.replace(at, from.size(), to);
      any = true;
    }
    return any;
  };
  const bool ones = rename("finish(", "finish_exact(");
  const bool fours = rename("finish4(", "finish4_exact(");
  body.functions += exact_functions(problem, wide, ones, fours);
}

int binding_count(const Epilogue& epilogue, std::set<int> args, bool scratch) {
  args.insert(epilogue.reads.begin(), epilogue.reads.end());
  args.insert(epilogue.writes.begin(), epilogue.writes.end());
  return static_cast<int>(args.size()) + (scratch ? 1 : 0);
}

/// The kernel's nest as passes of their own, which find the results in memory.
void append_nest(const Kernel& kernel, const Target& target, const std::vector<bool>& writable,
                 RenderedKernel& rendered) {
  Kernel nest = kernel;
  nest.contraction.reset();
  RenderedKernel more = render_nest(nest, target, writable);
  const int scratch = static_cast<int>(rendered.scratch_bytes.size());
  for (RenderedPass& pass : more.passes) {
    for (PassBinding& binding : pass.bindings) {
      if (binding.scratch >= 0) binding.scratch += scratch;
    }
    rendered.passes.push_back(std::move(pass));
  }
  rendered.scratch_bytes.insert(rendered.scratch_bytes.end(), more.scratch_bytes.begin(),
                                more.scratch_bytes.end());
}

Problem canonical(const Kernel& kernel) {
  const auto* matmul = std::get_if<kernel::Matmul>(&*kernel.contraction);
  Problem problem =
      matmul ? problem_of(*matmul) : problem_of(std::get<kernel::Conv>(*kernel.contraction));
  for (Operand* operand : {&problem.lhs, &problem.rhs}) {
    operand->dtype = kernel.args[static_cast<std::size_t>(operand->arg)].dtype;
  }
  return problem;
}

}  // namespace

RenderedKernel render_contraction(const Kernel& kernel, const Target& target,
                                  const std::vector<bool>& writable, const Tile& wanted) {
  const Problem problem = canonical(kernel);
  const Tile tile = without_empty_parts(wanted, problem);
  const bool has_nest = !kernel.nest.stages.empty();
  bool is_fused = true;
  const std::string choice = to_string(tile);
  RenderedKernel rendered;
  if (problem.batches() * problem.rows() * problem.columns() > 0) {
    const bool splits = tile.splits > 1;
    // Only passes that deliver vectors can store into a buffer of vectors.
    const bool body_vectors =
        tile.kind == Tile::Kind::tiled || (tile.kind == Tile::Kind::direct && tile.tn % 4 == 0);
    const bool vectors = splits ? problem.columns() % 4 == 0 : body_vectors;
    const std::set<int> operands{problem.lhs.arg, problem.rhs.arg};
    const bool has_edges = !problem.rhs.windows.empty();
    const std::set<int> last_operands = splits && !has_edges ? std::set<int>{} : operands;
    WideArgs wide = wide_args(problem, kernel.args);
    std::optional<Epilogue> epilogue;
    if (has_nest) {
      WideArgs with_nest = wide;
      epilogue = map_epilogue(kernel, problem, vectors, with_nest);
      if (epilogue && binding_count(*epilogue, last_operands, splits) > target.storage_buffers) {
        epilogue.reset();
      }
      if (epilogue) wide = with_nest;
    }
    is_fused = epilogue.has_value();
    if (!epilogue) {
      const auto& out = kernel.args[static_cast<std::size_t>(problem.out.arg)];
      const bool wide_out = vectors && is_wide_result(problem, problem.out, out.elements);
      if (wide_out) wide.insert(problem.out.arg);
      epilogue = plain_epilogue(problem, problem.out, wide_out);
    }
    Body body = render_body(problem, tile, target, wide);
    if (splits) {
      const std::int64_t rows = problem.rows();
      const std::int64_t columns = problem.columns();
      Problem parts = problem;
      parts.batch = {problem.batches() * tile.splits};
      parts.m = {rows};
      parts.n = {columns};
      const Result dense{scratch_arg, 0, {rows * columns}, {columns}, {1}};
      const bool wide_parts = vectors && body_vectors;
      rendered.scratch_bytes.push_back(parts.batch[0] * rows * columns * element_bytes);
      rendered.passes.push_back(assemble(kernel, target, writable, body,
                                         plain_epilogue(parts, dense, wide_parts), wide, operands,
                                         true, wide_parts, choice));
      Body total = render_sum(problem, tile, target);
      if (has_edges) leave_out_edges(total, problem, wide);
      rendered.passes.push_back(assemble(kernel, target, writable, total, *epilogue, wide,
                                         last_operands, true, vectors,
                                         "the sum of the parts of k"));
    } else {
      if (has_edges) leave_out_edges(body, problem, wide);
      rendered.passes.push_back(assemble(kernel, target, writable, body, *epilogue, wide, operands,
                                         false, false, choice));
    }
  }
  if (has_nest && !is_fused) append_nest(kernel, target, writable, rendered);
  return rendered;
}

std::vector<Variant> contraction_variants(const Kernel& kernel, const Target& target) {
  const Problem problem = canonical(kernel);
  const bool is_empty = problem.batches() * problem.rows() * problem.columns() == 0;
  std::vector<Variant> found;
  for (const Tile& tile : is_empty ? std::vector{Tile{}} : candidate_tiles(problem, target)) {
    found.push_back({to_string(tile), [&kernel, &target, tile](const std::vector<bool>& writable) {
                       return render_contraction(kernel, target, writable, tile);
                     }});
  }
  return found;
}

RenderedKernel render_contraction(const Kernel& kernel, const Target& target,
                                  const std::vector<bool>& writable) {
  return contraction_variants(kernel, target).front().render(writable);
}

}  // namespace tensorgrad::wgsl
