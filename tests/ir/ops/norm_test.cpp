// The normalising ops against formulas written out, their constraints, and their decompositions.
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Literal;
using ir::Sizes;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

ir::Attrs axis(std::int64_t value) { return {{"axis", value}}; }

Literal softmax(const Literal& x, std::int64_t along = -1) {
  return value_of({"softmax", {x}, axis(along)});
}

TEST(Softmax, KnownValues) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    const Literal x = doubles(dtype, {1, 3}, {0, 1, 2});
    const double e = std::exp(1.0);
    const double sum = 1 + e + e * e;
    const Literal want = doubles(dtype, {1, 3}, {1 / sum, e / sum, e * e / sum});
    expect_close(softmax(x), want, tolerance_of(dtype));
    const Literal logs =
        doubles(dtype, {1, 3}, {-std::log(sum), 1 - std::log(sum), 2 - std::log(sum)});
    expect_close(value_of({"log_softmax", {x}}), logs, tolerance_of(dtype));
  }
}

TEST(Softmax, SumsToOneAlongItsAxis) {
  for (const std::int64_t along : {0, 1, 2, -1, -3}) {
    SCOPED_TRACE(along);
    const Literal y = softmax(noise(f64, {2, 3, 4}), along);
    const std::int64_t from_front = along < 0 ? along + 3 : along;
    const std::int64_t stride = from_front == 0 ? 12 : from_front == 1 ? 4 : 1;
    const std::int64_t length = y.sizes()[static_cast<std::size_t>(from_front)];
    double sum = 0;
    for (std::int64_t k = 0; k < length; ++k) sum += y.at(k * stride);
    EXPECT_NEAR(sum, 1.0, 1e-14);
  }
}

TEST(Softmax, DoesNotOverflow) {
  const Literal x = doubles(f32, {3}, {1e30, 1e30, -1e30});
  expect_same(softmax(x), doubles(f32, {3}, {0.5, 0.5, 0}));
  expect_decomposition_agrees({"softmax", {x}}, 1e-6);
  expect_decomposition_agrees({"log_softmax", {x}}, 1e-6);
  const Literal far = doubles(f32, {2}, {0, -1000});
  expect_same(value_of({"log_softmax", {far}}), doubles(f32, {2}, {0, -1000}));
}

TEST(Softmax, NaNAndInfinity) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    const Literal y = softmax(with_nan(noise(dtype, {2, 3}), 1));
    for (std::int64_t k = 0; k < 6; ++k) EXPECT_EQ(std::isnan(y.at(k)), k < 3) << k;
    const Literal masked = softmax(doubles(dtype, {2}, {-kInfinity, 1}));
    expect_same(masked, doubles(dtype, {2}, {0, 1}));
    EXPECT_TRUE(std::isnan(softmax(doubles(dtype, {1}, {-kInfinity})).at(0)));
    EXPECT_TRUE(std::isnan(softmax(doubles(dtype, {2}, {kInfinity, 0})).at(1)));
  }
}

TEST(Softmax, EmptySingleAndSpreadOut) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    EXPECT_EQ(softmax(Literal(dtype, {3, 0})).sizes(), (Sizes{3, 0}));
    EXPECT_EQ(softmax(Literal(dtype, {0, 3})).sizes(), (Sizes{0, 3}));
    expect_same(softmax(doubles(dtype, {1, 1}, {7})), doubles(dtype, {1, 1}, {1}));
    const Literal x = noise(dtype, {2, 3, 4});
    expect_same(softmax(spread_out(x), 1), softmax(x, 1));
  }
}

TEST(Softmax, softmax_c1) {
  EXPECT_EQ(error_of("softmax", {meta(i32, {2})}),
            "softmax: C1 x has a floating dtype: expected a floating dtype, got i32");
  EXPECT_EQ(error_of("log_softmax", {meta(boolean, {2})}),
            "log_softmax: C1 x has a floating dtype: expected a floating dtype, got bool");
}

TEST(Softmax, softmax_c2) {
  EXPECT_EQ(error_of("softmax", {meta(f32, {2, 2})}, axis(2)),
            "softmax: C2 axis lies within the rank of x: expected an axis in [-2, 2), got 2");
}

