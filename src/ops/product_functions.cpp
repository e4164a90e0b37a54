// The public products: matrix products, contractions, convolutions.
#include <algorithm>

#include "ops/operands.h"
#include "ops/rules.h"
#include "tensorgrad/ops.h"

namespace tensorgrad {
namespace {

// "The right operand is `head.W`." for the operands that have names.
std::string operand_names(const Tensor& a, const Tensor& b) {
  std::string text;
  if (const std::string n = display_name(a); !n.empty()) text += " The left operand is " + n + ".";
  if (const std::string n = display_name(b); !n.empty()) text += " The right operand is " + n + ".";
  return text;
}

// One entry for each spatial dimension of x, given as such or as one for all.
Shape each(const char* op, const Tensor& x, const std::vector<std::int64_t>& v, const char* what,
           const Site& site) {
  const std::size_t spatial = x.rank() > 2 ? static_cast<std::size_t>(x.rank() - 2) : 0;
  if (v.size() == 1) return Shape(spatial, v[0]);
  if (v.size() != spatial) {
    throw ShapeError(fmt::format("{}: {} has {} entries for the {} spatial dimensions of {}.", op,
                                 what, v.size(), spatial, to_string(x.shape())),
                     site);
  }
  return v;
}

ConvAttr conv_attr(const char* op, const Tensor& x, const ConvOptions& options, const Site& site) {
  ConvAttr attr;
  attr.stride = each(op, x, options.stride, "stride", site);
  attr.pad_low = attr.pad_high = each(op, x, options.padding, "padding", site);
  attr.dilation = each(op, x, options.dilation, "dilation", site);
  attr.groups = options.groups;
  return attr;
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, Site site) {
  const SiteScope scope(site);
  if (a.rank() == 0 || b.rank() == 0) {
    throw ShapeError(fmt::format("matmul: takes no scalars: {} x {}.{}", to_string(a.shape()),
                                 to_string(b.shape()), operand_names(a, b)),
                     site);
  }
  if (a.dtype() != b.dtype() || !is_floating(a.dtype())) {
    throw DTypeError(fmt::format("matmul: takes two f32 or two f16 tensors, not {} and {}.{}",
                                 name(a.dtype()), name(b.dtype()), operand_names(a, b)),
                     site);
  }
  Tensor x = a.rank() == 1 ? unsqueeze(a, 0, site) : a;
  Tensor y = b.rank() == 1 ? unsqueeze(b, 1, site) : b;
  if (x.dim(-1) != y.dim(-2)) {
    throw ShapeError(fmt::format("matmul: inner dimensions differ: {} x {} ({} against {}).{}",
                                 to_string(a.shape()), to_string(b.shape()), x.dim(-1), y.dim(-2),
                                 operand_names(a, b)),
                     site);
  }
  const Shape lead_x(x.shape().begin(), x.shape().end() - 2);
  const Shape lead_y(y.shape().begin(), y.shape().end() - 2);
  Tensor out;
  if (lead_y.empty()) {
    // One matrix for every row of x: the leading dimensions are rows too.
    out = prim::dot_general(x, y, {{}, {}, {x.rank() - 1}, {0}}, site);
  } else {
    const Shape lead = broadcast_shapes("matmul", lead_x, lead_y, site);
    const auto spread = [&](const Tensor& t) {
      Shape to = lead;
      to.insert(to.end(), t.shape().end() - 2, t.shape().end());
      return prim::broadcast_to(t, to, site);
    };
    x = spread(x);
    y = spread(y);
    const int r = x.rank();
    const std::vector<int> batch = prim::all_axes(r - 2);
    out = prim::dot_general(x, y, {batch, batch, {r - 1}, {r - 2}}, site);
  }
  if (b.rank() == 1) out = squeeze(out, -1, site);
  if (a.rank() == 1) out = squeeze(out, b.rank() == 1 ? -1 : -2, site);
  return out;
}

Tensor dot_general(const Tensor& a, const Tensor& b, const DotDims& dims, Site site) {
  const auto axes = [&](const std::vector<int>& list, const Tensor& t) {
    std::vector<int> out;
    for (int d : list) out.push_back(normal_axis("dot_general", d, t.rank(), t.shape(), site));
    return out;
  };
  return prim::dot_general(a, b,
                           {axes(dims.a_batch, a), axes(dims.b_batch, b), axes(dims.a_contract, a),
                            axes(dims.b_contract, b)},
                           site);
}

Tensor conv(const Tensor& x, const Tensor& w, const ConvOptions& options, Site site) {
  return prim::conv(x, w, conv_attr("conv", x, options, site), site);
}

Tensor conv_transpose(const Tensor& x, const Tensor& w, const ConvOptions& options,
                      const std::vector<std::int64_t>& output_padding, Site site) {
  if (x.rank() < 3 || w.rank() != x.rank()) {
    throw ShapeError(
        fmt::format("conv_transpose: an input of shape {} and a kernel of shape {} do "
                    "not have the same one or more spatial dimensions behind two others.",
                    to_string(x.shape()), to_string(w.shape())),
        site);
  }
  if (x.shape()[1] != w.shape()[0]) {
    throw ShapeError(
        fmt::format("conv_transpose: an input of shape {} has {} channels, but a kernel "
                    "of shape {} takes {}.",
                    to_string(x.shape()), x.shape()[1], to_string(w.shape()), w.shape()[0]),
        site);
  }
  ConvAttr attr = conv_attr("conv_transpose", x, options, site);
  const Shape extra = each("conv_transpose", x, output_padding, "output_padding", site);
  for (std::size_t i = 0; i < extra.size(); ++i) {
    if (extra[i] < 0 || extra[i] >= std::max<std::int64_t>(attr.stride[i], 1)) {
      throw ShapeError(fmt::format("conv_transpose: output_padding {} is not below the stride {}.",
                                   to_string(extra), to_string(attr.stride)),
                       site);
    }
    attr.kernel_size.push_back(w.shape()[i + 2]);
    const std::int64_t size = (x.shape()[i + 2] - 1) * attr.stride[i] - 2 * attr.pad_low[i] +
                              attr.dilation[i] * (attr.kernel_size[i] - 1) + 1 + extra[i];
    if (size < 1) {
      throw ShapeError(fmt::format("conv_transpose: the output would have {} elements in spatial "
                                   "dimension {}.",
                                   size, i),
                       site);
    }
    attr.input_size.push_back(size);
  }
  return prim::conv_input_grad(x, w, attr, site);
}

}  // namespace tensorgrad
