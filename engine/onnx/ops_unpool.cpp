// From windows back to what they were cut from.

#include <algorithm>
#include <optional>

#include "engine/onnx/converters.h"
#include "engine/onnx/window.h"

namespace heddle::onnx {

namespace {

/// One number a dimension, from an attribute.
Ints spread(const Node& node, std::string_view name, std::size_t count, std::int64_t otherwise,
            std::int64_t least) {
  Ints numbers = node.integers(name, Ints(count, otherwise));
  if (numbers.size() != count)
    node.malformed(std::string(name), std::to_string(count) + " numbers",
                   std::to_string(numbers.size()));
  for (const std::int64_t number : numbers)
    if (number < least)
      node.malformed(std::string(name), std::to_string(least) + " or more", std::to_string(number));
  return numbers;
}

/// For each element of an image and each tap of a block: which block has the element there, if one does.
struct Blocks {
  Tensor index;   ///< i64[taps, elements]
  Tensor inside;  ///< bool, the same sizes
};

/// Inputs: input [N, C * taps, blocks], image_shape, block_shape.
class Col2Im {
 public:
  explicit Col2Im(const Node& node)
      : node_(node),
        x_(node.tensor(0)),
        image_(node.known(1, "image_shape")),
        block_(node.known(2, "block_shape")),
        strides_(spread(node, "strides", image_.size(), 1, 1)),
        dilations_(spread(node, "dilations", image_.size(), 1, 1)),
        pads_(spread(node, "pads", 2 * image_.size(), 0, 0)),
        taps_(product(block_)) {
    if (x_.rank() != 3) node.malformed("input", "three dimensions", std::to_string(x_.rank()));
    if (image_.empty() || block_.size() != image_.size())
      node.malformed("image_shape and block_shape", "equally many sizes, one or more",
                     std::to_string(block_.size()));
    for (std::size_t k = 0; k < image_.size(); ++k) {
      const SymInt padded = image_[k] + pads_[k] + pads_[k + image_.size()];
      const SymInt reach = (block_[k] - 1) * dilations_[k] + 1;
      if (block_[k] < 1 || padded < reach)
        node.malformed("block_shape", "1 to the image's sizes", listed(block_));
      counts_.push_back((padded - reach) / strides_[k] + 1);
    }
    if (x_.size(1) % taps_ != 0)
      node.malformed("input", "a multiple of " + taps_.to_string() + " rows", listed(x_.shape()));
    if (x_.size(2) != product(counts_))
      node.malformed("input", product(counts_).to_string() + " blocks", listed(x_.shape()));
  }

  /// The sum over taps: each element of the image reads what the blocks hold of it.
  Outputs convert() const {
    SymInts sizes{x_.size(0), x_.size(1) / taps_};
    SymInts split = sizes;
    split.insert(split.end(), block_.begin(), block_.end());
    split.insert(split.end(), counts_.begin(), counts_.end());
    sizes.insert(sizes.end(), image_.begin(), image_.end());
    if (is_tiled()) return {reshape(permute(reshape(x_, split), tiled_order()), sizes)};
    if (!is_known()) return {reshape(gathered(), sizes)};
    const bool is_half = is_floating(x_.dtype()) && size_of(x_.dtype()) < size_of(f32);
    Ints phases;
    Tensor image = interleaved(reshape(is_half ? cast(x_, f32) : x_, split), phases);
    SymInts whole{sizes[0], sizes[1]};
    for (std::size_t k = 0; k < image_.size(); ++k) whole.push_back(places(k) * strides_[k]);
    image = reshape(image, whole);
    for (std::size_t k = 0; k < image_.size(); ++k)
      if (places(k) * strides_[k] != image_[k].value())
        image = slice(image, static_cast<std::int64_t>(k) + 2, 0, image_[k]);
    return {is_half ? cast(image, x_.dtype()) : image};
  }

