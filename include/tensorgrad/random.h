// Random numbers from explicit keys: counter-based (Threefry-2x32, 20 rounds), so the same key
// gives the same bits on every device, in any order. The bits equal those of jax.random for the
// same key.
#pragma once

#include <cstdint>

#include "tensorgrad/tensor.h"

namespace tensorgrad::random {

/// How the elements of an array are numbered. Both are JAX's; the numbers drawn differ, and so do
/// the keys that `split` makes.
enum class Scheme : std::uint8_t {
  original,      ///< jax_threefry_partitionable=False, the default of JAX before 0.5
  partitionable  ///< jax_threefry_partitionable=True, the default of JAX from 0.5 on
};

/// The key of a seed: u32 [2], the high and the low word of `seed`.
Tensor key(std::uint64_t seed, Site site = Site::current());
/// `n` independent keys, u32 [n, 2]. The old key should not be used again.
/// Throws ShapeError if n is negative. Like every function here that takes a key, throws DTypeError
/// or ShapeError unless the key is u32 [2].
Tensor split(const Tensor& key, std::int64_t n = 2, Scheme scheme = Scheme::original,
             Site site = Site::current());
/// The key for item `data` (a step, a layer) of a family: u32 [2]. The same in both schemes.
Tensor fold_in(const Tensor& key, std::uint32_t data, Site site = Site::current());
/// The same for a scalar computed on the device, i32 (its bits are used) or u32. Throws ShapeError
/// if `data` is not a scalar and DTypeError for other dtypes.
Tensor fold_in(const Tensor& key, const Tensor& data, Site site = Site::current());

/// Uniformly distributed 32-bit words, u32. Throws ShapeError for a negative extent and for 2^32 -
/// 1 elements or more.
Tensor bits(const Tensor& key, const Shape& shape, Scheme scheme = Scheme::original,
            Site site = Site::current());
/// f32 in [low, high), from the 23 high bits of each word. Throws ValueError unless low <= high and
/// both are finite.
Tensor uniform(const Tensor& key, const Shape& shape, double low = 0, double high = 1,
               Scheme scheme = Scheme::original, Site site = Site::current());
/// f32 of the normal distribution with mean 0 and variance 1, by inversion: |x| is at most 5.42.
/// Equal to JAX's within a few ULP.
Tensor normal(const Tensor& key, const Shape& shape, Scheme scheme = Scheme::original,
              Site site = Site::current());
/// bool, true with probability p. Throws ValueError unless 0 <= p <= 1.
Tensor bernoulli(const Tensor& key, double p, const Shape& shape, Scheme scheme = Scheme::original,
                 Site site = Site::current());

}  // namespace tensorgrad::random
