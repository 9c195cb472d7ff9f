#include "jit/lower/groups.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "jit/lower/group_graph.h"
#include "jit/lower/kernel_memory.h"
#include "jit/lower/nest_context.h"
#include "jit/nests/dot_conv.h"
#include "jit/nests/row_conv.h"

namespace heddle::jit {
namespace {

/// A reduction of so few rows of so many elements is split over several kernels instead of being fused.
constexpr std::int64_t kFewRows = 2;
constexpr std::int64_t kLongRow = 1 << 17;
/// Independent kernels of at most so many elements share one.
constexpr std::int64_t kSmallCount = 4096;

SymExpr count_of(const ir::Dims& dims) { return base::product(dims); }

bool same_count(const ir::Dims& a, const ir::Dims& b) {
  return same_dims(a, b) || count_of(a) == count_of(b);
}

bool is_at_most(const SymExpr& count, std::int64_t limit) {
  return count.is_constant() && count.constant() <= limit;
}
bool is_at_least(const SymExpr& count, std::int64_t limit) {
  return count.is_constant() && count.constant() >= limit;
}

class Former {
 public:
  explicit Former(const ReadAnalysis& reads)
      : reads_(reads), graph_(reads.graph()), links_(reads), groups_(graph_.nodes().size()) {
    for (const Node* node : graph_.nodes())
      if (reads_.is_owned(node)) groups_[graph_.position(node)] = single(node);
  }

  Grouping run() {
    extend_libraries();
    for (const Node* node : graph_.nodes())
      if (reads_.is_owned(node)) merge_producers(node);
    merge_readers_of_one_value();
    merge_small();
    return finish();
  }

 private:
  Group single(const Node* node) const {
    Group group;
    group.nodes = {node};
    group.root = node;
    group.domain = reads_.of(node).domain;
    switch (graph_.class_of(node)) {
      case NodeClass::Reduce:
        group.kind = Group::Kind::Row;
        group.reduced = graph_.reduced_axes(node);
        break;
      case NodeClass::Nest:
        group.kind = Group::Kind::Nest;
        break;
      case NodeClass::Library:
        group.kind = Group::Kind::Library;
        break;
      case NodeClass::Region:
        group.kind = Group::Kind::Region;
        break;
      default:
        group.kind = Group::Kind::Pointwise;
        break;
    }
    return group;
  }

  /// Library calls take what they can compute on their results before other kernels do.
  void extend_libraries() {
    const EpilogueFinder finder(reads_);
    for (const Node* node : graph_.nodes()) {
      if (!reads_.is_owned(node) || graph_.class_of(node) != NodeClass::Library) continue;
      if (!takes_epilogue(*node)) continue;
      for (EpilogueStep& step : finder.find(*node))
        if (!extend(links_.group_of(node), std::move(step))) break;
    }
  }

  bool extend(std::uint32_t library, EpilogueStep step) {
    const auto is_free = [&](const Node* node) {
      const std::uint32_t group = links_.group_of(node);
      return groups_[group].nodes.size() == 1 && !links_.is_ordered(library, group);
    };
    Group& group = groups_[library];
    if (!std::ranges::all_of(step.nodes, is_free)) return false;
    if (group.nodes.size() + step.nodes.size() > unit_of(*group.root, graph_.options()).max_nodes)
      return false;
    for (const Node* node : step.nodes) {
      const std::uint32_t joined = links_.group_of(node);
      if (!links_.merge(library, joined)) {
        // What several nodes stand for reads one value only: no path leads around it.
        HD_CHECK(step.nodes.size() == 1);
        return false;
      }
      group.nodes.push_back(node);
      groups_[joined] = {};
    }
    group.epilogue.push_back(std::move(step));
    return true;
  }

  /// Tries the groups that `node` reads: recipes first, since nothing else can join them later.
  void merge_producers(const Node* node) {
    std::vector<std::uint32_t> producers;
    for (const Read& read : reads_.of(node).reads) {
      if (!reads_.is_owned(read.value.node)) continue;
      const std::uint32_t group = links_.group_of(read.value.node);
      if (std::find(producers.begin(), producers.end(), group) == producers.end())
        producers.push_back(group);
    }
    const auto rank = [&](std::uint32_t group) {
      const Group::Kind kind = groups_[group].kind;
      const int order = kind == Group::Kind::Nest ? 0 : kind == Group::Kind::Row ? 1 : 2;
      return std::pair(order, -static_cast<std::int64_t>(group));
    };
    std::sort(producers.begin(), producers.end(),
              [&](std::uint32_t a, std::uint32_t b) { return rank(a) < rank(b); });
    for (const std::uint32_t producer : producers) {
      const std::uint32_t from = links_.group_of(graph_.nodes()[producer]);
      const std::uint32_t to = links_.group_of(node);
      if (from != to) try_merge(from, to);
    }
  }

