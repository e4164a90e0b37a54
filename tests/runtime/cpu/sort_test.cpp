// Sorts of the CPU backend against the library's stable sort: short rows and long ones, strided
// and reversed, with few different keys and with many.
#include "runtime/cpu/sort.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "runtime/cpu/memory.h"

namespace tensorgrad::cpu {
namespace {

template <class T>
constexpr DType dtype = DType::f32;
template <>
constexpr DType dtype<std::int32_t> = DType::i32;
template <>
constexpr DType dtype<std::uint32_t> = DType::u32;

template <class T>
bool precedes(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return false;
    if (std::isnan(b)) return true;
  }
  return a < b;
}

kernel::Kernel kernel_of(DType type, std::int64_t outer, std::int64_t length, std::int64_t inner,
                         bool descending) {
  const std::int64_t size = outer * length * inner;
  kernel::Kernel k;
  k.name = "sort";
  k.args = {{type, size, true, false}, {type, size, false, true}, {DType::i32, size, false, true}};
  const std::vector<std::int64_t> strides{length * inner, inner, 1};
  k.sort = kernel::Sort{outer,           length,          inner,          descending,
                        {0, 0, strides}, {1, 0, strides}, {2, 0, strides}};
  kernel::verify(k);
  return k;
}

template <class T>
void check(const std::vector<T>& data, std::int64_t outer, std::int64_t length, std::int64_t inner,
           bool descending) {
  const kernel::Kernel kernel = kernel_of(dtype<T>, outer, length, inner, descending);
  const auto runner = make_sort(kernel);
  const Memory scratch(runner->scratch_bytes(), "scratch");
  std::vector<T> in = data;
  std::vector<T> values(data.size());
  std::vector<std::int32_t> indices(data.size(), -1);
  void* const args[] = {in.data(), values.data(), indices.data()};
  runner->run(args, scratch.data());
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t i = 0; i < inner; ++i) {
      const auto at = [&](std::int64_t k) {
        return static_cast<std::size_t>((o * length + k) * inner + i);
      };
      std::vector<std::int32_t> order(static_cast<std::size_t>(length));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        return descending ? precedes(data[at(b)], data[at(a)]) : precedes(data[at(a)], data[at(b)]);
      });
      for (std::int64_t k = 0; k < length; ++k) {
        const std::int32_t from = order[static_cast<std::size_t>(k)];
        ASSERT_EQ(indices[at(k)], from) << "row " << o << ", " << i << ", place " << k;
        if constexpr (std::is_floating_point_v<T>) {
          ASSERT_EQ(std::signbit(values[at(k)]), std::signbit(data[at(from)]));
          if (std::isnan(values[at(k)]) && std::isnan(data[at(from)])) continue;
        }
        ASSERT_EQ(values[at(k)], data[at(from)]) << "row " << o << ", " << i << ", place " << k;
      }
    }
  }
}

template <class T>
std::vector<T> values_of(std::int64_t count, std::uint32_t range, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<T> out(static_cast<std::size_t>(count));
  for (T& v : out) {
    const std::uint32_t bits = static_cast<std::uint32_t>(range == 0 ? random() : random() % range);
    v = static_cast<T>(static_cast<std::int32_t>(bits));
  }
  return out;
}

template <class T>
void check_lengths() {
  for (const std::int64_t length : {0, 1, 2, 5, 255, 256, 257, 3000}) {
    for (const std::uint32_t range : {3U, 100'000U, 0U}) {
      for (const bool descending : {false, true}) {
        check(values_of<T>(length, range, 1), 1, length, 1, descending);
        check(values_of<T>(6 * length, range, 2), 2, length, 3, descending);
      }
    }
  }
}

TEST(CpuSort, Floats) { check_lengths<float>(); }
TEST(CpuSort, Integers) { check_lengths<std::int32_t>(); }
TEST(CpuSort, Unsigned) { check_lengths<std::uint32_t>(); }

TEST(CpuSort, SpecialFloats) {
  using Limits = std::numeric_limits<float>;
  const std::vector<float> special{Limits::quiet_NaN(),
                                   -Limits::quiet_NaN(),
                                   Limits::infinity(),
                                   -Limits::infinity(),
                                   0.0F,
                                   -0.0F,
                                   Limits::denorm_min(),
                                   -Limits::denorm_min(),
                                   Limits::max(),
                                   Limits::lowest(),
                                   1.0F};
  for (const std::int64_t length : {40, 1000}) {
    std::mt19937 random(3);
    std::vector<float> data;
    for (std::int64_t i = 0; i < length; ++i) data.push_back(special[random() % special.size()]);
    check(data, 1, length, 1, false);
    check(data, 1, length, 1, true);
  }
}

TEST(CpuSort, WritesOnlyWhatIsWanted) {
  kernel::Kernel kernel = kernel_of(DType::f32, 1, 4, 1, false);
  kernel.sort->values.buffer = -1;
  kernel.sort->indices.buffer = 1;
  std::vector<float> in{3, 1, 2, 0};
  std::vector<std::int32_t> indices(4);
  void* const args[] = {in.data(), indices.data()};
  const auto runner = make_sort(kernel);
  const Memory scratch(runner->scratch_bytes(), "scratch");
  runner->run(args, scratch.data());
  EXPECT_EQ(indices, (std::vector<std::int32_t>{3, 1, 2, 0}));
}

}  // namespace
}  // namespace tensorgrad::cpu
