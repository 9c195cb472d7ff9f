#include "jit/lower/scales_in_memory.h"

#include <bit>
#include <cstdint>
#include <map>
#include <optional>

#include "ir/op.h"
#include "ir/passes/form_regions.h"

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

bool may_change(const Node& node, const LowerOptions& options) {
  return unit_of(node, options).fuse && !ir::wants_fallback(node);
}

/// Whether the second operand is the zero point of what is quantised, which is rounded before.
bool adds_zero_point(const Node& node) {
  return node.op_name() == "add" && node.output().dtype == DType::F32 &&
         node.input(0).node->op_name() == "round" && node.input(1).node->op_name() == "const" &&
         node.input(1).node->literal("value").count() == 1;
}

class Mover {
 public:
  explicit Mover(const ir::Graph& graph) {
    for (const ir::NodePtr& node : graph.nodes())
      for (const Value& input : node->inputs())
        if (const auto number = number_of(input)) ++uses_[*number];
    for (const ir::NodePtr& node : graph.nodes()) {
      if (!multiplies(*node)) continue;
      for (const Value& input : node->inputs())
        if (is_scale(input)) ++scales_;
    }
  }

  bool pays() const { return scales_ >= kFewScales; }

  std::optional<std::vector<Value>> visit(ir::Rewriter& rewriter, const Node& node) {
    ir::GraphBuilder& builder = rewriter.builder();
    if (adds_zero_point(node))
      return std::vector<Value>{
          builder.emit("add", {rewriter.map(node.input(0)), in_memory(builder, node.input(1))})};
    if (!multiplies(node) || (!is_scale(node.input(0)) && !is_scale(node.input(1))))
      return std::nullopt;
    std::vector<Value> operands;
    for (const Value& input : node.inputs())
      operands.push_back(is_scale(input) ? in_memory(builder, input) : rewriter.map(input));
    return std::vector<Value>{builder.emit("mul", {operands[0], operands[1]})};
  }

 private:
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

  std::map<std::uint32_t, std::size_t> uses_;
  std::size_t scales_ = 0;
};

bool multiplies_bytes(const ir::Graph& graph) {
  for (const ir::NodePtr& node : graph.nodes())
    if (node->op_name() == "packed_int8_matmul" || node->op_name() == "packed_int8_conv")
      return true;
  return false;
}

}  // namespace

ir::Graph scales_in_memory(const ir::Graph& graph, const LowerOptions& options) {
  if (options.target != LowerOptions::Target::Cpu || !multiplies_bytes(graph)) return graph;
  Mover mover(graph);
  if (!mover.pays()) return graph;
  return ir::rewrite(graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) {
    return may_change(*node, options) ? mover.visit(rewriter, *node) : std::nullopt;
  });
}

}  // namespace heddle::jit
