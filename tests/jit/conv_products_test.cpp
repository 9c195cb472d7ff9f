// Convolutions of one element become products; others do not.
#include "jit/lower/conv_products.h"

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/jit/lower_support.h"
#include "tests/support/one_op.h"

namespace heddle::test {
namespace {

using ir::GraphBuilder;
using ir::Value;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::ops_of;
using Ints = std::vector<std::int64_t>;

jit::LowerOptions with_library() {
  jit::LowerOptions options;
  options.library_available = [](std::string_view name, const ir::Node&) { return name == "conv"; };
  return options;
}

/// What differs from a convolution of one element that moves by one.
struct Conv {
  Ints sizes{128, 64, 1, 1};  ///< of the weights
  Ints strides{1, 1}, pads{0, 0};
  std::int64_t groups = 1;
  DType dtype = f32;
  bool biased = true, fixed = true, channels_last = true;
};

Value emit(GraphBuilder& b, Value x, const Conv& c) {
  const ir::Literal weights = random_literal(c.dtype, c.sizes, 7);
  std::vector<Value> operands{
      x, c.fixed ? b.constant(weights) : b.input(ir::TensorMeta::of(c.dtype, {128, 64, 1, 1}))};
  if (c.biased) operands.push_back(b.constant(random_literal(c.dtype, {c.sizes[0]}, 8)));
  return b
      .call("conv", operands,
            {{"strides", c.strides},
             {"pads_low", c.pads},
             {"pads_high", c.pads},
             {"dilations", Ints{1, 1}},
             {"groups", c.groups},
             {"channels_last", c.channels_last}})
      ->value();
}

void expect_right_with_products(const ir::Graph& graph, const std::vector<std::string>& names,
                                const std::vector<std::int64_t>& sizes) {
  const jit::Program program = jit::lower(graph, with_library());
  std::vector<std::string> kernels;
  for (const ir::PlanStep& step : program.record.steps)
    kernels.push_back(program.record.kernels[step.kernel].name);
  EXPECT_EQ(kernels, names);
  expect_program_right(graph, program, random_arguments(graph, sizes), {}, 1e-4);
}

TEST(ConvProducts, OnePositionAtATime) {
  GraphBuilder b("main");
  b.output(emit(b, b.input(tensor(f32, {"s0", "s1", "s2", "64"}), "x"), {}));
  const ir::Graph graph = b.finish();
  const ir::Graph products = jit::convs_as_products(graph, with_library());
  EXPECT_THAT(ops_of(products),
              ElementsAre("input", "const", "const", "reshape", "permute", "matmul", "add"));
  EXPECT_EQ(products.outputs()[0].meta().to_string(), "f32[s0, s1, s2, 128]");
  for (const auto& [h, w] : {std::pair{1, 1}, {7, 7}, {5, 13}})
    expect_right_with_products(graph, {"clone", "packed_matmul_add"}, {2, h, w});
}

/// A library makes code for each size that comes: where sizes are open, channels of any number are columns of a product.
TEST(ConvProducts, OfOpenSizesWithAnyChannels) {
  for (const Ints& sizes : {Ints{18, 96, 1, 1}, {12, 5, 1, 1}, {96, 64, 1, 1}, {100, 33, 1, 1}}) {
    for (const std::int64_t stride : {1, 2}) {
      const std::string channels = std::to_string(sizes[1]);
      GraphBuilder b("main");
      const Value x = b.input(tensor(f32, {"s0", "s1", "s2", channels.c_str()}), "x");
      b.output(b.emit("relu", {emit(b, x, {.sizes = sizes, .strides = {stride, stride}})}));
      const ir::Graph graph = b.finish();
      const ir::Graph products = jit::convs_as_products(graph, with_library());
      EXPECT_THAT(ops_of(products), Contains("matmul"));
      EXPECT_THAT(ops_of(products), ::testing::Not(Contains("conv")));
      const jit::Program program = jit::lower(graph, with_library());
      for (const auto& [h, w] : {std::pair{1, 1}, {7, 7}, {5, 13}})
        expect_program_right(graph, program, random_arguments(graph, {2, h, w}), {}, 1e-4);
    }
  }
}

TEST(ConvProducts, WithWhatFollows) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"1", "s0", "6", "64"}), "x");
  const Value other = b.input(tensor(f32, {"1", "s0", "6", "128"}), "other");
  b.output(b.emit("relu", {b.emit("add", {emit(b, x, {.biased = false}), other})}));
  const ir::Graph graph = b.finish();
  for (const std::int64_t rows : {1, 5, 11})
    expect_right_with_products(graph, {"clone", "packed_matmul_add_relu"}, {rows});
}

