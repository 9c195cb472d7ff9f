// Products of bytes converted to i32, with constant weights, run as packed bytes with the same results.
#include "jit/lower/byte_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/text.h"
#include "jit/lower/pack_weights.h"
#include "tests/jit/nests_support.h"
#include "tests/support/nightly.h"

namespace heddle::test {
namespace {

using ir::GraphBuilder;
using ir::Value;
using testing::any_bytes;
using ::testing::ElementsAre;

const jit::LowerOptions kCuda{.target = jit::LowerOptions::Target::Cuda};

struct Quantised {
  DType left = u8;
  DType right = i8;
  std::optional<ir::Literal> left_zero;  ///< given at run time
  std::optional<ir::Literal> right_zero;
  std::int64_t depth = 96;
  std::int64_t columns = 70;
};

Value centred(GraphBuilder& b, Value bytes, Value zero) {
  const Value wide = b.emit("convert", {bytes}, {{"dtype", i32}});
  if (!zero) return wide;
  return b.emit("sub", {wide, b.emit("convert", {zero}, {{"dtype", i32}})});
}

/// x [s0, depth] times weights; the zero point of x is an input.
ir::Graph product(const Quantised& q) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(q.left, {"s0", std::to_string(q.depth).c_str()}), "x");
  Value left_zero;
  if (q.left_zero)
    left_zero = b.input(ir::TensorMeta::of(
        q.left, ir::Dims(q.left_zero->sizes().begin(), q.left_zero->sizes().end())));
  Value right_zero;
  if (q.right_zero) right_zero = b.constant(*q.right_zero);
  const Value w = b.constant(any_bytes(q.right, {q.depth, q.columns}, 7));
  b.output(b.emit("matmul", {centred(b, x, left_zero), centred(b, w, right_zero)}));
  return b.finish();
}

void expect_exact(const Quantised& q, std::int64_t rows) {
  SCOPED_TRACE(std::string(name_of(q.left)) + " x " + std::string(name_of(q.right)) + ", rows " +
               std::to_string(rows) + ", depth " + std::to_string(q.depth));
  const ir::Graph graph = product(q);
  std::vector<ir::Literal> arguments{any_bytes(q.left, {rows, q.depth}, 3)};
  if (q.left_zero) arguments.push_back(*q.left_zero);
  expect_program_right(graph, lowered(graph), arguments, {}, 0);
#if HEDDLE_WITH_LLVM
  expect_program_right(graph, lowered(graph), arguments, {.runner = run_as_code}, 0);
#endif
}

std::vector<std::string> calls_of(const ir::Graph& graph) {
  std::vector<std::string> ops;
  for (const ir::NodePtr& node : graph.nodes())
    if (!node->inputs().empty()) ops.emplace_back(node->op_name());
  return ops;
}

TEST(ByteProducts, AreExactForAllDTypesAndZeroPoints) {
  for (const DType left : {u8, i8}) {
    for (const DType right : {i8, u8}) {
      Quantised q{.left = left, .right = right};
      expect_exact(q, 5);
      q.left_zero = ir::Literal::scalar_int(left, 101);
      expect_exact(q, 5);
      q.right_zero = ir::Literal::scalar_int(right, 77);
      expect_exact(q, 5);
      q.right_zero = any_bytes(right, {q.columns}, 5);
      expect_exact(q, 5);
      q.left_zero = any_bytes(left, {5, 1}, 5);
      expect_exact(q, 5);
      q.left_zero = std::nullopt;
      expect_exact(q, 5);
    }
  }
}

