// Keys and distributions, composed from the Threefry primitive.
#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "ops/primitives.h"
#include "tensorgrad/random.h"

namespace tensorgrad::random {
namespace {

using kernel::Fn;

void check_key(const char* function, const Tensor& key, const Site& site) {
  if (!key.defined()) throw GraphError(fmt::format("{}: the key is empty.", function), site);
  if (key.dtype() != DType::u32) {
    throw DTypeError(fmt::format("{}: the key is {}, not u32.", function, name(key.dtype())), site);
  }
  if (key.shape() != Shape{2}) {
    throw ShapeError(
        fmt::format("{}: the key has shape {}, not [2].", function, to_string(key.shape())), site);
  }
}

Tensor words(std::uint32_t first, std::uint32_t second, const Site& site) {
  const std::array<std::uint32_t, 2> values{first, second};
  std::vector<std::byte> bytes(sizeof values);
  std::memcpy(bytes.data(), values.data(), sizeof values);
  return prim::data({{2}, DType::u32}, std::move(bytes), site);
}

/// Word `which` of a key, as a scalar.
Tensor key_word(const Tensor& key, std::int64_t which) {
  return prim::reshape(prim::slice(key, {which}, {which + 1}, {1}), {});
}

/// Word `word` of the blocks at the counters (high, low).
Tensor block(const Tensor& key, const Tensor& high, const Tensor& low, int word) {
  const Tensor k0 = prim::broadcast_to(key_word(key, 0), low.shape());
  const Tensor k1 = prim::broadcast_to(key_word(key, 1), low.shape());
  return prim::threefry(k0, k1, high, low, word);
}

/// Words 0, 1, … n - 1 of a key, u32 [n], in the original scheme: a counter pairs number i of the
/// first half with number i of the second, an odd end with 0; the first words of all blocks come
/// before the second words.
Tensor paired_words(const Tensor& key, std::int64_t n) {
  const std::int64_t half = n / 2 + n % 2;
  const Tensor first = prim::iota({half}, 0, DType::u32);
  Tensor second = prim::add(prim::iota({half}, 0, DType::u32),
                            prim::full({half}, static_cast<double>(half), DType::u32));
  if (n % 2 == 1) {
    const Tensor end = prim::full({half}, static_cast<double>(n), DType::u32);
    second = prim::select(prim::map(Fn::lt, {second, end}), second, prim::zeros_like(second));
  }
  const std::array<Tensor, 2> halves{block(key, first, second, 0), block(key, first, second, 1)};
  return prim::slice(prim::concat(halves, 0), {0}, {n}, {1});
}

Tensor flat_bits(const Tensor& key, std::int64_t n, Scheme scheme) {
  if (scheme == Scheme::original) return paired_words(key, n);
  const Tensor low = prim::iota({n}, 0, DType::u32);
  const Tensor high = prim::zeros_like(low);
  return prim::map(Fn::bit_xor, {block(key, high, low, 0), block(key, high, low, 1)});
}

void check_shape(const char* function, const Shape& shape, const Site& site) {
  double elements = 1;  // in double, where a product cannot overflow
  for (std::int64_t extent : shape) {
    if (extent < 0) {
      throw ShapeError(
          fmt::format("{}: shape {} has a negative extent.", function, to_string(shape)), site);
    }
    elements *= static_cast<double>(extent);
  }
  if (elements >= std::numeric_limits<std::uint32_t>::max()) {
    throw ShapeError(fmt::format("{}: shape {} has more elements than a key has counters.",
                                 function, to_string(shape)),
                     site);
  }
}

Tensor checked_bits(const char* function, const Tensor& key, const Shape& shape, Scheme scheme,
                    const Site& site) {
  check_key(function, key, site);
  check_shape(function, shape, site);
  return prim::reshape(flat_bits(key, numel(shape), scheme), shape);
}

Tensor constant_like(const Tensor& t, double value) {
  return prim::full(t.shape(), value, t.dtype());
}

/// f32 in [low, high): a random mantissa makes a number in [1, 2), from which 1 is taken.
Tensor scaled_uniform(const Tensor& random_bits, float low, float high) {
  const Tensor mantissa = prim::map(Fn::shr, {random_bits, constant_like(random_bits, 32 - 23)});
  const auto one_bits = std::bit_cast<std::uint32_t>(1.0F);
  const Tensor in_1_2 = prim::bitcast(
      prim::map(Fn::bit_or, {mantissa, constant_like(random_bits, one_bits)}), DType::f32);
  const Tensor unit = prim::sub(in_1_2, constant_like(in_1_2, 1));
  if (low == 0 && high == 1) return unit;
  const Tensor lowest = constant_like(unit, low);
  const Tensor scaled = prim::add(prim::mul(unit, constant_like(unit, high - low)), lowest);
  return prim::map(Fn::max, {lowest, scaled});
}

/// Horner's rule, highest coefficient first.
template <std::size_t N>
Tensor polynomial(const Tensor& x, const std::array<double, N>& coefficients) {
  Tensor p = constant_like(x, coefficients[0]);
  for (std::size_t i = 1; i < N; ++i) {
    p = prim::add(constant_like(x, coefficients[i]), prim::mul(p, x));
  }
  return p;
}

/// The inverse error function of x, for w = -log(1 - x^2), by the single-precision approximation of
/// M. Giles ("Approximating the erfinv function", 2010): a polynomial in w near the centre and one
/// in sqrt(w) in the tails.
Tensor erf_inv(const Tensor& x, const Tensor& w) {
  constexpr std::array central{2.81022636e-08,  3.43273939e-07, -3.5233877e-06,
                               -4.39150654e-06, 0.00021858087,  -0.00125372503,
                               -0.00417768164,  0.246640727,    1.50140941};
  constexpr std::array tails{-0.000200214257, 0.000100950558, 0.00134934322,
                             -0.00367342844,  0.00573950773,  -0.0076224613,
                             0.00943887047,   1.00167406,     2.83297682};
  const Tensor is_central = prim::map(Fn::lt, {w, constant_like(w, 5)});
  const Tensor near = prim::sub(w, constant_like(w, 2.5));
  const Tensor far = prim::sub(prim::map(Fn::sqrt, {w}), constant_like(w, 3));
  return prim::mul(prim::select(is_central, polynomial(near, central), polynomial(far, tails)), x);
}

}  // namespace

Tensor key(std::uint64_t seed, Site site) {
  const SiteScope scope(site);
  return words(static_cast<std::uint32_t>(seed >> 32), static_cast<std::uint32_t>(seed), site);
}

Tensor split(const Tensor& key, std::int64_t n, Scheme scheme, Site site) {
  const SiteScope scope(site);
  check_key("split", key, site);
  check_shape("split", {n, 2}, site);
  if (scheme == Scheme::original) return prim::reshape(paired_words(key, 2 * n), {n, 2});
  const Tensor low = prim::iota({n}, 0, DType::u32);
  const Tensor high = prim::zeros_like(low);
  const std::array<Tensor, 2> columns{prim::reshape(block(key, high, low, 0), {n, 1}),
                                      prim::reshape(block(key, high, low, 1), {n, 1})};
  return prim::concat(columns, 1);
}

Tensor fold_in(const Tensor& key, std::uint32_t data, Site site) {
  const SiteScope scope(site);
  return fold_in(key, prim::constant(data, DType::u32), site);
}

Tensor fold_in(const Tensor& key, const Tensor& data, Site site) {
  const SiteScope scope(site);
  check_key("fold_in", key, site);
  if (!is_integer(data.dtype())) {
    throw DTypeError(fmt::format("fold_in: the data is {}, not i32 or u32.", name(data.dtype())),
                     site);
  }
  if (data.rank() != 0) {
    throw ShapeError(
        fmt::format("fold_in: the data has shape {}, not [].", to_string(data.shape())), site);
  }
  // The data as a seed has the words (0, data): the counter of one block.
  const Tensor low = prim::bitcast(data, DType::u32);
  const Tensor high = prim::zeros_like(low);
  const std::array<Tensor, 2> both{prim::reshape(block(key, high, low, 0), {1}),
                                   prim::reshape(block(key, high, low, 1), {1})};
  return prim::concat(both, 0);
}

Tensor bits(const Tensor& key, const Shape& shape, Scheme scheme, Site site) {
  const SiteScope scope(site);
  return checked_bits("bits", key, shape, scheme, site);
}

Tensor uniform(const Tensor& key, const Shape& shape, double low, double high, Scheme scheme,
               Site site) {
  const SiteScope scope(site);
  const auto first = static_cast<float>(low);
  const auto last = static_cast<float>(high);
  if (!(std::isfinite(first) && std::isfinite(last) && first <= last)) {
    throw ValueError(fmt::format("uniform: [{}, {}) is not a range of f32.", low, high), site);
  }
  return scaled_uniform(checked_bits("uniform", key, shape, scheme, site), first, last);
}

Tensor normal(const Tensor& key, const Shape& shape, Scheme scheme, Site site) {
  const SiteScope scope(site);
  const Tensor random_bits = checked_bits("normal", key, shape, scheme, site);
  // Above -1, where the inverse error function is infinite.
  const Tensor u = scaled_uniform(random_bits, std::nextafter(-1.0F, 0.0F), 1.0F);
  // 1 + u and 1 - u from the bits: u is 4 m + 1 - 2^24 times 2^-24 for the upper 23 bits m. Little
  // of 1 - u * u would be left in the tails, and drivers that reorder the additions, as NVIDIA's
  // does, would be off by 1 % of the normal number there.
  const auto count = [&](std::uint32_t n) { return constant_like(random_bits, n); };
  const Tensor above = prim::add(
      prim::map(Fn::shl, {prim::map(Fn::shr, {random_bits, count(32 - 23)}), count(2)}), count(1));
  const Tensor below = prim::sub(count(1U << 25U), above);
  const auto part = [&](const Tensor& n) {
    return prim::mul(prim::cast(n, DType::f32), constant_like(u, 0x1p-24));
  };
  const Tensor w = prim::neg(prim::map(Fn::log, {prim::mul(part(above), part(below))}));
  return prim::mul(constant_like(u, std::numbers::sqrt2), erf_inv(u, w));
}

Tensor bernoulli(const Tensor& key, double p, const Shape& shape, Scheme scheme, Site site) {
  const SiteScope scope(site);
  if (!(p >= 0 && p <= 1)) {
    throw ValueError(fmt::format("bernoulli: the probability is {}, not in [0, 1].", p), site);
  }
  const Tensor u = scaled_uniform(checked_bits("bernoulli", key, shape, scheme, site), 0, 1);
  return prim::map(Fn::lt, {u, constant_like(u, p)});
}

}  // namespace tensorgrad::random
