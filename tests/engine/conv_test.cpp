// Convolutions and what follows them, through the whole engine.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "heddle/heddle.h"
#include "tests/engine/random_tensor.h"
#include "tests/jit/folder_test.h"
#include "tests/support/draw.h"
#include "tests/support/nightly.h"

namespace hd = heddle;

namespace {

using heddle::test::random_tensor;

/// A block of a residual network: two convolutions, each with its channels scaled and shifted.
struct Block {
  hd::Tensor first = random_tensor({16, 16, 3, 3}, 1);
  hd::Tensor second = random_tensor({16, 16, 1, 1}, 2);
  hd::Tensor scale = random_tensor({16, 1, 1}, 3);
  hd::Tensor shift = random_tensor({16, 1, 1}, 4);
  hd::Tensor variance = hd::abs(random_tensor({16, 1, 1}, 5));

  hd::Tensor normed(const hd::Tensor& x) const {
    return x * (scale / hd::sqrt(variance + 0.1)) + shift;
  }
  hd::Tensor operator()(const hd::Tensor& x) const {
    const hd::Tensor a = hd::relu(normed(hd::conv(x, first, {}, {1, 1}, {1, 1}, {1, 1})));
    const hd::Tensor b = hd::relu(normed(hd::conv(a, first, {}, {1, 1}, {1, 1}, {1, 1})));
    return hd::relu(normed(hd::conv(b, second, {}, {1, 1}, {0, 0}, {0, 0})) + a);
  }
};

void expect_close(const hd::Tensor& got, const hd::Tensor& want, double tolerance) {
  const auto a = got.to_doubles();
  const auto b = want.to_doubles();
  ASSERT_EQ(a.size(), b.size());
  double largest = 0;
  for (const double v : b) largest = std::max(largest, std::abs(v));
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], tolerance * (std::abs(b[i]) + largest)) << i;
}

