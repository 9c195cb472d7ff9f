#include "jit/lower/live_graph.h"

#include <algorithm>
#include <utility>

#include "ir/analysis/regions.h"
#include "ir/analysis/unbacked.h"
#include "ir/custom_op.h"
#include "jit/lower/reduction_parts.h"

namespace heddle::jit {
namespace {

/// Literals with more elements than this are not searched for equal elements.
constexpr std::int64_t kMaxSplatSearch = 4096;

bool has_effects(const Node& node) {
  const bool may = node.op().custom != nullptr || node.op().lowering.region;
  return may && !ir::is_pure(node);
}

/// Whether the caller sees what `node` overwrites.
bool overwrites_argument(const ir::Graph& graph, const Node& node) {
  if (!ir::overwrites_any(node)) return false;
  for (const ir::TensorMeta& meta : node.outputs())
    for (const Value& input : graph.inputs())
      if (input.meta().storage == meta.storage) return true;
  return false;
}

}  // namespace

LiveGraph::LiveGraph(const ir::Graph& graph, const LowerOptions& options)
    : graph_(graph), options_(options) {
  const auto all = graph.nodes();
  std::unordered_map<const Node*, std::size_t> order;
  for (std::size_t k = 0; k < all.size(); ++k) order.emplace(all[k].get(), k);
  std::vector<bool> live(all.size(), false);
  for (const Value& output : graph.outputs()) live[order.at(output.node)] = true;
  for (const auto& write : graph.write_backs()) {
    live[order.at(write.source.node)] = true;
    live[order.at(write.target.node)] = true;
  }
  for (std::size_t k = 0; k < all.size(); ++k)
    if (has_effects(*all[k]) || overwrites_argument(graph, *all[k])) live[k] = true;
  const ir::SizeMakers makers(graph);
  for (std::size_t k = all.size(); k-- > 0;) {
    if (!live[k]) continue;
    for (const Value& input : all[k]->inputs())
      if (input) live[order.at(input.node)] = true;
    for (const Node* maker : makers.used_by(*all[k])) live[order.at(maker)] = true;
  }
  for (std::size_t k = 0; k < all.size(); ++k) {
    if (!live[k]) continue;
    positions_.emplace(all[k].get(), static_cast<std::uint32_t>(nodes_.size()));
    nodes_.push_back(all[k].get());
    classes_.push_back(classify(*all[k], options));
    relabels_.push_back(classes_.back() == NodeClass::View && relabels(all[k].get()));
  }
  for (const Value& output : graph.outputs()) results_.push_back(output);
  for (const auto& write : graph.write_backs()) results_.push_back(write.source);
}

Value LiveGraph::storage(Value value) const {
  for (;;) {
    if (class_of(value.node) == NodeClass::View && is_relabelling(value.node)) {
      value = value.node->input(0);
      continue;
    }
    const bool custom = value.node->op().custom != nullptr;
    const auto viewed = custom ? ir::viewed_operand(*value.node, value.index) : std::nullopt;
    if (!viewed) return value;
    value = value.node->input(*viewed);
  }
}

Value LiveGraph::viewed(Value value) const {
  while (class_of(value.node) == NodeClass::View) value = value.node->input(0);
  return value;
}

std::vector<LiveGraph::Overwrite> LiveGraph::overwrites() const {
  std::vector<Overwrite> result;
  std::unordered_map<ir::StorageId, std::vector<std::uint32_t>> readers;
  for (std::uint32_t k = 0; k < nodes_.size(); ++k) {
    const Node& node = *nodes_[k];
    for (std::size_t j = 0; j < node.inputs().size(); ++j) {
      if (!node.input(j) || classes_[k] == NodeClass::View) continue;
      auto& list = readers[viewed(node.input(j)).meta().storage];
      if (ir::overwrites(node, j))
        result.push_back({k, std::exchange(list, {})});
      else if (list.empty() || list.back() != k)
        list.push_back(k);
    }
  }
  return result;
}

bool LiveGraph::relabels(const Node* node) const {
  const Value operand = node->input(0);
  // Arguments may have strides; what is relabelled there is not row-major memory.
  const Value base = storage(operand);
  if (is_strided(base)) return false;
  const ir::Dims& from = operand.meta().sizes;
  const ir::Dims& to = node->output(0).sizes;
  base::Facts facts;
  facts.sizes_positive = true;
  if (!same(base::product(from), base::product(to), facts)) return false;
  const Index axes = domain_axes(to, 0, facts);
  const Index mapped = node->op().lowering.view(*node, axes);
  return same(linear_index(mapped, from), linear_index(axes, to), facts);
}

std::vector<std::int64_t> LiveGraph::reduced_axes(const Node* node) const {
  return jit::reduced_axes(*node);
}

std::optional<Splat> splat_of(const Node& node) {
  if (node.op_name() != "const") return std::nullopt;
  const ir::Literal& literal = node.literal("value");
  if (literal.count() == 0 || literal.count() > kMaxSplatSearch) return std::nullopt;
  const bool floating = is_floating(literal.dtype());
  Splat splat;
  if (floating) {
    splat.number = literal.at(0);
  } else {
    splat.integer = literal.at_int(0);
  }
  for (std::int64_t k = 1; k < literal.count(); ++k) {
    // A NaN differs from itself, so a literal of NaNs is left in memory.
    if (floating ? literal.at(k) != splat.number : literal.at_int(k) != splat.integer)
      return std::nullopt;
  }
  return splat;
}

}  // namespace heddle::jit
