// Transposed convolutions that channels-last writes as convolutions, with windows, pads and groups of all kinds.
#include <gtest/gtest.h>

#include "ir/evaluate.h"
#include "ir/passes/channels_last.h"
#include "ir/text.h"
#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using Ints = std::vector<std::int64_t>;

/// One spatial dimension of a window.
struct Window {
  std::int64_t kernel, stride, low, high, output_padding;
};

/// Every window whose result of `size` elements is one, of sizes that are told apart.
std::vector<Window> windows(std::int64_t size) {
  std::vector<Window> all;
  for (std::int64_t kernel = 1; kernel <= 5; ++kernel)
    for (std::int64_t stride = 1; stride <= 4; ++stride)
      for (const std::int64_t low : {0, 1, 3, 6})
        for (const std::int64_t high : {0, 2, 5})
          for (std::int64_t output_padding = 0; output_padding < stride; ++output_padding)
            if ((size - 1) * stride + kernel - low - high + output_padding >= 0)
              all.push_back({kernel, stride, low, high, output_padding});
  return all;
}

ir::Attrs attributes(std::span<const Window> of, std::int64_t groups) {
  const auto each = [&](std::int64_t Window::* member) {
    Ints values;
    for (const Window& window : of) values.push_back(window.*member);
    return values;
  };
  return {{"strides", each(&Window::stride)},
          {"pads_low", each(&Window::low)},
          {"pads_high", each(&Window::high)},
          {"dilations", Ints(of.size(), 1)},
          {"output_padding", each(&Window::output_padding)},
          {"groups", groups}};
}

/// Small integers, whose sums are exact in any order.
ir::Literal digits(const ir::Sizes& sizes, int seed) {
  std::vector<double> values;
  for (std::int64_t k = 0; k < ir::element_count(sizes); ++k)
    values.push_back(static_cast<double>((k * 7 + seed) % 11 - 5));
  return doubles(f32, sizes, values);
}

void expect_rewritten(std::span<const Window> of, std::int64_t groups, bool has_bias,
                      const ir::Sizes& spatial) {
  ir::Sizes x{2, 4};
  ir::Sizes w{4, 3};
  x.insert(x.end(), spatial.begin(), spatial.end());
  for (const Window& window : of) w.push_back(window.kernel);
  OneOp call{"conv_transpose", {digits(x, 1), digits(w, 4)}, attributes(of, groups)};
  if (has_bias) call.operands.push_back(digits({3 * groups}, 2));
  const ir::Graph after = ir::channels_last(graph_of(call));
  for (const std::string& op : ops_of(after)) ASSERT_NE(op, "conv_transpose");
  expect_same(ir::evaluate(after, call.operands)[0], value_of(call));
}

TEST(TransposedConv, OfOneDimensionIsAConvolution) {
  for (const Window& window : windows(5)) {
    SCOPED_TRACE(::testing::Message()
                 << "kernel " << window.kernel << ", stride " << window.stride << ", pads "
                 << window.low << " and " << window.high << ", more " << window.output_padding);
    expect_rewritten(std::span(&window, 1), 1, window.low % 2 == 0, {5});
    expect_rewritten(std::span(&window, 1), 2, window.high % 2 == 0, {5});
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(TransposedConv, OfSeveralDimensionsIsOneToo) {
  const Window both[] = {{4, 2, 1, 1, 0}, {3, 1, 1, 1, 0}};
  const Window side_by_side[] = {{2, 2, 0, 0, 0}, {3, 3, 0, 0, 0}};
  const Window gaps[] = {{1, 3, 0, 0, 2}, {2, 4, 1, 0, 1}, {5, 2, 3, 4, 1}};
  for (const std::int64_t groups : {1, 4}) {
    expect_rewritten(both, groups, true, {3, 6});
    expect_rewritten(side_by_side, groups, true, {3, 2});
    expect_rewritten(gaps, groups, false, {2, 3, 4});
  }
}

/// One convolution for each phase, or for several that are alike, with as many taps as it has.
void expect_phases(std::span<const Window> of, const ir::Sizes& spatial, std::ptrdiff_t count) {
  ir::Sizes x{8, 16};
  ir::Sizes w{16, 16};
  x.insert(x.end(), spatial.begin(), spatial.end());
  for (const Window& window : of) w.push_back(window.kernel);
  const OneOp call{
      "conv_transpose", {digits(x, 1), digits(w, 4), digits({16}, 2)}, attributes(of, 1)};
  const ir::Graph after = ir::channels_last(graph_of(call));
  const std::vector<std::string> ops = ops_of(after);
  EXPECT_EQ(std::ranges::count(ops, "conv"), count);
  expect_same(ir::evaluate(after, call.operands)[0], value_of(call));
}

TEST(TransposedConv, OfPhasesWithUnlikeTapsIsOneConvolutionOfEach) {
  const Window same[] = {{3, 2, 1, 1, 1}, {3, 2, 1, 1, 1}};
  expect_phases(same, {9, 11}, 4);
  const Window odd[] = {{3, 2, 0, 0, 0}, {3, 2, 1, 1, 0}};
  expect_phases(odd, {9, 11}, 4);
  const Window shared[] = {{4, 3, 0, 0, 0}, {1, 1, 0, 0, 0}};
  expect_phases(shared, {16, 9}, 2);
  const Window long_one[] = {{11, 5, 3, 3, 0}};
  expect_phases(long_one, {50}, 3);
  const Window solid[] = {{3, 2, 1, 1, 1}, {3, 2, 1, 1, 1}, {3, 2, 1, 1, 1}};
  expect_phases(solid, {3, 4, 3}, 8);
}

TEST(TransposedConv, OfPhasesThatAreAlikeOrSmallIsOneConvolution) {
  const Window alike[] = {{4, 2, 1, 1, 0}, {4, 2, 1, 1, 0}};
  expect_phases(alike, {9, 11}, 1);
  const Window winograd[] = {{5, 2, 2, 2, 1}, {5, 2, 2, 2, 1}};
  expect_phases(winograd, {9, 11}, 1);
  const Window many[] = {{11, 5, 3, 3, 0}, {7, 4, 1, 1, 0}, {3, 2, 1, 1, 1}};
  expect_phases(many, {2, 2, 2}, 1);
  const Window little[] = {{3, 2, 1, 1, 1}, {3, 2, 1, 1, 1}};
  expect_phases(little, {3, 3}, 1);
  const Window beyond[] = {{3, 2, 6, 0, 0}, {3, 2, 6, 0, 0}};
  expect_phases(beyond, {9, 11}, 1);
}

/// Images of unknown sizes may have no elements.
TEST(TransposedConv, OfPhasesOfUnknownSizesTakesImagesWithoutElements) {
  const ir::Graph before = ir::parse(
      "graph @main(%x: f32[8, 16, s0, 40], %w: f32[16, 16, 3, 3]) {\n"
      "  %y = conv_transpose(%x, %w) {strides = [2, 2], pads_low = [1, 0], pads_high = [1, 0], "
      "dilations = [1, 1], output_padding = [1, 0]}\n"
      "  return %y\n"
      "}\n");
  const ir::Graph after = ir::channels_last(before);
  EXPECT_EQ(std::ranges::count(ops_of(after), "conv"), 4);
  for (const std::int64_t size : {0, 1, 2, 7}) {
    const std::vector<ir::Literal> images{digits({8, 16, size, 40}, 1), digits({16, 16, 3, 3}, 4)};
    expect_same(ir::evaluate(after, images)[0], ir::evaluate(before, images)[0]);
  }
}

}  // namespace
}  // namespace heddle::testing