/// Only the positions that count are read, from a copy in which they are the rows of one matrix.
TEST(ConvProducts, OfEveryOtherPosition) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"2", "s0", "9", "64"}), "x");
  b.output(emit(b, x, {.strides = {2, 3}}));
  b.output(emit(b, x, {.strides = {2, 3}, .biased = false}));
  const ir::Graph graph = b.finish();
  const ir::Graph products = jit::convs_as_products(graph, with_library());
  EXPECT_EQ(std::ranges::count(ops_of(products), "clone"), 1) << "two read the same positions";
  for (const std::int64_t rows : {1, 2, 7, 8}) {
    const jit::Program program = jit::lower(graph, with_library());
    expect_program_right(graph, program, random_arguments(graph, {rows}), {}, 1e-4);
  }
}

/// A permuted operand is put in order once: its rows would be a matrix of columns.
TEST(ConvProducts, OfAnOperandInAnotherOrder) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"1", "64", "s0", "6"}), "x");
  const Value last = b.emit("permute", {x}, {{"perm", Ints{0, 2, 3, 1}}});
  b.output(emit(b, last, {}));
  const ir::Graph graph = b.finish();
  const ir::Graph products = jit::convs_as_products(graph, with_library());
  EXPECT_EQ(products.outputs()[0].node->input(0).node->input(0).node->op_name(), "clone");
  const jit::Program program = jit::lower(graph, with_library());
  expect_program_right(graph, program, random_arguments(graph, {9}), {}, 1e-4);
}

/// Few positions and weights that come from memory: windows are put behind each other, and weights fetched ahead.
TEST(ConvProducts, OfFewPositionsAndManyWeights) {
  const Conv convs[] = {
      {.sizes = {256, 512, 3, 3}, .pads = {1, 1}},
      {.sizes = {256, 512, 3, 3}, .strides = {2, 2}, .pads = {1, 1}, .biased = false},
      {.sizes = {512, 1024, 1, 2}, .pads = {0, 0}}};
  for (const Conv& conv : convs) {
    GraphBuilder b("main");
    const Value x =
        b.input(tensor(f32, {"1", "2", "3", std::to_string(conv.sizes[1]).c_str()}), "x");
    b.output(b.emit("relu", {emit(b, x, conv)}));
    const ir::Graph graph = b.finish();
    const jit::Program program = jit::lower(graph, with_library());
    const std::string& last = program.record.kernels[program.record.steps.back().kernel].name;
    EXPECT_TRUE(last.starts_with("packed_matmul")) << last;
    EXPECT_TRUE(last.ends_with("relu")) << last;
    expect_program_right(graph, program, random_arguments(graph, {}), {}, 1e-4);
  }
}

// Filters of sound: windows of one channel overlap where they lie, along either dimension, with padding and without.
TEST(ConvProducts, OfWindowsInOnePiece) {
  struct Windows {
    bool rows;
    std::int64_t pad, step;
  };
  for (const auto& [rows, pad, step] : {Windows{false, 0, 9}, {true, 5, 9}, {false, 5, 1}}) {
    const Conv conv{.sizes = {128, 1, rows ? 70 : 1, rows ? 1 : 70},
                    .strides = {rows ? step : 1, rows ? 1 : step},
                    .pads = {rows ? pad : 0, rows ? 0 : pad}};
    GraphBuilder b("main");
    const ir::TensorMeta along =
        rows ? tensor(f32, {"2", "s0", "3", "1"}) : tensor(f32, {"2", "3", "s0", "1"});
    b.output(emit(b, b.input(along, "x"), conv));
    const ir::Graph graph = b.finish();
    EXPECT_THAT(ops_of(jit::convs_as_products(graph, with_library())), Contains("unfold"));
    std::vector<std::string> kernels{"clone", "packed_matmul_add"};
    if (pad != 0) kernels.insert(kernels.begin(), "pad");
    for (const std::int64_t length : {70, 133})
      expect_right_with_products(graph, kernels, {length});
  }
}

