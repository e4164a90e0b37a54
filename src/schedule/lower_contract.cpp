// Convolutions and attention as the kernel IR has them.
#include <algorithm>
#include <utility>

#include "ops/rules.h"
#include "schedule/lower_base.h"
#include "schedule/state.h"

namespace tensorgrad::schedule {
namespace {

std::optional<Location> located(const State& s, const Node& n) {
  const auto at = s.locations.find(&n);
  return at == s.locations.end() ? std::nullopt : std::optional(at->second);
}

}  // namespace

kernel::Conv conv_of(const State& s, const Node& n, const Location& out, const Argument& argument) {
  const auto& a = n.attr<ConvAttr>();
  kernel::Conv c;
  c.mode = lowering_as<LowerConv>(n)->mode;
  using Mode = kernel::Conv::Mode;
  // Shapes of x, w, y in the order of the operands and the result.
  const Shape& p = n.operand(0).shape();
  const Shape& q = n.operand(1).shape();
  const Shape& r = n.type.shape;
  const Shape& x = c.mode == Mode::input_grad ? r : p;
  const Shape& w = c.mode == Mode::weight_grad ? r : q;
  const Shape& y = c.mode == Mode::forward ? r : c.mode == Mode::input_grad ? p : q;
  c.batch = x[0];
  c.groups = a.groups;
  c.in_channels = x[1] / a.groups;
  c.out_channels = w[0] / a.groups;
  c.input.assign(x.begin() + 2, x.end());
  c.kernel.assign(w.begin() + 2, w.end());
  c.output.assign(y.begin() + 2, y.end());
  c.stride = a.stride;
  c.pad_low = a.pad_low;
  c.pad_high = a.pad_high;
  c.dilation = a.dilation;
  const auto operand = [&](std::size_t i) {
    const auto at = dense_access(n.operand(i), [&](const Node& m) { return located(s, m); });
    if (!at) throw GraphError("schedule: a convolution's operand is not dense in memory.", n.site);
    return kernel::Access{argument(s.locations.at(at->first).buffer, false), at->second, {}};
  };
  kernel::Access first = operand(0);
  kernel::Access second = operand(1);
  kernel::Access result{argument(out.buffer, true), out.offset, {}};
  c.x = c.mode == Mode::input_grad ? result : first;
  c.w = c.mode == Mode::weight_grad ? result : second;
  c.y = c.mode == Mode::forward ? result : c.mode == Mode::input_grad ? first : second;
  return c;
}

namespace {

// The attention whose results are `items`.
kernel::Attention attention_of(const State& s, const std::vector<int>& items,
                               const Argument& argument) {
  using Result = LowerAttention::Result;
  const Node& n = s.items[static_cast<std::size_t>(items[0])].value.node();
  const auto& attr = n.attr<AttentionAttr>();
  const Result kind = lowering_as<LowerAttention>(n)->result;
  const bool forward = kind == Result::out || kind == Result::lse;
  kernel::Attention a;
  a.mode = forward ? kernel::Attention::Mode::forward : kernel::Attention::Mode::backward;
  const Shape& q = n.operand(0).shape();
  const std::size_t batches = q.size() - 2;
  a.queries = q[batches];
  a.depth = q.back();
  a.keys = n.operand(1).shape()[batches];
  a.value_depth = n.operand(2).shape().back();
  a.scale = attr.scale;
  a.causal = attr.causal;

  std::vector<kernel::Access*> accesses{&a.q, &a.k, &a.v};
  if (!forward) accesses.insert(accesses.end(), {&a.out, &a.lse, &a.dout});
  if (n.operands.size() > accesses.size()) accesses.push_back(&a.mask);
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    const auto at = strided(n.operand(i), [&](const Node& m) { return located(s, m); });
    if (!at) throw GraphError("schedule: attention cannot reach an operand by strides.", n.site);
    *accesses[i] = {argument(at->buffer, false), at->offset, at->strides};
  }
  for (int i : items) {
    const Item& item = s.items[static_cast<std::size_t>(i)];
    kernel::Access* result = nullptr;
    switch (lowering_as<LowerAttention>(item.value.node())->result) {
      case Result::out:
        result = &a.out;
        break;
      case Result::lse:
        result = &a.lse;
        break;
      case Result::dq:
        result = &a.dq;
        break;
      case Result::dk:
        result = &a.dk;
        break;
      case Result::dv:
        result = &a.dv;
        break;
    }
    *result = {argument(item.dest.buffer, true), item.dest.offset, item.dest.strides};
    accesses.push_back(result);
  }
  // Batch dimensions of one element go, and neighbours that every operand walks as one are one.
  std::vector<std::int64_t> extents(q.begin(), q.begin() + static_cast<std::ptrdiff_t>(batches));
  for (std::size_t d = extents.size(); d-- > 0;) {
    const auto drop = [&](std::size_t dim) {
      extents.erase(extents.begin() + static_cast<std::ptrdiff_t>(dim));
      for (kernel::Access* x : accesses) {
        x->strides.erase(x->strides.begin() + static_cast<std::ptrdiff_t>(dim));
      }
    };
    if (extents[d] == 1) {
      drop(d);
    } else if (d + 1 < extents.size() &&
               std::all_of(accesses.begin(), accesses.end(), [&](const kernel::Access* x) {
                 return x->strides[d] == x->strides[d + 1] * extents[d + 1];
               })) {
      extents[d + 1] *= extents[d];
      drop(d);
    }
  }
  a.batch = extents;
  return a;
}

class AttentionLowering : public LoweringBase {
 public:
  using LoweringBase::LoweringBase;
  Lowered run() {
    out_.kernel.contraction =
        attention_of(s_, ids_, [this](int b, bool written) { return argument(b, written); });
    return std::move(out_);
  }
};

}  // namespace

Lowered lower_attention(const State& s, const std::vector<int>& ids) {
  return AttentionLowering(s, ids).run();
}

}  // namespace tensorgrad::schedule