TEST(LayerNorm, KnownValues) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    const Literal x = doubles(dtype, {2, 2}, {1, 3, 10, 30});
    const OneOp call{"layer_norm",
                     {x, doubles(dtype, {2}, {2, 4}), doubles(dtype, {2}, {1, -1})},
                     {{"epsilon", 0.0}}};
    expect_close(value_of(call), doubles(dtype, {2, 2}, {-1, 3, -1, 3}), tolerance_of(dtype));
    const Literal y = value_of({"rms_norm", {doubles(dtype, {2}, {3, 4})}, {{"epsilon", 0.0}}});
    const double rms = std::sqrt(12.5);
    expect_close(y, doubles(dtype, {2}, {3 / rms, 4 / rms}), tolerance_of(dtype));
  }
}

TEST(LayerNorm, NormalisesAllDimensionsFromAxis) {
  const Literal x = noise(f64, {2, 3, 4});
  const Literal y = value_of({"layer_norm", {x}, {{"axis", std::int64_t{1}}, {"epsilon", 0.0}}});
  for (std::int64_t row = 0; row < 2; ++row) {
    double sum = 0;
    double squares = 0;
    for (std::int64_t k = 0; k < 12; ++k) sum += y.at(row * 12 + k);
    for (std::int64_t k = 0; k < 12; ++k) squares += y.at(row * 12 + k) * y.at(row * 12 + k);
    EXPECT_NEAR(sum, 0, 1e-13);
    EXPECT_NEAR(squares, 12, 1e-12);
  }
}

TEST(LayerNorm, KeepsItsDigitsFarFromZero) {
  const Literal x = doubles(f32, {4}, {1e6, 1e6 + 1, 1e6 + 2, 1e6 + 3});
  const double root = std::sqrt(1.25);
  const Literal want = doubles(f32, {4}, {-1.5 / root, -0.5 / root, 0.5 / root, 1.5 / root});
  const OneOp call{"layer_norm", {x}, {{"epsilon", 0.0}}};
  expect_close(value_of(call), want, 1e-6);
  expect_decomposition_agrees(call, 1e-5);
}

TEST(LayerNorm, ScaleAndBiasBroadcast) {
  const Literal x = noise(f32, {2, 3, 4});
  const ir::Attrs from_one = axis(1);
  const Literal scale = noise(f32, {3, 1}, 2);
  const Literal bias = noise(f32, {4}, 3);
  Literal full_scale(f32, {3, 4});
  Literal full_bias(f32, {3, 4});
  for (std::int64_t k = 0; k < 12; ++k) {
    full_scale.set(k, scale.at(k / 4));
    full_bias.set(k, bias.at(k % 4));
  }
  expect_same(value_of({"layer_norm", {x, scale, bias}, from_one}),
              value_of({"layer_norm", {x, full_scale, full_bias}, from_one}));
}

TEST(LayerNorm, EmptySingleSpreadOutAndNaN) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    for (const std::string_view op : {"layer_norm", "rms_norm"}) {
      EXPECT_EQ(value_of({op, {Literal(dtype, {0, 3})}}).sizes(), (Sizes{0, 3}));
      EXPECT_EQ(value_of({op, {Literal(dtype, {3, 0})}}).sizes(), (Sizes{3, 0}));
      const Literal x = noise(dtype, {2, 3, 4});
      expect_same(value_of({op, {spread_out(x)}, axis(1)}), value_of({op, {x}, axis(1)}));
      const Literal y = value_of({op, {with_nan(x, 5)}, axis(1)});
      for (std::int64_t k = 0; k < 24; ++k) EXPECT_EQ(std::isnan(y.at(k)), k < 12) << k;
    }
    expect_same(value_of({"layer_norm", {ints(dtype, {2, 1}, {3, 4})}}), Literal(dtype, {2, 1}));
  }
}

TEST(LayerNorm, layer_norm_c1) {
  EXPECT_EQ(error_of("layer_norm", {meta(f32, {2}), meta(i32, {2}), meta(f32, {2})}),
            "layer_norm: C1 x, scale and bias have floating dtypes: expected a floating dtype, "
            "got i32");
}

TEST(LayerNorm, layer_norm_c2) {
  EXPECT_EQ(error_of("rms_norm", {meta(f32, {2, 2}), meta(f32, {2})}, axis(-3)),
            "rms_norm: C2 axis lies within the rank of x: expected an axis in [-2, 2), got -3");
}

TEST(LayerNorm, layer_norm_c3) {
  EXPECT_EQ(error_of("layer_norm", {meta(f32, {2, 3}), meta(f32, {4}), meta(f32, {3})}),
            "layer_norm: C3 scale and bias broadcast to the normalised sizes: expected 3, got 4");
  EXPECT_EQ(error_of("layer_norm", {meta(f32, {2, 3}), meta(f32, {2, 3}), meta(f32, {3})}),
            "layer_norm: C3 scale and bias broadcast to the normalised sizes: expected [3], got "
            "[2, 3]");
}

