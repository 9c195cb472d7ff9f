// matmul against products written out, its constraints, and its decomposition.
#include <cmath>
#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Literal;
using ir::Sizes;

Literal matmul(const Literal& a, const Literal& b) { return value_of({"matmul", {a, b}}); }

/// Element (i, j) of a product of matrices, in double.
double dot(const Literal& a, const Literal& b, std::int64_t i, std::int64_t j) {
  const std::int64_t depth = a.sizes()[1];
  const std::int64_t columns = b.sizes()[1];
  double sum = 0;
  for (std::int64_t k = 0; k < depth; ++k) sum += a.at(i * depth + k) * b.at(k * columns + j);
  return sum;
}

Literal product(const Literal& a, const Literal& b) {
  Literal result(a.dtype(), {a.sizes()[0], b.sizes()[1]});
  for (std::int64_t p = 0; p < result.count(); ++p) {
    result.set(p, dot(a, b, p / b.sizes()[1], p % b.sizes()[1]));
  }
  return result;
}

/// Matrix `k` of a batch.
Literal matrix(const Literal& batch, std::int64_t k) {
  const std::size_t rank = batch.sizes().size();
  const Sizes sizes = {batch.sizes()[rank - 2], batch.sizes()[rank - 1]};
  const Literal packed = batch.contiguous();
  return packed.view(sizes, ir::row_major_strides(sizes), k * sizes[0] * sizes[1]);
}

TEST(Matmul, MultipliesMatricesOfEveryDType) {
  for (const DType dtype : kNumbers) {
    SCOPED_TRACE(name_of(dtype));
    const Literal a = noise(dtype, {3, 5}, 1);
    const Literal b = noise(dtype, {5, 4}, 2);
    expect_close(matmul(a, b), product(a, b), tolerance_of(dtype));
  }
}

TEST(Matmul, ReadsOperandsThroughTheirStrides) {
  for (const DType dtype : kNumbers) {
    SCOPED_TRACE(name_of(dtype));
    const Literal a = noise(dtype, {2, 3, 5}, 1);
    const Literal b = noise(dtype, {2, 5, 4}, 2);
    expect_same(matmul(spread_out(a), spread_out(b)), matmul(a, b));
  }
}

TEST(Matmul, BroadcastsLeadingDimensions) {
  const Literal a = noise(f32, {2, 1, 3, 4}, 1);
  const Literal b = noise(f32, {5, 4, 2}, 2);
  const Literal result = matmul(a, b);
  ASSERT_EQ(result.sizes(), (Sizes{2, 5, 3, 2}));
  for (std::int64_t p = 0; p < 10; ++p) {
    expect_close(matrix(result, p), product(matrix(a, p / 5), matrix(b, p % 5)), 1e-6);
  }
}

TEST(Matmul, TreatsVectorsAsNumPyDoes) {
  const Literal vector = doubles(f32, {2}, {1, 2});
  const Literal square = doubles(f32, {2, 2}, {1, 2, 3, 4});
  expect_same(matmul(vector, vector), doubles(f32, {}, {5}));
  expect_same(matmul(vector, square), doubles(f32, {2}, {7, 10}));
  expect_same(matmul(square, vector), doubles(f32, {2}, {5, 11}));
  const Literal batch = noise(f32, {3, 2, 4});
  EXPECT_EQ(matmul(vector, batch).sizes(), (Sizes{3, 4}));
  EXPECT_EQ(matmul(noise(f32, {3, 4, 2}), vector).sizes(), (Sizes{3, 4}));
}

TEST(Matmul, TakesEmptyAndSingleOperands) {
  for (const DType dtype : kNumbers) {
    SCOPED_TRACE(name_of(dtype));
    EXPECT_EQ(matmul(Literal(dtype, {0, 3}), noise(dtype, {3, 2})).sizes(), (Sizes{0, 2}));
    EXPECT_EQ(matmul(noise(dtype, {2, 3}), Literal(dtype, {3, 0})).sizes(), (Sizes{2, 0}));
    expect_same(matmul(Literal(dtype, {2, 0}), Literal(dtype, {0, 2})), Literal(dtype, {2, 2}));
    EXPECT_EQ(matmul(Literal(dtype, {0, 2, 3}), noise(dtype, {3, 2})).sizes(), (Sizes{0, 2, 2}));
    expect_same(matmul(ints(dtype, {1, 1}, {3}), ints(dtype, {1, 1}, {2})),
                ints(dtype, {1, 1}, {6}));
  }
}

TEST(Matmul, NaNTaintsItsRowAndItsColumn) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    const Literal a = with_nan(noise(dtype, {3, 4}), 4);
    const Literal result = matmul(a, noise(dtype, {4, 2}, 2));
    for (std::int64_t p = 0; p < 6; ++p) EXPECT_EQ(std::isnan(result.at(p)), p / 2 == 1) << p;
  }
}

