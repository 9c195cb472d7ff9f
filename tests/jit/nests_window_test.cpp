// Pools and convolutions as nests, against the definitions of their ops.
#include <cmath>

#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

struct Window {
  Ints kernel, strides, low, high, dilations;
  bool ceil_mode = false;
};

ir::Attrs attrs_of(const Window& w) {
  return {{"strides", w.strides},
          {"pads_low", w.low},
          {"pads_high", w.high},
          {"dilations", w.dilations}};
}

ir::Attrs pool_attrs(const Window& w) {
  ir::Attrs attrs = attrs_of(w);
  attrs.emplace("kernel", w.kernel);
  attrs.emplace("ceil_mode", w.ceil_mode);
  return attrs;
}

const Window kWindows[] = {
    {{2, 2}, {2, 2}, {0, 0}, {0, 0}, {1, 1}},       {{3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {{3, 2}, {2, 3}, {1, 0}, {0, 1}, {1, 2}},       {{3, 3}, {2, 2}, {0, 1}, {1, 0}, {1, 1}, true},
    {{2, 3}, {3, 2}, {1, 2}, {2, 1}, {2, 1}, true}, {{1, 1}, {2, 2}, {0, 0}, {0, 0}, {1, 1}},
};

ir::Literal special(ir::Literal x) {
  x = testing::with_nan(x, 7);
  x.set(9, -INFINITY);
  return x;
}

TEST(PoolNest, EveryWindow) {
  for (const Window& w : kWindows) {
    const ir::Literal x = special(noise(f32, {2, 3, 9, 20}));
    expect_nest_right({"max_pool", {x}, pool_attrs(w)});
    for (const bool column_major : {false, true}) {
      ir::Attrs attrs = pool_attrs(w);
      attrs.emplace("column_major", column_major);
      expect_nest_right({"max_pool_indices", {x}, attrs});
    }
    for (const bool include : {false, true}) {
      ir::Attrs attrs = pool_attrs(w);
      attrs.emplace("count_include_pad", include);
      expect_nest_right({"avg_pool", {noise(f32, {2, 3, 9, 20})}, attrs});
    }
  }
}

/// Windows wider than what is unrolled, and than what they slide over.
TEST(PoolNest, WideWindows) {
  for (const Window& w : {Window{{9, 9}, {1, 1}, {4, 4}, {4, 4}, {1, 1}},
                          Window{{1, 13}, {1, 2}, {0, 6}, {0, 5}, {1, 1}},
                          Window{{2, 10}, {3, 3}, {1, 9}, {0, 9}, {1, 2}, true},
                          Window{{9, 20}, {1, 1}, {0, 0}, {0, 0}, {1, 1}}}) {
    const ir::Literal x = special(noise(f32, {2, 2, 9, 20}));
    expect_nest_right({"max_pool", {x}, pool_attrs(w)});
    expect_nest_right({"avg_pool", {noise(f32, {2, 2, 9, 20})}, pool_attrs(w)});
  }
  const Window line{{33}, {1}, {16}, {16}, {1}};
  for (const char* op : {"max_pool", "avg_pool"})
    expect_nest_right({op, {noise(f32, {1, 2, 40})}, pool_attrs(line)});
}

TEST(PoolNest, EveryDType) {
  for (const DType dtype : testing::kNumbers) {
    const ir::Literal x = noise(dtype, {1, 2, 5, 6});
    expect_nest_right({"max_pool", {x}, pool_attrs(kWindows[1])});
    expect_nest_right({"max_pool_indices", {x}, pool_attrs(kWindows[1])});
    if (is_floating(dtype)) expect_nest_right({"avg_pool", {x}, pool_attrs(kWindows[1])});
  }
}

TEST(PoolNest, OneAndThreeDimensions) {
  const Window line{{3}, {2}, {1}, {1}, {1}};
  const Window cube{{2, 2, 2}, {1, 2, 1}, {0, 1, 1}, {1, 0, 1}, {1, 1, 1}};
  for (const char* op : {"max_pool", "avg_pool", "max_pool_indices"}) {
    expect_nest_right({op, {noise(f32, {2, 2, 11})}, pool_attrs(line)});
    expect_nest_right({op, {noise(f32, {1, 2, 3, 4, 5})}, pool_attrs(cube)});
  }
}

TEST(PoolNest, SymbolicSizesAndAnEpilogue) {
  ir::GraphBuilder b("main");
  const ir::Value x = b.input(tensor(f32, {"s0", "3", "s1", "s2"}));
  const ir::Value y = b.emit("max_pool", {x}, pool_attrs(kWindows[1]));
  b.output(b.emit("tanh", {y}));
  const ir::Graph graph = b.finish();
  EXPECT_EQ(kernels(graph).size(), 1u);
  expect_code_right_at(graph, {2, 4, 7});
  expect_code_right_at(graph, {0, 4, 7});
}

TEST(ConvNest, EveryWindow) {
  for (const Window& w : kWindows) {
    const ir::Sizes kernel{4, 3, w.kernel[0], w.kernel[1]};
    expect_nest_right({"conv",
                       {noise(f32, {2, 3, 9, 20}), noise(f32, kernel, 2), noise(f32, {4}, 3)},
                       attrs_of(w)},
                      1e-4);
  }
}

TEST(ConvNest, GroupsAndDTypes) {
  for (const DType dtype : testing::kNumbers) {
    for (const std::int64_t groups : {1, 2, 4}) {
      ir::Attrs attrs = attrs_of(kWindows[1]);
      attrs.emplace("groups", groups);
      const ir::Literal w = noise(dtype, {8, 4 / groups, 3, 3}, 2);
      expect_nest_right({"conv", {noise(dtype, {1, 4, 5, 6}), w}, attrs}, 1e-4);
    }
  }
}

TEST(ConvNest, AnInfiniteWeightOfThePaddingIsNotRead) {
  ir::Literal w = noise(f32, {1, 1, 3, 3});
  w.set(0, INFINITY);
  expect_nest_right({"conv", {noise(f32, {1, 1, 5, 5}), w}, attrs_of(kWindows[1])}, 1e-4);
}

TEST(ConvNest, SymbolicSizesAndAnEpilogue) {
  ir::GraphBuilder b("main");
  const ir::Value x = b.input(tensor(f32, {"s0", "3", "s1", "s2"}));
  const ir::Value w = b.input(tensor(f32, {"6", "3", "3", "3"}));
  const ir::Value bias = b.input(tensor(f32, {"6"}));
  b.output(b.emit("relu", {b.call("conv", {x, w, bias}, attrs_of(kWindows[1]))->value()}));
  const ir::Graph graph = b.finish();
  EXPECT_EQ(kernels(graph).size(), 1u);
  expect_code_right_at(graph, {2, 4, 7}, 1e-4);
}

TEST(ConvNest, OneAndThreeDimensions) {
  const Window line{{3}, {2}, {1}, {1}, {1}};
  const Window cube{{2, 2, 2}, {1, 2, 1}, {0, 1, 1}, {1, 0, 1}, {1, 1, 1}};
  expect_nest_right({"conv", {noise(f32, {2, 2, 11}), noise(f32, {4, 2, 3})}, attrs_of(line)},
                    1e-4);
  expect_nest_right(
      {"conv", {noise(f32, {1, 2, 3, 4, 5}), noise(f32, {3, 2, 2, 2, 2})}, attrs_of(cube)}, 1e-4);
}

TEST(ConvTransposeNest, EveryWindow) {
  for (const Window& w : kWindows) {
    for (const std::int64_t groups : {1, 2}) {
      ir::Attrs attrs = attrs_of(w);
      attrs.emplace("groups", groups);
      attrs.emplace("output_padding", Ints{1, 0});
      const ir::Sizes kernel{4, 3, w.kernel[0], w.kernel[1]};
      expect_nest_right(
          {"conv_transpose",
           {noise(f32, {2, 4, 5, 7}), noise(f32, kernel, 2), noise(f32, {3 * groups}, 3)},
           attrs},
          1e-4);
    }
  }
}

TEST(ConvTransposeNest, EveryDType) {
  for (const DType dtype : testing::kNumbers) {
    ir::Attrs attrs = attrs_of(kWindows[0]);
    attrs.emplace("output_padding", Ints{0, 1});
    expect_nest_right(
        {"conv_transpose", {noise(dtype, {1, 3, 4, 5}), noise(dtype, {3, 2, 2, 2}, 2)}, attrs},
        1e-4);
  }
}

}  // namespace
}  // namespace heddle::test
