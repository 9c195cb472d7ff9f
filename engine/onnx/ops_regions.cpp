// Regions of interest: parts of x that boxes name, pooled to one size.

#include <limits>

#include "engine/onnx/converters.h"

namespace heddle::onnx {

namespace {

/// Elements of x, all channels side by side: what reads one position reads them all.
class Images {
 public:
  /// x [N, C, H, W], `image` i64[R]: the image of each box.
  Images(const Tensor& x, const Tensor& image) : height_(x.size(2)), width_(x.size(3)) {
    rows_ = reshape(permute(x, {0, 2, 3, 1}), {x.size(0) * height_ * width_, x.size(1)});
    first_ = reshape(cast(image, i64), {image.size(0), 1, 1, 1, 1}) * size_tensor(height_ * width_);
  }

  /// Elements of rows i64[R, h, s, 1, 1] and columns i64[R, 1, 1, w, t] inside x: [R, h, s, w, t, C].
  Tensor at(const Tensor& row, const Tensor& column) const {
    return gather(rows_, first_ + row * size_tensor(width_) + column, 0);
  }

 private:
  Tensor rows_, first_;
  SymInt height_, width_;
};

constexpr std::int64_t kRows = 1;     ///< the dimension that bins along H have, samples behind it
constexpr std::int64_t kColumns = 3;  ///< the same along W
constexpr std::int64_t kChannels = 5;

/// [R] as what bins and samples along a dimension broadcast to.
Tensor by_box(const Tensor& x) { return reshape(x, {x.size(0), 1, 1, 1, 1}); }

/// Numbers of `count` bins or samples along a dimension of five.
Tensor numbered(const SymInt& count, std::int64_t axis, DType dtype) {
  SymInts sizes(5, SymInt(1));
  sizes[static_cast<std::size_t>(axis)] = count;
  return iota(sizes, axis, dtype);
}

/// For all channels.
Tensor of_channels(const Tensor& x) { return unsqueeze(x, kChannels); }

/// [R, C, h, w] of pooled bins [R, h, w, C].
Tensor channels_first(const Tensor& x) { return permute(x, {0, 3, 1, 2}); }

/// Column k of the boxes [R, 4 or 5].
Tensor corner(const Tensor& boxes, std::int64_t k) { return squeeze(slice(boxes, 1, k, k + 1), 1); }

/// The largest of `counts` as a size that the run tells.
SymInt most_of(const Tensor& counts) { return as_size(maximum(cast(amax(counts), i64), 0)); }

void check_boxes(const Node& node, const Tensor& x, const Tensor& boxes, std::int64_t columns) {
  if (x.rank() != 4) node.malformed("X", "four dimensions", std::to_string(x.rank()));
  if (!is_floating(x.dtype()) || !is_floating(boxes.dtype()))
    node.malformed("X and rois", "real numbers", std::string(name_of(boxes.dtype())));
  if (boxes.rank() != 2 || boxes.size(1) != columns)
    node.malformed("rois", std::to_string(columns) + " numbers a region", listed(boxes.shape()));
}

std::int64_t bins_of(const Node& node, std::string_view name, std::int64_t bins) {
  if (bins < 1) node.malformed(std::string(name), "1 or more", std::to_string(bins));
  return bins;
}

/// Samples along one dimension: between two elements each.
struct Samples {
  Tensor low, high;    ///< i64: the elements beside it
  Tensor weight;       ///< of `high`; `low` has the rest
  Tensor inside;       ///< bool: not beyond the edges
  Tensor counts;       ///< bool: one of its bin; undefined where all are
  Tensor count;        ///< how many samples a bin has; undefined where `fixed` says so
  std::int64_t fixed;  ///< the same where the model says it, else 0
};

class RoiAlign {
 public:
  explicit RoiAlign(const Node& node)
      : node_(node),
        x_(node.tensor(0)),
        boxes_(node.tensor(1)),
        scale_(node.number("spatial_scale", 1)) {
    check_boxes(node, x_, boxes_, 4);
    const bool knows_half = node.opset() >= 16;
    const std::string transform = node.string("coordinate_transformation_mode",
                                              knows_half ? "half_pixel" : "output_half_pixel");
    half_ = transform == "half_pixel";
    if (!half_ && transform != "output_half_pixel")
      node.malformed("coordinate_transformation_mode", "half_pixel or output_half_pixel",
                     transform);
    const std::string mode = node.string("mode", "avg");
    largest_ = mode == "max";
    if (!largest_ && mode != "avg") node.malformed("mode", "avg or max", mode);
    fixed_ = node.integer("sampling_ratio", 0);
    if (fixed_ < 0) node.malformed("sampling_ratio", "0 or more", std::to_string(fixed_));
  }

