// Products and convolutions of dequantised tensors run as products of bytes, within the rounding that is stated.
#include "jit/lower/quantised_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "ir/text.h"
#include "jit/lower/byte_products.h"
#include "tests/jit/nests_support.h"
#include "tests/support/nightly.h"

namespace heddle::test {
namespace {

using ir::Dims;
using ir::GraphBuilder;
using ir::Value;
using testing::any_bytes;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// Of each product a rounding of the exact sum, of the scales and of the result.
constexpr double kTolerance = 1e-6;

/// What DequantizeLinear is. Parts that are undefined are left out.
Value dequantised(GraphBuilder& b, Value bytes, Value zero, Value scale) {
  Value wide = b.emit("convert", {bytes}, {{"dtype", i32}});
  if (zero) wide = b.emit("sub", {wide, b.emit("convert", {zero}, {{"dtype", i32}})});
  return b.emit("mul", {b.emit("convert", {wide}, {{"dtype", f32}}), scale});
}

/// Positive numbers below 1/64.
ir::Literal scales(const Ints& sizes) {
  ir::Literal literal(f32, sizes);
  for (std::int64_t k = 0; k < literal.count(); ++k)
    literal.set(k, static_cast<float>(k % 7 + 1) / 512);
  return literal;
}

struct Quantised {
  DType left = u8;
  DType right = i8;
  std::optional<ir::Literal> left_zero = ir::Literal::scalar_int(u8, 117);
  std::optional<ir::Literal> right_zero{};
  ir::Literal left_scale = ir::Literal::scalar(f32, 0.03);
  ir::Literal right_scale = scales({70});
  std::int64_t depth = 96;
  std::int64_t columns = 70;
  bool fixed = true;
};

Value optional_constant(GraphBuilder& b, const std::optional<ir::Literal>& literal) {
  return literal ? b.constant(*literal) : Value();
}

ir::Graph product(const Quantised& q) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(q.left, {"s0", std::to_string(q.depth).c_str()}), "x");
  const Value left = dequantised(b, x, optional_constant(b, q.left_zero), b.constant(q.left_scale));
  const ir::Literal weights = any_bytes(q.right, {q.depth, q.columns}, 7);
  const Value w = q.fixed ? b.constant(weights)
                          : b.input(ir::TensorMeta::of(q.right, {q.depth, q.columns}), "w");
  const Value right =
      dequantised(b, w, optional_constant(b, q.right_zero), b.constant(q.right_scale));
  b.output(b.emit("relu", {b.emit("matmul", {left, right})}));
  return b.finish();
}

void expect_bytes_right(const ir::Graph& graph, const std::vector<ir::Literal>& arguments,
                        double tolerance = kTolerance) {
  EXPECT_THAT(kernels(graph), Contains(HasSubstr("packed_int8_")));
  expect_program_right(graph, lowered(graph), arguments, {}, tolerance);
#if HEDDLE_WITH_LLVM
  expect_program_right(graph, lowered(graph), arguments, {.runner = run_as_code}, tolerance);
#endif
}

TEST(QuantisedProducts, AreProductsOfBytesForAllDTypesScalesAndZeroPoints) {
  for (const DType left : {u8, i8}) {
    for (const DType right : {i8, u8}) {
      for (const bool by_column : {true, false}) {
        Quantised q{.left = left, .right = right, .left_zero = {}};
        if (!by_column) q.right_scale = ir::Literal::scalar(f32, 0.02);
        SCOPED_TRACE(std::string(name_of(left)) + " x " + std::string(name_of(right)));
        const std::vector<ir::Literal> arguments{any_bytes(left, {5, q.depth}, 3)};
        expect_bytes_right(product(q), arguments);
        q.left_zero = ir::Literal::scalar_int(left, 101);
        expect_bytes_right(product(q), arguments);
        q.right_zero = by_column ? any_bytes(right, {q.columns}, 5) : any_bytes(right, {1}, 5);
        expect_bytes_right(product(q), arguments);
      }
    }
  }
}

TEST(QuantisedProducts, OfRowsThatAreScaledEachByItself) {
  Quantised q{.left_scale = scales({5, 1})};
  q.left_zero = any_bytes(u8, {5, 1}, 5);
  expect_bytes_right(product(q), {any_bytes(u8, {5, q.depth}, 3)});
}

