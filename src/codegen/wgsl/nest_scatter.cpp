// Stores that accumulate: what one element receives is added up by one invocation, in the order of
// the iterations, so that results do not depend on the device's scheduling.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "codegen/wgsl/nest.h"
#include "codegen/wgsl/nest_parts.h"
#include "kernel/visit.h"

namespace tensorgrad::wgsl {

using kernel::ExprNode;
using kernel::Index;
using kernel::IndexNode;
using kernel::Kernel;
using kernel::Stage;
using kernel::Store;

namespace {

/// Loops of a scatter: those that `index` moves with in a known way, each with its factor, and the
/// others, which decide which elements are hit.
struct Split {
  struct Column {
    int var;
    std::int64_t factor, extent;
  };
  std::vector<Column> columns;
  std::vector<int> scanned;
};

std::set<int> loops_in(const Kernel& kernel, const kernel::Roots& roots) {
  std::set<int> result;
  kernel::for_each_part(
      kernel.pool, roots,
      [&](const IndexNode& n) {
        if (n.kind == IndexNode::Kind::loop) result.insert(n.var);
      },
      [](const ExprNode&) {});
  return result;
}

/// Whether the digit of `column` can be told from the index: all other terms are multiples of its
/// whole range, or together smaller than its unit.
bool is_digit(const Kernel& kernel, const IndexNode& index, const Split::Column& column) {
  std::int64_t small = 0;
  for (const auto& [atom, factor] : index.terms) {
    const IndexNode& term = kernel.pool.node(Index{atom});
    if (factor < 0) return false;
    if (term.kind == IndexNode::Kind::loop && term.var == column.var) continue;
    if (factor % (column.factor * column.extent) != 0) small += factor * (term.hi - term.lo);
  }
  return small < column.factor;
}

Split split_loops(const Kernel& kernel, const Stage& stage, const Store& store) {
  Split split;
  std::vector<int> loops = kernel.nest.outer;
  loops.insert(loops.end(), stage.loops.begin(), stage.loops.end());
  IndexNode index = kernel.pool.node(store.index);
  if (index.kind != IndexNode::Kind::sum) index.terms = {{store.index.id, 1}};
  kernel::Roots deciding;
  if (store.cond.defined()) deciding.exprs.push_back(store.cond);
  for (const auto& [atom, factor] : index.terms) {
    if (kernel.pool.node(Index{atom}).kind != IndexNode::Kind::loop) {
      deciding.indices.push_back(Index{atom});
    }
  }
  const std::set<int> decided = loops_in(kernel, deciding);
  for (const int var : loops) {
    const std::int64_t extent = kernel.loops[static_cast<std::size_t>(var)].extent;
    if (extent == 1) continue;
    bool is_column = false;
    for (const auto& [atom, factor] : index.terms) {
      const IndexNode& term = kernel.pool.node(Index{atom});
      if (term.kind != IndexNode::Kind::loop || term.var != var || decided.contains(var)) continue;
      const Split::Column column{var, factor, extent};
      if (factor > 0 && is_digit(kernel, index, column)) {
        split.columns.push_back(column);
        is_column = true;
      }
    }
    if (!is_column) split.scanned.push_back(var);
  }
  return split;
}

/// Opens the loops that are scanned, in order.
void open_scanned(PassBuilder& pass, const Kernel& kernel, const std::vector<int>& loops) {
  Writer& writer = pass.writer();
  for (const int var : loops) {
    const std::int64_t extent = kernel.loops[static_cast<std::size_t>(var)].extent;
    if (extent == 1) continue;
    const std::string name = fmt::format("i{}", var);
    writer.open(fmt::format("for (var {0} = 0u; {0} < {1}u; {0}++)", name, extent));
    pass.expressions().bind_loop(var, named(name, writer.depth()));
  }
}

/// Iterations of the innermost scanned loop that are looked at together.
struct ScannedBlock {
  int var = -1;  ///< -1: no loop is cut
  std::int64_t size = 1;
  std::string first;  ///< of the iterations
};

/// Opens the loops that are scanned, the innermost by blocks: what is looked at comes from memory,
/// and only reads that do not wait for each other hide how long that takes (8,320 destinations that
/// look through 1,024 indices took 247 us on an H200, one read after the other).
ScannedBlock open_blocks(PassBuilder& pass, const Kernel& kernel, std::vector<int> loops) {
  std::erase_if(loops,
                [&](int var) { return kernel.loops[static_cast<std::size_t>(var)].extent == 1; });
  ScannedBlock block;
  if (loops.empty()) return block;
  const std::int64_t extent = kernel.loops[static_cast<std::size_t>(loops.back())].extent;
  constexpr std::int64_t most = 32;  // bits of the word that notes the hits
  block.size = std::min(most, extent);
  while (extent % block.size != 0) --block.size;
  if (block.size < 4) {
    open_scanned(pass, kernel, loops);
    return {};
  }
  block.var = loops.back();
  loops.pop_back();
  open_scanned(pass, kernel, loops);
  block.first = fmt::format("i{}_first", block.var);
  pass.writer().open(
      fmt::format("for (var {0} = 0u; {0} < {1}u; {0} += {2}u)", block.first, extent, block.size));
  return block;
}

/// Binds the loop of a block to its iteration number `place`.
void bind_in_block(PassBuilder& pass, const ScannedBlock& block, const std::string& place) {
  Writer& writer = pass.writer();
  const std::string name = fmt::format("i{}", block.var);
  writer.line(fmt::format("let {} = {} + {};", name, block.first, place));
  pass.expressions().bind_loop(block.var, named(name, writer.depth()));
}

std::int64_t invocations_for(const Target& target) {
  return std::min<std::int64_t>(64, target.invocations);
}

/// The index less what the columns add to it: which elements are hit.
Index key_of(Kernel& kernel, const Store& store, const Split& split) {
  Index columns = kernel.pool.number(0);
  for (const Split::Column& column : split.columns) {
    columns = kernel.pool.add(
        columns, kernel.pool.mul(kernel.pool.loop(column.var, column.extent), column.factor));
  }
  return kernel.pool.sub(store.index, columns);
}

/// A thread a destination: it looks through all that is scattered for its own.
RenderedPass by_destination(Kernel kernel, const Store& store, const Split& split,
                            const Target& target, const std::vector<bool>& writable) {
  const Index key = key_of(kernel, store, split);
  const std::int64_t first = std::max<std::int64_t>(0, kernel.pool.node(store.index).lo);
  const std::int64_t count =
      std::min(kernel.args[static_cast<std::size_t>(store.buffer)].elements - 1,
               kernel.pool.node(store.index).hi) -
      first + 1;
  const std::int64_t invocations = invocations_for(target);
  PassBuilder pass(kernel, target, writable, invocations, (count + invocations - 1) / invocations);
  Writer& writer = pass.writer();
  ExpressionRenderer& expressions = pass.expressions();
  writer.line(fmt::format("let n = group * {}u + local;", invocations));
  if (count % invocations != 0) writer.line(fmt::format("if (n >= {}u) {{ return; }}", count));
  writer.line(first == 0 ? "let to = n;" : fmt::format("let to = n + {}u;", first));
  std::string mine = "to";
  const std::int64_t base = kernel.pool.node(store.index).lo;
  for (const Split::Column& column : split.columns) {
    const std::string from =
        base == 0 ? "to" : fmt::format("(to - {}u)", static_cast<std::uint32_t>(base));
    const std::string digit = fmt::format("{} / {}u % {}u", from, column.factor, column.extent);
    const std::string name = writer.let(0, digit);
    expressions.bind_loop(column.var, named(name));
    mine += fmt::format(" - {} * {}u", name, column.factor);
  }
  writer.line(fmt::format("let mine = {};", mine));
  const DType dtype = kernel.args[static_cast<std::size_t>(store.buffer)].dtype;
  const std::string sum = writer.var(0, expressions.element(store.buffer, "to"));
  const ScannedBlock block = open_blocks(pass, kernel, split.scanned);
  if (block.var >= 0) {
    writer.line("var hits = 0u;");
    writer.open(fmt::format("for (var j = 0u; j < {}u; j++)", block.size));
    bind_in_block(pass, block, "j");
  }
  std::string test = fmt::format("{} == mine", expressions.render(key).operand(Strength::sum));
  if (store.cond.defined()) {
    test = fmt::format("{} && {}", expressions.render(store.cond).operand(Strength::primary), test);
  }
  if (block.var >= 0) {
    writer.line(fmt::format("hits |= select(0u, 1u << j, {});", test));
    writer.close();
    writer.open("for (; hits != 0u; hits &= hits - 1u)");
    bind_in_block(pass, block, "firstTrailingBit(hits)");
  } else {
    writer.open(fmt::format("if ({})", test));
  }
  const Rendered value = expressions.render(store.value);
  const Rendered next =
      expressions.combine(kernel::Combiner::sum, dtype, named(sum, writer.depth()), value);
  writer.line(fmt::format("{} = {};", sum, next.text));
  while (writer.depth() > 0) writer.close();
  expressions.store(0, store.buffer, "to", sum);
  return pass.finish();
}

/// What is scattered in `split`: iterations of the scanned loops, and elements of each.
struct Scattered {
  std::int64_t sources = 1, columns = 1;
};
Scattered scattered(const Kernel& kernel, const Split& split) {
  Scattered result;
  for (const int var : split.scanned) {
    result.sources *= kernel.loops[static_cast<std::size_t>(var)].extent;
  }
  for (const Split::Column& column : split.columns) result.columns *= column.extent;
  return result;
}

/// Binds loops to the digits of `number`, the last loop to the lowest; their names.
std::vector<std::string> bind_digits(PassBuilder& pass, const Kernel& kernel,
                                     const std::vector<int>& loops, const std::string& number) {
  Writer& writer = pass.writer();
  std::vector<std::string> names;
  std::int64_t unit = 1;
  for (auto var = loops.rbegin(); var != loops.rend(); ++var) {
    const std::int64_t extent = kernel.loops[static_cast<std::size_t>(*var)].extent;
    const std::string name =
        writer.let(writer.depth(), fmt::format("{} / {}u % {}u", number, unit, extent));
    pass.expressions().bind_loop(*var, named(name, writer.depth()));
    names.insert(names.begin(), name);
    unit *= extent;
  }
  return names;
}

/// A workgroup a source: the first of those that hit the same elements adds up all of them. What is
/// looked at grows with the square of the sources, and not with the destinations (8,192 rows of 768
/// into 50,304 took 4.0 ms on an H200 by columns, a row after the other).
RenderedPass by_source(Kernel kernel, const Store& store, const Split& split, const Target& target,
                       const std::vector<bool>& writable) {
  const Index key = key_of(kernel, store, split);
  const Scattered size = scattered(kernel, split);
  const std::int64_t words = (size.sources + 31) / 32;
  const std::int64_t invocations = std::min<std::int64_t>(256, target.invocations);
  PassBuilder pass(kernel, target, writable, invocations, size.sources);
  Writer& writer = pass.writer();
  ExpressionRenderer& expressions = pass.expressions();
  const std::string hits = pass.workgroup_array("atomic<u32>", words);
  const std::string earlier = pass.workgroup_array("atomic<u32>", 1);
  const auto condition = [&](std::string test) {
    if (!store.cond.defined()) return test;
    const std::string valid = expressions.render(store.cond).operand(Strength::primary);
    return test.empty() ? valid : fmt::format("{} && {}", valid, test);
  };
  writer.line("var mine = 0u;");
  writer.line("var counts = true;");
  writer.open("");
  bind_digits(pass, kernel, split.scanned, "group");
  writer.line(fmt::format("mine = {};", expressions.render(key).text));
  if (store.cond.defined()) writer.line(fmt::format("counts = {};", condition("")));
  writer.close();
  writer.open(fmt::format("for (var j = local; j < {}u; j += {}u)", size.sources, invocations));
  bind_digits(pass, kernel, split.scanned, "j");
  const std::string same =
      fmt::format("{} == mine", expressions.render(key).operand(Strength::sum));
  writer.open(fmt::format("if ({})", condition(same)));
  writer.line(fmt::format("if (j < group) {{ atomicStore(&{}[0], 1u); }}", earlier));
  // Which order the bits are set in does not matter; they are read in the order of the sources.
  writer.line(fmt::format("else {{ atomicOr(&{}[j / 32u], 1u << (j % 32u)); }}", hits));
  writer.close();
  writer.close();
  writer.line("workgroupBarrier();");
  writer.line(fmt::format("if (!counts || atomicLoad(&{}[0]) != 0u) {{ return; }}", earlier));
  writer.open(fmt::format("for (var c = local; c < {}u; c += {}u)", size.columns, invocations));
  std::vector<int> columns;
  for (const Split::Column& column : split.columns) columns.push_back(column.var);
  const std::vector<std::string> digits = bind_digits(pass, kernel, columns, "c");
  std::string to = "mine";
  for (std::size_t i = 0; i < digits.size(); ++i) {
    to += fmt::format(" + {} * {}u", digits[i], split.columns[i].factor);
  }
  to = writer.let(writer.depth(), to);
  const DType dtype = kernel.args[static_cast<std::size_t>(store.buffer)].dtype;
  const int depth = writer.depth();
  const std::string sum = writer.var(depth, expressions.element(store.buffer, to));
  writer.open(fmt::format("for (var word = group / 32u; word < {}u; word++)", words));
  writer.open(
      fmt::format("for (var bits = atomicLoad(&{}[word]); bits != 0u; bits &= bits - 1u)", hits));
  writer.line("let j = word * 32u + firstTrailingBit(bits);");
  bind_digits(pass, kernel, split.scanned, "j");
  const Rendered value = expressions.render(store.value);
  const Rendered next = expressions.combine(kernel::Combiner::sum, dtype, named(sum, depth), value);
  writer.line(fmt::format("{} = {};", sum, next.text));
  writer.close();
  writer.close();
  expressions.store(depth, store.buffer, to, sum);
  writer.close();
  return pass.finish();
}

/// A thread a column: it runs all iterations in order. With no columns that is one thread.
RenderedPass by_column(const Kernel& kernel, const Stage& stage, const Split& split,
                       const Target& target, const std::vector<bool>& writable) {
  std::int64_t count = 1;
  for (const Split::Column& column : split.columns) count *= column.extent;
  const std::int64_t invocations = std::min(count, invocations_for(target));
  PassBuilder pass(kernel, target, writable, invocations, (count + invocations - 1) / invocations);
  Writer& writer = pass.writer();
  writer.line(fmt::format("let n = group * {}u + local;", invocations));
  if (count % invocations != 0) writer.line(fmt::format("if (n >= {}u) {{ return; }}", count));
  std::int64_t unit = count;
  for (const Split::Column& column : split.columns) {
    unit /= column.extent;
    const std::string name = writer.let(0, fmt::format("n / {}u % {}u", unit, column.extent));
    pass.expressions().bind_loop(column.var, named(name));
  }
  open_scanned(pass, kernel, split.scanned);
  render_stores(pass, stage, "");
  while (writer.depth() > 0) writer.close();
  return pass.finish();
}

}  // namespace

void render_scatter(const Kernel& kernel, std::size_t number, const Target& target,
                    const std::vector<bool>& writable, RenderedKernel& out) {
  const Stage& stage = kernel.nest.stages[number];
  const Touched mine = touched(kernel, stage);
  const bool alone = stage.stores.size() == 1 && !mine.loads.contains(stage.stores[0].buffer);
  Split split;
  if (alone) {
    split = split_loops(kernel, stage, stage.stores[0]);
    const IndexNode& index = kernel.pool.node(stage.stores[0].index);
    const Scattered size = scattered(kernel, split);
    const std::int64_t count = index.hi - index.lo + 1;
    const bool is_busy = size.columns >= 16 * 1024;
    // A workgroup has less to do at a time than an invocation for each destination.
    const bool many = 8 * (size.sources + size.columns) < count;
    if (!is_busy && !target.cpu && many && size.sources <= 8 * target.workgroup_bytes - 32) {
      out.passes.push_back(by_source(kernel, stage.stores[0], split, target, writable));
      return;
    }
    // More destinations than that take longer to look through everything than columns take to run
    // everything in order.
    constexpr std::int64_t most_destinations = 1 << 20;
    if (!is_busy && count <= most_destinations && !target.cpu) {
      out.passes.push_back(by_destination(kernel, stage.stores[0], split, target, writable));
      return;
    }
  } else {
    split.scanned = kernel.nest.outer;
    split.scanned.insert(split.scanned.end(), stage.loops.begin(), stage.loops.end());
  }
  out.passes.push_back(by_column(kernel, stage, split, target, writable));
}

}  // namespace tensorgrad::wgsl
