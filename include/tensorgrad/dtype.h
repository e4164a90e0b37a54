// Element types of tensors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tensorgrad/half.h"

namespace tensorgrad {

/// The element type of a tensor.
enum class DType : std::uint8_t { bool_, i32, u32, f32, f16 };

/// What kind of number a dtype holds.
enum class DTypeKind : std::uint8_t { boolean, signed_integer, unsigned_integer, floating };

/// One row of the dtype table.
struct DTypeInfo {
  DType dtype;
  std::string_view name;  ///< as printed: "f32"
  std::size_t bytes;      ///< size of one element in host memory and in the CPU backend
  DTypeKind kind;
};

/// The dtype table: adding a dtype adds a row here.
inline constexpr std::array<DTypeInfo, 5> dtype_table{{
    {DType::bool_, "bool", 1, DTypeKind::boolean},
    {DType::i32, "i32", 4, DTypeKind::signed_integer},
    {DType::u32, "u32", 4, DTypeKind::unsigned_integer},
    {DType::f32, "f32", 4, DTypeKind::floating},
    {DType::f16, "f16", 2, DTypeKind::floating},
}};

/// The table row of `dtype`.
constexpr const DTypeInfo& info(DType dtype) {
  return dtype_table[static_cast<std::size_t>(dtype)];
}
/// The printed name of `dtype`: "bool", "i32", "u32", "f32", "f16".
constexpr std::string_view name(DType dtype) { return info(dtype).name; }
/// Whether `dtype` is a floating-point type.
constexpr bool is_floating(DType dtype) { return info(dtype).kind == DTypeKind::floating; }
/// Whether `dtype` is a signed or unsigned integer type (bool is neither).
constexpr bool is_integer(DType dtype) {
  return info(dtype).kind == DTypeKind::signed_integer ||
         info(dtype).kind == DTypeKind::unsigned_integer;
}

/// The dtype that holds a C++ type in host memory; specialised for the supported types only.
template <class T>
struct dtype_of;
template <>
struct dtype_of<bool> {
  static constexpr DType value = DType::bool_;
};
template <>
struct dtype_of<std::uint8_t> {  // a bool tensor read or fed as bytes of 0 and 1
  static constexpr DType value = DType::bool_;
};
template <>
struct dtype_of<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct dtype_of<std::uint32_t> {
  static constexpr DType value = DType::u32;
};
template <>
struct dtype_of<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct dtype_of<Half> {
  static constexpr DType value = DType::f16;
};

}  // namespace tensorgrad