/// Several elements of a row, with their channels, overlap where they lie, too.
TEST(ConvProducts, OfOpenSizesWithWindowsAlongRows) {
  for (const std::int64_t stride : {1, 2})
    for (const std::int64_t pad : {0, 1}) {
      const Conv conv{.sizes = {60, 48, 1, 3}, .strides = {1, stride}, .pads = {0, pad}};
      GraphBuilder b("main");
      b.output(emit(b, b.input(tensor(f32, {"s0", "2", "s1", "48"}), "x"), conv));
      const ir::Graph graph = b.finish();
      const ir::Graph products = jit::convs_as_products(graph, with_library());
      EXPECT_THAT(ops_of(products), Contains("unfold"));
      EXPECT_EQ(products.outputs()[0].meta().sizes, graph.outputs()[0].meta().sizes);
      std::vector<std::string> kernels{"pad_clone", "packed_matmul_add"};
      if (pad != 0) kernels.insert(kernels.begin(), "pad");
      for (const std::int64_t width : {3, 8, 41})
        expect_right_with_products(graph, kernels, {2, width});
    }
}

/// But those that the library computes in tiles for sizes that come, without code for each.
TEST(ConvProducts, LeavesTilesAlongRowsOfOpenSizes) {
  const auto is_product = [](const Conv& conv, const jit::LowerOptions& options) {
    GraphBuilder b("main");
    const std::string channels = std::to_string(conv.sizes[1]);
    b.output(emit(b, b.input(tensor(f32, {"s0", "2", "s1", channels.c_str()}), "x"), conv));
    return std::ranges::count(ops_of(jit::convs_as_products(b.finish(), options)), "matmul") != 0;
  };
  const Conv tiled{.sizes = {64, 48, 1, 3}, .pads = {0, 1}};
  EXPECT_FALSE(is_product(tiled, with_library()));
  EXPECT_FALSE(is_product({.sizes = {64, 48, 1, 5}, .pads = {0, 2}}, with_library()));
  EXPECT_TRUE(is_product({.sizes = {64, 48, 1, 4}, .pads = {0, 2}}, with_library()));
  EXPECT_TRUE(is_product({.sizes = {64, 48, 1, 3}, .pads = {0, 3}}, with_library()));
  EXPECT_TRUE(is_product({.sizes = {64, 48, 1, 3}, .strides = {1, 2}}, with_library()));
  EXPECT_TRUE(is_product({.sizes = {60, 48, 1, 3}}, with_library()));
  EXPECT_TRUE(is_product({.sizes = {64, 40, 1, 3}}, with_library()));
  EXPECT_TRUE(is_product({.sizes = {24, 48, 1, 3}}, with_library()));
  jit::LowerOptions options = with_library();
  options.rest.winograd = false;
  EXPECT_TRUE(is_product(tiled, options));
}

/// A convolution between permutes, from x [n, c, in…] to a result [n, m, out…].
ir::Graph between_permutes(const ir::Dims& x, const Conv& conv, bool read_twice = false,
                           bool then_relu = false) {
  GraphBuilder b("main");
  const std::size_t rank = x.size();
  Ints there(rank), back(rank);
  for (std::size_t k = 0; k < rank; ++k) {
    there[k] = k == 0 ? 0 : k + 1 == rank ? 1 : static_cast<std::int64_t>(k) + 1;
    back[k] = k == 0   ? 0
              : k == 1 ? static_cast<std::int64_t>(rank) - 1
                       : static_cast<std::int64_t>(k) - 1;
  }
  const Value given = b.input(ir::TensorMeta::of(f32, x), "x");
  const Value last = b.emit("permute", {given}, {{"perm", there}});
  const Value made = emit(b, last, conv);
  const Value result = b.emit("permute", {made}, {{"perm", back}});
  b.output(result);
  if (then_relu) b.output(b.emit("relu", {result}));
  if (read_twice) b.output(b.emit("relu", {made}));
  return b.finish();
}

