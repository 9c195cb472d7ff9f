#include "ir/analysis/users.h"

#include <algorithm>

namespace heddle::ir {

std::span<const Use> Users::of(const Value& value) const {
  const auto found = uses_.find(value);
  return found == uses_.end() ? std::span<const Use>() : std::span<const Use>(found->second);
}

bool Users::escapes(const Value& value) const { return escapes_.contains(value); }

bool Users::needed(const Value& value) const {
  return escapes(value) ||
         std::ranges::any_of(of(value), [](const Use& use) { return !use.order; });
}

Users users_of(const Graph& graph) {
  Users users;
  for (const NodePtr& node : graph.nodes()) {
    for (std::uint32_t k = 0; k < node->inputs().size(); ++k)
      if (node->input(k)) users.uses_[node->input(k)].push_back({node.get(), k, false});
    for (std::uint32_t k = 0; k < node->after().size(); ++k)
      users.uses_[node->after()[k]].push_back({node.get(), k, true});
  }
  for (const Value& output : graph.outputs()) users.escapes_[output] = true;
  for (const Graph::WriteBack& write : graph.write_backs()) users.escapes_[write.source] = true;
  return users;
}

}  // namespace heddle::ir
