// Sequences of tensors: lists while tracing, so that their length and the positions in them are known then.

#include <algorithm>

#include "engine/onnx/converters.h"

namespace heddle::onnx {

namespace {

using Elements = std::vector<Value>;

/// Of input 0; the others are tensors.
const Elements& elements_of(const Node& node) {
  for (std::size_t k = 0; k < node.input_count(); ++k)
    if (node.has(k) && node.value(k).is_sequence() != (k == 0))
      node.malformed("input " + std::to_string(k), k == 0 ? "a sequence" : "a tensor",
                     k == 0 ? "a tensor" : "a sequence");
  return node.value(0).elements();
}

/// Input k, a position in [0, count): negative ones count from the end.
std::size_t place_in(const Node& node, std::size_t k, std::size_t count, std::size_t length) {
  const std::int64_t given = node.known_number(k, "position");
  const std::int64_t at = given < 0 ? given + static_cast<std::int64_t>(length) : given;
  if (at < 0 || at >= static_cast<std::int64_t>(count))
    node.malformed("position", "one of a sequence of " + std::to_string(length),
                   std::to_string(given));
  return static_cast<std::size_t>(at);
}

Outputs sequence_of(const Node& node) {
  return {Value::of_sequence({node.values().begin(), node.values().end()})};
}

Outputs empty_sequence(const Node&) { return {Value::of_sequence({})}; }

Outputs sequence_at(const Node& node) {
  const Elements& all = elements_of(node);
  return {all[place_in(node, 1, all.size(), all.size())]};
}

Outputs sequence_length(const Node& node) {
  return {Value::of_ints({static_cast<std::int64_t>(elements_of(node).size())}, true)};
}

Outputs inserted(const Node& node) {
  Elements all = elements_of(node);
  const std::size_t position =
      node.has(2) ? place_in(node, 2, all.size() + 1, all.size()) : all.size();
  all.insert(all.begin() + static_cast<std::ptrdiff_t>(position), node.value(1));
  return {Value::of_sequence(std::move(all))};
}

Outputs erased(const Node& node) {
  Elements all = elements_of(node);
  if (all.empty()) node.malformed("input 0", "a sequence with elements", "an empty one");
  const std::size_t position =
      node.has(1) ? place_in(node, 1, all.size(), all.size()) : all.size() - 1;
  all.erase(all.begin() + static_cast<std::ptrdiff_t>(position));
  return {Value::of_sequence(std::move(all))};
}

/// Sizes of the parts of a dimension: given, or equal ones of which the last may be smaller.
SymInts parts_of(const Node& node, const SymInt& size) {
  if (node.value(1).rank() != 0) return node.known(1, "split");
  const std::int64_t part = node.known_number(1, "split");
  if (part < 1) node.malformed("split", "at least 1", std::to_string(part));
  SymInts parts;
  for (std::int64_t left = size.value(); left > 0; left -= part)
    parts.push_back(std::min(part, left));
  return parts;
}

Outputs split_to_sequence(const Node& node) {
  const Tensor x = node.tensor(0);
  const std::int64_t axis = node.axis(node.integer("axis", 0), x.rank());
  const bool by_one = !node.has(1);
  const bool keeps = !by_one || node.integer("keepdims", 1) != 0;
  const SymInts parts = by_one ? SymInts(static_cast<std::size_t>(x.size(axis).value()), 1)
                               : parts_of(node, x.size(axis));
  Elements all;
  SymInt first = 0;
  for (const SymInt& part : parts) {
    const Tensor piece = slice(x, axis, first, first + part);
    all.emplace_back(keeps ? piece : squeeze(piece, axis));
    first = first + part;
  }
  return {Value::of_sequence(std::move(all))};
}

Outputs concat_from_sequence(const Node& node) {
  const Elements& all = elements_of(node);
  if (all.empty()) node.malformed("input 0", "a sequence with elements", "an empty one");
  const bool stacks = node.integer("new_axis", 0) != 0;
  const std::int64_t rank = all[0].rank() + (stacks ? 1 : 0);
  const std::int64_t axis = node.axis(node.integer("axis", 0), rank);
  std::vector<Tensor> parts;
  for (const Value& element : all)
    parts.push_back(stacks ? unsqueeze(element.tensor(), axis) : element.tensor());
  return {parts.size() == 1 ? parts[0] : concat(parts, axis)};
}

}  // namespace

std::span<const Converter> sequence_converters() {
  static constexpr Converter kConverters[] = {
      {"ConcatFromSequence", concat_from_sequence, {}, true},
      {"SequenceAt", sequence_at, {}, true},
      {"SequenceConstruct", sequence_of},
      {"SequenceEmpty", empty_sequence},
      {"SequenceErase", erased, {}, true},
      {"SequenceInsert", inserted, {}, true},
      {"SequenceLength", sequence_length, {}, true},
      {"SplitToSequence", split_to_sequence},
  };
  return kConverters;
}

}  // namespace heddle::onnx