/// Images that lie channel by channel before and behind stay so: the rows of the product are channels.
TEST(ConvProducts, OfImagesWithTheirChannelsFirst) {
  expect_right_with_products(between_permutes({1, 64, 12, 11}, {}), {"matmul_add"}, {});
  expect_right_with_products(between_permutes({3, 64, 130, 1}, {.biased = false}), {"matmul"}, {});
  expect_right_with_products(between_permutes({2, 5, 12, 12}, {.sizes = {3, 5, 1, 1}}),
                             {"matmul_add"}, {});
  expect_right_with_products(between_permutes({1, 64, 23, 34}, {.strides = {2, 3}}),
                             {"clone", "matmul_add"}, {});
}

/// Windows of few taps are copied tap behind tap.
TEST(ConvProducts, OfShortWindowsWithTheirChannelsFirst) {
  for (const std::int64_t pad : {0, 3}) {
    const Conv conv{.sizes = {40, 1, 1, 10}, .strides = {1, 5}, .pads = {0, pad}};
    const ir::Graph graph = between_permutes({2, 1, 1, 800}, conv);
    expect_right_with_products(graph, {"clone", "matmul_add"}, {});
  }
}

TEST(ConvProducts, LeavesFewPositionsAndWhatIsReadInBothOrders) {
  const auto keeps_order = [](const ir::Graph& graph) {
    const ir::Graph products = jit::convs_as_products(graph, with_library());
    return products.outputs()[0].node->op_name() == "permute";
  };
  EXPECT_FALSE(keeps_order(between_permutes({1, 64, 8, 16}, {})));
  EXPECT_TRUE(keeps_order(between_permutes({1, 64, 7, 18}, {}))) << "few positions";
  EXPECT_TRUE(keeps_order(between_permutes({1, 64, 8, 16}, {}, true))) << "read in both orders";
  EXPECT_TRUE(keeps_order(between_permutes({1, 64, 8, 16}, {}, false, true)))
      << "something follows";
  EXPECT_TRUE(keeps_order(between_permutes({1, 64, 8, 16}, {.pads = {1, 1}}))) << "padding";
  EXPECT_TRUE(keeps_order(between_permutes({1, 64, 8, 16}, {.fixed = false}))) << "given weights";
  EXPECT_TRUE(keeps_order(between_permutes({8, 1, 1, 9000}, {.sizes = {40, 1, 1, 10}})))
      << "more than a second-level cache holds";
}

TEST(ConvProducts, LeavesWindowsThatFillNoPanelsOrAreShort) {
  for (const Ints& sizes :
       {Ints{80, 1, 1, 70}, {128, 1, 1, 60}, {128, 2, 1, 70}, {128, 1, 2, 70}}) {
    GraphBuilder b("main");
    b.output(
        emit(b, b.input(ir::TensorMeta::of(f32, {2, 3, 90, sizes[1]}), "x"), {.sizes = sizes}));
    EXPECT_THAT(ops_of(jit::convs_as_products(b.finish(), with_library())), Contains("conv"))
        << sizes[3];
  }
}

