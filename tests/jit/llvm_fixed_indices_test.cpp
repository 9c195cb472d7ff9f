// Index arithmetic that leaves the loops in which it does not change.
#include <gmock/gmock.h>
#include <numeric>
#include <string>
#include <vector>

#include "jit/cpu/llvm/codegen.h"
#include "jit/cpu/llvm/fixed_indices.h"
#include "jit/nest_builder.h"
#include "tests/jit/nest_runner.h"

namespace heddle::jit {
namespace {

using ::testing::ElementsAre;
using tests::CompiledNest;

constexpr std::int64_t kRows = 12, kMiddle = 7, kColumns = 100;

/// y[row][column] is the sum over k of x[floor(row / 3)][mod(k, 5)][column], by two loops within the rows.
struct FixedNest {
  FixedNest() : builder("fixed") {
    NestBuilder& b = builder;
    const auto x = b.add_global(DType::F32, kRows * kMiddle * kColumns);
    const auto y = b.add_global(DType::F32, kRows * kColumns);
    row = b.new_axis(kRows);
    b.set_parallel(row, kRows);
    k = b.new_axis(kMiddle);
    i = b.new_axis(kColumns);
    b.begin_for(k, kMiddle, ForStmt::Kind::Serial);
    b.begin_for(i, kColumns, ForStmt::Kind::Vector);
    const SymExpr place = floordiv(row, 3) * kMiddle + mod(k, 5);
    b.store(y, SymExpr(row) * kColumns + i, b.load(x, place * kColumns + i));
    b.last_store().combine = ir::ReduceOp::Sum;
    b.nest().buffers[y].read = true;
    b.end_for();
    b.end_for();
  }
  NestBuilder builder;
  Symbol row, k, i;
};

TEST(LlvmFixedIndices, AreThoseThatNothingInTheLoopChanges) {
  FixedNest fixed;
  const Nest nest = fixed.builder.finish();
  const auto& outer = std::get<ForStmt>(nest.body.front().node);
  const auto& inner = std::get<ForStmt>(outer.body->front().node);
  EXPECT_THAT(cpu::fixed_divisions(outer), ElementsAre(floordiv(fixed.row, 3)));
  EXPECT_THAT(cpu::fixed_divisions(inner),
              ::testing::UnorderedElementsAre(floordiv(fixed.row, 3), mod(fixed.k, 5)));
}

TEST(LlvmFixedIndices, AreComputedOnce) {
  FixedNest fixed;
  cpu::CodegenTexts texts;
  cpu::compile_object(fixed.builder.finish(), cpu::host_target(), &texts);
  std::size_t divisions = 0;
  for (std::size_t at = 0; (at = texts.optimized.find("udiv", at)) != std::string::npos; ++at)
    ++divisions;
  EXPECT_EQ(divisions, 2u) << texts.optimized;
}

TEST(LlvmFixedIndices, GiveTheSame) {
  FixedNest fixed;
  CompiledNest compiled(fixed.builder.finish());
  std::vector<float> x(kRows * kMiddle * kColumns), y(kRows * kColumns, 0);
  std::iota(x.begin(), x.end(), 0.0F);
  compiled.run({x.data(), y.data()}, {});
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t c = 0; c < kColumns; ++c) {
      float want = 0;
      for (std::int64_t k = 0; k < kMiddle; ++k)
        want += x[static_cast<std::size_t>((r / 3 * kMiddle + k % 5) * kColumns + c)];
      ASSERT_EQ(y[static_cast<std::size_t>(r * kColumns + c)], want) << r << ' ' << c;
    }
  }
}

/// y[k] = (x[floor(k / s0)], mod(k, s0)) of k < s1, by lanes or one after another.
CompiledNest compile_quotients(ForStmt::Kind kind, cpu::CodegenTexts* texts = nullptr) {
  NestBuilder b("quotients");
  b.nest().size_count = 2;
  const SymExpr divisor = SymExpr::size(0);
  const SymExpr count = SymExpr::size(1);
  b.nest().facts.set_range(divisor.symbol(), base::Facts::Range{SymExpr(1), std::nullopt});
  const auto quotients = b.add_global(DType::I64, count);
  const auto rests = b.add_global(DType::I64, count);
  b.set_parallel(b.new_axis(1), 1);
  const Symbol k = b.begin_for(count, kind);
  const SymExpr far = SymExpr(k) * 1000003;
  b.store(quotients, k, b.from_index(floordiv(far, divisor)));
  b.store(rests, k, b.from_index(mod(far, divisor)));
  b.end_for();
  const Nest nest = b.finish();
  if (texts != nullptr) cpu::compile_object(nest, cpu::host_target(), texts);
  return CompiledNest(nest);
}

TEST(LlvmFixedIndices, WhatIsDividedByASizeIsMultipliedByItsInverse) {
  for (const ForStmt::Kind kind : {ForStmt::Kind::Serial, ForStmt::Kind::Vector}) {
    cpu::CodegenTexts texts;
    const CompiledNest code = compile_quotients(kind, &texts);
    EXPECT_EQ(texts.optimized.find("div i64"), std::string::npos) << texts.optimized;
    for (const std::int64_t divisor :
         {1L, 2L, 3L, 7L, 641L, 1000003L, 1000004L, 999999999989L, 1L << 40}) {
      std::vector<std::int64_t> quotients(3000), rests(3000);
      code.run({quotients.data(), rests.data()}, {divisor, 3000});
      for (std::int64_t k = 0; k < 3000; ++k) {
        ASSERT_EQ(quotients[static_cast<std::size_t>(k)], k * 1000003 / divisor) << divisor;
        ASSERT_EQ(rests[static_cast<std::size_t>(k)], k * 1000003 % divisor) << divisor;
      }
    }
  }
}

}  // namespace
}  // namespace heddle::jit
