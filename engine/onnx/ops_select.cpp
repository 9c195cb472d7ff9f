// Ops that keep as many elements as the data say.

#include <vector>

#include "engine/onnx/converters.h"
#include "heddle/control_flow.h"
#include "heddle/custom_op.h"

namespace heddle::onnx {

namespace {

/// Row-major positions of the elements that are not 0, by dimension. A scalar counts as a vector of one element.
Tensor known_nonzero(const Tensor& x) {
  const std::vector<double> values = x.to_doubles();
  const Ints sizes = x.rank() == 0 ? Ints{1} : Ints(x.sizes().begin(), x.sizes().end());
  std::vector<std::vector<std::int64_t>> rows(sizes.size());
  std::int64_t count = 0;
  for (std::size_t k = 0; k < values.size(); ++k) {
    if (values[k] == 0) continue;
    ++count;
    auto left = static_cast<std::int64_t>(k);
    for (std::size_t d = rows.size(); d-- > 0;) {
      rows[d].push_back(left % sizes[d]);
      left /= sizes[d];
    }
  }
  std::vector<std::int64_t> all;
  for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
  return Tensor::of(std::span<const std::int64_t>(all),
                    {static_cast<std::int64_t>(sizes.size()), count});
}

Outputs convert_nonzero(const Node& node) {
  const Value& x = node.value(0);
  if (const auto known = x.concrete()) return {known_nonzero(*known)};
  return {nonzero(x.rank() == 0 ? reshape(x.tensor(), {1}) : x.tensor())};
}

/// The elements where a condition holds, along an axis or of all elements in order.
Outputs convert_compress(const Node& node) {
  Tensor x = node.tensor(0);
  std::int64_t axis = 0;
  if (node.has_attr("axis"))
    axis = node.axis(node.integer("axis", 0), x.rank());
  else
    x = reshape(x, {-1});
  const auto known = node.value(1).concrete();
  if (!known) return {compress(x, node.tensor(1), axis)};
  const Tensor kept = known_nonzero(*known);
  return {gather(x, reshape(kept, {-1}), axis)};
}

/// The first `count` rows of `x`.
Tensor first_rows(const Tensor& x, const Tensor& count) {
  return gather(x, iota({as_size(count)}), 0);
}

CallArg scalar_or_none(const Node& node, std::size_t k) {
  return node.has(k) ? CallArg(reshape(node.tensor(k), {})) : CallArg(nullptr);
}

Outputs non_max_suppression(const Node& node) {
  const Tensor boxes = node.tensor(0);
  const Tensor scores = node.tensor(1);
  if (scores.rank() != 3)
    node.malformed("scores", "three dimensions", std::to_string(scores.rank()));
  SymInt most = node.has(2) ? scores.size(2) : SymInt(0);
  const auto given = node.has(2) ? node.value(2).ints() : std::nullopt;
  if (given && given->size() == 1) most = min(most, max(given->front(), 0));
  const CallArg arguments[] = {boxes,
                               scores,
                               scalar_or_none(node, 2),
                               scalar_or_none(node, 3),
                               scalar_or_none(node, 4),
                               most,
                               node.integer("center_point_box", 0) != 0};
  const std::vector<Tensor> kept = call("heddle::non_max_suppression", arguments);
  return {first_rows(kept[0], kept[1])};
}

/// The distinct elements of a vector, or rows of a matrix: what Unique gives.
struct Distinct {
  Tensor values, firsts, inverse, counts;
};

std::pair<Tensor, Tensor> sorted(const Tensor& x) {
  const Tensor operands[] = {x};
  const std::vector<Tensor> results = apply("sort", operands, {{"axis", std::int64_t{0}}});
  return {results[0], results[1]};
}

/// Rows of a matrix by their first numbers, equal ones by the next: sorted by one column after the other, the last first.
Tensor order_of_rows(const Tensor& x) {
  const auto step = [](const Tensor& order, const Tensor& column) {
    return std::pair(gather(order, sorted(gather(column, order)).second), std::tuple<>());
  };
  return scan(iota({x.size(0)}), transpose(x, 0, 1), step, {.reverse = true}).first;
}

Distinct distinct_of(const Tensor& x) {
  const Tensor from = x.rank() == 1 ? sorted(x).second : order_of_rows(x);
  const Tensor values = gather(x, from);
  const Tensor at = iota({x.size(0)});
  Tensor differs = not_equal(values, gather(values, maximum(at - 1, 0)));
  if (x.rank() == 2) differs = any(differs, {1});
  const Tensor is_first = logical_or(equal(at, 0), differs);
  const Tensor starts = reshape(nonzero(is_first), {-1});
  const Tensor number = cumsum(cast(is_first, i64), 0) - 1;
  const SymInt kept = starts.size(0);
  const Tensor last = size_tensor(kept - 1);
  const Tensor rank = iota({kept});
  const Tensor next = gather(starts, minimum(rank + 1, last));
  const Tensor ends = where(equal(rank, last), size_tensor(x.size(0)), next);
  return {gather(values, starts), gather(from, starts),
          one("scatter_elements", {at, from, number}, {{"axis", std::int64_t{0}}}), ends - starts};
}

/// In the order in which the elements come first.
Distinct by_first(const Distinct& distinct) {
  const Tensor order = sorted(distinct.firsts).second;
  const Tensor rank =
      one("scatter_elements", {order, order, iota({order.size(0)})}, {{"axis", std::int64_t{0}}});
  return {gather(distinct.values, order), gather(distinct.firsts, order),
          gather(rank, distinct.inverse), gather(distinct.counts, order)};
}

Outputs unique(const Node& node) {
  const Tensor x = node.tensor(0);
  Ints order = range_of(0, x.rank());
  const bool of_slices = node.has_attr("axis");
  if (of_slices)
    std::swap(order[0],
              order[static_cast<std::size_t>(node.axis(node.integer("axis", 0), x.rank()))]);
  const Tensor turned = of_slices ? permute(x, order) : reshape(x, {-1});
  SymInts sizes = turned.shape();
  const bool has_rows = sizes.size() > 1;
  const Tensor rows =
      has_rows ? reshape(turned, {sizes[0], product(std::span(sizes).subspan(1))}) : turned;
  Distinct distinct = distinct_of(x.dtype() == boolean ? cast(rows, u8) : rows);
  if (node.integer("sorted", 1) == 0) distinct = by_first(distinct);
  sizes[0] = distinct.values.size(0);
  Tensor values = cast(distinct.values, x.dtype());
  if (has_rows) values = permute(reshape(values, sizes), order);
  return {values, distinct.firsts, distinct.inverse, distinct.counts};
}

}  // namespace

std::span<const Converter> select_converters() {
  static constexpr Converter kConverters[] = {
      {"Compress", convert_compress},
      {"NonMaxSuppression", non_max_suppression},
      {"NonZero", convert_nonzero},
      {"Unique", unique},
  };
  return kConverters;
}

}  // namespace heddle::onnx
