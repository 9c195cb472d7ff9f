// Pools against windows written out, and their constraints.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Attrs;
using ir::Literal;
using ir::Sizes;
using Ints = std::vector<std::int64_t>;

Attrs pool(const Ints& kernel, const Ints& strides, const Ints& low, const Ints& high,
           const Ints& dilations, bool ceil_mode = false) {
  return {{"kernel", kernel},  {"strides", strides},     {"pads_low", low},
          {"pads_high", high}, {"dilations", dilations}, {"ceil_mode", ceil_mode}};
}

Attrs line(std::int64_t kernel, std::int64_t stride, std::int64_t low = 0, std::int64_t high = 0,
           std::int64_t dilation = 1, bool ceil_mode = false) {
  return pool({kernel}, {stride}, {low}, {high}, {dilation}, ceil_mode);
}

Attrs with_flag(Attrs attrs, std::string_view name, bool value) {
  attrs[std::string(name)] = value;
  return attrs;
}

Literal counting(DType dtype, const Sizes& sizes) {
  Literal result(dtype, sizes);
  for (std::int64_t k = 0; k < result.count(); ++k) result.set(k, static_cast<double>(k + 1));
  return result;
}

TEST(MaxPool, EveryDTypeAndStrides) {
  for (const DType dtype : kNumbers) {
    SCOPED_TRACE(name_of(dtype));
    const Literal x = ints(dtype, {1, 2, 5}, {1, 5, 2, 4, 3, 9, 0, 0, 7, 8});
    const Literal want = ints(dtype, {1, 2, 2}, {5, 4, 9, 8});
    expect_same(value_of({"max_pool", {x}, line(3, 2)}), want);
    expect_same(value_of({"max_pool", {spread_out(x)}, line(3, 2)}), want);
    const Literal where = ints(i64, {1, 2, 2}, {1, 3, 5, 9});
    expect_same(value_of({"max_pool_indices", {x}, line(3, 2)}), where);
    expect_same(value_of({"max_pool_indices", {spread_out(x)}, line(3, 2)}), where);
  }
}

TEST(MaxPool, TwoDimensionsAndBothNumberings) {
  const Attrs attrs = pool({2, 2}, {2, 2}, {0, 0}, {0, 0}, {1, 1});
  const Literal x = counting(f32, {1, 2, 5, 5});
  expect_same(value_of({"max_pool", {x}, attrs}),
              doubles(f32, {1, 2, 2, 2}, {7, 9, 17, 19, 32, 34, 42, 44}));
  expect_same(value_of({"max_pool_indices", {x}, attrs}),
              ints(i64, {1, 2, 2, 2}, {6, 8, 16, 18, 31, 33, 41, 43}));
  expect_same(value_of({"max_pool_indices", {x}, with_flag(attrs, "column_major", true)}),
              ints(i64, {1, 2, 2, 2}, {6, 16, 8, 18, 31, 41, 33, 43}));
}

TEST(MaxPool, PaddingNeverWins) {
  for (const DType dtype : kNumbers) {
    if (!is_signed(dtype)) continue;
    SCOPED_TRACE(name_of(dtype));
    const Literal x = ints(dtype, {1, 1, 2}, {-3, -5});
    expect_same(value_of({"max_pool", {x}, line(2, 1, 1, 1)}),
                ints(dtype, {1, 1, 3}, {-3, -3, -5}));
  }
}

