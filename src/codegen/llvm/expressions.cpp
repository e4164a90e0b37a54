#include "codegen/llvm/expressions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "codegen/llvm/function_builder.h"
#include "codegen/llvm/math.h"
#include "codegen/llvm/share.h"
#include "tensorgrad/error.h"

namespace tensorgrad::llvm_ir {

using kernel::Expr;
using kernel::ExprNode;
using kernel::Fn;
using kernel::Index;
using kernel::IndexNode;

std::string_view ssa_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::f16:
      return "float";
    case DType::bool_:
      return "i1";
    case DType::i32:
    case DType::u32:
      break;
  }
  return "i32";
}

std::string_view memory_type(DType dtype) {
  if (dtype == DType::f16) return "half";
  return dtype == DType::bool_ ? "i8" : ssa_type(dtype);
}

std::string literal(DType dtype, double value) {
  switch (dtype) {
    case DType::f32:
    case DType::f16:
      return float_literal(Type::f32, value);
    case DType::bool_:
      return value != 0 ? "true" : "false";
    case DType::i32:
      return fmt::format("{}", static_cast<std::int32_t>(kernel::round_to(dtype, value)));
    case DType::u32:
      break;
  }
  const auto bits = static_cast<std::uint32_t>(kernel::round_to(dtype, value));
  return fmt::format("{}", static_cast<std::int32_t>(bits));
}

namespace {

Rendered merge(std::string name, std::initializer_list<const Rendered*> operands) {
  Rendered result{std::move(name), 0, false};
  for (const Rendered* operand : operands) {
    result.depth = std::max(result.depth, operand->depth);
    result.fragile = result.fragile || operand->fragile;
  }
  return result;
}

}  // namespace

ExpressionRenderer::ExpressionRenderer(const kernel::Kernel& kernel, Writer& writer)
    : kernel_(kernel), stored_(stored_buffers(kernel)), writer_(writer) {}

void ExpressionRenderer::bind_loop(int var, Rendered value) { loops_[var] = std::move(value); }

void ExpressionRenderer::bind_accumulator(int stage, int slot, std::function<Rendered()> read) {
  accumulators_[{stage, slot}] = std::move(read);
}

void ExpressionRenderer::scope_closed() {
  const auto gone = [&](const auto& entry) { return entry.second.depth > writer_.depth(); };
  std::erase_if(exprs_, gone);
  std::erase_if(indices_, gone);
}

void ExpressionRenderer::memory_changed() {
  const auto gone = [](const auto& entry) { return entry.second.fragile; };
  std::erase_if(exprs_, gone);
  std::erase_if(indices_, gone);
}

Rendered ExpressionRenderer::keep(std::unordered_map<std::int32_t, Rendered>& cache,
                                  std::int32_t id, Rendered value) {
  cache[id] = value;
  return value;
}

void ExpressionRenderer::collect(Index index, std::vector<Expr>& exprs) const {
  const IndexNode& node = kernel_.pool.node(index);
  switch (node.kind) {
    case IndexNode::Kind::sum:
      for (const auto& [atom, factor] : node.terms) collect(Index{atom}, exprs);
      break;
    case IndexNode::Kind::div:
    case IndexNode::Kind::mod:
      collect(Index{node.arg}, exprs);
      break;
    case IndexNode::Kind::value:
      exprs.push_back(node.expr);
      break;
    case IndexNode::Kind::loop:
      break;
  }
}

void ExpressionRenderer::collect(Expr expr, std::set<std::int32_t>& ids) const {
  std::vector<Expr> stack{expr};
  while (!stack.empty()) {
    const Expr top = stack.back();
    stack.pop_back();
    if (exprs_.contains(top.id) || !ids.insert(top.id).second) continue;
    const ExprNode& node = kernel_.pool.node(top);
    for (const std::int32_t arg : node.args) {
      if (arg >= 0) stack.push_back(Expr{arg});
    }
    if (node.index.id >= 0) collect(node.index, stack);
  }
}

Rendered ExpressionRenderer::render(Expr expr) {
  // Operands have smaller ids than what uses them, so chains of any length need no recursion.
  std::set<std::int32_t> ids;
  collect(expr, ids);
  for (const std::int32_t id : ids) keep(exprs_, id, render_node(Expr{id}));
  return exprs_.at(expr.id);
}

