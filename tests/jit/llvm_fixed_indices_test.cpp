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

}  // namespace
}  // namespace heddle::jit