 private:
  /// Whether each element of the image lies in one block.
  bool is_tiled() const {
    for (std::size_t k = 0; k < image_.size(); ++k)
      if (block_[k] != strides_[k] || dilations_[k] != 1 || pads_[k] != 0 ||
          counts_[k] * strides_[k] != image_[k])
        return false;
    return true;
  }

  /// Of [N, C, block, counts]: blocks with the elements of each behind it, dimension by dimension.
  Ints tiled_order() const {
    const auto rank = static_cast<std::int64_t>(image_.size());
    Ints order{0, 1};
    for (std::int64_t k = 0; k < rank; ++k) {
      order.push_back(2 + rank + k);
      order.push_back(2 + k);
    }
    return order;
  }

  /// Whether few taps, and elements by their place between two blocks, are known beforehand.
  bool is_known() const {
    constexpr std::int64_t kMostTaps = 64;
    constexpr std::int64_t kMostPhases = 16;
    std::int64_t phases = 1;
    for (std::size_t k = 0; k < image_.size(); ++k) {
      if (image_[k].is_symbolic() || block_[k].is_symbolic()) return false;
      phases *= strides_[k];
    }
    return taps_.value() <= kMostTaps && phases <= kMostPhases && product(image_).value() > 0;
  }

  /// Elements of a dimension of the image that lie a stride apart.
  std::int64_t places(std::size_t k) const {
    return (image_[k].value() + strides_[k] - 1) / strides_[k];
  }

  /// Elements whose place between two blocks begins with `phases` have the same taps, and of each those of neighbouring blocks:
  /// the sums of moved blocks, put side by side. [N, C, places, strides, ...] from the dimension behind `phases` on.
  Tensor interleaved(const Tensor& blocks, Ints& phases) const {
    const std::size_t k = phases.size();
    if (k == image_.size()) return moved_sum(blocks, phases);
    std::vector<Tensor> parts;
    const auto axis = static_cast<std::int64_t>(k) + 3;
    for (std::int64_t phase = 0; phase < strides_[k]; ++phase) {
      phases.push_back(phase);
      parts.push_back(unsqueeze(interleaved(blocks, phases), axis));
      phases.pop_back();
    }
    return concat(parts, axis);
  }

  /// Of elements place * stride + phase: the sum over taps.
  Tensor moved_sum(const Tensor& blocks, const Ints& phases) const {
    std::optional<Tensor> sum;
    Ints tap(image_.size(), 0);
    for (std::int64_t number = 0; number < taps_.value(); ++number) {
      std::int64_t rest = number;
      for (std::size_t k = tap.size(); k-- > 0; rest /= block_[k].value())
        tap[k] = rest % block_[k].value();
      const auto part = moved(blocks, phases, tap);
      if (part) sum = sum ? *sum + *part : *part;
    }
    if (sum) return *sum;
    SymInts sizes{blocks.size(0), blocks.size(1)};
    for (std::size_t k = 0; k < image_.size(); ++k) sizes.push_back(places(k));
    return expand(Tensor::scalar_int(blocks.dtype(), 0), sizes);
  }

  /// What one tap of all blocks gives to each place; nothing where it gives none.
  std::optional<Tensor> moved(const Tensor& blocks, const Ints& phases, const Ints& tap) const {
    SymInts low{0, 0};
    SymInts high{0, 0};
    Tensor part = blocks;
    for (std::size_t k = 0; k < tap.size(); ++k) {
      const std::int64_t distance = phases[k] + pads_[k] - tap[k] * dilations_[k];
      if (distance % strides_[k] != 0) return std::nullopt;
      const std::int64_t first = distance / strides_[k];  // block of place 0
      const std::int64_t count = counts_[k].value();
      if (first >= count || first + places(k) <= 0) return std::nullopt;
      low.push_back(-first);
      high.push_back(places(k) - count + first);
      part = squeeze(slice(part, 2, tap[k], tap[k] + 1), 2);
    }
    return pad(part, low, high);
  }

