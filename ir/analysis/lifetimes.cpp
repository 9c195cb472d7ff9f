#include "ir/analysis/lifetimes.h"

#include <algorithm>

#include "base/check.h"

namespace heddle::ir {

std::map<StorageId, Lifetime> lifetimes_of(const Graph& graph,
                                           std::span<const std::uint32_t> order) {
  HD_CHECK(order.empty() || order.size() == graph.nodes().size());
  std::map<StorageId, Lifetime> lifetimes;
  const auto touch = [&](StorageId storage, std::uint32_t place) {
    Lifetime& lifetime = lifetimes.try_emplace(storage, Lifetime{place, place}).first->second;
    lifetime.last = std::max(lifetime.last, place);
  };
  for (std::uint32_t place = 0; place < graph.nodes().size(); ++place) {
    const Node& node = *graph.nodes()[order.empty() ? place : order[place]];
    for (const Value& input : node.inputs())
      if (input) touch(input.meta().storage, place);
    for (const TensorMeta& meta : node.outputs()) touch(meta.storage, place);
  }
  const auto keep = [&](const Value& value) { lifetimes[value.meta().storage].last = kForever; };
  for (const Value& input : graph.inputs())
    if (!is_donated(input)) keep(input);
  for (const Value& output : graph.outputs()) keep(output);
  for (const Graph::WriteBack& write : graph.write_backs()) keep(write.source);
  return lifetimes;
}

}  // namespace heddle::ir
