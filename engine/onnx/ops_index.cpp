// Gather, scatter and what is made of them.

#include <algorithm>

#include "engine/onnx/converters.h"
#include "heddle/frontend.h"

namespace heddle::onnx {

namespace {

Outputs convert_gather(const Node& node) {
  const Value& x = node.value(0);
  const std::int64_t axis = node.axis(node.integer("axis", 0), x.rank());
  const bool picks_ints = x.is_shape_like() && x.rank() == 1;
  if (const auto indices = picks_ints ? node.value(1).ints() : std::nullopt) {
    const SymInts ints = *x.ints();
    SymInts picked;
    for (const SymInt& index : *indices) {
      const std::int64_t at = node.axis(index.value(), static_cast<std::int64_t>(ints.size()));
      picked.push_back(ints[static_cast<std::size_t>(at)]);
    }
    if (node.value(1).rank() <= 1)
      return {Value::of_ints(std::move(picked), node.value(1).rank() == 0, x.dtype())};
  }
  return {gather(x.tensor(), node.tensor(1), axis)};
}

Outputs gather_elements(const Node& node) {
  const Tensor x = node.tensor(0);
  return {one("gather_elements", {x, node.tensor(1)},
              {{"axis", node.axis(node.integer("axis", 0), x.rank())}})};
}

Outputs gather_nd(const Node& node) {
  return {one("gather_nd", {node.tensor(0), node.tensor(1)},
              {{"batch_dims", node.integer("batch_dims", 0)}})};
}

Outputs scatter_elements(const Node& node) {
  const Tensor x = node.tensor(0);
  return {one("scatter_elements", {x, node.tensor(1), node.tensor(2)},
              {{"axis", node.axis(node.integer("axis", 0), x.rank())},
               {"reduction", node.string("reduction", "none")}})};
}

Outputs scatter_nd(const Node& node) {
  return {one("scatter_nd", {node.tensor(0), node.tensor(1), node.tensor(2)},
              {{"reduction", node.string("reduction", "none")}})};
}

/// A depth given as a real number.
std::int64_t whole(const Node& node, double depth) {
  constexpr double kLargest = 1LL << 48;
  if (!(depth >= 0 && depth <= kLargest))
    node.malformed("depth", "0 to 2^48", std::to_string(depth));
  return static_cast<std::int64_t>(depth);
}

/// values[1] where the index along the new axis is the one named, values[0] elsewhere. Indices out of
/// [-depth, depth) name none.
Outputs one_hot(const Node& node) {
  Tensor indices = cast(node.tensor(0), i64);
  SymInt depth;
  if (is_floating(node.value(1).dtype())) {
    depth = whole(node, node.known_real(1, "depth"));
  } else {
    depth = node.known_size(1, "depth");
  }
  const Tensor values = node.tensor(2);
  const std::int64_t axis = node.axis(node.integer("axis", -1), indices.rank() + 1);
  indices = where(less(indices, 0), indices + size_tensor(depth), indices);
  indices = unsqueeze(indices, axis);
  SymInts sizes = indices.shape();
  sizes[static_cast<std::size_t>(axis)] = depth;
  const Tensor named = equal(iota(sizes, axis), indices);
  const Tensor off = reshape(slice(values, 0, 0, 1), {});
  const Tensor on = reshape(slice(values, 0, 1, 2), {});
  return {where(named, on, off)};
}

/// Elements before a sequence's length in opposite order, the rest where they are. A length below 0 or above the size
/// names an element that is not there, which is an error.
Outputs reverse_sequence(const Node& node) {
  const Tensor x = node.tensor(0);
  const std::int64_t time = node.axis(node.integer("time_axis", 0), x.rank());
  const std::int64_t batch = node.axis(node.integer("batch_axis", 1), x.rank());
  const SymInts sizes = x.shape();
  SymInts length_sizes(sizes.size(), SymInt(1));
  length_sizes[static_cast<std::size_t>(batch)] = sizes[static_cast<std::size_t>(batch)];
  const Tensor lengths = reshape(cast(node.tensor(1), i64), length_sizes);
  const Tensor at = iota(sizes, time);
  const Tensor reversed = where(less(at, lengths), lengths - 1 - at, at);
  const Tensor nowhere = lengths - size_tensor(sizes[static_cast<std::size_t>(time)]);
  const Tensor source = where(less(lengths, 0), nowhere, reversed);
  return {one("gather_elements", {x, source}, {{"axis", time}})};
}

}  // namespace

std::span<const Converter> index_converters() {
  static constexpr Converter kConverters[] = {
      {"Gather", convert_gather, {}, false, Texts::Moves},
      {"GatherElements", gather_elements, {}, false, Texts::Moves},
      {"GatherND", gather_nd, {}, false, Texts::Moves},
      {"OneHot", one_hot},
      {"ReverseSequence", reverse_sequence},
      {"Scatter", scatter_elements},
      {"ScatterElements", scatter_elements},
      {"ScatterND", scatter_nd},
  };
  return kConverters;
}

}  // namespace heddle::onnx
