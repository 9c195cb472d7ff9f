// Heads that share keys and values on CUDA: their queries are rows of one tile, whatever the heads and queries are, on the
// simulated device against the reference evaluator; and what is read then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/jit/one_attention.h"

namespace heddle::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using Group = std::tuple<const char*, int, int>;  ///< dtype, heads that share keys, size of a head

class CudaAttentionGroups : public ::testing::TestWithParam<Group> {
 protected:
  std::string dtype() const { return std::get<0>(GetParam()); }
  int group() const { return std::get<1>(GetParam()); }
  int size() const { return std::get<2>(GetParam()); }
  /// Of two groups.
  OneAttention of(const char* attrs, const std::string& mask = "") const {
    return OneAttention(attention_text(dtype(), size(), size(), attrs, mask, 2 * group(), 2));
  }
};

/// Tiles that end inside a query's heads, and several of them.
TEST_P(CudaAttentionGroups, AreRowsOfOneTile) {
  OneAttention one = of("");
  EXPECT_THAT(one.text(), HasSubstr("hd_group_lines<"));
  one.expect_right({{1, 70}, {1, 1}, {3, 0}, {0, 5}, {7, 130}, {33, 64}},
                   attention_tolerance(dtype()));
  one.part_keys(3);
  one.expect_right({{1, 400}, {5, 129}}, attention_tolerance(dtype()));
}

TEST_P(CudaAttentionGroups, CausalQueriesSeeNoLaterKeys) {
  OneAttention one = of("causal = true");
  one.expect_right({{1, 130}, {30, 70}, {20, 5}}, attention_tolerance(dtype()));
  one.part_keys(2);
  one.expect_right({{9, 300}}, attention_tolerance(dtype()));
}

/// A mask of each head's own is read by the head of each row.
TEST_P(CudaAttentionGroups, EachHasItsMask) {
  const std::string heads = std::to_string(2 * group());
  for (const std::string& mask :
       {dtype() + "[1, " + heads + ", s0, s1]", "bool[1, " + heads + ", 1, s1]",
        std::string("bool[1, 1, 1, s1]")}) {
    SCOPED_TRACE(mask);
    of("", mask).expect_right({{5, 70}, {1, 150}}, attention_tolerance(dtype()));
  }
}

INSTANTIATE_TEST_SUITE_P(Heads, CudaAttentionGroups,
                         ::testing::Values(Group{"f16", 2, 32}, Group{"bf16", 3, 64},
                                           Group{"f16", 5, 80}, Group{"f16", 8, 128},
                                           Group{"bf16", 17, 16}, Group{"f32", 4, 64},
                                           Group{"f32", 7, 40}),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" +
                                  std::to_string(std::get<1>(info.param)) + "_of_" +
                                  std::to_string(std::get<2>(info.param));
                         });

/// A slope of each head, as ALiBi has it: a scalar of the whole tile where heads have tiles of their own.
TEST(CudaAttentionOfGroups, ScalarsOfAHeadAreThoseOfItsRows) {
  OneAttention one(
      R"(graph @slopes(%q: f16[s0, 6, s1, 16], %k: f16[s0, 2, s2, 16], %v: f16[s0, 2, s2, 16], %slope: f32[6, 1, 1], %w: f32[1, 6, 1, 1]) {
    %key = iota() {sizes = [1, 1, s2], axis = 2, dtype = f32}
    %far = mul(%key, %slope)
    %o = attention(%q, %k, %v, %far)
    %x = mul(%o, %w)
    return %x
  })");
  one.expect_right({{2, 5, 70}, {1, 1, 130}, {3, 20, 9}}, 4e-3);
}

TEST(CudaAttentionOfGroups, HeadsThatLieSideBySide) {
  OneAttention one(
      R"(graph @layer(%q: bf16[s0, s1, 12, 32], %k: bf16[s0, s2, 3, 32], %v: bf16[s0, s2, 3, 32]) {
    %a = permute(%q) {perm = [0, 2, 1, 3]}
    %b = permute(%k) {perm = [0, 2, 1, 3]}
    %c = permute(%v) {perm = [0, 2, 1, 3]}
    %o = attention(%a, %b, %c) {causal = true}
    %p = permute(%o) {perm = [0, 2, 1, 3]}
    return %p
  })");
  one.expect_right({{2, 20, 70}, {3, 1, 9}}, 1.6e-2);
}

/// How many heads there are only a call tells: each has tiles of its own.
TEST(CudaAttentionOfGroups, ThatAreNotKnownHaveTilesOfTheirOwn) {
  OneAttention one(
      R"(graph @unknown(%q: f16[1, s0, s1, 16], %k: f16[1, 2, s2, 16], %v: f16[1, 2, s2, 16]) {
    %o = attention(%q, %k, %v)
    return %o
  })");
  EXPECT_THAT(one.text(), Not(HasSubstr("hd_group_lines<")));
  one.expect_right({{4, 5, 70}}, 2e-3);
}

/// Of one query each, as a step of decoding has them.
TEST(CudaAttentionOfGroups, ReadKeysAndValuesOnce) {
  if (!test::on_simulator()) GTEST_SKIP() << test::kNeedsSimulator;
  for (const std::string dtype : {"f16", "f32"}) {
    SCOPED_TRACE(dtype);
    constexpr std::int64_t kSize = 64, kCount = 512, kHeads = 8, kKeyHeads = 2;
    const std::int64_t element = dtype == "f16" ? 2 : 4;
    OneAttention one(attention_text(dtype, kSize, kSize, "", "", kHeads, kKeyHeads));
    const std::int64_t least = element * kSize * (2 * kKeyHeads * kCount + kHeads);
    EXPECT_EQ(one.bytes_read(0, {1, kCount}), least);
  }
}

TEST(CudaAttentionOfGroups, TheCostModelCountsTheirTiles) {
  const auto tiles = jit::cuda::attention_tiles(bf16, 128, 128, false, kAttentionDevice);
  const auto cycles = [&](std::int64_t heads, std::int64_t group, bool causal) {
    return jit::cuda::attention_cycles(tiles[0], {heads, 16, 4096, causal, 256, group},
                                       kAttentionDevice);
  };
  EXPECT_DOUBLE_EQ(cycles(1024, 4, false), cycles(1024, 1, false));
  EXPECT_LT(cycles(1024, 4, true), cycles(1024, 1, true)) << "a tile has four queries";
  const jit::cuda::AttentionShape of_one_query{1024, 1, 4096, false, 256, 4};
  EXPECT_DOUBLE_EQ(
      jit::cuda::attention_cycles(tiles[0], of_one_query, kAttentionDevice),
      jit::cuda::attention_cycles(tiles[0], {256, 4, 4096, false, 256, 1}, kAttentionDevice));
}

}  // namespace
}  // namespace heddle::tests