TEST(ConvProducts, LeavesOthers) {
  const Conv others[] = {{.sizes = {128, 64, 3, 1}, .pads = {1, 0}},
                         {.sizes = {128, 64, 3, 3}},
                         {.sizes = {2048, 64, 3, 3}, .pads = {1, 1}},
                         {.pads = {1, 1}},
                         {.sizes = {128, 32, 1, 1}, .groups = 2},
                         {.fixed = false},
                         {.dtype = f64}};
  for (const Ints& sizes : {Ints{96, 64, 1, 1}, {64, 64, 1, 1}}) {
    GraphBuilder b("main");
    b.output(emit(b, b.input(tensor(f32, {"1", "7", "6", "64"}), "x"), {.sizes = sizes}));
    const ir::Graph graph = b.finish();
    EXPECT_TRUE(jit::convs_as_products(graph, with_library()).identical(graph)) << sizes[0];
  }
  for (const Conv& other : others) {
    GraphBuilder b("main");
    b.output(emit(b, b.input(tensor(other.dtype, {"1", "s0", "6", "64"}), "x"), other));
    const ir::Graph graph = b.finish();
    EXPECT_TRUE(jit::convs_as_products(graph, with_library()).identical(graph));
  }
  GraphBuilder b("main");
  b.output(emit(b, b.input(tensor(f32, {"1", "s0", "6", "64"}), "x"), {}));
  const ir::Graph graph = b.finish();
  EXPECT_TRUE(jit::convs_as_products(graph, {}).identical(graph)) << "without a library";
}

/// Of many weights and few positions: windows behind each other, but for those that the library computes in tiles.
TEST(ConvProducts, LeavesTilesOfManyWeights) {
  const auto is_product = [](const char* size, const Conv& conv, const jit::LowerOptions& options) {
    GraphBuilder b("main");
    b.output(emit(b, b.input(tensor(f32, {"1", size, size, "512"}), "x"), conv));
    return std::ranges::count(ops_of(jit::convs_as_products(b.finish(), options)), "matmul") != 0;
  };
  const Conv conv{.sizes = {512, 512, 3, 3}, .pads = {1, 1}};
  EXPECT_FALSE(is_product("7", conv, with_library()));
  EXPECT_TRUE(is_product("5", conv, with_library())) << "25 positions";
  EXPECT_TRUE(is_product("14", {.sizes = {512, 512, 3, 3}, .strides = {2, 2}, .pads = {1, 1}},
                         with_library()));
  jit::LowerOptions options = with_library();
  options.rest.winograd = false;
  EXPECT_TRUE(is_product("7", conv, options));
  options = with_library();
  options.vector_bytes = 16;
  EXPECT_TRUE(is_product("7", conv, options));
}

/// The library's results are read and written once more by what follows: that takes longer than a product.
TEST(ConvProducts, OfFewerChannelsForNarrowVectorsAndWhereMoreFollows) {
  jit::LowerOptions narrow = with_library();
  narrow.vector_bytes = 32;
  const Ints sizes{32, 16, 1, 1};
  const auto is_product = [&](const std::function<Value(GraphBuilder&, Value)>& behind,
                              const jit::LowerOptions& options) {
    GraphBuilder b("main");
    const Value x = b.input(tensor(f32, {"1", "7", "6", "16"}), "x");
    b.output(behind(b, emit(b, x, {.sizes = sizes})));
    return std::ranges::count(ops_of(jit::convs_as_products(b.finish(), options)), "matmul") != 0;
  };
  const auto plain = [](GraphBuilder&, Value y) { return y; };
  const auto scaled = [](GraphBuilder& b, Value y) {
    const Value scale = b.constant(random_literal(f32, {32}, 9));
    return b.emit("add", {b.emit("mul", {y, scale}), scale});
  };
  const auto scaled_relu = [&](GraphBuilder& b, Value y) { return b.emit("relu", {scaled(b, y)}); };
  const auto swish = [](GraphBuilder& b, Value y) {
    return b.emit("mul", {y, b.emit("sigmoid", {y})});
  };
  const auto summed = [](GraphBuilder& b, Value y) {
    return b.emit("reduce_max", {y}, {{"axes", Ints{3}}});
  };
  for (const auto& behind : {std::function<Value(GraphBuilder&, Value)>(plain), {scaled}, {summed}})
    EXPECT_FALSE(is_product(behind, with_library()));
  for (const auto& behind : {std::function<Value(GraphBuilder&, Value)>(scaled_relu), {swish}})
    EXPECT_TRUE(is_product(behind, with_library()));
  EXPECT_TRUE(is_product(plain, narrow));
  for (const Ints& many : {Ints{32, 16, 1, 1}, {96, 64, 1, 1}, {64, 64, 1, 1}, {16, 40, 1, 1}}) {
    for (const std::int64_t stride : {1, 2}) {
      const std::string channels = std::to_string(many[1]);
      GraphBuilder b("main");
      const Value x = b.input(tensor(f32, {"1", "7", "6", channels.c_str()}), "x");
      b.output(b.emit("relu", {emit(b, x, {.sizes = many, .strides = {stride, stride}})}));
      const ir::Graph graph = b.finish();
      EXPECT_THAT(ops_of(jit::convs_as_products(graph, with_library())), Contains("matmul"));
      EXPECT_THAT(ops_of(jit::convs_as_products(graph, narrow)), Contains("matmul"));
      expect_program_right(graph, jit::lower(graph, narrow), random_arguments(graph, {}), {}, 1e-4);
    }
  }
  for (const Ints& few : {Ints{32, 8, 1, 1}, {24, 64, 1, 1}, {32, 16, 3, 3}}) {
    const std::string channels = std::to_string(few[1]);
    GraphBuilder b("main");
    b.output(emit(b, b.input(tensor(f32, {"1", "7", "6", channels.c_str()}), "x"), {.sizes = few}));
    const ir::Graph graph = b.finish();
    EXPECT_TRUE(jit::convs_as_products(graph, narrow).identical(graph)) << few[0];
  }
}