/// What QuantizeLinear is.
Value quantised(GraphBuilder& b, Value x, Value zero, Value scale) {
  const Value steps = b.emit("round", {b.emit("div", {x, scale})});
  const Value moved = b.emit("add", {steps, b.emit("convert", {zero}, {{"dtype", f32}})});
  const Value cut = b.emit("clamp", {moved, b.scalar(f32, 0), b.scalar(f32, 255)});
  return b.emit("convert", {cut}, {{"dtype", u8}});
}

/// Everything between two products is one kernel: the sums become bytes again before they reach memory.
TEST(QuantisedProducts, GoOnAsBytes) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(u8, {"s0", "96"}), "x");
  const Value zero = b.constant(ir::Literal::scalar_int(u8, 128));
  const Value scale = b.constant(ir::Literal::scalar(f32, 0.04));
  Value bytes = x;
  for (const std::uint64_t seed : {1u, 2u}) {
    const Value w =
        dequantised(b, b.constant(any_bytes(i8, {96, 96}, seed)), {}, b.constant(scales({96})));
    bytes = quantised(b, b.emit("matmul", {dequantised(b, bytes, zero, scale), w}), zero, scale);
  }
  b.output(bytes);
  const ir::Graph graph = b.finish();
  const std::vector<std::string> names = kernels(graph);
  EXPECT_EQ(
      std::ranges::count_if(
          names, [](const std::string& name) { return name.starts_with("packed_int8_matmul"); }),
      2);
  const jit::Program program = lowered(graph);
  for (std::size_t k = 0; k < names.size(); ++k) {
    if (!names[k].starts_with("packed_int8_matmul")) continue;
    for (const ir::BufferId buffer : program.record.steps[k].writes)
      EXPECT_EQ(program.record.buffers[buffer].dtype, u8);
  }
  // A sum on the edge between two steps may go either way, and the second product spreads it.
  expect_program_right(graph, program, {any_bytes(u8, {5, 96}, 3)}, {}, 1.01 / 255);
}

/// Of what lies in memory between kernels nothing has more bytes: what a product makes is stored after it was quantised where it is
/// turned next, and what was quantised is read as such again.
TEST(QuantisedProducts, StayBytesWhereTheyAreTurned) {
  GraphBuilder b("main");
  const Value zero = b.constant(ir::Literal::scalar_int(u8, 128));
  const Value scale = b.constant(ir::Literal::scalar(f32, 0.04));
  const Value x = quantised(b, b.input(tensor(f32, {"40", "96"}), "x"), zero, scale);
  const Value w =
      dequantised(b, b.constant(any_bytes(i8, {96, 96}, 1)), {}, b.constant(scales({96})));
  const Value again = dequantised(b, x, zero, scale);
  const Value sums = quantised(b, b.emit("matmul", {again, w}), zero, scale);
  const Value both = b.emit("add", {dequantised(b, sums, zero, scale), again});
  const Value turned =
      b.emit("permute", {dequantised(b, quantised(b, both, zero, scale), zero, scale)},
             {{"perm", Ints{1, 0}}});
  b.output(b.emit("clone", {turned}));
  const ir::Graph graph = b.finish();
  const jit::Program program = lowered(graph);
  std::set<DType> between;
  for (const ir::PlanBuffer& buffer : program.record.buffers)
    if (buffer.role == ir::PlanBuffer::Role::Intermediate && buffer.sizes == Dims{40, 96})
      between.insert(buffer.dtype);
  EXPECT_EQ(between, std::set<DType>{u8});
  EXPECT_THAT(kernels(graph).back(), Not(HasSubstr("packed")));
  expect_program_right(graph, program, {random_literal(f32, {40, 96}, 3)}, as_code(), 1.01 / 255);
}

