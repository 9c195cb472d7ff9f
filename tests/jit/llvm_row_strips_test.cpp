// Nests that go through several rows at a time, one phase after the other.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "jit/cpu/llvm/row_strips.h"
#include "jit/nest_builder.h"
#include "tests/jit/nest_runner.h"

namespace heddle::jit {
namespace {

using ir::ReduceOp;
using ir::ScalarOp;
using tests::CompiledNest;

/// y[r, i] = exp(x[r, i] - max of x[r]) / their sum, by way of a buffer of a row's own; z[r] = the sum, and 0 where it is 1.
/// The number of rows is s0.
struct Softmax {
  explicit Softmax(const SymExpr& row_extent, ForStmt::Kind loops = ForStmt::Kind::Vector,
                   std::int64_t row_count = 0)
      : builder("softmax"), extent(row_extent), kind(loops) {
    builder.nest().size_count = 2;
    const SymExpr rows = row_count == 0 ? SymExpr::size(0) : SymExpr(row_count);
    row = builder.new_axis(rows);
    builder.set_parallel(row, rows);
    x = builder.add_global(f32, rows * extent);
    y = builder.add_global(f32, rows * extent);
    z = builder.add_global(f32, rows);
  }

  Nest finish() {
    const std::int64_t bound = extent.as_constant().value_or(0);
    const NestBufferId kept = builder.add_local(f32, extent, bound);
    const Scalar greatest =
        pass([&](const Symbol& i) { return builder.load(x, at(i)); }, ReduceOp::Max, {});
    const auto power = [&](const Symbol& i) {
      return builder.apply(ScalarOp::Exp,
                           {builder.apply(ScalarOp::Sub, {builder.load(x, at(i)), greatest})});
    };
    const Scalar sum = pass(power, ReduceOp::Sum, kept);
    const Scalar one = builder.constant(f32, 1);
    const Scalar is_one = builder.apply(ScalarOp::Eq, {sum, one});
    const Scalar share = builder.apply(ScalarOp::Div, {one, sum});
    const Symbol i = builder.new_axis(extent);
    builder.begin_for(i, extent, kind);
    builder.store(y, at(i), builder.apply(ScalarOp::Mul, {builder.load(kept, i), share}));
    builder.end_for();
    builder.store(z, row, builder.apply(ScalarOp::Select, {is_one, builder.constant(f32, 0), sum}));
    return builder.finish();
  }

  SymExpr at(const Symbol& i) const { return extent * row + i; }

  /// A loop over a row that reduces `element`, and stores it where told.
  template <class F>
  Scalar pass(const F& element, ReduceOp op, std::optional<NestBufferId> target) {
    const Symbol i = builder.new_axis(extent);
    builder.begin_for(i, extent, kind);
    const Scalar value = element(i);
    if (target) builder.store(*target, i, value);
    const std::vector<Scalar> results = builder.reduce(op, f32, std::vector<Scalar>{value});
    builder.end_for();
    return results[0];
  }

