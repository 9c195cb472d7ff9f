// resize: x sampled at positions between its elements.
//
//   x                 T[in_0 .. in_n-1]
//   sizes             symint[n]: sizes of the result
//   mode              nearest, linear or cubic
//   coordinate_mode   which position of x element o of the result has (below)
//   nearest_mode      round_prefer_floor, round_prefer_ceil, floor or ceil: which element nearest
//                     takes
//   scales            one number a dimension, or none: what coordinates are computed with in place
//                     of sizes / in
//   cubic_a           the coefficient a of the cubic kernel
//   exclude_outside   cubic: taps outside x weigh 0 and the others are scaled to sum to 1
//   result            T[sizes]
//
// A dimension whose size does not change, with no scale or scale 1, is copied. Along each other
// one, with scale s = out / in and length l = out (given a scale: that s and l = s * in), in f64,
// where p / s is p * in / out, rounded once, so that ties are found:
//
//   half_pixel              (o + 0.5) / s - 0.5
//   half_pixel_symmetric    in / 2 * (1 - out / l) + (o + 0.5) / s - 0.5
//   pytorch_half_pixel      (o + 0.5) / s - 0.5, and 0 where out is 1
//   asymmetric              o / s
//   align_corners           o * (in - 1) / (l - 1), and 0 where l is 1
//   tf_half_pixel_for_nn    (o + 0.5) / s
//
// nearest takes the element at the rounded position. linear weighs floor(p) by 1 - f and floor(p) +
// 1 by f = p - floor(p); cubic weighs floor(p) - 1 … floor(p) + 2 by Keys' kernel. Positions
// outside x read its nearest element. Weights of dimensions multiply; sums are in f32 for f16 and
// bf16, rounded once. A tap of weight 0 counts, so an infinite neighbour gives NaN.
//
// Constraints. infer() checks them in this order; tests are named resize_c1 ...
//   C1  sizes has one entry a dimension, each at least 0
//   C2  mode is nearest, linear or cubic
//   C3  coordinate_mode is one it knows
//   C4  nearest_mode is one it knows
//   C5  linear and cubic take a floating dtype
//   C6  scales has no entry, or one above 0 a dimension
//   C7  a dimension of x that is resized, and not to 0, has at least one element
//
// Memory: the result is fresh.
// Source: ONNX Resize-19; Keys, "Cubic convolution interpolation", 1981.
#include "ir/ops/resize_ops.h"

#include <algorithm>
#include <cmath>

#include "ir/ops/common.h"
#include "ir/ops/families.h"
#include "ir/ops/window.h"