/// Rows of the left operand that are neighbours in memory are put together in vectors of them; depths that end within a group, too.
TEST(QuantisedProducts, OfRowsThatLieAcross) {
  for (const std::int64_t depth : {96, 97, 390}) {
    GraphBuilder b("main");
    const Value x = b.input(tensor(u8, {std::to_string(depth).c_str(), "s0"}), "x");
    const Value left = dequantised(b, x, b.constant(ir::Literal::scalar_int(u8, 117)),
                                   b.constant(ir::Literal::scalar(f32, 0.03)));
    const Value w =
        dequantised(b, b.constant(any_bytes(i8, {depth, 70}, 7)), {}, b.constant(scales({70})));
    b.output(b.emit("matmul", {b.emit("permute", {left}, {{"perm", Ints{1, 0}}}), w}));
    const ir::Graph graph = b.finish();
    // The copy has a group of each row behind the other, not row behind row of 96 groups.
    const std::string text = nests_of(lowered(graph));
    EXPECT_EQ(text.find("[384*i"), std::string::npos) << text;
    for (const std::int64_t rows : {1, 5, 33, 64}) {
      SCOPED_TRACE(::testing::Message() << depth << " deep, " << rows << " rows");
      const std::vector<ir::Literal> arguments{any_bytes(u8, {depth, rows}, 3)};
      expect_bytes_right(graph, arguments);
      for (const std::int64_t vector_bytes : {32, 16})
        expect_program_right(graph, lowered(graph), arguments, as_code_of(vector_bytes),
                             kTolerance);
    }
  }
}

/// What several read is kept as bytes, as a residual is, which each of them makes numbers of.
TEST(QuantisedProducts, StayBytesWhereSeveralReadThem) {
  GraphBuilder b("main");
  const Value zero = b.constant(ir::Literal::scalar_int(u8, 128));
  const Value scale = b.constant(ir::Literal::scalar(f32, 0.04));
  const auto layer = [&](Value numbers, std::uint32_t seed) {
    const Value w =
        dequantised(b, b.constant(any_bytes(i8, {96, 96}, seed)), {}, b.constant(scales({96})));
    return dequantised(b, quantised(b, b.emit("matmul", {numbers, w}), zero, scale), zero, scale);
  };
  const auto sum = [&](Value x, Value y) {
    return dequantised(b, quantised(b, b.emit("add", {x, y}), zero, scale), zero, scale);
  };
  const Value x = b.input(tensor(u8, {"40", "96"}), "x");
  const Value first = layer(dequantised(b, x, zero, scale), 1);
  const Value both = sum(first, dequantised(b, x, zero, scale));
  const Value last = sum(layer(b.emit("tanh", {both}), 2), both);
  b.output(last);
  const ir::Graph graph = b.finish();
  const jit::Program program = lowered(graph);
  std::size_t wide = 0;
  for (const ir::PlanBuffer& buffer : program.record.buffers)
    wide += buffer.role == ir::PlanBuffer::Role::Intermediate && buffer.sizes == Dims{40, 96} &&
                    buffer.dtype != u8
                ? 1
                : 0;
  EXPECT_EQ(wide, 1u) << "what the tanh gives";
  expect_program_right(graph, program, {any_bytes(u8, {40, 96}, 3)}, as_code(), 0.01);
}

/// As a layer keeps its weights whose inputs run along the last dimension.
TEST(QuantisedProducts, OfWeightsThatAreTurned) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(u8, {"2", "s0", "96"}), "x");
  const Value left = dequantised(b, x, b.constant(ir::Literal::scalar_int(u8, 3)),
                                 b.constant(ir::Literal::scalar(f32, 0.03)));
  const Value w = dequantised(b, b.constant(any_bytes(i8, {70, 96}, 7)),
                              b.constant(any_bytes(i8, {70, 1}, 8)), b.constant(scales({70, 1})));
  const Value turned = b.emit("permute", {w}, {{"perm", Ints{1, 0}}});
  b.output(b.emit("matmul", {left, turned}));
  expect_bytes_right(b.finish(), {any_bytes(u8, {2, 5, 96}, 3)});
}

struct Conv {
  Ints weights{72, 32, 3, 3}, strides{1, 1}, low{1, 1}, high{1, 1}, dilations{1, 1};
  bool channels_last = true, biased = true, integers = false, zeros = true;
  std::int64_t groups = 1;
  DType dtype = i8;  ///< of the weights
};

