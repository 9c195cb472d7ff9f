// Sums of convolutions that merge-convs makes one: windows, pads, strides and groups of all kinds.
#include "ir/passes/merge_convs.h"

#include <gtest/gtest.h>
#include <set>

#include "ir/evaluate.h"
#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using Ints = std::vector<std::int64_t>;

/// Along one dimension.
struct BranchWindow {
  std::int64_t kernel, low, high;
};

/// Small integers, whose sums are exact in any order.
ir::Literal small_integers(const ir::Sizes& sizes, int seed) {
  std::vector<double> values;
  for (std::int64_t k = 0; k < ir::element_count(sizes); ++k)
    values.push_back(static_cast<double>((k * 7 + seed) % 11 - 5));
  return doubles(f32, sizes, values);
}

constexpr std::int64_t kBranchChannels = 4;

struct Branches {
  std::vector<BranchWindow> windows;
  std::int64_t stride = 1;
  std::int64_t groups = 1;
  bool scales = false;
  bool copies = false;
};

ir::Graph sum_of(const Branches& c, std::size_t dimensions, const ir::Literal& x) {
  ir::GraphBuilder builder("main");
  const ir::Value input =
      builder.input(ir::TensorMeta::of(f32, ir::Dims(x.sizes().begin(), x.sizes().end())), "x");
  ir::Value sum;
  int seed = 0;
  const auto scaled = [&](ir::Value value) {
    if (!c.scales) return value;
    ir::Sizes sizes(dimensions + 1, 1);
    sizes[0] = kBranchChannels;
    return builder.emit("mul", {value, builder.constant(small_integers(sizes, ++seed))});
  };
  for (const BranchWindow& window : c.windows) {
    ir::Sizes sizes{kBranchChannels, kBranchChannels / c.groups};
    sizes.resize(2 + dimensions, window.kernel);
    std::vector<ir::Value> operands{input, builder.constant(small_integers(sizes, ++seed))};
    if (seed % 2 == 0)
      operands.push_back(builder.constant(small_integers({kBranchChannels}, ++seed)));
    const ir::Value made =
        scaled(builder
                   .call("conv", operands,
                         {{"strides", Ints(dimensions, c.stride)},
                          {"pads_low", Ints(dimensions, window.low)},
                          {"pads_high", Ints(dimensions, window.high)},
                          {"dilations", Ints(dimensions, window.kernel == 1 ? 3 : 1)},
                          {"groups", c.groups}})
                   ->value());
    sum = sum ? builder.emit("add", {made, sum}) : made;
  }
  if (c.copies) sum = builder.emit("add", {sum, scaled(input)});
  builder.output(sum);
  return builder.finish();
}

std::int64_t convs_in(const ir::Graph& graph) {
  std::int64_t count = 0;
  for (const std::string& op : ops_of(graph)) count += op == "conv" ? 1 : 0;
  return count;
}

void expect_merged(const Branches& c, std::int64_t convs = 1) {
  for (const std::size_t dimensions : {1, 2, 3}) {
    ir::Sizes sizes{2, kBranchChannels};
    sizes.resize(2 + dimensions, dimensions == 1 ? 9 : 5);
    const ir::Literal x = small_integers(sizes, 3);
    const ir::Graph before = sum_of(c, dimensions, x);
    const ir::Graph after = ir::merge_convs(before);
    std::set<const ir::Node*> needed;
    std::int64_t left = 0;
    const auto visit = [&](auto& self, const ir::Node& node) -> void {
      if (!needed.insert(&node).second) return;
      left += node.op_name() == "conv" ? 1 : 0;
      for (const ir::Value& operand : node.inputs())
        if (operand) self(self, *operand.node);
    };
    visit(visit, *after.outputs()[0].node);
    EXPECT_EQ(left, convs) << dimensions;
    EXPECT_EQ(convs_in(before), static_cast<std::int64_t>(c.windows.size()));
    expect_same(ir::evaluate(after, std::span(&x, 1))[0],
                ir::evaluate(before, std::span(&x, 1))[0]);
  }
}

TEST(MergeConvs, OfBranchesSideBySide) {
  for (const std::int64_t groups : {1, 2, 4})
    for (const bool scales : {false, true})
      for (const bool copies : {false, true}) {
        if (copies && groups == 2) continue;
        SCOPED_TRACE(::testing::Message() << groups << scales << copies);
        expect_merged({{{3, 1, 1}, {1, 0, 0}}, 1, groups, scales, copies});
        expect_merged({{{1, 0, 0}, {1, 0, 0}, {3, 1, 1}, {3, 1, 1}}, 1, groups, scales, copies});
        expect_merged({{{2, 1, 0}, {2, 1, 0}}, 1, groups, scales, copies});
        expect_merged({{{5, 2, 2}, {3, 1, 1}, {2, 0, 1}}, 1, groups, scales, copies});
      }
}

TEST(MergeConvs, WithStrides) {
  for (const std::int64_t groups : {1, 2, 4}) {
    expect_merged({{{3, 1, 1}, {1, 0, 0}}, 2, groups, true});
    expect_merged({{{3, 0, 2}, {3, 0, 2}, {1, 0, 0}}, 2, groups});
    expect_merged({{{4, 1, 2}, {2, 1, 0}}, 3, groups});
  }
}

TEST(MergeConvs, AConvolutionAndItsOwnOperand) {
  for (const std::int64_t groups : {1, 4}) {
    expect_merged({{{3, 1, 1}}, 1, groups, false, true});
    expect_merged({{{1, 0, 0}}, 1, groups, true, true});
  }
  expect_merged({{{3, 1, 1}}, 1, 2, false, true});
}

/// Taps to the left and to the right of a place would have others between them.
TEST(MergeConvs, NotWhereTapsWouldBeMore) { expect_merged({{{1, 2, 0}, {1, 0, 2}}}, 2); }

}  // namespace
}  // namespace heddle::testing
