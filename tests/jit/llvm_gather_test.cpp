// Gathers by indices of 32 bits keep these: there are twice as many in a vector.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <vector>

#include "jit/nest_builder.h"
#include "tests/jit/nest_runner.h"

namespace heddle::jit {
namespace {

using base::SymExpr;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kGatherRows = 3;
constexpr std::int64_t kPlaces = 50;

/// out[i] = table[50 * row + next[next[next[i]]]], of which each index is checked.
Nest chained(std::int64_t count) {
  NestBuilder b("chained");
  const NestBufferId next = b.add_global(i32, kPlaces);
  const NestBufferId table = b.add_global(f32, kGatherRows * kPlaces);
  const NestBufferId out = b.add_global(f32, kGatherRows * count);
  const auto row = b.new_axis(kGatherRows);
  b.set_parallel(row, kGatherRows);
  const auto i = b.new_axis(count);
  b.begin_for(i, count, ForStmt::Kind::Vector);
  SymExpr at = i;
  for (int k = 0; k < 3; ++k) at = b.bind(b.load(next, at), 0, kPlaces - 1, 1);
  b.store(out, SymExpr(row) * count + SymExpr(i), b.load(table, SymExpr(row) * kPlaces + at));
  b.end_for();
  return b.finish();
}

TEST(LlvmGather, FollowsIndicesOf32Bits) {
  constexpr std::int64_t kGathered = 37;
  std::vector<std::int32_t> next(kPlaces);
  for (std::int32_t k = 0; k < kPlaces; ++k)
    next[static_cast<std::size_t>(k)] = (7 * k + 3) % kPlaces;
  std::vector<float> table(kGatherRows * kPlaces);
  std::iota(table.begin(), table.end(), 0.0f);
  for (const std::int64_t vector_bytes : {64, 32, 16}) {
    std::vector<float> out(kGatherRows * kGathered);
    const tests::CompiledNest code(chained(kGathered), vector_bytes);
    EXPECT_EQ(code.run({next.data(), table.data(), out.data()}), 0);
    for (std::int64_t row = 0; row < kGatherRows; ++row)
      for (std::int64_t i = 0; i < kGathered; ++i) {
        std::int64_t at = i;
        for (int k = 0; k < 3; ++k) at = next[static_cast<std::size_t>(at)];
        EXPECT_EQ(out[static_cast<std::size_t>(row * kGathered + i)],
                  static_cast<float>(row * kPlaces + at));
      }
    next[5] = -1;
    EXPECT_EQ(code.run({next.data(), table.data(), out.data()}), 1) << "an index below 0";
    next[5] = (7 * 5 + 3) % kPlaces;
  }
}

TEST(LlvmGather, HasNoIndicesOf64BitsWhereThirtyTwoDo) {
  const cpu::CodegenTarget target = cpu::host_target(64);
  if (target.vector_bytes != 64) GTEST_SKIP() << "needs AVX-512";
  cpu::CodegenTexts texts;
  texts.want_assembly = true;
  cpu::compile_object(chained(48), target, &texts);
  EXPECT_THAT(texts.assembly, HasSubstr("vpgatherdd"));
  EXPECT_THAT(texts.assembly, HasSubstr("vgatherdps"));
  EXPECT_THAT(texts.assembly, Not(HasSubstr("gatherq")));
}

}  // namespace
}  // namespace heddle::jit
