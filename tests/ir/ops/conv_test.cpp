// conv and conv_transpose against sums written out, their constraints, and their decompositions.
#include <cmath>
#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Attrs;
using ir::Literal;
using ir::Sizes;
using Ints = std::vector<std::int64_t>;

Attrs window(const Ints& strides, const Ints& low, const Ints& high, const Ints& dilations,
             std::int64_t groups = 1) {
  return {{"strides", strides},
          {"pads_low", low},
          {"pads_high", high},
          {"dilations", dilations},
          {"groups", groups}};
}

Attrs plain(std::size_t spatial, std::int64_t groups = 1) {
  const Ints ones(spatial, 1);
  const Ints zeros(spatial, 0);
  return window(ones, zeros, zeros, ones, groups);
}

Attrs transposed(Attrs attrs, const Ints& output_padding) {
  attrs["output_padding"] = output_padding;
  return attrs;
}

double at4(const Literal& t, std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
  const Sizes& s = t.sizes();
  if (c < 0 || d < 0 || c >= s[2] || d >= s[3]) return 0;
  return t.at(((a * s[1] + b) * s[2] + c) * s[3] + d);
}

struct Case2d {
  Sizes x, w, out;
  Ints strides, low, high, dilations;
  std::int64_t groups = 1;

  Attrs attrs() const { return window(strides, low, high, dilations, groups); }
};

/// Two spatial dimensions, seven loops.
Literal direct(const Case2d& c, const Literal& x, const Literal& w, const Literal& bias) {
  Literal result(x.dtype(), c.out);
  const std::int64_t per_group = c.w[0] / c.groups;
  std::int64_t p = 0;
  for (std::int64_t n = 0; n < c.out[0]; ++n) {
    for (std::int64_t m = 0; m < c.out[1]; ++m) {
      for (std::int64_t i = 0; i < c.out[2]; ++i) {
        for (std::int64_t j = 0; j < c.out[3]; ++j) {
          double sum = bias.at(m);
          for (std::int64_t k = 0; k < c.w[1]; ++k) {
            for (std::int64_t u = 0; u < c.w[2]; ++u) {
              for (std::int64_t v = 0; v < c.w[3]; ++v) {
                sum += at4(w, m, k, u, v) * at4(x, n, m / per_group * c.w[1] + k,
                                                i * c.strides[0] - c.low[0] + u * c.dilations[0],
                                                j * c.strides[1] - c.low[1] + v * c.dilations[1]);
              }
            }
          }
          result.set(p++, sum);
        }
      }
    }
  }
  return result;
}

