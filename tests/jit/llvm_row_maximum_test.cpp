// Rows whose largest element is subtracted from each of them: what their kernels leave out.
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "jit/cpu/llvm/row_maximum.h"
#include "jit/nest_builder.h"
#include "tests/jit/nest_runner.h"

namespace heddle::jit {
namespace {

using ir::ReduceOp;
using ir::ScalarOp;
using tests::CompiledNest;

constexpr std::int64_t kWeightRows = 7;
constexpr std::int64_t kWeightColumns = 150;
constexpr float kBeyond = std::numeric_limits<float>::infinity();
constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();

/// y = exp(x - m) / sum of exp(x - m), z the sum; with changes that tests ask for.
struct Weights {
  DType dtype = f32;       ///< of x
  std::int64_t shift = 0;  ///< elements from that which is subtracted from to that which is reduced
  bool stores_maximum = false;    ///< in z, and not the sum
  bool leaves_powers = false;     ///< in y, and nothing else
  bool adds_maximum = false;      ///< to what is stored in y
  ReduceOp last = ReduceOp::Sum;  ///< of the powers

  Nest build() const {
    NestBuilder b("softmax");
    const Symbol row = b.new_axis(kWeightRows);
    b.set_parallel(row, kWeightRows);
    const NestBufferId x = b.add_global(dtype, kWeightRows * kWeightColumns + 1);
    const NestBufferId y = b.add_global(f32, kWeightRows * kWeightColumns);
    const NestBufferId z = b.add_global(f32, kWeightRows);
    const auto element = [&](const SymExpr& at) {
      return b.convert(b.load(x, SymExpr(kWeightColumns) * row + at), f32);
    };
    Symbol i = b.begin_for(kWeightColumns, ForStmt::Kind::Vector);
    const std::vector<Scalar> first{element(i)};
    const Scalar greatest = b.reduce(ReduceOp::Max, f32, first)[0];
    b.end_for();
    i = b.begin_for(kWeightColumns, ForStmt::Kind::Vector);
    const Scalar less = b.apply(ScalarOp::Sub, {element(SymExpr(i) + shift), greatest});
    const std::vector<Scalar> power{b.apply(ScalarOp::Exp, {less})};
    b.store(y, SymExpr(kWeightColumns) * row + i, power[0]);
    const Scalar sum = b.reduce(last, f32, power)[0];
    b.end_for();
    b.store(z, row, stores_maximum ? greatest : sum);
    if (leaves_powers) return b.finish();
    i = b.begin_for(kWeightColumns, ForStmt::Kind::Vector);
    Scalar share = b.apply(ScalarOp::Div, {b.load(y, SymExpr(kWeightColumns) * row + i), sum});
    if (adds_maximum) share = b.apply(ScalarOp::Add, {share, greatest});
    b.store(y, SymExpr(kWeightColumns) * row + i, share);
    b.end_for();
    return b.finish();
  }

