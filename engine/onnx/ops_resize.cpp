// Resize and its forerunner Upsample.

#include <algorithm>
#include <cmath>

#include "engine/onnx/converters.h"
#include "engine/onnx/resize_weights.h"

namespace heddle::onnx {

namespace {

std::string mode_of(const Node& node) {
  const std::string mode = node.string("mode", "nearest");
  return mode == "bilinear" || mode == "trilinear" ? "linear" : mode;
}

/// floor(size * scale). The product is that of the reals,
/// as in ONNX's own evaluator: 10 * 0.7f is below 7 and gives 6. (In f32 it would be rounded to 7, as ONNX Runtime does.)
SymInt scaled_size(const Node& node, const SymInt& size, double scale) {
  constexpr double kLargest = 1LL << 48;
  if (!(scale > 0 && scale <= kLargest))
    node.malformed("scales", "above 0 and at most 2^48", std::to_string(scale));
  if (scale == std::floor(scale)) return size * static_cast<std::int64_t>(scale);
  const SymInt scaled = Real::apply("mul", Real(size, f64), Real(scale, f64))->cut();
  if (!scaled.is_symbolic() && scaled.value() > kLargest)
    node.malformed("scales", "sizes of at most 2^48", std::to_string(scale));
  return scaled;
}

/// One entry a dimension of x; dimensions that `axes` leaves out keep theirs.
template <typename T>
std::vector<T> spread(const Node& node, const std::vector<T>& given, std::vector<T> all) {
  const auto rank = static_cast<std::int64_t>(all.size());
  const Ints axes = node.axes(node.integers("axes", range_of(0, rank)), rank);
  if (axes.size() != given.size())
    node.malformed("scales or sizes", std::to_string(axes.size()) + " numbers",
                   std::to_string(given.size()));
  for (std::size_t k = 0; k < axes.size(); ++k) all[static_cast<std::size_t>(axes[k])] = given[k];
  return all;
}

/// Sizes and scales so that the aspect ratio stays: the same factor for every resized dimension.
void keep_aspect(const Node& node, const Tensor& x, SymInts& sizes, std::vector<double>& scales) {
  const std::string policy = node.string("keep_aspect_ratio_policy", "stretch");
  if (policy == "stretch") return;
  if (policy != "not_larger" && policy != "not_smaller")
    node.malformed("keep_aspect_ratio_policy", "stretch, not_larger or not_smaller", policy);
  const Ints axes = node.axes(node.integers("axes", range_of(0, x.rank())), x.rank());
  double factor = 0;
  for (const std::int64_t axis : axes) {
    const double scale = static_cast<double>(sizes[static_cast<std::size_t>(axis)].value()) /
                         static_cast<double>(x.size(axis).value());
    const bool first = axis == axes.front();
    factor = first                    ? scale
             : policy == "not_larger" ? std::min(factor, scale)
                                      : std::max(factor, scale);
  }
  scales.assign(static_cast<std::size_t>(x.rank()), 1.0);
  for (const std::int64_t axis : axes) {
    const auto k = static_cast<std::size_t>(axis);
    scales[k] = factor;
    sizes[k] = std::llround(factor * static_cast<double>(x.size(axis).value()));
  }
}

/// Weights of cubic curves reach past the neighbours: what a small integer does not hold is cut to its range.
Tensor cut_to(const Tensor& x, DType dtype) {
  if (dtype == u8) return cast(clamp(x, 0.0, 255.0), dtype);
  if (dtype == i8) return cast(clamp(x, -128.0, 127.0), dtype);
  return cast(x, dtype);
}

Outputs resized(const Node& node, const Tensor& x, SymInts sizes, std::vector<double> scales,
                const std::string& coordinates, const std::string& nearest) {
  const std::string mode = mode_of(node);
  const bool as_reals = mode != "nearest" && !is_floating(x.dtype());
  const Tensor result = one("resize", {as_reals ? cast(x, f32) : x},
                            {{"sizes", std::move(sizes)},
                             {"mode", mode},
                             {"coordinate_mode", coordinates},
                             {"nearest_mode", nearest},
                             {"scales", std::move(scales)},
                             {"cubic_a", node.number("cubic_coeff_a", -0.75)},
                             {"exclude_outside", node.integer("exclude_outside", 0) != 0}});
  return {as_reals ? cut_to(result, x.dtype()) : result};
}

SymInts sizes_by(const Node& node, const Tensor& x, const std::vector<double>& scales) {
  SymInts sizes;
  for (std::size_t k = 0; k < scales.size(); ++k)
    sizes.push_back(scaled_size(node, x.size(static_cast<std::int64_t>(k)), scales[k]));
  return sizes;
}

/// Version 10 takes the element at or after a position where it shrinks a dimension, and the one at or before it where it
/// grows one (test_resize_downsample_nearest of ONNX 1.5: 0.6 of [1, 2, 3, 4] is [1, 3]).
Tensor shrunk(const Node& node, const Tensor& x, std::vector<double>& scales) {
  std::vector<double> below(scales.size(), 1.0);
  for (std::size_t k = 0; k < scales.size(); ++k)
    if (scales[k] < 1) std::swap(below[k], scales[k]);
  SymInts sizes = sizes_by(node, x, below);
  return resized(node, x, std::move(sizes), std::move(below), "asymmetric", "ceil")[0].tensor();
}

Outputs upsample(const Node& node) {
  Tensor x = node.tensor(0);
  std::vector<double> scales = node.has(1) ? node.known_reals(1, "scales") : node.numbers("scales");
  if (static_cast<std::int64_t>(scales.size()) != x.rank())
    node.malformed("scales", std::to_string(x.rank()) + " numbers", std::to_string(scales.size()));
  const bool shrinks = std::any_of(scales.begin(), scales.end(), [](double s) { return s < 1; });
  if (shrinks && mode_of(node) == "nearest") x = shrunk(node, x, scales);
  SymInts sizes = sizes_by(node, x, scales);
  return resized(node, x, std::move(sizes), std::move(scales), "asymmetric", "floor");
}

/// Which part of each dimension a crop takes: begins, then ends. @throws ModelError.
std::pair<std::vector<double>, std::vector<double>> crop_of(const Node& node, std::size_t rank,
                                                            bool crops) {
  std::vector<double> begins(rank, 0.0);
  std::vector<double> ends(rank, 1.0);
  if (!crops) return {begins, ends};
  const std::vector<double> roi = node.known_reals(1, "roi");
  const auto middle = roi.begin() + static_cast<std::ptrdiff_t>(roi.size() / 2);
  if (roi.size() % 2 != 0) node.malformed("roi", "begins and ends", std::to_string(roi.size()));
  return {spread(node, {roi.begin(), middle}, begins), spread(node, {middle, roi.end()}, ends)};
}

/// The sizes of dimensions that change become part of what is compiled.
Outputs by_weights(const Node& node, const Tensor& x, const SymInts& sizes,
                   const std::vector<double>& scales) {
  const ResizeRules rules{
      .mode = mode_of(node),
      .coordinates = node.string("coordinate_transformation_mode", "half_pixel"),
      .nearest = node.string("nearest_mode", "round_prefer_floor"),
      .cubic_a = node.number("cubic_coeff_a", -0.75),
      .exclude_outside = node.integer("exclude_outside", 0) != 0,
      .antialias = node.integer("antialias", 0) != 0,
      .extrapolation = node.number("extrapolation_value", 0)};
  const auto [begins, ends] =
      crop_of(node, sizes.size(), rules.coordinates == "tf_crop_and_resize");
  std::vector<ResizedDim> dims;
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    const auto axis = static_cast<std::int64_t>(k);
    const SymInt size = x.size(axis);
    const bool stays = (scales.empty() || scales[k] == 1) && begins[k] == 0 && ends[k] == 1 &&
                       sizes[k].to_string() == size.to_string();
    if (stays) continue;
    ResizedDim dim{.axis = axis,
                   .in = size.value(),
                   .out = sizes[k].value(),
                   .begin = begins[k],
                   .end = ends[k]};
    if (dim.out < 0) node.malformed("sizes", "0 or more", std::to_string(dim.out));
    dim.scale =
        scales.empty() ? static_cast<double>(dim.out) / static_cast<double>(dim.in) : scales[k];
    dims.push_back(dim);
  }
  const Tensor result = resized_by_weights(node, x, dims, rules);
  return {result.dtype() == x.dtype() ? result : cut_to(result, x.dtype())};
}

Outputs resize(const Node& node) {
  if (node.opset() < 11) return upsample(node);
  const Tensor x = node.tensor(0);
  const std::string coordinates = node.string("coordinate_transformation_mode", "half_pixel");
  std::vector<double> scales;
  SymInts sizes;
  if (node.has(3)) {
    sizes = spread(node, node.known_or_late(3, "sizes"), x.shape());
    keep_aspect(node, x, sizes, scales);
  } else {
    scales = spread(node, node.known_reals(2, "scales"),
                    std::vector<double>(static_cast<std::size_t>(x.rank()), 1.0));
    sizes = sizes_by(node, x, scales);
  }
  if (coordinates == "tf_crop_and_resize" || node.integer("antialias", 0) != 0)
    return by_weights(node, x, sizes, scales);
  return resized(node, x, std::move(sizes), std::move(scales), coordinates,
                 node.string("nearest_mode", "round_prefer_floor"));
}

}  // namespace

std::span<const Converter> resize_converters() {
  static constexpr Converter kConverters[] = {
      {"Resize", resize},
      {"Upsample", upsample},
  };
  return kConverters;
}

}  // namespace heddle::onnx
