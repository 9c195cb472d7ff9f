// Views, and arithmetic on sizes.

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/onnx/converters.h"
#include "heddle/frontend.h"

namespace heddle::onnx {

namespace {

Outputs shape_of(const Node& node) {
  SymInts sizes = node.value(0).shape();
  const auto rank = static_cast<std::int64_t>(sizes.size());
  const auto bound = [&](std::int64_t position) {
    return std::clamp<std::int64_t>(position < 0 ? position + rank : position, 0, rank);
  };
  const std::int64_t begin = bound(node.integer("start", 0));
  const std::int64_t end = std::max(begin, bound(node.integer("end", rank)));
  return {Value::of_ints({sizes.begin() + begin, sizes.begin() + end}, false)};
}

Outputs size_of(const Node& node) {
  return {Value::of_ints({product(node.value(0).shape())}, true)};
}

/// What a model may ask for: sizes, one of which may be -1, which stands for what is left.
void check_sizes(const Node& node, const SymInts& sizes) {
  int left_open = 0;
  for (const SymInt& size : sizes) {
    if (size.is_symbolic() || size.value() >= 0) continue;
    ++left_open;
    if (size.value() != -1 || left_open > 1)
      node.malformed("shape", "sizes of at least 0 and at most one -1", listed(sizes));
  }
}

/// Known integers with other sizes, the one that may be -1 found; nothing where a size is a symbol.
std::optional<Value> reshape_ints(const Value& x, const SymInts& sizes) {
  std::optional<KnownInts> known = x.known_ints();
  if (!known) return {};
  const auto count = static_cast<std::int64_t>(known->ints.size());
  Ints numbers;
  std::int64_t others = 1;
  for (const SymInt& size : sizes) {
    if (size.is_symbolic()) return {};
    numbers.push_back(size.value());
    if (size.value() == -1) continue;
    if (__builtin_mul_overflow(others, size.value(), &others)) return {};
  }
  for (std::int64_t& number : numbers)
    if (number == -1) others *= number = others == 0 ? 0 : count / others;
  if (others != count) return {};  // what reshape says of tensors
  known->sizes = std::move(numbers);
  return Value::of_known(std::move(*known), x.dtype());
}

Outputs convert_reshape(const Node& node) {
  const Value& x = node.value(0);
  SymInts sizes;
  if (node.has(1)) {
    sizes = node.known_or_late(1, "shape");
  } else {
    for (const std::int64_t size : node.integers("shape")) sizes.push_back(size);
  }
  check_sizes(node, sizes);
  const SymInts old = x.shape();
  const bool keeps_zero = node.integer("allowzero", 0) != 0;
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    if (keeps_zero || sizes[k].is_symbolic() || sizes[k].value() != 0) continue;
    if (k >= old.size())
      node.malformed("shape", "0 for a dimension of data", "dimension " + std::to_string(k));
    sizes[k] = old[k];
  }
  if (const auto ints = reshape_ints(x, sizes)) return {*ints};
  return {reshape(x.tensor(), std::move(sizes))};
}

/// Known integers of rank 2 with rows and columns exchanged.
std::optional<Value> transpose_ints(const Value& x, const Ints& perm) {
  const std::optional<KnownInts> known = x.known_ints();
  if (!known || perm != Ints{1, 0} || known->sizes.size() != 2) return {};
  const auto rows = static_cast<std::size_t>(known->sizes[0]);
  const auto columns = static_cast<std::size_t>(known->sizes[1]);
  KnownInts turned{{}, {known->sizes[1], known->sizes[0]}};
  if (known->ints.empty()) return Value::of_known(std::move(turned), x.dtype());
  for (std::size_t c = 0; c < columns; ++c)
    for (std::size_t r = 0; r < rows; ++r) turned.ints.push_back(known->ints[r * columns + c]);
  return Value::of_known(std::move(turned), x.dtype());
}

Outputs convert_transpose(const Node& node) {
  const Value& x = node.value(0);
  Ints perm = node.integers("perm");
  if (perm.empty()) {
    perm = range_of(0, x.rank());
    std::reverse(perm.begin(), perm.end());
  }
  if (const auto ints = transpose_ints(x, perm)) return {*ints};
  return {permute(x.tensor(), std::move(perm))};
}

constexpr std::size_t kMostReals = 1024;

/// `result`, a scalar or vector of the elements of `parts` in order, known to follow from sizes where some part does.
Value with_reals(const Tensor& result, std::span<const Value> parts) {
  const bool known =
      std::any_of(parts.begin(), parts.end(), [](const Value& x) { return x.has_reals(); });
  if (!known || result.rank() > 1) return result;
  Reals all;
  for (const Value& part : parts) {
    const auto reals = part.reals();
    if (!reals && !part.is_shape_like()) return result;
    if (all.size() > kMostReals) return result;
    if (reals) all.insert(all.end(), reals->begin(), reals->end());
    if (reals) continue;
    const SymInts sizes = *part.ints();
    for (const SymInt& size : sizes) all.emplace_back(size, f64);
  }
  return Value::of_reals(result, std::move(all));
}

/// Axes from the second input in later versions, from the attribute before.
Ints axes_of(const Node& node) {
  return node.has(1) ? node.known_numbers(1, "axes") : node.integers("axes");
}

Outputs convert_squeeze(const Node& node) {
  const Value& x = node.value(0);
  const SymInts old = x.shape();
  const auto rank = static_cast<std::int64_t>(old.size());
  Ints axes = node.axes(axes_of(node), rank);
  if (!node.has(1) && !node.has_attr("axes")) {
    for (std::int64_t k = 0; k < rank; ++k)
      if (old[static_cast<std::size_t>(k)] == 1) axes.push_back(k);
  }
  if (x.is_shape_like() && rank == 1 && !axes.empty() && x.ints()->size() == 1)
    return {Value::of_ints(*x.ints(), true, x.dtype())};
  SymInts sizes;
  for (std::int64_t k = 0; k < rank; ++k) {
    const SymInt& size = old[static_cast<std::size_t>(k)];
    if (std::find(axes.begin(), axes.end(), k) == axes.end()) {
      sizes.push_back(size);
    } else if (size != 1) {
      node.malformed("axes", "dimensions of size 1", detail::seen(size));
    }
  }
  return {with_reals(reshape(x.tensor(), std::move(sizes)), std::span(&x, 1))};
}

Outputs convert_unsqueeze(const Node& node) {
  const Value& x = node.value(0);
  Ints axes = axes_of(node);
  axes = node.axes(axes, x.rank() + static_cast<std::int64_t>(axes.size()));
  if (x.is_shape_like() && x.rank() == 0 && axes.size() == 1)
    return {Value::of_ints(*x.ints(), false, x.dtype())};
  return {with_reals(unsqueeze_all(x.tensor(), axes), std::span(&x, 1))};
}

/// Flattened to two dimensions, the second beginning at `axis`.
Outputs flatten(const Node& node) {
  const Tensor x = node.tensor(0);
  const std::int64_t given = node.integer("axis", 1);
  const std::int64_t axis = given == x.rank() ? given : node.axis(given, x.rank());
  const SymInts sizes = x.shape();
  const std::span<const SymInt> all(sizes);
  return {reshape(x, {product(all.first(static_cast<std::size_t>(axis))),
                      product(all.subspan(static_cast<std::size_t>(axis)))})};
}

/// The size of a dimension of `size` elements broadcast to `wanted`. A comparison of symbols would tie the
/// compiled code to its outcome, so it is the last resort.
SymInt broadcast_size(const SymInt& size, const SymInt& wanted) {
  if (!size.is_symbolic() && size.value() == 1) return wanted;
  if (!wanted.is_symbolic() && wanted.value() == 1) return size;
  if (!wanted.is_symbolic() || wanted.to_string() == size.to_string()) return wanted;
  return wanted == 1 ? size : wanted;
}

/// Both ways of broadcasting: sizes of 1 in the wanted shape take the tensor's.
Outputs convert_expand(const Node& node) {
  const Value& x = node.value(0);
  SymInts sizes = node.known_or_late(1, "shape");
  const bool is_late = !node.value(1).ints();
  const SymInts old = x.shape();
  if (old.size() > sizes.size()) sizes.insert(sizes.begin(), old.size() - sizes.size(), SymInt(1));
  for (std::size_t k = 0; k < old.size(); ++k) {
    SymInt& wanted = sizes[sizes.size() - old.size() + k];
    const bool is_one = !old[k].is_symbolic() && old[k].value() == 1;
    if (is_late && wanted.is_symbolic() && !is_one)
      node.unsupported("a size that only the run tells, for a dimension that may be other than 1");
    wanted = broadcast_size(old[k], wanted);
  }
  return {expand(x.tensor(), std::move(sizes))};
}

Outputs tile(const Node& node) {
  const Tensor x = node.tensor(0);
  SymInts repeats = node.known_or_late(1, "repeats");
  if (node.opset() < 6) node.unsupported("Tile before version 6");
  if (static_cast<std::int64_t>(repeats.size()) != x.rank())
    node.malformed("repeats", std::to_string(x.rank()) + " numbers",
                   std::to_string(repeats.size()));
  SymInts split;
  SymInts wide;
  SymInts merged;
  for (std::size_t k = 0; k < repeats.size(); ++k) {
    const SymInt size = x.size(static_cast<std::int64_t>(k));
    split.insert(split.end(), {SymInt(1), size});
    wide.insert(wide.end(), {repeats[k], size});
    merged.push_back(repeats[k] * size);
  }
  if (repeats.empty()) return {x};
  return {reshape(expand(reshape(x, split), wide), merged)};
}

/// Elements of vectors of integers one behind the other; nothing where none or all are known.
std::optional<KnownParts> parts_of(const Node& node) {
  KnownParts all;
  for (const Value& operand : node.values()) {
    const auto parts = operand.parts();
    if (!parts) return {};
    all.insert(all.end(), parts->begin(), parts->end());
  }
  return is_late(all) ? std::optional(std::move(all)) : std::nullopt;
}

Outputs convert_concat(const Node& node) {
  const std::int64_t rank = node.value(0).rank();
  if (node.is_shape_arithmetic() && rank == 1) {
    SymInts all;
    for (std::size_t k = 0; k < node.input_count(); ++k) {
      const SymInts part = *node.value(k).ints();
      all.insert(all.end(), part.begin(), part.end());
    }
    return {Value::of_ints(std::move(all), false, node.value(0).dtype())};
  }
  const std::int64_t fallback = node.opset() < 4 ? 1 : 0;
  const Tensor joined = concat(node.tensors(), node.axis(node.integer("axis", fallback), rank));
  if (auto parts = parts_of(node)) return {Value::of_parts(joined, std::move(*parts))};
  return {with_reals(joined, node.values())};
}

/// Parts of a known vector; nothing where they are not all of it, which split says of tensors.
std::optional<Outputs> split_ints(const Value& x, const SymInts& sizes) {
  if (!x.is_shape_like() || x.rank() != 1) return {};
  const SymInts ints = *x.ints();
  Outputs parts;
  std::size_t begin = 0;
  for (const SymInt& size : sizes) {
    if (size.is_symbolic() || size.value() < 0) return {};
    const auto count = static_cast<std::size_t>(size.value());
    if (count > ints.size() - begin) return {};
    const auto from = ints.begin() + static_cast<std::ptrdiff_t>(begin);
    parts.push_back(Value::of_ints({from, from + size.value()}, false, x.dtype()));
    begin += count;
  }
  if (begin != ints.size()) return {};
  return parts;
}

Outputs convert_split(const Node& node) {
  const Value& value = node.value(0);
  const std::int64_t axis = node.axis(node.integer("axis", 0), value.rank());
  SymInts sizes;
  if (node.has(1)) {
    sizes = node.known(1, "split");
  } else if (node.has_attr("split")) {
    for (const std::int64_t size : node.integers("split")) sizes.push_back(size);
  } else {
    const auto count = static_cast<std::int64_t>(node.output_count());
    if (count == 0) node.malformed("outputs", "one or more", "none");
    const SymInt size = value.shape()[static_cast<std::size_t>(axis)];
    const SymInt part = (size + (count - 1)) / count;
    for (std::int64_t k = 0; k + 1 < count; ++k) sizes.push_back(part);
    sizes.push_back(size - part * (count - 1));
  }
  if (auto parts = split_ints(value, sizes)) return *parts;
  Outputs outputs;
  for (Tensor& part : split(value.tensor(), std::move(sizes), axis))
    outputs.push_back(std::move(part));
  return outputs;
}

/// `x` without what negative pads take away, which are 0 then: what is left is mirrored or repeated.
Tensor cropped(Tensor x, SymInts& low, SymInts& high) {
  const auto take = [](SymInt& pad) {
    if (pad.is_symbolic() || pad.value() >= 0) return SymInt(0);
    return SymInt(0) - std::exchange(pad, SymInt(0));
  };
  for (std::size_t k = 0; k < low.size(); ++k) {
    const SymInt first = take(low[k]);
    const SymInt last = take(high[k]);
    const auto axis = static_cast<std::int64_t>(k);
    if (first != 0 || last != 0) x = slice(x, axis, first, x.size(axis) - last);
  }
  return x;
}

Outputs convert_pad(const Node& node) {
  const Tensor x = node.tensor(0);
  SymInts pads;
  if (node.opset() < 11) {
    for (const std::int64_t count : node.integers(node.has_attr("pads") ? "pads" : "paddings"))
      pads.push_back(count);
  } else {
    pads = node.known(1, "pads");
  }
  Ints axes = range_of(0, x.rank());
  if (node.has(3)) axes = node.axes(node.known_numbers(3, "axes"), x.rank());
  if (pads.size() != 2 * axes.size())
    node.malformed("pads", std::to_string(2 * axes.size()) + " numbers",
                   std::to_string(pads.size()));
  SymInts low(static_cast<std::size_t>(x.rank()), SymInt(0));
  SymInts high = low;
  for (std::size_t k = 0; k < axes.size(); ++k) {
    low[static_cast<std::size_t>(axes[k])] = pads[k];
    high[static_cast<std::size_t>(axes[k])] = pads[axes.size() + k];
  }
  Tensor value = node.opset() >= 11 ? node.optional(2) : Tensor();
  if (node.opset() < 11) value = Tensor::scalar(x.dtype(), node.number("value", 0));
  if (value.defined() && value.rank() != 0) value = reshape(value, {});
  const std::string mode = node.string("mode", "constant");
  const Tensor kept = mode == "constant" ? x : cropped(x, low, high);
  OpAttrs attrs{{"low", low}, {"high", high}, {"mode", mode}};
  return {one("pad", {kept, value}, std::move(attrs))};
}

/// Sizes of some dimensions: cut at both ends, or with zeros there, one more at the high end where they are odd.
Outputs center_crop_pad(const Node& node) {
  Tensor x = node.tensor(0);
  const SymInts wanted = node.known(1, "shape");
  const Ints axes = node.axes(node.integers("axes", range_of(0, x.rank())), x.rank());
  if (axes.size() != wanted.size())
    node.malformed("shape", std::to_string(axes.size()) + " sizes", listed(wanted));
  SymInts low(static_cast<std::size_t>(x.rank()), SymInt(0));
  SymInts high = low;
  for (std::size_t k = 0; k < axes.size(); ++k) {
    const std::int64_t axis = axes[k];
    if (!wanted[k].is_symbolic() && wanted[k].value() < 0)
      node.malformed("shape", "sizes of at least 0", listed(wanted));
    const SymInt missing = wanted[k] - x.size(axis);
    if (missing < 0) {
      const SymInt begin = (x.size(axis) - wanted[k]) / 2;
      x = slice(x, axis, begin, begin + wanted[k]);
    } else {
      low[static_cast<std::size_t>(axis)] = missing / 2;
      high[static_cast<std::size_t>(axis)] = missing - missing / 2;
    }
  }
  return {pad(x, low, high, Tensor::scalar_int(x.dtype(), 0))};
}

/// The size of the blocks, of which as many elements go into channels.
std::int64_t block_of(const Node& node) {
  constexpr std::int64_t kLargestBlock = 1 << 24;
  const std::int64_t block = node.integer("blocksize", 1);
  if (block < 1 || block > kLargestBlock)
    node.malformed("blocksize", "1 to 2^24", std::to_string(block));
  return block;
}

Outputs depth_to_space(const Node& node) {
  const Tensor x = node.tensor(0);
  const std::int64_t block = block_of(node);
  const SymInt channels = x.size(1) / (block * block);
  const bool column_first = node.string("mode", "DCR") == "CRD";
  const SymInts split = column_first
                            ? SymInts{x.size(0), channels, block, block, x.size(2), x.size(3)}
                            : SymInts{x.size(0), block, block, channels, x.size(2), x.size(3)};
  const Ints perm = column_first ? Ints{0, 1, 4, 2, 5, 3} : Ints{0, 3, 4, 1, 5, 2};
  return {reshape(permute(reshape(x, split), perm),
                  {x.size(0), channels, x.size(2) * block, x.size(3) * block})};
}

Outputs space_to_depth(const Node& node) {
  const Tensor x = node.tensor(0);
  const std::int64_t block = block_of(node);
  const SymInt height = x.size(2) / block;
  const SymInt width = x.size(3) / block;
  const std::string mode = node.string("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") node.malformed("mode", "DCR or CRD", mode);
  const Tensor split = reshape(x, {x.size(0), x.size(1), height, block, width, block});
  const Ints perm = mode == "CRD" ? Ints{0, 1, 3, 5, 2, 4} : Ints{0, 3, 5, 1, 2, 4};
  return {reshape(permute(split, perm), {x.size(0), x.size(1) * (block * block), height, width})};
}

}  // namespace

std::span<const Converter> shape_converters() {
  static constexpr Converter kConverters[] = {
      {"CenterCropPad", center_crop_pad},
      {"Concat", convert_concat, {}, false, Texts::Moves},
      {"DepthToSpace", depth_to_space},
      {"Expand", convert_expand, {}, false, Texts::Moves},
      {"Flatten", flatten, {}, false, Texts::Moves},
      {"Pad", convert_pad},
      {"Reshape", convert_reshape, {}, false, Texts::Moves},
      {"Shape", shape_of, {}, false, Texts::Reads},
      {"Size", size_of, {}, false, Texts::Reads},
      {"SpaceToDepth", space_to_depth},
      {"Split", convert_split, {}, false, Texts::Moves},
      {"Squeeze", convert_squeeze, {}, false, Texts::Moves},
      {"Tile", tile, {}, false, Texts::Moves},
      {"Transpose", convert_transpose, {}, false, Texts::Moves},
      {"Unsqueeze", convert_unsqueeze, {}, false, Texts::Moves},
  };
  return kConverters;
}

}  // namespace heddle::onnx
