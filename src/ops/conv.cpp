// Convolution and its two gradients: three ops that are closed under transposition.
#include <algorithm>

#include "ops/rules.h"

namespace tensorgrad {
namespace {

using Mode = kernel::Conv::Mode;

// The three tensors of a convolution: y = conv(x, w).
enum Role : std::size_t { x_role, w_role, y_role };
struct Roles {
  Role first, second, result;
};
constexpr Roles roles(Mode mode) {
  switch (mode) {
    case Mode::forward:
      return {x_role, w_role, y_role};
    case Mode::input_grad:
      return {y_role, w_role, x_role};
    default:
      return {x_role, y_role, w_role};
  }
}
constexpr const char* role_names[] = {"input", "kernel", "output"};

const ConvAttr& attr_of(const Tensor& y) { return y.node().attr<ConvAttr>(); }

// ---- shapes
// --------------------------------------------------------------------------------------

/// Input elements that one application of a kernel of extent `size` spans.
std::int64_t span_of(std::int64_t size, std::int64_t dilation) { return (size - 1) * dilation + 1; }

Shape output_size(const ConvAttr& a) {
  Shape out;
  for (std::size_t i = 0; i < a.stride.size(); ++i) {
    out.push_back((a.input_size[i] + a.pad_low[i] + a.pad_high[i] -
                   span_of(a.kernel_size[i], a.dilation[i])) /
                      a.stride[i] +
                  1);
  }
  return out;
}

void check_options(const Op& op, const ConvAttr& a, const Site& site) {
  const std::size_t rank = a.input_size.size();
  if (rank == 0) {
    throw ShapeError(fmt::format("{}: there is no spatial dimension.", *op.name), site);
  }
  if (a.groups < 1) {
    throw ShapeError(fmt::format("{}: groups is {}, not at least 1.", *op.name, a.groups), site);
  }
  struct Option {
    const char* what;
    const Shape& values;
    std::int64_t least;
  };
  for (const auto& [what, values, least] :
       {Option{"kernel size", a.kernel_size, 1}, Option{"stride", a.stride, 1},
        Option{"padding", a.pad_low, 0}, Option{"padding", a.pad_high, 0},
        Option{"dilation", a.dilation, 1}}) {
    if (values.size() != rank) {
      throw ShapeError(fmt::format("{}: {} {} does not have one entry for each of the {} spatial "
                                   "dimensions of the input.",
                                   *op.name, what, to_string(values), rank),
                       site);
    }
    for (std::int64_t v : values) {
      if (v < least) {
        throw ShapeError(fmt::format("{}: {} {} has an entry below {}.", *op.name, what,
                                     to_string(values), least),
                         site);
      }
    }
  }
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t padded = a.input_size[i] + a.pad_low[i] + a.pad_high[i];
    if (span_of(a.kernel_size[i], a.dilation[i]) > padded) {
      throw ShapeError(
          fmt::format("{}: the kernel is larger than the padded input in spatial dimension {}: "
                      "extent {} with dilation {} spans {} elements, the input has {} + {} + {}.",
                      *op.name, i, a.kernel_size[i], a.dilation[i],
                      span_of(a.kernel_size[i], a.dilation[i]), a.pad_low[i], a.input_size[i],
                      a.pad_high[i]),
          site);
    }
  }
}

Shape spatial(const Shape& shape) { return {shape.begin() + 2, shape.end()}; }
Shape with_spatial(std::int64_t a, std::int64_t b, const Shape& rest) {
  Shape out{a, b};
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

template <Mode M>
Type infer(const Op& op, Operands x, const Attrs& attrs, const Site& site) {
  constexpr Roles r = roles(M);
  const auto& a = std::get<ConvAttr>(attrs);
  Shape shapes[3];
  shapes[r.first] = x[0].shape();
  shapes[r.second] = x[1].shape();
  for (std::size_t i = 0; i < 2; ++i) {
    check_dtype(op, x[i].dtype(), floats, site);
    const Role role = i == 0 ? r.first : r.second;
    if (x[i].rank() < 3) {
      throw ShapeError(
          fmt::format("{}: the {} of shape {} has no spatial dimension after its first two.",
                      *op.name, role_names[role], to_string(x[i].shape())),
          site);
    }
  }
  check_same(op, x[0].dtype(), x[1].dtype(), site);
  check_options(op, a, site);
  const Shape sizes[] = {a.input_size, a.kernel_size, output_size(a)};
  for (Role role : {r.first, r.second}) {
    if (spatial(shapes[role]) != sizes[role]) {
      throw ShapeError(
          fmt::format("{}: the {} of shape {} does not have the spatial extents {}.", *op.name,
                      role_names[role], to_string(shapes[role]), to_string(sizes[role])),
          site);
    }
  }
  const auto check_groups = [&](Role role, std::size_t dim) {
    if (shapes[role][dim] % a.groups != 0) {
      throw ShapeError(fmt::format("{}: {} channels of the {} of shape {} do not divide into {} "
                                   "groups.",
                                   *op.name, shapes[role][dim], role_names[role],
                                   to_string(shapes[role]), a.groups),
                       site);
    }
  };
  if constexpr (M == Mode::forward) {
    check_groups(x_role, 1);
    check_groups(w_role, 0);
    if (shapes[x_role][1] != shapes[w_role][1] * a.groups) {
      throw ShapeError(
          fmt::format("conv: an input of shape {} has {} channels, but a kernel of shape {} with "
                      "groups = {} takes {}.",
                      to_string(shapes[x_role]), shapes[x_role][1], to_string(shapes[w_role]),
                      a.groups, shapes[w_role][1] * a.groups),
          site);
    }
    return {with_spatial(shapes[x_role][0], shapes[w_role][0], sizes[y_role]), x[0].dtype()};
  } else if constexpr (M == Mode::input_grad) {
    check_groups(w_role, 0);
    if (shapes[y_role][1] != shapes[w_role][0]) {
      throw ShapeError(fmt::format("{}: an output of shape {} has {} channels, but a kernel of "
                                   "shape {} makes {}.",
                                   *op.name, to_string(shapes[y_role]), shapes[y_role][1],
                                   to_string(shapes[w_role]), shapes[w_role][0]),
                       site);
    }
    return {with_spatial(shapes[y_role][0], shapes[w_role][1] * a.groups, a.input_size),
            x[0].dtype()};
  } else {
    check_groups(x_role, 1);
    check_groups(y_role, 1);
    if (shapes[x_role][0] != shapes[y_role][0]) {
      throw ShapeError(fmt::format("{}: batch extents differ: {} of the input of shape {}, {} of "
                                   "the output of shape {}.",
                                   *op.name, shapes[x_role][0], to_string(shapes[x_role]),
                                   shapes[y_role][0], to_string(shapes[y_role])),
                       site);
    }
    return {with_spatial(shapes[y_role][1], shapes[x_role][1] / a.groups, a.kernel_size),
            x[0].dtype()};
  }
}

// ---- derivatives
// ---------------------------------------------------------------------------------

/// The op of `mode` on its two operands.
Tensor apply(Mode mode, const Tensor& a, const Tensor& b, const ConvAttr& attr) {
  switch (mode) {
    case Mode::forward:
      return prim::conv(a, b, attr);
    case Mode::input_grad:
      return prim::conv_input_grad(a, b, attr);
    default:
      return prim::conv_weight_grad(a, b, attr);
  }
}

template <Mode M>
Tensor jvp(const Tensor& y, Tangents t) {
  return prim::add_any(t[0].defined() ? apply(M, t[0], in(y, 1), attr_of(y)) : Tensor(),
                       t[1].defined() ? apply(M, in(y, 0), t[1], attr_of(y)) : Tensor());
}

// Whatever the mode, the operand asked for follows from the other operand and the cotangent by the
// op whose result plays that operand's role.
template <Mode M>
Cotangents transpose(const Tensor& y, const Tensor& ct, Batched linear) {
  constexpr Roles r = roles(M);
  const Role wanted = linear[0] ? r.first : r.second;
  Tensor by_role[3];
  by_role[linear[0] ? r.second : r.first] = in(y, linear[0] ? 1 : 0);
  by_role[r.result] = ct;
  for (Mode mode : {Mode::forward, Mode::input_grad, Mode::weight_grad}) {
    const Roles other = roles(mode);
    if (other.result != wanted) continue;
    const Tensor g = apply(mode, by_role[other.first], by_role[other.second], attr_of(y));
    return linear[0] ? Cotangents{g, Tensor()} : Cotangents{Tensor(), g};
  }
  return {};
}

// ---- batching
// ------------------------------------------------------------------------------------

/// Where a batch goes: dimension `dim` of extent outer * inner becomes outer * batch * inner.
struct Fold {
  int dim = 0;
  std::int64_t outer = 1;
};

/// [batch, ..., outer * inner, ...] to [..., outer * batch * inner, ...].
Tensor fold(const Tensor& x, const Fold& f) {
  const std::size_t d = static_cast<std::size_t>(f.dim) + 1;
  Shape split = x.shape();
  split[d] /= f.outer;
  split.insert(split.begin() + static_cast<std::ptrdiff_t>(d), f.outer);
  Shape merged(x.shape().begin() + 1, x.shape().end());
  merged[d - 1] *= x.shape()[0];
  std::vector<int> axes;
  for (std::size_t i = 1; i < split.size(); ++i) {
    axes.push_back(static_cast<int>(i));
    if (i == d) axes.push_back(0);
  }
  return prim::reshape(prim::permute(prim::reshape(x, split), axes), merged);
}

/// The inverse of `fold`.
Tensor unfold(const Tensor& x, const Fold& f, std::int64_t batch) {
  const std::size_t d = static_cast<std::size_t>(f.dim);
  Shape split = x.shape();
  split[d] /= f.outer * batch;
  const Shape parts{f.outer, batch};
  split.insert(split.begin() + static_cast<std::ptrdiff_t>(d), parts.begin(), parts.end());
  Shape merged{batch};
  merged.insert(merged.end(), x.shape().begin(), x.shape().end());
  merged[d + 1] /= batch;
  return prim::reshape(prim::move_to_front(prim::reshape(x, split), f.dim + 1), merged);
}

// The result carries the batch, and one or both operands. Where all three do, the batch multiplies
// the groups; where the third does not, it joins the dimension that the two have in common: N of x
// and y, the output channels of w and y, the input channels of x and w.
template <Mode M>
Tensor vmap(const Tensor& y, Operands x, Batched batched, std::int64_t size) {
  if (size == 0) {
    Shape shape{0};
    shape.insert(shape.end(), y.shape().begin(), y.shape().end());
    return prim::full(shape, 0, y.dtype());
  }
  constexpr Roles r = roles(M);
  ConvAttr attr = attr_of(y);
  bool carries[3] = {};
  carries[r.first] = batched[0];
  carries[r.second] = batched[1];
  carries[r.result] = true;
  Fold folds[3];
  if (!carries[w_role]) {
    folds[x_role] = folds[y_role] = {0, 1};
  } else if (!carries[x_role]) {
    folds[w_role] = {0, attr.groups};
    folds[y_role] = {1, attr.groups};
  } else if (!carries[y_role]) {
    folds[x_role] = {1, attr.groups};
    folds[w_role] = {1, 1};
  } else {
    folds[x_role] = folds[y_role] = {1, 1};
    folds[w_role] = {0, 1};
    attr.groups *= size;
  }
  const Tensor a = batched[0] ? fold(x[0], folds[r.first]) : x[0];
  const Tensor b = batched[1] ? fold(x[1], folds[r.second]) : x[1];
  return unfold(apply(M, a, b, attr), folds[r.result], size);
}

// ---- reference
// -----------------------------------------------------------------------------------

// Adds the product of the operands to the result for every (n, group, out channel, output position,
// in channel, kernel position) whose input position is not in the padding.
template <Mode M>
RefArray reference(const Node& n, RefOperands operands) {
  constexpr Roles r = roles(M);
  const auto& a = n.attr<ConvAttr>();
  RefArray out{n.type, std::vector<double>(static_cast<std::size_t>(numel(n.type.shape)))};
  Shape shapes[3];
  shapes[r.first] = operands[0]->type.shape;
  shapes[r.second] = operands[1]->type.shape;
  shapes[r.result] = n.type.shape;
  const std::int64_t in_channels = shapes[w_role][1];
  const std::int64_t out_channels = shapes[w_role][0] / a.groups;
  const Shape in_size = spatial(shapes[x_role]);
  const Shape k_size = spatial(shapes[w_role]);
  const Shape out_size = spatial(shapes[y_role]);
  const auto flat = [](const Shape& position, const Shape& size) {
    std::int64_t f = 0;
    for (std::size_t i = 0; i < size.size(); ++i) f = f * size[i] + position[i];
    return f;
  };
  for (std::int64_t oi = 0; oi < numel(out_size); ++oi) {
    const Shape o = unravel(oi, out_size);
    for (std::int64_t ki = 0; ki < numel(k_size); ++ki) {
      const Shape k = unravel(ki, k_size);
      Shape p(o.size());
      bool inside = true;
      for (std::size_t i = 0; i < o.size(); ++i) {
        p[i] = o[i] * a.stride[i] + k[i] * a.dilation[i] - a.pad_low[i];
        inside = inside && p[i] >= 0 && p[i] < in_size[i];
      }
      if (!inside) continue;
      for (std::int64_t b = 0; b < shapes[x_role][0]; ++b) {
        for (std::int64_t g = 0; g < a.groups; ++g) {
          for (std::int64_t oc = 0; oc < out_channels; ++oc) {
            for (std::int64_t ic = 0; ic < in_channels; ++ic) {
              std::int64_t at[3];
              at[x_role] =
                  ((b * a.groups + g) * in_channels + ic) * numel(in_size) + flat(p, in_size);
              at[w_role] = ((g * out_channels + oc) * in_channels + ic) * numel(k_size) + ki;
              at[y_role] = ((b * a.groups + g) * out_channels + oc) * numel(out_size) + oi;
              out.data[static_cast<std::size_t>(at[r.result])] +=
                  operands[0]->data[static_cast<std::size_t>(at[r.first])] *
                  operands[1]->data[static_cast<std::size_t>(at[r.second])];
            }
          }
        }
      }
    }
  }
  return out;
}

template <Mode M>
std::vector<Sample> samples() {
  std::vector<Sample> s;
  struct Case {
    Shape x, w;
    Shape stride, pad_low, pad_high, dilation;
    std::int64_t groups = 1;
  };
  for (const Case& c : std::initializer_list<Case>{
           {{2, 3, 9}, {4, 3, 3}, {1}, {0}, {0}, {1}},
           {{1, 1, 1}, {1, 1, 1}, {1}, {0}, {0}, {1}},
           {{2, 3, 10}, {4, 3, 3}, {2}, {1}, {0}, {1}},
           {{2, 4, 11}, {6, 2, 3}, {3}, {2}, {1}, {2}, 2},
           {{1, 2, 3}, {3, 2, 5}, {1}, {3}, {4}, {1}},
           {{2, 2, 1}, {3, 2, 3}, {4}, {1}, {1}, {1}},
           {{0, 3, 9}, {4, 3, 3}, {1}, {0}, {0}, {1}},
           {{2, 3, 6, 7}, {4, 3, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
           {{2, 3, 8, 7}, {4, 3, 3, 2}, {2, 2}, {1, 0}, {0, 1}, {1, 1}},
           {{1, 4, 7, 6}, {4, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 4},
           {{1, 3, 8, 8}, {6, 1, 3, 2}, {2, 1}, {0, 1}, {1, 0}, {2, 2}, 3},
           {{2, 4, 6, 5}, {6, 2, 1, 1}, {2, 3}, {0, 0}, {0, 0}, {1, 1}, 2},
           {{1, 2, 5, 6}, {3, 2, 5, 6}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
           {{2, 17, 5, 5}, {19, 17, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
           {{1, 2, 4, 5, 4}, {3, 2, 2, 3, 2}, {1, 2, 1}, {0, 1, 1}, {1, 0, 1}, {1, 1, 2}},
           {{2, 2, 3, 3, 3}, {4, 1, 2, 2, 2}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}, {1, 1, 1}, 2},
       }) {
    const ConvAttr attr{c.stride, c.pad_low,    c.pad_high,  c.dilation,
                        c.groups, spatial(c.x), spatial(c.w)};
    const Shape shapes[] = {c.x, c.w, with_spatial(c.x[0], c.w[0], output_size(attr))};
    constexpr Roles r = roles(M);
    Sample sample{{{shapes[r.first], DType::f32}, {shapes[r.second], DType::f32}}, attr};
    // A backend may multiply the zeros of the padding, and infinity times 0 is NaN.
    const auto is_zero = [](std::int64_t v) { return v == 0; };
    sample.special_values = std::all_of(c.pad_low.begin(), c.pad_low.end(), is_zero) &&
                            std::all_of(c.pad_high.begin(), c.pad_high.end(), is_zero);
    s.push_back(std::move(sample));
  }
  return s;
}

template <Mode M>
Op row(std::string_view name, std::string_view doc) {
  return {.name = name,
          .doc = doc,
          .infer = infer<M>,
          .jvp = JvpRule{jvp<M>},
          .transpose = TransposeRule{transpose<M>},
          .vmap = vmap<M>,
          .lowering = LowerConv{M},
          .reference = reference<M>,
          .samples = samples<M>,
          .ulp = 16};
}

std::span<const Op> rows() {
  // In the order of Mode.
  static const Op table[] = {
      row<Mode::forward>("conv",
                         "Convolution (cross-correlation) of x with the kernels w; summed in f32."),
      row<Mode::input_grad>(
          "conv_input_grad",
          "The input's gradient from the output's and the kernels; summed in f32."),
      row<Mode::weight_grad>(
          "conv_weight_grad",
          "The kernels' gradient from the input and the output's; summed in f32."),
  };
  return table;
}

Tensor build(Mode mode, const Tensor& a, const Tensor& b, const ConvAttr& attr, const Site& site) {
  return make(rows()[static_cast<std::size_t>(mode)], {a, b}, attr, site);
}

// Operands of too low a rank get no extents here; the infer rule names them.
void take_spatial(Shape& size, const Tensor& t) {
  if (t.rank() > 2) size = spatial(t.shape());
}

}  // namespace

std::span<const Op> conv_ops() { return rows(); }

namespace prim {

Tensor conv(const Tensor& x, const Tensor& w, const ConvAttr& attr, const Site& site) {
  ConvAttr a = attr;
  take_spatial(a.input_size, x);
  take_spatial(a.kernel_size, w);
  return build(Mode::forward, x, w, a, site);
}
Tensor conv_input_grad(const Tensor& dy, const Tensor& w, const ConvAttr& attr, const Site& site) {
  return build(Mode::input_grad, dy, w, attr, site);
}
Tensor conv_weight_grad(const Tensor& x, const Tensor& dy, const ConvAttr& attr, const Site& site) {
  return build(Mode::weight_grad, x, dy, attr, site);
}

}  // namespace prim
}  // namespace tensorgrad
