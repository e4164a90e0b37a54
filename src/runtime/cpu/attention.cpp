#include "runtime/cpu/attention.h"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

#include "tensorgrad/error.h"

namespace tensorgrad::cpu {
namespace {

using kernel::Access;
using kernel::Attention;

constexpr std::int64_t lanes = 16;
using Vector = float __attribute__((vector_size(lanes * sizeof(float))));
using Integers = std::int32_t __attribute__((vector_size(lanes * sizeof(float))));

// Functions on rows are compiled for the vector units of several machines.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TENSORGRAD_ROW [[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
#else
#define TENSORGRAD_ROW
#endif

/// x = exp(x), within 2 ULP; 0 below the smallest normal number.
[[gnu::always_inline]] inline void exponentiate(Vector& x) {
  constexpr float lowest = -87.33F;
  constexpr float highest = 88.7F;
  constexpr float to_integer = 12582912.0F;  // 1.5 * 2^23: adding it rounds
  const Vector zero{};
  const auto is_zero = x < lowest;
  x = x < lowest ? zero + lowest : x;
  x = x > highest ? zero + highest : x;
  const Vector n = (x * 1.44269504088896341F + to_integer) - to_integer;
  const Vector r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  Vector p = zero + 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const Integers bits = (__builtin_convertvector(n, Integers) + 127) << 23;
  Vector power;
  std::memcpy(&power, &bits, sizeof(power));
  x = is_zero ? zero : p * power;
}

[[gnu::always_inline]] inline void load(Vector& x, const float* from) {
  std::memcpy(&x, from, sizeof(x));
}
[[gnu::always_inline]] inline void store(float* to, const Vector& x) {
  std::memcpy(to, &x, sizeof(x));
}
[[gnu::always_inline]] inline float sum_of(const Vector& x) {
  float result = 0;
  for (std::int64_t i = 0; i < lanes; ++i) result += x[i];
  return result;
}

/// Scores to logits: s = scale * s + mask for `seen` of them, -infinity up to `padded`.
TENSORGRAD_ROW void finish_scores(float* s, const float* mask, std::int64_t seen,
                                  std::int64_t padded, float scale) {
  for (std::int64_t u = 0; u < seen; ++u) s[u] *= scale;
  if (mask != nullptr) {
    for (std::int64_t u = 0; u < seen; ++u) s[u] += mask[u];
  }
  std::fill(s + seen, s + padded, -std::numeric_limits<float>::infinity());
}

/// The largest of `count` numbers, a multiple of the lanes, NaN aside.
TENSORGRAD_ROW float largest(const float* s, std::int64_t count) {
  const Vector zero{};
  Vector top = zero - std::numeric_limits<float>::infinity();
  for (std::int64_t u = 0; u < count; u += lanes) {
    Vector x;
    load(x, s + u);
    top = x > top ? x : top;
  }
  float result = top[0];
  for (std::int64_t i = 1; i < lanes; ++i) result = std::max(result, top[i]);
  return result;
}

TENSORGRAD_ROW void multiply(float* s, std::int64_t count, float factor) {
  for (std::int64_t u = 0; u < count; ++u) s[u] *= factor;
}

TENSORGRAD_ROW float inner_product(const float* a, const float* b, std::int64_t count) {
  Vector total{};
  const std::int64_t whole = count / lanes * lanes;
  for (std::int64_t i = 0; i < whole; i += lanes) {
    Vector x;
    Vector y;
    load(x, a + i);
    load(y, b + i);
    total = total + x * y;
  }
  float result = sum_of(total);
  for (std::int64_t i = whole; i < count; ++i) result += a[i] * b[i];
  return result;
}

/// s = exp(s - shift); returns the sum. `count` is a multiple of the lanes.
TENSORGRAD_ROW float exponentials(float* s, std::int64_t count, float shift) {
  Vector total{};
  for (std::int64_t u = 0; u < count; u += lanes) {
    Vector x;
    load(x, s + u);
    x = x - shift;
    exponentiate(x);
    total = total + x;
    store(s + u, x);
  }
  return sum_of(total);
}

/// d = scale * p * (d - delta).
TENSORGRAD_ROW void score_gradients(float* d, const float* p, std::int64_t count, float delta,
                                    float scale) {
  for (std::int64_t u = 0; u < count; u += lanes) {
    Vector x;
    Vector y;
    load(x, d + u);
    load(y, p + u);
    // Where the probability is 0 there may be anything.
    const Vector zero{};
    store(d + u, y == zero ? zero : scale * y * (x - delta));
  }
}

#undef TENSORGRAD_ROW

/// One matrix of an operand: rows with a stride, dense within.
struct Rows {
  float* data = nullptr;
  std::int64_t stride = 0;
  explicit operator bool() const { return data != nullptr; }
  float* row(std::int64_t i) const { return data + i * stride; }
  Rows from(std::int64_t i) const { return {row(i), stride}; }
};

/// out[m, n] = beta * out + a[m, k] b[k, n], each perhaps stored transposed.
void product(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
             const Rows& a, const Rows& b, float beta, const Rows& out) {
  if (m == 0 || n == 0) return;
  if (k == 0) {  // which the library below refuses
    for (std::int64_t i = 0; beta == 0 && i < m; ++i) std::fill_n(out.row(i), n, 0.0F);
    return;
  }
  const auto leading = [](const Rows& x, std::int64_t columns) {
    return std::max(x.stride, columns);
  };
  const dnnl_status_t status =
      dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, 1.0F, a.data,
                 leading(a, transpose_a ? m : k), b.data, leading(b, transpose_b ? k : n), beta,
                 out.data, leading(out, n));
  if (status != dnnl_success) throw DeviceError("oneDNN fails to run a product of attention");
}

std::int64_t padded_keys(const Attention& a) { return (a.keys + lanes - 1) / lanes * lanes; }

/// Queries at a time: their scores fill a part of a core's cache.
std::int64_t tile_rows(const Attention& a) {
  constexpr std::int64_t cached_scores = 32768;
  constexpr std::int64_t least = 16;
  constexpr std::int64_t most = 64;
  return std::clamp(cached_scores / std::max<std::int64_t>(padded_keys(a), 1), least, most);
}

/// The computation of one batch point.
class Point {
 public:
  Point(const Attention& attention, void* const* args, std::byte* scratch,
        const std::vector<std::int64_t>& point)
      : a_(attention), width_(padded_keys(attention)), tile_(tile_rows(attention)) {
    const auto bind = [&](const Access& access) -> Rows {
      if (access.buffer < 0) return {};
      std::int64_t at = access.offset;
      for (std::size_t i = 0; i < point.size(); ++i) at += point[i] * access.strides[i];
      const std::int64_t stride =
          access.strides.size() > point.size() + 1 ? access.strides[point.size()] : 1;
      return {static_cast<float*>(args[access.buffer]) + at, stride};
    };
    q_ = bind(a_.q);
    k_ = bind(a_.k);
    v_ = bind(a_.v);
    mask_ = bind(a_.mask);
    out_ = bind(a_.out);
    lse_ = bind(a_.lse);
    dout_ = bind(a_.dout);
    dq_ = bind(a_.dq);
    dk_ = bind(a_.dk);
    dv_ = bind(a_.dv);
    scores_ = {reinterpret_cast<float*>(scratch), width_};
    gradients_ = {scores_.data + tile_ * width_, width_};
  }

