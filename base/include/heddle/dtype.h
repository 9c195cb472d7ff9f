// Element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "heddle/export.h"

namespace heddle {

/// The types of 8 bits are for storage: see is_float8().
enum class DType : std::uint8_t {
  F32,
  F64,
  F16,
  BF16,
  I8,
  U8,
  I16,
  I32,
  I64,
  Bool,
  U16,
  U32,
  U64,
  F8E4M3FN,    ///< NaN, no infinity; up to 448
  F8E4M3FNUZ,  ///< NaN for -0, no infinity; up to 240
  F8E5M2,      ///< infinity and NaN as IEEE 754; up to 57344
  F8E5M2FNUZ,  ///< NaN for -0, no infinity; up to 57344
  F8E8M0FNU    ///< 2^-127 to 2^127, and NaN; no sign, no 0
};

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
inline constexpr DType f8e4m3fn = DType::F8E4M3FN;
inline constexpr DType f8e4m3fnuz = DType::F8E4M3FNUZ;
inline constexpr DType f8e5m2 = DType::F8E5M2;
inline constexpr DType f8e5m2fnuz = DType::F8E5M2FNUZ;
inline constexpr DType f8e8m0fnu = DType::F8E8M0FNU;

/// Those with arithmetic, and then those of storage alone.
inline constexpr DType kAllDTypes[] = {f32, f64,      f16,        bf16,    i8,         u8,
                                       i16, i32,      i64,        boolean, u16,        u32,
                                       u64, f8e4m3fn, f8e4m3fnuz, f8e5m2,  f8e5m2fnuz, f8e8m0fnu};
inline constexpr DType kArithmeticDTypes[] = {f32, f64, f16,     bf16, i8,  u8, i16,
                                              i32, i64, boolean, u16,  u32, u64};
inline constexpr DType kFloat8DTypes[] = {f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f8e8m0fnu};

/// Bytes of one element; a bool takes one byte and holds 0 or 1.
HEDDLE_API std::size_t size_of(DType dtype);

/// The name used in IR text, messages and files: "f32", "bf16", "bool", …
HEDDLE_API std::string_view name_of(DType dtype);

/// The dtype called `name` in IR text.
/// @throws ParseError naming `name`.
HEDDLE_API DType dtype_from_name(std::string_view name);

/// Whether a type is one of 8-bit floats. Their elements are moved, selected and converted; for arithmetic they are
/// converted to another type before.
constexpr bool is_float8(DType d) { return d >= DType::F8E4M3FN; }
constexpr bool is_floating(DType d) {
  return d == DType::F32 || d == DType::F64 || d == DType::F16 || d == DType::BF16 || is_float8(d);
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
/// @throws DTypeError for an 8-bit float and another dtype: which is meant, convert() says.
HEDDLE_API DType promote(DType a, DType b);

/// The dtype that reductions and matrix products accumulate in: f32 for f16 and bf16, i64 for
/// integer sums, the dtype itself otherwise.
HEDDLE_API DType accumulator_of(DType dtype);

}  // namespace heddle