  Tensor gathered() const {
    const SymInt channels = x_.size(1) / taps_;
    const SymInt elements = product(image_);
    const Blocks blocks = all();
    const SymInts all{x_.size(0), channels, taps_, elements};
    const Tensor split = reshape(x_, {x_.size(0), channels, taps_, x_.size(2)});
    const Tensor index = expand(reshape(blocks.index, {1, 1, taps_, elements}), all);
    const Tensor read = one("gather_elements", {split, index}, {{"axis", std::int64_t{3}}});
    const Tensor held = where(reshape(blocks.inside, {1, 1, taps_, elements}), read,
                              Tensor::scalar_int(x_.dtype(), 0));
    return sum(held, {2});
  }

  Blocks all() const {
    Blocks blocks;
    SymInts sizes = block_;
    sizes.insert(sizes.end(), image_.begin(), image_.end());
    for (std::size_t k = 0; k < image_.size(); ++k) {
      const auto axis = static_cast<std::int64_t>(k);
      const auto rank = static_cast<std::int64_t>(image_.size());
      const Tensor begin = iota(sizes, axis + rank) + pads_[k] - iota(sizes, axis) * dilations_[k];
      const Tensor count = size_tensor(counts_[k]);
      const Tensor at = begin / strides_[k];
      Tensor inside = logical_and(greater_equal(begin, 0), less(at, count));
      inside = logical_and(inside, equal(at * strides_[k], begin));
      blocks.index = k == 0 ? at : blocks.index * count + at;
      blocks.inside = k == 0 ? inside : logical_and(blocks.inside, inside);
    }
    const SymInts flat{taps_, product(image_)};
    blocks.inside = reshape(blocks.inside, flat);
    blocks.index = where(blocks.inside, reshape(blocks.index, flat), 0);
    return blocks;
  }

  const Node& node_;
  const Tensor x_;
  const SymInts image_, block_;
  const Ints strides_, dilations_, pads_;
  const SymInt taps_;
  SymInts counts_;  ///< blocks by dimension
};

Outputs col2im(const Node& node) { return Col2Im(node).convert(); }

/// `x` with zeros behind, to `sizes`.
Tensor lengthened(const Node& node, const Tensor& x, const SymInts& sizes) {
  SymInts high;
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    const SymInt size = x.size(static_cast<std::int64_t>(k));
    if (sizes[k] < size)
      node.malformed("output_shape", "at least " + listed(x.shape()), listed(sizes));
    high.push_back(sizes[k] - size);
  }
  return pad(x, SymInts(sizes.size(), 0), high);
}

/// Inputs: X, I, output_shape. Elements of X go where I, counted through all of what was pooled, says.
Outputs max_unpool(const Node& node) {
  const Tensor x = node.tensor(0);
  const Tensor at = node.tensor(1);
  const WindowAttrs window = window_attrs(node, x, node.integers("kernel_shape"));
  SymInts sizes = x.shape();
  for (std::size_t k = 0; k < window.kernel.size(); ++k) {
    SymInt& size = sizes[k + 2];
    size = (size - 1) * window.strides[k] + window.kernel[k] - window.low[k] - window.high[k];
    if (size < 0) node.malformed("pads", "at most what was pooled", listed(sizes));
  }
  const Tensor zeros = expand(Tensor::scalar_int(x.dtype(), 0), {product(sizes)});
  const Tensor filled = one("scatter_elements", {zeros, reshape(at, {-1}), reshape(x, {-1})},
                            {{"axis", std::int64_t{0}}});
  const Tensor result = reshape(filled, sizes);
  if (!node.has(2)) return {result};
  const SymInts wanted = node.known(2, "output_shape");
  if (wanted.size() != sizes.size())
    node.malformed("output_shape", std::to_string(sizes.size()) + " sizes", listed(wanted));
  return {lengthened(node, result, wanted)};
}

}  // namespace

std::span<const Converter> unpool_converters() {
  static constexpr Converter kConverters[] = {
      {"Col2Im", col2im},
      {"MaxUnpool", max_unpool},
  };
  return kConverters;
}

}  // namespace heddle::onnx
