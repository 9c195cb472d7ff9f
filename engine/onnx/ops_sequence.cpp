// Sequences of tensors: lists while tracing, so that their length and the positions in them are known then; or slices of one tensor, in
// any number.

#include <algorithm>

#include "engine/onnx/converters.h"

namespace heddle::onnx {

namespace {

using Elements = std::vector<Value>;

/// Longer ones are slices of one tensor.
constexpr std::int64_t kLongestList = 64;

/// Input 0; the others are tensors.
const Value& sequence_of_node(const Node& node) {
  for (std::size_t k = 0; k < node.input_count(); ++k)
    if (node.has(k) && node.value(k).is_sequence() != (k == 0))
      node.malformed("input " + std::to_string(k), k == 0 ? "a sequence" : "a tensor",
                     k == 0 ? "a tensor" : "a sequence");
  return node.value(0);
}

/// The position in input k if it is known.
std::optional<SymInt> known_position(const Node& node, std::size_t k) {
  const auto ints = node.value(k).ints();
  return ints && ints->size() == 1 ? std::optional((*ints)[0]) : std::nullopt;
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

/// The same in a sequence of slices, where the run tells whether there is such.
SymInt slice_in(const Node& node, std::size_t k, const Tensor& rows) {
  const std::int64_t given = node.known_number(k, "position");
  return given < 0 ? rows.size(0) + given : SymInt(given);
}

/// `rows` with those from `begin` up to `end` replaced by `by`, where it is defined.
Value replaced(const Tensor& rows, const SymInt& begin, const SymInt& end, const Tensor& by) {
  std::vector<Tensor> parts{slice(rows, 0, 0, begin)};
  if (by.defined()) parts.push_back(unsqueeze(by, 0));
  parts.push_back(slice(rows, 0, end, rows.size(0)));
  return Value::of_rows(concat(parts, 0));
}

Outputs sequence_of(const Node& node) {
  return {Value::of_sequence({node.values().begin(), node.values().end()})};
}

Outputs empty_sequence(const Node&) { return {Value::of_sequence({})}; }

/// A slice at a position that the run tells: an IndexError there where there is none.
Tensor slice_at(const Node& node, const Tensor& rows) {
  if (const std::optional<SymInt> known = known_position(node, 1)) {
    const bool from_end = !known->is_symbolic() && known->value() < 0;
    return gather(rows, size_tensor(from_end ? rows.size(0) + *known : *known), 0);
  }
  const Tensor at = cast(reshape(node.tensor(1), SymInts()), i64);
  return gather(rows, where(less(at, 0), at + size_tensor(rows.size(0)), at), 0);
}

Outputs sequence_at(const Node& node) {
  const Value& all = sequence_of_node(node);
  if (!all.is_listed()) return {slice_at(node, all.rows())};
  const Elements& list = all.elements();
  const std::optional<SymInt> known = known_position(node, 1);
  if (!known && list.size() > 1) return {slice_at(node, all.rows())};
  return {list[place_in(node, 1, list.size(), list.size())]};
}

Outputs sequence_length(const Node& node) {
  const Value& all = sequence_of_node(node);
  return {Value::of_ints({all.is_listed() ? SymInt(static_cast<std::int64_t>(all.elements().size()))
                                          : all.rows().size(0)},
                         true)};
}

Outputs inserted(const Node& node) {
  const Value& old = sequence_of_node(node);
  if (!old.is_listed()) {
    const Tensor rows = old.rows();
    if (!node.has(2)) return {Value::of_rows(concat({rows, unsqueeze(node.tensor(1), 0)}, 0))};
    const SymInt at = slice_in(node, 2, rows);
    return {replaced(rows, at, at, node.tensor(1))};
  }
  Elements all = old.elements();
  const std::size_t position =
      node.has(2) ? place_in(node, 2, all.size() + 1, all.size()) : all.size();
  all.insert(all.begin() + static_cast<std::ptrdiff_t>(position), node.value(1));
  return {Value::of_sequence(std::move(all))};
}

Outputs erased(const Node& node) {
  const Value& old = sequence_of_node(node);
  if (!old.is_listed()) {
    const Tensor rows = old.rows();
    const SymInt at = node.has(1) ? slice_in(node, 1, rows) : rows.size(0) - 1;
    return {replaced(rows, at, at + 1, {})};
  }
  Elements all = old.elements();
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
  if (const SymInt& size = x.size(axis);
      by_one && (size.is_symbolic() || size.value() > kLongestList)) {
    const Tensor rows = moved_axis(x, axis, 0);
    return {Value::of_rows(keeps ? unsqueeze(rows, axis + 1) : rows)};
  }
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

/// The slices of `rows` side by side along `axis` of theirs.
Tensor joined(const Tensor& rows, std::int64_t axis) {
  const Tensor moved = moved_axis(rows, 0, axis);
  SymInts sizes = moved.shape();
  const auto at = sizes.begin() + axis;
  at[1] = at[0] * at[1];
  sizes.erase(at);
  return reshape(moved, std::move(sizes));
}

Outputs concat_from_sequence(const Node& node) {
  const Value& sequence = sequence_of_node(node);
  const bool stacks = node.integer("new_axis", 0) != 0;
  const auto axis_of = [&](std::int64_t rank) {
    return node.axis(node.integer("axis", 0), rank + (stacks ? 1 : 0));
  };
  if (!sequence.is_listed()) {
    const Tensor rows = sequence.rows();
    const std::int64_t axis = axis_of(rows.rank() - 1);
    return {stacks ? moved_axis(rows, 0, axis) : joined(rows, axis)};
  }
  const Elements& all = sequence.elements();
  if (all.empty()) node.malformed("input 0", "a sequence with elements", "an empty one");
  const std::int64_t axis = axis_of(all[0].rank());
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
