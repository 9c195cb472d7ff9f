#include "ir/passes/layouts.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "ir/op.h"
#include "ir/passes/visible.h"

namespace heddle::ir {

Perm identity_perm(std::int64_t rank) {
  Perm perm(static_cast<std::size_t>(rank));
  std::iota(perm.begin(), perm.end(), 0);
  return perm;
}

Perm composed(const Perm& first, const Perm& second) {
  Perm result;
  for (const std::int64_t axis : second) result.push_back(first[static_cast<std::size_t>(axis)]);
  return result;
}

Perm inverse(const Perm& perm) {
  Perm result(perm.size());
  for (std::size_t k = 0; k < perm.size(); ++k)
    result[static_cast<std::size_t>(perm[k])] = static_cast<std::int64_t>(k);
  return result;
}

bool is_identity(const Perm& perm) { return std::ranges::is_sorted(perm); }

namespace {

/// `is_one(axis)`: whether a dimension has one element.
template <typename IsOne>
bool keeps_others_in_order(const Perm& perm, const IsOne& is_one) {
  std::int64_t last = -1;
  for (const std::int64_t axis : perm) {
    if (is_one(axis)) continue;
    if (axis < last) return false;
    last = axis;
  }
  return true;
}

}  // namespace

bool moves_nothing(std::span<const SymExpr> sizes, const Perm& perm) {
  return keeps_others_in_order(perm, [&](std::int64_t axis) {
    return sizes[static_cast<std::size_t>(axis)].is_constant(1);
  });
}

std::int64_t widest_rank(const Node& node) {
  std::int64_t rank = node.output().rank();
  for (const Value& input : node.inputs())
    if (input) rank = std::max(rank, input.meta().rank());
  return rank;
}

Perm perm_of(const Node& permute) {
  Perm perm = permute.ints("perm");
  for (std::int64_t& axis : perm)
    if (axis < 0) axis += static_cast<std::int64_t>(perm.size());
  return perm;
}

namespace {

bool can_move(const Node& node) {
  return node.op().reorder != nullptr && node.outputs().size() == 1 && widest_rank(node) > 1 &&
         node.op().reorder(node, identity_perm(widest_rank(node))).has_value();
}

bool is_fixed_data(const Node& node) {
  return node.op_name() == "const" || node.op_name() == "param";
}

bool is_argument(const Node& node) { return node.op_name() == "input"; }

bool narrows(const Node& node) {
  return node.op_name() == "convert" &&
         size_of(node.output().dtype) < size_of(node.input(0).meta().dtype);
}

/// Whether a permute by `perm` leaves the contiguous dimension among the last two.
bool keeps_matrix(const Perm& perm) {
  const auto last = static_cast<std::int64_t>(perm.size()) - 1;
  return last > 0 && (perm.back() == last || perm[static_cast<std::size_t>(last) - 1] == last);
}

std::int32_t find(std::vector<std::int32_t>& parents, std::int32_t k) {
  while (parents[static_cast<std::size_t>(k)] != k)
    k = parents[static_cast<std::size_t>(k)] =
        parents[static_cast<std::size_t>(parents[static_cast<std::size_t>(k)])];
  return k;
}

}  // namespace

Layouts::Layouts(const Graph& graph) : visible_(visible_storages(graph)) {
  form_groups(graph);
  pin_strided_results(graph);
  collect_edges(graph);
  link_edges();
  constexpr int kMaxRounds = 8;
  bool again = true;
  for (int round = 0; again && round < kMaxRounds; ++round) {
    again = false;
    for (Group& group : all_) again |= improve(group);
    changed_ |= again;
  }
}

std::int32_t Layouts::group_of(const Node* node) const {
  const auto found = groups_.find(node);
  return found == groups_.end() ? -1 : found->second;
}

Perm Layouts::order_of(const Node* node) const {
  const std::int32_t group = group_of(node);
  return group < 0 ? identity_perm(widest_rank(*node))
                   : all_[static_cast<std::size_t>(group)].order;
}

Perm Layouts::order_of(const Value& value) const {
  const std::int32_t group = group_of(value.node);
  if (group < 0) return identity_perm(value.meta().rank());
  return value.node->op().reorder(*value.node, all_[static_cast<std::size_t>(group)].order)->result;
}

Source Layouts::source_of(Value value, const Node& reader) const {
  Source source{value, identity_perm(value.meta().rank())};
  while (source.root.node->op_name() == "permute" && source.root.node->after().empty() &&
         source.root.node->annotations() == reader.annotations() && !is_visible(source.root)) {
    source.through = composed(perm_of(*source.root.node), source.through);
    source.root = source.root.node->input(0);
  }
  return source;
}

Perm Layouts::needed(const Source& source, const Perm& wanted) const {
  return composed(inverse(order_of(source.root)), composed(source.through, wanted));
}

void Layouts::join(const NodePtr& node, std::vector<std::int32_t>& parents) {
  const std::int64_t rank = widest_rank(*node);
  const auto own = static_cast<std::int32_t>(parents.size());
  parents.push_back(own);
  groups_[node.get()] = own;
  for (const Value& input : node->inputs()) {
    if (!input || input.meta().rank() != rank) continue;
    const std::int32_t other = group_of(input.node);
    if (other < 0 || input.node->annotations() != node->annotations()) continue;
    if (widest_rank(*input.node) != rank) continue;
    parents[static_cast<std::size_t>(find(parents, other))] = find(parents, own);
  }
}

void Layouts::form_groups(const Graph& graph) {
  std::vector<std::int32_t> parents;
  for (const NodePtr& node : graph.nodes())
    if (can_move(*node)) join(node, parents);
  std::map<std::int32_t, std::int32_t> numbers;
  for (const NodePtr& node : graph.nodes()) {
    const auto found = groups_.find(node.get());
    if (found == groups_.end()) continue;
    const auto [number, fresh] = numbers.emplace(find(parents, found->second), all_.size());
    if (fresh) all_.push_back({.order = identity_perm(widest_rank(*node))});
    found->second = number->second;
    all_[static_cast<std::size_t>(number->second)].narrows |= narrows(*node);
  }
}

/// A result with strides of its own is a view that the caller sees: it stays what it is.
void Layouts::pin_strided_results(const Graph& graph) {
  for (const NodePtr& node : graph.nodes()) {
    const std::int32_t group = group_of(node.get());
    if (group >= 0 && is_visible(node->value()) && !node->output().is_row_major())
      all_[static_cast<std::size_t>(group)].pinned = true;
  }
}

void Layouts::add_edge(Value value, const Node& reader, std::int64_t rank) {
  const std::int32_t group = group_of(&reader);
  const bool moves = group >= 0 && value.meta().rank() == rank;
  Edge edge{source_of(value, reader), value.meta().rank(), moves ? group : -1,
            reader.op_name() == "matmul"};
  if (!moves && edge.source.root == value) plain_.insert(value);
  if (!moves && group >= 0) all_[static_cast<std::size_t>(group)].narrow.push_back(value);
  if (!is_fixed_data(*edge.source.root.node)) edges_.push_back(std::move(edge));
}

void Layouts::collect_edges(const Graph& graph) {
  std::set<const Node*> stops;  // permutes that some reader cannot see through
  for (const NodePtr& node : graph.nodes()) {
    for (const Value& input : node->inputs())
      if (input && source_of(input, *node).root == input) stops.insert(input.node);
  }
  for (const NodePtr& node : graph.nodes()) {
    const bool is_passed =
        node->op_name() == "permute" && source_of(node->value(), *node).root != node->value();
    if (is_passed && stops.contains(node.get())) add_edge(node->value(), *node, -1);
    for (const Value& input : node->inputs())
      if (input && !is_passed) add_edge(input, *node, widest_rank(*node));
  }
  const auto result = [&](const Value& value) {
    plain_.insert(value);
    edges_.push_back({{value, identity_perm(value.meta().rank())}, value.meta().rank(), -1, false});
  };
  for (const Value& output : graph.outputs()) result(output);
  for (const Graph::WriteBack& write : graph.write_backs()) result(write.source);
}

void Layouts::link_edges() {
  for (std::size_t k = 0; k < edges_.size(); ++k) {
    const std::int32_t from = group_of(edges_[k].source.root.node);
    const std::int32_t reader = edges_[k].reader;
    if (from >= 0) all_[static_cast<std::size_t>(from)].given.push_back(k);
    if (reader >= 0 && reader != from) all_[static_cast<std::size_t>(reader)].read.push_back(k);
    count(k, 1);
  }
}

/// The permute that a reading needs as things are.
std::optional<Perm> Layouts::permute_of(const Edge& edge) const {
  const Perm wanted = edge.reader < 0 ? identity_perm(edge.rank)
                                      : all_[static_cast<std::size_t>(edge.reader)].order;
  Perm perm = needed(edge.source, wanted);
  if (is_free(edge, perm)) return std::nullopt;
  return perm;
}

/// Notes that there is one reading more, or less, that needs its permute.
void Layouts::count(std::size_t edge, int change) {
  const auto perm = permute_of(edges_[edge]);
  if (perm) readings_[{edges_[edge].source.root, *perm}] += change;
}

bool Layouts::is_free(const Edge& edge, const Perm& perm) const {
  const Dims& sizes = edge.source.root.meta().sizes;
  const Perm order = order_of(edge.source.root);
  const auto is_one = [&](std::int64_t axis) {
    return sizes[static_cast<std::size_t>(order[static_cast<std::size_t>(axis)])].is_constant(1);
  };
  if (keeps_others_in_order(perm, is_one)) return true;
  return edge.absorbs && keeps_matrix(perm);
}

/// The permutes of what the group gives, and those of what it reads that no other reading needs: what others read of the
/// values of others is the same in every order of this group, so it is not weighed.
Layouts::Cost Layouts::cost(const Group& group) const {
  std::set<std::pair<Value, Perm>> permutes;
  std::size_t wide_results = 0;
  for (const std::size_t k : group.given)
    if (auto perm = permute_of(edges_[k]))
      permutes.emplace(edges_[k].source.root, std::move(*perm));
  for (const std::size_t k : group.read) {
    auto perm = permute_of(edges_[k]);
    if (!perm) continue;
    if (group.narrows && !is_argument(*edges_[k].source.root.node)) ++wide_results;
    std::pair permute(edges_[k].source.root, std::move(*perm));
    const auto others = readings_.find(permute);
    if (others == readings_.end() || others->second == 0) permutes.insert(std::move(permute));
  }
  for (const Value& value : group.narrow) {
    Dims sizes(group.order.size() - value.meta().sizes.size(), SymExpr(1));
    sizes.insert(sizes.end(), value.meta().sizes.begin(), value.meta().sizes.end());
    const bool free = is_fixed_data(*value.node) || moves_nothing(sizes, group.order);
    if (!free) permutes.emplace(value, group.order);
  }
  return {permutes.size(), wide_results};
}

/// The orders in which some reading needs no permute.
std::vector<Perm> Layouts::candidates(const Group& group) const {
  std::set<Perm> orders{identity_perm(static_cast<std::int64_t>(group.order.size()))};
  const auto fits = [&](const Source& source) {
    return source.through.size() == group.order.size();
  };
  for (const std::size_t k : group.read) {
    const Source& source = edges_[k].source;
    if (fits(source)) orders.insert(composed(inverse(source.through), order_of(source.root)));
  }
  for (const std::size_t k : group.given) {
    const Edge& edge = edges_[k];
    const bool is_own = edge.reader >= 0 && &all_[static_cast<std::size_t>(edge.reader)] == &group;
    if (is_own || !fits(edge.source) || order_of(edge.source.root) != group.order) continue;
    const Perm wanted = edge.reader < 0 ? identity_perm(edge.rank)
                                        : all_[static_cast<std::size_t>(edge.reader)].order;
    orders.insert(composed(edge.source.through, wanted));
  }
  return {orders.begin(), orders.end()};
}

bool Layouts::improve(Group& group) {
  if (group.pinned) return false;
  const auto count_all = [&](int change) {
    for (const auto* list : {&group.read, &group.given})
      for (const std::size_t k : *list) count(k, change);
  };
  count_all(-1);
  Perm best = group.order;
  Cost least = cost(group);
  const Cost before = least;
  for (Perm& order : candidates(group)) {
    group.order = order;
    const Cost now = cost(group);
    if (now >= least) continue;
    least = now;
    best = std::move(order);
  }
  group.order = best;
  count_all(1);
  return least < before;
}

}  // namespace heddle::ir