Rendered ExpressionRenderer::render(Index index) {
  if (const auto found = indices_.find(index.id); found != indices_.end()) return found->second;
  const IndexNode& node = kernel_.pool.node(index);
  switch (node.kind) {
    case IndexNode::Kind::loop:
      return loops_.at(node.var);
    case IndexNode::Kind::div:
    case IndexNode::Kind::mod:
      return keep(indices_, index.id, render_division(node));
    case IndexNode::Kind::value: {
      Rendered value = render(node.expr);
      const bool is_signed = kernel_.pool.node(node.expr).dtype == DType::i32;
      value.name = writer_.assign(
          value.depth, fmt::format("{} i32 {} to i64", is_signed ? "sext" : "zext", value.name));
      return keep(indices_, index.id, value);
    }
    case IndexNode::Kind::sum:
      break;
  }
  std::vector<std::pair<Rendered, std::int64_t>> terms;
  for (const auto& [atom, factor] : node.terms) terms.emplace_back(render(Index{atom}), factor);
  // Partial sums of outer variables are computed in the outer loops.
  std::stable_sort(terms.begin(), terms.end(),
                   [](const auto& a, const auto& b) { return a.first.depth < b.first.depth; });
  Rendered sum{fmt::format("{}", node.constant), 0, false};
  bool zero = node.constant == 0;
  for (const auto& [atom, factor] : terms) {
    const int depth = std::max(sum.depth, atom.depth);
    std::string term = atom.name;
    if (factor != 1) term = writer_.assign(depth, fmt::format("mul nsw i64 {}, {}", term, factor));
    if (!zero) term = writer_.assign(depth, fmt::format("add nsw i64 {}, {}", term, sum.name));
    sum = {term, depth, sum.fragile || atom.fragile};
    zero = false;
  }
  return keep(indices_, index.id, sum);
}

Rendered ExpressionRenderer::render_division(const IndexNode& node) {
  const Rendered arg = render(Index{node.arg});
  const IndexNode& operand = kernel_.pool.node(Index{node.arg});
  const bool divides = node.kind == IndexNode::Kind::div;
  const int depth = arg.depth;
  const auto assign = [&](std::string_view text) { return writer_.assign(depth, text); };
  // The pool keeps no division of a negative number.
  const std::string_view instruction = divides ? "udiv" : "urem";
  constexpr std::int64_t narrow = std::numeric_limits<std::int32_t>::max();
  std::string result;
  if (operand.hi <= narrow && node.divisor <= narrow) {
    // Vector units multiply 32-bit integers far faster than 64-bit ones.
    const std::string small = assign(fmt::format("trunc i64 {} to i32", arg.name));
    const std::string value =
        assign(fmt::format("{} i32 {}, {}", instruction, small, node.divisor));
    result = assign(fmt::format("zext nneg i32 {} to i64", value));
  } else {
    result = assign(fmt::format("{} i64 {}, {}", instruction, arg.name, node.divisor));
  }
  return {result, depth, arg.fragile};
}

Rendered ExpressionRenderer::address(int buffer, Index index) {
  Rendered value = render(index);
  const DType dtype = kernel_.args[static_cast<std::size_t>(buffer)].dtype;
  value.name =
      writer_.assign(value.depth, fmt::format("getelementptr inbounds {}, ptr %b{}, i64 {}",
                                              memory_type(dtype), buffer, value.name));
  return value;
}

std::string ExpressionRenderer::load(int depth, DType dtype, const std::string& address) {
  const std::string raw =
      writer_.assign(depth, fmt::format("load {}, ptr {}", memory_type(dtype), address));
  if (dtype == DType::f16) return writer_.assign(depth, fmt::format("fpext half {} to float", raw));
  return dtype == DType::bool_ ? writer_.assign(depth, fmt::format("icmp ne i8 {}, 0", raw)) : raw;
}

void ExpressionRenderer::store(int depth, DType dtype, const std::string& value,
                               const std::string& address) {
  std::string raw = value;
  if (dtype == DType::bool_) raw = writer_.assign(depth, fmt::format("zext i1 {} to i8", value));
  if (dtype == DType::f16) {
    raw = writer_.assign(depth, fmt::format("fptrunc float {} to half", value));
  }
  writer_.line(depth, fmt::format("store {} {}, ptr {}", memory_type(dtype), raw, address));
}