  Outputs convert() const {
    const DType dtype = x_.dtype() == f64 ? f64 : f32;
    const Samples rows = samples(kRows, 1, "output_height", dtype);
    const Samples columns = samples(kColumns, 0, "output_width", dtype);
    const Images images(cast(x_, dtype), node_.tensor(2));
    const auto part = [&](bool lower, bool right) {
      const Tensor value =
          images.at(lower ? rows.high : rows.low, right ? columns.high : columns.low);
      const Tensor down = lower ? rows.weight : 1.0 - rows.weight;
      const Tensor across = right ? columns.weight : 1.0 - columns.weight;
      return value * of_channels(down * across);
    };
    const auto joined = [&](const Tensor& a, const Tensor& b) {
      return largest_ ? maximum(a, b) : a + b;
    };
    Tensor value = joined(joined(part(false, false), part(false, true)),
                          joined(part(true, false), part(true, true)));
    value = where(of_channels(logical_and(rows.inside, columns.inside)), value, 0.0);
    return {cast(channels_first(pooled(value, rows, columns)), x_.dtype())};
  }

 private:
  /// Samples along the dimension whose bins lie along `axis` and whose ends are columns `first` and `first` + 2 of the boxes.
  Samples samples(std::int64_t axis, std::int64_t first, std::string_view name, DType dtype) const {
    const std::int64_t bins = bins_of(node_, name, node_.integer(name, 1));
    const double offset = half_ ? 0.5 : 0.0;
    const Tensor begin = cast(corner(boxes_, first), dtype) * scale_ - offset;
    const Tensor end = cast(corner(boxes_, first + 2), dtype) * scale_ - offset;
    Tensor extent = end - begin;
    if (!half_) extent = maximum(extent, 1.0);
    const Tensor bin = extent / static_cast<double>(bins);
    Samples all{.low = {},
                .high = {},
                .weight = {},
                .inside = {},
                .counts = {},
                .count = {},
                .fixed = fixed_};
    SymInt most = fixed_;
    Tensor step = by_box(bin);
    if (fixed_ == 0) {
      all.count = maximum(by_box(ceil(bin)), 0.0);
      most = most_of(all.count);
      step = step / all.count;
    } else {
      step = step / static_cast<double>(fixed_);
    }
    const Tensor sample = numbered(most, axis + 1, dtype);
    if (fixed_ == 0) all.counts = less(sample, all.count);
    const Tensor at =
        by_box(begin) + numbered(bins, axis, dtype) * by_box(bin) + (sample + 0.5) * step;
    place(all, at, cast(size_tensor(x_.size(axis == kRows ? 2 : 3)), dtype));
    return all;
  }

  static void place(Samples& all, const Tensor& given, const Tensor& length) {
    all.inside = logical_and(greater_equal(given, -1.0), less_equal(given, length));
    const Tensor last = length - 1.0;
    const Tensor at = minimum(maximum(given, 0.0), last);
    const Tensor low = floor(at);
    all.weight = at - low;
    all.low = cast(low, i64);
    all.high = cast(minimum(low + 1.0, last), i64);
  }

