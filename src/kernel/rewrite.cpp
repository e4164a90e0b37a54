// Rebuilding expressions with leaves mapped.
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "kernel/expr.h"

namespace tensorgrad::kernel {

/// Visits the parts of an expression, operands first and each once, with an explicit stack:
/// expressions may be too deep for recursion.
class Rewriter {
 public:
  Rewriter(const Pool& source, Pool& target, const Pool::Mapping& mapping)
      : source_(source), target_(target), mapping_(mapping) {}

  Expr run(Expr e) {
    run(Part{e.id, false});
    return exprs_.at(e.id);
  }
  Index run(Index i) {
    run(Part{i.id, true});
    return indices_.at(i.id);
  }

 private:
  struct Part {
    std::int32_t id;
    bool is_index;
  };

  void run(Part root) {
    std::vector<Part> open{root};
    while (!open.empty()) {
      const Part part = open.back();
      if (is_done(part)) {
        open.pop_back();
        continue;
      }
      const std::size_t before = open.size();
      push_operands(part, open);
      if (open.size() > before) continue;
      open.pop_back();
      if (part.is_index) {
        indices_[part.id] = rebuild(source_.node(Index{part.id}));
      } else {
        exprs_[part.id] = rebuild(source_.node(Expr{part.id}));
      }
    }
  }

  bool is_done(Part part) const {
    return part.is_index ? indices_.contains(part.id) : exprs_.contains(part.id);
  }

  /// Pushes the operands that are not rebuilt yet.
  void push_operands(Part part, std::vector<Part>& open) const {
    const auto push = [&](Part operand) {
      if (operand.id >= 0 && !is_done(operand)) open.push_back(operand);
    };
    if (part.is_index) {
      const IndexNode& n = source_.node(Index{part.id});
      for (const auto& term : n.terms) push({term.first, true});
      push({n.arg, true});
      push({n.expr.id, false});
    } else {
      const ExprNode& n = source_.node(Expr{part.id});
      for (const std::int32_t arg : n.args) push({arg, false});
      push({n.index.id, true});
    }
  }

  Index rebuild(const IndexNode& n) {
    switch (n.kind) {
      case IndexNode::Kind::sum: {
        Index sum = target_.number(n.constant);
        for (const auto& [atom, factor] : n.terms) {
          sum = target_.add(sum, target_.mul(indices_.at(atom), factor));
        }
        return sum;
      }
      case IndexNode::Kind::loop:
        return mapping_.loop ? mapping_.loop(n.var, n.hi + 1) : target_.loop(n.var, n.hi + 1);
      case IndexNode::Kind::div:
        return target_.div(indices_.at(n.arg), n.divisor);
      case IndexNode::Kind::mod:
        return target_.mod(indices_.at(n.arg), n.divisor);
      case IndexNode::Kind::value:
        break;
    }
    return target_.value(exprs_.at(n.expr.id), n.lo, n.hi);
  }

  Expr mapped(std::int32_t id) const { return id < 0 ? Expr{} : exprs_.at(id); }

  Expr rebuild(const ExprNode& n) {
    switch (n.fn) {
      case Fn::constant:
        return target_.constant(n.value, n.dtype);
      case Fn::index:
        return target_.from_index(indices_.at(n.index.id), n.dtype);
      case Fn::in_range:
        return target_.in_range(indices_.at(n.index.id), n.lo, n.hi);
      case Fn::load: {
        const Index index = indices_.at(n.index.id);
        const Expr cond = mapped(n.args[0]);
        return mapping_.load ? mapping_.load(n, index, cond)
                             : target_.load(n.buffer, index, cond, n.dtype);
      }
      case Fn::acc:
        return mapping_.acc ? mapping_.acc(n) : target_.acc(n.stage, n.slot, n.dtype);
      case Fn::cast:
        return target_.cast(mapped(n.args[0]), n.dtype);
      case Fn::bitcast:
        return target_.bitcast(mapped(n.args[0]), n.dtype);
      default: {
        const Expr args[3] = {mapped(n.args[0]), mapped(n.args[1]), mapped(n.args[2])};
        return target_.apply(n.fn,
                             std::span<const Expr>(args, static_cast<std::size_t>(arity(n.fn))));
      }
    }
  }

  const Pool& source_;
  Pool& target_;
  const Pool::Mapping& mapping_;
  std::unordered_map<std::int32_t, Expr> exprs_;
  std::unordered_map<std::int32_t, Index> indices_;
};

Expr Pool::rewrite(Expr e, const Mapping& mapping) {
  return Rewriter(*this, *this, mapping).run(e);
}

Index Pool::rewrite(Index i, const Mapping& mapping) {
  return Rewriter(*this, *this, mapping).run(i);
}

Expr Pool::import(const Pool& source, Expr e, const Mapping& mapping) {
  return Rewriter(source, *this, mapping).run(e);
}

Index Pool::import(const Pool& source, Index i, const Mapping& mapping) {
  return Rewriter(source, *this, mapping).run(i);
}

}  // namespace tensorgrad::kernel
