#include "jit/lower/scales_in_memory.h"

#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "jit/lower/decompose.h"

namespace heddle::jit {
namespace {

using ir::Node;
using ir::Value;

/// Scales of one product, by which there is nothing to share, and then some.
constexpr std::size_t kFewScales = 4;
/// Where one number is used at most: a tensor is quantised once and taken for numbers again by who reads it. What all layers use
/// is part of the kernel that they share.
constexpr std::size_t kMostUses = 4;

/// A number that `value` holds alone and that has more bits than those that people write down, as its bits.
std::optional<std::uint32_t> number_of(Value value) {
  if (!value || value.node->op_name() != "const" || value.meta().dtype != DType::F32) return {};
  const ir::Literal& literal = value.node->literal("value");
  if (literal.count() != 1) return {};
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(literal.at(0)));
  constexpr std::uint32_t kLowBits = 0xfff;
  return (bits & kLowBits) != 0 ? std::optional(bits) : std::nullopt;
}

bool multiplies(const Node& node) { return node.op_name() == "mul"; }
bool adds(const Node& node) { return node.op_name() == "add" || node.op_name() == "sub"; }

bool may_change(const Node& node, const LowerOptions& options) {
  return unit_of(node, options).fuse && !ir::wants_fallback(node);
}

/// The operand of `node` that is computed, and of two the first; null where all are constants.
const Node* computed_operand(const Node& node) {
  for (const Value& input : node.inputs())
    if (input && input.node->op_name() != "const") return input.node;
  return nullptr;
}

/// Nodes with one of these are alike but for their number, as far as that is worth a look: "add mul conv".
std::string family_of(const Node& node) {
  constexpr int kNames = 3;
  std::string names;
  const Node* at = &node;
  for (int k = 0; k < kNames && at != nullptr; ++k, at = computed_operand(*at))
    names += std::string(at->op_name()) + " ";
  return names;
}

/// Whether the node may become a part of a call of a library, to which numbers are given as such.
bool may_follow_library(const Node& node, const LowerOptions& options) {
  const Node* at = &node;
  for (std::size_t k = 0; k <= kMaxEpilogue && at != nullptr; ++k, at = computed_operand(*at)) {
    const NodeClass kind = classify(*at, options);
    if (kind == NodeClass::Library) return true;
    if (kind != NodeClass::Element && kind != NodeClass::View) return false;
  }
  return false;
}

/// Whether the second operand is the zero point of what is quantised, which is rounded before.
bool adds_zero_point(const Node& node) {
  return node.op_name() == "add" && node.output().dtype == DType::F32 &&
         node.input(0).node->op_name() == "round" && node.input(1).node->op_name() == "const" &&
         node.input(1).node->literal("value").count() == 1;
}

class Mover {
 public:
  /// @param bytes  the graph multiplies bytes: whatever multiplies by a scale is moved, as are zero points
  Mover(const ir::Graph& graph, const LowerOptions& options, bool bytes)
      : options_(options), bytes_(bytes) {
    for (const ir::NodePtr& node : graph.nodes())
      for (const Value& input : node->inputs())
        if (const auto number = number_of(input)) ++uses_[*number];
    for (const ir::NodePtr& node : graph.nodes()) {
      if (!takes_scale(*node)) continue;
      for (const Value& input : node->inputs())
        if (is_scale(input)) families_[family_of(*node)].insert(*number_of(input));
    }
    if (!bytes)
      std::erase_if(families_, [](const auto& f) { return f.second.size() < kFewScales; });
  }

  bool pays() const {
    std::size_t scales = 0;
    for (const auto& [family, numbers] : families_) scales += numbers.size();
    return scales >= kFewScales;
  }

  std::optional<std::vector<Value>> visit(ir::Rewriter& rewriter, const Node& node) {
    ir::GraphBuilder& builder = rewriter.builder();
    if (bytes_ && adds_zero_point(node))
      return std::vector<Value>{
          builder.emit("add", {rewriter.map(node.input(0)), in_memory(builder, node.input(1))})};
    if (!takes_scale(node) || (!is_scale(node.input(0)) && !is_scale(node.input(1))))
      return std::nullopt;
    if (!bytes_ && (!families_.contains(family_of(node)) || may_follow_library(node, options_)))
      return std::nullopt;
    std::vector<Value> operands;
    for (const Value& input : node.inputs())
      operands.push_back(is_scale(input) ? in_memory(builder, input) : rewriter.map(input));
    return std::vector<Value>{builder.emit(node.op_name(), {operands[0], operands[1]})};
  }

 private:
  bool takes_scale(const Node& node) const {
    return multiplies(node) || (!bytes_ && adds(node) && node.output().dtype == DType::F32);
  }

  bool is_scale(Value value) const {
    const auto number = number_of(value);
    return number && uses_.at(*number) <= kMostUses;
  }

  static Value in_memory(ir::GraphBuilder& builder, Value scale) {
    ir::Literal pair(DType::F32, {2});
    const double number = scale.node->literal("value").at(0);
    pair.set(0, number);
    pair.set(1, number == 0 ? 1 : 0);
    const Value both = builder.constant(std::move(pair));
    const Value first = builder.emit(
        "slice", {both}, {{"start", ir::Dims{0}}, {"limit", ir::Dims{1}}, {"stride", ir::Dims{1}}});
    return builder.emit("reshape", {first}, {{"sizes", scale.meta().sizes}});
  }

  const LowerOptions& options_;
  const bool bytes_;
  std::map<std::uint32_t, std::size_t> uses_;
  std::map<std::string, std::set<std::uint32_t>> families_;
};

bool multiplies_bytes(const ir::Graph& graph) {
  for (const ir::NodePtr& node : graph.nodes())
    if (node->op_name() == "packed_int8_matmul" || node->op_name() == "packed_int8_conv")
      return true;
  return false;
}

}  // namespace

ir::Graph scales_in_memory(const ir::Graph& graph, const LowerOptions& options) {
  if (options.target != LowerOptions::Target::Cpu) return graph;
  Mover mover(graph, options, multiplies_bytes(graph));
  if (!mover.pays()) return graph;
  return ir::rewrite(graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) {
    return may_change(*node, options) ? mover.visit(rewriter, *node) : std::nullopt;
  });
}

}  // namespace heddle::jit
