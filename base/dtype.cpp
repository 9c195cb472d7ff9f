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
  int rank;  ///< place in the promotion order; u8 and i8, f16 and bf16 share one
};

// In the order of the enumeration.
constexpr std::array<Row, std::size(kAllDTypes)> kRows = {{{"f32", 4, 7},
                                                           {"f64", 8, 8},
                                                           {"f16", 2, 6},
                                                           {"bf16", 2, 6},
                                                           {"i8", 1, 1},
                                                           {"u8", 1, 1},
                                                           {"i16", 2, 2},
                                                           {"i32", 4, 3},
                                                           {"i64", 8, 4},
                                                           {"bool", 1, 0}}};

const Row& row(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  HD_CHECK(index < kRows.size(), "dtype " + std::to_string(index));
  return kRows[index];
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
  if (row(a).rank != row(b).rank) return row(a).rank > row(b).rank ? a : b;
  return is_floating(a) ? DType::F32 : DType::I16;
}

DType accumulator_of(DType dtype) {
  if (dtype == DType::F16 || dtype == DType::BF16) return DType::F32;
  if (is_integer(dtype)) return DType::I64;
  return dtype;
}

}  // namespace heddle