Rendered ExpressionRenderer::render_load(const ExprNode& node) {
  const Rendered place = address(node.buffer, node.index);
  Rendered result = place;
  if (stored_[static_cast<std::size_t>(node.buffer)]) {
    result.fragile = true;
    result.depth = writer_.depth();
  }
  if (node.args[0] < 0) {
    result.name = load(result.depth, node.dtype, place.name);
    return result;
  }
  const Rendered& condition = exprs_.at(node.args[0]);
  result.depth = std::max(result.depth, condition.depth);
  result.fragile = result.fragile || condition.fragile;
  result.name =
      writer_.choose(result.depth, condition.name, ssa_type(node.dtype), literal(node.dtype, 0),
                     [&] { return load(result.depth, node.dtype, place.name); });
  return result;
}

Rendered ExpressionRenderer::render_range(const ExprNode& node) {
  Rendered index = render(node.index);
  const IndexNode& range = kernel_.pool.node(node.index);
  const bool above = range.lo >= node.lo;
  const bool below = range.hi < node.hi;
  if (above && below) return {"true", 0, false};
  if (above) {
    index.name =
        writer_.assign(index.depth, fmt::format("icmp slt i64 {}, {}", index.name, node.hi));
  } else if (below) {
    index.name =
        writer_.assign(index.depth, fmt::format("icmp sge i64 {}, {}", index.name, node.lo));
  } else {
    // One unsigned comparison decides both ends.
    if (node.hi <= node.lo) return {"false", 0, false};
    std::string offset = index.name;
    if (node.lo != 0) {
      offset = writer_.assign(index.depth, fmt::format("sub i64 {}, {}", index.name, node.lo));
    }
    index.name =
        writer_.assign(index.depth, fmt::format("icmp ult i64 {}, {}", offset, node.hi - node.lo));
  }
  return index;
}

Rendered ExpressionRenderer::render_index_value(const ExprNode& node) {
  Rendered index = render(node.index);
  const auto assign = [&](std::string_view text) { return writer_.assign(index.depth, text); };
  if (node.dtype == DType::bool_) {
    index.name = assign(fmt::format("icmp ne i64 {}, 0", index.name));
    return index;
  }
  const IndexNode& range = kernel_.pool.node(node.index);
  const bool narrow = range.lo >= std::numeric_limits<std::int32_t>::min() &&
                      range.hi <= std::numeric_limits<std::int32_t>::max();
  if (is_floating(node.dtype)) {
    index.name = narrow ? assign(fmt::format("trunc i64 {} to i32", index.name)) : index.name;
    index.name = assign(fmt::format("sitofp {} {} to float", narrow ? "i32" : "i64", index.name));
    index.name = convert(index.depth, DType::f32, node.dtype, index.name);
    return index;
  }
  index.name = assign(fmt::format("trunc i64 {} to i32", index.name));
  return index;
}

std::string ExpressionRenderer::opaque(double infinity) {
  std::string& name = opaque_[infinity];
  if (name.empty()) {
    const std::string_view variable = infinity < 0 ? "@tg.lowest" : "@tg.highest";
    declarations_.insert(
        fmt::format("{} = internal global float {}\n", variable, literal(DType::f32, infinity)));
    name = writer_.assign(0, fmt::format("load float, ptr {}", variable));
  }
  return name;
}

Rendered ExpressionRenderer::render_node(Expr expr) {
  const ExprNode& node = kernel_.pool.node(expr);
  switch (node.fn) {
    case Fn::constant:
      return {literal(node.dtype, node.value), 0, false};
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
      return found->second();
    }
    default:
      break;
  }
  std::vector<std::string> args;
  Rendered result;
  for (const std::int32_t arg : node.args) {
    if (arg < 0) continue;
    const Rendered& operand = exprs_.at(arg);
    args.push_back(operand.name);
    const ExprNode& part = kernel_.pool.node(Expr{arg});
    if (node.fn == Fn::select && part.fn == Fn::constant && std::isinf(part.value)) {
      // LLVM would take the running maximum out of max(running, select(c, x, -infinity)), and then
      // not make vectors of it.
      args.back() = opaque(part.value);
    }
    result = merge({}, {&result, &operand});
  }
  result.name = operation(result.depth, node, args);
  return result;
}

}  // namespace tensorgrad::llvm_ir