  NestBuilder builder;
  SymExpr extent;
  ForStmt::Kind kind;
  Symbol row;
  NestBufferId x{};
  NestBufferId y{};
  NestBufferId z{};
};

/// Bytes of vectors: those for which no phases are merged, with 16 registers and with 32.
constexpr std::int64_t kFew = 16;
constexpr std::int64_t kSome = 32;
constexpr std::int64_t kMany = 64;

std::int64_t rows_of(Softmax softmax) { return cpu::row_strips(softmax.finish(), kFew).rows; }
bool is_merged(Softmax softmax) { return cpu::row_strips(softmax.finish(), kMany).is_merged; }

TEST(LlvmRowStrips, RowsAreAsManyAsHalfAFirstCacheHolds) {
  EXPECT_EQ(rows_of(Softmax(16)), 8);
  EXPECT_EQ(rows_of(Softmax(170)), 8);
  EXPECT_EQ(rows_of(Softmax(171)), 4);
  EXPECT_EQ(rows_of(Softmax(682)), 2);
  EXPECT_EQ(rows_of(Softmax(683)), 1);
}

TEST(LlvmRowStrips, NoMoreThanThereAre) {
  EXPECT_EQ(rows_of(Softmax(16, ForStmt::Kind::Vector, 1)), 1);
  EXPECT_EQ(rows_of(Softmax(16, ForStmt::Kind::Vector, 3)), 2);
  EXPECT_EQ(rows_of(Softmax(16, ForStmt::Kind::Vector, 100)), 8);
}

TEST(LlvmRowStrips, OtherNestsTakeOneRowAtATime) {
  EXPECT_EQ(rows_of(Softmax(SymExpr::size(1))), 1) << "who knows how long a row is";
  EXPECT_EQ(rows_of(Softmax(16, ForStmt::Kind::Serial)), 1);
  Softmax alone(16);
  const Scalar least =
      alone.pass([&](const Symbol& i) { return alone.builder.load(alone.x, alone.at(i)); },
                 ReduceOp::Min, alone.y);
  alone.builder.store(alone.z, alone.row, least);
  EXPECT_EQ(cpu::row_strips(alone.builder.finish(), kFew).rows, 1) << "no loop waits for another";
}

TEST(LlvmRowStrips, PhasesOfLongEnoughRowsThatFitAreMerged) {
  EXPECT_FALSE(is_merged(Softmax(127)));
  EXPECT_TRUE(is_merged(Softmax(128)));
  EXPECT_TRUE(is_merged(Softmax(682))) << "x, y and what is kept of three rows, in 24 KB";
  EXPECT_FALSE(is_merged(Softmax(683)));
  EXPECT_FALSE(is_merged(Softmax(128, ForStmt::Kind::Vector, 5))) << "hardly any three at a time";
  EXPECT_TRUE(is_merged(Softmax(128, ForStmt::Kind::Vector, 6)));
  EXPECT_FALSE(cpu::row_strips(Softmax(128).finish(), kFew).is_merged);
}

TEST(LlvmRowStrips, MergedPhasesOf16RegistersTakeAVectorAtATime) {
  EXPECT_FALSE(cpu::row_strips(Softmax(63).finish(), kSome).is_merged);
  const cpu::RowStrips merged = cpu::row_strips(Softmax(64).finish(), kSome);
  EXPECT_TRUE(merged.is_merged);
  EXPECT_EQ(merged.most_vectors, 1u);
  EXPECT_EQ(cpu::row_strips(Softmax(128).finish(), kMany).most_vectors, 2u);
}

TEST(LlvmRowStrips, MergedPhasesHoldAPowerOfTwoOfRows) {
  const cpu::RowStrips merged = cpu::row_strips(Softmax(128).finish(), kMany);
  EXPECT_EQ(merged.held(), 4);
  EXPECT_EQ(merged.fetched(), 2);
  const cpu::RowStrips strips = cpu::row_strips(Softmax(128).finish(), kFew);
  EXPECT_EQ(strips.held(), 8);
  EXPECT_EQ(strips.fetched(), 8);
}

TEST(LlvmRowStrips, PhasesHandOnWhatLaterOnesUse) {
  const Nest nest = Softmax(16).finish();
  const cpu::RowStrips strips = cpu::row_strips(nest, kFew);
  ASSERT_EQ(strips.phases.size(), 3u);
  std::size_t next = 0;
  for (const cpu::RowPhase& phase : strips.phases) {
    EXPECT_EQ(phase.begin, next);
    EXPECT_TRUE(std::holds_alternative<ForStmt>(nest.body[phase.loop].node));
    next = phase.end;
  }
  EXPECT_EQ(next, nest.body.size());
  const auto sorted = [](std::vector<cpu::RowPhase::Scalar> scalars) {
    std::ranges::sort(scalars, {}, &cpu::RowPhase::Scalar::id);
    return scalars;
  };
  EXPECT_EQ(strips.phases[0].recalled.size(), 0u);
  EXPECT_EQ(strips.phases[0].kept.size(), 1u) << "the greatest";
  EXPECT_EQ(strips.phases[1].recalled, strips.phases[0].kept);
  EXPECT_EQ(strips.phases[1].kept.size(), 3u) << "the sum, whether it is one, and its inverse";
  EXPECT_EQ(sorted(strips.phases[2].recalled), sorted(strips.phases[1].kept));
  EXPECT_EQ(strips.phases[2].kept.size(), 0u);
}

void expect_rows_by_themselves(std::int64_t extent, std::int64_t vector_bytes) {
  const CompiledNest code(Softmax(extent).finish(), vector_bytes);
  for (const std::int64_t rows : {0, 1, 2, 3, 4, 7, 8, 9, 21}) {
    const auto width = static_cast<std::size_t>(extent);
    const auto count = static_cast<std::size_t>(rows);
    std::vector<float> x(count * width);
    for (std::size_t k = 0; k < x.size(); ++k) x[k] = static_cast<float>(k * 37 % 101) / 8;
    std::vector<float> y(x.size());
    std::vector<float> z(count);
    std::vector<float> want_y(x.size());
    std::vector<float> want_z(count);
    for (std::size_t r = 0; r < count; ++r)
      code.run({&x[r * width], &want_y[r * width], &want_z[r]}, {1, 0});
    ASSERT_EQ(code.run({x.data(), y.data(), z.data()}, {rows, 0}), 0);
    ASSERT_EQ(y, want_y) << rows << " x " << extent;
    ASSERT_EQ(z, want_z) << rows << " x " << extent;
    std::fill(y.begin(), y.end(), 0.0f);
    ASSERT_EQ(code.run({x.data(), y.data(), z.data()}, {rows, 0}, rows, 0), 0);
    ASSERT_EQ(y, want_y) << "backwards, " << rows << " x " << extent;
    ASSERT_EQ(code.run({x.data(), x.data(), z.data()}, {rows, 0}), 0);
    ASSERT_EQ(x, want_y) << "in place, " << rows << " x " << extent;
  }
}

/// Any number of rows comes out bit by bit as each row by itself does, where the result overwrites x too.
TEST(LlvmRowStrips, RowsComeOutAsEachByItself) {
  for (const std::int64_t extent : {1, 16, 100, 128, 200, 400}) {
    for (const std::int64_t vector_bytes : {std::int64_t{0}, kFew, kSome})
      expect_rows_by_themselves(extent, vector_bytes);
  }
}

TEST(LlvmRowStrips, MergedLoopsComputeTheSame) {
  constexpr std::int64_t kExtent = 150;
  constexpr std::size_t kRows = 9;
  const CompiledNest code(Softmax(kExtent).finish());
  std::vector<float> x(kRows * kExtent);
  for (std::size_t k = 0; k < x.size(); ++k) x[k] = static_cast<float>(k * 37 % 101) / 8;
  std::vector<float> y(x.size());
  std::vector<float> z(kRows);
  ASSERT_EQ(code.run({x.data(), y.data(), z.data()}, {kRows, 0}), 0);
  for (std::size_t r = 0; r < kRows; ++r) {
    const float* row = &x[r * kExtent];
    const double greatest = *std::max_element(row, row + kExtent);
    double sum = 0;
    for (std::int64_t k = 0; k < kExtent; ++k) sum += std::exp(row[k] - greatest);
    ASSERT_NEAR(z[r], sum, 1e-5 * sum);
    for (std::int64_t k = 0; k < kExtent; ++k)
      ASSERT_NEAR(y[r * kExtent + static_cast<std::size_t>(k)], std::exp(row[k] - greatest) / sum,
                  1e-6);
  }
}

}  // namespace
}  // namespace heddle::jit
