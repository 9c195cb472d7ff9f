#include "jit/lower/kernel_memo.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "base/check.h"
#include "base/hash.h"
#include "ir/op.h"
#include "jit/lower/region.h"

namespace heddle::jit {
namespace {

/// Finds which node of one group stands for which of another.
class Correspondence {
 public:
  /// @param a, b  groups, by number
  Correspondence(const LoweringState& state, std::uint32_t a, std::uint32_t b)
      : state_(state), groups_{a, b} {}

  bool find() {
    const Group& a = state_.grouping.groups[groups_[0]];
    const Group& b = state_.grouping.groups[groups_[1]];
    if (a.kind != b.kind || a.domain != b.domain || a.reduced != b.reduced ||
        a.nodes.size() != b.nodes.size() || !same_unit(*a.nodes[0], *b.nodes[0], state_.options()))
      return false;
    for (std::size_t k = 0; k < a.nodes.size(); ++k)
      if (!match(a.nodes[k], b.nodes[k])) return false;
    while (!pending_.empty()) {
      const auto [from, to] = pending_.back();
      pending_.pop_back();
      if (!match_operands(from, to)) return false;
    }
    return in_one_order() && (a.root == nullptr ? b.root == nullptr : node(a.root) == b.root);
  }

  /// The node of b for one of a; null: neither group's kernel has to do with it.
  const Node* node(const Node* of_a) const {
    const auto found = to_.find(of_a);
    return found == to_.end() ? nullptr : found->second;
  }

 private:
  enum class Owner : std::uint8_t { Nobody, Own, Another };

  Owner owner(const Node* node, int side) const {
    const std::uint32_t group = state_.grouping.group_of[state_.graph().position(node)];
    if (group == kNoGroup) return Owner::Nobody;
    return group == groups_[side] ? Owner::Own : Owner::Another;
  }

  /// Where the value is: not in memory, stored by the group, or there already.
  Owner memory(Value value, int side) const {
    if (!state_.placement.in_memory(value)) return Owner::Nobody;
    return state_.placement.group_of(value) == groups_[side] ? Owner::Own : Owner::Another;
  }

  bool match(const Node* a, const Node* b) {
    const auto [known, is_new] = to_.emplace(a, b);
    if (!is_new) return known->second == b;
    if (!taken_.insert(b).second || !is_alike(a, b)) return false;
    pending_.emplace_back(a, b);
    return true;
  }

  bool is_alike(const Node* a, const Node* b) const {
    const LiveGraph& graph = state_.graph();
    if (&a->op() != &b->op() || graph.class_of(a) != graph.class_of(b) ||
        owner(a, 0) != owner(b, 1) || a->outputs().size() != b->outputs().size() ||
        state_.reads.is_owned(a) != state_.reads.is_owned(b))
      return false;
    for (std::uint32_t k = 0; k < a->outputs().size(); ++k) {
      if (!a->output(k).same_layout(b->output(k)) ||
          memory(a->value(k), 0) != memory(b->value(k), 1))
        return false;
    }
    if (a->op_name() == "const") return has_same_numbers(*a, *b);
    return ir::equal(a->attrs(), b->attrs());
  }

  /// Kernels hold the number of a constant that is the same everywhere; others are in memory.
  static bool has_same_numbers(const Node& a, const Node& b) {
    const auto mine = splat_of(a);
    const auto other = splat_of(b);
    if (!mine || !other) return !mine && !other;
    return mine->number == other->number && mine->integer == other->integer &&
           std::signbit(mine->number) == std::signbit(other->number);
  }

  bool match_operands(const Node* a, const Node* b) {
    for (std::uint32_t k = 0; k < a->outputs().size(); ++k)
      if (!match_value(state_.graph().storage(a->value(k)), state_.graph().storage(b->value(k))))
        return false;
    // What another kernel computes, and what is there before all, is seen in memory only.
    if (owner(a, 0) == Owner::Another || state_.graph().class_of(a) == NodeClass::Source)
      return true;
    if (a->inputs().size() != b->inputs().size()) return false;
    for (std::size_t k = 0; k < a->inputs().size(); ++k)
      if (!match_value(a->input(k), b->input(k))) return false;
    return true;
  }

  bool match_value(Value a, Value b) {
    if (!a || !b) return !a && !b;
    return a.index == b.index && match(a.node, b.node);
  }

  bool in_one_order() const {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> positions;
    for (const auto& [a, b] : to_)
      positions.emplace_back(state_.graph().position(a), state_.graph().position(b));
    std::ranges::sort(positions);
    return std::ranges::is_sorted(positions, {}, &std::pair<std::uint32_t, std::uint32_t>::second);
  }

