// The lowering of resize: positions and weights of one element as scalars. Positions are computed
// in f64 in the order that resize_ops.cpp states, so that both round alike.
#include <cmath>

#include "ir/ops/common.h"
#include "ir/ops/resize_ops.h"

namespace heddle::ir::ops {
namespace {

struct ScalarTap {
  SymExpr index;
  Scalar weight;
};

/// Arithmetic on f64 scalars for one resized dimension of one element.
class AxisSampler {
 public:
  AxisSampler(ElementBuilder& builder, const Node& node, std::size_t d, const SymExpr& index)
      : builder_(builder),
        node_(node),
        in_(node.input(0).meta().sizes[d]),
        out_(node.output().sizes[d]),
        given_(given_scale(node, d)),
        index_(index),
        o_(number(index)) {}

  /// The one element that nearest reads.
  SymExpr nearest() {
    const std::string& mode = node_.string("nearest_mode");
    if (const std::int64_t count = times_repeated(); count != 0) return floordiv(index_, count);
    const Scalar at = position();
    if (mode == "floor") return element(apply(ScalarOp::Floor, at));
    if (mode == "ceil") return element(apply(ScalarOp::Ceil, at));
    if (mode == "round_prefer_floor") return element(apply(ScalarOp::Ceil, sub(at, real(0.5))));
    return element(apply(ScalarOp::Floor, add(at, real(0.5))));
  }

  std::vector<ScalarTap> linear() {
    const Scalar at = position();
    const Scalar base = apply(ScalarOp::Floor, at);
    const Scalar fraction = sub(at, base);
    return {{element(base), sub(real(1), fraction)}, {element(add(base, real(1))), fraction}};
  }

  std::vector<ScalarTap> cubic() {
    const Scalar at = position();
    const Scalar base = apply(ScalarOp::Floor, at);
    const Scalar f = sub(at, base);
    const Scalar weights[] = {far_weight(add(f, real(1))), near_weight(f),
                              near_weight(sub(real(1), f)), far_weight(sub(real(2), f))};
    std::vector<ScalarTap> taps;
    std::vector<Scalar> kept;
    for (int step = -1; step <= 2; ++step) {
      const Scalar tap = add(base, real(step));
      kept.push_back(inside_only(tap, weights[step + 1]));
      taps.push_back({element(tap), kept.back()});
    }
    if (!node_.flag("exclude_outside")) return taps;
    const Scalar sum = add(add(kept[0], kept[1]), add(kept[2], kept[3]));
    for (ScalarTap& tap : taps) tap.weight = div(tap.weight, sum);
    return taps;
  }

 private:
  /// How often each element of x stands behind itself in the result, if that is all that nearest does; else 0.
  std::int64_t times_repeated() const {
    double ratio = given_;
    if (ratio == 0 && in_.is_constant() && out_.is_constant() && in_.constant() > 0)
      ratio = static_cast<double>(out_.constant()) / static_cast<double>(in_.constant());
    constexpr double kMost = 1024;
    if (!(ratio >= 1 && ratio <= kMost) || ratio != std::floor(ratio)) return 0;
    // A scale may be given beside other sizes.
    if (!(in_ * static_cast<std::int64_t>(ratio) == out_)) return 0;
    const std::string& mode = node_.string("nearest_mode");
    const std::string& coordinates = node_.string("coordinate_mode");
    // Positions a half behind or at the middle between two elements of x are rounded to the one before.
    const bool from_start = coordinates == "asymmetric" || coordinates == "tf_half_pixel_for_nn";
    const bool from_middle = coordinates == "half_pixel" || coordinates == "pytorch_half_pixel";
    const bool fits =
        from_start ? mode == "floor"
                   : from_middle && (mode == "round_prefer_floor" || mode == "round_prefer_ceil");
    return fits ? static_cast<std::int64_t>(ratio) : 0;
  }

  Scalar real(double value) { return builder_.constant(DType::F64, value); }
  Scalar number(const SymExpr& expr) {
    if (const auto known = expr.as_constant()) return real(static_cast<double>(*known));
    return builder_.convert(builder_.from_index(expr), DType::F64);
  }
  Scalar apply(ScalarOp op, Scalar a) { return builder_.apply1(op, a); }
  Scalar add(Scalar a, Scalar b) { return builder_.apply2(ScalarOp::Add, a, b); }
  Scalar sub(Scalar a, Scalar b) { return builder_.apply2(ScalarOp::Sub, a, b); }
  Scalar mul(Scalar a, Scalar b) { return builder_.apply2(ScalarOp::Mul, a, b); }
  Scalar div(Scalar a, Scalar b) { return builder_.apply2(ScalarOp::Div, a, b); }

  Scalar over_scale(Scalar place) {
    if (given_ != 0) return div(place, real(given_));
    return div(mul(place, number(in_)), number(out_));
  }
  Scalar length() { return given_ != 0 ? mul(real(given_), number(in_)) : number(out_); }