  /// Siblings: groups over one domain that read the same memory.
  void merge_readers_of_one_value() {
    // By position, not by address: what becomes one kernel is the same in each process.
    std::map<std::pair<std::size_t, std::uint32_t>, std::vector<const Node*>> readers;
    for (const Node* node : graph_.nodes()) {
      if (!reads_.is_owned(node)) continue;
      for (const Read& read : reads_.of(node).reads) {
        if (!is_memory(read.value) || read.value.meta().count().is_constant(1)) continue;
        const Value storage = graph_.storage(read.value);
        auto& list = readers[{graph_.position(storage.node), storage.index}];
        if (list.empty() || list.back() != node) list.push_back(node);
      }
    }
    for (const auto& [place, nodes] : readers) merge_siblings(nodes);
  }

  void merge_small() {
    std::vector<const Node*> small;
    for (const Node* node : graph_.nodes()) {
      if (!reads_.is_owned(node)) continue;
      const Group& group = groups_[links_.group_of(node)];
      if (group.kind == Group::Kind::Pointwise && is_at_most(count_of(group.domain), kSmallCount))
        small.push_back(node);
    }
    merge_siblings(small);
  }

  void merge_siblings(const std::vector<const Node*>& nodes) {
    // Each node is tried with a few before it: enough for what models contain, and linear.
    constexpr std::size_t kWindow = 8;
    for (std::size_t k = 1; k < nodes.size(); ++k) {
      for (std::size_t back = 1; back <= std::min(k, kWindow); ++back) {
        const std::uint32_t a = links_.group_of(nodes[k - back]);
        const std::uint32_t b = links_.group_of(nodes[k]);
        if (a != b && is_fixed(groups_[a]) == is_fixed(groups_[b]) &&
            same_dims(groups_[a].domain, groups_[b].domain))
          try_merge(a, b);
      }
    }
  }

  /// Whether it runs once, when a unit is built.
  bool is_fixed(const Group& group) const {
    return std::ranges::all_of(group.nodes,
                               [&](const Node* node) { return reads_.is_fixed(node); });
  }

  /// Whether one reduces what never changes, once and for all, and the other does not.
  bool runs_once_alone(const Group& a, const Group& b) const {
    const bool reduces = a.kind == Group::Kind::Row || b.kind == Group::Kind::Row;
    return reduces && is_fixed(a) != is_fixed(b);
  }

  bool is_memory(Value value) const {
    return graph_.class_of(value.node) == NodeClass::Source || reads_.is_owned(value.node);
  }

  bool may_share(const Node& a, const Node& b) const {
    return unit_of(a, graph_.options()).fuse && same_unit(a, b, graph_.options()) &&
           !ir::wants_fallback(a) && !ir::wants_fallback(b);
  }

  bool try_merge(std::uint32_t a, std::uint32_t b) {
    const Group& first = groups_[a];
    const Group& second = groups_[b];
    if (!may_share(*first.nodes[0], *second.nodes[0])) return false;
    const UnitOptions& unit = unit_of(*first.nodes[0], graph_.options());
    if (first.nodes.size() + second.nodes.size() > unit.max_nodes) return false;
    if (links_.is_ordered(a, b) || runs_once_alone(first, second)) return false;
    std::optional<Group> merged = joined(first, second);
    if (!merged || !reads_fit(*merged, first, second) || !reads_fit(*merged, second, first))
      return false;
    if (!links_.merge(a, b)) return false;
    groups_[a] = std::move(*merged);
    groups_[b] = {};
    return true;
  }

  /// What the two would be together; nothing when their iteration spaces do not fit.
  std::optional<Group> joined(const Group& a, const Group& b) const {
    using Kind = Group::Kind;
    const auto stands_alone = [](const Group& group) {
      return group.kind == Kind::Library || group.kind == Kind::Region;
    };
    if (stands_alone(a) || stands_alone(b)) return std::nullopt;
    if (a.kind == Kind::Nest || b.kind == Kind::Nest) return joined_nest(a, b);
    if (a.kind == Kind::Row || b.kind == Kind::Row) return joined_row(a, b);
    if (!same_count(a.domain, b.domain)) return std::nullopt;
    const bool finer = without_ones(a.domain).size() > without_ones(b.domain).size();
    return with_nodes(finer ? a : b, a, b);
  }

