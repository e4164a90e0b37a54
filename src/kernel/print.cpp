#include "kernel/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "graph/order.h"

namespace tensorgrad::kernel {
namespace {

/// Operations longer than this are named.
constexpr std::size_t longest_text = 120;

enum Strength : int { ternary, either, both, compare, bits, shift, sum, product, prefix, atom };

struct Infix {
  const char* symbol;
  int strength;
};

/// The operator of `fn`, or no symbol where it is written as a call.
Infix infix(Fn fn, bool is_bool) {
  switch (fn) {
    case Fn::add:
      return {"+", sum};
    case Fn::sub:
      return {"-", sum};
    case Fn::mul:
      return {"*", product};
    case Fn::div:
      return {"/", product};
    case Fn::rem:
      return {"%", product};
    case Fn::bit_and:
      return is_bool ? Infix{"and", both} : Infix{"&", bits};
    case Fn::bit_or:
      return is_bool ? Infix{"or", either} : Infix{"|", bits};
    case Fn::bit_xor:
      return {"^", bits};
    case Fn::shl:
      return {"<<", shift};
    case Fn::shr:
      return {">>", shift};
    case Fn::eq:
      return {"==", compare};
    case Fn::ne:
      return {"!=", compare};
    case Fn::lt:
      return {"<", compare};
    case Fn::le:
      return {"<=", compare};
    case Fn::gt:
      return {">", compare};
    case Fn::ge:
      return {">=", compare};
    default:
      return {nullptr, atom};
  }
}

}  // namespace

std::string constant_text(DType dtype, double value) {
  switch (dtype) {
    case DType::bool_:
      return value != 0 ? "true" : "false";
    case DType::i32:
      return fmt::format("{}", static_cast<std::int64_t>(value));
    case DType::u32:
      return fmt::format("{}u", static_cast<std::int64_t>(value));
    case DType::f32:
    case DType::f16:
      break;
  }
  if (std::isnan(value)) return "nan";
  std::string text = fmt::format("{}", static_cast<float>(value));
  if (text.find_first_of(".ein") == std::string::npos) text += ".0";
  return text;
}

std::vector<Printer::Part> Printer::operands(Part part) const {
  std::vector<Part> result;
  const auto push = [&](Part operand) {
    if (operand.id >= 0) result.push_back(operand);
  };
  if (part.is_index) {
    const IndexNode& n = pool_.node(Index{part.id});
    for (const auto& term : n.terms) push({term.first, true});
    push({n.arg, true});
    push({n.expr.id, false});
  } else {
    const ExprNode& n = pool_.node(Expr{part.id});
    for (const std::int32_t arg : n.args) push({arg, false});
    push({n.index.id, true});
  }
  return result;
}

/// The parts below `root` that are not done, operands first.
std::vector<Printer::Part> Printer::in_order(Part root,
                                             bool (Printer::*is_done)(Part) const) const {
  std::vector<Part> order;
  std::unordered_map<std::int64_t, bool> left;  // whether it is in the order yet
  const auto key = [](Part part) { return std::int64_t{part.id} * 2 + (part.is_index ? 1 : 0); };
  std::vector<Part> open{root};
  while (!open.empty()) {
    const Part part = open.back();
    const auto [it, is_new] = left.try_emplace(key(part), false);
    if ((this->*is_done)(part) || it->second) {
      open.pop_back();
      continue;
    }
    if (!is_new) {
      it->second = true;
      order.push_back(part);
      open.pop_back();
      continue;
    }
    const std::vector<Part> parts = operands(part);
    for (auto operand = parts.rbegin(); operand != parts.rend(); ++operand) {
      if (!left.contains(key(*operand))) open.push_back(*operand);
    }
  }
  return order;
}

bool Printer::is_counted(Part part) const {
  return part.is_index ? index_uses_.contains(part.id) : expr_uses_.contains(part.id);
}
bool Printer::is_printed(Part part) const {
  return part.is_index ? index_texts_.contains(part.id) : expr_texts_.contains(part.id);
}

void Printer::count(Part root) {
  const auto use = [this](Part part) -> int& {
    return part.is_index ? index_uses_[part.id] : expr_uses_[part.id];
  };
  for (const Part part : in_order(root, &Printer::is_counted)) {
    for (const Part operand : operands(part)) ++use(operand);
    use(part) += 0;
  }
  ++use(root);
}
void Printer::count(Expr e) { count(Part{e.id, false}); }
void Printer::count(Index i) { count(Part{i.id, true}); }

Printer::Text& Printer::text(Part part) {
  return part.is_index ? index_texts_[part.id] : expr_texts_[part.id];
}
const Printer::Text& Printer::text(Part part) const {
  return part.is_index ? index_texts_.at(part.id) : expr_texts_.at(part.id);
}

void Printer::print(Part root) {
  for (const Part part : in_order(root, &Printer::is_printed)) {
    Text formatted =
        part.is_index ? format(pool_.node(Index{part.id})) : format(pool_.node(Expr{part.id}));
    if (is_named(part, formatted)) {
      const std::string name = fmt::format("t{}", names_++);
      definitions_.push_back(name + " = " + formatted.text);
      formatted = {name, atom};
    }
    text(part) = std::move(formatted);
  }
}
std::string Printer::print(Expr e) {
  print(Part{e.id, false});
  return expr_texts_.at(e.id).text;
}
std::string Printer::print(Index i) {
  print(Part{i.id, true});
  return index_texts_.at(i.id).text;
}

std::vector<std::string> Printer::take_definitions() { return std::exchange(definitions_, {}); }

bool Printer::is_named(Part part, const Text& formatted) const {
  if (formatted.text.size() > longest_text) return true;
  if (part.is_index) return false;
  const Fn fn = pool_.node(Expr{part.id}).fn;
  if (fn == Fn::constant || fn == Fn::index || fn == Fn::acc) return false;
  const auto uses = expr_uses_.find(part.id);
  return uses != expr_uses_.end() && uses->second > 1;
}

std::string Printer::operand(Part part, int strength) const {
  const Text& inner = text(part);
  return inner.strength < strength ? "(" + inner.text + ")" : inner.text;
}

Printer::Text Printer::format(const IndexNode& n) const {
  switch (n.kind) {
    case IndexNode::Kind::loop:
      return {fmt::format("i{}", n.var), atom};
    case IndexNode::Kind::div:
      return {fmt::format("{}/{}", operand({n.arg, true}, prefix), n.divisor), product};
    case IndexNode::Kind::mod:
      return {fmt::format("{}%{}", operand({n.arg, true}, prefix), n.divisor), product};
    case IndexNode::Kind::value:
      return {fmt::format("at({}, {}..{})", operand({n.expr.id, false}, ternary), n.lo, n.hi),
              atom};
    case IndexNode::Kind::sum:
      break;
  }
  // Ids depend on the order of building, so that terms are ordered by what they are.
  struct Term {
    std::int64_t factor;
    std::string text;
  };
  std::vector<Term> terms;
  for (const auto& [id, factor] : n.terms) {
    const int strength = std::abs(factor) == 1 ? product : prefix;
    terms.push_back({factor, operand({id, true}, strength)});
  }
  sort_values(terms, [](const Term& a, const Term& b) {
    const std::int64_t size_a = std::abs(a.factor);
    const std::int64_t size_b = std::abs(b.factor);
    if (size_a != size_b) return size_a > size_b;
    if (a.factor != b.factor) return a.factor > b.factor;
    return a.text.size() != b.text.size() ? a.text.size() < b.text.size() : a.text < b.text;
  });
  if (terms.empty()) return {fmt::format("{}", n.constant), n.constant < 0 ? prefix : atom};
  std::string result;
  for (const Term& term : terms) {
    if (result.empty()) {
      result = term.factor < 0 ? "-" : "";
    } else {
      result += term.factor < 0 ? " - " : " + ";
    }
    if (std::abs(term.factor) != 1) result += fmt::format("{}*", std::abs(term.factor));
    result += term.text;
  }
  if (n.constant != 0) {
    result += fmt::format(" {} {}", n.constant < 0 ? '-' : '+', std::abs(n.constant));
  }
  return {result, terms.size() == 1 && n.constant == 0 ? product : sum};
}

Printer::Text Printer::format(const ExprNode& n) const {
  const auto arg = [&](int i, int strength) { return operand({n.args[i], false}, strength); };
  switch (n.fn) {
    case Fn::constant:
      return {constant_text(n.dtype, n.value), n.value < 0 ? prefix : atom};
    case Fn::index:
      return {
          fmt::format("{}({})", tensorgrad::name(n.dtype), operand({n.index.id, true}, ternary)),
          atom};
    case Fn::acc:
      return {n.stage < 0 ? fmt::format("contraction") : fmt::format("s{}.{}", n.stage, n.slot),
              atom};
    case Fn::in_range: {
      const IndexNode& index = pool_.node(n.index);
      std::string result = operand({n.index.id, true}, bits);
      if (n.lo > index.lo) result = fmt::format("{} <= {}", n.lo, result);
      if (n.hi <= index.hi) result += fmt::format(" < {}", n.hi);
      return {result, compare};
    }
    case Fn::load: {
      std::string result = fmt::format("b{}[{}]", n.buffer, operand({n.index.id, true}, ternary));
      if (n.args[0] < 0) return {result, atom};
      return {fmt::format("{} if {} else 0", result, arg(0, either)), ternary};
    }
    case Fn::cast:
      return {fmt::format("{}({})", tensorgrad::name(n.dtype), arg(0, ternary)), atom};
    case Fn::bitcast:
      return {fmt::format("bitcast_{}({})", tensorgrad::name(n.dtype), arg(0, ternary)), atom};
    case Fn::neg:
      return {"-" + arg(0, prefix), prefix};
    case Fn::bit_not:
      return {(n.dtype == DType::bool_ ? "not " : "~") + arg(0, prefix), prefix};
    default:
      break;
  }
  const Infix op = infix(n.fn, n.dtype == DType::bool_);
  if (op.symbol != nullptr) {
    // Comparisons do not chain; bit operators have one strength, so that both sides are bracketed.
    const bool chains = op.strength != compare && op.strength != bits;
    return {fmt::format("{} {} {}", arg(0, chains ? op.strength : op.strength + 1), op.symbol,
                        arg(1, op.strength + 1)),
            op.strength};
  }
  std::string args = arg(0, ternary);
  for (int i = 1; i < arity(n.fn); ++i) args += ", " + arg(i, ternary);
  return {fmt::format("{}({})", name(n.fn), args), atom};
}

namespace {

template <class Node>
std::string with_definitions(const Pool& pool, Node node) {
  Printer printer(pool);
  printer.count(node);
  const std::string text = printer.print(node);
  std::string result;
  for (const std::string& definition : printer.take_definitions()) result += definition + "; ";
  return result + text;
}

}  // namespace

std::string to_string(const Pool& pool, Expr e) {
  return e.defined() ? with_definitions(pool, e) : "undefined";
}
std::string to_string(const Pool& pool, Index i) {
  return i.id >= 0 ? with_definitions(pool, i) : "undefined";
}

}  // namespace tensorgrad::kernel
