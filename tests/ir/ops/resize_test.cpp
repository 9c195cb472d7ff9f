// resize against values written out, and its constraints.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Attrs;
using ir::Dims;
using ir::Literal;
using ir::Sizes;

Attrs to(const Dims& sizes, std::string mode, std::string coordinates = "half_pixel",
         std::string nearest = "round_prefer_floor") {
  return {{"sizes", sizes},
          {"mode", std::move(mode)},
          {"coordinate_mode", std::move(coordinates)},
          {"nearest_mode", std::move(nearest)}};
}

Attrs with(Attrs attrs, std::string_view name, ir::Attr value) {
  attrs[std::string(name)] = std::move(value);
  return attrs;
}

Literal resize(const Literal& x, const Attrs& attrs) { return value_of({"resize", {x}, attrs}); }

Literal line(const std::vector<double>& values) {
  return doubles(f32, {static_cast<std::int64_t>(values.size())}, values);
}

TEST(Resize, NearestInEveryDType) {
  for (const DType dtype : kArithmeticDTypes) {
    SCOPED_TRACE(name_of(dtype));
    const Literal x = ints(dtype, {1, 1, 2, 2}, {1, 0, 0, 1});
    const Literal want =
        ints(dtype, {1, 1, 4, 4}, {1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1});
    expect_same(resize(x, to({1, 1, 4, 4}, "nearest")), want);
    expect_same(resize(spread_out(x), to({1, 1, 4, 4}, "nearest")), want);
  }
}

TEST(Resize, NearestKeepsWideIntegersAndNaN) {
  const std::int64_t odd = (std::int64_t{1} << 62) + 1;
  expect_same(resize(ints(i64, {1}, {odd}), to({2}, "nearest")), ints(i64, {2}, {odd, odd}));
  const Literal y = resize(with_nan(line({1, 2}), 0), to({4}, "nearest"));
  EXPECT_TRUE(std::isnan(y.at(1)));
  EXPECT_EQ(y.at(2), 2);
}

TEST(Resize, NearestRoundsFourWays) {
  const Literal x = line({0, 1, 2, 3});
  // Positions of two elements: 0.5 and 2.5.
  expect_same(resize(x, to({2}, "nearest", "half_pixel", "round_prefer_floor")), line({0, 2}));
  expect_same(resize(x, to({2}, "nearest", "half_pixel", "round_prefer_ceil")), line({1, 3}));
  expect_same(resize(x, to({2}, "nearest", "half_pixel", "floor")), line({0, 2}));
  expect_same(resize(x, to({2}, "nearest", "half_pixel", "ceil")), line({1, 3}));
  // 0, 0.75, 1.5, 2.25, 3 …: asymmetric positions of stretching 4 to 16 / 3.
  const Attrs uneven = with(to({5}, "nearest", "asymmetric", "round_prefer_floor"), "scales",
                            std::vector<double>{4.0 / 3});
  expect_same(resize(x, uneven), line({0, 1, 1, 2, 3}));
}

/// Ties and whole positions are found, though the scale is no number of two.
TEST(Resize, NearestFindsTies) {
  std::vector<double> numbers(640);
  std::iota(numbers.begin(), numbers.end(), 0.0);
  const Literal x = line(numbers);
  for (const char* mode : {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}) {
    const Literal y = resize(x, to({224}, "nearest", "half_pixel", mode));
    const std::string_view name = mode;
    for (std::int64_t o = 0; o < 224; ++o) {
      // Position (2 o + 1) * 640 / 448 - 1/2 is p / 448.
      const std::int64_t p = (2 * o + 1) * 640 - 224;
      const std::int64_t half = name.starts_with("round") ? 224 : 0;
      const std::int64_t up = 447 - half;
      const bool rounds_up = name == "ceil" || name == "round_prefer_floor";
      const std::int64_t want = rounds_up ? (p + up) / 448 : (p + half) / 448;
      ASSERT_EQ(y.at(o), static_cast<double>(std::clamp<std::int64_t>(want, 0, 639)))
          << mode << " at " << o;
    }
  }
}