jit::LowerOptions for_cuda() {
  return {.target = jit::LowerOptions::Target::Cuda, .rest = {.library = false}};
}

/// Channels are rows of the weights and of each image, wherever weights come from.
TEST(ConvProducts, OfEachImageOnCuda) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f16, {"s0", "64", "s1", "s2"}), "x");
  b.output(emit(b, x, {.dtype = f16, .fixed = false, .channels_last = false}));
  b.output(
      emit(b, x, {.sizes = {96, 64, 1, 1}, .dtype = f16, .biased = false, .channels_last = false}));
  const ir::Graph products = jit::convs_as_products(b.finish(), for_cuda());
  EXPECT_THAT(ops_of(products),
              ElementsAre("input", "input", "const", "reshape", "reshape", "matmul", "reshape",
                          "reshape", "add", "const", "reshape", "reshape", "matmul", "reshape"));
  EXPECT_EQ(products.outputs()[0].meta().to_string(), "f16[s0, 128, s1, s2]");
  EXPECT_EQ(products.outputs()[1].node->input(0).meta().to_string(), "f16[s0, 96, s1*s2]");
}

TEST(ConvProducts, LeavesOthersOnCuda) {
  const Conv others[] = {{.sizes = {128, 64, 1, 3}, .pads = {0, 1}, .channels_last = false},
                         {.strides = {1, 2}, .channels_last = false},
                         {.pads = {1, 0}, .channels_last = false},
                         {.sizes = {128, 32, 1, 1}, .groups = 2, .channels_last = false},
                         {.dtype = f64, .channels_last = false}};
  for (const Conv& other : others) {
    GraphBuilder b("main");
    b.output(emit(b, b.input(tensor(other.dtype, {"1", "64", "s0", "6"}), "x"), other));
    const ir::Graph graph = b.finish();
    EXPECT_TRUE(jit::convs_as_products(graph, for_cuda()).identical(graph));
  }
  GraphBuilder b("main");
  b.output(emit(b, b.input(tensor(f32, {"1", "64", "s0", "6"}), "x"), {.channels_last = false}));
  const ir::Graph graph = b.finish();
  jit::LowerOptions alone = for_cuda();
  alone.rest.fuse = false;
  EXPECT_TRUE(jit::convs_as_products(graph, alone).identical(graph)) << "one kernel a node";
}

}  // namespace
}  // namespace heddle::test
