// Slice: of what is known while tracing, and with positions that the run computes.

#include <algorithm>
#include <limits>
#include <optional>

#include "engine/onnx/converters.h"
#include "heddle/frontend.h"

namespace heddle::onnx {

namespace {

constexpr std::int64_t kFar = std::int64_t{1} << 31;
constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

/// Position `at` of a dimension of `size` elements, moved into [low, high]. Numbers that stand for "the
/// end" do not enter expressions. Nothing: only the run tells on which side `at` counts from.
std::optional<SymInt> position(const SymInt& at, const SymInt& size, const SymInt& low,
                               const SymInt& high) {
  if (!at.is_symbolic()) {
    if (at.value() >= kFar - 1) return high;
    if (at.value() <= -kFar) return low;
  }
  const auto from_end = detail::less_before_run(at, 0);
  if (!from_end) return {};
  const SymInt from_start = *from_end ? at + size : at;
  // Strict comparisons: x[:1] of one element and of many then hold under the same guard.
  const auto below = detail::less_before_run(from_start, low);
  if (below.value_or(false)) return low;
  const SymInt bounded = below ? from_start : max(from_start, low);
  const auto above = detail::less_before_run(high, bounded);
  if (above.value_or(false)) return high;
  return above ? bounded : min(bounded, high);
}

struct Window {
  SymInts starts;
  SymInts ends;
  Ints axes;
  Ints steps;
};

void check_counts(const Node& node, std::int64_t count, bool ends, const Ints& axes,
                  const Ints& steps) {
  const auto entries = static_cast<std::size_t>(count);
  if (!ends || axes.size() != entries || steps.size() != entries)
    node.malformed("starts, ends, axes and steps", "equally many numbers", std::to_string(count));
}

Window window_of(const Node& node, std::int64_t rank) {
  Window window;
  if (node.opset() < 10) {
    for (const std::int64_t start : node.integers("starts")) window.starts.push_back(start);
    for (const std::int64_t end : node.integers("ends")) window.ends.push_back(end);
    window.axes = node.integers("axes");
  } else {
    window.starts = node.known(1, "starts");
    window.ends = node.known(2, "ends");
    if (node.has(3)) window.axes = node.known_numbers(3, "axes");
    if (node.has(4)) window.steps = node.known_numbers(4, "steps");
  }
  const std::size_t count = window.starts.size();
  if (window.axes.empty()) window.axes = range_of(0, static_cast<std::int64_t>(count));
  if (window.steps.empty()) window.steps.assign(count, 1);
  check_counts(node, static_cast<std::int64_t>(count), window.ends.size() == count, window.axes,
               window.steps);
  window.axes = node.axes(window.axes, rank);
  return window;
}

/// A slice of known integers, with numbers for positions: of a vector, or whole rows of what has more dimensions.
std::optional<Value> slice_ints(const Value& x, const Window& window) {
  const std::optional<KnownInts> known = x.known_ints();
  if (!known || known->sizes.empty() || window.axes != Ints{0}) return {};
  const std::int64_t size = known->sizes[0];
  const std::int64_t step = window.steps[0];
  if (step == 0) return {};
  const std::int64_t low = step > 0 ? 0 : -1;
  const std::int64_t high = step > 0 ? size : size - 1;
  const std::int64_t first = position(window.starts[0], size, low, high)->value();
  const std::int64_t end = position(window.ends[0], size, low, high)->value();
  const std::int64_t span = step > 0 ? end - first : first - end;
  // Counted before it is walked: a step may be as large as a number gets, and rows may be empty.
  const std::int64_t stride = step > 0 ? step : -std::max(step, -kLargest);
  KnownInts result{{}, known->sizes};
  result.sizes[0] = span <= 0 ? 0 : (span - 1) / stride + 1;
  if (known->ints.empty()) return Value::of_known(std::move(result), x.dtype());
  const auto row = static_cast<std::ptrdiff_t>(known->ints.size()) / size;
  for (std::int64_t k = 0; k < result.sizes[0]; ++k) {
    const auto from = known->ints.begin() + (first + k * step) * row;
    result.ints.insert(result.ints.end(), from, from + row);
  }
  return Value::of_known(std::move(result), x.dtype());
}

/// Whether only the run tells the positions, which are no inputs of the graph either.
bool is_late(const Node& node) {
  if (node.opset() < 10) return false;
  const auto late = [&](std::size_t k) {
    return !node.value(k).ints() && node.value(k).input_name().empty();
  };
  return late(1) || late(2);
}

/// Position `at` of a dimension of `size` elements, moved into [low, high].
Tensor late_position(const Tensor& at, const Tensor& size, const Tensor& low, const Tensor& high) {
  return minimum(maximum(where(less(at, 0), at + size, at), low), high);
}

/// The elements from `start` on that lie before `end`, scalars that the run computes.
Tensor late_slice_axis(const Node& node, const Tensor& x, std::int64_t axis, const Tensor& start,
                       const Tensor& end, std::int64_t step) {
  if (step == 0) node.malformed("steps", "steps other than 0", "0");
  const Tensor size = size_tensor(x.size(axis));
  const Tensor low = Tensor::scalar_int(i64, step > 0 ? 0 : -1);
  const Tensor high = step > 0 ? size : size - 1;
  const Tensor first = late_position(start, size, low, high);
  const Tensor span = late_position(end, size, low, high) - first;
  const Tensor count = step == 1 ? span : (span + (step > 0 ? step - 1 : step + 1)) / step;
  const Tensor counted = iota({as_size(maximum(count, 0))});
  return gather(x, (step == 1 ? counted : counted * step) + first, axis);
}

Tensor slice_axis(const Node& node, const Tensor& x, std::int64_t axis, const SymInt& start,
                  const SymInt& end, std::int64_t step) {
  const SymInt size = x.size(axis);
  if (step == 0) node.malformed("steps", "steps other than 0", "0");
  const SymInt low = step > 0 ? 0 : -1;
  const SymInt high = step > 0 ? size : size - 1;
  const auto from = position(start, size, low, high);
  const auto to = position(end, size, low, high);
  if (!from || !to)
    return late_slice_axis(node, x, axis, size_tensor(start), size_tensor(end), step);
  const SymInt first = step > 0 ? *from : high - *from;
  SymInt limit = step > 0 ? *to : high - *to;
  const auto is_empty = detail::less_before_run(limit, first);
  if (!is_empty) limit = max(limit, first);
  if (is_empty.value_or(false)) limit = first;
  const Tensor turned = step > 0 ? x : one("reverse", {x}, {{"axes", Ints{axis}}});
  return slice(turned, axis, first, limit, step > 0 ? step : -std::max(step, -kLargest));
}

Outputs late_slice(const Node& node) {
  Tensor x = node.tensor(0);
  const Tensor starts = cast(node.tensor(1), i64);
  const Tensor ends = cast(node.tensor(2), i64);
  if (starts.rank() != 1 || starts.size(0).is_symbolic())
    node.malformed("starts", "a vector of a known size", listed(starts.shape()));
  const std::int64_t count = starts.size(0).value();
  const Ints axes =
      node.axes(node.has(3) ? node.known_numbers(3, "axes") : range_of(0, count), x.rank());
  const Ints steps =
      node.has(4) ? node.known_numbers(4, "steps") : Ints(static_cast<std::size_t>(count), 1);
  check_counts(node, count, ends.rank() == 1 && ends.size(0) == count, axes, steps);
  for (std::int64_t k = 0; k < count; ++k) {
    const auto at = static_cast<std::size_t>(k);
    const auto number = [&](const Tensor& numbers) {
      return squeeze(slice(numbers, 0, k, k + 1), 0);
    };
    x = late_slice_axis(node, x, axes[at], number(starts), number(ends), steps[at]);
  }
  return {x};
}

Outputs convert_slice(const Node& node) {
  if (is_late(node)) return late_slice(node);
  const Value& value = node.value(0);
  const Window window = window_of(node, value.rank());
  if (const auto ints = slice_ints(value, window)) return {*ints};
  Tensor x = value.tensor();
  for (std::size_t k = 0; k < window.axes.size(); ++k)
    x = slice_axis(node, x, window.axes[k], window.starts[k], window.ends[k], window.steps[k]);
  return {x};
}

}  // namespace

std::span<const Converter> slice_converters() {
  static constexpr Converter kConverters[] = {
      {"Slice", convert_slice, {}, false, Texts::Moves},
  };
  return kConverters;
}

}  // namespace heddle::onnx