TEST(Resize, CoordinateModesOfLinear) {
  const Literal x = line({0, 10, 20, 30});
  const auto by = [&](const char* mode, std::int64_t size) {
    return resize(x, to({size}, "linear", mode));
  };
  expect_same(by("half_pixel", 2), line({5, 25}));
  expect_same(by("pytorch_half_pixel", 1), line({0}));
  expect_same(by("half_pixel", 1), line({15}));
  expect_same(by("asymmetric", 2), line({0, 20}));
  expect_same(by("align_corners", 2), line({0, 30}));
  expect_same(by("align_corners", 7), line({0, 5, 10, 15, 20, 25, 30}));
  expect_same(by("align_corners", 1), line({0}));
  expect_same(by("tf_half_pixel_for_nn", 2), line({10, 30}));
  expect_same(by("half_pixel_symmetric", 2), line({5, 25}));
  expect_close(by("half_pixel", 8), line({0, 2.5, 7.5, 12.5, 17.5, 22.5, 27.5, 30}), 1e-7);
}

TEST(Resize, ScalesDecideCoordinates) {
  // ONNX: resize_downsample_scales_linear and …_align_corners, one row: scale 0.6 of 4 is 2.4,
  // floored.
  const Literal x = line({1, 2, 3, 4});
  const std::vector<double> scale = {static_cast<double>(0.6f)};
  expect_close(resize(x, with(to({2}, "linear"), "scales", scale)), line({1.3333333, 3}), 1e-6);
  expect_close(resize(x, with(to({2}, "linear", "align_corners"), "scales", scale)),
               line({1, 3.142857}), 1e-6);
  // half_pixel_symmetric centres what floor cut off: length 2.4 becomes 2.
  const double first = 2 * (1 - 2 / 2.4) + 0.5 / 0.6 - 0.5;
  expect_close(resize(x, with(to({2}, "linear", "half_pixel_symmetric"), "scales", scale)),
               line({1 + first, 1 + first + 1 / 0.6}), 1e-6);
}

TEST(Resize, LinearInTwoDimensionsAndEveryFloat) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    const Literal x = doubles(dtype, {1, 1, 2, 2}, {1, 2, 3, 4});
    const Literal want =
        doubles(dtype, {1, 1, 4, 4},
                {1, 1.25, 1.75, 2, 1.5, 1.75, 2.25, 2.5, 2.5, 2.75, 3.25, 3.5, 3, 3.25, 3.75, 4});
    expect_close(resize(x, to({1, 1, 4, 4}, "linear")), want, tolerance_of(dtype));
    expect_close(resize(spread_out(x), to({1, 1, 4, 4}, "linear")), want, tolerance_of(dtype));
  }
}

TEST(Resize, CubicReproducesAParabolaInside) {
  // Keys' kernel with a = -0.5 is exact on polynomials of degree 2.
  Literal x(f64, {10});
  for (std::int64_t k = 0; k < 10; ++k) x.set(k, static_cast<double>(k * k) - 3.0 * k);
  const Literal y = resize(x, with(to({30}, "cubic"), "cubic_a", -0.5));
  for (std::int64_t o = 6; o < 24; ++o) {
    const double position = (static_cast<double>(o) + 0.5) / 3 - 0.5;
    EXPECT_NEAR(y.at(o), position * position - 3 * position, 1e-12);
  }
}

TEST(Resize, CubicKnownValuesInEveryFloat) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    // a = -0.75, two elements doubled; weights at 0.25 and 0.75 are -0.10546875, 0.87890625,
    // 0.26171875 and -0.03515625.
    const Literal x = doubles(dtype, {2}, {0, 1});
    const double inside = 0.26171875 - 0.03515625;
    expect_close(resize(x, to({4}, "cubic")),
                 doubles(dtype, {4}, {-0.10546875, inside, 1 - inside, 1.10546875}),
                 tolerance_of(dtype));
  }
}

TEST(Resize, ExcludeOutsideRescalesTheWeights) {
  const Literal ones = line({1, 1, 1});
  const Attrs attrs = with(to({6}, "cubic"), "exclude_outside", true);
  expect_close(resize(ones, attrs), line({1, 1, 1, 1, 1, 1}), 1e-6);
  // Element 0 lies at -0.25: the taps -2 and -1 weigh 0, those at 0 and 1 are -0.25 and -1.25 away.
  const double near = ((-0.75 + 2) * 0.25 - (-0.75 + 3)) * 0.25 * 0.25 + 1;
  const double far = ((-0.75 * 1.25 + 3.75) * 1.25 - 6) * 1.25 + 3;
  const Literal y = resize(line({1, 0, 0}), attrs);
  EXPECT_NEAR(y.at(0), near / (near + far), 1e-6);
}