TEST(MaxPool, WindowsWithoutAnElement) {
  // Windows of two taps three apart, padded by three: the middle one reads positions -1 and 2.
  const Attrs attrs = line(2, 1, 3, 3, 3);
  const Literal y = value_of({"max_pool", {doubles(f32, {1, 1, 2}, {4, 5})}, attrs});
  const double low = -std::numeric_limits<double>::infinity();
  expect_same(y, doubles(f32, {1, 1, 5}, {4, 5, low, 4, 5}));
  expect_same(value_of({"max_pool", {ints(i8, {1, 1, 2}, {4, 5})}, attrs}),
              ints(i8, {1, 1, 5}, {4, 5, -128, 4, 5}));
  expect_same(value_of({"max_pool", {ints(u8, {1, 1, 2}, {4, 5})}, attrs}),
              ints(u8, {1, 1, 5}, {4, 5, 0, 4, 5}));
  const std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
  expect_same(value_of({"max_pool", {ints(i64, {1, 1, 2}, {4, 5})}, attrs}),
              ints(i64, {1, 1, 5}, {4, 5, lowest, 4, 5}));
  expect_same(value_of({"max_pool_indices", {doubles(f32, {1, 1, 2}, {4, 5})}, attrs}),
              ints(i64, {1, 1, 5}, {0, 1, -1, 0, 1}));
}

TEST(MaxPool, NaNWinsAtItsFirstPlaceAndTiesAtTheirs) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    Literal x = with_nan(doubles(dtype, {1, 1, 6}, {3, 0, 0, 3, 3, 1}), 1);
    x.set(2, std::numeric_limits<double>::quiet_NaN());
    const Literal y = value_of({"max_pool", {x}, line(3, 3)});
    EXPECT_TRUE(std::isnan(y.at(0)));
    EXPECT_EQ(y.at(1), 3);
    expect_same(value_of({"max_pool_indices", {x}, line(3, 3)}), ints(i64, {1, 1, 2}, {1, 3}));
  }
}

TEST(Pool, CeilModeAddsAWindowThatStartsInside) {
  const Literal x = counting(f32, {1, 1, 5});
  expect_same(value_of({"max_pool", {x}, line(2, 2)}), doubles(f32, {1, 1, 2}, {2, 4}));
  expect_same(value_of({"max_pool", {x}, line(2, 2, 0, 0, 1, true)}),
              doubles(f32, {1, 1, 3}, {2, 4, 5}));
  // The window that would begin at position 5, in the high padding, is left out.
  expect_same(value_of({"max_pool", {x}, line(2, 3, 1, 1, 1, true)}),
              doubles(f32, {1, 1, 2}, {1, 4}));
  EXPECT_EQ(value_of({"max_pool", {x}, line(1, 3, 1, 1, 1, true)}).sizes(), (Sizes{1, 1, 2}));
  expect_same(value_of({"avg_pool", {x}, line(2, 2, 0, 0, 1, true)}),
              doubles(f32, {1, 1, 3}, {1.5, 3.5, 5}));
  expect_same(
      value_of({"avg_pool", {x}, with_flag(line(2, 2, 0, 0, 1, true), "count_include_pad", true)}),
      doubles(f32, {1, 1, 3}, {1.5, 3.5, 5}));
}

/// `x` with dimension k what was dimension perm[k].
Literal turned(const Literal& x, const Ints& perm) {
  Sizes sizes;
  Sizes strides;
  for (const std::int64_t axis : perm) {
    sizes.push_back(x.sizes()[static_cast<std::size_t>(axis)]);
    strides.push_back(x.strides()[static_cast<std::size_t>(axis)]);
  }
  return x.view(sizes, strides, 0).contiguous();
}

TEST(Pool, TakesItsWindowsAlongAnyDimensions) {
  const Attrs plain = pool({3, 2}, {2, 1}, {1, 0}, {0, 1}, {1, 2});
  const Attrs swapped = pool({2, 3}, {1, 2}, {0, 1}, {1, 0}, {2, 1});
  struct Order {
    Ints perm;
    Ints axes;
    Attrs attrs;
  };
  const Literal x = counting(f32, {2, 3, 7, 6});
  for (const std::string_view op : {"max_pool", "avg_pool"})
    for (Order order :
         {Order{{0, 2, 3, 1}, {1, 2}, plain}, Order{{2, 0, 1, 3}, {0, 3}, plain},
          Order{{0, 1, 3, 2}, {2, 3}, swapped}, Order{{3, 2, 1, 0}, {0, 1}, swapped}}) {
      order.attrs["axes"] = order.axes;
      expect_same(value_of({op, {turned(x, order.perm)}, order.attrs}),
                  turned(value_of({op, {x}, plain}), order.perm));
    }
}