  void forward() {
    for (std::int64_t start = 0; start < a_.queries; start += tile_) {
      const std::int64_t rows = std::min(tile_, a_.queries - start);
      const std::int64_t seen = score(start, rows);
      for (std::int64_t i = 0; i < rows; ++i) {
        float* s = scores_.row(i);
        const float top = largest(s, padded(seen));
        const float total = exponentials(s, padded(seen), top);
        const float factor = 1 / total;
        if (lse_) lse_.data[start + i] = top + std::log(total);
        multiply(s, seen, factor);
      }
      if (out_) product(false, false, rows, a_.value_depth, seen, scores_, v_, 0, out_.from(start));
    }
  }

  void backward() {
    // Later queries see all the keys that earlier ones do: their tiles come first, and write what
    // the others add to.
    float beta = 0;
    const std::int64_t tiles = (a_.queries + tile_ - 1) / tile_;
    clear_unseen(tiles == 0 ? 0 : visible(a_.queries));
    for (std::int64_t tile = tiles; tile-- > 0;) {
      const std::int64_t start = tile * tile_;
      const std::int64_t rows = std::min(tile_, a_.queries - start);
      const std::int64_t seen = score(start, rows);
      for (std::int64_t i = 0; i < rows; ++i) {
        exponentials(scores_.row(i), padded(seen), lse_.data[start + i]);
      }
      if (dv_) {
        product(true, false, seen, a_.value_depth, rows, scores_, dout_.from(start), beta, dv_);
      }
      if (dq_ || dk_) {
        product(false, true, rows, seen, a_.value_depth, dout_.from(start), v_, 0, gradients_);
        for (std::int64_t i = 0; i < rows; ++i) {
          const float* out = out_.row(start + i);
          const float* dout = dout_.row(start + i);
          const float delta = inner_product(out, dout, a_.value_depth);
          score_gradients(gradients_.row(i), scores_.row(i), padded(seen), delta,
                          static_cast<float>(a_.scale));
        }
        if (dq_) product(false, false, rows, a_.depth, seen, gradients_, k_, 0, dq_.from(start));
        if (dk_) {
          product(true, false, seen, a_.depth, rows, gradients_, q_.from(start), beta, dk_);
        }
      }
      beta = 1;
    }
  }