namespace heddle::ir {
namespace ops {
namespace {

constexpr std::string_view kModes[] = {"nearest", "linear", "cubic"};
constexpr std::string_view kCoordinateModes[] = {"half_pixel",         "half_pixel_symmetric",
                                                 "pytorch_half_pixel", "asymmetric",
                                                 "align_corners",      "tf_half_pixel_for_nn"};
constexpr std::string_view kNearestModes[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                              "ceil"};

void check_choice(const InferContext& ctx, std::string_view attr,
                  std::span<const std::string_view> choices, std::string_view label) {
  const std::string& value = ctx.string(attr);
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return;
  std::string expected;
  for (const std::string_view choice : choices) {
    expected += (expected.empty() ? "" : ", ") + std::string(choice);
  }
  fail_argument(ctx, label, expected, value);
}

const std::vector<double>& scales_of(const Attrs& attrs) {
  return std::get<std::vector<double>>(attrs.find("scales")->second);
}

bool keeps(const SymExpr& in, const SymExpr& out, const std::vector<double>& scales,
           std::size_t d) {
  return in == out && (scales.empty() || scales[d] == 1.0);
}

void check_scales(const InferContext& ctx, std::size_t rank) {
  const std::vector<double>& scales = scales_of(ctx.attrs);
  const bool positive =
      std::all_of(scales.begin(), scales.end(), [](double s) { return s > 0 && std::isfinite(s); });
  if ((scales.empty() || scales.size() == rank) && positive) return;
  std::string got;
  for (const double scale : scales) got += (got.empty() ? "" : ", ") + std::to_string(scale);
  fail_argument(ctx, "C6 scales has no entry, or one above 0 a dimension",
                "none or " + std::to_string(rank) + " above 0", "[" + got + "]");
}

void check_sizes(const InferContext& ctx, const Dims& x, const Dims& sizes) {
  constexpr std::string_view kC1 = "C1 sizes has one entry a dimension, each at least 0";
  if (sizes.size() != x.size()) {
    ctx.fail_shape(kC1, std::to_string(x.size()) + " sizes", text_of(sizes));
  }
  for (const SymExpr& size : sizes)
    require_le(ctx, 0, size, kC1, "0 or more", seen(ctx.env, size).to_string());
}

std::vector<TensorMeta> infer_resize(const InferContext& ctx) {
  const TensorMeta& x = ctx.meta(0);
  const Dims& sizes = ctx.symints("sizes");
  check_sizes(ctx, x.sizes, sizes);
  check_choice(ctx, "mode", kModes, "C2 mode is nearest, linear or cubic");
  check_choice(ctx, "coordinate_mode", kCoordinateModes, "C3 coordinate_mode is one it knows");
  check_choice(ctx, "nearest_mode", kNearestModes, "C4 nearest_mode is one it knows");
  if (ctx.string("mode") != "nearest") {
    require_floating(ctx, 0, "C5 linear and cubic take a floating dtype");
  }
  check_scales(ctx, x.sizes.size());
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (keeps(x.sizes[d], sizes[d], scales_of(ctx.attrs), d) || sizes[d].is_constant(0)) continue;
    require_le(ctx, 1, x.sizes[d], "C7 a resized dimension of x has at least one element",
               "1 or more", seen(ctx.env, x.sizes[d]).to_string());
  }
  return one(fresh(ctx, x.dtype, sizes));
}

/// One dimension of a host tensor being resized.
struct ResizedAxis {
  const std::string& mode;
  double in;
  double out;
  double given;  ///< scale, or 0
  double length;

