// GridSample: elements of x between its points.

#include <vector>

#include "engine/onnx/converters.h"

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

/// One element that is read along a dimension, and how much it counts.
struct Tap {
  Tensor index;   ///< i64, inside x
  Tensor inside;  ///< bool; undefined where that is always so
  Tensor weight;  ///< undefined: 1
};

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

/// Sums over the taps of dimension `d` and all later ones. `row`: the elements' positions so far, i64[N, 1, points].
class WeightedSum {
 public:
  WeightedSum(const Tensor& x, std::vector<std::vector<Tap>> taps, SymInts sizes)
      : x_(reshape(x, {x.size(0), x.size(1), product(std::span(sizes).subspan(2))})),
        taps_(std::move(taps)),
        sizes_(std::move(sizes)) {}

  Tensor all() const { return from(0, {}, {}); }

 private:
  Tensor from(std::size_t d, const Tensor& row, const Tensor& inside) const {
    if (d == taps_.size()) return read(row, inside);
    Tensor sum;
    for (const Tap& tap : taps_[d]) {
      const Tensor next = row.defined() ? row * size_tensor(sizes_[d + 2]) + tap.index : tap.index;
      const Tensor both = inside.defined() ? logical_and(inside, tap.inside) : tap.inside;
      Tensor value = from(d + 1, next, both);
      if (tap.weight.defined()) value = value * cast(tap.weight, value.dtype());
      sum = sum.defined() ? sum + value : value;
    }
    return sum;
  }

  Tensor read(const Tensor& row, const Tensor& inside) const {
    const SymInts all{x_.size(0), x_.size(1), row.size(2)};
    const Tensor value =
        one("gather_elements", {x_, expand(row, all)}, {{"axis", std::int64_t{2}}});
    return inside.defined() ? where(inside, value, Tensor::scalar_int(x_.dtype(), 0)) : value;
  }

  Tensor x_;
  std::vector<std::vector<Tap>> taps_;
  SymInts sizes_;
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
  const Tensor sampled = WeightedSum(x, std::move(taps), sizes).all();
  shape.insert(shape.begin() + 1, sizes[1]);
  return {cast(reshape(sampled, shape), dtype)};
}

constexpr Converter kConverters[] = {{"GridSample", grid_sample}};

}  // namespace

std::span<const Converter> sample_converters() { return kConverters; }

}  // namespace heddle::onnx
