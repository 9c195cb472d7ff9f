#include "engine/onnx/resize_weights.h"

#include <algorithm>
#include <cmath>

namespace heddle::onnx {

namespace {

constexpr std::int64_t kMostWeights = 1 << 26;

/// Which position of x element `at` of the result has along a dimension.
double position_of(const Node& node, const ResizedDim& dim, const ResizeRules& rules, double at) {
  const auto in = static_cast<double>(dim.in);
  const double out = dim.scale * in;
  const double half_pixel = (at + 0.5) / dim.scale - 0.5;
  const std::string& coordinates = rules.coordinates;
  if (coordinates == "half_pixel") return half_pixel;
  if (coordinates == "asymmetric") return at / dim.scale;
  if (coordinates == "align_corners") return out == 1 ? 0 : at * (in - 1) / (out - 1);
  if (coordinates == "pytorch_half_pixel") return out == 1 ? -0.5 : half_pixel;
  if (coordinates == "half_pixel_symmetric")
    return in / 2 * (1 - static_cast<double>(dim.out) / out) + half_pixel;
  if (coordinates != "tf_crop_and_resize")
    node.malformed("coordinate_transformation_mode", "one of ONNX's", coordinates);
  const double span = (dim.end - dim.begin) * (in - 1);
  return dim.begin * (in - 1) + (out == 1 ? span / 2 : at * span / (out - 1));
}

std::int64_t nearest_of(const Node& node, const std::string& mode, double position) {
  double whole = 0;
  if (mode == "round_prefer_floor")
    whole = std::ceil(position - 0.5);
  else if (mode == "round_prefer_ceil")
    whole = std::floor(position + 0.5);
  else if (mode == "floor")
    whole = std::floor(position);
  else if (mode == "ceil")
    whole = std::ceil(position);
  else
    node.malformed("nearest_mode", "one of ONNX's", mode);
  return static_cast<std::int64_t>(whole);
}

/// How much an element counts at a distance: a tent, or Keys' cubic curve.
double weight_at(double distance, const ResizeRules& rules) {
  const double x = std::abs(distance);
  if (rules.mode == "linear") return std::max(1 - x, 0.0);
  const double a = rules.cubic_a;
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0.0;
}

/// What a dimension of a result reads: [taps, out] each, so that what neighbours read lies side by side.
struct Taps {
  Tensor indices;  ///< i64, inside x
  Tensor weights;  ///< f64
};

/// One dimension with its positions.
class Resizer {
 public:
  Resizer(const Node& node, const ResizedDim& dim, const ResizeRules& rules)
      : dim_(dim), rules_(rules) {
    for (std::int64_t k = 0; k < dim.out; ++k) {
      const double position = position_of(node, dim, rules, static_cast<double>(k));
      if (!(std::abs(position) < kFarthest))
        node.malformed("roi and scales", "positions below 2^48", std::to_string(position));
      positions_.push_back(position);
    }
  }

  bool is_identity() const {
    if (dim_.in != dim_.out) return false;
    for (std::int64_t k = 0; k < dim_.out; ++k)
      if (positions_[static_cast<std::size_t>(k)] != static_cast<double>(k)) return false;
    return true;
  }

  /// i64[out]
  Tensor nearest(const Node& node) const {
    Ints indices;
    for (const double position : positions_)
      indices.push_back(inside(nearest_of(node, rules_.nearest, position)));
    return Tensor::of(std::span<const std::int64_t>(indices), {dim_.out});
  }

  /// The elements that each one of the result reads, equally many, of a dimension joined with one of size `inner` inside it.
  Taps taps(std::int64_t inner) const {
    std::vector<Column> columns;
    std::size_t most = 1;
    for (const double position : positions_) {
      columns.push_back(column_at(position));
      most = std::max(most, columns.back().weights.size());
    }
    Ints indices;
    std::vector<double> weights;
    for (std::size_t k = 0; k < most; ++k) {
      for (const Column& column : columns) {
        const std::int64_t first = inner * inside(column.first + static_cast<std::int64_t>(k));
        for (std::int64_t place = 0; place < inner; ++place) indices.push_back(first + place);
        weights.insert(weights.end(), static_cast<std::size_t>(inner),
                       k < column.weights.size() ? column.weights[k] : 0.0);
      }
    }
    const Sizes sizes{static_cast<std::int64_t>(most), dim_.out * inner};
    return {Tensor::of(std::span<const std::int64_t>(indices), sizes),
            Tensor::of(std::span<const double>(weights), sizes)};
  }

  /// bool[out]: positions that crops have outside of x; undefined where there are none.
  Tensor outside() const {
    if (rules_.coordinates != "tf_crop_and_resize") return {};
    Tensor flags = Tensor::zeros(boolean, {dim_.out});
    bool some = false;
    for (std::int64_t k = 0; k < dim_.out; ++k) {
      const double position = positions_[static_cast<std::size_t>(k)];
      const bool is_outside = position < 0 || position > static_cast<double>(dim_.in - 1);
      static_cast<std::uint8_t*>(flags.data())[k] = is_outside ? 1 : 0;
      some = some || is_outside;
    }
    return some ? flags : Tensor();
  }

