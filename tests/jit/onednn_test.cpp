// Library calls bound to several sizes.
#include "jit/cpu/onednn/onednn.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "jit/cpu/onednn/cut.h"
#include "jit/cpu/onednn/problem.h"
#include "jit/cpu/onednn/winograd.h"
#include "jit/library_choice.h"
#include "tests/jit/random_floats.h"

namespace heddle::jit {
namespace {

using Ints = std::vector<std::int64_t>;
using tests::random_floats;

LibraryCall conv_call() {
  LibraryCall call;
  call.name = "conv";
  call.attrs = {{"strides", Ints{1, 1}},
                {"dilations", Ints{1, 1}},
                {"pads_low", Ints{1, 1}},
                {"pads_high", Ints{1, 1}},
                {"groups", std::int64_t{1}}};
  return call;
}

std::unique_ptr<BoundLibraryCall> bind_for(std::int64_t size, const float* weights) {
  const std::vector<LibraryOperand> operands{
      {{1, 32, size, size}, nullptr}, {{32, 32, 3, 3}, weights}, {{1, 32, size, size}, nullptr}};
  return onednn::bind(conv_call(), operands, 1);
}

TEST(OneDnn, PlansOfSeveralSizesShareThePackedWeights) {
  const std::vector<float> weights(32 * 32 * 3 * 3, 1.0f);
  const std::size_t before = onednn::packed_parameters();
  auto small = bind_for(16, weights.data());
  const std::size_t with_one = onednn::packed_parameters();
  if (with_one == before) GTEST_SKIP() << "oneDNN takes these weights row-major on this machine";
  auto large = bind_for(20, weights.data());
  EXPECT_EQ(onednn::packed_parameters(), with_one);
  const std::vector<float> others(32 * 32 * 3 * 3, 2.0f);
  auto other = bind_for(16, others.data());
  EXPECT_EQ(onednn::packed_parameters(), with_one + 1);
  small.reset();
  const std::vector<float> x(32 * 20 * 20, 1.0f);
  std::vector<float> y(32 * 20 * 20, 0.0f);
  std::vector<char> scratch(static_cast<std::size_t>(large->scratch_bytes()) + 64);
  void* const aligned =
      reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(scratch.data()) + 63) / 64 * 64);
  void* const buffers[] = {const_cast<float*>(x.data()), const_cast<float*>(weights.data()),
                           y.data()};
  large->run(buffers, 0, 1, aligned);
  EXPECT_EQ(y[0], 32 * 4);
  EXPECT_EQ(y[21], 32 * 9);
  large.reset();
  other.reset();
  EXPECT_EQ(onednn::packed_parameters(), before);
}

/// New sizes of a call do not read its weights again.
TEST(OneDnn, WhatWasReadOfWeightsIsKnown) {
  const Ints strides{1, 1};
  LibraryCall call;
  call.name = "conv";
  call.attrs = {{"strides", strides},      {"dilations", strides},      {"pads_low", Ints{0, 0}},
                {"pads_high", Ints{0, 0}}, {"groups", std::int64_t{1}}, {"channels_last", true}};
  std::vector<float> weights(std::size_t{32} * 16 * 2 * 2, 1.0f);
  FixedFacts facts;
  const auto bound = [&](std::int64_t rows) {
    const std::vector<LibraryOperand> operands{{{1, rows, 8, 16}, nullptr},
                                               {{32, 16, 2, 2}, weights.data()},
                                               {{1, rows - 1, 7, 32}, nullptr}};
    return onednn::bind(call, operands, 1, {.facts = &facts});
  };
  bound(5);
  int reads = 0;
  const auto read = [&] { return static_cast<std::uint8_t>(++reads + 6); };
  EXPECT_EQ(facts.of(weights.data(), read), 0) << "all of them are normal numbers";
  EXPECT_EQ(reads, 0) << "binding found it out";
  EXPECT_EQ(facts.of(&facts, read), 7);
  EXPECT_EQ(facts.of(&facts, read), 7);
  EXPECT_EQ(reads, 1);
}

