// Transposed convolutions that channels-last writes as convolutions, with windows, pads and groups of all kinds.
#include <gtest/gtest.h>

#include "ir/evaluate.h"
#include "ir/passes/channels_last.h"
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

}  // namespace
}  // namespace heddle::testing
