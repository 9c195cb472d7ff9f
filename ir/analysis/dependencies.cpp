#include "ir/analysis/dependencies.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_map>

#include "heddle/error.h"
#include "ir/analysis/collectives.h"
#include "ir/op.h"

namespace heddle::ir {
namespace {

/// Who wrote the current version of a storage and who has read it since.
struct Version {
  std::uint32_t writer = 0;
  std::vector<std::uint32_t> readers;
};

bool mutates(const Node& node, StorageId storage) {
  for (std::uint32_t k = 0; k < node.outputs().size(); ++k) {
    const Alias alias = alias_of(node, k);
    if (alias.kind == Alias::Kind::Mutates && node.output(k).storage == storage) return true;
  }
  return false;
}

std::vector<StorageId> storages_read(const Node& node) {
  std::vector<StorageId> storages;
  for (const Value& input : node.inputs())
    if (input) storages.push_back(input.meta().storage);
  std::ranges::sort(storages);
  storages.erase(std::unique(storages.begin(), storages.end()), storages.end());
  return storages;
}

/// A shortest path from `start` back to itself, in the order in which its nodes would have to run.
std::vector<std::uint32_t> cycle_through(std::uint32_t start, const Dependencies& dependencies) {
  std::vector<std::int64_t> next(dependencies.size(), -1);
  std::queue<std::uint32_t> queue;
  queue.push(start);
  while (!queue.empty()) {
    const std::uint32_t at = queue.front();
    queue.pop();
    for (const Dependency& edge : dependencies.into(at)) {
      if (edge.from == start) {
        std::vector<std::uint32_t> cycle{start};
        for (std::int64_t k = at; k != start; k = next[static_cast<std::size_t>(k)])
          cycle.push_back(static_cast<std::uint32_t>(k));
        return cycle;
      }
      if (next[edge.from] >= 0) continue;
      next[edge.from] = at;
      queue.push(edge.from);
    }
  }
  return {};
}

[[noreturn]] void fail_cycle(const Graph& graph, const Dependencies& dependencies,
                             const std::vector<bool>& done) {
  std::vector<std::uint32_t> best;
  for (std::uint32_t k = 0; k < dependencies.size(); ++k) {
    if (done[k]) continue;
    std::vector<std::uint32_t> cycle = cycle_through(k, dependencies);
    if (!cycle.empty() && (best.empty() || cycle.size() < best.size())) best = std::move(cycle);
  }
  std::string text;
  for (const std::uint32_t k : best) text += "%" + graph.nodes()[k]->name() + " before ";
  if (!best.empty()) text += "%" + graph.nodes()[best[0]]->name();
  throw CycleError({.what = "order", .where = {}, .expected = "no cycle", .got = text});
}

}  // namespace

void Dependencies::add(std::uint32_t from, std::uint32_t to, bool weak) {
  if (from == to) return;
  std::vector<Dependency>& edges = edges_[to];
  const auto at = std::ranges::lower_bound(edges, from, {}, &Dependency::from);
  if (at == edges.end() || at->from != from)
    edges.insert(at, {from, weak});
  else
    at->weak = at->weak && weak;
}

bool Dependencies::reaches(std::uint32_t from, std::uint32_t to) const {
  std::vector<bool> seen(size());
  std::vector<std::uint32_t> open{to};
  while (!open.empty()) {
    const std::uint32_t at = open.back();
    open.pop_back();
    if (at == from) return true;
    for (const Dependency& edge : edges_[at]) {
      if (seen[edge.from]) continue;
      seen[edge.from] = true;
      open.push_back(edge.from);
    }
  }
  return false;
}

Dependencies dependencies_of(const Graph& graph) {
  Dependencies result(graph.nodes().size());
  std::unordered_map<const Node*, std::uint32_t> position;
  std::unordered_map<StorageId, Version> versions;
  for (std::uint32_t k = 0; k < graph.nodes().size(); ++k) {
    const Node& node = *graph.nodes()[k];
    position[&node] = k;
    for (const Value& input : node.inputs())
      if (input) result.add(position.at(input.node), k, false);
    for (const Value& first : node.after()) result.add(position.at(first.node), k, true);
    for (const StorageId storage : storages_read(node)) {
      Version& version = versions[storage];
      result.add(version.writer, k, false);
      if (mutates(node, storage)) {
        for (const std::uint32_t reader : version.readers) result.add(reader, k, true);
        version = {k, {}};
      } else {
        version.readers.push_back(k);
      }
    }
    for (const TensorMeta& meta : node.outputs())
      versions.try_emplace(meta.storage, Version{k, {}});
  }
  const std::vector<const Node*> collectives = begun_collectives(graph);
  for (std::size_t k = 1; k < collectives.size(); ++k)
    result.add(position.at(collectives[k - 1]), position.at(collectives[k]), true);
  return result;
}

std::vector<std::uint32_t> topological_order(const Graph& graph, const Dependencies& dependencies) {
  const auto count = static_cast<std::uint32_t>(dependencies.size());
  std::vector<std::vector<std::uint32_t>> followers(count);
  std::vector<std::size_t> waiting(count);
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ready;
  for (std::uint32_t k = 0; k < count; ++k) {
    waiting[k] = dependencies.into(k).size();
    for (const Dependency& edge : dependencies.into(k)) followers[edge.from].push_back(k);
    if (waiting[k] == 0) ready.push(k);
  }
  std::vector<std::uint32_t> order;
  std::vector<bool> done(count);
  while (!ready.empty()) {
    const std::uint32_t k = ready.top();
    ready.pop();
    order.push_back(k);
    done[k] = true;
    for (const std::uint32_t follower : followers[k])
      if (--waiting[follower] == 0) ready.push(follower);
  }
  if (order.size() < count) fail_cycle(graph, dependencies, done);
  return order;
}

}  // namespace heddle::ir
