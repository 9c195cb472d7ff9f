// GridSample: elements of x between its points; and AffineGrid, which says where.

#include <vector>

#include "engine/onnx/converters.h"
#include "engine/onnx/sampling.h"

namespace heddle::onnx {

namespace {

enum class Padding : std::uint8_t { Zeros, Border, Reflection };

struct Sampling {
  std::string mode;  ///< linear, nearest or cubic
  Padding padding = Padding::Zeros;
  bool corners =
      false;  ///< -1 and 1 are the centres of the outermost elements, no longer their outer edges
};

Sampling sampling_of(const Node& node) {
  Sampling sampling;
  sampling.mode = node.string("mode", "linear");
  if (sampling.mode == "bilinear") sampling.mode = "linear";
  if (sampling.mode == "bicubic") sampling.mode = "cubic";
  if (sampling.mode != "linear" && sampling.mode != "nearest" && sampling.mode != "cubic")
    node.malformed("mode", "linear, nearest or cubic", sampling.mode);
  const std::string padding = node.string("padding_mode", "zeros");
  if (padding == "border")
    sampling.padding = Padding::Border;
  else if (padding == "reflection")
    sampling.padding = Padding::Reflection;
  else if (padding != "zeros")
    node.malformed("padding_mode", "zeros, border or reflection", padding);
  sampling.corners = node.integer("align_corners", 0) != 0;
  return sampling;
}

/// Positions along one dimension of x, of `length` elements.
class Axis {
 public:
  Axis(const Sampling& sampling, const SymInt& length, DType dtype)
      : sampling_(sampling),
        length_(cast(size_tensor(length), dtype)),
        low_(sampling.corners ? 0.0 : -0.5),
        range_(sampling.corners ? length_ - 1.0 : length_) {}

  /// What is read where `grid`, from -1 to 1, says.
  std::vector<Tap> taps(const Tensor& grid) const {
    const Tensor at = sampling_.corners ? (grid + 1.0) / 2.0 * (length_ - 1.0)
                                        : ((grid + 1.0) * length_ - 1.0) / 2.0;
    if (sampling_.mode == "nearest") return {tap(round(at), {})};
    const Tensor base = floor(at);
    const Tensor f = at - base;
    if (sampling_.mode == "linear") return {tap(base, 1.0 - f), tap(base + 1.0, f)};
    return {tap(base - 1.0, far_weight(f + 1.0)), tap(base, near_weight(f)),
            tap(base + 1.0, near_weight(1.0 - f)), tap(base + 2.0, far_weight(2.0 - f))};
  }

 private:
  /// `whole`: a whole number.
  Tap tap(const Tensor& whole, const Tensor& weight) const {
    Tap tap{.index = {}, .inside = {}, .weight = weight};
    Tensor at = whole;
    if (sampling_.padding == Padding::Reflection) at = reflected(whole);
    if (sampling_.padding == Padding::Zeros)
      tap.inside = logical_and(greater_equal(whole, 0.0), less(whole, length_));
    tap.index = cast(minimum(maximum(at, 0.0), length_ - 1.0), i64);
    return tap;
  }

  /// Mirrored at both ends, over and over. Weights are symmetric, so that mirroring elements mirrors positions.
  Tensor reflected(const Tensor& at) const {
    const Tensor along = mod(at - low_, range_ * 2.0);
    return where(greater(along, range_), range_ * 2.0 - along, along) + low_;
  }

  // Keys' kernel between 0 and 1, and between 1 and 2.
  static constexpr double kA = -0.75;
  static Tensor near_weight(const Tensor& t) { return ((kA + 2) * t - (kA + 3)) * t * t + 1.0; }
  static Tensor far_weight(const Tensor& t) {
    return ((kA * t - 5 * kA) * t + 8 * kA) * t - 4 * kA;
  }

