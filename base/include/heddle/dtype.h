// Element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "heddle/export.h"

namespace heddle {

enum class DType : std::uint8_t { F32, F64, F16, BF16, I8, U8, I16, I32, I64, Bool, U16, U32, U64 };

inline constexpr DType f32 = DType::F32;
inline constexpr DType f64 = DType::F64;
inline constexpr DType f16 = DType::F16;
inline constexpr DType bf16 = DType::BF16;
inline constexpr DType i8 = DType::I8;
inline constexpr DType u8 = DType::U8;
inline constexpr DType i16 = DType::I16;
inline constexpr DType i32 = DType::I32;
inline constexpr DType i64 = DType::I64;
inline constexpr DType boolean = DType::Bool;
inline constexpr DType u16 = DType::U16;
inline constexpr DType u32 = DType::U32;
inline constexpr DType u64 = DType::U64;

inline constexpr DType kAllDTypes[] = {f32, f64, f16,     bf16, i8,  u8, i16,
                                       i32, i64, boolean, u16,  u32, u64};

/// Bytes of one element; a bool takes one byte and holds 0 or 1.
HEDDLE_API std::size_t size_of(DType dtype);

/// The name used in IR text, messages and files: "f32", "bf16", "bool", …
HEDDLE_API std::string_view name_of(DType dtype);

/// The dtype called `name` in IR text.
/// @throws ParseError naming `name`.
HEDDLE_API DType dtype_from_name(std::string_view name);

constexpr bool is_floating(DType d) {
  return d == DType::F32 || d == DType::F64 || d == DType::F16 || d == DType::BF16;
}
constexpr bool is_byte(DType d) { return d == DType::U8 || d == DType::I8; }
constexpr bool is_integer(DType d) { return !is_floating(d) && d != DType::Bool; }
constexpr bool is_signed(DType d) {
  return d != DType::U8 && d != DType::U16 && d != DType::U32 && d != DType::U64 &&
         d != DType::Bool;
}

/// Smallest dtype that both operands convert to: bool < i8 < i16 < i32 < i64 < f16, bf16 < f32 < f64, and bool < u8 < u16 < u32 < u64;
/// an unsigned integer with a signed one gives the smallest signed one that holds both, u64 with one i64, f16 with bf16 f32.
/// Symmetric and associative over pairs.
HEDDLE_API DType promote(DType a, DType b);

/// The dtype that reductions and matrix products accumulate in: f32 for f16 and bf16, i64 for
/// integer sums, the dtype itself otherwise.
HEDDLE_API DType accumulator_of(DType dtype);

}  // namespace heddle
