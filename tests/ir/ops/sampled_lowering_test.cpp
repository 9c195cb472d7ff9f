// The element lowerings of resize and of the random ops against their definitions, in every mode.
#include <gtest/gtest.h>

#include "tests/support/element_interpreter.h"
#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Attrs;
using ir::Dims;
using ir::Literal;

constexpr const char* kCoordinateModes[] = {"half_pixel",         "half_pixel_symmetric",
                                            "pytorch_half_pixel", "asymmetric",
                                            "align_corners",      "tf_half_pixel_for_nn"};
constexpr const char* kNearestModes[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                         "ceil"};

void expect_lowering_agrees(const OneOp& call, double r) {
  const ir::Graph graph = graph_of(call);
  expect_close(interpret(*graph.outputs()[0].node, call.operands, {}), value_of(call), r);
}

Attrs resized(const Dims& sizes, const char* mode, const char* coordinates,
              std::vector<double> scales = {}) {
  return {{"sizes", sizes},
          {"mode", std::string(mode)},
          {"coordinate_mode", std::string(coordinates)},
          {"scales", std::move(scales)}};
}

const Dims kSizes[] = {{2, 3, 5}, {2, 6, 2}, {2, 1, 7}, {2, 4, 0}, {3, 9, 1}};

TEST(ResizeLowering, NearestAgreesExactly) {
  for (const DType dtype : kArithmeticDTypes) {
    for (const char* coordinates : kCoordinateModes) {
      for (const char* nearest : kNearestModes) {
        for (const Dims& sizes : kSizes) {
          SCOPED_TRACE(std::string(coordinates) + " " + nearest);
          Attrs attrs = resized(sizes, "nearest", coordinates);
          attrs["nearest_mode"] = std::string(nearest);
          expect_lowering_agrees({"resize", {noise(dtype, {2, 3, 4})}, attrs}, 0);
        }
      }
    }
  }
}

TEST(ResizeLowering, LinearAndCubicAgree) {
  for (const DType dtype : kFloats) {
    for (const char* coordinates : kCoordinateModes) {
      for (const char* mode : {"linear", "cubic"}) {
        for (const Dims& sizes : kSizes) {
          SCOPED_TRACE(std::string(coordinates) + " " + mode);
          const Literal x = spread_out(noise(dtype, {2, 3, 4}));
          Attrs attrs = resized(sizes, mode, coordinates);
          expect_lowering_agrees({"resize", {x}, attrs}, tolerance_of(dtype));
          if (std::string(mode) != "cubic") continue;
          attrs["exclude_outside"] = true;
          attrs["cubic_a"] = -0.5;
          expect_lowering_agrees({"resize", {x}, attrs}, 4 * tolerance_of(dtype));
        }
      }
    }
  }
}

TEST(ResizeLowering, GivenScalesAgree) {
  for (const char* coordinates : kCoordinateModes) {
    for (const char* mode : {"nearest", "linear", "cubic"}) {
      SCOPED_TRACE(std::string(coordinates) + " " + mode);
      const Literal x = noise(f32, {3, 4, 5});
      const Attrs attrs = resized({3, 2, 8}, mode, coordinates, {1.0, 0.6, 1.7});
      expect_lowering_agrees({"resize", {x}, attrs}, 1e-6);
      // A scale moves positions even where the size stays.
      expect_lowering_agrees(
          {"resize", {x}, resized({3, 4, 5}, mode, coordinates, {1.0, 1.1, 1.0})}, 1e-6);
    }
  }
}

Attrs drawn(DType dtype, const char* first, double a, const char* second, double b) {
  return {{"sizes", Dims{5, 3, 4}}, {"dtype", dtype}, {first, a}, {second, b}};
}

TEST(RandomLowering, UniformAgreesToTheBit) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    const Attrs attrs = drawn(dtype, "low", 0.0, "high", 1.0);
    for (const std::int64_t seed : {0L, 7L, -1L, 0x123456789abcdefL}) {
      for (const std::int64_t offset : {0L, -30L, 0xfffffff0L, 0x7fffffffffffffe0L}) {
        expect_lowering_agrees({"random_uniform", {ints(i64, {2}, {seed, offset})}, attrs}, 0);
      }
    }
  }
}

TEST(RandomLowering, RangesAndNormalsAgree) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    const Literal key = spread_out(ints(i64, {2}, {-5, 1000}));
    const double r = 4 * tolerance_of(dtype);
    expect_lowering_agrees({"random_uniform", {key}, drawn(dtype, "low", -3, "high", 4.5)}, r);
    expect_lowering_agrees({"random_normal", {key}, drawn(dtype, "mean", 0, "stddev", 1)}, r);
    expect_lowering_agrees({"random_normal", {key}, drawn(dtype, "mean", 3, "stddev", 0.5)}, r);
  }
}

}  // namespace
}  // namespace heddle::testing