ir::Attrs groups(std::int64_t count, double epsilon = 1e-5) {
  return {{"groups", count}, {"epsilon", epsilon}};
}

TEST(GroupNorm, OneGroupIsLayerNormOfAllButTheBatch) {
  const Literal x = noise(f32, {2, 4, 3});
  expect_close(value_of({"group_norm", {x}, groups(1)}), value_of({"layer_norm", {x}, axis(1)}),
               1e-7);
}

TEST(GroupNorm, KnownValues) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    const Literal x = doubles(dtype, {1, 4, 1}, {1, 3, 10, 30});
    const OneOp call{"group_norm",
                     {x, doubles(dtype, {4}, {1, 2, 3, 4}), doubles(dtype, {4}, {0, 0, 1, 1})},
                     groups(2, 0.0)};
    expect_close(value_of(call), doubles(dtype, {1, 4, 1}, {-1, 2, -2, 5}), tolerance_of(dtype));
  }
}

TEST(GroupNorm, EmptySpreadOutAndNaN) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    EXPECT_EQ(value_of({"group_norm", {Literal(dtype, {0, 4, 3})}, groups(2)}).sizes(),
              (Sizes{0, 4, 3}));
    EXPECT_EQ(value_of({"group_norm", {Literal(dtype, {2, 4, 0})}, groups(2)}).sizes(),
              (Sizes{2, 4, 0}));
    const Literal x = noise(dtype, {2, 4, 3});
    expect_same(value_of({"group_norm", {spread_out(x)}, groups(2)}),
                value_of({"group_norm", {x}, groups(2)}));
    const Literal y = value_of({"group_norm", {with_nan(x, 7)}, groups(2)});
    for (std::int64_t k = 0; k < 24; ++k) EXPECT_EQ(std::isnan(y.at(k)), k / 6 == 1) << k;
  }
}

TEST(GroupNorm, group_norm_c1) {
  EXPECT_EQ(error_of("group_norm", {meta(i64, {1, 2}), meta(f32, {2}), meta(f32, {2})}, groups(1)),
            "group_norm: C1 x, scale and bias have floating dtypes: expected a floating dtype, "
            "got i64");
}

TEST(GroupNorm, group_norm_c2) {
  EXPECT_EQ(error_of("group_norm", {meta(f32, {2}), meta(f32, {2}), meta(f32, {2})}, groups(1)),
            "group_norm: C2 x has at least two dimensions: expected sizes [N, C, ...], got [2]");
}

TEST(GroupNorm, group_norm_c3) {
  EXPECT_EQ(error_of("group_norm", {meta(f32, {1, 2}), meta(f32, {2}), meta(f32, {2})}, groups(0)),
            "group_norm: C3 groups is at least 1: expected 1 or more, got 0");
}

TEST(GroupNorm, group_norm_c4) {
  EXPECT_EQ(error_of("group_norm", {meta(f32, {1, 4}), meta(f32, {4}), meta(f32, {4})}, groups(3)),
            "group_norm: C4 the channels C are a multiple of groups: expected a multiple of 3, "
            "got 4");
}

TEST(GroupNorm, group_norm_c5) {
  EXPECT_EQ(error_of("group_norm", {meta(f32, {1, 4}), meta(f32, {3}), meta(f32, {4})}, groups(2)),
            "group_norm: C5 scale and bias have sizes [C]: expected 4, got 3");
  EXPECT_EQ(
      error_of("group_norm", {meta(f32, {1, 4}), meta(f32, {4}), meta(f32, {4, 1})}, groups(2)),
      "group_norm: C5 scale and bias have sizes [C]: expected [4], got [4, 1]");
}

OneOp batch_norm(DType dtype, const Literal& x) {
  const std::int64_t channels = x.sizes()[1];
  Literal variance = noise(dtype, {channels}, 9);
  for (std::int64_t k = 0; k < channels; ++k) variance.set(k, std::fabs(variance.at(k)) + 0.5);
  return {"batch_norm",
          {x, noise(dtype, {channels}, 2), noise(dtype, {channels}, 3), noise(dtype, {channels}, 4),
           variance}};
}

