#include <algorithm>
#include <limits>

#include "nn/check.h"
#include "ops/primitives.h"
#include "tensorgrad/nn.h"

namespace tensorgrad {
namespace {

/// One pooling, checked: where its windows lie.
struct Windows {
  Size2 kernel, stride, padding;
  std::int64_t rows, columns;  ///< of the result

  /// Whether windows tile the image: then they are dimensions of a reshape.
  bool tile(const Tensor& x) const {
    return stride == kernel && padding == Size2(0) && x.dim(2) % kernel.h == 0 &&
           x.dim(3) % kernel.w == 0;
  }
  Tensor tiled(const Tensor& x) const {
    return reshape(x, {x.dim(0), x.dim(1), rows, kernel.h, columns, kernel.w});
  }
  Tensor padded(const Tensor& x, double value) const {
    if (padding == Size2(0)) return x;
    return pad(x, {{0, 0}, {0, 0}, {padding.h, padding.h}, {padding.w, padding.w}}, value);
  }
  /// Element (i, j) of every window of a padded image: [N, C, rows, columns].
  Tensor element(const Tensor& image, std::int64_t i, std::int64_t j) const {
    const Shape& s = image.shape();
    return prim::slice(
        image, {0, 0, i, j},
        {s[0], s[1], i + (rows - 1) * stride.h + 1, j + (columns - 1) * stride.w + 1},
        {1, 1, stride.h, stride.w});
  }
};

/// Extent of the result along one side.
std::int64_t extent(const char* op, const char* side, std::int64_t input, std::int64_t window,
                    std::int64_t step, std::int64_t border, const Site& site) {
  if (border < 0 || 2 * border > window) {
    throw ValueError(fmt::format("{}: the padding of the {} is {}, not between 0 and half the "
                                 "kernel's {}.",
                                 op, side, border, window),
                     site);
  }
  if (input + 2 * border < window) {
    throw ShapeError(
        fmt::format("{}: the kernel's {} is {}, more than the input's {} with padding {}.", op,
                    side, window, input, border),
        site);
  }
  return (input + 2 * border - window) / step + 1;
}

Windows windows_of(const char* op, const Tensor& x, Size2 kernel, const PoolOptions& options,
                   const Site& site) {
  check_images(op, x, site);
  positive(op, "kernel's height", kernel.h, site);
  positive(op, "kernel's width", kernel.w, site);
  const Size2 stride = options.stride.value_or(kernel);
  positive(op, "stride", std::min(stride.h, stride.w), site);
  const Size2 padding = options.padding;
  return {kernel, stride, padding,
          extent(op, "height", x.dim(2), kernel.h, stride.h, padding.h, site),
          extent(op, "width", x.dim(3), kernel.w, stride.w, padding.w, site)};
}

/// The elements of all windows, folded in row-major order of their position in the window.
template <class Fold>
Tensor fold_windows(const Windows& windows, const Tensor& x, double border, Fold fold) {
  const bool tile = windows.tile(x);
  const Tensor image = tile ? windows.tiled(x) : windows.padded(x, border);
  Tensor result;
  for (std::int64_t i = 0; i < windows.kernel.h; ++i) {
    for (std::int64_t j = 0; j < windows.kernel.w; ++j) {
      // Axis 5 first, so that axis 3 still counts as in the tiled image.
      const Tensor next = tile ? take(take(image, 5, j), 3, i) : windows.element(image, i, j);
      result = result.defined() ? fold(result, next) : next;
    }
  }
  return result;
}

}  // namespace

Tensor max_pool2d(const Tensor& x, Size2 kernel, PoolOptions options, Site site) {
  const SiteScope scope(site);
  const Windows windows = windows_of("max_pool2d", x, kernel, options, site);
  // Only what is greater replaces: the first of equal elements stays.
  return fold_windows(windows, x, -std::numeric_limits<double>::infinity(),
                      [](const Tensor& best, const Tensor& next) {
                        return where((next > best) | isnan(next), next, best);
                      });
}

Tensor avg_pool2d(const Tensor& x, Size2 kernel, PoolOptions options, Site site) {
  const SiteScope scope(site);
  const Windows windows = windows_of("avg_pool2d", x, kernel, options, site);
  if (windows.tile(x)) return mean(windows.tiled(x), {3, 5});
  return fold_windows(windows, x, 0,
                      [](const Tensor& total, const Tensor& next) { return total + next; }) /
         static_cast<double>(kernel.h * kernel.w);
}

}  // namespace tensorgrad
