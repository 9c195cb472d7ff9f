// Library convolutions with what follows them, against sums in double precision.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "jit/cpu/onednn/onednn.h"
#include "jit/cpu/onednn/problem.h"
#include "tests/jit/random_floats.h"

namespace heddle::jit {
namespace {

using onednn::Ints;
using Kind = EpilogueOp::Kind;
using tests::random_floats;
using Floats = std::vector<float>;

constexpr float kInf = std::numeric_limits<float>::infinity();

/// A 3 x 3 convolution with channels last, padded to keep its sizes, and all that it reads.
struct Case {
  std::int64_t batch = 1, height = 12, width = 9, channels = 16, results = 16;
  std::vector<EpilogueOp> epilogue{};
  bool winograd = true;
  bool fixed = true;      ///< weights and vectors
  bool in_place = false;  ///< the result lies in the first tensor that is added
  int threads = 1;

  Floats x, weights, bias, vector, added;

  void fill() {
    const auto positions = static_cast<std::size_t>(batch * height * width);
    x = random_floats(positions * static_cast<std::size_t>(channels), 1);
    weights = random_floats(static_cast<std::size_t>(results * channels * 9), 2);
    bias = random_floats(static_cast<std::size_t>(results), 3);
    vector = random_floats(static_cast<std::size_t>(results), 4);
    added = random_floats(positions * static_cast<std::size_t>(results), 5);
  }

  LibraryCall call() const {
    LibraryCall made;
    made.name = "conv";
    made.attrs = {{"strides", Ints{1, 1}},   {"dilations", Ints{1, 1}},   {"pads_low", Ints{1, 1}},
                  {"pads_high", Ints{1, 1}}, {"groups", std::int64_t{1}}, {"channels_last", true}};
    made.node_inputs = 3;
    made.inputs.resize(5);
    made.outputs.resize(1);
    made.epilogue = epilogue;
    made.winograd = winograd;
    return made;
  }

  std::vector<LibraryOperand> operands() const {
    const auto held = [&](const Floats& values) { return fixed ? values.data() : nullptr; };
    return {{{batch, height, width, channels}, nullptr},
            {{results, channels, 3, 3}, held(weights)},
            {{results}, held(bias)},
            {{results}, held(vector)},
            {{batch, height, width, results}, nullptr},
            {{batch, height, width, results}, nullptr}};
  }

  Floats run() {
    const auto bound = onednn::bind(call(), operands(), threads);
    std::vector<char> scratch(static_cast<std::size_t>(bound->scratch_bytes()) + 64);
    void* const aligned =
        reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(scratch.data()) + 63) / 64 * 64);
    Floats other = added;
    Floats result(added.size(), std::numeric_limits<float>::quiet_NaN());
    float* out = in_place ? other.data() : result.data();
    void* const buffers[] = {x.data(),      weights.data(), bias.data(),
                             vector.data(), other.data(),   out};
    for (std::int64_t k = bound->extent(); k-- > 0;) bound->run(buffers, k, k + 1, aligned);
    return in_place ? other : result;
  }

  double convolved(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t m) const {
    double sum = bias[static_cast<std::size_t>(m)];
    for (std::int64_t i = 0; i < 3; ++i)
      for (std::int64_t j = 0; j < 3; ++j) {
        const std::int64_t row = h + i - 1;
        const std::int64_t column = w + j - 1;
        if (row < 0 || row >= height || column < 0 || column >= width) continue;
        for (std::int64_t c = 0; c < channels; ++c)
          sum += static_cast<double>(x[static_cast<std::size_t>(
                     ((n * height + row) * width + column) * channels + c)]) *
                 weights[static_cast<std::size_t>(((m * channels + c) * 3 + i) * 3 + j)];
      }
    return sum;
  }

  double followed(double v, std::size_t at) const {
    const std::size_t m = at % static_cast<std::size_t>(results);
    const auto clamped = [](double value, const EpilogueOp& op) {
      if (std::isnan(value)) return value;
      return std::min(std::max(value, static_cast<double>(op.low)), static_cast<double>(op.high));
    };
    for (const EpilogueOp& op : epilogue) {
      if (op.kind == Kind::Scale) v *= vector[m];
      if (op.kind == Kind::Shift) v += vector[m];
      if (op.kind == Kind::Add) v += added[at];
      if (op.kind == Kind::Linear) v = v * op.a + op.b;
      if (op.kind == Kind::Clamp) v = clamped(v, op);
      if (op.kind == Kind::Gate) v *= clamped(v * op.a + op.b, op);
    }
    return v;
  }

