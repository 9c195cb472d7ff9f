#include "jit/lower/requantise.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "jit/lower/decompose.h"
#include "jit/lower/fixed_values.h"
#include "jit/nests/row_conv.h"

namespace heddle::jit {
namespace {

using ir::Node;
using ir::Value;

constexpr double kMostScale = 0x1p60;

class Requantiser {
 public:
  Requantiser(const ir::Graph& graph, const LowerOptions& options)
      : options_(options), fixed_(options) {
    for (const ir::NodePtr& node : graph.nodes()) {
      for (const Value& input : node->inputs())
        if (input) ++uses_[input.node];
      if (node->op_name() == "round") is_rounded_.insert(node->input(0).node);
    }
    for (const Value& output : graph.outputs()) ++uses_[output.node];
  }

  std::optional<std::vector<Value>> visit(ir::Rewriter& rewriter, const Node& node) {
    if (is_conv_of_bytes(node)) return std::vector<Value>{conv_of_bytes(rewriter, node, 1)};
    if (node.op_name() != "div" || !is_usual(node.input(1)) || !is_rounded_.contains(&node) ||
        !is_inner(node))
      return std::nullopt;
    if (!is_scaled(node.input(0)) || node.input(0).meta().sizes != node.output().sizes)
      return std::nullopt;
    return std::vector<Value>{scaled(rewriter, node.input(0), node.input(1))};
  }

 private:
  static bool is_number(Value value) {
    return value.node->op_name() == "const" && value.meta().dtype == DType::F32 &&
           value.meta().count().is_constant(1);
  }
  static double number_of(Value value) { return value.node->literal("value").at(0); }

  /// Whether it is a scale that leaves what is multiplied or divided by it finite, and normal if it counts.
  static bool is_usual(Value value) {
    return is_number(value) && number_of(value) >= 1 / kMostScale && number_of(value) <= kMostScale;
  }

  /// A number that bounds what is clamped, or none.
  static bool is_bound(Value value) { return !value || is_number(value); }

  /// Whether one node reads it, with which it may be fused.
  bool is_inner(const Node& node) const {
    const auto uses = uses_.find(&node);
    return uses != uses_.end() && uses->second == 1 && node.after().empty() &&
           unit_of(node, options_).fuse && !ir::wants_fallback(node);
  }

  bool is_fixed(Value value) {
    return value.meta().dtype == DType::F32 && fixed_.contains(value.node);
  }

  static bool is_sums(Value value) {
    if (value.node->op_name() != "convert" || value.meta().dtype != DType::F32) return false;
    Value sums = value.node->input(0);
    while (sums.node->op_name() == "sub" || sums.node->op_name() == "add")
      sums = sums.node->input(0);
    return sums.node->op_name() == "packed_int8_matmul" ||
           sums.node->op_name() == "packed_int8_conv";
  }

  /// Whether the convolution, one of each channel by itself or of few channels, is of bytes.
  bool is_conv_of_bytes(const Node& node) {
    return node.op_name() == "conv" && has_scale(node.input(0)) && is_row_conv(node) &&
           is_fixed(node.input(1)) && (!has_bias(node) || is_fixed(node.input(2))) &&
           is_inner(node);
  }
  static bool has_bias(const Node& conv) { return conv.inputs().size() > 2 && conv.input(2); }
  /// Whether a byte that was made a number is multiplied by a constant.
  static bool has_scale(Value x) {
    return x.node->op_name() == "mul" && is_usual(x.node->input(1)) &&
           x.node->input(0).node->op_name() == "convert" && bytes_behind(x);
  }

