// int8_conv against conv of the widened bytes, and its constraints.
#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Literal;

ir::Attrs window(std::int64_t spatial, std::int64_t stride, std::int64_t low, std::int64_t high) {
  const auto all = [&](std::int64_t value) {
    return std::vector<std::int64_t>(static_cast<std::size_t>(spatial), value);
  };
  return {{"strides", all(stride)},
          {"pads_low", all(low)},
          {"pads_high", all(high)},
          {"dilations", all(1)}};
}

TEST(Int8Conv, PutsItsZeroPointOutside) {
  const Literal x = ints(u8, {1, 1, 2}, {10, 20});
  const Literal w = ints(i8, {1, 1, 3}, {1, -2, 4});
  expect_same(value_of({"int8_conv", {x, w, Literal::scalar_int(u8, 5)}, window(1, 1, 1, 1)}),
              ints(i32, {1, 1, 2}, {5 - 20 + 80, 10 - 40 + 20}));
}

TEST(Int8Conv, IsTheConvolutionInWideIntegers) {
  const auto wide = [](const Literal& bytes) {
    return value_of({"convert", {bytes}, {{"dtype", i32}}});
  };
  for (const DType left : {u8, i8})
    for (const DType right : {u8, i8})
      for (const bool last : {false, true}) {
        const Literal x = any_bytes(left, last ? ir::Sizes{2, 5, 6, 3} : ir::Sizes{2, 3, 5, 6});
        const Literal w = any_bytes(right, {4, 3, 3, 2}, 2);
        ir::Attrs attrs = window(2, 2, 1, 0);
        attrs["channels_last"] = last;
        expect_same(value_of({"int8_conv", {x, w, Literal::scalar_int(left, 0)}, attrs}),
                    value_of({"conv", {wide(x), wide(w)}, attrs}));
        expect_decomposition_agrees({"int8_conv", {x, w, Literal::scalar_int(left, 77)}, attrs}, 0);
      }
}

std::string wrong(DType x, ir::Dims sizes, DType w, ir::Dims filters, DType zero,
                  ir::Dims of_zero = {}, std::int64_t stride = 1, std::int64_t spatial = 1) {
  return error_of("int8_conv", {meta(x, sizes), meta(w, filters), meta(zero, of_zero)},
                  window(spatial, stride, 0, 0));
}
bool begins(const std::string& text, std::string_view with) { return text.starts_with(with); }

TEST(Int8Conv, int8_conv_c1) {
  EXPECT_EQ(wrong(i16, {1, 2, 5}, i8, {3, 2, 3}, u8),
            "int8_conv: C1 x and w are u8 or i8: expected u8 or i8, got i16");
}
TEST(Int8Conv, int8_conv_c2) {
  EXPECT_EQ(wrong(u8, {1, 2, 5}, i8, {3, 2, 3}, i8),
            "int8_conv: C2 zero is of x's dtype and has no dimensions: expected u8, got i8");
  EXPECT_EQ(wrong(u8, {1, 2, 5}, i8, {3, 2, 3}, u8, {1}),
            "int8_conv: C2 zero is of x's dtype and has no dimensions: expected [], got [1]");
}
TEST(Int8Conv, int8_conv_c3) {
  EXPECT_TRUE(begins(wrong(u8, {2, 5}, i8, {3, 2}, u8), "int8_conv: C3 x and w have the same"));
}
TEST(Int8Conv, int8_conv_c4) {
  EXPECT_TRUE(begins(wrong(u8, {1, 2, 5}, i8, {3, 2, 3}, u8, {}, 1, 2), "int8_conv: C4 strides, "));
}
TEST(Int8Conv, int8_conv_c5) {
  EXPECT_TRUE(begins(wrong(u8, {1, 2, 5}, i8, {3, 2, 3}, u8, {}, 0), "int8_conv: C5 strides and "));
}
TEST(Int8Conv, int8_conv_c6) {
  EXPECT_EQ(wrong(u8, {1, 2, 5}, i8, {3, 4, 3}, u8),
            "int8_conv: C6 the channels of x are those of w: expected 4, got 2");
}
TEST(Int8Conv, int8_conv_c7) {
  EXPECT_TRUE(begins(wrong(u8, {1, 2, 2}, i8, {3, 2, 3}, u8), "int8_conv: C7 the kernel fits"));
}

}  // namespace
}  // namespace heddle::testing