  std::vector<double> wanted() const {
    std::vector<double> values;
    for (std::int64_t n = 0; n < batch; ++n)
      for (std::int64_t h = 0; h < height; ++h)
        for (std::int64_t w = 0; w < width; ++w)
          for (std::int64_t m = 0; m < results; ++m)
            values.push_back(followed(convolved(n, h, w, m), values.size()));
    return values;
  }
};

/// The largest difference over the largest value.
double error_of(const Floats& got, const std::vector<double>& want) {
  double largest = 0;
  double worst = 0;
  for (std::size_t k = 0; k < want.size(); ++k) {
    largest = std::max(largest, std::abs(want[k]));
    const double difference = std::abs(got[k] - want[k]);
    worst = std::isnan(difference) ? kInf : std::max(worst, difference);
  }
  return worst / largest;
}

const EpilogueOp kScale{.kind = Kind::Scale, .operand = 3};
const EpilogueOp kShift{.kind = Kind::Shift, .operand = 3};
const EpilogueOp kAdd{.kind = Kind::Add, .operand = 4};
const EpilogueOp kLinear{.kind = Kind::Linear, .a = 0.5f, .b = -2};
const EpilogueOp kRelu{.kind = Kind::Clamp, .low = 0};
const EpilogueOp kGate{.kind = Kind::Gate, .a = 0.25f, .b = 0.5f, .low = 0, .high = 1};

TEST(OneDnnEpilogue, EveryOperationInEveryWay) {
  const std::vector<std::vector<EpilogueOp>> epilogues{
      {kScale},
      {kShift},
      {kAdd},
      {kLinear},
      {kRelu},
      {kGate},
      {kScale, kShift, kAdd, kRelu},
      {kScale, kShift, kGate, kLinear, kScale, kShift},
      {kRelu, kAdd},
      {kRelu, kScale, kShift, kLinear, kLinear, kAdd, kGate}};
  for (const auto& epilogue : epilogues) {
    for (const bool fixed : {true, false}) {
      for (const bool in_place : {false, true}) {
        for (const int threads : {1, 3}) {
          Case c{.epilogue = epilogue, .fixed = fixed, .in_place = in_place, .threads = threads};
          c.fill();
          SCOPED_TRACE(::testing::Message()
                       << epilogue.size() << " operations, fixed " << fixed << ", in place "
                       << in_place << ", threads " << threads);
          c.winograd = true;
          ASSERT_LT(error_of(c.run(), c.wanted()), 1e-5);
          c.winograd = false;
          ASSERT_LT(error_of(c.run(), c.wanted()), 2e-6);
        }
      }
    }
  }
}

/// Winograd's algorithm is chosen, and stays within what the README states.
TEST(OneDnnEpilogue, WinogradWithinItsError) {
  struct Sizes {
    std::int64_t batch, height, width, channels, results;
  };
  for (const Sizes& s : {Sizes{1, 20, 20, 64, 64}, Sizes{2, 16, 19, 64, 64},
                         Sizes{1, 28, 28, 72, 40}, Sizes{1, 28, 28, 48, 72}}) {
    for (const bool in_place : {false, true}) {
      Case c{.batch = s.batch,
             .height = s.height,
             .width = s.width,
             .channels = s.channels,
             .results = s.results,
             .epilogue = {kScale, kAdd, kGate},
             .in_place = in_place};
      if (!in_place) c.epilogue = {kGate, kAdd};
      c.fill();
      const onednn::Problem problem = onednn::problem_of(c.call(), c.operands());
      ASSERT_EQ(onednn::algorithm_for(problem, 0), onednn::Algorithm::Winograd);
      const std::vector<double> want = c.wanted();
      EXPECT_LT(error_of(c.run(), want), 1e-5);
      c.winograd = false;
      EXPECT_LT(error_of(c.run(), want), 2e-6);
    }
  }
}

TEST(OneDnnEpilogue, WinogradGivesTheSameForAnyNumberOfThreads) {
  Case c{.height = 30, .width = 22, .channels = 64, .results = 64, .epilogue = {kRelu}};
  c.fill();
  const Floats alone = c.run();
  for (const int threads : {2, 3, 5}) {
    c.threads = threads;
    EXPECT_EQ(c.run(), alone) << threads << " threads";
  }
}