/// As on a processor with AVX2 and without an instruction for groups of bytes. Whether sums of two products fit 16 bits depends on the
/// weights, and kernels ask: 255 * 127 * 2 does not, 255 * 64 * 2 does.
TEST(ByteProducts, AreExactByPairs) {
  const jit::LowerOptions pairs{.vector_bytes = 32};
  for (const std::int64_t most : {127, 64})
    for (const DType right : {i8, u8})
      for (const std::int64_t depth : {33, 96, 390})
        for (const std::int64_t rows :
             few_by_day<std::int64_t>({1, 5, 33}, 3, static_cast<std::size_t>(depth + most) / 3)) {
          GraphBuilder b("main");
          const Value x = b.input(tensor(u8, {"s0", std::to_string(depth).c_str()}), "x");
          const Value zero = b.input(tensor(u8, {}), "zero");
          ir::Literal weights = any_bytes(right, {depth, 70}, 7);
          const std::int64_t middle = right == u8 ? 128 : 0;
          for (std::int64_t k = 0; k < weights.count(); ++k) {
            const std::int64_t number = (weights.at_int(k) - middle) * most / 127;
            weights.set_int(k, middle + (k % 5 == 0 ? most : std::max(-most, number)));
          }
          const Value w = b.constant(weights);
          const Value of_weights = b.constant(ir::Literal::scalar_int(right, middle));
          b.output(b.emit("matmul", {centred(b, x, zero), centred(b, w, of_weights)}));
          const ir::Graph graph = b.finish();
          ir::Literal bytes = any_bytes(u8, {rows, depth}, 3);
          for (std::int64_t k = 0; k < bytes.count(); k += 2 + k % 3) bytes.set_int(k, 255);
          const std::vector<ir::Literal> arguments{bytes, ir::Literal::scalar_int(u8, 101)};
          const jit::Program program = jit::lower(graph, pairs);
          EXPECT_THAT(nests_of(program), ::testing::HasSubstr("of pairs that fit i16"));
          if (rows == 5) expect_program_right(graph, program, arguments, {}, 0);
#if HEDDLE_WITH_LLVM
          for (const std::int64_t vector_bytes : {16, 32})
            expect_program_right(graph, program, arguments, as_code_of(vector_bytes), 0);
#endif
        }
}

/// The first panel has few groups of pairs that do not fit, the second so many that it stays as it is.
TEST(ByteProducts, AreExactWithFewPairsThatDoNotFit) {
  const jit::LowerOptions pairs{.vector_bytes = 32};
  for (const std::int64_t depth : {96, 384})
    for (const std::int64_t rows : {1, 5, 33}) {
      GraphBuilder b("main");
      const Value x = b.input(tensor(u8, {"s0", std::to_string(depth).c_str()}), "x");
      ir::Literal weights = any_bytes(i8, {depth, 70}, 7);
      const auto set = [&](std::int64_t row, std::int64_t column, std::int64_t value) {
        weights.set_int(row * 70 + column, value);
      };
      for (std::int64_t k = 0; k < weights.count(); ++k)
        if (k % 70 < 64) weights.set_int(k, weights.at_int(k) / 2);
      for (const std::int64_t row : {8, 9, 90}) set(row, 3, 127);
      for (const std::int64_t row : {62, 63, 94, 95}) set(row, 63, -128);
      b.output(b.emit("matmul", {centred(b, x, {}), centred(b, b.constant(weights), {})}));
      const ir::Graph graph = b.finish();
      ir::Literal bytes = any_bytes(u8, {rows, depth}, 3);
      for (std::int64_t k = 0; k < bytes.count(); k += 2 + k % 3) bytes.set_int(k, 255);
      const jit::Program program = jit::lower(graph, pairs);
      EXPECT_THAT(testing::ops_of(program.graph), ::testing::Contains("split_byte_pairs"));
      if (rows == 5) expect_program_right(graph, program, {bytes}, {}, 0);
#if HEDDLE_WITH_LLVM
      for (const std::int64_t vector_bytes : {16, 32})
        expect_program_right(graph, program, {bytes}, as_code_of(vector_bytes), 0);
#endif
    }
}

TEST(ByteProducts, OfAnyShape) {
  for (const std::int64_t depth : {1, 95, 97, 384, 390, 1031}) {
    for (const std::int64_t rows : {0, 1, 33}) {
      Quantised q{.depth = depth, .columns = depth == 1 ? 4200 : 129};
      q.left_zero = ir::Literal::scalar_int(u8, 128);
      expect_exact(q, rows);
    }
  }
}

/// Bytes are multiplied as such by small matrices too, by very small ones not.
TEST(ByteProducts, OfFewWeights) {
  Quantised q{.depth = 16, .columns = 16};
  EXPECT_EQ(calls_of(jit::pack_weights(product(q), {})).back(), "packed_int8_matmul");
  expect_exact(q, 5);
  q.columns = 15;
  EXPECT_EQ(calls_of(jit::pack_weights(product(q), {})).back(), "matmul");
}