const Case2d kCases[] = {
    {{2, 3, 5, 4}, {4, 3, 3, 2}, {2, 4, 3, 3}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
    {{1, 2, 6, 7}, {2, 2, 3, 3}, {1, 2, 4, 4}, {2, 2}, {1, 1}, {2, 1}, {1, 1}},
    {{1, 2, 7, 6}, {2, 2, 2, 3}, {1, 2, 6, 4}, {1, 2}, {0, 3}, {1, 2}, {2, 2}},
    {{2, 4, 4, 4}, {6, 2, 2, 2}, {2, 6, 3, 3}, {1, 1}, {0, 0}, {0, 0}, {1, 1}, 2},
    {{1, 3, 4, 4}, {3, 1, 3, 3}, {1, 3, 4, 4}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 3},
    {{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
};

TEST(Conv, AgreesWithSevenLoops) {
  for (const Case2d& c : kCases) {
    for (const DType dtype : kNumbers) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(&c - kCases));
      const Literal x = noise(dtype, c.x, 1);
      const Literal w = noise(dtype, c.w, 2);
      const Literal bias = noise(dtype, {c.w[0]}, 3);
      const Literal want = direct(c, x, w, bias);
      expect_close(value_of({"conv", {x, w, bias}, c.attrs()}), want, tolerance_of(dtype));
      expect_close(value_of({"conv", {spread_out(x), spread_out(w), spread_out(bias)}, c.attrs()}),
                   want, tolerance_of(dtype));
    }
  }
}

TEST(Conv, OneAndThreeSpatialDimensions) {
  const Literal line =
      value_of({"conv",
                {doubles(f32, {1, 1, 4}, {1, 2, 3, 4}), doubles(f32, {1, 1, 2}, {1, 10})},
                plain(1)});
  expect_same(line, doubles(f32, {1, 1, 3}, {21, 32, 43}));
  // A cube of ones under a kernel of ones counts the taps inside.
  const Literal cube = ints(f32, {1, 1, 2, 2, 2}, Ints(8, 1));
  const Ints ones(3, 1);
  const Literal counts = value_of({"conv", {cube, cube}, window(ones, ones, {0, 0, 0}, ones)});
  expect_same(counts, doubles(f32, {1, 1, 2, 2, 2}, {1, 2, 2, 4, 2, 4, 4, 8}));
}

TEST(Conv, EmptyOperands) {
  for (const DType dtype : kNumbers) {
    SCOPED_TRACE(name_of(dtype));
    const Literal w = noise(dtype, {3, 2, 2});
    EXPECT_EQ(value_of({"conv", {Literal(dtype, {0, 2, 4}), w}, plain(1)}).sizes(),
              (Sizes{0, 3, 3}));
    EXPECT_EQ(
        value_of({"conv", {noise(dtype, {1, 2, 4}), Literal(dtype, {0, 2, 2})}, plain(1)}).sizes(),
        (Sizes{1, 0, 3}));
    const Literal bias = ints(dtype, {1}, {2});
    expect_same(
        value_of({"conv", {Literal(dtype, {1, 0, 2}), Literal(dtype, {1, 0, 1}), bias}, plain(1)}),
        ints(dtype, {1, 1, 2}, {2, 2}));
  }
}

TEST(Conv, NaNReachesTheWindowsThatHoldIt) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    const Literal x = with_nan(noise(dtype, {1, 1, 6}), 2);
    const Literal y = value_of({"conv", {x, noise(dtype, {1, 1, 2}, 2)}, plain(1)});
    for (std::int64_t k = 0; k < 5; ++k) EXPECT_EQ(std::isnan(y.at(k)), k == 1 || k == 2) << k;
  }
}

TEST(Conv, PaddingIsSkippedNotMultiplied) {
  const Literal w = with_nan(doubles(f32, {1, 1, 2}, {0, 1}), 0);
  const Literal y =
      value_of({"conv", {doubles(f32, {1, 1, 1}, {5}), w}, window({1}, {1}, {0}, {1})});
  expect_same(y, doubles(f32, {1, 1, 1}, {5}));
}

TEST(Conv, ChannelsLastIsTheSameSumElsewhere) {
  for (const Case2d& c : kCases) {
    SCOPED_TRACE(&c - kCases);
    const Literal x = noise(f32, c.x, 1);
    const Literal w = noise(f32, c.w, 2);
    const Literal bias = noise(f32, {c.w[0]}, 3);
    const Literal last = value_of({"permute", {x}, {{"perm", Ints{0, 2, 3, 1}}}});
    Attrs attrs = c.attrs();
    attrs["channels_last"] = true;
    const Literal got = value_of({"conv", {last, w, bias}, attrs});
    const Literal first = value_of({"conv", {x, w, bias}, c.attrs()});
    expect_same(got, value_of({"permute", {first}, {{"perm", Ints{0, 2, 3, 1}}}}));
  }
}

TEST(Conv, InfersChannelsLast) {
  Attrs attrs = window({2}, {1}, {1}, {1});
  attrs["channels_last"] = true;
  const auto s0 = base::SymExpr::size(0);
  const auto s1 = base::SymExpr::size(1);
  EXPECT_EQ(type_of("conv", {meta(f32, {s0, s1, 3}), meta(f32, {8, 3, 5}), meta(f32, {8})}, attrs),
            "f32[s0, floor((s1+1)/2)-1, 8]");
  EXPECT_EQ(error_of("conv", {meta(f32, {1, 3, 4}), meta(f32, {2, 3, 2}), meta(f32, {2})}, attrs),
            "conv: C6 the channels of x are those of w times groups: expected 3, got 4");
}

