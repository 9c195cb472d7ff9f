#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "ir/op.h"
#include "ir/ops/families.h"
#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Literal;
using ir::Sizes;
using ir::SymExpr;

constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();

struct RealRow {
  std::string_view op;
  double a;
  double b;
  double want;
};

TEST(Binary, HasTheValuesOfItsFunctionOnFloats) {
  const RealRow rows[] = {
      {"add", 1.5, 2.0, 3.5},
      {"sub", 1.5, 2.0, -0.5},
      {"mul", 1.5, 2.0, 3.0},
      {"div", 1.0, 4.0, 0.25},
      {"pow", 2.0, 0.5, std::sqrt(2.0)},
      {"atan2", 1.0, -1.0, std::atan2(1, -1)},
      {"max", 1.0, 2.0, 2.0},
      {"min", 1.0, 2.0, 1.0},
      {"mod", 5.5, 2.0, 1.5},
      {"mod", -5.5, 2.0, 0.5},
      {"mod", 5.5, -2.0, -0.5},
      {"rem", -5.5, 2.0, -1.5},
      {"rem", 5.5, -2.0, 1.5},
  };
  for (const RealRow& row : rows) {
    const Literal got = value_of({row.op, {doubles(f64, {}, {row.a}), doubles(f64, {}, {row.b})}});
    EXPECT_DOUBLE_EQ(got.at(0), row.want) << row.op << "(" << row.a << ", " << row.b << ")";
  }
}

struct IntRow {
  std::string_view op;
  DType dtype;
  std::int64_t a;
  std::int64_t b;
  std::int64_t want;
};

TEST(Binary, HasTheValuesOfItsFunctionOnIntegers) {
  const IntRow rows[] = {
      {"add", i8, 127, 1, -128},
      {"add", u8, 255, 2, 1},
      {"sub", u8, 0, 1, 255},
      {"mul", i16, 300, 300, 24464},
      {"mul", i64, kLowest, -1, kLowest},
      {"div", i32, 7, 2, 3},
      {"div", i32, -7, 2, -3},
      {"div", i32, 7, 0, 0},
      {"div", i64, kLowest, -1, kLowest},
      {"div", i8, -128, -1, -128},
      {"mod", i32, -7, 3, 2},
      {"mod", i32, 7, -3, -2},
      {"mod", i32, 7, 0, 0},
      {"mod", i64, kLowest, -1, 0},
      {"rem", i32, -7, 3, -1},
      {"rem", i32, 7, -3, 1},
      {"rem", i32, 7, 0, 0},
      {"pow", i32, 3, 4, 81},
      {"pow", i8, 2, 7, -128},
      {"pow", i32, 2, -1, 0},
      {"pow", i32, -1, -3, -1},
      {"pow", i32, 1, -5, 1},
      {"pow", i32, 5, 0, 1},
      {"max", i8, -3, 2, 2},
      {"min", u8, 200, 3, 3},
      {"and", u8, 12, 10, 8},
      {"or", u8, 12, 10, 14},
      {"xor", u8, 12, 10, 6},
      {"and", boolean, 1, 0, 0},
      {"or", boolean, 1, 0, 1},
      {"xor", boolean, 1, 1, 0},
      {"shl", u8, 3, 7, 128},
      {"shl", u8, 3, 8, 0},
      {"shl", i32, 1, 31, -2147483648LL},
      {"shl", i32, 1, -1, 0},
      {"shr", i8, -128, 3, -16},
      {"shr", i8, -1, 8, -1},
      {"shr", i8, 64, 8, 0},
      {"shr", u8, 200, 3, 25},
      {"shr", u8, 200, 8, 0},
      {"sub", u16, 1, 2, 65535},
      {"mul", u16, 65535, 65535, 1},
      {"add", u32, 4294967295, 2, 1},
      {"div", u32, 4294967295, 2, 2147483647},
      {"mod", u32, 4294967295, 10, 5},
      {"max", u32, 4294967295, 1, 4294967295},
      {"shr", u32, 4294967295, 31, 1},
      {"shl", u32, 3, 31, 2147483648},
      {"shr", u32, 1, 4294967295, 0},
      // The upper half of u64 reads as negative numbers.
      {"sub", u64, 1, 2, -1},
      {"div", u64, -1, 2, INT64_MAX},
      {"div", u64, 5, -1, 0},
      {"div", u64, -1, -1, 1},
      {"div", u64, -1, 0, 0},
      {"mod", u64, -1, 10, 5},
      {"rem", u64, 7, -1, 7},
      {"max", u64, -1, 1, -1},
      {"min", u64, -1, 1, 1},
      {"shr", u64, -1, 63, 1},
      {"shr", u64, -1, 64, 0},
      {"shr", u64, -1, -1, 0},
      {"pow", u64, 3, 40, -6289078614652622815},
      {"pow", u64, 3, -1, -6148914691236517205},
      {"lt", u64, -1, 1, 0},
      {"gt", u64, -1, 1, 1},
  };
  for (const IntRow& row : rows) {
    const Literal a = ints(row.dtype, {}, {row.a});
    const Literal b = ints(row.dtype, {}, {row.b});
    EXPECT_EQ(value_of({row.op, {a, b}}).at_int(0), row.want)
        << row.op << " " << name_of(row.dtype) << " " << row.a << " " << row.b;
  }
}