std::size_t times_in(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

/// What `f` gives is what its definition gives.
template <typename F>
void expect_defined(F f, const std::vector<hd::Tensor>& inputs) {
  hd::Engine compiled(f, {.check_plans = true});
  hd::Engine reference(f, {.device = hd::Device::reference()});
  const hd::Tensor got = compiled.run(inputs)[0];
  const hd::Tensor want = reference.run(inputs)[0];
  EXPECT_TRUE(std::ranges::equal(got.sizes(), want.sizes()));
  expect_close(got, want, 1e-6);
}

TEST(Conv, WithoutChannelsItIsTheBias) {
  for (const std::int64_t groups : {1, 2}) {
    SCOPED_TRACE(groups);
    const auto conv = [groups](const hd::Tensor& x, const hd::Tensor& w, const hd::Tensor& bias) {
      return hd::relu(hd::conv(x, w, bias, {1, 1}, {1, 1}, {1, 1}, groups));
    };
    for (const auto& [batch, in, out] :
         {std::tuple<std::int64_t, std::int64_t, std::int64_t>{2, 0, 6},
          {2, 4, 0},
          {2, 0, 0},
          {0, 4, 6},
          {2, 4, 6}}) {
      SCOPED_TRACE("batch " + std::to_string(batch) + ", channels " + std::to_string(in) + " to " +
                   std::to_string(out));
      const hd::Tensor x = random_tensor({batch, in, 5, 7}, 1);
      const hd::Tensor w = random_tensor({out, in / groups, 3, 3}, 2);
      const hd::Tensor bias = random_tensor({out}, 3);
      expect_defined(conv, {x, w, bias});
      expect_defined([&](const hd::Tensor& given) { return conv(given, w, bias); }, {x});
      const hd::Tensor added = random_tensor({batch, out, 5, 7}, 4);
      expect_defined(
          [&](const hd::Tensor& given, const hd::Tensor& more) {
            return hd::relu(hd::conv(given, w, {}, {1, 1}, {1, 1}, {1, 1}, groups) + more);
          },
          {x, added});
      expect_defined(
          [groups](const hd::Tensor& given, const hd::Tensor& weights) {
            using Ints = std::vector<std::int64_t>;
            return hd::apply("conv_transpose",
                             std::vector<hd::Tensor>{given, weights, hd::Tensor()},
                             {{"strides", Ints{2, 2}},
                              {"pads_low", Ints{1, 1}},
                              {"pads_high", Ints{1, 1}},
                              {"dilations", Ints{1, 1}},
                              {"output_padding", Ints{0, 0}},
                              {"groups", groups}})[0];
          },
          {x, random_tensor({in, out / groups, 3, 3}, 5)});
    }
  }
}

/// One convolution of each phase, before what follows and before a convolution that has its channels last too.
TEST(Conv, TransposedInPhases) {
  const hd::Tensor w = random_tensor({32, 16, 3, 3}, 2);
  const hd::Tensor bias = random_tensor({16}, 3);
  const hd::Tensor v = random_tensor({16, 16, 1, 1}, 4);
  const auto f = [&](const hd::Tensor& x) {
    using Ints = std::vector<std::int64_t>;
    const hd::Tensor y = hd::relu(hd::apply("conv_transpose", std::vector<hd::Tensor>{x, w, bias},
                                            {{"strides", Ints{2, 2}},
                                             {"pads_low", Ints{1, 0}},
                                             {"pads_high", Ints{1, 0}},
                                             {"dilations", Ints{1, 1}},
                                             {"output_padding", Ints{1, 0}},
                                             {"groups", std::int64_t{1}}})[0]);
    return hd::relu(hd::conv(y, v, {}, {1, 1}, {0, 0}, {0, 0})) + y;
  };
  for (const std::int64_t rows : {16, 17}) expect_defined(f, {random_tensor({1, 32, rows, 30}, 1)});
}

/// Each channel by itself between other operations, whose weights are known, in f32 and in the narrow floats that are convolved
/// in f32; the last convolution gives its channels second.
TEST(Conv, OfEachChannelByItself) {
  for (const hd::DType dtype : {hd::f32, hd::f16, hd::bf16}) {
    SCOPED_TRACE(std::string(hd::name_of(dtype)));
    const hd::Tensor w = hd::cast(random_tensor({24, 1, 3, 3}, 2), dtype);
    const hd::Tensor v = hd::cast(random_tensor({24, 1, 5, 5}, 4), dtype);
    const hd::Tensor bias = hd::cast(random_tensor({24}, 3), dtype);
    const auto f = [&](const hd::Tensor& x) {
      const hd::Tensor y = hd::relu(hd::conv(hd::relu(x), w, bias, {1, 1}, {1, 1}, {1, 1}, 24));
      return hd::sigmoid(hd::conv(y, v, {}, {2, 2}, {2, 2}, {2, 2}, 24));
    };
    hd::Engine compiled(f, {.check_plans = true});
    hd::Engine reference(f, {.device = hd::Device::reference()});
    for (const hd::Sizes& sizes : {hd::Sizes{2, 24, 9, 11}, {1, 24, 3, 2}, {1, 24, 20, 33}}) {
      const hd::Tensor x = hd::cast(random_tensor(sizes, 1), dtype);
      expect_close(compiled.run({x})[0], reference.run({x})[0], dtype == hd::f32 ? 1e-6 : 2e-2);
    }
  }
}

hd::Tensor random_bytes(hd::Sizes sizes, hd::DType dtype, unsigned seed) {
  const hd::Tensor reals = random_tensor(std::move(sizes), seed) * 127.0;
  return hd::cast(hd::round(dtype == hd::u8 ? reals + 128.0 : reals), dtype);
}

/// Sums of bytes are exact whatever computes them: of groups, of few weights and of many, with a bias and zero points.
TEST(Conv, OfBytesIsExact) {
  struct Case {
    hd::Sizes weights;
    std::int64_t groups, pad;
  };
  for (const auto& [weights, groups, pad] :
       {Case{{32, 1, 3, 3}, 32, 1}, Case{{8, 3, 3, 3}, 1, 1}, Case{{16, 16, 1, 1}, 1, 0},
        Case{{64, 32, 3, 3}, 1, 1}, Case{{8, 16, 3, 3}, 2, 1}}) {
    for (const bool biased : {false, true}) {
      const hd::Tensor w = random_bytes(weights, hd::i8, 2);
      const hd::Tensor bias =
          biased ? hd::cast(random_tensor({weights[0]}, 3) * 1e6, hd::i32) : hd::Tensor();
      const auto f = [&, groups = groups, pad = pad](const hd::Tensor& x) {
        const hd::Tensor centred = hd::cast(x, hd::i32) - 117;
        const hd::Tensor sums =
            hd::conv(centred, hd::cast(w, hd::i32), bias, {1, 1}, {pad, pad}, {pad, pad}, groups);
        return hd::relu(sums);
      };
      hd::Engine compiled(f, {.check_plans = true});
      hd::Engine reference(f, {.device = hd::Device::reference()});
      const std::int64_t channels = weights[1] * groups;
      const hd::Tensor x = random_bytes({2, channels, 7, 9}, hd::u8, 1);
      EXPECT_EQ(compiled.run({x})[0].to_doubles(), reference.run({x})[0].to_doubles())
          << weights[0] << " x " << weights[1] << ", groups " << groups << ", biased " << biased;
    }
  }
}

TEST(Conv, EpiloguesAgreeForAnyBatchAndSize) {
  const Block block;
  hd::Engine compiled(block, {.check_plans = true});
  hd::Engine reference(block, {.device = hd::Device::reference()});
  for (const auto& [batch, height, width] :
       {std::tuple{1, 9, 7}, {3, 5, 5}, {2, 32, 20}, {1, 64, 48}, {1, 1, 1}}) {
    const hd::Tensor x = random_tensor({batch, 16, height, width}, 6);
    expect_close(compiled.run({x})[0], reference.run({x})[0], 1e-5);
  }
  EXPECT_EQ(compiled.stats().evaluator_steps, 0u);
}

TEST(Conv, BatchNormAndReluAreNoKernelsOfTheirOwn) {
  hd::Engine engine{Block()};
  const hd::Tensor x = random_tensor({1, 16, 12, 12}, 6);
  engine.run({x});
  const std::string plan = engine.plan_json(std::vector{x});
  if (HEDDLE_WITH_ONEDNN == 0) GTEST_SKIP() << "built without oneDNN";
  // Two take what follows them; the last, of one element and open sizes, is a product.
  EXPECT_EQ(times_in(plan, "\"kind\": \"library\""), 2u) << plan;
  EXPECT_EQ(times_in(plan, "\"name\": \"conv_mul_add_relu"), 2u) << plan;
  EXPECT_EQ(times_in(plan, "\"name\": \"matmul\""), 1u) << plan;
}

TEST(Conv, FoldedWeightsFollowUpdatesOfWhatTheyAreMadeOf) {
  Block block;
  hd::Engine engine(block);
  const hd::Tensor x = random_tensor({1, 16, 12, 12}, 6);
  engine.run({x});
  const hd::Tensor scale = random_tensor({16, 1, 1}, 7);
  const hd::Tensor weights = random_tensor({16, 16, 3, 3}, 8);
  engine.update_parameter(block.scale, scale);
  engine.update_parameter(block.first, weights);
  block.scale = scale;
  block.first = weights;
  hd::Engine reference(block, {.device = hd::Device::reference()});
  expect_close(engine.run({x})[0], reference.run({x})[0], 1e-5);
}

TEST(Conv, ManyChannelsGoThroughWinograd) {
  const hd::Tensor w = random_tensor({64, 64, 3, 3}, 1);
  const auto layer = [w](const hd::Tensor& x) {
    return hd::relu(hd::conv(x, w, {}, {1, 1}, {1, 1}, {1, 1}));
  };
  hd::Engine one(layer, {.threads = 1});
  hd::Engine three(layer, {.threads = 3});
  hd::Engine reference(layer, {.device = hd::Device::reference()});
  const hd::Tensor x = random_tensor({1, 64, 24, 18}, 2);
  const hd::Tensor got = one.run({x})[0];
  expect_close(got, reference.run({x})[0], 1e-5);
  EXPECT_EQ(got.to_doubles(), three.run({x})[0].to_doubles());
}

/// Many taps of one channel each are the library's, or a loop of ours.
TEST(Conv, RowsOfManyTapsOfOneChannelAreTheSameOnAnyNumberOfThreads) {
  const std::uint32_t count = HEDDLE_WITH_LLVM == 0 ? 2 : heddle::test::is_nightly() ? 400 : 16;
  for (std::uint32_t seed = 0; seed < count; ++seed) {
    heddle::test::Draw draw(seed);
    const std::int64_t channels = 16 * draw(1, 16);
    const std::int64_t taps = 1 + 2 * draw(2, 20);
    const std::int64_t length = draw(20, 420);
    const bool is_image = draw.one_in(2);
    SCOPED_TRACE(
        fmt::format("seed {}: {} channels, {} taps, {} long", seed, channels, taps, length));
    const hd::Tensor w = random_tensor(
        is_image ? hd::Sizes{channels, 1, 1, taps} : hd::Sizes{channels, 1, taps}, seed);
    const auto layer = [&](const hd::Tensor& x) {
      const std::vector<std::int64_t> pads =
          is_image ? std::vector<std::int64_t>{0, taps / 2} : std::vector<std::int64_t>{taps / 2};
      const std::vector<std::int64_t> ones(pads.size(), 1);
      return hd::conv(x, w, {}, ones, pads, pads, channels);
    };
    const hd::Tensor x = random_tensor(
        is_image ? hd::Sizes{1, channels, 1, length} : hd::Sizes{1, channels, length}, seed + 1);
    hd::Engine one(layer, {.threads = 1});
    hd::Engine reference(layer, {.device = hd::Device::reference()});
    const hd::Tensor got = one.run({x})[0];
    expect_close(got, reference.run({x})[0], 1.5e-5);
    for (const int threads : {2, 3}) {
      hd::Engine several(layer, {.threads = threads});
      EXPECT_EQ(got.to_doubles(), several.run({x})[0].to_doubles()) << threads << " threads";
    }
    if (HasFailure()) return;
  }
}

/// Channels that tiles of Winograd's algorithm, products and the library's kernels take, in images and rows of any size, and what follows.
TEST(Conv, OfRandomSizesAndChannels) {
  const std::uint32_t count = HEDDLE_WITH_LLVM == 0 ? 3 : heddle::test::is_nightly() ? 600 : 24;
  for (std::uint32_t seed = 0; seed < count; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    heddle::test::Draw draw(seed);
    const std::size_t rank = draw.one_in(3) ? 1 : 2;
    const std::int64_t channels = draw.one_in(4) ? draw(9, 70) : 16 * draw(1, 6);
    const std::int64_t results = draw.one_in(4) ? draw(9, 70) : 8 * draw(2, 20);
    std::vector<std::int64_t> kernel, low, high;
    const bool is_square = draw.one_in(2);
    for (std::size_t d = 0; d < rank; ++d) {
      const bool last = d + 1 == rank;
      kernel.push_back(is_square        ? 3
                       : !last          ? 1
                       : draw.one_in(4) ? draw(1, 6)
                                        : 3 + 2 * draw(0, 1));
      low.push_back(draw.one_in(3) ? draw(0, kernel.back() - 1) : kernel.back() / 2);
      high.push_back(draw.one_in(3) ? draw(0, kernel.back() - 1) : kernel.back() / 2);
    }
    if (rank == 2 && draw.one_in(3))
      for (auto* each : {&kernel, &low, &high}) std::ranges::reverse(*each);
    const std::vector<std::int64_t> ones(rank, 1);
    hd::Sizes filters{results, channels};
    filters.insert(filters.end(), kernel.begin(), kernel.end());
    const hd::Tensor w = random_tensor(filters, seed + 1);
    const hd::Tensor bias = random_tensor({results}, seed + 2);
    const auto follows = draw(0, 3);
    const auto layer = [&](const hd::Tensor& x) {
      const hd::Tensor y = hd::conv(x, w, bias, ones, low, high);
      if (follows == 1) return hd::relu(y);
      if (follows == 2) return y * hd::sigmoid(y);
      if (follows == 3) return hd::relu(y + hd::tanh(y));
      return y;
    };
    hd::Engine engine(layer, {.threads = 1});
    hd::Engine several(layer,
                       {.threads = static_cast<int>(draw.one_in(2) ? draw(2, 3) : draw(5, 40))});
    hd::Engine reference(layer, {.device = hd::Device::reference()});
    for (int call = 0; call < 2; ++call) {
      hd::Sizes sizes{draw(1, 2), channels};
      for (std::size_t d = 0; d < rank; ++d) sizes.push_back(draw(kernel[d], rank == 1 ? 90 : 19));
      const hd::Tensor x = random_tensor(sizes, seed + 3);
      const hd::Tensor got = engine.run({x})[0];
      expect_close(got, reference.run({x})[0], 1.5e-5);
      const hd::Tensor again = several.run({x})[0];
      EXPECT_EQ(got.to_doubles(), again.to_doubles()) << "on several threads";
    }
    if (HasFailure()) return;
  }
}

class MeasuredConv : public heddle::tests::FolderTest {};

TEST_F(MeasuredConv, HasItsAlgorithmChosenOnceForAllProcesses) {
  if (HEDDLE_WITH_ONEDNN == 0) GTEST_SKIP() << "built without oneDNN";
  const hd::Tensor w = random_tensor({32, 32, 3, 3}, 1);
  const auto layer = [w](const hd::Tensor& x) {
    return hd::relu(hd::conv(x, w, {}, {1, 1}, {1, 1}, {1, 1}));
  };
  const hd::Tensor x = random_tensor({1, 32, 10, 14}, 2);
  const hd::Tensor want = hd::Engine(layer, {.device = hd::Device::reference()}).run({x})[0];
  const auto is_measured = [&](hd::Engine& engine) {
    return times_in(engine.plan_json(std::vector{x}), "\"measured\": true") == 1;
  };
  hd::Engine unasked(layer, {.cache_dir = folder_});
  unasked.run({x});
  unasked.wait_for_specialisations();
  EXPECT_EQ(unasked.stats().measurements, 0u);
  EXPECT_FALSE(is_measured(unasked));

  hd::Engine first(layer, {.cache_dir = folder_, .autotune = true});
  expect_close(first.run({x})[0], want, 1e-5);
  first.wait_for_specialisations();
  EXPECT_EQ(first.stats().measurements, 1u);
  expect_close(first.run({x})[0], want, 1e-5);
  first.run({random_tensor({1, 32, 10, 15}, 2)});  // of another class
  first.wait_for_specialisations();
  EXPECT_EQ(first.stats().measurements, 2u);

  hd::Engine second(layer, {.cache_dir = folder_, .autotune = true});
  expect_close(second.run({x})[0], want, 1e-5);
  EXPECT_TRUE(is_measured(second));
  second.wait_for_specialisations();
  EXPECT_EQ(second.stats().measurements, 0u);
}

}  // namespace