TEST(Conv, InfersSymbolicSizes) {
  const auto s0 = base::SymExpr::size(0);
  const auto s1 = base::SymExpr::size(1);
  EXPECT_EQ(type_of("conv", {meta(f32, {s0, 3, s1}), meta(f32, {8, 3, 5}), meta(f32, {8})},
                    window({2}, {1}, {1}, {1})),
            "f32[s0, 8, floor((s1+1)/2)-1]");
  EXPECT_EQ(
      type_of("conv_transpose", {meta(f32, {s0, 3, s1}), meta(f32, {3, 8, 4}), meta(f32, {8})},
              transposed(window({2}, {1}, {1}, {1}), {0})),
      "f32[s0, 8, 2*s1]");
}

TEST(Conv, conv_c1) {
  EXPECT_EQ(
      error_of("conv", {meta(boolean, {1, 1, 4}), meta(f32, {1, 1, 2}), meta(f32, {1})}, plain(1)),
      "conv: C1 x, w and bias are numbers: expected a number, got bool");
}

TEST(Conv, conv_c2) {
  EXPECT_EQ(
      error_of("conv", {meta(f32, {1, 1, 4}), meta(f32, {1, 1, 2, 2}), meta(f32, {1})}, plain(1)),
      "conv: C2 x and w have the same number of dimensions, at least three: expected x [N, "
      "C, ...] and w with as many dimensions, got [1, 1, 4] and [1, 1, 2, 2]");
  EXPECT_EQ(error_of("conv", {meta(f32, {1, 1}), meta(f32, {1, 1}), meta(f32, {1})}, plain(0)),
            "conv: C2 x and w have the same number of dimensions, at least three: expected x [N, "
            "C, ...] and w with as many dimensions, got [1, 1] and [1, 1]");
}

std::string conv_error(const ir::Dims& x, const ir::Dims& w, const ir::Dims& bias,
                       const Attrs& attrs) {
  return error_of("conv", {meta(f32, x), meta(f32, w), meta(f32, bias)}, attrs);
}

TEST(Conv, conv_c3) {
  EXPECT_EQ(conv_error({1, 1, 4}, {1, 1, 2}, {1}, window({1, 1}, {0}, {0}, {1})),
            "conv: C3 strides, pads_low, pads_high and dilations have one entry a spatial "
            "dimension: expected 1 strides, got [1, 1]");
  EXPECT_EQ(conv_error({1, 1, 4}, {1, 1, 2}, {1}, window({1}, {0}, {0}, {})),
            "conv: C3 strides, pads_low, pads_high and dilations have one entry a spatial "
            "dimension: expected 1 dilations, got []");
}

TEST(Conv, conv_c4) {
  EXPECT_EQ(conv_error({1, 1, 4}, {1, 1, 2}, {1}, window({0}, {0}, {0}, {1})),
            "conv: C4 strides and dilations are at least 1, pads at least 0: expected strides of "
            "1 or more, got [0]");
  EXPECT_EQ(conv_error({1, 1, 4}, {1, 1, 2}, {1}, window({1}, {0}, {-1}, {1})),
            "conv: C4 strides and dilations are at least 1, pads at least 0: expected pads_high "
            "of 0 or more, got [-1]");
}

TEST(Conv, conv_c5) {
  EXPECT_EQ(conv_error({1, 1, 4}, {1, 1, 2}, {1}, plain(1, 0)),
            "conv: C5 groups is at least 1: expected 1 or more, got 0");
}

TEST(Conv, conv_c6) {
  EXPECT_EQ(conv_error({1, 3, 4}, {2, 2, 2}, {2}, plain(1, 2)),
            "conv: C6 the channels of x are those of w times groups: expected 4, got 3");
}

TEST(Conv, conv_c7) {
  EXPECT_EQ(conv_error({1, 4, 4}, {3, 2, 2}, {3}, plain(1, 2)),
            "conv: C7 the output channels M are a multiple of groups: expected a multiple of 2, "
            "got 3");
}

TEST(Conv, conv_c8) {
  EXPECT_EQ(conv_error({1, 1, 4}, {2, 1, 2}, {3}, plain(1)),
            "conv: C8 bias has sizes [M]: expected 2, got 3");
  EXPECT_EQ(conv_error({1, 1, 4}, {2, 1, 2}, {1, 2}, plain(1)),
            "conv: C8 bias has sizes [M]: expected [2], got [1, 2]");
}