TEST(Resize, CopiesWhatIsNotResized) {
  const Literal x = with_nan(noise(f32, {2, 3}), 0);
  expect_same(resize(x, to({2, 3}, "linear")), x);
  const Literal y = resize(x, to({2, 6}, "linear"));
  for (std::int64_t k = 6; k < 12; ++k) EXPECT_FALSE(std::isnan(y.at(k))) << k;
}

TEST(Resize, EmptyAndSingleOperands) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    EXPECT_EQ(resize(Literal(dtype, {0, 2}), to({0, 4}, "linear")).sizes(), (Sizes{0, 4}));
    EXPECT_EQ(resize(noise(dtype, {2, 2}), to({2, 0}, "linear")).sizes(), (Sizes{2, 0}));
    for (const char* mode : {"nearest", "linear", "cubic"}) {
      expect_close(resize(ints(dtype, {1}, {3}), to({3}, mode)), ints(dtype, {3}, {3, 3, 3}),
                   tolerance_of(dtype));
    }
    const Literal scalar = ints(dtype, {}, {3});
    expect_same(resize(scalar, to({}, "linear")), scalar);
  }
}

TEST(Resize, InfersSymbolicSizes) {
  const auto s0 = base::SymExpr::size(0);
  EXPECT_EQ(type_of("resize", {meta(f32, {1, 3, s0, s0})}, to({1, 3, 2 * s0, 8}, "linear")),
            "f32[1, 3, 2*s0, 8]");
}

TEST(Resize, resize_c1) {
  EXPECT_EQ(error_of("resize", {meta(f32, {2, 3})}, to({4}, "linear")),
            "resize: C1 sizes has one entry a dimension, each at least 0: expected 2 sizes, got "
            "[4]");
  EXPECT_EQ(error_of("resize", {meta(f32, {2})}, to({-4}, "linear")),
            "resize: C1 sizes has one entry a dimension, each at least 0: expected 0 or more, got "
            "-4");
}

TEST(Resize, resize_c2_to_c4) {
  EXPECT_EQ(error_of("resize", {meta(f32, {2})}, to({4}, "area")),
            "resize: C2 mode is nearest, linear or cubic: expected nearest, linear, cubic, got "
            "area");
  EXPECT_EQ(error_of("resize", {meta(f32, {2})}, to({4}, "linear", "tf_crop_and_resize")),
            "resize: C3 coordinate_mode is one it knows: expected half_pixel, "
            "half_pixel_symmetric, pytorch_half_pixel, asymmetric, align_corners, "
            "tf_half_pixel_for_nn, got tf_crop_and_resize");
  EXPECT_EQ(error_of("resize", {meta(f32, {2})}, to({4}, "nearest", "half_pixel", "round")),
            "resize: C4 nearest_mode is one it knows: expected round_prefer_floor, "
            "round_prefer_ceil, floor, ceil, got round");
}

TEST(Resize, resize_c5) {
  EXPECT_EQ(error_of("resize", {meta(u8, {2})}, to({4}, "linear")),
            "resize: C5 linear and cubic take a floating dtype: expected a floating dtype, got u8");
}

TEST(Resize, resize_c6) {
  const Attrs attrs = to({4}, "linear");
  EXPECT_EQ(error_of("resize", {meta(f32, {2})}, with(attrs, "scales", std::vector<double>{0.0})),
            "resize: C6 scales has no entry, or one above 0 a dimension: expected none or 1 above "
            "0, got [0.000000]");
  EXPECT_EQ(
      error_of("resize", {meta(f32, {2})}, with(attrs, "scales", std::vector<double>{1.0, 2.0})),
      "resize: C6 scales has no entry, or one above 0 a dimension: expected none or 1 above "
      "0, got [1.000000, 2.000000]");
}

TEST(Resize, resize_c7) {
  EXPECT_EQ(error_of("resize", {meta(f32, {0})}, to({4}, "nearest")),
            "resize: C7 a resized dimension of x has at least one element: expected 1 or more, got "
            "0");
}

}  // namespace
}  // namespace heddle::testing
