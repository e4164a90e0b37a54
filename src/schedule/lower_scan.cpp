// Kernels that are not rows: scans, sorts, scatters.
#include <algorithm>
#include <map>
#include <set>

#include "ops/rules.h"
#include "schedule/lower_base.h"

namespace tensorgrad::schedule {
namespace {

using kernel::Expr;
using kernel::Fn;
using kernel::Index;
using kernel::Kernel;

class PassLowering : public LoweringBase {
 public:
  using LoweringBase::LoweringBase;

  // Scans along one axis of one shape, and maps that read them where they are computed: one pass.
  Lowered scan() {
    Kernel& k = out_.kernel;
    const auto first = std::find_if(ids_.begin(), ids_.end(),
                                    [&](int i) { return item(i).kind == ItemKind::scan; });
    const Node& model = item(*first).value.node();
    const auto& [axis, reverse] = model.attr<ScanAttr>();
    const auto along = static_cast<std::size_t>(axis);
    const std::int64_t length = model.type.shape[along];
    kernel::Stage stage;
    std::vector<Index> index;
    for (std::size_t d = 0; d < model.type.shape.size(); ++d) {
      const std::int64_t extent = model.type.shape[d];
      index.push_back(k.pool.number(0));
      if (extent == 1) continue;
      const int loop = add_loop(extent);
      (d == along ? stage.loops : k.nest.outer).push_back(loop);
      index[d] = k.pool.loop(loop, extent);
    }
    const Index step = index[along];
    if (reverse) index[along] = k.pool.sub(k.pool.number(length - 1), step);

    std::set<const Node*> inlined;
    for (int i : ids_) {
      const Node& n = item(i).value.node();
      const bool fits = n.type.shape == model.type.shape &&
                        ((item(i).kind == ItemKind::map && !lowering_as<LowerScan>(n)) ||
                         (item(i).kind == ItemKind::scan && n.attrs == model.attrs));
      if (!fits) throw Unfit{"scans that do not run together"};
      if (item(i).kind == ItemKind::map && !is_copy(i)) inlined.insert(&n);
    }
    std::map<int, Expr> running;
    Puller puller(
        s_, k.pool, [this](const auto& at, const auto& shape) { return read_argument(at, shape); },
        inlined,
        [&](const Node& n, std::span<const Index> at) -> Expr {
          const auto m = member_.find(&n);
          if (m == member_.end() || item(m->second).kind != ItemKind::scan) return {};
          const auto value = running.find(m->second);
          if (value == running.end() || !std::equal(at.begin(), at.end(), index.begin())) {
            throw Unfit{"a running value is read elsewhere"};
          }
          return value->second;
        });
    for (int i : ids_) {
      if (item(i).kind != ItemKind::scan) continue;
      const Tensor& x = item(i).value.node().operand(0);
      const kernel::Combiner combiner = lowering_as<LowerScan>(item(i).value.node())->combiner;
      stage.accumulators.push_back({combiner, puller.element(x, index, {}), x.dtype(), step});
    }
    int slot = 0;
    for (int i : ids_) {
      if (item(i).kind != ItemKind::scan) continue;
      Expr value = k.pool.acc(0, slot, item(i).value.dtype());
      const kernel::Combiner combiner = stage.accumulators[static_cast<std::size_t>(slot)].combiner;
      if (reverse &&
          (combiner == kernel::Combiner::argmax || combiner == kernel::Combiner::argmin)) {
        const Expr last = k.pool.constant(static_cast<double>(length - 1), DType::i32);
        value = k.pool.apply(Fn::sub, {last, value});
      }
      running[i] = value;
      ++slot;
    }
    for (int i : ids_) {
      const Item& it = item(i);
      if (!it.stored) continue;
      const Expr value = it.kind == ItemKind::scan ? running.at(i) : pull_map(puller, i, index);
      const int out = argument(it.dest.buffer, true);
      stage.stores.push_back({out, puller.flat(it.dest, index), value, {}, false});
    }
    k.nest.stages.push_back(std::move(stage));
    check_overwrites();
    return std::move(out_);
  }

  // Items that sort one tensor in one way.
  Lowered sort() {
    const Node& n = item(ids_[0]).value.node();
    const auto& [axis, descending] = n.attr<SortAttr>();
    const Shape& shape = n.type.shape;
    kernel::Sort s;
    s.descending = descending;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (d == static_cast<std::size_t>(axis)) {
        s.length = shape[d];
      } else {
        (d < static_cast<std::size_t>(axis) ? s.outer : s.inner) *= shape[d];
      }
    }
    const std::vector<std::int64_t> strides{s.length * s.inner, s.inner, 1};
    const auto from = dense_access(n.operand(0), [&](const Node& m) { return located(m); });
    if (!from) throw GraphError("schedule: what is sorted is not dense in memory.", n.site);
    s.in = {argument(s_.locations.at(from->first).buffer), from->second, strides};
    for (int i : ids_) {
      const Item& it = item(i);
      const Node& m = it.value.node();
      const bool indices = lowering_as<LowerSort>(m)->indices;
      if (m.operand(0).handle() != n.operand(0).handle() || !(m.attrs == n.attrs) ||
          (indices ? s.indices : s.values).buffer >= 0) {
        throw Unfit{"two sorts"};
      }
      (indices ? s.indices : s.values) = {argument(it.dest.buffer, true), it.dest.offset, strides};
    }
    out_.kernel.sort = s;
    return std::move(out_);
  }

  Lowered scatter() {
    Kernel& k = out_.kernel;
    const Item& it = item(ids_[0]);
    const Node& n = it.value.node();
    const auto& l = *lowering_as<LowerScatter>(n);
    Puller puller(s_, k.pool,
                  [this](const auto& at, const auto& shape) { return read_argument(at, shape); },
                  {}, {});
    const auto index_over = [&](const Shape& shape, std::vector<int>& loops) {
      std::vector<Index> index;
      for (std::int64_t e : shape) {
        if (e != 1) loops.push_back(add_loop(e));
        index.push_back(e == 1 ? k.pool.number(0) : k.pool.loop(loops.back(), e));
      }
      return index;
    };
    kernel::Stage clear;
    const std::vector<Index> all = index_over(n.type.shape, clear.loops);
    const int out = argument(it.dest.buffer, true);
    clear.stores.push_back(
        {out, puller.flat(it.dest, all), k.pool.constant(0, n.type.dtype), {}, false});
    kernel::Stage add;
    const Tensor& updates = n.operand(1);
    const std::vector<Index> at = index_over(updates.shape(), add.loops);
    const ReadOperand read = [&](int operand, std::span<const Index> index) {
      return puller.element(n.operand(static_cast<std::size_t>(operand)),
                            {index.begin(), index.end()}, {});
    };
    const Source s = l.fn(k.pool, n, at, read);
    add.stores.push_back(
        {out, puller.flat(it.dest, s.index), puller.element(updates, at, s.valid), s.valid, true});
    k.nest.stages.push_back(clear);
    if (updates.size() > 0) k.nest.stages.push_back(add);
    return std::move(out_);
  }
};

}  // namespace

Lowered lower_scans(const State& s, const std::vector<int>& ids) {
  return PassLowering(s, ids).scan();
}
Lowered lower_sorts(const State& s, const std::vector<int>& ids) {
  return PassLowering(s, ids).sort();
}
Lowered lower_scatter(const State& s, const std::vector<int>& ids) {
  return PassLowering(s, ids).scatter();
}

}  // namespace tensorgrad::schedule