  std::optional<Group> joined_nest(const Group& a, const Group& b) const {
    const Group& nest = a.kind == Group::Kind::Nest ? a : b;
    const Group& other = a.kind == Group::Kind::Nest ? b : a;
    if (other.kind != Group::Kind::Pointwise || !same_count(nest.domain, other.domain))
      return std::nullopt;
    if (!find_recipe(nest.root->op().lowering.nest)->epilogue) return std::nullopt;
    // The recipe itself must not read what would become its epilogue.
    for (const Value& operand : reads_.of(nest.root).opaque)
      for (const Node* owner : links_.owners_behind(operand))
        if (std::find(other.nodes.begin(), other.nodes.end(), owner) != other.nodes.end())
          return std::nullopt;
    return with_nodes(nest, a, b);
  }

  std::optional<Group> joined_row(const Group& a, const Group& b) const {
    const Group& row = a.kind == Group::Kind::Row ? a : b;
    const Group& other = a.kind == Group::Kind::Row ? b : a;
    for (const Node* node : other.nodes)
      if (row_role(row, reads_, node) == RowRole::None) return std::nullopt;
    const bool few_long_rows = is_at_most(count_of(dims_but(row.domain, row.reduced)), kFewRows) &&
                               is_at_least(count_of(dims_at(row.domain, row.reduced)), kLongRow);
    if (few_long_rows && &row == &a) return std::nullopt;
    return with_nodes(row, a, b);
  }

  Group with_nodes(const Group& shape, const Group& a, const Group& b) const {
    Group merged = shape;
    merged.nodes = a.nodes;
    merged.nodes.insert(merged.nodes.end(), b.nodes.begin(), b.nodes.end());
    std::sort(merged.nodes.begin(), merged.nodes.end(), [&](const Node* x, const Node* y) {
      return graph_.position(x) < graph_.position(y);
    });
    return merged;
  }

  /// Whether `readers` read the values of `producers` where `merged` has them at hand.
  bool reads_fit(const Group& merged, const Group& producers, const Group& readers) const {
    const std::uint32_t producer = links_.group_of(producers.nodes[0]);
    for (const Node* node : readers.nodes) {
      for (const Read& read : reads_.of(node).reads) {
        if (!reads_.is_owned(read.value.node)) continue;
        if (links_.group_of(read.value.node) != producer) continue;
        if (!read_fits(merged, node, read)) return false;
      }
    }
    return true;
  }

  bool read_fits(const Group& merged, const Node* node, const Read& read) const {
    const NodeReads& reads = reads_.of(node);
    if (merged.kind != Group::Kind::Row) {
      const bool other_output = read.value.node == merged.root && read.value.index != 0 &&
                                !(merged.kind == Group::Kind::Nest &&
                                  find_recipe(merged.root->op().lowering.nest)->of_all_results);
      if (other_output || is_permuting(merged, read.value.node)) return false;
      return reads_same(reads, read) || is_permuting(merged, node);
    }
    const RowRole reader = row_role(merged, reads_, node);
    const RowRole value = row_role(merged, reads_, read.value.node);
    if (value == RowRole::Full) return reader != RowRole::Row && reads_same(reads, read);
    if (reader == RowRole::Row) return reads_same(reads, read);
    return reads_own_row(merged, reads, read);
  }

  /// Whether the node is a copy of a recipe's result in another order: stored there, and read by no other
  /// member.
  bool is_permuting(const Group& merged, const Node* node) const {
    if (merged.kind != Group::Kind::Nest) return false;
    // Its vectors of channels would be stored element by element.
    if (graph_.options().target == LowerOptions::Target::Cpu &&
        (is_row_conv(*merged.root) || is_dot_conv(*merged.root)))
      return false;
    const Read* read = permuting_read(merged, graph_, reads_.of(node), node);
    if (read == nullptr) return false;
    const Index anywhere(read->index.size(), SymExpr(0));
    const NodeReads& reads = reads_.of(node);
    return permuted_index(reads, *read, anywhere, reads.facts, graph_.options()).has_value();
  }

  bool reads_own_row(const Group& merged, const NodeReads& reads, const Read& read) const {
    const Index point = index_in(merged.domain, reads.domain, reads.axes, reads.facts);
    const Index row = dims_but(point, merged.reduced);
    return same(linear_index(read.index, read.value.meta().sizes),
                linear_index(row, dims_but(merged.domain, merged.reduced)), reads.facts);
  }

  Grouping finish() {
    Grouping result;
    result.group_of.assign(graph_.nodes().size(), kNoGroup);
    std::map<std::uint32_t, std::uint32_t> numbers;
    for (const std::uint32_t group : links_.order()) {
      const auto number = static_cast<std::uint32_t>(result.groups.size());
      numbers[group] = number;
      for (const Node* node : groups_[group].nodes) result.group_of[graph_.position(node)] = number;
      result.groups.push_back(std::move(groups_[group]));
    }
    for (const auto& [before, after] : links_.weak_edges())
      result.weak_edges.emplace_back(numbers.at(before), numbers.at(after));
    std::ranges::sort(result.weak_edges, {},
                      [](const auto& edge) { return std::pair(edge.second, edge.first); });
    return result;
  }