TEST(Binary, ComparesAndNanIsUnordered) {
  const Literal a = doubles(f32, {4}, {1.0, 2.0, 2.0, kNan});
  const Literal b = doubles(f32, {4}, {2.0, 2.0, 1.0, kNan});
  const std::pair<std::string_view, std::vector<std::int64_t>> rows[] = {
      {"eq", {0, 1, 0, 0}}, {"ne", {1, 0, 1, 1}}, {"lt", {1, 0, 0, 0}},
      {"le", {1, 1, 0, 0}}, {"gt", {0, 0, 1, 0}}, {"ge", {0, 1, 1, 0}},
  };
  for (const auto& [op, want] : rows) {
    SCOPED_TRACE(op);
    expect_same(value_of({op, {a, b}}), ints(boolean, {4}, want));
  }
}

TEST(Binary, ComparesI64Exactly) {
  const std::int64_t big = (std::int64_t{1} << 53) + 1;
  const Literal a = ints(i64, {}, {big});
  EXPECT_EQ(value_of({"eq", {a, ints(i64, {}, {big - 1})}}).at_int(0), 0);
  EXPECT_EQ(value_of({"add", {a, ints(i64, {}, {1})}}).at_int(0), big + 1);
}

TEST(Binary, MaxAndMinGiveNanIfEitherIsNan) {
  const Literal a = doubles(f16, {2}, {kNan, 1.0});
  const Literal b = doubles(f16, {2}, {1.0, kNan});
  for (const std::string_view op : {"max", "min"}) {
    expect_same(value_of({op, {a, b}}), doubles(f16, {2}, {kNan, kNan}));
  }
}

TEST(Binary, F16IsComputedInF32AndRoundedOnce) {
  const Literal a = doubles(f16, {1}, {2048.0});
  expect_same(value_of({"add", {a, doubles(f16, {1}, {1.0})}}), doubles(f16, {1}, {2048.0}));
  expect_same(value_of({"add", {a, doubles(f16, {1}, {3.0})}}), doubles(f16, {1}, {2052.0}));
  expect_same(value_of({"mul", {doubles(bf16, {1}, {3.0}), doubles(bf16, {1}, {43.0})}}),
              doubles(bf16, {1}, {129.0}));
}

TEST(Binary, BroadcastsTrailingDimensions) {
  const Literal a = ints(i32, {2, 1}, {10, 20});
  const Literal b = ints(i32, {3}, {1, 2, 3});
  expect_same(value_of({"add", {a, b}}), ints(i32, {2, 3}, {11, 12, 13, 21, 22, 23}));
  EXPECT_EQ(value_of({"add", {Literal(f32, {2, 0}), Literal(f32, {1})}}).sizes(), (Sizes{2, 0}));
  EXPECT_EQ(value_of({"add", {Literal(f32, {}), Literal(f32, {1, 1})}}).sizes(), (Sizes{1, 1}));
}

TEST(Binary, PromotesItsOperands) {
  EXPECT_EQ(type_of("add", {meta(i32, {2}), meta(f16, {2})}), "f16[2]");
  EXPECT_EQ(type_of("mul", {meta(u8, {2}), meta(i8, {2})}), "i16[2]");
  EXPECT_EQ(type_of("lt", {meta(u8, {2}), meta(f32, {2})}), "bool[2]");
  expect_same(value_of({"lt", {ints(u8, {1}, {200}), ints(i8, {1}, {-1})}}),
              ints(boolean, {1}, {0}));
}

TEST(Binary, SizesStaySymbolic) {
  const SymExpr s0 = SymExpr::size(0);
  EXPECT_EQ(type_of("add", {meta(f32, {s0, 4}), meta(f32, {1, 4})}), "f32[s0, 4]");
  EXPECT_EQ(type_of("add", {meta(f32, {4}), meta(f32, {s0, 1})}), "f32[s0, 4]");
}

TEST(Binary, C1RefusesSizesThatDoNotBroadcast) {
  EXPECT_EQ(
      error_of("add", {meta(f32, {2, 3}), meta(f32, {2})}),
      "add: C1 sizes broadcast: expected sizes that are equal or 1, got 3 and 2 in dimension 1");
}

TEST(Binary, C2RefusesADTypeWithoutTheInstruction) {
  for (const ir::OpDef& op : ir::binary_ops()) {
    for (const DType dtype : kArithmeticDTypes) {
      if (ir::defined_on(*op.scalar, dtype)) continue;
      const std::string name(op.name);
      EXPECT_EQ(error_of(op.name, {meta(dtype, {2}), meta(dtype, {2})}),
                name + ": C2 dtype: expected a dtype that " + name + " is defined on, got " +
                    std::string(name_of(dtype)));
    }
  }
  EXPECT_NE(error_of("and", {meta(f32, {2}), meta(f32, {2})}), "no error");
}

}  // namespace
}  // namespace heddle::testing