 private:
  static constexpr double kFarthest = 1LL << 48;

  std::int64_t inside(std::int64_t index) const {
    return std::clamp<std::int64_t>(index, 0, dim_.in - 1);
  }

  /// Weights of neighbours in x, adding up to 1.
  struct Column {
    std::int64_t first = 0;
    std::vector<double> weights;
  };

  /// Weights of elements beyond the ends go to the outermost ones, or nowhere.
  Column column_at(double position) const {
    const double narrowing = rules_.antialias ? std::min(dim_.scale, 1.0) : 1.0;
    const double reach = std::min((rules_.mode == "linear" ? 1.0 : 2.0) / narrowing,
                                  static_cast<double>(dim_.in + dim_.out));
    const auto first = static_cast<std::int64_t>(std::floor(position - reach));
    const auto last = static_cast<std::int64_t>(std::ceil(position + reach));
    Column column{.first = inside(first), .weights = {}};
    column.weights.resize(static_cast<std::size_t>(inside(last) - column.first + 1));
    double total = 0;
    for (std::int64_t index = first; index <= last; ++index) {
      if (rules_.exclude_outside && index != inside(index)) continue;
      const double weight = weight_at((static_cast<double>(index) - position) * narrowing, rules_);
      column.weights[static_cast<std::size_t>(inside(index) - column.first)] += weight;
      total += weight;
    }
    for (double& weight : column.weights) weight /= total;
    return column;
  }

  const ResizedDim& dim_;
  const ResizeRules& rules_;
  std::vector<double> positions_;
};

/// Channels up to which pixels are resized as rows of numbers.
constexpr std::int64_t kMostChannels = 8;

/// The elements of x that share a place in the dimension of `axis` and all outside it, if those are a few; else 1.
std::int64_t channels_of(const Tensor& x, std::int64_t axis) {
  std::int64_t channels = 1;
  for (std::int64_t k = axis + 1; k < x.rank(); ++k) {
    const SymInt size = x.size(k);
    if (size.is_symbolic() || size.value() < 1 || size.value() > kMostChannels) return 1;
    channels *= size.value();
  }
  return channels <= kMostChannels ? channels : 1;
}

/// x with each element along the dimension the sum of those that it reads.
Tensor summed(const Tensor& x, const ResizedDim& dim, const Resizer& resizer) {
  const std::int64_t channels = channels_of(x, dim.axis);
  const auto axis = static_cast<std::size_t>(dim.axis);
  SymInts result = x.shape();
  result[axis] = dim.out;
  SymInts rows = x.shape();
  if (channels > 1) {
    rows.resize(axis + 1);
    rows[axis] = dim.in * channels;
  }
  const Taps taps = resizer.taps(channels);
  SymInts sizes(rows.size() + 1, SymInt(1));
  sizes[axis] = taps.weights.size(0);
  sizes[axis + 1] = taps.weights.size(1);
  const Tensor weights = reshape(cast(taps.weights, x.dtype()), sizes);
  const Tensor read = gather(channels > 1 ? reshape(x, rows) : x, taps.indices, dim.axis);
  const Tensor sums = sum(read * weights, {dim.axis});
  return channels > 1 ? reshape(sums, result) : sums;
}

}  // namespace

Tensor resized_by_weights(const Node& node, const Tensor& x, const std::vector<ResizedDim>& dims,
                          const ResizeRules& rules) {
  const bool picks = rules.mode == "nearest";
  if (!picks && rules.mode != "linear" && rules.mode != "cubic")
    node.malformed("mode", "nearest, linear or cubic", rules.mode);
  Tensor result = picks || x.dtype() == f64 ? x : cast(x, f32);
  Tensor outside;
  for (const ResizedDim& dim : dims) {
    if (dim.in < 1 || dim.out > kMostWeights ||
        dim.in > kMostWeights / std::max<std::int64_t>(dim.out, 1))
      node.unsupported("dimensions without elements, or whose sizes multiply to more than 2^26");
    const Resizer resizer(node, dim, rules);
    if (!resizer.is_identity())
      result =
          picks ? gather(result, resizer.nearest(node), dim.axis) : summed(result, dim, resizer);
    const Tensor flags = resizer.outside();
    if (!flags.defined()) continue;
    SymInts thin(static_cast<std::size_t>(x.rank()), SymInt(1));
    thin[static_cast<std::size_t>(dim.axis)] = dim.out;
    const Tensor here = reshape(flags, thin);
    outside = outside.defined() ? logical_or(outside, here) : here;
  }
  if (!outside.defined()) return result;
  return where(outside, Tensor::scalar(result.dtype(), rules.extrapolation), result);
}

}  // namespace heddle::onnx
