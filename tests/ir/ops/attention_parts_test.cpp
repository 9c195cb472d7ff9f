// attention_parts and join_attention: together they are attention, and their constraints.
#include <cmath>
#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Attrs;
using ir::Literal;

Attrs parted(std::int64_t part, Attrs attrs = {}) {
  attrs["part"] = ir::SymExpr(part);
  return attrs;
}

/// Attention of `operands` in parts, joined.
Literal joined(const std::vector<Literal>& operands, std::int64_t part, const Attrs& attrs = {},
               bool nan_rows = false) {
  const std::vector<Literal> parts = evaluate({"attention_parts", operands, parted(part, attrs)});
  return value_of({"join_attention", parts, {{"nan_rows", nan_rows}}});
}

std::vector<Literal> operands(DType dtype, std::int64_t queries, std::int64_t keys) {
  return {noise(dtype, {2, 4, queries, 8}, 1), noise(dtype, {2, 2, keys, 8}, 2),
          noise(dtype, {2, 2, keys, 5}, 3)};
}

TEST(AttentionParts, JoinedAreAttention) {
  for (const DType dtype : {f32, f64}) {
    for (const std::int64_t part : {1, 3, 7, 11}) {
      for (const bool causal : {false, true}) {
        const std::vector<Literal> all = operands(dtype, 3, 7);
        const Attrs attrs = {{"causal", causal}, {"softcap", 0.5}};
        expect_close(joined(all, part, attrs), value_of({"attention", all, attrs}), 1e-6);
      }
    }
  }
}

/// What two keys of a part give, by hand: scores are 0 and log 3.
TEST(AttentionParts, SumsAreNotDivided) {
  const Literal q = doubles(f32, {1, 1, 1, 1}, {1});
  const Literal k = doubles(f32, {1, 1, 3, 1}, {0, std::log(3.0), 2});
  const Literal v = doubles(f32, {1, 1, 3, 2}, {3, 6, 1, 2, 5, 7});
  const std::vector<Literal> parts =
      evaluate({"attention_parts", {q, k, v}, parted(2, {{"scale", 1.0}})});
  expect_close(parts[0], doubles(f32, {1, 1, 1, 2, 2}, {2, 4, 5, 7}), 1e-6);
  expect_close(parts[1], doubles(f32, {1, 1, 1, 2}, {std::log(3.0), 2}), 1e-6);
  expect_close(parts[2], doubles(f32, {1, 1, 1, 2}, {4.0 / 3, 1}), 1e-6);
}

TEST(AttentionParts, PartsThatSeeNothingWeighNothing) {
  std::vector<Literal> all = operands(f32, 2, 6);
  all.push_back(ints(boolean, {2, 6}, {0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0}));
  const std::vector<Literal> parts = evaluate({"attention_parts", all, parted(3)});
  EXPECT_EQ(parts[1].at(0), -kInf);
  EXPECT_EQ(parts[2].at(0), 0);
  for (const bool nan_rows : {false, true}) {
    const Attrs attrs = {{"nan_rows", nan_rows}};
    expect_close(joined(all, 3, {}, nan_rows), value_of({"attention", all, attrs}), 1e-6);
  }
  for (const bool nan_rows : {false, true})
    expect_close(joined(operands(f32, 2, 0), 3, {}, nan_rows), ir::Literal(f32, {2, 4, 2, 5}), 0);
}

TEST(AttentionParts, NaNScoresAreNaNResults) {
  std::vector<Literal> all = operands(f32, 1, 6);
  all[1] = with_nan(all[1], 0);
  const Literal result = joined(all, 2);
  EXPECT_TRUE(std::isnan(result.at(0)));
  EXPECT_FALSE(std::isnan(result.at(2 * 5)));  // heads of the other head of k
}

TEST(AttentionParts, attention_parts_c11) {
  EXPECT_EQ(error_of("attention_parts",
                     {meta(f32, {1, 1, 1, 2}), meta(f32, {1, 1, 3, 2}), meta(f32, {1, 1, 3, 2})},
                     parted(0)),
            "attention_parts: C11 part is at least 1: expected 1 or more, got 0");
}

TEST(AttentionParts, attention_parts_c6) {
  EXPECT_EQ(error_of("attention_parts",
                     {meta(f32, {1, 3, 1, 2}), meta(f32, {1, 2, 3, 2}), meta(f32, {1, 2, 3, 2})},
                     parted(1)),
            "attention_parts: C6 the heads H of q are a multiple of those of k: expected a "
            "multiple of 2, got 3");
}

TEST(JoinAttention, join_attention_c1) {
  const std::string c1 = "join_attention: C1 all are of one floating dtype: ";
  const ir::TensorMeta stats = meta(f32, {1, 1, 1, 2});
  EXPECT_EQ(error_of("join_attention", {meta(i32, {1, 1, 1, 2, 3}), stats, stats}),
            c1 + "expected a floating dtype, got i32");
  EXPECT_EQ(
      error_of("join_attention", {meta(f32, {1, 1, 1, 2, 3}), stats, meta(f64, {1, 1, 1, 2})}),
      c1 + "expected f32, got f64");
}

TEST(JoinAttention, join_attention_c2) {
  const ir::TensorMeta stats = meta(f32, {1, 1, 1, 2});
  EXPECT_EQ(error_of("join_attention", {stats, stats, stats}),
            "join_attention: C2 sums have five dimensions: expected [batch, heads, length, parts, "
            "size], got [1, 1, 1, 2]");
}

TEST(JoinAttention, join_attention_c3) {
  const std::string c3 =
      "join_attention: C3 largest and totals have the sizes of sums but for the last: ";
  const ir::TensorMeta sums = meta(f32, {1, 1, 1, 2, 3});
  const ir::TensorMeta stats = meta(f32, {1, 1, 1, 2});
  EXPECT_EQ(error_of("join_attention", {sums, stats, meta(f32, {1, 1, 2})}),
            c3 + "expected [1, 1, 1, 2], got [1, 1, 2]");
  EXPECT_EQ(error_of("join_attention", {sums, meta(f32, {1, 1, 1, 3}), stats}),
            c3 + "expected 2, got 3");
}

}  // namespace
}  // namespace heddle::testing
