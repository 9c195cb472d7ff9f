// attention against sums written out, its constraints, and its decomposition.
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Attrs;
using ir::Literal;
using ir::Sizes;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Attrs causal(bool value, double scale = 0.0) { return {{"causal", value}, {"scale", scale}}; }

struct Heads {
  std::int64_t batch, heads, shared, queries, keys, size, value_size;

  Literal q(DType dtype) const { return noise(dtype, {batch, heads, queries, size}, 1); }
  Literal k(DType dtype) const { return noise(dtype, {batch, shared, keys, size}, 2); }
  Literal v(DType dtype) const { return noise(dtype, {batch, shared, keys, value_size}, 3); }
};

double at4(const Literal& t, std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
  const Sizes& s = t.sizes();
  return t.at(((a * s[1] + b) * s[2] + c) * s[3] + d);
}

/// Without subtracting a maximum: exp of small numbers, straight from the formula.
Literal formula(const Heads& h, DType dtype, bool is_causal, double softcap = 0) {
  const Literal q = h.q(dtype);
  const Literal k = h.k(dtype);
  const Literal v = h.v(dtype);
  Literal result(dtype, {h.batch, h.heads, h.queries, h.value_size});
  std::int64_t p = 0;
  for (std::int64_t b = 0; b < h.batch; ++b) {
    for (std::int64_t head = 0; head < h.heads; ++head) {
      const std::int64_t from = head / (h.heads / h.shared);
      for (std::int64_t i = 0; i < h.queries; ++i) {
        std::vector<double> sums(static_cast<std::size_t>(h.value_size) + 1);
        for (std::int64_t j = 0; j < h.keys; ++j) {
          if (is_causal && j > i + h.keys - h.queries) continue;
          double score = 0;
          for (std::int64_t d = 0; d < h.size; ++d) {
            score += at4(q, b, head, i, d) * at4(k, b, from, j, d);
          }
          score /= std::sqrt(static_cast<double>(h.size));
          const double weight =
              std::exp(softcap == 0 ? score : softcap * std::tanh(score / softcap));
          sums[0] += weight;
          for (std::int64_t d = 0; d < h.value_size; ++d) {
            sums[static_cast<std::size_t>(d) + 1] += weight * at4(v, b, from, j, d);
          }
        }
        for (std::size_t d = 1; d < sums.size(); ++d) result.set(p++, sums[d] / sums[0]);
      }
    }
  }
  return result;
}

const Heads kHeads[] = {
    {2, 4, 4, 3, 5, 8, 6}, {1, 6, 2, 4, 4, 4, 4}, {2, 2, 1, 1, 7, 3, 5}, {1, 1, 1, 1, 1, 1, 1}};

TEST(Attention, AgreesWithTheFormula) {
  for (const Heads& h : kHeads) {
    for (const DType dtype : kFloats) {
      for (const bool is_causal : {false, true}) {
        SCOPED_TRACE(name_of(dtype));
        const Literal want = formula(h, dtype, is_causal);
        const OneOp call{"attention", {h.q(dtype), h.k(dtype), h.v(dtype)}, causal(is_causal)};
        expect_close(value_of(call), want, tolerance_of(dtype));
        expect_same(
            value_of({"attention",
                      {spread_out(h.q(dtype)), spread_out(h.k(dtype)), spread_out(h.v(dtype))},
                      causal(is_causal)}),
            value_of(call));
      }
    }
  }
}

TEST(Attention, ScoresAreCapped) {
  for (const Heads& h : kHeads) {
    const OneOp call{
        "attention", {h.q(f64), h.k(f64), h.v(f64)}, {{"causal", true}, {"softcap", 0.25}}};
    expect_close(value_of(call), formula(h, f64, true, 0.25), tolerance_of(f64));
    expect_decomposition_agrees(call, tolerance_of(f64));
  }
}

/// One query of size 1 over keys 0, so that weights are what the mask makes them.
Literal masked(const Literal& mask, bool is_causal = false, std::int64_t queries = 1) {
  const Literal q(f32, {1, 1, queries, 1});
  const Literal k(f32, {1, 1, 3, 1});
  return value_of(
      {"attention", {q, k, doubles(f32, {1, 1, 3, 1}, {1, 10, 100}), mask}, causal(is_causal)});
}

TEST(Attention, BoolAndAdditiveMasks) {
  expect_close(masked(ints(boolean, {3}, {1, 0, 1})), doubles(f32, {1, 1, 1, 1}, {50.5}), 1e-6);
  expect_close(masked(doubles(f32, {1, 3}, {0, -kInfinity, 0})), doubles(f32, {1, 1, 1, 1}, {50.5}),
               1e-6);
  expect_close(masked(doubles(f16, {3}, {0, std::log(3.0), -kInfinity})),
               doubles(f32, {1, 1, 1, 1}, {31.0 / 4}), 1e-3);
}