TEST(BatchNorm, KnownValues) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    const OneOp call{
        "batch_norm",
        {doubles(dtype, {1, 2, 2}, {1, 3, 10, 30}), doubles(dtype, {2}, {2, 1}),
         doubles(dtype, {2}, {0, 5}), doubles(dtype, {2}, {2, 10}), doubles(dtype, {2}, {4, 100})},
        {{"epsilon", 0.0}}};
    expect_close(value_of(call), doubles(dtype, {1, 2, 2}, {-1, 1, 5, 7}), tolerance_of(dtype));
  }
}

TEST(BatchNorm, EmptySpreadOutNaNAndMixedDTypes) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    EXPECT_EQ(value_of(batch_norm(dtype, Literal(dtype, {0, 3, 2}))).sizes(), (Sizes{0, 3, 2}));
    const Literal x = noise(dtype, {2, 3, 2});
    expect_same(value_of(batch_norm(dtype, spread_out(x))), value_of(batch_norm(dtype, x)));
    const Literal y = value_of(batch_norm(dtype, with_nan(x, 3)));
    for (std::int64_t k = 0; k < 12; ++k) EXPECT_EQ(std::isnan(y.at(k)), k == 3) << k;
    EXPECT_EQ(value_of(batch_norm(f32, x)).dtype(), dtype);
    EXPECT_EQ(value_of(batch_norm(dtype, noise(dtype, {2, 3}))).sizes(), (Sizes{2, 3}));
  }
}

std::vector<ir::TensorMeta> batch_norm_types(ir::TensorMeta x, ir::TensorMeta parameter) {
  return {std::move(x), parameter, parameter, parameter, parameter};
}

TEST(BatchNorm, batch_norm_c1) {
  EXPECT_EQ(error_of("batch_norm", batch_norm_types(meta(f32, {1, 2}), meta(i32, {2}))),
            "batch_norm: C1 all operands have floating dtypes: expected a floating dtype, got i32");
}

TEST(BatchNorm, batch_norm_c2) {
  EXPECT_EQ(error_of("batch_norm", batch_norm_types(meta(f32, {2}), meta(f32, {2}))),
            "batch_norm: C2 x has at least two dimensions: expected sizes [N, C, ...], got [2]");
}

TEST(BatchNorm, batch_norm_c3) {
  EXPECT_EQ(error_of("batch_norm", batch_norm_types(meta(f32, {1, 2}), meta(f32, {3}))),
            "batch_norm: C3 scale, bias, mean and var have sizes [C]: expected 2, got 3");
  EXPECT_EQ(error_of("batch_norm", batch_norm_types(meta(f32, {1, 2}), meta(f32, {}))),
            "batch_norm: C3 scale, bias, mean and var have sizes [C]: expected [2], got []");
}

TEST(Norms, DecompositionsAgree) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    const double r = std::max(2e-6, 2 * tolerance_of(dtype)) * (dtype == f64 ? 1e-6 : 1);
    const Literal x = noise(dtype, {2, 4, 3});
    const Literal four = noise(dtype, {4}, 2);
    const Literal three = noise(dtype, {3}, 2);
    expect_decomposition_agrees({"softmax", {x}, axis(1)}, r);
    expect_decomposition_agrees({"log_softmax", {x}, axis(1)}, r);
    expect_decomposition_agrees({"layer_norm", {x, three, three}}, r);
    expect_decomposition_agrees({"layer_norm", {x, {}, three}, axis(-2)}, r);
    expect_decomposition_agrees({"rms_norm", {x, three}}, r);
    expect_decomposition_agrees({"group_norm", {x, four, four}, groups(2)}, r);
    expect_decomposition_agrees(batch_norm(dtype, x), 4 * r);
  }
}

TEST(Norms, DecompositionsTakeNaNAndEmptyOperands) {
  const Literal x = with_nan(noise(f32, {2, 4, 3}), 7);
  for (const Literal& operand : {x, Literal(f32, {0, 4, 3}), Literal(f32, {2, 4, 0})}) {
    expect_decomposition_agrees({"softmax", {operand}}, 1e-6);
    expect_decomposition_agrees({"log_softmax", {operand}}, 1e-6);
    expect_decomposition_agrees({"layer_norm", {operand}}, 1e-6);
    expect_decomposition_agrees({"rms_norm", {operand}}, 1e-6);
    expect_decomposition_agrees({"group_norm", {operand}, groups(2)}, 1e-6);
    expect_decomposition_agrees(batch_norm(f32, operand), 1e-6);
  }
}

}  // namespace
}  // namespace heddle::testing