 private:
  static std::int64_t padded(std::int64_t count) { return (count + lanes - 1) / lanes * lanes; }
  /// Keys that the queries before `end` see.
  std::int64_t visible(std::int64_t end) const {
    return a_.causal ? std::min(a_.keys, end) : a_.keys;
  }

  /// Logits of a tile of queries; returns how many keys it sees.
  std::int64_t score(std::int64_t start, std::int64_t rows) {
    const std::int64_t seen = visible(start + rows);
    product(false, true, rows, seen, a_.depth, q_.from(start), k_, 0, scores_);
    for (std::int64_t i = 0; i < rows; ++i) {
      finish_scores(scores_.row(i), mask_ ? mask_.row(start + i) : nullptr, visible(start + i + 1),
                    padded(seen), static_cast<float>(a_.scale));
    }
    return seen;
  }

  /// Keys that no query sees have no gradient.
  void clear_unseen(std::int64_t seen) {
    for (std::int64_t u = seen; u < a_.keys; ++u) {
      if (dk_) std::fill_n(dk_.row(u), a_.depth, 0.0F);
      if (dv_) std::fill_n(dv_.row(u), a_.value_depth, 0.0F);
    }
  }

  const Attention& a_;
  std::int64_t width_, tile_;
  Rows q_, k_, v_, mask_, out_, lse_, dout_, dq_, dk_, dv_;
  Rows scores_, gradients_;
};

}  // namespace

std::int64_t attention_batches(const Attention& a) {
  return std::accumulate(a.batch.begin(), a.batch.end(), std::int64_t{1}, std::multiplies<>());
}

std::size_t attention_scratch_bytes(const Attention& a) {
  const std::int64_t matrices = a.mode == Attention::Mode::forward ? 1 : 2;
  return static_cast<std::size_t>(matrices * tile_rows(a) * padded_keys(a)) * sizeof(float);
}

void run_attention(const Attention& a, void* const* args, std::byte* scratch, std::int64_t first,
                   std::int64_t last) {
  std::vector<std::int64_t> point(a.batch.size());
  for (std::int64_t b = first; b < last; ++b) {
    std::int64_t rest = b;
    for (std::size_t axis = point.size(); axis-- > 0; rest /= a.batch[axis]) {
      point[axis] = rest % a.batch[axis];
    }
    Point p(a, args, scratch, point);
    if (a.mode == Attention::Mode::forward) {
      p.forward();
    } else {
      p.backward();
    }
  }
}

}  // namespace tensorgrad::cpu