/// Nothing is summed for a zero point that is known to be 0, and what depends on the weights only is computed once.
TEST(ByteProducts, LeaveOutWhatIsZero) {
  Quantised q{};
  EXPECT_THAT(calls_of(jit::pack_weights(product(q), {})),
              ElementsAre("convert", "convert", "pad", "reshape", "permute", "clone",
                          "packed_int8_matmul"));
  q.right_zero = ir::Literal::scalar_int(i8, 0);
  EXPECT_EQ(calls_of(jit::pack_weights(product(q), {})).back(), "packed_int8_matmul");
  EXPECT_THAT(kernels(product(q)), ElementsAre("clone", "packed_int8_matmul"));
  q.left_zero = ir::Literal::scalar_int(u8, 3);
  EXPECT_THAT(kernels(product(q)),
              ElementsAre("clone", "convert_reduce_sum", "packed_int8_matmul_sub"));
}

TEST(ByteProducts, LeaveOtherOperandsAsTheyAre) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(u8, {"s0", "96"}), "x");
  const Value varying = b.input(tensor(i8, {"96", "70"}), "w");
  const Value w = b.constant(any_bytes(i8, {96, 70}));
  const Value wide = b.input(tensor(i32, {"s0", "96"}));
  const Value by_column = b.input(tensor(u8, {"96"}));
  b.output(b.emit("matmul", {centred(b, x, {}), centred(b, varying, {})}));
  b.output(b.emit("matmul", {wide, centred(b, w, {})}));
  b.output(b.emit("matmul", {centred(b, x, by_column), centred(b, w, {})}));
  const ir::Graph graph = b.finish();
  EXPECT_THAT(calls_of(jit::pack_weights(graph, {})),
              ::testing::Not(::testing::Contains(std::string("packed_int8_matmul"))));
  const ir::Graph bytes = product({});
  EXPECT_TRUE(jit::pack_weights(bytes, kCuda).identical(bytes));
  EXPECT_TRUE(jit::byte_products(bytes, {}).identical(bytes));
  expect_right_at(graph, {4}, 0);
}

/// A step of a layer of bytes: what it carries times weights, both less their zero points, scaled to bytes again.
ir::Graph step_of_bytes(const ir::TensorMeta& weights, const std::optional<ir::TensorMeta>& zero) {
  GraphBuilder b("step");
  const Value state = b.input(tensor(u8, {"2", "70"}));
  const Value slice = b.input(tensor(i32, {"2", "70"}));
  const Value w = b.input(weights);
  const Value point = zero ? b.input(*zero) : Value();
  const Value three = b.constant(ir::Literal::scalar_int(u8, 3));
  const Value product = b.emit("matmul", {centred(b, state, three), centred(b, w, point)});
  const Value sum = b.emit("add", {product, slice});
  const Value real = b.emit("mul", {b.emit("convert", {sum}, {{"dtype", f32}}),
                                    b.constant(ir::Literal::scalar(f32, 1.0 / 512))});
  const Value bounds[] = {b.constant(ir::Literal::scalar(f32, 0)),
                          b.constant(ir::Literal::scalar(f32, 255))};
  b.output(b.emit("convert", {b.emit("clamp", {real, bounds[0], bounds[1]})}, {{"dtype", u8}}));
  b.output(sum);
  return b.finish();
}

ir::Graph loop_of_bytes(DType dtype, const std::optional<ir::Literal>& zero) {
  GraphBuilder b("main");
  const Value w = b.constant(any_bytes(dtype, {70, 70}, 7));
  std::vector<Value> operands{b.input(tensor(u8, {"2", "70"})),
                              b.input(tensor(i32, {"s0", "2", "70"})), w};
  std::optional<ir::TensorMeta> point;
  if (zero) {
    operands.push_back(b.constant(*zero));
    point = operands.back().meta();
  }
  const ir::Node* scan = emit_scan(b, operands, step_of_bytes(w.meta(), point));
  for (std::uint32_t k = 0; k < 2; ++k) b.output(scan->value(k));
  return b.finish();
}