  /// [R, h, w, C] of samples [R, h, s, w, t, C]. Bins without samples are 0.
  Tensor pooled(const Tensor& value, const Samples& rows, const Samples& columns) const {
    const Ints axes{kRows + 1, kColumns + 1};
    if (fixed_ > 0) return largest_ ? amax(value, axes) : mean(value, axes);
    const Tensor counted = of_channels(logical_and(rows.counts, columns.counts));
    const Tensor count = of_channels(rows.count * columns.count);
    if (!largest_) {
      const Tensor total = sum(where(counted, value, 0.0), axes, true);
      return squeeze(squeeze(total / maximum(count, 1.0), kColumns + 1), kRows + 1);
    }
    constexpr double kLowest = -std::numeric_limits<double>::infinity();
    const Tensor top = amax(where(counted, value, kLowest), axes, true);
    const Tensor has_some = greater(count, 0.0);
    return squeeze(squeeze(where(has_some, top, 0.0), kColumns + 1), kRows + 1);
  }

  const Node& node_;
  const Tensor x_, boxes_;
  const double scale_;
  bool half_ = false;     ///< the centre of the first element is 0.5
  bool largest_ = false;  ///< the largest sample, no mean
  std::int64_t fixed_ = 0;
};

Outputs roi_align(const Node& node) { return RoiAlign(node).convert(); }

/// Elements along one dimension that bins hold.
struct Held {
  Tensor index;   ///< i64, inside x
  Tensor inside;  ///< bool: one of its bin
};

/// Half away from zero, as C's round.
Tensor rounded(const Tensor& x) { return sign(x) * floor(abs(x) + 0.5); }

/// Bins along the dimension `axis` of regions whose ends are columns `first` and `first` + 2 of the boxes.
Held held(const Tensor& boxes, std::int64_t axis, std::int64_t first, std::int64_t bins,
          double scale, const SymInt& length) {
  const Tensor begin = by_box(rounded(corner(boxes, first) * scale));
  const Tensor end = by_box(rounded(corner(boxes, first + 2) * scale));
  const Tensor bin = maximum(end - begin + 1.0, 1.0) / static_cast<double>(bins);
  const Tensor number = numbered(bins, axis, boxes.dtype());
  const Tensor size = cast(size_tensor(length), boxes.dtype());
  const auto within = [&](const Tensor& x) { return minimum(maximum(x, 0.0), size); };
  const Tensor low = within(floor(number * bin) + begin);
  const Tensor high = within(ceil((number + 1.0) * bin) + begin);
  const Tensor at = low + numbered(most_of(high - low), axis + 1, boxes.dtype());
  const Tensor inside = less(at, high);
  return {cast(where(inside, at, 0.0), i64), inside};
}

/// Inputs: X, rois [R, 5], whose first column is the image. Bins that hold no element are 0.
Outputs max_roi_pool(const Node& node) {
  const Tensor x = node.tensor(0);
  const Tensor given = node.tensor(1);
  check_boxes(node, x, given, 5);
  const Tensor boxes = given.dtype() == f64 ? given : cast(given, f32);
  const Ints bins = node.integers("pooled_shape");
  if (bins.size() != 2) node.malformed("pooled_shape", "two numbers", std::to_string(bins.size()));
  const double scale = node.number("spatial_scale", 1);
  const Held rows = held(boxes, kRows, 2, bins_of(node, "pooled_shape", bins[0]), scale, x.size(2));
  const Held columns =
      held(boxes, kColumns, 1, bins_of(node, "pooled_shape", bins[1]), scale, x.size(3));
  const Tensor inside = of_channels(logical_and(rows.inside, columns.inside));
  const Tensor value = Images(x, corner(boxes, 0)).at(rows.index, columns.index);
  constexpr double kLowest = -std::numeric_limits<double>::infinity();
  const Ints axes{kRows + 1, kColumns + 1};
  const Tensor top = amax(where(inside, value, Tensor::scalar(x.dtype(), kLowest)), axes);
  return {channels_first(where(any(inside, axes), top, Tensor::scalar(x.dtype(), 0)))};
}

}  // namespace

std::span<const Converter> region_converters() {
  static constexpr Converter kConverters[] = {
      {"MaxRoiPool", max_roi_pool},
      {"RoiAlign", roi_align},
  };
  return kConverters;
}

}  // namespace heddle::onnx