  const Sampling& sampling_;
  Tensor length_;
  double low_;
  Tensor range_;  ///< from `low_` to where the elements end
};

/// Rows of the grid name points of x, their first number one of the last dimension.
Outputs grid_sample(const Node& node) {
  const Sampling sampling = sampling_of(node);
  Tensor x = node.tensor(0);
  Tensor grid = node.tensor(1);
  if (x.rank() < 3 || grid.rank() != x.rank())
    node.malformed("rank of X and grid", "the same, 3 or more", std::to_string(grid.rank()));
  const DType dtype = x.dtype();
  if (!is_floating(dtype) && sampling.mode != "nearest")
    node.unsupported(std::string(name_of(dtype)) + " between its points");
  if (dtype != f64 && is_floating(dtype) && sampling.mode != "nearest") x = cast(x, f32);
  if (grid.dtype() != f64) grid = cast(grid, f32);
  const SymInts sizes = x.shape();
  const std::size_t spatial = sizes.size() - 2;
  if (grid.size(-1) != SymInt(spatial))
    node.malformed("grid", std::to_string(spatial) + " numbers a point", grid.size(-1).to_string());
  SymInts shape(grid.shape());
  shape.pop_back();
  const SymInt points = product(std::span(shape).subspan(1));
  std::vector<std::vector<Tap>> taps;
  for (std::size_t d = 0; d < spatial; ++d) {
    const auto k = static_cast<std::int64_t>(spatial - 1 - d);
    const Tensor numbers = reshape(slice(grid, -1, k, k + 1), {sizes[0], 1, points});
    taps.push_back(Axis(sampling, sizes[d + 2], grid.dtype()).taps(numbers));
  }
  const Tensor sampled = weighted_sum(x, std::move(taps));
  shape.insert(shape.begin() + 1, sizes[1]);
  return {cast(reshape(sampled, shape), dtype)};
}

/// -1 to 1 in `size` steps: the centres of the outermost elements, or their outer edges.
Tensor evenly_spaced(const SymInt& size, bool corners, DType dtype) {
  const Tensor at = iota({size}, 0, dtype);
  const Tensor count = cast(size_tensor(size), dtype);
  if (corners) return at * 2.0 / (count - 1.0) - 1.0;
  return (at * 2.0 + 1.0) / count - 1.0;
}

/// theta [N, 2, 3] or [N, 3, 4] and sizes (N, C, spatial...): where the elements of a tensor of these sizes lie in another
/// that each theta maps it to, [N, spatial..., 2 or 3]. The last spatial dimension's number comes first.
Outputs affine_grid(const Node& node) {
  const Tensor given = node.tensor(0);
  const SymInts sizes = node.known(1, "size");
  const std::size_t spatial = sizes.size() - 2;
  if (sizes.size() != 4 && sizes.size() != 5)
    node.malformed("size", "four or five sizes", std::to_string(sizes.size()));
  if (given.rank() != 3 || given.size(1) != SymInt(spatial) || given.size(2) != SymInt(spatial + 1))
    node.malformed("theta", "two or three rows of one number more", listed(given.shape()));
  if (!is_floating(given.dtype()))
    node.malformed("theta", "real numbers", std::string(name_of(given.dtype())));
  const Tensor theta = given.dtype() == f64 ? given : cast(given, f32);
  const bool corners = node.integer("align_corners", 0) != 0;
  const SymInts space(sizes.begin() + 2, sizes.end());
  std::vector<Tensor> rows;
  for (std::size_t d = 0; d <= spatial; ++d) {
    SymInts thin(spatial + 1, SymInt(1));
    SymInts wide = space;
    wide.push_back(1);
    if (d == spatial) {
      rows.push_back(expand(Tensor::scalar(theta.dtype(), 1), wide));
      continue;
    }
    const std::size_t k = spatial - 1 - d;
    thin[k] = space[k];
    rows.push_back(expand(reshape(evenly_spaced(space[k], corners, theta.dtype()), thin), wide));
  }
  const SymInt points = product(space);
  const Tensor places =
      reshape(concat(rows, static_cast<std::int64_t>(spatial)), {points, spatial + 1});
  SymInts result{given.size(0)};
  result.insert(result.end(), space.begin(), space.end());
  result.push_back(spatial);
  return {cast(reshape(matmul(places, transpose(theta, 1, 2)), result), given.dtype())};
}

}  // namespace

std::span<const Converter> sample_converters() {
  static constexpr Converter kConverters[] = {
      {"AffineGrid", affine_grid},
      {"GridSample", grid_sample},
  };
  return kConverters;
}

}  // namespace heddle::onnx