/// Runs [begin, end) into a result that starts as NaN where nothing was written.
void run_range(const BoundLibraryCall& call, const std::vector<float>& x,
               const std::vector<float>& weights, std::vector<float>& y, std::int64_t begin,
               std::int64_t end) {
  std::vector<char> scratch(static_cast<std::size_t>(call.scratch_bytes()) + 64);
  void* const aligned =
      reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(scratch.data()) + 63) / 64 * 64);
  void* const buffers[] = {const_cast<float*>(x.data()), const_cast<float*>(weights.data()),
                           y.data()};
  call.run(buffers, begin, end, aligned);
}

/// What lies outside of x is not multiplied by an infinite weight.
TEST(OneDnn, InfiniteWeightsMeetNoPadding) {
  LibraryCall call = conv_call();
  call.attrs["channels_last"] = true;
  constexpr std::int64_t kChannels = 32;
  const Ints image{1, 6, 6, kChannels};
  std::vector<float> weights(std::size_t{kChannels} * kChannels * 9, 1.0f);
  weights[0] = std::numeric_limits<float>::infinity();
  const std::vector<float> x(std::size_t{6} * 6 * kChannels, 1.0f);
  for (const bool winograd : {false, true}) {
    call.winograd = winograd;
    std::vector<float> y(x.size(), 0.0f);
    const auto bound =
        onednn::bind(call,
                     std::vector<LibraryOperand>{
                         {image}, {{kChannels, kChannels, 3, 3}, weights.data()}, {image}},
                     1);
    run_range(*bound, x, weights, y, 0, bound->extent());
    for (std::size_t column = 0; column < 6; ++column)
      EXPECT_EQ(y[column * kChannels], (column == 0 || column == 5 ? 4 : 6) * kChannels) << column;
    EXPECT_EQ(y[1], 4 * kChannels);
    EXPECT_EQ(y[7 * kChannels], std::numeric_limits<float>::infinity());
    EXPECT_EQ(y[7 * kChannels + 1], 9 * kChannels);
  }
}

/// Finite weights that become infinite with the scales of what follows.
TEST(OneDnn, WeightsThatScalesMakeInfiniteMeetNoPadding) {
  LibraryCall call = conv_call();
  call.attrs["channels_last"] = true;
  constexpr std::int64_t kChannels = 32;
  const Ints image{1, 6, 6, kChannels};
  const std::vector<float> weights(std::size_t{kChannels} * kChannels * 9, 1e15f);
  const std::vector<float> scales(kChannels, 1e30f);
  const std::vector<float> x(std::size_t{6} * 6 * kChannels, 1.0f);
  std::vector<float> y(x.size(), 0.0f);
  call.epilogue = {{.kind = EpilogueOp::Kind::Scale, .operand = 2}};
  const std::vector<LibraryOperand> operands{{image},
                                             {{kChannels, kChannels, 3, 3}, weights.data()},
                                             {{kChannels}, scales.data()},
                                             {image}};
  const auto bound = onednn::bind(call, operands, 1);
  std::vector<char> scratch(static_cast<std::size_t>(bound->scratch_bytes()) + 64);
  void* const aligned =
      reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(scratch.data()) + 63) / 64 * 64);
  void* const buffers[] = {const_cast<float*>(x.data()), const_cast<float*>(weights.data()),
                           const_cast<float*>(scales.data()), y.data()};
  bound->run(buffers, 0, bound->extent(), aligned);
  EXPECT_TRUE(std::ranges::all_of(
      y, [](float value) { return value == std::numeric_limits<float>::infinity(); }));
}