TEST(Pool, InfersSymbolicSizes) {
  const auto s0 = base::SymExpr::size(0);
  EXPECT_EQ(type_of("max_pool", {meta(f32, {2, 3, s0})}, line(3, 2, 1, 1)),
            "f32[2, 3, floor((s0+1)/2)]");
  EXPECT_EQ(type_of("max_pool_indices", {meta(f32, {2, 3, s0})}, line(2, 2, 0, 0, 1, true)),
            "i64[2, 3, floor((s0+1)/2)]");
}

TEST(AvgPool, DividesByElementsOrByTaps) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    const Literal x = doubles(dtype, {1, 1, 4}, {3, 6, 9, 12});
    expect_same(value_of({"avg_pool", {x}, line(3, 1, 1, 1)}),
                doubles(dtype, {1, 1, 4}, {4.5, 6, 9, 10.5}));
    expect_same(value_of({"avg_pool", {spread_out(x)}, line(3, 1, 1, 1)}),
                doubles(dtype, {1, 1, 4}, {4.5, 6, 9, 10.5}));
    expect_same(value_of({"avg_pool", {x}, with_flag(line(3, 1, 1, 1), "count_include_pad", true)}),
                doubles(dtype, {1, 1, 4}, {3, 6, 9, 7}));
    expect_same(value_of({"avg_pool", {x}, line(2, 1, 0, 0, 3)}), doubles(dtype, {1, 1, 1}, {7.5}));
  }
}

TEST(AvgPool, TwoDimensions) {
  const Literal x = counting(f32, {1, 1, 3, 3});
  expect_same(value_of({"avg_pool", {x}, pool({2, 2}, {1, 1}, {0, 0}, {0, 0}, {1, 1})}),
              doubles(f32, {1, 1, 2, 2}, {3, 4, 6, 7}));
  expect_same(value_of({"avg_pool", {x}, pool({2, 2}, {2, 2}, {1, 1}, {0, 0}, {1, 1})}),
              doubles(f32, {1, 1, 2, 2}, {1, 2.5, 5.5, 7}));
}

TEST(AvgPool, NaNAndWindowsWithoutAnElement) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    const Literal x = with_nan(noise(dtype, {1, 1, 6}), 2);
    const Literal y = value_of({"avg_pool", {x}, line(2, 2)});
    for (std::int64_t k = 0; k < 3; ++k) EXPECT_EQ(std::isnan(y.at(k)), k == 1) << k;
    const Literal none =
        value_of({"avg_pool", {doubles(dtype, {1, 1, 2}, {4, 5})}, line(2, 1, 3, 3, 3)});
    EXPECT_TRUE(std::isnan(none.at(2)));
    EXPECT_EQ(none.at(1), 5);
  }
}

TEST(Pool, EmptyAndSingleOperands) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    for (const std::string_view op : {"max_pool", "max_pool_indices", "avg_pool"}) {
      EXPECT_EQ(value_of({op, {Literal(dtype, {0, 2, 4})}, line(2, 2)}).sizes(), (Sizes{0, 2, 2}));
    }
    const Literal x = ints(dtype, {1, 1, 1}, {7});
    expect_same(value_of({"max_pool", {x}, line(1, 1)}), x);
    expect_same(value_of({"avg_pool", {x}, line(1, 1)}), x);
    expect_same(value_of({"max_pool_indices", {x}, line(1, 1)}), ints(i64, {1, 1, 1}, {0}));
  }
}

TEST(Pool, max_pool_c1) {
  EXPECT_EQ(error_of("max_pool", {meta(boolean, {1, 1, 4})}, line(2, 2)),
            "max_pool: C1 x is a number: expected a number, got bool");
  EXPECT_EQ(error_of("max_pool_indices", {meta(boolean, {1, 1, 4})}, line(2, 2)),
            "max_pool_indices: C1 x is a number: expected a number, got bool");
  EXPECT_EQ(error_of("avg_pool", {meta(i32, {1, 1, 4})}, line(2, 2)),
            "avg_pool: C1 x has a floating dtype: expected a floating dtype, got i32");
}

