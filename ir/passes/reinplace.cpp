#include "ir/passes/reinplace.h"

#include <algorithm>
#include <unordered_map>

#include "ir/analysis/aliases.h"
#include "ir/analysis/users.h"
#include "ir/op.h"

namespace heddle::ir {

namespace {

/// Storages that lie in the same bytes: a view's and its operand's, a result's and what it overwrites.
class SharedBytes {
 public:
  explicit SharedBytes(const Graph& graph) {
    for (const NodePtr& node : graph.nodes()) {
      for (std::uint32_t k = 0; k < node->outputs().size(); ++k) add(node->value(k));
      if (node->op().lowering.view != nullptr) join(node->value(), node->input(0));
      for (std::uint32_t k = 0; k < node->outputs().size(); ++k) {
        const Alias alias = alias_of(*node, k);
        if (alias.kind == Alias::Kind::View) join(node->value(k), node->input(alias.operand));
      }
    }
  }

  /// Values in the bytes of `value`.
  std::span<const Value> values(const Value& value) const { return groups_[group_of_.at(value)]; }
  bool shared(const Value& a, const Value& b) const { return group_of_.at(a) == group_of_.at(b); }

  void join(const Value& a, const Value& b) {
    std::size_t to = group_of_.at(a);
    std::size_t from = group_of_.at(b);
    if (to == from) return;
    if (groups_[to].size() < groups_[from].size()) std::swap(to, from);
    for (const Value& value : groups_[from]) group_of_[value] = to;
    groups_[to].insert(groups_[to].end(), groups_[from].begin(), groups_[from].end());
    groups_[from].clear();
  }

 private:
  void add(const Value& value) {
    group_of_[value] = groups_.size();
    groups_.push_back({value});
  }
  std::map<Value, std::size_t> group_of_;
  std::vector<std::vector<Value>> groups_;
};

class Reinplacer {
 public:
  explicit Reinplacer(const Graph& graph) : graph_(graph), users_(users_of(graph)), bytes_(graph) {
    for (std::uint32_t k = 0; k < graph.nodes().size(); ++k) positions_[graph.nodes()[k].get()] = k;
  }

  std::optional<std::vector<Value>> visit(Rewriter& rewriter, const NodePtr& node) {
    if (node->op().in_place.empty() || overwrites_any(*node)) return {};
    std::vector<std::int64_t> operands;
    for (const InPlace& pair : node->op().in_place) {
      if (!may_overwrite(*node, pair)) continue;
      operands.push_back(static_cast<std::int64_t>(pair.operand));
      bases_[node->value(pair.output)] = base_of(node->input(pair.operand));
      bytes_.join(node->value(pair.output), node->input(pair.operand));
    }
    if (operands.empty()) return {};
    Attrs attrs = node->attrs();
    attrs["in_place"] = std::move(operands);
    const Node* made =
        rewriter.builder().call(node->op(), rewriter.map(node->inputs()), std::move(attrs));
    std::vector<Value> results;
    for (std::uint32_t k = 0; k < made->outputs().size(); ++k) results.push_back(made->value(k));
    drop_write_backs(rewriter, *node);
    return results;
  }

 private:
  /// whole_base() through the calls that already overwrite.
  Value base_of(Value value) const {
    for (;;) {
      value = whole_base(value);
      const auto found = bases_.find(value);
      if (!value || found == bases_.end()) return value;
      value = found->second;
    }
  }

  bool may_overwrite(const Node& node, const InPlace& pair) const {
    const Value target = node.input(pair.operand);
    if (!target) return false;
    const Value base = base_of(target);
    if (!base || !owns_bytes(base)) return false;
    if (is_read_beside(node, pair.operand) || is_read_after(node, target)) return false;
    if (base.node->op_name() != "input") return true;
    if (is_donated(base)) return !is_returned(node.value(pair.output));
    return is_written_back(base, target, node.value(pair.output)) &&
           !is_returned(node.value(pair.output));
  }

  /// Whether nothing that is there before the graph runs lies in the bytes of `base`, but itself an argument.
  bool owns_bytes(const Value& base) const {
    return std::ranges::all_of(bytes_.values(base), [&](const Value& value) {
      const std::string_view op = value.node->op_name();
      return op == "input" ? value == base : op != "param" && op != "const";
    });
  }

  bool is_read_beside(const Node& node, std::size_t operand) const {
    for (std::size_t k = 0; k < node.inputs().size(); ++k) {
      const bool other = k != operand && node.input(k);
      if (other && bytes_.shared(node.input(k), node.input(operand))) return true;
    }
    return false;
  }

  bool is_read_after(const Node& node, const Value& target) const {
    const std::uint32_t position = positions_.at(&node);
    for (const Value& value : bytes_.values(target)) {
      if (users_.escapes(value)) return true;
      for (const Use& use : users_.of(value))
        if (!use.order && positions_.at(use.node) > position) return true;
    }
    return false;
  }

  /// Whether argument `base` is overwritten anyway; if `target` is a view of it: with `result`.
  bool is_written_back(const Value& base, const Value& target, const Value& result) const {
    const bool is_view = target != base && whole_base(target) == base;
    return std::ranges::any_of(graph_.write_backs(), [&](const Graph::WriteBack& write) {
      return write.target == base && (!is_view || whole_base(write.source) == result);
    });
  }

  bool is_returned(const Value& result) const {
    return std::ranges::any_of(graph_.outputs(),
                               [&](const Value& output) { return bytes_.shared(output, result); });
  }

  /// Write-backs of what now lies in their target.
  void drop_write_backs(Rewriter& rewriter, const Node& node) const {
    for (std::size_t k = 0; k < graph_.write_backs().size(); ++k) {
      const Graph::WriteBack& write = graph_.write_backs()[k];
      if (!whole_base(write.source) || whole_base(write.source).node != &node) continue;
      if (base_of(write.source) == write.target) rewriter.drop_write_back(k);
    }
  }

  const Graph& graph_;
  const Users users_;
  SharedBytes bytes_;
  std::unordered_map<const Node*, std::uint32_t> positions_;
  std::map<Value, Value> bases_;  ///< by overwriting result: whose memory it lies in
};

}  // namespace

Graph reinplace(const Graph& graph) {
  Reinplacer reinplacer(graph);
  return rewrite(graph, [&](Rewriter& rewriter, const NodePtr& node) {
    return reinplacer.visit(rewriter, node);
  });
}

}  // namespace heddle::ir
