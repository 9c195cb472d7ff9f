// Products and convolutions of bytes that become bytes again, without a division.
#include "jit/lower/requantise.h"

#include <algorithm>
#include <cstdlib>
#include <gmock/gmock.h>
#include <limits>
#include <optional>

#include "ir/evaluate.h"
#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

using ir::GraphBuilder;
using ir::Value;
using testing::any_bytes;
using ::testing::HasSubstr;
using ::testing::Not;

Value constant_of(GraphBuilder& b, double number) {
  return b.constant(ir::Literal::scalar(f32, number));
}

/// What DequantizeLinear and QuantizeLinear are, of u8.
Value numbers_of(GraphBuilder& b, Value bytes, std::int64_t zero, Value scale) {
  Value wide = b.emit("convert", {bytes}, {{"dtype", i32}});
  if (zero != 0) wide = b.emit("sub", {wide, b.constant(ir::Literal::scalar_int(i32, zero))});
  return b.emit("mul", {b.emit("convert", {wide}, {{"dtype", f32}}), scale});
}
Value bytes_of(GraphBuilder& b, Value x, double zero, double scale) {
  Value y = b.emit("round", {b.emit("div", {x, constant_of(b, scale)})});
  y = b.emit("clamp",
             {b.emit("add", {y, constant_of(b, zero)}), constant_of(b, 0), constant_of(b, 255)});
  return b.emit("convert", {y}, {{"dtype", u8}});
}

struct Layer {
  Ints weights{72, 32, 3, 3};
  std::int64_t groups = 1, zero = 117;
  Ints strides{1, 1}, pads{1, 1};
  bool biased = true, relu = false, by_channel = true, read_twice = false;
  double scale = 0.07;  ///< of the result
  double x_scale = 0.03;
  std::vector<const char*> sizes{"2", "7", "9"};
  std::optional<double> least{}, most{};  ///< what the result is clamped to before
};

/// A convolution of bytes, whose result becomes bytes.
ir::Graph graph_of(const Layer& layer) {
  GraphBuilder b("main");
  ir::Dims sizes;
  for (const char* size : layer.sizes) sizes.push_back(base::parse_symexpr(size));
  sizes.push_back(layer.weights[1] * layer.groups);
  const Value x = b.input(ir::TensorMeta::of(u8, sizes), "x");
  ir::Literal scales(f32, {layer.by_channel ? layer.weights[0] : 1, 1, 1, 1});
  for (std::int64_t k = 0; k < scales.count(); ++k)
    scales.set(k, static_cast<float>(k % 7 + 1) / 512);
  const Value w = numbers_of(b, b.constant(any_bytes(i8, layer.weights, 7)), 0, b.constant(scales));
  std::vector<Value> operands{numbers_of(b, x, layer.zero, constant_of(b, layer.x_scale)), w};
  if (layer.biased) operands.push_back(b.constant(random_literal(f32, {layer.weights[0]}, 8)));
  Value y = b.call("conv", operands,
                   {{"strides", layer.strides},
                    {"pads_low", layer.pads},
                    {"pads_high", layer.pads},
                    {"dilations", Ints{1, 1}},
                    {"groups", layer.groups},
                    {"channels_last", true}})
                ->value();
  if (layer.relu) y = b.emit("relu", {y});
  const auto bound = [&](std::optional<double> number) {
    return number ? constant_of(b, *number) : Value();
  };
  if (layer.least || layer.most) y = b.emit("clamp", {y, bound(layer.least), bound(layer.most)});
  b.output(bytes_of(b, y, layer.relu ? 0 : 131, layer.scale));
  if (layer.read_twice) b.output(b.emit("neg", {y}));
  return b.finish();
}

/// A sum next to the middle of two bytes may become either: few do, and none any other.
void expect_bytes_near(const ir::Graph& graph, const jit::Program& program,
                       const std::vector<ir::Literal>& arguments, const RunOptions& options) {
  SCOPED_TRACE(nests_of(program));
  const ir::Literal want = ir::evaluate(graph, arguments).front();
  const ir::Literal got = run_program(graph, program, arguments, options).front();
  ASSERT_EQ(got.sizes(), want.sizes());
  std::int64_t others = 0;
  for (std::int64_t k = 0; k < want.count(); ++k) {
    ASSERT_LE(std::abs(got.at_int(k) - want.at_int(k)), 1) << "element " << k;
    others += got.at_int(k) != want.at_int(k) ? 1 : 0;
  }
  EXPECT_LE(others, 1 + want.count() / 500) << "of " << want.count();
}