TEST(Pool, max_pool_c2) {
  EXPECT_EQ(error_of("max_pool", {meta(f32, {1, 4})}, line(2, 2)),
            "max_pool: C2 x has at least three dimensions: expected sizes [N, C, ...], got [1, 4]");
  for (const Ints& axes : {Ints{3, 2}, {2}, {1, 1}, {2, 4}, {-1, 2}}) {
    Attrs attrs = pool({1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1});
    attrs["axes"] = axes;
    EXPECT_TRUE(error_of("avg_pool", {meta(f32, {1, 4, 4, 4})}, attrs)
                    .starts_with("avg_pool: C2 axes are all dimensions but two, ascending: "
                                 "expected 2 dimensions of 4, got "));
  }
}

TEST(Pool, max_pool_c3) {
  EXPECT_EQ(error_of("avg_pool", {meta(f32, {1, 1, 4})}, line(0, 2)),
            "avg_pool: C3 kernel has one entry a spatial dimension, 1 or more: expected 1 entries "
            "of 1 or more, got [0]");
  EXPECT_EQ(error_of("max_pool", {meta(f32, {1, 1, 4, 4})}, line(2, 2)),
            "max_pool: C3 kernel has one entry a spatial dimension, 1 or more: expected 2 entries "
            "of 1 or more, got [2]");
}

// ONNX's formula gives 0 where a kernel is longer than the input by no more than a stride.
TEST(Pool, KernelsLongerThanTheInputHaveNoWindow) {
  for (const char* op : {"max_pool", "max_pool_indices", "avg_pool"}) {
    SCOPED_TRACE(op);
    EXPECT_EQ(value_of({op, {counting(f32, {1, 2, 4})}, line(5, 1)}).sizes(), (Sizes{1, 2, 0}));
    EXPECT_EQ(value_of({op, {counting(f32, {1, 2, 1})}, line(3, 2)}).sizes(), (Sizes{1, 2, 0}));
    EXPECT_EQ(value_of({op, {counting(f32, {1, 2, 1})}, line(4, 2, 0, 0, 1, true)}).sizes(),
              (Sizes{1, 2, 0}));
    EXPECT_EQ(
        value_of({op, {counting(f32, {1, 1, 2, 3})}, pool({3, 3}, {1, 1}, {0, 0}, {0, 0}, {1, 1})})
            .sizes(),
        (Sizes{1, 1, 0, 1}));
  }
}

TEST(Pool, max_pool_c4) {
  EXPECT_EQ(error_of("max_pool", {meta(f32, {1, 1, 4})}, pool({2}, {2}, {0}, {0, 0}, {1})),
            "max_pool: C4 strides, pads_low, pads_high and dilations have one entry a spatial "
            "dimension: expected 1 pads_high, got [0, 0]");
}

TEST(Pool, max_pool_c5) {
  EXPECT_EQ(error_of("max_pool", {meta(f32, {1, 1, 4})}, line(2, 2, -1)),
            "max_pool: C5 strides and dilations are at least 1, pads at least 0: expected "
            "pads_low of 0 or more, got [-1]");
}

TEST(Pool, max_pool_c6) {
  EXPECT_EQ(
      error_of("avg_pool", {meta(f32, {1, 1, 4})}, line(6, 1)),
      "avg_pool: C6 the number of windows is at least 0: expected a padded size of at least 5 "
      "for a kernel that spans 6, got 4");
  EXPECT_EQ(
      error_of("max_pool", {meta(f32, {1, 1, 1})}, line(5, 2, 0, 0, 1, true)),
      "max_pool: C6 the number of windows is at least 0: expected a padded size of at least 2 "
      "for a kernel that spans 5, got 1");
}

}  // namespace
}  // namespace heddle::testing
