#include "schedule/pull.h"

#include <fmt/format.h>

namespace tensorgrad::schedule {

using kernel::Expr;
using kernel::ExprNode;
using kernel::Fn;
using kernel::Index;
using kernel::Pool;

Puller::Puller(const State& s, Pool& pool, Argument argument, std::set<const Node*> inlined,
               Override on_member)
    : s_(s),
      pool_(pool),
      argument_(std::move(argument)),
      inlined_(std::move(inlined)),
      override_(std::move(on_member)) {}

Expr Puller::element(const Tensor& t, const std::vector<Index>& index, Expr cond) {
  const Node& n = t.node();
  std::vector<std::int32_t> key{cond.id};
  for (Index i : index) key.push_back(i.id);
  const auto memo_key = std::make_pair(&n, std::move(key));
  if (const auto it = memo_.find(memo_key); it != memo_.end()) return it->second;
  const Expr e = build(n, index, cond);
  memo_[memo_key] = e;
  return e;
}

// One way for each kind of lowering.
struct Puller::Lower {
  Puller& p;
  const Node& n;
  const std::vector<Index>& index;
  Expr cond;

  Expr operator()(const LowerGenerate& l) const { return l.fn(p.pool_, n, index); }
  Expr operator()(const LowerMap& l) const {
    std::vector<Expr> x;
    for (const Tensor& o : n.operands) x.push_back(p.element(o, index, cond));
    return l.fn(p.pool_, n, x);
  }
  Expr operator()(const LowerView& l) const { return p.through(n, l.fn(p.pool_, n, index), cond); }
  Expr operator()(const LowerIndirect& l) const {
    const ReadOperand read = [&](int operand, std::span<const Index> at) {
      return p.element(n.operand(static_cast<std::size_t>(operand)), {at.begin(), at.end()}, cond);
    };
    return p.through(n, l.fn(p.pool_, n, index, read), cond);
  }
  Expr operator()(const LowerConcat&) const {
    Pool& pool = p.pool_;
    const auto axis = static_cast<std::size_t>(n.attr<AxisAttr>().axis);
    Expr e;
    std::int64_t end = n.type.shape[axis];
    for (std::size_t i = n.operands.size(); i-- > 0;) {
      const std::int64_t extent = n.operand(i).shape()[axis];
      if (extent == 0) continue;
      const std::int64_t start = end - extent;
      std::vector<Index> inner = index;
      inner[axis] = pool.sub(index[axis], pool.number(start));
      const Expr here = pool.in_range(index[axis], start, end);
      const Expr part = p.element(n.operand(i), inner, pool.both(cond, here));
      e = e.defined() ? pool.apply(Fn::select, {here, part, e}) : part;
      end = start;
    }
    return e.defined() ? e : pool.constant(0, n.type.dtype);
  }
  template <class L>
  Expr operator()(const L&) const {
    throw GraphError(fmt::format("schedule: {} has no stored value to read.", *n.op->name), n.site);
  }
};

Expr Puller::compute(const Node& n, const std::vector<Index>& index, Expr cond) {
  return std::visit(Lower{*this, n, index, cond}, *n.op->lowering);
}

Expr Puller::load(const Location& at, const Node& n, std::span<const Index> index, Expr cond) {
  return pool_.load(argument_(at, n.type.shape), flat(at, index), cond, n.type.dtype);
}

Index Puller::flat(const Location& at, std::span<const Index> index) {
  Index sum = pool_.number(at.offset);
  for (std::size_t d = 0; d < index.size(); ++d) {
    sum = pool_.add(sum, pool_.mul(index[d], at.strides[d]));
  }
  return sum;
}

Expr Puller::build(const Node& n, const std::vector<Index>& index, Expr cond) {
  if (override_) {
    if (const Expr e = override_(n, index); e.defined()) return e;
  }
  const auto at = s_.locations.find(&n);
  if (at != s_.locations.end() && !inlined_.contains(&n)) {
    return load(at->second, n, index, cond);
  }
  return compute(n, index, cond);
}

// A view's elements outside its operand are `fill`; the operand is not read there.
Expr Puller::through(const Node& n, Source s, Expr cond) {
  const Tensor& from = n.operand(static_cast<std::size_t>(s.operand));
  // Where the element is valid, the index along an extent of 1 is 0, whatever it looks like.
  for (std::size_t d = 0; d < s.index.size(); ++d) {
    if (from.shape()[d] == 1) s.index[d] = pool_.number(0);
  }
  const Expr e = element(from, s.index, pool_.both(cond, s.valid));
  if (!s.valid.defined()) return e;
  const ExprNode& node = pool_.node(e);
  // A load with this condition gives the 0 by itself.
  if (node.fn == Fn::load && node.args[0] == pool_.both(cond, s.valid).id && s.fill == 0) return e;
  return pool_.apply(Fn::select, {s.valid, e, pool_.constant(s.fill, n.type.dtype)});
}

}  // namespace tensorgrad::schedule
