#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Dims;
using ir::Sizes;

TEST(Iota, CountsAlongItsAxisInEveryDType) {
  for (const DType dtype : kNumbers) {
    expect_same(
        value_of(
            {"iota", {}, {{"sizes", Dims{2, 3}}, {"axis", std::int64_t{-1}}, {"dtype", dtype}}}),
        ints(dtype, {2, 3}, {0, 1, 2, 0, 1, 2}));
  }
  expect_same(value_of({"iota", {}, {{"sizes", Dims{2, 2}}}}), ints(i64, {2, 2}, {0, 0, 1, 1}));
}

TEST(Iota, WrapsIntegersAndRoundsFloats) {
  EXPECT_EQ(value_of({"iota", {}, {{"sizes", Dims{200}}, {"dtype", i8}}}).at_int(128), -128);
  EXPECT_EQ(value_of({"iota", {}, {{"sizes", Dims{2050}}, {"dtype", f16}}}).at(2049), 2048.0);
}

TEST(Iota, MayBeEmptyAndSymbolic) {
  EXPECT_EQ(value_of({"iota", {}, {{"sizes", Dims{0, 3}}}}).sizes(), (Sizes{0, 3}));
  EXPECT_EQ(type_of("iota", {}, {{"sizes", Dims{ir::SymExpr::size(0)}}, {"dtype", i32}}),
            "i32[s0]");
}

TEST(Iota, C1RefusesNegativeSizes) {
  EXPECT_EQ(error_of("iota", {}, {{"sizes", Dims{-1}}}),
            "iota: C1 sizes: expected sizes of at least 0, got [-1]");
}

TEST(Iota, C2RefusesAnAxisOutOfRange) {
  EXPECT_EQ(error_of("iota", {}, {{"sizes", Dims{4}}, {"axis", std::int64_t{1}}}),
            "iota: C2 axis: expected an axis in [-1, 1), got 1");
  EXPECT_EQ(error_of("iota", {}, {{"sizes", Dims{}}}),
            "iota: C2 axis: expected an axis in [0, 0), got 0");
}

TEST(Iota, C3RefusesBool) {
  EXPECT_EQ(error_of("iota", {}, {{"sizes", Dims{4}}, {"dtype", boolean}}),
            "iota: C3 dtype: expected a number dtype, got bool");
}

}  // namespace
}  // namespace heddle::testing