ir::Graph convolution(const Conv& c) {
  GraphBuilder b("main");
  const std::string channels = std::to_string(c.weights[1] * c.groups);
  const Value x = c.channels_last ? b.input(tensor(u8, {"2", "s0", "s1", channels.c_str()}), "x")
                                  : b.input(tensor(u8, {"2", channels.c_str(), "s0", "s1"}), "x");
  const Value w = b.constant(any_bytes(c.dtype, c.weights, 7));
  const Value x_zero = c.zeros ? b.constant(ir::Literal::scalar_int(u8, 117)) : Value();
  const Value w_zero =
      c.zeros ? b.constant(any_bytes(c.dtype, {c.weights[0], 1, 1, 1}, 9)) : Value();
  const auto operand = [&](Value bytes, Value zero, const ir::Literal& scale) {
    if (!c.integers) return dequantised(b, bytes, zero, b.constant(scale));
    const Value wide = b.emit("convert", {bytes}, {{"dtype", i32}});
    return zero ? b.emit("sub", {wide, b.emit("convert", {zero}, {{"dtype", i32}})}) : wide;
  };
  std::vector<Value> operands{operand(x, x_zero, ir::Literal::scalar(f32, 0.03)),
                              operand(w, w_zero, scales({c.weights[0], 1, 1, 1}))};
  if (c.biased) operands.push_back(b.constant(random_literal(f32, {c.weights[0]}, 8)));
  b.output(b.call("conv", operands,
                  {{"strides", c.strides},
                   {"pads_low", c.low},
                   {"pads_high", c.high},
                   {"dilations", c.dilations},
                   {"groups", c.groups},
                   {"channels_last", c.channels_last}})
               ->value());
  return b.finish();
}

TEST(QuantisedProducts, ConvolutionsOfAllKinds) {
  const Conv convs[] = {
      {},
      {.zeros = false},
      {.channels_last = false},
      {.strides = {2, 3}, .low = {0, 2}, .high = {1, 0}},
      {.weights = {72, 32, 2, 3}, .dilations = {3, 2}, .biased = false},
      {.weights = {72, 64, 1, 1}, .low = {0, 0}, .high = {0, 0}},
      {.weights = {72, 64, 1, 1}, .strides = {2, 2}, .low = {0, 0}, .high = {0, 0}},
      {.weights = {72, 64, 1, 1}, .channels_last = false}};
  for (Conv c : convs) {
    for (const bool integers : {false, true}) {
      c.integers = integers;
      if (integers) c.biased = false;
      const ir::Graph graph = convolution(c);
      for (const auto& [height, width] : {std::pair<std::int64_t, std::int64_t>{7, 9}}) {
        SCOPED_TRACE(::testing::Message() << "kernel " << c.weights[2] << " x " << c.weights[3]
                                          << ", integers " << integers << ", height " << height);
        const std::int64_t channels = c.weights[1];
        const Ints sizes =
            c.channels_last ? Ints{2, height, width, channels} : Ints{2, channels, height, width};
        expect_bytes_right(graph, {any_bytes(u8, sizes, 3)}, integers ? 0 : kTolerance);
      }
    }
  }
}

/// Windows are in memory nowhere: the zero points of weights need sums of a window's bytes only.
TEST(QuantisedProducts, ReadWindowsInPlace) {
  const auto of = [](const Conv& c) { return kernels(convolution(c)); };
  const Conv plain{.biased = false, .zeros = false};
  EXPECT_THAT(of(plain), ElementsAre("clone", "mul", "packed_int8_conv_convert_mul"));
  Conv turned = plain;
  turned.channels_last = false;
  EXPECT_THAT(of(turned), ElementsAre("clone", "clone", "packed_int8_conv", "mul", "permute"));
  Conv strided{.weights = {72, 64, 1, 1},
               .strides = {2, 2},
               .low = {0, 0},
               .high = {0, 0},
               .biased = false,
               .zeros = false};
  EXPECT_THAT(of(strided), ElementsAre("clone", "mul", "packed_int8_conv_convert_mul"));
  EXPECT_THAT(of({}), Contains(HasSubstr("packed_int8_conv")));
  EXPECT_THAT(of({.dtype = u8}), Contains(HasSubstr("packed_int8_conv")));
  EXPECT_THAT(of({.dtype = u8}), Not(Contains(HasSubstr("concat"))));
}

