#include "ir/passes/cse.h"

#include <algorithm>
#include <unordered_map>

#include "base/hash.h"
#include "ir/analysis/regions.h"
#include "ir/analysis/unbacked.h"
#include "ir/op.h"
#include "ir/passes/visible.h"

namespace heddle::ir {

namespace {

std::uint64_t key_of(const Node& node, std::span<const Value> operands) {
  std::uint64_t key = base::hash64(node.op_name());
  for (const Value& operand : operands) {
    key = base::combine(key, reinterpret_cast<std::uintptr_t>(operand.node));
    key = base::combine(key, operand.index);
  }
  // Order and marks keep equal nodes apart: a model has many that differ in nothing else.
  for (const Value& first : node.after())
    key = base::combine(key, reinterpret_cast<std::uintptr_t>(first.node));
  for (const auto& [name, annotation] : node.annotations()) {
    key = base::combine(key, base::hash64(name));
    if (const auto* text = std::get_if<std::string>(&annotation.value))
      key = base::combine(key, base::hash64(*text));
    if (const auto* number = std::get_if<std::int64_t>(&annotation.value))
      key = base::combine(key, static_cast<std::uint64_t>(*number));
  }
  return base::combine(key, hash(node.attrs()));
}

struct Seen {
  const Node* original;
  std::vector<Value> operands;
};

}  // namespace

Graph cse(const Graph& graph) {
  const std::set<StorageId> visible = visible_storages(graph);
  std::unordered_multimap<std::uint64_t, Seen> seen;
  return rewrite(
      graph, [&](Rewriter& rewriter, const NodePtr& node) -> std::optional<std::vector<Value>> {
        if (!is_pure(*node) || !unbacked_defined(*node).empty()) return {};
        for (const TensorMeta& meta : node->outputs())
          if (visible.contains(meta.storage)) return {};
        const std::vector<Value> operands = rewriter.map(node->inputs());
        const std::uint64_t key = key_of(*node, operands);
        const auto [first, last] = seen.equal_range(key);
        for (auto it = first; it != last; ++it) {
          const Node& other = *it->second.original;
          const bool same = &other.op() == &node->op() && it->second.operands == operands &&
                            equal(other.attrs(), node->attrs()) &&
                            other.annotations() == node->annotations() &&
                            std::equal(other.after().begin(), other.after().end(),
                                       node->after().begin(), node->after().end());
          if (!same) continue;
          std::vector<Value> values;
          for (std::uint32_t k = 0; k < node->outputs().size(); ++k)
            values.push_back(rewriter.map(other.value(k)));
          return values;
        }
        seen.emplace(key, Seen{node.get(), operands});
        return {};
      });
}

}  // namespace heddle::ir
