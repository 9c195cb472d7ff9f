// DeformConv: a convolution that reads where offsets say.

#include "engine/onnx/converters.h"
#include "engine/onnx/sampling.h"
#include "engine/onnx/window.h"

namespace heddle::onnx {

namespace {

/// Inputs: X [N, C, spatial...], W [M, C / groups, kernel...], offset [N, G * taps * dimensions, results...],
/// B [M], mask [N, G * taps, results...], for G groups of channels that share offsets.
class DeformedConvolution {
 public:
  explicit DeformedConvolution(const Node& node)
      : node_(node),
        x_(node.tensor(0)),
        w_(node.tensor(1)),
        kernel_(kernel_of(node, w_)),
        window_(window_attrs(node, x_, kernel_)),
        groups_(count_attr("group")),
        sharing_(count_attr("offset_group")) {
    if (!is_floating(x_.dtype()))
      node.malformed("X", "real numbers", std::string(name_of(x_.dtype())));
    if (w_.rank() != x_.rank()) node.malformed("W", "as many dimensions as X", listed(w_.shape()));
    if (x_.size(1) % sharing_ != 0 || x_.size(1) % groups_ != 0 || w_.size(0) % groups_ != 0)
      node.malformed("group and offset_group", "numbers that divide the channels",
                     std::to_string(groups_) + " and " + std::to_string(sharing_));
    for (const std::int64_t size : kernel_)
      if (size < 1) node.malformed("kernel_shape", "1 or more", std::to_string(size));
    for (std::size_t k = 0; k < kernel_.size(); ++k) {
      const SymInt reach = (SymInt(kernel_[k]) - 1) * window_.dilations[k] + 1;
      const SymInt padded = x_.size(axis(k)) + window_.low[k] + window_.high[k];
      results_.push_back((padded - reach) / window_.strides[k] + 1);
      taps_ = taps_ * kernel_[k];
    }
    points_ = taps_ * product(results_);
  }

  Outputs convert() const {
    const DType dtype = x_.dtype() == f64 ? f64 : f32;
    const SymInt batch = x_.size(0);
    const SymInt channels = x_.size(1);
    const auto spatial = static_cast<std::int64_t>(kernel_.size());
    const Tensor offset = with_sizes(node_.tensor(2), taps_ * spatial, spatial, "offset");
    std::vector<std::vector<Tap>> taps;
    for (std::int64_t k = 0; k < spatial; ++k) {
      const Tensor moved = squeeze(slice(offset, 2, k, k + 1), 2);
      const Tensor at = cast(moved, dtype) + undeformed(static_cast<std::size_t>(k), dtype);
      taps.push_back(linear_taps(reshape(at, {batch * sharing_, 1, points_}), x_.size(axis(k))));
    }
    SymInts shared = x_.shape();
    shared[0] = batch * sharing_;
    shared[1] = channels / sharing_;
    Tensor read = weighted_sum(reshape(cast(x_, dtype), shared), std::move(taps));
    if (node_.has(4)) {
      const Tensor mask = with_sizes(node_.tensor(4), taps_, 1, "mask");
      read = read * reshape(cast(mask, dtype), {batch * sharing_, 1, points_});
    }
    return {cast(convolved(read, dtype), x_.dtype())};
  }

 private:
  std::int64_t count_attr(std::string_view name) const {
    const std::int64_t count = node_.integer(name, 1);
    if (count < 1) node_.malformed(std::string(name), "1 or more", std::to_string(count));
    return count;
  }

  /// Spatial dimension `k` of X.
  static std::int64_t axis(std::size_t k) { return static_cast<std::int64_t>(k) + 2; }

  /// [N * G, taps, parts, results...] of `given` [N, G * count, results...].
  Tensor with_sizes(const Tensor& given, const SymInt& count, std::int64_t parts,
                    std::string_view name) const {
    SymInts wanted{x_.size(0), count * sharing_};
    wanted.insert(wanted.end(), results_.begin(), results_.end());
    const SymInts sizes = given.shape();
    bool fits = sizes.size() == wanted.size();
    for (std::size_t k = 0; fits && k < sizes.size(); ++k) fits = sizes[k] == wanted[k];
    if (!fits) node_.malformed(std::string(name), listed(wanted), listed(sizes));
    SymInts split{x_.size(0) * sharing_, taps_, parts};
    split.insert(split.end(), results_.begin(), results_.end());
    return reshape(given, split);
  }

  /// Where taps read along spatial dimension `k` without offsets: broadcasts to [N * G, taps, results...].
  Tensor undeformed(std::size_t k, DType dtype) const {
    const std::size_t rank = kernel_.size() + 2;
    SymInts tap_sizes(kernel_.begin(), kernel_.end());
    const Tensor tap = reshape(iota(tap_sizes, static_cast<std::int64_t>(k)), {taps_});
    SymInts across(rank, SymInt(1));
    across[1] = taps_;
    SymInts along(rank, SymInt(1));
    along[k + 2] = results_[k];
    const Tensor result = iota(along, static_cast<std::int64_t>(k) + 2);
    return cast(reshape(tap, across) * window_.dilations[k] +
                    (result * window_.strides[k] - window_.low[k]),
                dtype);
  }

  /// The products of W and what was read [N * G, C / G, points], summed over taps and channels of each group.
  Tensor convolved(const Tensor& read, DType dtype) const {
    const SymInt outputs = w_.size(0);
    const SymInt depth = x_.size(1) / groups_ * taps_;
    const Tensor columns = reshape(read, {x_.size(0), groups_, depth, product(results_)});
    const Tensor weights = reshape(cast(w_, dtype), {1, groups_, outputs / groups_, depth});
    SymInts sizes{x_.size(0), outputs};
    sizes.insert(sizes.end(), results_.begin(), results_.end());
    const Tensor result = reshape(matmul(weights, columns), sizes);
    if (!node_.has(3)) return result;
    SymInts thin(sizes.size(), SymInt(1));
    thin[1] = outputs;
    return result + reshape(cast(node_.tensor(3), dtype), thin);
  }

  const Node& node_;
  const Tensor x_, w_;
  const Ints kernel_;
  const WindowAttrs window_;
  const std::int64_t groups_, sharing_;
  SymInts results_;  ///< spatial sizes of the result
  SymInt taps_ = 1;
  SymInt points_;  ///< taps of all results of one channel
};

Outputs deform_conv(const Node& node) { return DeformedConvolution(node).convert(); }

constexpr Converter kConverters[] = {{"DeformConv", deform_conv}};

}  // namespace

std::span<const Converter> deform_converters() { return kConverters; }

}  // namespace heddle::onnx