  std::size_t differences() const { return cpu::row_maxima(build()).differences.size(); }
  std::size_t without_nan() const { return cpu::row_maxima(build()).without_nan.size(); }
};

TEST(LlvmRowMaximum, ElementsLessTheLargestAreNotAboveZero) {
  EXPECT_EQ(Weights{}.differences(), 1u);
  EXPECT_EQ(Weights{.dtype = f16}.differences(), 1u);
  EXPECT_EQ(Weights{.shift = 1}.differences(), 0u) << "another element";
}

TEST(LlvmRowMaximum, NaNIsLeftToTheSumWhereAllIsMadeOfIt) {
  EXPECT_EQ(Weights{}.without_nan(), 1u);
  EXPECT_EQ(Weights{.dtype = f16}.without_nan(), 1u);
  EXPECT_EQ(Weights{.shift = 1}.without_nan(), 0u);
  EXPECT_EQ(Weights{.stores_maximum = true}.without_nan(), 0u);
  EXPECT_EQ(Weights{.leaves_powers = true}.without_nan(), 0u) << "only its own is NaN";
  EXPECT_EQ(Weights{.adds_maximum = true}.without_nan(), 0u);
  EXPECT_EQ(Weights{.last = ReduceOp::Min}.without_nan(), 0u);
}

std::vector<float> run_weights(const Weights& softmax, std::vector<float> x,
                               std::int64_t vector_bytes) {
  x.push_back(0);
  std::vector<float> y(kWeightRows * kWeightColumns);
  std::vector<float> z(kWeightRows);
  EXPECT_EQ(CompiledNest(softmax.build(), vector_bytes).run({x.data(), y.data(), z.data()}), 0);
  y.insert(y.end(), z.begin(), z.end());
  return y;
}

bool are_same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// The same as where the largest element is stored as well, so that nothing may be left out: elements of all sizes, and what is
/// no number at any place.
TEST(LlvmRowMaximum, ResultsAreThoseOfTheWholeMaximum) {
  std::vector<float> x(kWeightRows * kWeightColumns);
  for (std::size_t k = 0; k < x.size(); ++k) x[k] = static_cast<float>(k * 37 % 101) - 50;
  for (const std::int64_t bytes : {0, 32}) {
    for (std::size_t at = 0; at < kWeightColumns; at += 7) {
      std::vector<float> row = x;
      row[at] = kNoNumber;
      row[kWeightColumns + at] = kBeyond;
      row[2 * kWeightColumns + at] = -kBeyond;
      row[3 * kWeightColumns + at] = 3e38f;
      for (std::size_t k = 0; k < kWeightColumns; ++k)
        row[4 * kWeightColumns + k] = k < at ? kNoNumber : -kBeyond;
      row[5 * kWeightColumns + at] = -3e38f;
      const std::vector<float> got = run_weights({}, row, bytes);
      const std::vector<float> want = run_weights({.stores_maximum = true}, row, bytes);
      for (std::size_t k = 0; k < kWeightRows * kWeightColumns; ++k)
        ASSERT_TRUE(are_same(got[k], want[k]))
            << got[k] << ", " << want[k] << " at " << k << ", " << at;
      for (const std::size_t spoilt : {0, 1, 4})
        ASSERT_TRUE(std::isnan(got[spoilt * kWeightColumns]));
      for (const std::size_t whole : {2, 3, 5, 6})
        ASSERT_FALSE(std::isnan(got[whole * kWeightColumns]));
    }
  }
}

/// Up to those that are subnormal, and rounded to 0.
TEST(LlvmRowMaximum, ExponentialsOfDifferencesKeepTheirBounds) {
  std::vector<float> x(kWeightRows * kWeightColumns);
  for (std::size_t k = 0; k < x.size(); ++k) x[k] = -static_cast<float>(k) * 0.1147f;
  for (std::size_t row = 0; row < kWeightRows; ++row) x[row * kWeightColumns] = 0;
  x.back() = -kBeyond;
  for (const std::int64_t bytes : {0, 16, 32}) {
    const std::vector<float> got = run_weights({.leaves_powers = true}, x, bytes);
    for (std::size_t k = 0; k < x.size(); ++k) {
      const double want = std::exp(static_cast<double>(x[k]));
      const float next = std::nextafter(static_cast<float>(want), kBeyond);
      const double ulp = static_cast<double>(next) - static_cast<float>(want);
      ASSERT_NEAR(got[k], want, 1.3 * ulp) << x[k] << ", vectors of " << bytes;
    }
    EXPECT_EQ(got[x.size() - 1], 0);
  }
}

/// One instruction for a vector of the row, where it took four; no bound of what exponentials are taken of.
TEST(LlvmRowMaximum, CodeLeavesThemOut) {
  for (const std::int64_t bytes : {0, 32}) {
    const cpu::CodegenTarget target = cpu::host_target(bytes);
    const auto count = [&](const Weights& softmax, const std::string& text) {
      cpu::CodegenTexts texts;
      cpu::compile_object(softmax.build(), target, &texts);
      int found = 0;
      for (std::size_t at = texts.ir.find(text); at != std::string::npos;
           at = texts.ir.find(text, at + 1))
        ++found;
      return found;
    };
    const Weights whole{.stores_maximum = true};
    EXPECT_LT(count({}, "fcmp contract uno"), count(whole, "fcmp contract uno"));
    if (target.vector_bytes < 32) return;
    const Weights shifted{.shift = 1};
    EXPECT_EQ(count({}, "float 8.900000e+01"), 0) << bytes;
    EXPECT_GT(count(shifted, "float 8.900000e+01"), 0) << bytes;
  }
}

}  // namespace
}  // namespace heddle::jit
