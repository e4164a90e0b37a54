#include "codegen/wgsl/expressions.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "graph/order.h"
#include "kernel/visit.h"
#include "tensorgrad/error.h"

namespace tensorgrad::wgsl {

using kernel::Expr;
using kernel::ExprNode;
using kernel::Fn;
using kernel::Index;
using kernel::IndexNode;

namespace {

/// Longer texts get a name.
constexpr std::size_t longest_text = 90;
constexpr std::int64_t u32_max = std::numeric_limits<std::uint32_t>::max();

int uses_of(const std::unordered_map<std::int32_t, int>& uses, std::int32_t id) {
  const auto found = uses.find(id);
  return found == uses.end() ? 0 : found->second;
}

}  // namespace

std::string_view value_type(DType dtype) { return dtype == DType::f16 ? "f32" : name(dtype); }

std::string_view memory_type(DType dtype) {
  if (dtype == DType::f16) return "half";
  return dtype == DType::bool_ ? "u32" : name(dtype);
}

std::string array_type(DType dtype, std::int64_t elements, int width, const Target& target) {
  const std::string element = width == 1 ? std::string(memory_type(dtype))
                                         : fmt::format("vec{}<{}>", width, memory_type(dtype));
  // WGSL counts the bytes of a type in 32 bits.
  constexpr std::int64_t most = std::int64_t{1} << 29;
  if (!target.guarded || elements >= most) return fmt::format("array<{}>", element);
  return fmt::format("array<{}, {}>", element, std::max<std::int64_t>(elements / width, 1));
}

std::string from_memory(DType dtype, const std::string& element) {
  if (dtype == DType::f16) return fmt::format("f32({})", element);
  return dtype == DType::bool_ ? fmt::format("({} != 0u)", element) : element;
}

std::string to_memory(DType dtype, const std::string& value) {
  if (dtype == DType::f16) return fmt::format("half({})", value);
  return dtype == DType::bool_ ? fmt::format("u32({})", value) : value;
}

std::string finite_literal(DType dtype, double value) {
  switch (dtype) {
    case DType::bool_:
      return value != 0 ? "true" : "false";
    case DType::u32:
      return fmt::format("{}u", static_cast<std::uint32_t>(kernel::round_to(dtype, value)));
    case DType::i32: {
      const auto number = static_cast<std::int32_t>(kernel::round_to(dtype, value));
      if (number == std::numeric_limits<std::int32_t>::min()) return "i32(-2147483648)";
      return fmt::format("{}i", number);
    }
    case DType::f32:
    case DType::f16:
      break;
  }
  const auto number = static_cast<float>(value);
  if (!std::isfinite(number)) {
    throw GraphError(fmt::format("{} is no constant of WGSL", number));
  }
  // Denormal decimals may be rejected or rounded to 0.
  if (number != 0 && std::fabs(number) < std::numeric_limits<float>::min()) {
    return fmt::format("bitcast<f32>(0x{:08x}u)", std::bit_cast<std::uint32_t>(number));
  }
  if (number == 0 && std::signbit(number)) return "bitcast<f32>(0x80000000u)";
  return fmt::format("{}f", number);
}

std::string Rendered::operand(Strength least) const {
  return strength >= least ? text : fmt::format("({})", text);
}

Rendered named(std::string text, int depth) {
  Rendered result;
  result.text = std::move(text);
  result.depth = depth;
  result.trivial = true;
  return result;
}

ExpressionRenderer::ExpressionRenderer(const kernel::Kernel& kernel, Writer& writer,
                                       Helpers& helpers)
    : kernel_(kernel), writer_(writer), helpers_(helpers) {}

// ---- counting ------------------------------------------------------------------------------------

void ExpressionRenderer::push_values(Index index, std::vector<Expr>& stack) const {
  kernel::for_each_part(
      kernel_.pool, index,
      [&](const IndexNode& n) {
        if (n.kind == IndexNode::Kind::value) stack.push_back(n.expr);
      },
      [](const ExprNode&) {});
}

void ExpressionRenderer::push_operands(const ExprNode& node, std::vector<Expr>& stack) const {
  for (const std::int32_t arg : node.args) {
    if (arg >= 0) stack.push_back(Expr{arg});
  }
  if (node.index.id >= 0) push_values(node.index, stack);
}

void ExpressionRenderer::count(Index index) {
  std::vector<Index> stack{index};
  while (!stack.empty()) {
    const Index top = stack.back();
    stack.pop_back();
    if (++index_uses_[top.id] > 1) continue;
    const IndexNode& node = kernel_.pool.node(top);
    for (const auto& [atom, factor] : node.terms) stack.push_back(Index{atom});
    if (node.arg >= 0) stack.push_back(Index{node.arg});
    if (node.kind == IndexNode::Kind::value) count(node.expr);
  }
}

void ExpressionRenderer::count(Expr expr) {
  std::vector<Expr> stack{expr};
  while (!stack.empty()) {
    const Expr top = stack.back();
    stack.pop_back();
    if (++expr_uses_[top.id] > 1) continue;
    const ExprNode& node = kernel_.pool.node(top);
    for (const std::int32_t arg : node.args) {
      if (arg >= 0) stack.push_back(Expr{arg});
    }
    if (node.index.id >= 0) count(node.index);
  }
}

void ExpressionRenderer::count_nest() {
  for (const kernel::Stage& stage : kernel_.nest.stages) {
    const kernel::Roots roots = kernel::roots(stage);
    for (const Expr expr : roots.exprs) count(expr);
    for (const Index index : roots.indices) count(index);
  }
}

// ---- names ---------------------------------------------------------------------------------------

void ExpressionRenderer::bind_loop(int var, Rendered value) {
  value.serial = writer_.serial(value.depth);
  loops_[var] = std::move(value);
}

void ExpressionRenderer::bind_accumulator(int stage, int slot, Rendered value) {
  value.serial = writer_.serial(value.depth);
  accumulators_[{stage, slot}] = std::move(value);
}

void ExpressionRenderer::bind(Expr expr, const std::string& name) {
  Rendered value = named(name, writer_.depth());
  value.serial = writer_.serial(value.depth);
  exprs_[expr.id] = std::move(value);
}

void ExpressionRenderer::memory_changed() {
  const auto gone = [](const auto& entry) { return entry.second.fragile; };
  std::erase_if(exprs_, gone);
  std::erase_if(indices_, gone);
}

const Rendered* ExpressionRenderer::cached(Cache& cache, std::int32_t id) {
  const auto found = cache.find(id);
  if (found == cache.end()) return nullptr;
  const Rendered& value = found->second;
  if (value.depth <= writer_.depth() && writer_.serial(value.depth) == value.serial) return &value;
  cache.erase(found);
  return nullptr;
}

Rendered ExpressionRenderer::name_it(Rendered value) {
  if (value.trivial) return value;
  value.text = writer_.let(value.depth, value.text);
  value.trivial = true;
  value.strength = Strength::primary;
  return value;
}

Rendered ExpressionRenderer::keep(Cache& cache, std::int32_t id, int uses, Rendered value) {
  if (uses > 1 || value.text.size() > longest_text) value = name_it(std::move(value));
  value.serial = writer_.serial(value.depth);
  cache[id] = value;
  return value;
}

Rendered ExpressionRenderer::lift(const Rendered& operand, int depth) {
  return operand.depth < depth ? name_it(operand) : operand;
}

Rendered ExpressionRenderer::render_named(Expr expr) {
  Rendered value = name_it(render(expr));
  value.serial = writer_.serial(value.depth);
  exprs_[expr.id] = value;
  return value;
}

std::string ExpressionRenderer::literal(DType dtype, double value) {
  if (is_floating(dtype) && !std::isfinite(static_cast<float>(value))) {
    const auto number = static_cast<float>(value);
    const std::uint32_t bits =
        std::isnan(number) ? 0x7FC00000U : std::bit_cast<std::uint32_t>(number);
    return fmt::format("{}(0x{:08x}u)", helpers_.use("tg_bits"), bits);
  }
  return finite_literal(dtype, value);
}

// ---- expressions ---------------------------------------------------------------------------------

Rendered ExpressionRenderer::render(Expr expr) {
  // Operands first, without recursion: chains may be of any length.
  struct Visit {
    Expr expr;
    bool ready;
  };
  std::vector<Visit> stack{{expr, false}};
  std::vector<Expr> operands;
  while (!stack.empty()) {
    const Visit top = stack.back();
    stack.pop_back();
    if (cached(exprs_, top.expr.id) != nullptr) continue;
    if (top.ready) {
      keep(exprs_, top.expr.id, uses_of(expr_uses_, top.expr.id), render_node(top.expr));
      continue;
    }
    stack.push_back({top.expr, true});
    operands.clear();
    push_operands(kernel_.pool.node(top.expr), operands);
    for (std::size_t i = operands.size(); i-- > 0;) stack.push_back({operands[i], false});
  }
  return *cached(exprs_, expr.id);
}

Rendered ExpressionRenderer::render_node(Expr expr) {
  const ExprNode& node = kernel_.pool.node(expr);
  switch (node.fn) {
    case Fn::constant: {
      Rendered result = named(literal(node.dtype, node.value));
      if (node.value < 0 && node.dtype != DType::u32) result.strength = Strength::other;
      return result;
    }
    case Fn::load:
      return render_load(node);
    case Fn::in_range:
      return render_range(node);
    case Fn::index:
      return render_index_value(node);
    case Fn::acc: {
      const auto found = accumulators_.find({node.stage, node.slot});
      if (found == accumulators_.end()) {
        throw GraphError(
            fmt::format("kernel {} reads accumulator {} of stage {} before it is known",
                        kernel_.name, node.slot, node.stage));
      }
      return found->second;
    }
    default:
      return operation(node);
  }
}

std::string ExpressionRenderer::element(int buffer, const std::string& index) const {
  return from_memory(kernel_.args[static_cast<std::size_t>(buffer)].dtype,
                     fmt::format("b{}[{}]", buffer, index));
}

void ExpressionRenderer::store(int depth, int buffer, const std::string& index,
                               const std::string& value) {
  const DType dtype = kernel_.args[static_cast<std::size_t>(buffer)].dtype;
  writer_.line(depth, fmt::format("b{}[{}] = {};", buffer, index, to_memory(dtype, value)));
}

Rendered ExpressionRenderer::render_load(const ExprNode& node) {
  if (load_hook_) {
    if (auto known = load_hook_(node)) return *known;
  }
  Rendered place = render(node.index);
  Rendered result;
  result.depth = place.depth;
  result.fragile = place.fragile;
  if (kernel_.args[static_cast<std::size_t>(node.buffer)].written) {
    result.fragile = true;
    result.depth = writer_.depth();
  }
  if (node.args[0] < 0) {
    require_u32(node.index);
    result.text = element(node.buffer, lift(place, result.depth).text);
    return result.fragile ? name_it(result) : result;
  }
  const Rendered condition = *cached(exprs_, node.args[0]);
  result.depth = std::max(result.depth, condition.depth);
  result.fragile = result.fragile || condition.fragile;
  const std::string index = lift(place, result.depth).text;
  const std::string test = lift(condition, result.depth).text;
  result.text = writer_.var(result.depth, literal(node.dtype, 0));
  result.trivial = true;
  writer_.line(result.depth, fmt::format("if ({}) {{ {} = {}; }}", test, result.text,
                                         element(node.buffer, index)));
  return result;
}

void ExpressionRenderer::require_u32(Index index) const {
  const IndexNode& node = kernel_.pool.node(index);
  if (node.lo < 0 || node.hi > u32_max) {
    throw GraphError(
        fmt::format("kernel {} has an index from {} to {}, which is beyond 32 bits: {}",
                    kernel_.name, node.lo, node.hi, kernel::to_string(kernel_.pool, index)));
  }
}

Rendered ExpressionRenderer::render_access(Index index) {
  require_u32(index);
  return render(index);
}

Rendered ExpressionRenderer::render_range(const ExprNode& node) {
  Rendered index = render(node.index);
  const IndexNode& range = kernel_.pool.node(node.index);
  if (node.hi <= node.lo) return named("false");
  if (std::max(range.hi, node.hi) - std::min(range.lo, node.lo) > u32_max) {
    throw GraphError(fmt::format("kernel {} compares an index from {} to {} with [{}, {})",
                                 kernel_.name, range.lo, range.hi, node.lo, node.hi));
  }
  const bool above = range.lo >= node.lo;
  const bool below = range.hi < node.hi;
  if (above && below) return named("true");
  Rendered result = index;
  result.trivial = false;
  result.strength = Strength::other;
  if (above && range.lo >= 0) {
    result.text = fmt::format("{} < {}u", index.operand(Strength::sum), node.hi);
    return result;
  }
  if (below && range.lo >= 0) {
    result.text = fmt::format("{} >= {}u", index.operand(Strength::sum), node.lo);
    return result;
  }
  // One comparison decides both ends: indices wrap.
  const std::string offset = node.lo == 0 ? index.operand(Strength::sum)
                                          : fmt::format("{} {} {}u", index.operand(Strength::sum),
                                                        node.lo > 0 ? "-" : "+", std::abs(node.lo));
  result.text = fmt::format("{} < {}u", offset, node.hi - node.lo);
  return result;
}

Rendered ExpressionRenderer::render_index_value(const ExprNode& node) {
  Rendered index = render(node.index);
  const IndexNode& range = kernel_.pool.node(node.index);
  Rendered result = index;
  result.trivial = false;
  result.strength = Strength::primary;
  switch (node.dtype) {
    case DType::bool_:
      result.text = fmt::format("({} != 0u)", index.operand(Strength::sum));
      return result;
    case DType::u32:
      return index;
    case DType::i32:
      result.text = fmt::format("i32({})", index.text);
      return result;
    case DType::f32:
    case DType::f16:
      break;
  }
  constexpr std::int64_t exact = 1 << 24;  // all up to here are numbers of f32
  if (range.lo >= 0) {
    require_u32(node.index);
    if (range.hi > exact) return convert(DType::u32, node.dtype, index);
    result.text = fmt::format("f32({})", index.text);
    return convert(DType::f32, node.dtype, result);
  }
  if (range.lo < std::numeric_limits<std::int32_t>::min() ||
      range.hi > std::numeric_limits<std::int32_t>::max()) {
    throw GraphError(fmt::format("kernel {} takes an index from {} to {} as a number", kernel_.name,
                                 range.lo, range.hi));
  }
  result.text = fmt::format("i32({})", index.text);
  return convert(DType::i32, node.dtype, result);
}

// ---- indices -------------------------------------------------------------------------------------

Rendered ExpressionRenderer::render(Index index) {
  if (const Rendered* known = cached(indices_, index.id)) return *known;
  const IndexNode& node = kernel_.pool.node(index);
  const int uses = uses_of(index_uses_, index.id);
  switch (node.kind) {
    case IndexNode::Kind::loop: {
      const auto found = loops_.find(node.var);
      if (found == loops_.end()) {
        throw GraphError(
            fmt::format("kernel {} reads loop i{} outside of it", kernel_.name, node.var));
      }
      return found->second;
    }
    case IndexNode::Kind::div:
    case IndexNode::Kind::mod:
      return keep(indices_, index.id, uses, render_division(node));
    case IndexNode::Kind::value: {
      Rendered value = render(node.expr);
      if (kernel_.pool.node(node.expr).dtype == DType::i32) {
        value.text = fmt::format("u32({})", value.text);
        value.trivial = false;
        value.strength = Strength::primary;
      }
      return keep(indices_, index.id, uses, value);
    }
    case IndexNode::Kind::sum:
      break;
  }
  return keep(indices_, index.id, uses, render_sum(node));
}

Rendered ExpressionRenderer::render_sum(const IndexNode& node) {
  const auto wrapped = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  if (node.terms.empty()) return named(fmt::format("{}u", wrapped(node.constant)));
  struct Term {
    Rendered atom;
    std::int64_t factor;
  };
  std::vector<Term> terms;
  for (const auto& [atom, factor] : node.terms) terms.push_back({render(Index{atom}), factor});
  // Partial sums of outer variables are computed in the outer loops; additions come first.
  sort_values(terms, [](const Term& a, const Term& b) {
    if (a.atom.depth != b.atom.depth) return a.atom.depth < b.atom.depth;
    return a.factor > 0 && b.factor < 0;
  });
  Rendered sum;
  bool first = true;
  const auto append = [&](const std::string& text, Strength strength, bool negative) {
    if (first && !negative) {
      sum.text = text;
      sum.strength = strength;
    } else {
      sum.text = fmt::format("{} {} {}", first ? "0u" : sum.text, negative ? '-' : '+', text);
      sum.strength = Strength::sum;
    }
    sum.trivial = false;
    first = false;
  };
  const bool constant_first = node.constant > 0 && terms.front().factor < 0;
  if (constant_first) {
    append(fmt::format("{}u", wrapped(node.constant)), Strength::primary, false);
    sum.trivial = true;
  }
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const auto& [atom, factor] = terms[i];
    const int depth = std::max(sum.depth, atom.depth);
    if (!first && depth > sum.depth) sum = name_it(sum);
    sum.depth = depth;
    sum.fragile = sum.fragile || atom.fragile;
    const bool is_unit = factor == 1 || factor == -1;
    const std::string text = is_unit ? atom.operand(factor < 0 ? Strength::product : Strength::sum)
                                     : fmt::format("{} * {}u", atom.operand(Strength::product),
                                                   wrapped(factor < 0 ? -factor : factor));
    const bool kept_name = first && factor == 1 && atom.trivial;
    append(text, is_unit ? atom.strength : Strength::product, factor < 0);
    if (kept_name) sum.trivial = true;
  }
  if (node.constant != 0 && !constant_first) {
    const bool negative = node.constant < 0;
    append(fmt::format("{}u", wrapped(negative ? -node.constant : node.constant)),
           Strength::primary, negative);
  }
  return sum;
}

Rendered ExpressionRenderer::render_division(const IndexNode& node) {
  require_u32(Index{node.arg});
  Rendered result = render(Index{node.arg});
  result.text = fmt::format("{} {} {}u", result.operand(Strength::product),
                            node.kind == IndexNode::Kind::div ? "/" : "%", node.divisor);
  result.strength = Strength::product;
  result.trivial = false;
  return result;
}

}  // namespace tensorgrad::wgsl