// What the body of a loop reads in each iteration is packed before it.
TEST(ByteProducts, InALoop) {
  for (const DType dtype : {i8, u8}) {
    for (const std::optional<ir::Literal>& zero :
         {std::optional<ir::Literal>(), std::optional(ir::Literal::scalar_int(dtype, 5)),
          std::optional(any_bytes(dtype, {70}, 9))}) {
      const ir::Graph graph = loop_of_bytes(dtype, zero);
      const ir::Graph packed = jit::pack_weights(graph, {});
      const ir::Node& scan = *packed.outputs()[0].node;
      ASSERT_EQ(scan.op_name(), "scan");
      EXPECT_THAT(testing::ops_of(scan.graph("body")), ::testing::Contains("packed_int8_matmul"));
      EXPECT_THAT(testing::ops_of(scan.graph("body")),
                  ::testing::Not(::testing::Contains("matmul")));
    }
  }
}

TEST(ByteProducts, OnCudaAreProductsOfTheBytesAsTheyAre) {
  Quantised q{.left = i8, .right = u8};
  EXPECT_THAT(calls_of(jit::byte_products(product(q), kCuda)),
              ElementsAre("convert", "convert", "int8_matmul"));
  q.left_zero = ir::Literal::scalar_int(i8, 3);
  EXPECT_EQ(calls_of(jit::byte_products(product(q), kCuda)),
            (std::vector<std::string>{"convert", "convert", "sub", "convert", "int8_matmul",
                                      "convert", "reduce_sum", "mul", "sub"}));
  for (const DType left : {u8, i8}) {
    for (const DType right : {i8, u8}) {
      Quantised both{.left = left, .right = right};
      both.left_zero = ir::Literal::scalar_int(left, 101);
      both.right_zero = any_bytes(right, {both.columns}, 5);
      const ir::Graph graph = product(both);
      EXPECT_THAT(calls_of(jit::byte_products(graph, kCuda)),
                  ::testing::Contains(std::string("int8_matmul")));
      const std::vector<ir::Literal> arguments{any_bytes(left, {5, both.depth}, 3),
                                               *both.left_zero};
      expect_program_right(graph, jit::lower(graph, kCuda), arguments, {}, 0);
    }
  }
}

TEST(ByteProducts, OnCudaNeedNoConstantWeights) {
  const auto formed = [](const char* text) {
    const ir::Graph graph = ir::parse(text);
    const std::vector<std::string> calls = calls_of(jit::byte_products(graph, kCuda));
    return std::ranges::count(calls, "int8_matmul") == 1;
  };
  EXPECT_TRUE(formed(R"(graph @g(%a: i8[2, s0, s1], %b: u8[2, s1, s2]) {
    %c = convert(%a) {dtype = i32}
    %d = convert(%b) {dtype = i32}
    %m = matmul(%c, %d)
    return %m
  })"));
  EXPECT_TRUE(
      formed("graph @g(%a: i8[s0, s1], %b: i8[s1, s2]) {\n  %m = matmul(%a, %b)\n  "
             "return %m\n}\n"));
  // Zero points of a batch's columns, of both operands of unknown depth, and integers that are no bytes.
  const auto centred_text = [](const std::string& a, const std::string& b) {
    return "graph @g(%a: i8[" + a + "], %b: u8[" + b +
           "], %p: i32[], %q: i32[]) {\n  %c = convert(%a) {dtype = i32}\n  %d = convert(%b) "
           "{dtype = "
           "i32}\n  %e = sub(%c, %p)\n  %f = sub(%d, %q)\n  %m = matmul(%e, %f)\n  return %m\n}\n";
  };
  EXPECT_FALSE(formed(centred_text("2, s0, 8", "2, 8, s2").c_str()));
  EXPECT_FALSE(formed(centred_text("s0, s1", "s1, s2").c_str()));
  EXPECT_TRUE(formed(centred_text("s0, 8", "8, s2").c_str()));
  EXPECT_FALSE(
      formed("graph @g(%a: i16[s0, s1], %b: i16[s1, s2]) {\n  %m = matmul(%a, %b)\n  "
             "return %m\n}\n"));
}

}  // namespace
}  // namespace heddle::test
