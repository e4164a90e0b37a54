#include "runtime/cpu/sort.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

namespace tensorgrad::cpu {
namespace {

using kernel::Access;
using kernel::Sort;

/// A key in the upper half, the position in the row in the lower: no two are equal, so that every
/// sort of them is stable.
using Item = std::uint64_t;

// Keys order as unsigned numbers. NaN is the largest, and -0 equals 0.
std::uint32_t key_of(float v) {
  if (std::isnan(v)) return 0xFFFFFFFFU;
  const auto bits = std::bit_cast<std::uint32_t>(v + 0.0F);  // -0 + 0 is 0
  return (bits >> 31U) != 0 ? ~bits : bits | 0x80000000U;
}
std::uint32_t key_of(std::int32_t v) { return static_cast<std::uint32_t>(v) ^ 0x80000000U; }
std::uint32_t key_of(std::uint32_t v) { return v; }

constexpr unsigned digit_bits = 8;
constexpr std::size_t digit_values = std::size_t{1} << digit_bits;
constexpr std::size_t digits = 32 / digit_bits;
/// Shorter rows are sorted by comparisons.
constexpr std::size_t shortest_radix = 256;

/// Sorts `items`, whose positions ascend, by their keys; `other` is as long.
void radix_sort(std::span<Item> items, std::span<Item> other) {
  std::array<std::array<std::size_t, digit_values>, digits> counts{};
  const auto digit = [](Item item, std::size_t d) {
    return static_cast<std::size_t>(item >> (32 + d * digit_bits)) % digit_values;
  };
  for (const Item item : items) {
    for (std::size_t d = 0; d < digits; ++d) ++counts[d][digit(item, d)];
  }
  Item* from = items.data();
  Item* to = other.data();
  for (std::size_t d = 0; d < digits; ++d) {
    // A digit that all keys share moves nothing.
    if (counts[d][digit(from[0], d)] == items.size()) continue;
    std::array<std::size_t, digit_values> next{};
    std::size_t start = 0;
    for (std::size_t v = 0; v < digit_values; ++v) {
      next[v] = start;
      start += counts[d][v];
    }
    for (std::size_t i = 0; i < items.size(); ++i) to[next[digit(from[i], d)]++] = from[i];
    std::swap(from, to);
  }
  if (from != items.data()) std::copy(from, from + items.size(), items.data());
}

class SortRunner final : public WholeRunner {
 public:
  SortRunner(const Sort& sort, DType dtype) : sort_(sort), dtype_(dtype) {}

  std::string description() const override { return is_long() ? "radix sort" : "sort"; }

  std::size_t own_bytes() const override {
    return static_cast<std::size_t>(sort_.length) * sizeof(Item) * (is_long() ? 2 : 1);
  }

 private:
  void run_whole(void* const* args, std::byte* scratch) override {
    switch (dtype_) {
      case DType::f32:
        return run_as<float>(args, scratch);
      case DType::i32:
        return run_as<std::int32_t>(args, scratch);
      case DType::u32:
      case DType::bool_:
      case DType::f16:  // sorted as f32, and bools not at all: kernel::verify
        return run_as<std::uint32_t>(args, scratch);
    }
  }
  bool is_long() const { return static_cast<std::size_t>(sort_.length) >= shortest_radix; }

  template <class T>
  void run_as(void* const* args, std::byte* scratch) const {
    const auto length = static_cast<std::size_t>(sort_.length);
    auto* const memory = reinterpret_cast<Item*>(scratch);
    const std::span<Item> items(memory, length);
    const std::span<Item> other(memory + length, is_long() ? length : 0);
    const auto* const in = static_cast<const T*>(buffer(args, sort_.in));
    auto* const values = static_cast<T*>(buffer(args, sort_.values));
    auto* const indices = static_cast<std::int32_t*>(buffer(args, sort_.indices));
    for (std::int64_t o = 0; o < sort_.outer; ++o) {
      for (std::int64_t i = 0; i < sort_.inner; ++i) {
        const T* const row = in + start(sort_.in, o, i);
        const std::int64_t step = sort_.in.strides[1];
        for (std::int64_t k = 0; k < sort_.length; ++k) {
          const std::uint32_t key = key_of(row[k * step]);
          const Item ordered = sort_.descending ? ~key : key;
          items[static_cast<std::size_t>(k)] = ordered << 32U | static_cast<Item>(k);
        }
        if (is_long()) {
          radix_sort(items, other);
        } else {
          std::sort(items.begin(), items.end());
        }
        if (values != nullptr) {
          T* const out = values + start(sort_.values, o, i);
          write(out, sort_.values, items, [&](std::uint32_t k) { return row[k * step]; });
        }
        if (indices != nullptr) {
          std::int32_t* const out = indices + start(sort_.indices, o, i);
          write(out, sort_.indices, items,
                [](std::uint32_t k) { return static_cast<std::int32_t>(k); });
        }
      }
    }
  }

  static void* buffer(void* const* args, const Access& access) {
    return access.buffer < 0 ? nullptr : args[access.buffer];
  }
  static std::int64_t start(const Access& access, std::int64_t outer, std::int64_t inner) {
    return access.offset + outer * access.strides[0] + inner * access.strides[2];
  }
  template <class T, class Element>
  static void write(T* out, const Access& access, std::span<const Item> items, Element element) {
    for (std::size_t k = 0; k < items.size(); ++k) {
      out[static_cast<std::int64_t>(k) * access.strides[1]] =
          element(static_cast<std::uint32_t>(items[k]));
    }
  }

  Sort sort_;
  DType dtype_;
};

}  // namespace

std::unique_ptr<ContractionRunner> make_sort(const kernel::Kernel& kernel) {
  const Sort& sort = *kernel.sort;
  return std::make_unique<SortRunner>(sort,
                                      kernel.args[static_cast<std::size_t>(sort.in.buffer)].dtype);
}

}  // namespace tensorgrad::cpu