/// The same weights of one group and of two, and sizes that are alike: each has panels of its own.
TEST(OneDnn, GroupsHavePanelsOfTheirOwn) {
  constexpr std::int64_t kResults = 32, kChannels = 12, kTaps = 9;
  const std::vector<float> weights = random_floats(std::size_t{kResults} * kChannels * kTaps, 5);
  std::vector<std::unique_ptr<BoundLibraryCall>> kept;
  for (const std::int64_t groups : {1, 2, 4}) {
    LibraryCall call = conv_call();
    call.attrs["channels_last"] = true;
    call.attrs["groups"] = groups;
    call.winograd = false;
    const Ints from{1, 5, 5, groups * kChannels};
    const Ints to{1, 5, 5, kResults};
    const std::vector<LibraryOperand> operands{
        {from}, {{kResults, kChannels, 3, 3}, weights.data()}, {to}};
    kept.push_back(onednn::bind(call, operands, 1));
    const std::vector<float> x =
        random_floats(static_cast<std::size_t>(25 * groups * kChannels), 6);
    std::vector<float> y(25 * kResults);
    run_range(*kept.back(), x, weights, y, 0, kept.back()->extent());
    for (std::int64_t m = 0; m < kResults;
         ++m) {  // of the position in the middle, which sees no padding
      double want = 0;
      for (std::int64_t tap = 0; tap < kTaps; ++tap)
        for (std::int64_t c = 0; c < kChannels; ++c) {
          const std::int64_t position = (1 + tap / 3) * 5 + 1 + tap % 3;
          const std::int64_t channel = m / (kResults / groups) * kChannels + c;
          want += static_cast<double>(
                      x[static_cast<std::size_t>(position * groups * kChannels + channel)]) *
                  weights[static_cast<std::size_t>((m * kChannels + c) * kTaps + tap)];
        }
      EXPECT_NEAR(y[static_cast<std::size_t>(12 * kResults + m)], want, 1e-4)
          << groups << ", " << m;
    }
  }
}

struct Shape {
  Ints x, weights, result;  ///< channels last but for the weights
  Ints strides, pads;
  std::int64_t groups, parts;
  bool given = false;  ///< weights come with each call, so that the library computes it
};

std::vector<float> counted(const Ints& sizes, float step) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t k = 0; k < values.size(); ++k)
    values[k] = step * static_cast<float>(static_cast<int>(k % 23) - 11);
  return values;
}

class Parts : public ::testing::TestWithParam<Shape> {};

/// Each part writes its own slices and no other; together they give what the whole call gives.
TEST_P(Parts, GiveTheWholeResult) {
  const Shape& shape = GetParam();
  const std::size_t spatial = shape.strides.size();
  LibraryCall call;
  call.name = "conv";
  call.attrs = {{"strides", shape.strides}, {"dilations", Ints(spatial, 1)},
                {"pads_low", shape.pads},   {"pads_high", shape.pads},
                {"groups", shape.groups},   {"channels_last", true}};
  const std::vector<float> x = counted(shape.x, 0.25f);
  const std::vector<float> weights = counted(shape.weights, 0.5f);
  const std::vector<LibraryOperand> operands{
      {shape.x}, {shape.weights, shape.given ? nullptr : weights.data()}, {shape.result}};
  const auto bound = onednn::bind(call, operands, 3);
  ASSERT_EQ(bound->extent(), shape.parts);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> whole(counted(shape.result, 0).size(), nan);
  run_range(*bound, x, weights, whole, 0, bound->extent());
  bound->make_ready(false, true);
  EXPECT_GT(bound->held_bytes(), 0);
  std::vector<float> parts(whole.size(), nan);
  for (std::int64_t k = bound->extent(); k-- > 0;) {
    const auto unwritten = [&] {
      return std::count_if(parts.begin(), parts.end(), [](float y) { return std::isnan(y); });
    };
    const auto before = unwritten();
    run_range(*bound, x, weights, parts, k, k + 1);
    EXPECT_LT(unwritten(), before);
  }
  EXPECT_EQ(parts, whole);
}