TEST(OneDnnEpilogue, WinogradOnlyWhereItFits) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 26;
  const auto algorithm = [](std::int64_t size, std::int64_t channels, Ints strides, Ints pads,
                            std::int64_t bytes = 0) {
    onednn::Problem problem{.x = {1, channels, size, size},
                            .weights = {channels, channels, 3, 3},
                            .result = {1, channels, size, size},
                            .strides = std::move(strides),
                            .dilations = {0, 0},
                            .pads_low = pads,
                            .pads_high = pads,
                            .channels_last = true};
    return onednn::algorithm_for(problem, bytes);
  };
  using onednn::Algorithm;
  EXPECT_EQ(algorithm(56, 64, {1, 1}, {1, 1}), Algorithm::Winograd);
  EXPECT_EQ(algorithm(56, 64, {2, 2}, {1, 1}), Algorithm::Direct);
  EXPECT_EQ(algorithm(56, 64, {1, 1}, {2, 2}), Algorithm::Direct);
  EXPECT_EQ(algorithm(14, 256, {1, 1}, {1, 1}), Algorithm::Winograd);
  // Of processors that multiply slowly beside memory, images are smaller for which it is so.
  const std::int64_t size = onednn::costs_of_ours().far_weight > 5 ? 7 : 4;
  EXPECT_EQ(algorithm(size, 512, {1, 1}, {1, 1}, kLarge), Algorithm::SmallWinograd)
      << "weights come from memory: 16 for each 9 of them";
  EXPECT_EQ(algorithm(112, 8, {1, 1}, {1, 1}), Algorithm::Direct) << "transforms outweigh products";
}

TEST(OneDnnEpilogue, NanStaysNan) {
  for (const std::int64_t channels : {16, 64}) {
    for (const EpilogueOp& op : {kRelu, kGate}) {
      Case c{.height = 24, .width = 24, .channels = channels, .results = 64, .epilogue = {op}};
      c.fill();
      c.x[static_cast<std::size_t>(channels)] = std::numeric_limits<float>::quiet_NaN();
      const Floats got = c.run();
      for (std::size_t m = 0; m < 3 * 64; ++m) EXPECT_TRUE(std::isnan(got[m])) << m;
      EXPECT_FALSE(std::isnan(got[got.size() - 1]));
    }
  }
}

/// Weights that decayed: they are multiplied as normal numbers, and count as what they are.
TEST(OneDnnEpilogue, SubnormalWeights) {
  const std::vector<std::vector<EpilogueOp>> epilogues{
      {}, {kGate}, {kRelu, kGate}, {kScale, kShift, kGate, kLinear}, {kAdd, kRelu}};
  for (const bool all : {false, true}) {
    for (const auto& epilogue : epilogues) {
      for (const bool winograd : {false, true}) {
        Case c{.height = 28,
               .width = 28,
               .channels = 64,
               .results = 64,
               .epilogue = epilogue,
               .winograd = winograd};
        c.fill();
        for (std::size_t k = 0; k < c.weights.size(); ++k)
          if (all || k % 7 == 0) c.weights[k] *= 1e-39f;
        for (float& x : c.x) x *= all ? 1e36f : 1.0f;
        SCOPED_TRACE(::testing::Message() << epilogue.size() << " operations, all " << all);
        ASSERT_LT(error_of(c.run(), c.wanted()), all ? 2e-5 : 1e-5);
      }
    }
  }
}

TEST(OneDnnEpilogue, FoldedWeightsArePackedOnceForEachScale) {
  const std::size_t before = onednn::packed_parameters();
  Case c{.epilogue = {kScale}, .winograd = false};
  c.fill();
  const auto first = onednn::bind(c.call(), c.operands(), 1);
  const auto second = onednn::bind(c.call(), c.operands(), 1);
  EXPECT_EQ(onednn::packed_parameters(), before + 1);
  const Floats other_vector = c.vector;
  std::vector<LibraryOperand> operands = c.operands();
  operands[3].fixed = other_vector.data();
  const auto third = onednn::bind(c.call(), operands, 1);
  EXPECT_EQ(onednn::packed_parameters(), before + 2);
}

}  // namespace
}  // namespace heddle::jit
