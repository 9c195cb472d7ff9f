// Activations: relu, gelu, silu, softplus; each a function of one element.
//
//   x       T[d0 .. dn-1]
//   result  T[d0 .. dn-1]
//
//   relu      max(x, 0); NaN stays NaN
//   gelu      approximate = "none": x/2 * (1 + erf(x / sqrt(2)));
//             approximate = "tanh": x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))
//   silu      x * sigmoid(x)
//   softplus  log(1 + exp(x)), computed as max(x, 0) + log1p(exp(-|x|)), which does not overflow
//
// f16 and bf16 are computed in f32 and rounded once.
//
// Constraints. infer() checks them in this order; tests are named <op>_c1 ...
//   C1  T is a floating dtype; of relu: any but bool
//   C2  gelu: approximate is "none" or "tanh"
//
// Memory: fresh; may take the operand's bytes.
// Source: Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016) for gelu and its tanh form;
// Elfwing et al. (2018) for silu; ONNX Relu-14, Gelu-20, Softplus-22.
#include <cmath>
#include <numbers>

#include "heddle/error.h"
#include "ir/ops/common.h"
#include "ir/ops/composite_ops.h"
#include "ir/ops/pointwise.h"

namespace heddle::ir::ops {
namespace {

constexpr double kSqrtTwoOverPi = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
constexpr double kTanhCubic = 0.044715;

std::vector<TensorMeta> infer_floating(const InferContext& ctx) {
  const TensorMeta& x = ctx.meta(0);
  if (!is_floating(x.dtype)) ctx.fail_dtype("C1 dtype", "a floating dtype", text_of(x.dtype));
  return one(fresh(ctx, x.dtype, x.sizes));
}

// relu

std::vector<TensorMeta> infer_relu(const InferContext& ctx) {
  const TensorMeta& x = ctx.meta(0);
  if (x.dtype == DType::Bool) ctx.fail_dtype("C1 dtype", "a number dtype", text_of(x.dtype));
  return one(fresh(ctx, x.dtype, x.sizes));
}

std::vector<Literal> evaluate_relu(const EvalContext& ctx) {
  return evaluate_points(ctx, [](const Node&, std::span<const HostScalar> operands) {
    return apply(ScalarOp::Max, {operands[0], HostScalar{.dtype = operands[0].dtype}});
  });
}

Scalar element_relu(ElementBuilder& builder, const Node&, std::uint32_t,
                    std::span<const SymExpr> index) {
  const Scalar x = builder.operand(0, index);
  return builder.apply2(ScalarOp::Max, x, builder.constant(x.dtype, 0.0));
}

// The floating ones: defined by a function of a double, lowered by a function of a scalar in the
// dtype that T accumulates in.

template <double (*function)(const Node&, double)>
std::vector<Literal> evaluate_real(const EvalContext& ctx) {
  return evaluate_points(ctx, [](const Node& node, std::span<const HostScalar> operands) {
    return HostScalar::of_real(operands[0].dtype, function(node, operands[0].real));
  });
}

template <Scalar (*function)(ElementBuilder&, const Node&, Scalar)>
Scalar element_wide(ElementBuilder& builder, const Node& node, std::uint32_t,
                    std::span<const SymExpr> index) {
  const DType dtype = node.output(0).dtype;
  const Scalar x = operand_as(builder, node, 0, index, accumulator_of(dtype));
  const Scalar result = function(builder, node, x);
  return result.dtype == dtype ? result : builder.convert(result, dtype);
}

bool by_tanh(const Node& node) { return node.string("approximate") == "tanh"; }

std::vector<TensorMeta> infer_gelu(const InferContext& ctx) {
  auto result = infer_floating(ctx);
  const std::string& form = ctx.string("approximate");
  if (form != "none" && form != "tanh") {
    throw ArgumentError({.what = "gelu: C2 approximate",
                         .where = ctx.location.to_string(),
                         .expected = "\"none\" or \"tanh\"",
                         .got = "\"" + form + "\""});
  }
  return result;
}

double gelu(const Node& node, double x) {
  if (!by_tanh(node)) return 0.5 * x * (1.0 + std::erf(x / std::numbers::sqrt2));
  return 0.5 * x * (1.0 + std::tanh(kSqrtTwoOverPi * (x + kTanhCubic * x * x * x)));
}

Scalar gelu_tanh_argument(ElementBuilder& builder, Scalar x) {
  const Scalar square = builder.apply2(ScalarOp::Mul, x, x);
  const Scalar scaled =
      builder.apply2(ScalarOp::Mul, square, builder.constant(x.dtype, kTanhCubic));
  const Scalar factor = builder.apply2(ScalarOp::Add, scaled, builder.constant(x.dtype, 1.0));
  const Scalar sum = builder.apply2(ScalarOp::Mul, x, factor);
  return builder.apply2(ScalarOp::Mul, sum, builder.constant(x.dtype, kSqrtTwoOverPi));
}

Scalar gelu_bend(ElementBuilder& builder, const Node& node, Scalar x) {
  if (by_tanh(node)) return builder.apply1(ScalarOp::Tanh, gelu_tanh_argument(builder, x));
  const Scalar inverse = builder.constant(x.dtype, 1.0 / std::numbers::sqrt2);
  return builder.apply1(ScalarOp::Erf, builder.apply2(ScalarOp::Mul, x, inverse));
}

Scalar gelu_scalar(ElementBuilder& builder, const Node& node, Scalar x) {
  const Scalar bend = gelu_bend(builder, node, x);
  const Scalar gate = builder.apply2(ScalarOp::Add, bend, builder.constant(x.dtype, 1.0));
  const Scalar half = builder.apply2(ScalarOp::Mul, x, builder.constant(x.dtype, 0.5));
  return builder.apply2(ScalarOp::Mul, half, gate);
}

double silu(const Node&, double x) { return x / (1.0 + std::exp(-x)); }

Scalar silu_scalar(ElementBuilder& builder, const Node&, Scalar x) {
  return builder.apply2(ScalarOp::Mul, x, builder.apply1(ScalarOp::Sigmoid, x));
}

double softplus(const Node&, double x) {
  return std::isnan(x) ? x : std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
}

Scalar softplus_scalar(ElementBuilder& builder, const Node&, Scalar x) {
  const Scalar above = builder.apply2(ScalarOp::Max, x, builder.constant(x.dtype, 0.0));
  const Scalar distance = builder.apply1(ScalarOp::Abs, x);
  const Scalar tail = builder.apply1(ScalarOp::Exp, builder.apply1(ScalarOp::Neg, distance));
  return builder.apply2(ScalarOp::Add, above, builder.apply1(ScalarOp::Log1p, tail));
}

}  // namespace

OpDef relu_op() {
  return {
      .name = "relu",
      .operands = {{"x"}},
      .infer = infer_relu,
      .alias = reuse_if_same_layout,
      .evaluate = evaluate_relu,
      .lowering = {.element = element_relu},
      .reorder = reorder_pointwise,
  };
}

OpDef gelu_op() {
  return {
      .name = "gelu",
      .operands = {{"x"}},
      .attrs = {{"approximate", AttrKind::String, Attr(std::string("none"))}},
      .infer = infer_gelu,
      .alias = reuse_if_same_layout,
      .evaluate = evaluate_real<gelu>,
      .lowering = {.element = element_wide<gelu_scalar>},
      .expensive = true,
      .reorder = reorder_pointwise,
  };
}

OpDef silu_op() {
  return {
      .name = "silu",
      .operands = {{"x"}},
      .infer = infer_floating,
      .alias = reuse_if_same_layout,
      .evaluate = evaluate_real<silu>,
      .lowering = {.element = element_wide<silu_scalar>},
      .expensive = true,
      .reorder = reorder_pointwise,
  };
}

OpDef softplus_op() {
  return {
      .name = "softplus",
      .operands = {{"x"}},
      .infer = infer_floating,
      .alias = reuse_if_same_layout,
      .evaluate = evaluate_real<softplus>,
      .lowering = {.element = element_wide<softplus_scalar>},
      .expensive = true,
      .reorder = reorder_pointwise,
  };
}

}  // namespace heddle::ir::ops