TEST(Conv, conv_c9) {
  EXPECT_EQ(conv_error({1, 1, 3}, {2, 1, 3}, {2}, window({1}, {1}, {0}, {2})),
            "conv: C9 the kernel fits into the padded input: expected a padded size of at least "
            "5, got 4");
}

TEST(Conv, conv_c10) {
  ir::Attrs attrs = plain(1);
  attrs.insert_or_assign("tf32", true);
  EXPECT_EQ(error_of("conv", {meta(f16, {1, 1, 4}), meta(f16, {2, 1, 2})}, attrs),
            "conv: C10 tf32 is for a result of f32: expected f32, got f16");
}

TEST(Conv, conv_c11) {
  ir::Attrs attrs = plain(1);
  attrs.insert_or_assign("bf16", true);
  EXPECT_EQ(error_of("conv", {meta(f16, {1, 1, 4}), meta(f16, {2, 1, 2})}, attrs),
            "conv: C11 bf16 is for a result of f32 or bf16: expected f32 or bf16, got f16");
}

TEST(ConvTranspose, IsTheTransposeOfConv) {
  // <conv(x, w), y> = <x, conv_transpose(y, w)> for every x and y, where sizes divide evenly.
  for (const Case2d& c : kCases) {
    SCOPED_TRACE(&c - kCases);
    const Literal x = noise(f64, c.x, 1);
    const Literal w = noise(f64, c.w, 2);
    const Literal y = noise(f64, c.out, 3);
    Ints padding(2);
    for (std::size_t d = 0; d < 2; ++d) {
      const std::int64_t whole = (c.out[d + 2] - 1) * c.strides[d] - c.low[d] - c.high[d] +
                                 c.dilations[d] * (c.w[d + 2] - 1) + 1;
      padding[d] = c.x[d + 2] - whole;
    }
    const Literal forward = value_of({"conv", {x, w}, c.attrs()});
    const Literal back = value_of({"conv_transpose", {y, w}, transposed(c.attrs(), padding)});
    ASSERT_EQ(back.sizes(), c.x);
    double left = 0;
    double right = 0;
    for (std::int64_t k = 0; k < y.count(); ++k) left += forward.at(k) * y.at(k);
    for (std::int64_t k = 0; k < x.count(); ++k) right += x.at(k) * back.at(k);
    EXPECT_NEAR(left, right, 1e-11);
  }
}

TEST(ConvTranspose, KnownValuesInEveryDType) {
  for (const DType dtype : kNumbers) {
    SCOPED_TRACE(name_of(dtype));
    const Literal x = ints(dtype, {1, 1, 3}, {1, 2, 3});
    const Literal w = ints(dtype, {1, 2, 2}, {1, 10, 2, 3});
    const Literal bias = ints(dtype, {2}, {0, 1});
    const Attrs attrs = transposed(window({2}, {0}, {1}, {1}), {1});
    const Literal want = ints(dtype, {1, 2, 6}, {1, 10, 2, 20, 3, 30, 3, 4, 5, 7, 7, 10});
    expect_same(value_of({"conv_transpose", {x, w, bias}, attrs}), want);
    expect_same(value_of({"conv_transpose", {spread_out(x), spread_out(w), bias}, attrs}), want);
  }
}

TEST(ConvTranspose, EmptySingleAndNaN) {
  const Attrs attrs = transposed(plain(1), {0});
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    const Literal w = noise(dtype, {1, 1, 2});
    EXPECT_EQ(value_of({"conv_transpose", {Literal(dtype, {0, 1, 3}), w}, attrs}).sizes(),
              (Sizes{0, 1, 4}));
    expect_same(value_of({"conv_transpose", {Literal(dtype, {1, 1, 0}), w}, attrs}),
                Literal(dtype, {1, 1, 1}));
    const Literal x = with_nan(noise(dtype, {1, 1, 4}), 1);
    const Literal y = value_of({"conv_transpose", {x, w}, attrs});
    for (std::int64_t k = 0; k < 5; ++k) EXPECT_EQ(std::isnan(y.at(k)), k == 1 || k == 2) << k;
  }
}

