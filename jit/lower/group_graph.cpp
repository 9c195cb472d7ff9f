#include "jit/lower/group_graph.h"

#include <algorithm>
#include <queue>

#include "base/check.h"
#include "ir/analysis/collectives.h"
#include "jit/lower/decompose.h"
#include "jit/lower/kernel_memory.h"

namespace heddle::jit {

namespace {

/// Nodes that the search for data behind an order edge looks at. A path that fits into one kernel is found; an
/// edge that only a longer one implies is kept, which costs nothing.
constexpr std::size_t kMaxSearch = 1000;

}  // namespace

GroupGraph::GroupGraph(const ReadAnalysis& reads)
    : reads_(reads), graph_(reads.graph()), topological_(reads.graph().nodes().size()) {
  const std::size_t count = graph_.nodes().size();
  for (std::uint32_t k = 0; k < count; ++k) {
    parent_.push_back(k);
    topological_.append(k);
    last_.push_back(k);
  }
  next_.resize(count);
  before_.resize(count);
  weak_of_.resize(count);
  seen_.resize(count, 0);
  add_data_edges();
  add_order_edges();
  add_collective_edges();
  add_overwrite_edges();
}

std::uint32_t GroupGraph::find(std::uint32_t k) const {
  while (parent_[k] != k) k = parent_[k] = parent_[parent_[k]];
  return k;
}

std::uint32_t GroupGraph::group_of(const Node* node) const {
  return reads_.is_owned(node) ? find(graph_.position(node)) : kNoGroup;
}

std::vector<const Node*> GroupGraph::owners_behind(Value value) const {
  std::vector<const Node*> owners;
  std::vector<const Node*> pending{value.node};
  forget();
  while (!pending.empty()) {
    const Node* node = pending.back();
    pending.pop_back();
    if (!see(graph_.position(node)) || graph_.class_of(node) == NodeClass::Source) continue;
    if (reads_.is_owned(node)) {
      owners.push_back(node);
      continue;
    }
    for (const Value& input : node->inputs())
      if (input) pending.push_back(input.node);
  }
  return owners;
}

void GroupGraph::add_data_edges() {
  for (const Node* node : graph_.nodes()) {
    if (!reads_.is_owned(node)) continue;
    const std::uint32_t to = graph_.position(node);
    for (const Value& input : node->inputs()) {
      if (!input) continue;
      for (const Node* owner : owners_behind(input)) {
        next_[graph_.position(owner)].insert(to);
        before_[to].insert(graph_.position(owner));
      }
    }
  }
}

/// `after` of an inlined node binds every kernel that evaluates it; what it names stands for the kernels
/// that compute it. An edge that data implies adds nothing, but that an inlined node is not evaluated by the kernel of what it
/// comes after: data leads to the kernel's other nodes only.
void GroupGraph::add_order_edges() {
  if (std::ranges::all_of(graph_.nodes(), [](const Node* node) { return node->after().empty(); }))
    return;
  std::vector<std::vector<const Node*>> evaluated_by(graph_.nodes().size());
  std::vector<std::vector<const Node*>> computing(graph_.nodes().size());  // a view: its readers
  for (std::size_t k = graph_.nodes().size(); k-- > 0;) {
    const Node* node = graph_.nodes()[k];
    auto& owners = evaluated_by[k];
    if (reads_.is_owned(node)) owners = {node};
    if (reads_.is_owned(node) || classify(*node, graph_.options()) != NodeClass::View)
      computing[k] = {node};
    for (const Value& input : node->inputs()) {
      if (!input || reads_.is_owned(input.node)) continue;
      const std::uint32_t position = graph_.position(input.node);
      auto& behind = evaluated_by[position];
      behind.insert(behind.end(), owners.begin(), owners.end());
      if (classify(*input.node, graph_.options()) == NodeClass::View)
        computing[position].insert(computing[position].end(), computing[k].begin(),
                                   computing[k].end());
    }
  }
  for (const Node* node : graph_.nodes()) {
    for (const Value& named : node->after()) {
      if (!graph_.is_live(named.node)) continue;
      for (const Node* before : owners_behind(named)) {
        for (const Node* part : computing[graph_.position(node)]) {
          const bool is_inlined = !reads_.is_owned(part) && !depends_on_data(part, before);
          for (const Node* later : evaluated_by[graph_.position(part)]) {
            const bool implied = before != later && depends_on_data(later, before);
            if (before == later || (implied && !is_inlined)) continue;
            add_weak(graph_.position(before), graph_.position(later), implied);
          }
        }
      }
    }
  }
}

/// Collectives begin one after another, in the order of the graph.
void GroupGraph::add_collective_edges() {
  const Node* last = nullptr;
  for (const Node* node : ir::begun_collectives(graph_.graph())) {
    if (!graph_.is_live(node)) continue;
    if (last != nullptr && !depends_on_data(node, last))
      add_weak(graph_.position(last), graph_.position(node));
    last = node;
  }
}

/// What is overwritten is read before. The readers are owned, or views whose readers are.
void GroupGraph::add_overwrite_edges() {
  for (const LiveGraph::Overwrite& overwrite : graph_.overwrites()) {
    for (const std::uint32_t reader : overwrite.readers) {
      const Node* before = graph_.nodes()[reader];
      if (reader == overwrite.writer || !reads_.is_owned(before)) continue;
      if (!depends_on_data(graph_.nodes()[overwrite.writer], before))
        add_weak(reader, overwrite.writer, true);
      next_[reader].insert(overwrite.writer);
      before_[overwrite.writer].insert(reader);
    }
  }
}

void GroupGraph::add_weak(std::uint32_t before, std::uint32_t later, bool only_data) {
  const auto number = static_cast<std::uint32_t>(weak_.size());
  weak_.push_back({before, later, only_data});
  weak_of_[before][later].push_back(number);
  weak_of_[later][before].push_back(number);
  next_[before].insert(later);
  before_[later].insert(before);
}

bool GroupGraph::depends_on_data(const Node* node, const Node* before) const {
  const std::uint32_t target = graph_.position(before);
  std::vector<const Node*> found{node};
  forget();
  for (std::size_t at = 0; at < found.size() && at < kMaxSearch; ++at) {
    if (found[at] == before) return true;
    for (const Value& input : found[at]->inputs()) {
      if (!input) continue;
      const std::uint32_t position = graph_.position(input.node);
      if (position >= target && see(position)) found.push_back(input.node);
    }
  }
  return false;
}

/// Whether data leads from a member of `group` to the node at position `node`, through members of its own group only: on
/// another way a third group lies, and the two do not become one.
bool GroupGraph::depends_on_group(std::uint32_t node, std::uint32_t group) const {
  const std::uint32_t own = find(node);
  std::vector<const Node*> found{graph_.nodes()[node]};
  forget();
  for (std::size_t at = 0; at < found.size() && at < kMaxSearch; ++at) {
    for (const Value& input : found[at]->inputs()) {
      if (!input || !see(graph_.position(input.node))) continue;
      const bool owned = reads_.is_owned(input.node);
      const std::uint32_t behind = find(graph_.position(input.node));
      if (owned && behind == group) return true;
      if (!owned || behind == own) found.push_back(input.node);
    }
  }
  return false;
}

bool GroupGraph::is_ordered(std::uint32_t a, std::uint32_t b) const {
  const auto edges = weak_of_[a].find(b);
  if (edges == weak_of_[a].end()) return false;
  return std::ranges::any_of(edges->second, [&](std::uint32_t number) {
    const WeakEdge& edge = weak_[number];
    return edge.only_data || !depends_on_group(edge.later, find(edge.before));
  });
}

/// Collects in between_ the groups after `first` that lead to `second`, a later one. False if a path from
/// `first` leads through them.
bool GroupGraph::find_between(std::uint32_t first, std::uint32_t second) {
  between_.clear();
  forget();
  const auto look_behind = [&](std::uint32_t group) {
    for (const std::uint32_t before : before_[group]) {
      if (before == first) {
        if (group != second) return false;
      } else if (topological_.before(first, before) && see(before)) {
        between_.push_back(before);
      }
    }
    return true;
  };
  if (!look_behind(second)) return false;
  for (std::size_t at = 0; at < between_.size(); ++at)
    if (!look_behind(between_[at])) return false;
  return true;
}

bool GroupGraph::merge(std::uint32_t a, std::uint32_t b) {
  HD_CHECK(a != b);
  const std::uint32_t first = topological_.before(a, b) ? a : b;
  if (!find_between(first, first == a ? b : a)) return false;
  // The two stand where the first one stood, after what the second one needs.
  std::ranges::sort(between_, [&](auto x, auto y) { return topological_.before(x, y); });
  for (const std::uint32_t group : between_) topological_.move(group, first);
  if (first == b) topological_.move(a, b);
  topological_.remove(b);
  parent_[b] = a;
  last_[a] = std::max(last_[a], last_[b]);
  for (const std::uint32_t group : next_[b]) {
    before_[group].erase(b);
    if (group == a) continue;
    next_[a].insert(group);
    before_[group].insert(a);
  }
  for (const std::uint32_t group : before_[b]) {
    next_[group].erase(b);
    if (group == a) continue;
    before_[a].insert(group);
    next_[group].insert(a);
  }
  next_[a].erase(b);
  before_[a].erase(b);
  next_[b].clear();
  before_[b].clear();
  for (const auto& [group, numbers] : weak_of_[b]) {
    weak_of_[group].erase(b);
    if (group == a) continue;
    for (auto* edges : {&weak_of_[group][a], &weak_of_[a][group]})
      edges->insert(edges->end(), numbers.begin(), numbers.end());
  }
  weak_of_[b].clear();
  return true;
}

std::vector<std::uint32_t> GroupGraph::order() const {
  std::vector<std::size_t> waits(parent_.size(), 0);
  // Last node first: a fused group runs where its last node stood, so that its operands are there.
  using Item = std::pair<std::uint32_t, std::uint32_t>;
  std::priority_queue<Item, std::vector<Item>, std::greater<>> ready;
  std::size_t groups = 0;
  for (const Node* node : graph_.nodes()) {
    const std::uint32_t k = graph_.position(node);
    if (!reads_.is_owned(node) || find(k) != k) continue;
    ++groups;
    waits[k] = before_[k].size();
    if (waits[k] == 0) ready.emplace(last_[k], k);
  }
  std::vector<std::uint32_t> order;
  while (!ready.empty()) {
    const std::uint32_t group = ready.top().second;
    ready.pop();
    order.push_back(group);
    for (const std::uint32_t after : next_[group])
      if (--waits[after] == 0) ready.emplace(last_[after], after);
  }
  HD_CHECK(order.size() == groups, "a merge made a cycle of groups");
  return order;
}

std::vector<std::pair<std::uint32_t, std::uint32_t>> GroupGraph::weak_edges() const {
  std::set<std::pair<std::uint32_t, std::uint32_t>> edges;
  for (const WeakEdge& edge : weak_)
    if (find(edge.before) != find(edge.later)) edges.emplace(find(edge.before), find(edge.later));
  return {edges.begin(), edges.end()};
}

}  // namespace heddle::jit