  double over_scale(double place) const { return given != 0 ? place / given : place * in / out; }
};

double position_in_x(const ResizedAxis& axis, double o) {
  if (axis.mode == "asymmetric") return axis.over_scale(o);
  if (axis.mode == "tf_half_pixel_for_nn") return axis.over_scale(o + 0.5);
  if (axis.mode == "align_corners") {
    return axis.length == 1 ? 0.0 : o * (axis.in - 1) / (axis.length - 1);
  }
  if (axis.mode == "pytorch_half_pixel" && axis.out == 1) return 0.0;
  const double middle =
      axis.mode == "half_pixel_symmetric" ? axis.in / 2 * (1 - axis.out / axis.length) : 0.0;
  return middle + axis.over_scale(o + 0.5) - 0.5;
}

double rounded(double position, std::string_view nearest_mode) {
  if (nearest_mode == "floor") return std::floor(position);
  if (nearest_mode == "ceil") return std::ceil(position);
  return nearest_mode == "round_prefer_floor" ? std::ceil(position - 0.5)
                                              : std::floor(position + 0.5);
}

/// Keys' kernel at distance t from a sample.
double keys_weight(double a, double t) {
  t = std::fabs(t);
  if (t <= 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
  return t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0.0;
}

struct WeightedTap {
  std::int64_t index;
  double weight;
};

/// The elements of one dimension of x that element `o` of the result reads, with their weights.
std::vector<WeightedTap> taps_at(const Node& node, std::size_t d, std::int64_t in, std::int64_t out,
                                 std::int64_t o) {
  if (!is_resized(node, d)) return {{o, 1.0}};
  const double given = given_scale(node, d);
  const auto size = static_cast<double>(in);
  const ResizedAxis axis{node.string("coordinate_mode"), size, static_cast<double>(out), given,
                         given != 0 ? given * size : static_cast<double>(out)};
  const double position = position_in_x(axis, static_cast<double>(o));
  const auto clamped = [&](double at) {
    return static_cast<std::int64_t>(std::clamp(at, 0.0, size - 1));
  };
  if (resize_mode(node) == ResizeMode::Nearest) {
    return {{clamped(rounded(position, node.string("nearest_mode"))), 1.0}};
  }
  const bool cubic = resize_mode(node) == ResizeMode::Cubic;
  const double base = std::floor(position);
  std::vector<WeightedTap> taps;
  double sum = 0;
  for (int step = cubic ? -1 : 0; step <= (cubic ? 2 : 1); ++step) {
    const double distance = position - (base + step);
    const bool outside = base + step < 0 || base + step > size - 1;
    double weight = cubic ? keys_weight(node.number("cubic_a"), distance) : 1 - std::fabs(distance);
    if (cubic && outside && node.flag("exclude_outside")) weight = 0;
    taps.push_back({clamped(base + step), weight});
    sum += weight;
  }
  if (cubic && node.flag("exclude_outside")) {
    for (WeightedTap& tap : taps) tap.weight /= sum;
  }
  return taps;
}

/// All taps of one element of the result: positions in x with the products of their weights.
std::vector<WeightedTap> taps_of(const Node& node, const Sizes& in, const Sizes& out,
                                 const Sizes& at) {
  std::vector<WeightedTap> taps = {{0, 1.0}};
  for (std::size_t d = 0; d < at.size(); ++d) {
    std::vector<WeightedTap> next;
    for (const WeightedTap& tap : taps) {
      for (const WeightedTap& along : taps_at(node, d, in[d], out[d], at[d])) {
        next.push_back({tap.index * in[d] + along.index, tap.weight * along.weight});
      }
    }
    taps = std::move(next);
  }
  return taps;
}

std::vector<Literal> evaluate_resize(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const Sizes sizes = ctx.output_sizes();
  return with_number(x.dtype(), [&]<typename T>() {
    const std::vector<T> xs = dense<T>(x);
    std::vector<T> result(static_cast<std::size_t>(element_count(sizes)));
    for_each_index(sizes, [&](std::int64_t position, const Sizes& at) {
      const std::vector<WeightedTap> taps = taps_of(ctx.node, x.sizes(), sizes, at);
      T& value = result[static_cast<std::size_t>(position)];
      if (taps.size() == 1) {
        value = xs[static_cast<std::size_t>(taps[0].index)];
        return;
      }
      double sum = 0;
      for (const WeightedTap& tap : taps) {
        sum += tap.weight * static_cast<double>(xs[static_cast<std::size_t>(tap.index)]);
      }
      value = static_cast<T>(sum);
    });
    return std::vector<Literal>{literal_of(x.dtype(), sizes, result)};
  });
}

}  // namespace

ResizeMode resize_mode(const Node& node) {
  const std::string& mode = node.string("mode");
  return mode == "nearest"  ? ResizeMode::Nearest
         : mode == "linear" ? ResizeMode::Linear
                            : ResizeMode::Cubic;
}

bool is_resized(const Node& node, std::size_t d) {
  return !keeps(node.input(0).meta().sizes[d], node.output().sizes[d], scales_of(node.attrs()), d);
}

double given_scale(const Node& node, std::size_t d) {
  const std::vector<double>& scales = scales_of(node.attrs());
  return scales.empty() ? 0.0 : scales[d];
}

}  // namespace ops

std::span<const OpDef> resize_ops() {
  static const OpDef defs[] = {{
      .name = "resize",
      .operands = {{"x"}},
      .attrs = {{"sizes", AttrKind::SymInts, {}},
                {"mode", AttrKind::String, std::string("nearest")},
                {"coordinate_mode", AttrKind::String, std::string("half_pixel")},
                {"nearest_mode", AttrKind::String, std::string("round_prefer_floor")},
                {"scales", AttrKind::Floats, std::vector<double>{}},
                {"cubic_a", AttrKind::Float, -0.75},
                {"exclude_outside", AttrKind::Bool, false}},
      .infer = ops::infer_resize,
      .evaluate = ops::evaluate_resize,
      .lowering = {.element = ops::resize_element},
      .expensive = true,
      .reorder = ops::reorder_entries,
  }};
  return defs;
}

}  // namespace heddle::ir