TEST(Attention, AQueryThatSeesNothingGivesZero) {
  expect_same(masked(ints(boolean, {3}, {0, 0, 0})), Literal(f32, {1, 1, 1, 1}));
  expect_same(masked(doubles(f32, {3}, {-kInfinity, -kInfinity, -kInfinity})),
              Literal(f32, {1, 1, 1, 1}));
  // With five queries over three keys the first two see none.
  expect_close(masked(ints(boolean, {}, {1}), true, 5),
               doubles(f32, {1, 1, 5, 1}, {0, 0, 1, 5.5, 37}), 1e-6);
}

TEST(Attention, NanRowsAreWhatASoftmaxGives) {
  const auto call = [](const Literal& mask) {
    return OneOp{"attention",
                 {Literal(f32, {1, 1, 1, 1}), Literal(f32, {1, 1, 3, 1}),
                  doubles(f32, {1, 1, 3, 1}, {1, 10, 100}), mask},
                 {{"nan_rows", true}}};
  };
  const OneOp none = call(ints(boolean, {3}, {0, 0, 0}));
  EXPECT_TRUE(std::isnan(value_of(none).at(0)));
  expect_decomposition_agrees(none, 0);
  const OneOp some = call(ints(boolean, {3}, {1, 0, 1}));
  expect_close(value_of(some), doubles(f32, {1, 1, 1, 1}, {50.5}), 1e-6);
  expect_decomposition_agrees(some, 1e-6);
  const Heads no_keys{1, 2, 2, 3, 0, 2, 4};
  const OneOp empty{
      "attention", {no_keys.q(f32), no_keys.k(f32), no_keys.v(f32)}, {{"nan_rows", true}}};
  expect_same(value_of(empty), Literal(f32, {1, 2, 3, 4}));
  expect_decomposition_agrees(empty, 0);
}

TEST(Attention, HiddenIsTheScoreOfWhatABoolMaskHides) {
  const Literal q = doubles(f64, {1, 1, 1, 1}, {1});
  const Literal k = doubles(f64, {1, 1, 2, 1}, {5, 7});
  const Literal v = doubles(f64, {1, 1, 2, 1}, {0, 1});
  const auto call = [&](std::int64_t first, std::int64_t second, double hidden) {
    return OneOp{"attention", {q, k, v, ints(boolean, {2}, {first, second})}, {{"hidden", hidden}}};
  };
  const OneOp first = call(0, 1, 7 - std::log(3.0));
  expect_close(value_of(first), doubles(f64, {1, 1, 1, 1}, {0.75}), 1e-14);
  expect_decomposition_agrees(first, 1e-12);
  // Where all are hidden they weigh alike.
  const OneOp both = call(0, 0, -1e9);
  expect_close(value_of(both), doubles(f64, {1, 1, 1, 1}, {0.5}), 1e-14);
  expect_decomposition_agrees(both, 1e-12);
}

TEST(Attention, ScaleMultipliesScores) {
  const Literal q = doubles(f64, {1, 1, 1, 1}, {1});
  const Literal k = doubles(f64, {1, 1, 2, 1}, {0, std::log(2.0)});
  const Literal v = doubles(f64, {1, 1, 2, 1}, {0, 1});
  expect_close(value_of({"attention", {q, k, v}, causal(false, 2.0)}),
               doubles(f64, {1, 1, 1, 1}, {0.8}), 1e-14);
}

TEST(Attention, LargeScoresDoNotOverflow) {
  const Literal q = doubles(f32, {1, 1, 1, 1}, {1e4});
  const Literal k = doubles(f32, {1, 1, 2, 1}, {1e4, -1e4});
  const Literal v = doubles(f32, {1, 1, 2, 1}, {3, 4});
  const OneOp call{"attention", {q, k, v}};
  expect_same(value_of(call), doubles(f32, {1, 1, 1, 1}, {3}));
  expect_decomposition_agrees(call, 1e-6);
}

TEST(Attention, NaNStaysInTheRowsThatSeeIt) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    const Heads h{1, 2, 2, 3, 3, 2, 2};
    const OneOp query{"attention", {with_nan(h.q(dtype), 2), h.k(dtype), h.v(dtype)}};
    const Literal y = value_of(query);
    for (std::int64_t p = 0; p < 12; ++p) EXPECT_EQ(std::isnan(y.at(p)), p / 2 == 1) << p;
    expect_decomposition_agrees(query, 2 * tolerance_of(dtype));
    // A NaN key that only the last query may see.
    const OneOp key{"attention", {h.q(dtype), with_nan(h.k(dtype), 4), h.v(dtype)}, causal(true)};
    const Literal z = value_of(key);
    for (std::int64_t p = 0; p < 12; ++p) EXPECT_EQ(std::isnan(z.at(p)), p / 2 == 2) << p;
    expect_decomposition_agrees(key, 2 * tolerance_of(dtype));
  }
}

TEST(Attention, EmptyOperands) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    const Heads none{0, 2, 2, 3, 3, 2, 4};
    EXPECT_EQ(value_of({"attention", {none.q(dtype), none.k(dtype), none.v(dtype)}}).sizes(),
              (Sizes{0, 2, 3, 4}));
    const Heads no_keys{1, 2, 2, 3, 0, 2, 4};
    const OneOp call{"attention", {no_keys.q(dtype), no_keys.k(dtype), no_keys.v(dtype)}};
    expect_same(value_of(call), Literal(dtype, {1, 2, 3, 4}));
    expect_decomposition_agrees(call, 0);
  }
}

