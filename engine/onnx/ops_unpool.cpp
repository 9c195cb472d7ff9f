// From windows back to what they were cut from.

#include <algorithm>

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
    const SymInt channels = x_.size(1) / taps_;
    const SymInt elements = product(image_);
    const Blocks blocks = all();
    const SymInts all{x_.size(0), channels, taps_, elements};
    const Tensor split = reshape(x_, {x_.size(0), channels, taps_, x_.size(2)});
    const Tensor index = expand(reshape(blocks.index, {1, 1, taps_, elements}), all);
    const Tensor read = one("gather_elements", {split, index}, {{"axis", std::int64_t{3}}});
    const Tensor held = where(reshape(blocks.inside, {1, 1, taps_, elements}), read,
                              Tensor::scalar_int(x_.dtype(), 0));
    SymInts sizes{x_.size(0), channels};
    sizes.insert(sizes.end(), image_.begin(), image_.end());
    return {reshape(sum(held, {2}), sizes)};
  }

 private:
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