INSTANTIATE_TEST_SUITE_P(
    OneDnn, Parts,
    ::testing::Values(
        // Rows, with padding at both ends and a stride.
        Shape{{1, 14, 9, 32}, {16, 32, 3, 3}, {1, 14, 9, 16}, {1, 1}, {1, 1}, 1, 3},
        Shape{{1, 28, 28, 16}, {32, 16, 5, 5}, {1, 14, 14, 32}, {2, 2}, {2, 2}, 1, 3},
        Shape{{1, 13, 8, 24}, {24, 1, 3, 3}, {1, 13, 8, 24}, {1, 1}, {1, 1}, 24, 3},
        // Channels, where the weights are many.
        Shape{{1, 14, 14, 128}, {192, 128, 3, 3}, {1, 14, 14, 192}, {1, 1}, {1, 1}, 1, 3},
        // A column is a row to oneDNN, and is cut along it, as for any number of threads: its sums depend on lengths.
        Shape{{1, 64, 1, 8}, {16, 8, 5, 1}, {1, 64, 1, 16}, {1, 1}, {2, 0}, 1, 2, true},
        Shape{{1, 403, 8}, {8, 8, 4}, {1, 100, 8}, {4}, {0}, 1, 4, true},
        Shape{{1, 40, 8}, {8, 8, 4}, {1, 10, 8}, {4}, {0}, 1, 1, true},
        // Those of our kernel do not.
        Shape{{1, 64, 1, 8}, {16, 8, 5, 1}, {1, 64, 1, 16}, {1, 1}, {2, 0}, 1, 3},
        Shape{{1, 403, 8}, {8, 8, 4}, {1, 100, 8}, {4}, {0}, 1, 3},
        // A batch is cut between its elements, and each of them where there are fewer than threads.
        Shape{{3, 9, 9, 8}, {8, 8, 3, 3}, {3, 9, 9, 8}, {1, 1}, {1, 1}, 1, 3},
        Shape{{2, 9, 9, 8}, {8, 8, 3, 3}, {2, 9, 9, 8}, {1, 1}, {1, 1}, 1, 6},
        // Few rows, but wide ones; of an element's kernel no row need stay whole.
        Shape{{1, 3, 80, 16}, {16, 1, 5, 5}, {1, 3, 80, 16}, {1, 1}, {2, 2}, 16, 3},
        Shape{{1, 2, 30, 16}, {32, 16, 1, 1}, {1, 2, 30, 32}, {1, 1}, {0, 0}, 1, 3},
        Shape{{2, 5, 7, 16}, {16, 8, 1, 1}, {2, 5, 7, 16}, {1, 1}, {0, 0}, 2, 3},
        Shape{{1, 6, 4, 16}, {16, 16, 1, 1}, {1, 3, 2, 16}, {2, 2}, {0, 0}, 1, 1},
        // Too few rows to be worth a cut.
        Shape{{1, 5, 5, 8}, {8, 8, 3, 3}, {1, 5, 5, 8}, {1, 1}, {1, 1}, 1, 1}));

/// 3 x 3 of 256 channels over `size` rows and columns.
onednn::Problem image_of(std::int64_t size) {
  return {.x = {1, 256, size, size},
          .weights = {256, 256, 3, 3},
          .result = {1, 256, size, size},
          .strides = {1, 1},
          .dilations = {0, 0},
          .pads_low = {1, 1},
          .pads_high = {1, 1},
          .channels_last = true};
}

/// Tiles of 14 rows in 2 parts are 2 and 2, not 1 and 3.
TEST(OneDnn, PartsOfTilesAreOfLikeSize) {
  const onednn::Problem problem = image_of(14);
  const onednn::Cut cut = onednn::cut_of(problem, onednn::Algorithm::Winograd, 2, false);
  EXPECT_EQ(cut.axis, 2u);
  ASSERT_EQ(cut.slices, 2);
  EXPECT_EQ(cut.begin(0, 14), 0);
  EXPECT_EQ(cut.begin(1, 14), 8);
  EXPECT_EQ(cut.begin(2, 14), 14);
  const onednn::Cut of_small = onednn::cut_of(problem, onednn::Algorithm::SmallWinograd, 2, false);
  EXPECT_EQ(of_small.begin(1, 14), 8) << "in tiles of 2 rows";
}

/// Each part of rows would read all 2.4 M transformed weights; each part of channels reads its own.
TEST(OneDnn, PartsOfManyWeightsAreByChannels) {
  if (onednn::kernel_isas().front() == onednn::KernelIsa::Any)
    GTEST_SKIP() << "the processor has no AVX2";
  const onednn::Problem problem = image_of(14);
  const auto cut = [&](int size, int threads) {
    return onednn::cut_of(image_of(size), onednn::Algorithm::Winograd, threads, false,
                          onednn::winograd_panels(problem));
  };
  EXPECT_EQ(cut(14, 2).columns, 2);
  EXPECT_EQ(cut(14, 2).slices, 1);
  EXPECT_EQ(cut(14, 1).columns, 1);
  EXPECT_EQ(cut(112, 2).columns, 1) << "tiles outweigh weights";
  EXPECT_EQ(cut(112, 2).slices % 2, 0);
}

