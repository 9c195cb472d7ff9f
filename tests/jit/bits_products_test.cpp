// Products by constant matrices of numbers of a few bits on the CPU: what becomes one, on every width of vectors, with rows as
// they are and in fixed point.
#include "jit/lower/bits_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/jit/nests_support.h"
#include "tests/support/bits_products.h"
#include "tests/support/nightly.h"

namespace heddle::test {
namespace {

using ir::GraphBuilder;
using ir::Value;
using testing::BitsMatrixNoise;
using ::testing::Contains;
using ::testing::Each;
using testing::few_bits_matrix;
using testing::fixed_bits_product;
using testing::FixedNoise;
using ::testing::Not;
using testing::ops_of;
using testing::packed_bits_product;
using Weights = testing::FewBitsWeights;

const jit::LowerOptions kBytes{.byte_dot = true};

#if HEDDLE_WITH_LLVM
void expect_right_on_every_target(const OneOp& call) {
  const ir::Graph graph = testing::graph_of(call);
  for (const std::int64_t vector_bytes : {64, 32, 16}) {
    SCOPED_TRACE(vector_bytes);
    expect_program_right(graph, lowered(graph), arguments_of(call), as_code_of(vector_bytes), 1e-5);
  }
}

TEST(PackedBitsNest, MultipliesOnEveryTarget) {
  for (const std::int64_t bits : {2, 4, 8})
    for (const std::int64_t group : {0, 32})
      for (const DType zero : {DType::Bool, i8, f32})
        for (const std::int64_t rows :
             few_by_day<std::int64_t>({1, 2, 7, 8, 9, 41}, 2, static_cast<std::size_t>(bits / 2)))
          expect_right_on_every_target(packed_bits_product(
              noise(f32, {rows, 160}),
              {.depth = 160, .columns = 150, .bits = bits, .group = group, .zero = zero}));
}

TEST(FixedBitsNest, MultipliesOnEveryTarget) {
  for (const std::int64_t bits : {2, 4, 8})
    for (const std::int64_t digits : {1, 2, 3})
      for (const DType zero : {DType::Bool, i16, f32})
        for (const std::int64_t rows :
             few_by_day<std::int64_t>({1, 7, 34}, 2, static_cast<std::size_t>(digits)))
          expect_right_on_every_target(fixed_bits_product(
              FixedNoise(rows, 128, digits, 32), 32,
              {.depth = 128, .columns = 150, .bits = bits, .group = 64, .zero = zero}));
}
#endif

TEST(PackedBitsNest, IsRightInterpreted) {
  for (const DType dtype : {f16, bf16, f32})
    for (const std::int64_t rows : {3, 12})
      expect_nest_right(packed_bits_product(
                            noise(dtype, {2, rows, 32}),
                            {.depth = 32, .columns = 70, .group = 16, .zero = i16, .scale = dtype}),
                        dtype == f32 ? 1e-5 : testing::tolerance_of(dtype));
}

TEST(FixedBitsNest, IsRightInterpreted) {
  for (const std::int64_t group : {0, 32})
    expect_nest_right(fixed_bits_product(FixedNoise(3, 64, 3, 16), 16,
                                         {.depth = 64, .columns = 70, .group = group, .zero = i8}));
}

ir::Graph product_of(const Weights& w, const ir::Attrs& attrs = {}) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(w.dtype, {"s0", "s1", std::to_string(w.depth).c_str()}), "x");
  b.output(b.emit("matmul", {x, few_bits_matrix(b, w)}, attrs));
  return b.finish();
}

std::vector<std::string> products_of(const ir::Graph& graph, const jit::LowerOptions& options) {
  std::vector<std::string> products;
  for (const std::string& op : ops_of(jit::bits_products(graph, options)))
    if (op.find("matmul") != std::string::npos) products.push_back(op);
  return products;
}

void expect_lowered_right(const ir::Graph& graph, const std::vector<ir::Literal>& arguments,
                          double tolerance, const jit::LowerOptions& options) {
  expect_program_right(graph, jit::lower(graph, options), arguments, as_code(), tolerance);
}

TEST(BitsProducts, OfPackedNumbersWithAnyZeroPoint) {
  std::size_t turn = 0;
  for (const std::int64_t bits : {2, 4})
    for (const DType zero : {u8, f32, DType::Bool})
      for (const DType dtype : {f32, f16, bf16}) {
        const ir::Graph graph = product_of({.bits = bits, .zero = zero, .dtype = dtype});
        EXPECT_THAT(products_of(graph, {}), Each("packed_bits_matmul"));
        EXPECT_THAT(products_of(graph, kBytes), Each("fixed_bits_matmul"));
        for (const std::int64_t rows : few_by_day<std::int64_t>({0, 1, 5}, 3, turn++))
          for (const jit::LowerOptions& options : {jit::LowerOptions{}, kBytes})
            expect_lowered_right(graph, {noise(dtype, {2, rows, 256})},
                                 dtype == f32 ? 1e-5 : testing::tolerance_of(dtype), options);
      }
}