void expect_no_division(const Layer& layer, const Ints& sizes = {2, 7, 9}) {
  const ir::Graph graph = graph_of(layer);
  const jit::Program program = lowered(graph);
  // Others are scales and biases, divided once, when the weights are made ready.
  for (const auto& kernel : program.kernels) {
    if (kernel.nest->name.find("conv") == std::string::npos) continue;
    EXPECT_THAT(jit::print(*kernel.nest), Not(HasSubstr("div(%")));
  }
  Ints all = sizes;
  all.push_back(layer.weights[1] * layer.groups);
  const std::vector<ir::Literal> arguments{any_bytes(u8, all, 3)};
  expect_bytes_near(graph, program, arguments, {});
  for (const std::int64_t vector_bytes : {64, 32, 16})
    expect_bytes_near(graph, program, arguments, as_code_of(vector_bytes));
}

TEST(Requantise, ProductsAreScaledByQuotients) {
  for (const bool biased : {true, false})
    for (const bool relu : {true, false})
      for (const bool by_channel : {true, false})
        expect_no_division({.biased = biased, .relu = relu, .by_channel = by_channel});
}

TEST(Requantise, BehindBoundsOfOneSideOrTwo) {
  expect_no_division({.least = -1.5});
  expect_no_division({.most = 2.5});
  expect_no_division({.least = -1.5, .most = 2.5});
}

TEST(Requantise, AlsoOfOneElementAndOfSizesThatAreNotKnown) {
  expect_no_division({.weights = {72, 64, 1, 1}, .pads = {0, 0}});
  expect_no_division({.sizes = {"s0", "s1", "s2"}}, {2, 7, 9});
}

/// Of each channel by itself: x's scale is in the weights, too, and its bytes are read where its numbers would lie.
TEST(Requantise, OfEachChannelByItself) {
  const auto each = [](Layer layer, std::int64_t channels = 40) {
    layer.weights[0] = layer.groups = channels;
    layer.weights[1] = 1;
    return layer;
  };
  const Layer layers[] = {each({}), each({.zero = 0}), each({.biased = false, .relu = true}),
                          each({.by_channel = false}), each({.strides = {2, 2}}),
                          each({.weights = {0, 0, 5, 5}, .pads = {2, 2}}), each({.pads = {0, 0}}),
                          each({.sizes = {"s0", "s1", "s2"}}),
                          // Its parts are copied first, as numbers.
                          each({.weights = {0, 0, 5, 5}, .pads = {2, 2}}, 256)};
  for (const Layer& layer : layers) {
    SCOPED_TRACE(::testing::Message() << layer.groups << " channels, zero point " << layer.zero
                                      << ", kernel " << layer.weights[2]);
    expect_no_division(layer);
    const jit::Program program = lowered(graph_of(layer));
    std::int64_t largest = 0;  // f32 that is read: weights
    for (const auto& kernel : program.kernels) {
      if (!kernel.nest->name.starts_with("conv_")) continue;
      EXPECT_TRUE(kernel.nest->buffers.back().dtype == u8 ||
                  kernel.nest->buffers.back().scope == jit::NestBuffer::Scope::Local);
      for (const jit::NestBuffer& buffer : kernel.nest->buffers)
        if (buffer.dtype == f32 && buffer.scope == jit::NestBuffer::Scope::Global)
          largest = std::max(largest, buffer.count.as_constant().value_or(1 << 30));
    }
    EXPECT_EQ(largest, layer.groups * layer.weights[2] * layer.weights[3]);
  }
}

TEST(Requantise, OfFewChannels) {
  expect_no_division({.weights = {32, 3, 3, 3}, .strides = {2, 2}});
  expect_no_division({.weights = {32, 1, 3, 3}, .zero = 0});
}

TEST(Requantise, LeavesWhatOthersReadAndWhatIsNoScale) {
  const auto divides = [](const Layer& layer) {
    return nests_of(lowered(graph_of(layer))).find("= div(") != std::string::npos;
  };
  const Layer single{.biased = false, .by_channel = false};
  EXPECT_FALSE(divides(single));
  for (const double scale : {0.0, -0.25, 0x1p61, 0x1p-61}) {
    Layer other = single;
    other.scale = scale;
    EXPECT_TRUE(divides(other)) << scale;
  }
  Layer each = single;
  each.weights = {40, 1, 3, 3};
  each.groups = 40;
  EXPECT_FALSE(divides(each));
  for (const double scale : {0x1p61, std::numeric_limits<double>::infinity()}) {
    each.x_scale = scale;
    EXPECT_TRUE(divides(each)) << scale << " times the zeros beside x";
  }
  Layer twice = single;
  twice.read_twice = true;
  EXPECT_TRUE(divides(twice));
  const ir::Graph graph = graph_of(single);
  const jit::LowerOptions cuda{.target = jit::LowerOptions::Target::Cuda};
  EXPECT_TRUE(jit::requantise(graph, cuda).identical(graph));
}

}  // namespace
}  // namespace heddle::test