  /// Where the element lies in x.
  Scalar position() {
    const std::string& mode = node_.string("coordinate_mode");
    if (mode == "asymmetric") return over_scale(o_);
    if (mode == "tf_half_pixel_for_nn") return over_scale(add(o_, real(0.5)));
    if (mode == "align_corners") return zero_where_one(length(), corner_position());
    const Scalar centred = over_scale(add(o_, real(0.5)));
    if (mode == "half_pixel_symmetric" && given_ != 0) {
      const Scalar rest = sub(real(1), div(number(out_), length()));
      const Scalar middle = mul(div(number(in_), real(2)), rest);
      return sub(add(middle, centred), real(0.5));
    }
    const Scalar at = sub(centred, real(0.5));
    return mode == "pytorch_half_pixel" ? zero_where_one(number(out_), at) : at;
  }
  Scalar corner_position() { return div(mul(o_, number(in_ - 1)), sub(length(), real(1))); }
  Scalar zero_where_one(Scalar size, Scalar value) {
    return builder_.select(builder_.apply2(ScalarOp::Eq, size, real(1)), real(0), value);
  }

  /// Keys' kernel between 0 and 1, and between 1 and 2.
  Scalar near_weight(Scalar t) {
    const double a = node_.number("cubic_a");
    const Scalar inner = sub(mul(real(a + 2), t), real(a + 3));
    return add(mul(mul(inner, t), t), real(1));
  }
  Scalar far_weight(Scalar t) {
    const double a = node_.number("cubic_a");
    const Scalar square = sub(mul(real(a), t), real(5 * a));
    return sub(mul(add(mul(square, t), real(8 * a)), t), real(4 * a));
  }
  Scalar inside_only(Scalar tap, Scalar weight) {
    if (!node_.flag("exclude_outside")) return weight;
    const Scalar low = builder_.apply2(ScalarOp::Ge, tap, real(0));
    const Scalar high = builder_.apply2(ScalarOp::Lt, tap, number(in_));
    return builder_.select(builder_.apply2(ScalarOp::And, low, high), weight, real(0));
  }

  /// A whole f64 number as an index of x, the nearest one inside.
  SymExpr element(Scalar whole) {
    const Scalar zero = builder_.constant_int(DType::I64, 0);
    const Scalar last = builder_.from_index(in_ - 1);
    const Scalar at = builder_.convert(whole, DType::I64);
    const Scalar inside =
        builder_.apply2(ScalarOp::Min, builder_.apply2(ScalarOp::Max, at, zero), last);
    return builder_.to_index(inside, 0, in_ - 1, false);
  }

  ElementBuilder& builder_;
  const Node& node_;
  const SymExpr& in_;
  const SymExpr& out_;
  double given_;
  const SymExpr& index_;
  Scalar o_;
};

/// Sums over the taps of dimension `d` and all later ones; `at` holds the index so far.
Scalar weighted_sum(ElementBuilder& builder, DType dtype,
                    std::span<const std::vector<ScalarTap>> taps, std::size_t d,
                    std::vector<SymExpr>& at) {
  if (d == at.size()) return builder.convert(builder.operand(0, at), dtype);
  if (taps[d].empty()) return weighted_sum(builder, dtype, taps, d + 1, at);
  std::optional<Scalar> sum;
  for (const ScalarTap& tap : taps[d]) {
    at[d] = tap.index;
    const Scalar value = weighted_sum(builder, dtype, taps, d + 1, at);
    const Scalar weight = builder.convert(tap.weight, dtype);
    const Scalar weighted = builder.apply2(ScalarOp::Mul, weight, value);
    sum = sum ? builder.apply2(ScalarOp::Add, *sum, weighted) : weighted;
  }
  return *sum;
}

}  // namespace

Scalar resize_element(ElementBuilder& builder, const Node& node, std::uint32_t,
                      std::span<const SymExpr> index) {
  const ResizeMode mode = resize_mode(node);
  std::vector<SymExpr> at(index.begin(), index.end());
  std::vector<std::vector<ScalarTap>> taps(at.size());
  for (std::size_t d = 0; d < at.size(); ++d) {
    if (!is_resized(node, d)) continue;
    AxisSampler sampler(builder, node, d, index[d]);
    if (mode == ResizeMode::Nearest) {
      at[d] = sampler.nearest();
    } else {
      taps[d] = mode == ResizeMode::Linear ? sampler.linear() : sampler.cubic();
    }
  }
  if (mode == ResizeMode::Nearest) return builder.operand(0, at);
  const DType dtype = node.output().dtype;
  const Scalar sum = weighted_sum(builder, accumulator_of(dtype), taps, 0, at);
  return builder.convert(sum, dtype);
}

}  // namespace heddle::ir::ops
