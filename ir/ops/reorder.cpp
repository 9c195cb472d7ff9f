// How calls change when the dimensions of their operands come in another order.
#include <algorithm>

#include "ir/ops/common.h"

namespace heddle::ir::ops {
namespace {

using Perm = std::span<const std::int64_t>;

std::int64_t place_of(std::int64_t axis, Perm perm) {
  const std::int64_t front = from_front(axis, static_cast<std::int64_t>(perm.size()));
  return std::ranges::find(perm, front) - perm.begin();
}

/// Attributes "axis" and "axes" with the new places of what they name.
Attrs moved_axes(const Node& node, Perm perm) {
  Attrs attrs = node.attrs();
  if (const auto axis = attrs.find("axis"); axis != attrs.end())
    axis->second = place_of(std::get<std::int64_t>(axis->second), perm);
  if (const auto axes = attrs.find("axes"); axes != attrs.end()) {
    std::vector<std::int64_t> moved;
    for (const std::int64_t axis : std::get<std::vector<std::int64_t>>(axes->second))
      moved.push_back(place_of(axis, perm));
    std::ranges::sort(moved);
    axes->second = std::move(moved);
  }
  return attrs;
}

/// A list with one entry a dimension, or none.
template <typename T>
void move_entries(std::vector<T>& entries, Perm perm) {
  if (entries.empty()) return;
  std::vector<T> moved;
  for (const std::int64_t axis : perm) moved.push_back(entries[static_cast<std::size_t>(axis)]);
  entries = std::move(moved);
}

std::vector<std::int64_t> listed(Perm perm) { return {perm.begin(), perm.end()}; }

}  // namespace

std::optional<Reordered> reorder_pointwise(const Node& node, Perm perm) {
  return Reordered{node.attrs(), listed(perm)};
}

std::optional<Reordered> reorder_axes(const Node& node, Perm perm) {
  return Reordered{moved_axes(node, perm), listed(perm)};
}

std::optional<Reordered> reorder_reduction(const Node& node, Perm perm) {
  Reordered reordered{moved_axes(node, perm), {}};
  const auto rank = static_cast<std::int64_t>(perm.size());
  std::vector<std::int64_t> reduced;
  if (!node.flag("keepdims"))
    reduced = node.has("axes") ? node.ints("axes") : std::vector{node.integer("axis")};
  for (std::int64_t& axis : reduced) axis = from_front(axis, rank);
  for (const std::int64_t axis : perm) {
    if (std::ranges::find(reduced, axis) != reduced.end()) continue;
    const auto before =
        std::ranges::count_if(reduced, [&](std::int64_t other) { return other < axis; });
    reordered.result.push_back(axis - before);
  }
  return reordered;
}

std::optional<Reordered> reorder_entries(const Node& node, Perm perm) {
  Reordered reordered{node.attrs(), listed(perm)};
  for (auto& [name, attr] : reordered.attrs) {
    if (auto* sizes = std::get_if<Dims>(&attr)) move_entries(*sizes, perm);
    if (auto* numbers = std::get_if<std::vector<double>>(&attr)) move_entries(*numbers, perm);
  }
  return reordered;
}

}  // namespace heddle::ir::ops
