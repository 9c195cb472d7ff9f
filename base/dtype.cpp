#include "heddle/dtype.h"

#include <array>
#include <string>

#include "base/check.h"
#include "heddle/error.h"

namespace heddle {
namespace {

struct Row {
  std::string_view name;
  std::size_t bytes;
  int rank;  ///< place in the promotion order, of which integers share one, and f16 and bf16 one
};

// In the order of the enumeration.
constexpr std::array<Row, std::size(kAllDTypes)> kRows = {{{"f32", 4, 3},
                                                           {"f64", 8, 4},
                                                           {"f16", 2, 2},
                                                           {"bf16", 2, 2},
                                                           {"i8", 1, 1},
                                                           {"u8", 1, 1},
                                                           {"i16", 2, 1},
                                                           {"i32", 4, 1},
                                                           {"i64", 8, 1},
                                                           {"bool", 1, 0},
                                                           {"u16", 2, 1},
                                                           {"u32", 4, 1},
                                                           {"u64", 8, 1},
                                                           {"f8e4m3fn", 1, 0},
                                                           {"f8e4m3fnuz", 1, 0},
                                                           {"f8e5m2", 1, 0},
                                                           {"f8e5m2fnuz", 1, 0},
                                                           {"f8e8m0fnu", 1, 0}}};

const Row& row(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  HD_CHECK(index < kRows.size(), "dtype " + std::to_string(index));
  return kRows[index];
}

/// The signed integer of so many bytes, at most 8.
DType signed_of(std::size_t bytes) {
  return bytes == 2 ? DType::I16 : bytes == 4 ? DType::I32 : DType::I64;
}

std::string all_names() {
  std::string names;
  for (const Row& r : kRows) names += (names.empty() ? "" : ", ") + std::string(r.name);
  return names;
}

}  // namespace

std::size_t size_of(DType dtype) { return row(dtype).bytes; }
std::string_view name_of(DType dtype) { return row(dtype).name; }

DType dtype_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].name == name) return static_cast<DType>(i);
  }
  throw ParseError({.what = "unknown dtype",
                    .where = {},
                    .expected = "one of " + all_names(),
                    .got = "\"" + std::string(name) + "\""});
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (is_float8(a) || is_float8(b))
    throw DTypeError({.what = "operands of two dtypes",
                      .where = {},
                      .expected = "an 8-bit float converted before, by cast()",
                      .got = std::string(name_of(a)) + " and " + std::string(name_of(b))});
  if (row(a).rank != row(b).rank) return row(a).rank > row(b).rank ? a : b;
  if (is_floating(a)) return DType::F32;
  if (is_signed(a) == is_signed(b)) return size_of(a) > size_of(b) ? a : b;
  const DType with_sign = is_signed(a) ? a : b;
  const DType without = is_signed(a) ? b : a;
  const DType holds = signed_of(2 * size_of(without));
  return size_of(with_sign) > size_of(holds) ? with_sign : holds;
}

DType accumulator_of(DType dtype) {
  if (dtype == DType::F16 || dtype == DType::BF16 || is_float8(dtype)) return DType::F32;
  if (is_integer(dtype)) return DType::I64;
  return dtype;
}

}  // namespace heddle