std::string transpose_error(const ir::Dims& x, const ir::Dims& w, const ir::Dims& bias,
                            const Attrs& attrs, DType dtype = f32) {
  return error_of("conv_transpose", {meta(dtype, x), meta(f32, w), meta(f32, bias)}, attrs);
}

TEST(ConvTranspose, conv_transpose_c1_to_c5) {
  EXPECT_EQ(transpose_error({1, 1, 4}, {1, 1, 2}, {1}, transposed(plain(1), {0}), boolean),
            "conv_transpose: C1 x, w and bias are numbers: expected a number, got bool");
  EXPECT_EQ(transpose_error({1, 1}, {1, 1}, {1}, transposed(plain(0), {})),
            "conv_transpose: C2 x and w have the same number of dimensions, at least three: "
            "expected x [N, C, ...] and w with as many dimensions, got [1, 1] and [1, 1]");
  EXPECT_EQ(transpose_error({1, 1, 4}, {1, 1, 2}, {1}, transposed(plain(2), {0})),
            "conv_transpose: C3 strides, pads_low, pads_high and dilations have one entry a "
            "spatial dimension: expected 1 strides, got [1, 1]");
  EXPECT_EQ(transpose_error({1, 1, 4}, {1, 1, 2}, {1}, transposed(window({1}, {0}, {0}, {0}), {0})),
            "conv_transpose: C4 strides and dilations are at least 1, pads at least 0: expected "
            "dilations of 1 or more, got [0]");
  EXPECT_EQ(transpose_error({1, 1, 4}, {1, 1, 2}, {1}, transposed(plain(1, -1), {0})),
            "conv_transpose: C5 groups is at least 1: expected 1 or more, got -1");
}

TEST(ConvTranspose, conv_transpose_c6) {
  EXPECT_EQ(transpose_error({1, 2, 4}, {3, 1, 2}, {1}, transposed(plain(1), {0})),
            "conv_transpose: C6 x and w agree on the channels C: expected 3, got 2");
}

TEST(ConvTranspose, conv_transpose_c7) {
  EXPECT_EQ(transpose_error({1, 3, 4}, {3, 1, 2}, {2}, transposed(plain(1, 2), {0})),
            "conv_transpose: C7 the channels C are a multiple of groups: expected a multiple of "
            "2, got 3");
}

TEST(ConvTranspose, conv_transpose_c8) {
  EXPECT_EQ(transpose_error({1, 2, 4}, {2, 1, 2}, {1}, transposed(plain(1, 2), {0})),
            "conv_transpose: C8 bias has sizes [M]: expected 2, got 1");
}

TEST(ConvTranspose, conv_transpose_c9) {
  EXPECT_EQ(transpose_error({1, 1, 4}, {1, 1, 2}, {1}, transposed(plain(1), {0, 0})),
            "conv_transpose: C9 output_padding has one entry a spatial dimension, 0 or more: "
            "expected 1 entries of 0 or more, got [0, 0]");
}

TEST(ConvTranspose, conv_transpose_c10) {
  EXPECT_EQ(transpose_error({1, 1, 1}, {1, 1, 2}, {1}, transposed(window({1}, {2}, {2}, {1}), {0})),
            "conv_transpose: C10 every size of the result is at least 0: expected 0 or more, got "
            "-2");
}

TEST(Conv, MixedDTypesDecomposeToConverts) {
  const Literal x = noise(i8, {1, 2, 5});
  const Literal w = noise(f16, {2, 2, 2}, 2);
  expect_decomposition_agrees({"conv", {x, w, noise(f32, {2}, 3)}, plain(1)}, 1e-6);
  expect_decomposition_agrees({"conv_transpose", {x, w}, transposed(plain(1), {0})}, 1e-3);
  EXPECT_FALSE(can_decompose({"conv", {noise(f32, {1, 2, 5}), noise(f32, {2, 2, 2})}, plain(1)}));
}

}  // namespace
}  // namespace heddle::testing