  const ReadAnalysis& reads_;
  const LiveGraph& graph_;
  GroupGraph links_;
  std::vector<Group> groups_;  ///< by the node position that names the group
};

}  // namespace

RowRole row_role(const Group& group, const ReadAnalysis& reads, const Node* node) {
  const LiveGraph& graph = reads.graph();
  const ir::Dims& domain = reads.of(node).domain;
  switch (graph.class_of(node)) {
    case NodeClass::Reduce: {
      const bool fits =
          same_dims(domain, group.domain) && graph.reduced_axes(node) == group.reduced;
      return fits ? RowRole::Reduce : RowRole::None;
    }
    case NodeClass::View:
    case NodeClass::Element:
      if (same_count(domain, group.domain)) return RowRole::Full;
      return same_count(domain, dims_but(group.domain, group.reduced)) ? RowRole::Row
                                                                       : RowRole::None;
    default:
      return RowRole::None;
  }
}

Index index_in(const ir::Dims& sizes, const ir::Dims& domain, const Index& index,
               const base::Facts& facts) {
  if (same_dims(sizes, domain)) return index;
  if (same_dims(without_ones(sizes), without_ones(domain))) {
    Index mapped(sizes.size(), SymExpr(0));
    std::size_t from = 0;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      if (sizes[d].is_constant(1)) continue;
      while (domain[from].is_constant(1)) ++from;
      mapped[d] = index[from++];
    }
    return mapped;
  }
  return delinearize(linear_index(index, domain).simplify(facts), sizes, facts);
}

const Read* permuting_read(const Group& group, const LiveGraph& graph, const NodeReads& reads,
                           const Node* node) {
  const bool is_clone =
      graph.options().target == LowerOptions::Target::Cuda && node->op_name() == "clone";
  const bool copies = is_clone || graph.class_of(node) == NodeClass::View;
  if (graph.options().target == LowerOptions::Target::Cpu && reads.reads.size() != 1)
    return nullptr;
  const Read* found = nullptr;
  for (const Read& read : reads.reads) {
    if (std::ranges::count(group.nodes, read.value.node) == 0) continue;
    if (found != nullptr) return nullptr;
    found = &read;
  }
  return !copies || found == nullptr || reads_same(reads, *found) ? nullptr : found;
}

namespace {

/// How many neighbouring axes from `first` on, at most `most`, `index` counts through, row-major; 0: it does not.
std::size_t axes_counted(const NodeReads& reads, const SymExpr& index, std::size_t first,
                         std::size_t most) {
  for (std::size_t count = 1; count <= most && first + count <= reads.axes.size(); ++count) {
    const auto part = [&](const auto& list) { return std::span(list).subspan(first, count); };
    if (same(linear_index(part(reads.axes), part(reads.domain)), index, reads.facts)) return count;
  }
  return 0;
}

}  // namespace

std::optional<Index> permuted_index(const NodeReads& reads, const Read& read, const Index& point,
                                    const base::Facts& facts, const LowerOptions& options) {
  const std::size_t most =
      options.target == LowerOptions::Target::Cuda ? reads.axes.size() : std::size_t{1};
  const ir::Dims& sizes = read.value.meta().sizes;
  if (!same(base::product(sizes), base::product(reads.domain), reads.facts)) return std::nullopt;
  Index index(reads.axes.size(), SymExpr(0));
  std::size_t found = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d].is_constant(1)) continue;
    if (most == 1 && !read.index[d].is_symbol()) return std::nullopt;
    std::size_t first = 0;
    std::size_t count = 0;
    while (first < reads.axes.size() && count == 0)
      if ((count = axes_counted(reads, read.index[d], first, most)) == 0) ++first;
    if (count == 0) return std::nullopt;
    const auto counted = std::span(reads.domain).subspan(first, count);
    const Index places = count == 1 ? Index{point[d]} : delinearize(point[d], counted, facts);
    for (std::size_t k = 0; k < count; ++k) {
      index[first + k] = places[k];
      found += reads.domain[first + k].is_constant(1) ? 0 : 1;
    }
  }
  return found == without_ones(reads.domain).size() ? std::optional(index) : std::nullopt;
}

Grouping form_groups(const ReadAnalysis& reads) { return Former(reads).run(); }

}  // namespace heddle::jit