TEST(Matmul, AccumulatesHalvesInSingle) {
  for (const DType dtype : {f16, bf16}) {
    SCOPED_TRACE(name_of(dtype));
    // In f16 the running sum would stop at 2048, in bf16 at 256.
    const Literal ones = ints(dtype, {1, 4096}, std::vector<std::int64_t>(4096, 1));
    const Literal column = ints(dtype, {4096, 1}, std::vector<std::int64_t>(4096, 1));
    expect_same(matmul(ones, column), ints(dtype, {1, 1}, {4096}));
  }
}

TEST(Matmul, IntegersWrap) {
  expect_same(matmul(ints(i8, {1, 2}, {100, 100}), ints(i8, {2, 1}, {2, 2})),
              ints(i8, {1, 1}, {static_cast<std::int8_t>(400)}));
  const std::int64_t big = std::int64_t{1} << 62;
  expect_same(matmul(ints(i64, {1, 1}, {big}), ints(i64, {1, 1}, {4})), ints(i64, {1, 1}, {0}));
}

TEST(Matmul, PromotesMixedDTypes) {
  const Literal result = matmul(ints(i8, {1, 1}, {3}), doubles(f16, {1, 1}, {0.5}));
  expect_same(result, doubles(f16, {1, 1}, {1.5}));
  expect_same(matmul(ints(u8, {1, 1}, {200}), ints(i8, {1, 1}, {-1})), ints(i16, {1, 1}, {-200}));
  // 70000 converts to f16 before it is multiplied: infinity, not 7.
  const Literal overflowed = matmul(ints(i32, {1, 1}, {70000}), doubles(f16, {1, 1}, {0.0001}));
  EXPECT_TRUE(std::isinf(overflowed.at(0)));
}

TEST(Matmul, InfersSymbolicSizes) {
  const auto s0 = base::SymExpr::size(0);
  const auto s1 = base::SymExpr::size(1);
  EXPECT_EQ(type_of("matmul", {meta(f32, {s0, s1, 8}), meta(f32, {8, 4})}), "f32[s0, s1, 4]");
  EXPECT_EQ(type_of("matmul", {meta(f32, {s0, s1}), meta(f32, {s1})}), "f32[s0]");
}

TEST(Matmul, matmul_c1) {
  EXPECT_EQ(error_of("matmul", {meta(boolean, {2, 2}), meta(f32, {2, 2})}),
            "matmul: C1 a and b are numbers: expected a number, got bool");
  EXPECT_EQ(error_of("matmul", {meta(f32, {2, 2}), meta(boolean, {2, 2})}),
            "matmul: C1 a and b are numbers: expected a number, got bool");
}

TEST(Matmul, matmul_c2) {
  EXPECT_EQ(error_of("matmul", {meta(f32, {}), meta(f32, {2, 2})}),
            "matmul: C2 a and b have at least one dimension: expected sizes [..., m, k] and "
            "[..., k, n], got [] and [2, 2]");
}

TEST(Matmul, matmul_c3) {
  EXPECT_EQ(error_of("matmul", {meta(f32, {2, 3}), meta(f32, {4, 2})}),
            "matmul: C3 the inner sizes agree: expected 3, got 4");
}

TEST(Matmul, matmul_c4) {
  EXPECT_EQ(error_of("matmul", {meta(f32, {2, 3, 4}), meta(f32, {5, 4, 2})}),
            "matmul: C4 the leading dimensions broadcast: expected sizes that are equal or 1, got "
            "2 and 5 in dimension 0");
}

TEST(Matmul, DecomposesVectorsAndMixedDTypes) {
  expect_decomposition_agrees({"matmul", {noise(f32, {4}), noise(f32, {4}, 2)}}, 1e-6);
  expect_decomposition_agrees({"matmul", {noise(f32, {4}), noise(f32, {3, 4, 2}, 2)}}, 1e-6);
  expect_decomposition_agrees({"matmul", {noise(f32, {3, 2, 4}), noise(f32, {4}, 2)}}, 1e-6);
  expect_decomposition_agrees({"matmul", {noise(i8, {2, 4}), noise(f16, {4, 3}, 2)}}, 1e-3);
}

TEST(Matmul, KeepsMatricesOfOneDType) {
  const OneOp call{"matmul", {noise(f32, {2, 4}), noise(f32, {4, 3})}};
  EXPECT_FALSE(can_decompose(call));
}

TEST(Matmul, matmul_c5) {
  EXPECT_EQ(error_of("matmul", {meta(f16, {2, 4}), meta(f16, {4, 2})}, {{"tf32", true}}),
            "matmul: C5 tf32 is for a result of f32: expected f32, got f16");
}

TEST(Matmul, matmul_c6) {
  EXPECT_EQ(error_of("matmul", {meta(f16, {2, 4}), meta(f16, {4, 2})}, {{"bf16", true}}),
            "matmul: C6 bf16 is for a result of f32 or bf16: expected f32 or bf16, got f16");
}
TEST(Matmul, matmul_c7) {
  EXPECT_EQ(error_of("matmul", {meta(f64, {2, 4}), meta(f64, {4, 2})}, {{"int8", true}}),
            "matmul: C7 int8 is for a result of f16, bf16 or f32: expected f16, bf16 or f32, got "
            "f64");
}

}  // namespace
}  // namespace heddle::testing