/// Depths that fill no whole group, padding all around, windows without any element of x, many columns, and few rows.
TEST(QuantisedProducts, WindowsOfEveryPlace) {
  const Conv convs[] = {
      {.weights = {150, 17, 3, 3}, .low = {2, 2}, .high = {2, 2}, .zeros = false},
      {.weights = {72, 32, 3, 3}, .low = {4, 5}, .high = {4, 4}, .zeros = false},
      {.weights = {72, 32, 1, 3}, .low = {0, 1}, .high = {0, 1}, .zeros = false},
      {.weights = {72, 3, 7, 7}, .strides = {2, 2}, .low = {3, 3}, .high = {2, 3}, .zeros = false},
      {.weights = {72, 32, 3, 3}, .strides = {2, 2}, .zeros = false},
      {.weights = {72, 32, 3, 3},
       .low = {3, 3},
       .high = {3, 3},
       .dilations = {3, 3},
       .zeros = false},
      {.weights = {72, 32, 3, 3}, .channels_last = false, .zeros = false}};
  std::vector<Conv> all(std::begin(convs), std::end(convs));
  for (Conv c : convs) {
    c.zeros = true;
    c.dtype = u8;
    all.push_back(c);
  }
  for (const Conv& c : all) {
    const ir::Graph graph = convolution(c);
    EXPECT_THAT(kernels(graph), Contains(HasSubstr("packed_int8_conv")));
    for (const auto& [height, width] :
         few_by_day<std::pair<std::int64_t, std::int64_t>>({{7, 9}, {13, 6}}, 2, c.zeros ? 1 : 0)) {
      SCOPED_TRACE(::testing::Message() << c.weights[1] << " channels, " << height << " rows");
      const Ints sizes = c.channels_last ? Ints{2, height, width, c.weights[1]}
                                         : Ints{2, c.weights[1], height, width};
      expect_bytes_right(graph, {any_bytes(u8, sizes, 3)});
    }
  }
}

TEST(QuantisedProducts, LeaveOthers) {
  const auto stays = [](const ir::Graph& graph) {
    return jit::quantised_products(graph, {}).identical(graph);
  };
  EXPECT_FALSE(stays(product({})));
  EXPECT_TRUE(stays(product({.fixed = false}))) << "weights that vary";
  EXPECT_TRUE(stays(product({.depth = 3}))) << "few weights";
  EXPECT_FALSE(
      stays(product({.right_scale = ir::Literal::scalar(f32, 1), .depth = 33025, .columns = 1})));
  EXPECT_TRUE(
      stays(product({.right_scale = ir::Literal::scalar(f32, 1), .depth = 33026, .columns = 1})))
      << "sums beyond i32";
  EXPECT_TRUE(stays(product({.left_scale = scales({96})}))) << "scales along the depth";
  EXPECT_TRUE(stays(product({.right_scale = scales({96, 1})}))) << "scales along the depth";
  EXPECT_TRUE(stays(product({.left_zero = any_bytes(u8, {96}, 4)})))
      << "zero points along the depth";
  EXPECT_TRUE(stays(convolution({.weights = {72, 32, 3, 3}, .groups = 2})));
  EXPECT_TRUE(stays(convolution({.weights = {96, 1, 3, 3}}))) << "few channels";
  EXPECT_TRUE(stays(convolution({.weights = {72, 32, 7, 7}}))) << "many taps";
}

/// As one instruction multiplies four, or matrix registers 64, more taps are worth it.
TEST(QuantisedProducts, OfManyTapsWhereGroupsOfBytesAreMultiplied) {
  const ir::Graph many = convolution({.weights = {72, 32, 7, 7}});
  const ir::Graph too_many = convolution({.weights = {72, 32, 10, 10}});
  for (const jit::LowerOptions& options :
       {jit::LowerOptions{.byte_dot = true}, jit::LowerOptions{.amx = true}}) {
    EXPECT_FALSE(jit::quantised_products(many, options).identical(many));
    EXPECT_TRUE(jit::quantised_products(too_many, options).identical(too_many));
  }
}

TEST(QuantisedProducts, OnCudaTheyAreProductsOfBytes) {
  jit::LowerOptions cuda;
  cuda.target = jit::LowerOptions::Target::Cuda;
  const ir::Graph graph = convolution({});
  EXPECT_TRUE(jit::quantised_products(graph, cuda).identical(graph)) << "weights with zero points";
  const std::string text =
      ir::print(jit::byte_products(jit::quantised_products(product({}), cuda), cuda));
  EXPECT_THAT(text, HasSubstr("int8_matmul("));
  EXPECT_THAT(text, Not(HasSubstr(" matmul(")));
}

}  // namespace
}  // namespace heddle::test