  /// The same of numbers without their scale, which weights are multiplied by.
  Value conv_of_bytes(ir::Rewriter& rewriter, const Node& node, double divisor) {
    ir::GraphBuilder& b = rewriter.builder();
    const Node& x = *node.input(0).node;
    const Value weights = multiplied(rewriter, node.input(1), number_of(x.input(1)) / divisor);
    Value bias = has_bias(node) ? rewriter.map(node.input(2)) : Value();
    if (bias && divisor != 1) bias = multiplied(rewriter, node.input(2), 1 / divisor);
    return b.emit("conv", {rewriter.map(x.input(0)), weights, bias}, node.attrs());
  }
  Value multiplied(ir::Rewriter& rewriter, Value value, double factor) {
    ir::GraphBuilder& b = rewriter.builder();
    const Node& node = *value.node;
    if (node.op_name() == "permute" || node.op_name() == "clone")
      return b.emit(node.op_name(), {multiplied(rewriter, node.input(0), factor)}, node.attrs());
    const Value number = b.constant(ir::Literal::scalar(DType::F32, factor));
    return b.emit("mul", {rewriter.map(value), number});
  }

  /// Whether what is computed here can be divided by way of the numbers that it is made of.
  bool is_scaled(Value value) {
    const Node& node = *value.node;
    if (!is_inner(node)) return false;
    const std::string_view name = node.op_name();
    if (name == "permute" || name == "reshape" || name == "relu") return is_scaled(node.input(0));
    if (name == "clamp")
      return is_bound(node.input(1)) && is_bound(node.input(2)) && is_scaled(node.input(0));
    if (name == "add")
      return (is_fixed(node.input(1)) && is_scaled(node.input(0))) ||
             (is_fixed(node.input(0)) && is_scaled(node.input(1)));
    return (name == "mul" && is_sums(node.input(0)) && is_fixed(node.input(1))) ||
           is_conv_of_bytes(node);
  }

  /// value / divisor in the new graph.
  Value scaled(ir::Rewriter& rewriter, Value value, Value divisor) {
    ir::GraphBuilder& b = rewriter.builder();
    const Node& node = *value.node;
    const auto map = [&](std::size_t k) { return rewriter.map(node.input(k)); };
    const auto inner = [&](std::size_t k) { return scaled(rewriter, node.input(k), divisor); };
    const auto fixed = [&](std::size_t k) { return quotient(rewriter, node.input(k), divisor); };
    const std::string_view name = node.op_name();
    if (name == "conv") return conv_of_bytes(rewriter, node, number_of(divisor));
    const auto bound = [&](std::size_t k) { return node.input(k) ? fixed(k) : Value(); };
    if (name == "clamp") return b.emit("clamp", {inner(0), bound(1), bound(2)});
    if (name == "mul") return b.emit("mul", {map(0), fixed(1)});
    if (name == "add") {
      const bool bias_first = is_fixed(node.input(0));
      return bias_first ? b.emit("add", {inner(1), fixed(0)}) : b.emit("add", {inner(0), fixed(1)});
    }
    return b.emit(name, {inner(0)}, node.attrs());
  }

  Value quotient(ir::Rewriter& rewriter, Value value, Value divisor) {
    ir::GraphBuilder& b = rewriter.builder();
    if (const auto number = known(value)) {
      ir::Literal literal(DType::F32, std::vector<std::int64_t>(value.meta().sizes.size(), 1));
      literal.set(0, *number / number_of(divisor));
      return b.constant(std::move(literal));
    }
    return b.emit("div", {rewriter.map(value), rewriter.map(divisor)});
  }

  /// One number, or a product of such.
  static std::optional<double> known(Value value) {
    if (is_number(value)) return number_of(value);
    if (value.node->op_name() == "reshape") return known(value.node->input(0));
    if (value.node->op_name() != "mul" || !value.meta().count().is_constant(1)) return {};
    const auto left = known(value.node->input(0));
    const auto right = known(value.node->input(1));
    if (!left || !right) return {};
    return *left * *right;
  }

  const LowerOptions& options_;
  FixedValues fixed_;
  std::unordered_map<const Node*, std::size_t> uses_;
  std::unordered_set<const Node*> is_rounded_;
};

}  // namespace

ir::Graph requantise(const ir::Graph& graph, const LowerOptions& options) {
  const auto rounds = [](const ir::NodePtr& node) { return node->op_name() == "round"; };
  if (options.target != LowerOptions::Target::Cpu || std::ranges::none_of(graph.nodes(), rounds))
    return graph;
  Requantiser requantiser(graph, options);
  return ir::rewrite(graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) {
    return requantiser.visit(rewriter, *node);
  });
}

}  // namespace heddle::jit