  const LoweringState& state_;
  const std::uint32_t groups_[2];
  std::unordered_map<const Node*, const Node*> to_;
  std::set<const Node*> taken_;
  std::vector<std::pair<const Node*, const Node*>> pending_;  ///< whose operands are not matched
};

std::optional<Value> moved(const Correspondence& to, Value value) {
  const Node* node = to.node(value.node);
  if (node == nullptr) return std::nullopt;
  return node->value(value.index);
}

/// The kernel of one group as that of another; nothing where it has to do with what the groups do not show.
std::optional<BuiltKernel> moved(const Correspondence& to, const BuiltKernel& kernel) {
  BuiltKernel result;
  result.nest = kernel.nest;
  result.sizes = kernel.sizes;
  for (const Value& value : kernel.buffers) {
    const auto now = moved(to, value);
    if (!now) return std::nullopt;
    result.buffers.push_back(*now);
  }
  for (const auto& [read, write] : kernel.in_place) {
    const auto place = std::pair(moved(to, read), moved(to, write));
    if (!place.first || !place.second) return std::nullopt;
    result.in_place.emplace_back(*place.first, *place.second);
  }
  for (const Node* node : kernel.nodes) {
    result.nodes.push_back(to.node(node));
    if (result.nodes.back() == nullptr) return std::nullopt;
  }
  return result;
}

void check_same(const BuiltKernel& reused, const BuiltKernel& built) {
  HD_CHECK(print(*reused.nest) == print(*built.nest),
           "a kernel built for a group that is alike: " + print(*built.nest));
  HD_CHECK(reused.buffers == built.buffers && reused.sizes == built.sizes &&
               reused.in_place == built.in_place && reused.nodes == built.nodes,
           "parameters of a kernel built for a group that is alike: " + built.nest->name);
}

}  // namespace

std::uint64_t KernelMemo::hash_of(const Group& group) const {
  std::uint64_t hash = static_cast<std::uint64_t>(group.kind);
  const auto add = [&](const void* part) {
    hash = base::combine(hash, reinterpret_cast<std::uintptr_t>(part));
  };
  for (const Node* node : group.nodes) {
    add(&node->op());
    for (const Value& input : node->inputs()) add(input ? &input.node->op() : nullptr);
  }
  return hash;
}

BuiltKernel KernelMemo::kernel(std::uint32_t group, Build build) {
  std::vector<Known>& alike = known_[hash_of(state_.grouping.groups[group])];
  for (const Known& known : alike) {
    Correspondence to(state_, known.group, group);
    if (!to.find()) continue;
    std::optional<BuiltKernel> reused = moved(to, known.kernel);
    if (!reused) continue;
    if (state_.options().build_all) check_same(*reused, build(state_, group));
    return *std::move(reused);
  }
  if (std::optional<BuiltKernel> built = take_ahead(group)) {
    alike.push_back({group, *built});
    return *std::move(built);
  }
  const std::size_t checks = state_.shared.checks.asked();
  BuiltKernel built = build(state_, group);
  if (checks == state_.shared.checks.asked()) alike.push_back({group, built});
  return built;
}

std::optional<BuiltKernel> KernelMemo::take_ahead(std::uint32_t group) {
  const auto found = ahead_.find(group);
  if (found == ahead_.end()) return std::nullopt;
  BuiltKernel built = std::move(found->second);
  ahead_.erase(found);
  return built;
}

void KernelMemo::build_ahead(const std::vector<Job>& jobs) {
  if (!state_.options().for_each) return;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> kinds;
  std::vector<Job> first;
  for (const Job& job : jobs) {
    std::vector<std::uint32_t>& alike = kinds[hash_of(state_.grouping.groups[job.group])];
    const auto is_like = [&](std::uint32_t group) {
      return Correspondence(state_, group, job.group).find();
    };
    if (std::ranges::any_of(alike, is_like)) continue;
    alike.push_back(job.group);
    first.push_back(job);
  }
  if (first.size() < 2) return;
  std::vector<std::optional<BuiltKernel>> built(first.size());
  state_.options().for_each(first.size(), [&](std::size_t k) {
    SharedLowering own;
    const LoweringState apart{state_.reads, state_.grouping, state_.placement, own};
    try {
      BuiltKernel kernel = first[k].build(apart, first[k].group);
      if (own.checks.asked() == 0) built[k] = std::move(kernel);
    } catch (const std::exception&) {
      // kernel() meets it again, in its turn.
    }
  });
  for (std::size_t k = 0; k < first.size(); ++k)
    if (built[k]) ahead_.emplace(first[k].group, *std::move(built[k]));
}

}  // namespace heddle::jit