TEST(Attention, DecompositionAgrees) {
  for (const Heads& h : kHeads) {
    for (const DType dtype : kFloats) {
      SCOPED_TRACE(name_of(dtype));
      const double r = 4 * tolerance_of(dtype);
      const Literal q = h.q(dtype);
      const Literal k = h.k(dtype);
      const Literal v = h.v(dtype);
      const Literal keep = noise(boolean, {h.queries, h.keys}, 4);
      const Literal added = noise(dtype, {h.heads, 1, h.keys}, 5);
      expect_decomposition_agrees({"attention", {q, k, v}}, r);
      expect_decomposition_agrees({"attention", {q, k, v, keep}, causal(true)}, r);
      expect_decomposition_agrees({"attention", {q, k, v, added}, causal(false, 0.5)}, r);
    }
  }
}

TEST(Attention, PromotesMixedDTypes) {
  const Heads h{1, 1, 1, 2, 3, 2, 2};
  const OneOp call{"attention", {h.q(f16), h.k(f32), h.v(bf16)}};
  EXPECT_EQ(value_of(call).dtype(), f32);
  expect_decomposition_agrees(call, 1e-6);
}

TEST(Attention, InfersSymbolicSizes) {
  const auto b = base::SymExpr::size(0);
  const auto l = base::SymExpr::size(1);
  EXPECT_EQ(type_of("attention", {meta(f32, {b, 8, l, 64}), meta(f32, {b, 2, l, 64}),
                                  meta(f32, {b, 2, l, 32}), meta(boolean, {l, l})}),
            "f32[s0, 8, s1, 32]");
}

std::string attention_error(const ir::Dims& q, const ir::Dims& k, const ir::Dims& v,
                            const ir::TensorMeta& mask = meta(boolean, {}), DType dtype = f32) {
  return error_of("attention", {meta(dtype, q), meta(f32, k), meta(f32, v), mask});
}

TEST(Attention, attention_c1) {
  EXPECT_EQ(attention_error({1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, meta(boolean, {}), i32),
            "attention: C1 q, k and v have floating dtypes: expected a floating dtype, got i32");
}

TEST(Attention, attention_c2) {
  EXPECT_EQ(attention_error({1, 1, 1, 1}, {1, 1, 1}, {1, 1, 1, 1}),
            "attention: C2 q, k and v have four dimensions: expected [batch, heads, length, size], "
            "got [1, 1, 1]");
}

TEST(Attention, attention_c3) {
  EXPECT_EQ(attention_error({2, 1, 1, 1}, {3, 1, 1, 1}, {2, 1, 1, 1}),
            "attention: C3 q, k and v agree on the batch size B: expected 2, got 3");
}

TEST(Attention, attention_c4) {
  EXPECT_EQ(attention_error({1, 1, 1, 1}, {1, 1, 2, 1}, {1, 1, 3, 1}),
            "attention: C4 k and v agree on the heads Hk and the length Lk: expected 2, got 3");
}

TEST(Attention, attention_c5) {
  EXPECT_EQ(attention_error({1, 1, 1, 2}, {1, 1, 1, 3}, {1, 1, 1, 1}),
            "attention: C5 q and k agree on the head size D: expected 2, got 3");
}

TEST(Attention, attention_c6) {
  EXPECT_EQ(attention_error({1, 3, 1, 1}, {1, 2, 1, 1}, {1, 2, 1, 1}),
            "attention: C6 the heads H of q are a multiple of those of k: expected a multiple of "
            "2, got 3");
  EXPECT_EQ(attention_error({1, 3, 1, 1}, {1, 0, 1, 1}, {1, 0, 1, 1}),
            "attention: C6 the heads H of q are a multiple of those of k: expected at least one "
            "head of k, got 0");
}

TEST(Attention, attention_c7) {
  EXPECT_EQ(attention_error({1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, meta(i32, {})),
            "attention: C7 mask is bool or floating: expected bool or a floating dtype, got i32");
}

TEST(Attention, attention_c8) {
  EXPECT_EQ(attention_error({1, 1, 2, 1}, {1, 1, 3, 1}, {1, 1, 3, 1}, meta(boolean, {2, 4})),
            "attention: C8 mask broadcasts to [B, H, Lq, Lk]: expected 3, got 4");
}

TEST(Attention, attention_c9) {
  for (const double softcap : {-1.0, kInfinity}) {
    const auto x = meta(f32, {1, 1, 1, 1});
    EXPECT_EQ(
        error_of("attention", {x, x, x}, {{"softcap", softcap}}),
        "attention: C9 softcap is 0 or more, and finite: expected 0 or a positive number, got " +
            std::to_string(softcap));
  }
}

TEST(Attention, attention_c10) {
  const auto x = meta(f64, {1, 1, 1, 1});
  EXPECT_EQ(error_of("attention", {x, x, x}, {{"bf16", true}}),
            "attention: C10 bf16 is for a result of f32 or bf16: expected f32 or bf16, got f64");
}

}  // namespace
}  // namespace heddle::testing