/// The library adds up in an order that depends on how long a row is.
TEST(OneDnn, RowsHaveTheSamePartsForAnyNumberOfThreads) {
  for (const std::int64_t length : {1, 23, 50, 100, 401, 9000}) {
    onednn::Problem row = image_of(1);
    row.x = row.result = {1, 256, 1, length};
    row.weights = {256, 256, 1, 7};
    row.pads_low = row.pads_high = {0, 3};
    for (const bool resident : {false, true}) {
      const onednn::Cut one = onednn::cut_of(row, onednn::Algorithm::Direct, 1, resident);
      EXPECT_EQ(one.axis, 3u);
      EXPECT_TRUE(one.changes_sums);
      EXPECT_GE(length / one.slices, std::min<std::int64_t>(length, 24));
      for (const int threads : {2, 3, 16}) {
        const onednn::Cut cut = onednn::cut_of(row, onednn::Algorithm::Direct, threads, resident);
        EXPECT_EQ(cut.slices, one.slices) << length << " on " << threads;
        EXPECT_EQ(cut.unit, one.unit);
      }
    }
  }
}

/// What was measured comes before what is expected, and a way that is asked for before both.
TEST(OneDnn, TakesTheMeasuredAlgorithm) {
  LibraryCall call = conv_call();
  call.attrs["channels_last"] = true;
  const std::vector<float> weights = counted({64, 64, 3, 3}, 0.0625f);
  const std::vector<float> x = counted({1, 24, 24, 64}, 0.0625f);
  const std::vector<LibraryOperand> operands{
      {{1, 24, 24, 64}, nullptr}, {{64, 64, 3, 3}, weights.data()}, {{1, 24, 24, 64}, nullptr}};
  const auto expected = bind_library_call(call, operands, 1);
  ASSERT_NE(expected->choice(), nullptr);
  const std::uint32_t way = expected->choice()->way;
  const std::uint32_t other = 1 - way;
  EXPECT_FALSE(expected->choice()->measured);
  LibraryVerdicts verdicts(nullptr, "");
  EXPECT_EQ(bind_library_call(call, operands, 1, {.verdicts = &verdicts})->choice()->way, way);
  verdicts.add(*expected->choice(), other);
  const auto measured = bind_library_call(call, operands, 1, {.verdicts = &verdicts});
  EXPECT_EQ(measured->choice()->way, other);
  EXPECT_TRUE(measured->choice()->measured);
  const auto asked = bind_library_call(call, operands, 1, {.verdicts = &verdicts, .way = way});
  EXPECT_EQ(asked->choice()->way, way);
  EXPECT_FALSE(asked->choice()->measured);
  std::vector<float> by_one(x.size(), 0);
  std::vector<float> by_other(x.size(), 0);
  run_range(*expected, x, weights, by_one, 0, expected->extent());
  run_range(*measured, x, weights, by_other, 0, measured->extent());
  EXPECT_NE(by_one, by_other) << "the same algorithm ran twice";
  for (std::size_t k = 0; k < x.size(); ++k) EXPECT_NEAR(by_one[k], by_other[k], 1e-3) << k;
}

TEST(OneDnn, MeasuresTheAlgorithmsOfACallOnMemoryOfItsOwn) {
  LibraryCall call = conv_call();
  call.attrs["channels_last"] = true;
  const Ints image{1, 12, 12, 32};
  const std::vector<float> weights = counted({32, 32, 3, 3}, 0.0625f);
  const std::vector<LibraryOperand> operands{
      {image, nullptr}, {{32, 32, 3, 3}, weights.data()}, {image, nullptr}};
  const auto meta = [](const Ints& sizes) {
    ir::Dims dims;
    for (const std::int64_t size : sizes) dims.emplace_back(size);
    return ir::TensorMeta::of(DType::F32, dims);
  };
  call.inputs = {meta(image), meta({32, 32, 3, 3})};
  call.outputs = {meta(image)};
  call.node_inputs = 2;
  for (const int threads : {1, 3}) {
    const std::vector<double> seconds = seconds_of_ways(call, operands, threads, 1 << 20);
    ASSERT_EQ(seconds.size(), 3u);
    for (const double way : seconds) EXPECT_GT(way, 0);
  }
  call.winograd = false;
  EXPECT_EQ(seconds_of_ways(call, operands, 1, 0).size(), 1u) << "there is one way";
  EXPECT_EQ(fastest_way(call, operands, 1, 0), 0u);
}

}  // namespace
}  // namespace heddle::jit
