// F(4x4, 3x3), F(2x2, 3x3), F(4, 3) and F(2, 5) of each edge, against sums in double precision.
#include <algorithm>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "jit/cpu/onednn/winograd.h"
#include "tests/jit/conv_sums.h"

namespace heddle::jit::onednn {
namespace {

using Kind = EpilogueOp::Kind;

struct Case {
  std::int64_t batch, height, width, channels, results;
  Ints low{1, 1}, high{1, 1}, kernel{3, 3};
  bool biased = true, adds = false, in_place = false;
  std::int64_t panels = 0;  ///< that a call computes; 0: all

  Problem problem() const {
    const std::int64_t rows = height + low[0] + high[0] - kernel[0] + 1;
    const std::int64_t columns = width + low[1] + high[1] - kernel[1] + 1;
    return {.x = {batch, channels, height, width},
            .weights = {results, channels, kernel[0], kernel[1]},
            .result = {batch, results, rows, columns},
            .has_bias = biased,
            .strides = {1, 1},
            .dilations = {0, 0},
            .pads_low = low,
            .pads_high = high,
            .channels_last = true};
  }
};

/// The kernel's result with relu behind it; `added` in the order of Case.
Floats computed(const Case& c, const ConvData& data, const WinogradKernel& kernel) {
  const Problem p = c.problem();
  Floats transformed(count_of(winograd_weights(p, kernel)),
                     std::numeric_limits<float>::quiet_NaN());
  transform_weights(p, data.weights.data(), transformed.data(), kernel);
  std::vector<float> scratch(static_cast<std::size_t>(winograd_scratch(p, kernel)) / 4 + 16,
                             std::numeric_limits<float>::quiet_NaN());
  Floats out(data.added.size(), std::numeric_limits<float>::quiet_NaN());
  if (c.in_place) out = data.added;
  const TailOp relu{{.kind = Kind::Clamp, .low = 0}};
  const float* added = c.in_place ? out.data() : data.added.data();
  const std::int64_t panels = winograd_panels(p, kernel);
  const std::int64_t each = c.panels == 0 ? panels : c.panels;
  for (std::int64_t begin = 0; begin < panels; begin += each)
    run_winograd(p, data.x.data(), transformed.data(), c.biased ? data.bias.data() : nullptr,
                 c.adds ? added : nullptr, {&relu, 1}, out.data(), scratch.data(),
                 Panels{begin, std::min(begin + each, panels)}, kernel);
  return out;
}

void expect_right(const Case& c, const WinogradKernel& kernel) {
  const Problem p = c.problem();
  ASSERT_TRUE(has_winograd(p));
  const ConvData data(p);
  EXPECT_LE(worst_error(p, data, c.adds, computed(c, data, kernel)), 1e-5)
      << c.height << " x " << c.width << ", " << c.channels << " to " << c.results;
}

void expect_right(const Case& c) {
  for (const KernelIsa isa : kernel_isas())
    for (const Algorithm algorithm : {Algorithm::Winograd, Algorithm::SmallWinograd}) {
      const auto form = form_of(c.problem(), algorithm);
      if (!form || isa == KernelIsa::Any) continue;
      SCOPED_TRACE(isa == KernelIsa::Avx512 ? "AVX-512" : "AVX2");
      SCOPED_TRACE(std::to_string(form->down) + " x " + std::to_string(form->across) + " of " +
                   std::to_string(form->taps_down) + " x " + std::to_string(form->taps_across));
      expect_right(c, {*form, isa});
    }
}

TEST(Winograd, OfEveryEdge) {
  if (kernel_isas().front() == KernelIsa::Any) GTEST_SKIP() << "the processor has no AVX2";
  for (std::int64_t height = 1; height <= 9; ++height)
    for (const std::int64_t width : {1, 3, 4, 5, 8, 10}) expect_right({1, height, width, 16, 32});
}

TEST(Winograd, OfEveryPadding) {
  if (kernel_isas().front() == KernelIsa::Any) GTEST_SKIP() << "the processor has no AVX2";
  for (const Ints& low : {Ints{0, 0}, {0, 1}, {1, 0}, {1, 1}})
    for (const Ints& high : {Ints{0, 0}, {0, 1}, {1, 0}, {1, 1}})
      expect_right({.batch = 1,
                    .height = 6,
                    .width = 7,
                    .channels = 16,
                    .results = 16,
                    .low = low,
                    .high = high});
}

/// The same with rows and columns exchanged.
Case turned(Case c) {
  std::swap(c.height, c.width);
  for (Ints* each : {&c.low, &c.high, &c.kernel}) std::swap((*each)[0], (*each)[1]);
  return c;
}

/// Kernels of a row and of a column: along each length, padding of each side, several rows and images.
TEST(Winograd, AlongRowsAndColumns) {
  if (kernel_isas().front() == KernelIsa::Any) GTEST_SKIP() << "the processor has no AVX2";
  const auto expect_both = [](const Case& c) {
    expect_right(c);
    expect_right(turned(c));
  };
  for (const std::int64_t taps : {3, 5}) {
    const Case row{.batch = 1,
                   .height = 1,
                   .width = 9,
                   .channels = 16,
                   .results = 32,
                   .low = {0, taps / 2},
                   .high = {0, taps / 2},
                   .kernel = {1, taps}};
    for (const std::int64_t width : {1, 2, 3, 4, 5, 8, 10, 33}) {
      Case c = row;
      c.width = width;
      expect_both(c);
    }
    for (std::int64_t low = 0; low < taps; ++low)
      for (std::int64_t high = 0; high < taps; ++high) {
        Case c = row;
        c.height = 2;
        c.low[1] = low;
        c.high[1] = high;
        expect_both(c);
      }
    Case many = row;
    many.batch = 2;
    many.height = 11;
    many.width = 30;
    many.results = 72;
    many.adds = many.in_place = true;
    expect_both(many);
    many.panels = 1;
    expect_both(many);
    many.width = 700;
    many.channels = 144;
    expect_right(many);
  }
}

/// A kernel of another size, or with padding where it has one element, has no tiles of ours.
TEST(Winograd, FitsKernelsOfThreeAndFive) {
  if (kernel_isas().front() == KernelIsa::Any) GTEST_SKIP() << "the processor has no AVX2";
  const auto fits = [](Ints kernel, Ints low, std::int64_t channels = 16) {
    return fits_winograd(Case{.batch = 1,
                              .height = 9,
                              .width = 9,
                              .channels = channels,
                              .results = 32,
                              .low = std::move(low),
                              .high = {0, 0},
                              .kernel = std::move(kernel)}
                             .problem());
  };
  EXPECT_TRUE(fits({3, 3}, {1, 1}));
  EXPECT_TRUE(fits({3, 3}, {1, 1}, 20)) << "by the library";
  EXPECT_FALSE(fits({3, 3}, {1, 2}));
  EXPECT_TRUE(fits({1, 3}, {0, 2}));
  EXPECT_TRUE(fits({1, 5}, {0, 4}));
  EXPECT_FALSE(fits({1, 5}, {0, 5}));
  EXPECT_FALSE(fits({1, 5}, {0, 2}, 20));
  EXPECT_FALSE(fits({1, 3}, {1, 1}));
  EXPECT_FALSE(fits({1, 4}, {0, 1}));
  EXPECT_TRUE(fits({3, 1}, {2, 0}));
  EXPECT_FALSE(fits({3, 1}, {1, 1}));
  EXPECT_FALSE(fits({7, 1}, {3, 0}));
  EXPECT_FALSE(fits({5, 5}, {1, 1}));
}

/// Panels of 3, 2 and 1 vectors (of AVX2 2), several of them, of unlike widths too, and a depth in one part and in several.
TEST(Winograd, OfManyChannels) {
  if (kernel_isas().front() == KernelIsa::Any) GTEST_SKIP() << "the processor has no AVX2";
  for (const std::int64_t channels : {16, 128, 144, 272})
    for (const std::int64_t results : {16, 32, 48, 64, 80, 96, 128, 160})
      expect_right({1, 5, 6, channels, results});
}

/// Six tiles at a time, and some left over, on AVX2; blocks that end within a row of tiles, so that what follows waits for the rest of it.
TEST(Winograd, OfManyTilesAndImages) {
  if (kernel_isas().front() == KernelIsa::Any) GTEST_SKIP() << "the processor has no AVX2";
  expect_right({3, 10, 9, 16, 16});
  expect_right({2, 21, 90, 64, 64});
  expect_right({1, 50, 23, 48, 80});
}

TEST(Winograd, AddsWhatIsThere) {
  if (kernel_isas().front() == KernelIsa::Any) GTEST_SKIP() << "the processor has no AVX2";
  for (const bool in_place : {false, true})
    for (const bool biased : {false, true})
      expect_right({.batch = 2,
                    .height = 9,
                    .width = 30,
                    .channels = 32,
                    .results = 48,
                    .biased = biased,
                    .adds = true,
                    .in_place = in_place});
}

/// Calls for some channels each write those and no others.
TEST(Winograd, OfSomePanelsAtATime) {
  if (kernel_isas().front() == KernelIsa::Any) GTEST_SKIP() << "the processor has no AVX2";
  for (const std::int64_t panels : {1, 2})
    for (const bool adds : {false, true})
      expect_right({.batch = 2,
                    .height = 9,
                    .width = 30,
                    .channels = 32,
                    .results = 192,
                    .adds = adds,
                    .in_place = adds,
                    .panels = panels});
}

/// The last panel ends with half a vector of AVX-512, or with a vector of AVX2 that is filled up; whole, and by itself.
TEST(Winograd, OfHalfAVectorOfChannels) {
  if (kernel_isas().front() == KernelIsa::Any) GTEST_SKIP() << "the processor has no AVX2";
  for (const std::int64_t results : {8, 24, 40, 56, 72, 104})
    for (const bool adds : {false, true})
      for (const std::int64_t panels : {0, 2})
        expect_right({.batch = 2,
                      .height = 9,
                      .width = 30,
                      .channels = 32,
                      .results = results,
                      .biased = adds,
                      .adds = adds,
                      .in_place = adds,
                      .panels = panels});
}

TEST(Winograd, NeedsWholeVectorsOfChannels) {
  EXPECT_FALSE(has_winograd(Case{1, 4, 4, 24, 16}.problem()));
  EXPECT_FALSE(has_winograd(Case{1, 4, 4, 16, 28}.problem()));
}

}  // namespace
}  // namespace heddle::jit::onednn