TEST(BitsProducts, OfBytesThatDoNotStayInACache) {
  EXPECT_THAT(products_of(product_of({.bits = 8}), kBytes), Each("matmul"));
  const ir::Graph large = product_of({.depth = 1024, .columns = 272, .bits = 8, .group = 64});
  EXPECT_THAT(products_of(large, kBytes), Each("fixed_bits_matmul"));
  expect_lowered_right(large, {noise(f32, {1, 3, 1024})}, 1e-5, kBytes);
}

/// The middle of the range is what words are less of anyway.
TEST(BitsProducts, DropZeroPointsInTheMiddle) {
  const auto operands = [](const Weights& w) {
    return jit::bits_products(product_of(w), {}).outputs()[0].node->inputs().size();
  };
  EXPECT_EQ(operands({.zero = DType::Bool}), 3u);
  EXPECT_EQ(operands({.zero = u8}), 4u);
}

TEST(BitsProducts, MayRoundRowsToOneDigitWhereTheProductSaysSo) {
  const ir::Graph graph = product_of({}, {{"int8", true}});
  const ir::Graph made = jit::bits_products(graph, kBytes);
  std::vector<std::string> digits;
  for (const ir::NodePtr& node : made.nodes())
    if (node->op_name() == "byte_digits") digits.push_back(node->output().to_string());
  EXPECT_THAT(digits, Each(::testing::HasSubstr(", 1, 256]")));
  EXPECT_EQ(digits.size(), 1u);
  expect_lowered_right(graph, {noise(f32, {2, 3, 256})}, 2e-2, kBytes);
}

/// Rows of one block are of 10^6 beside 10^-2, of another of 10^-20: each is off by little beside its block.
TEST(BitsProducts, HoldRowsOfAnyMagnitude) {
  const ir::Graph graph = product_of({});
  ir::Literal x = noise(f32, {1, 2, 256});
  for (std::int64_t k = 0; k < 256; ++k) {
    x.set(k, x.at(k) * (k == 3 ? 1e6 : 1e-2));
    x.set(256 + k, x.at(256 + k) * 1e-20);
  }
  expect_lowered_right(graph, {x}, 1e-5, kBytes);
  expect_lowered_right(graph, {testing::doubles(f32, {1, 1, 256}, std::vector<double>(256))}, 0,
                       kBytes);
}

TEST(BitsProducts, ArePoisonedByNanAndInfinity) {
  const ir::Graph graph = product_of({.zero = DType::Bool});
  for (const double poison : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    ir::Literal x = noise(f32, {1, 3, 256});
    x.set(256 + 7, poison);
    const std::vector<ir::Literal> results =
        run_program(graph, jit::lower(graph, kBytes), std::span<const ir::Literal>(&x, 1));
    for (std::int64_t j = 0; j < results[0].count(); ++j)
      EXPECT_EQ(std::isfinite(results[0].at(j)), j / 96 != 1) << j;
  }
}

TEST(BitsProducts, MakeDigitsOfRowsOnceForAllThatReadThem) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "256"}), "x");
  for (int k = 0; k < 3; ++k) b.output(b.emit("matmul", {x, few_bits_matrix(b, {})}));
  const std::vector<std::string> ops = ops_of(jit::bits_products(b.finish(), kBytes));
  EXPECT_EQ(std::ranges::count(ops, "byte_digits"), 1);
  EXPECT_EQ(std::ranges::count(ops, "fixed_bits_matmul"), 3);
}

TEST(BitsProducts, LeaveWhatIsNotInWholeWordsOrNotTheSameInEachRun) {
  EXPECT_THAT(products_of(product_of({.depth = 252, .group = 4}), kBytes), Each("matmul"));
  EXPECT_THAT(products_of(product_of({.depth = 64, .columns = 8}), kBytes), Each("matmul"));
  EXPECT_THAT(products_of(product_of({}), {.target = jit::LowerOptions::Target::Cuda}),
              Each("matmul"));
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "256"}), "x");
  const Value packed = b.input(tensor(u8, {"128", "128"}), "packed");
  const Value numbers = b.emit(
      "convert",
      {b.emit("unpack_bits", {packed}, {{"bits", std::int64_t{4}}, {"count", std::int64_t{256}}})},
      {{"dtype", f32}});
  const Value scale = b.constant(ir::Literal::scalar(f32, 0.5));
  const Value matrix = b.emit("permute", {b.emit("mul", {numbers, scale})}, {{"perm", Ints{1, 0}}});
  b.output(b.emit("matmul", {x, matrix}));
  const ir::Graph graph = b.finish();
  EXPECT_THAT(products_of(graph, kBytes), Each("matmul"));
  expect_lowered_right(graph, {noise(f32, {3, 256}), testing::any_bytes(u8, {128, 128})}, 1e-5,
                       kBytes);
}

}  // namespace
}  // namespace heddle::test
