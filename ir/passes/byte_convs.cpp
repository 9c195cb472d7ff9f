#include "ir/passes/byte_convs.h"

#include <optional>
#include <span>
#include <utility>

#include "ir/op.h"
#include "ir/passes/form_regions.h"

namespace heddle::ir {

namespace {

using Values = std::vector<Value>;

/// Products of numbers of at most 255 whose sum is below 2^24.
constexpr std::int64_t kMostProducts = (std::int64_t{1} << 24) / (255 * 255);
/// Channels of a group, and weights, that are worth a product of bytes.
constexpr std::int64_t kManyChannels = 16;
constexpr std::int64_t kManyWeights = 1024;

/// The dtype of the bytes that `value` widens.
std::optional<DType> bytes_behind(Value value) {
  while (value.node->op_name() == "reshape") value = value.node->input(0);
  if (value.node->op_name() != "convert") return {};
  const DType dtype = value.node->input(0).meta().dtype;
  return is_byte(dtype) ? std::optional(dtype) : std::nullopt;
}

/// Whether all of a zero point's numbers are those of `dtype`, bytes.
bool is_of(Value zero, DType dtype) {
  if (zero.node->op_name() != "const") return bytes_behind(zero) == dtype;
  const Literal& literal = zero.node->literal("value");
  const std::int64_t least = dtype == DType::I8 ? -128 : 0;
  for (std::int64_t k = 0; k < literal.count(); ++k)
    if (literal.at_int(k) < least || literal.at_int(k) > least + 255) return false;
  return true;
}

/// Whether it is at most 255 in size.
bool is_small(Value value) {
  if (bytes_behind(value)) return true;
  if (value.node->op_name() != "sub") return false;
  const auto dtype = bytes_behind(value.node->input(0));
  return dtype && is_of(value.node->input(1), *dtype);
}

bool adds_few_bytes(const Node& node) {
  if (node.op_name() != "conv" || node.output().dtype != DType::I32 || wants_fallback(node))
    return false;
  const Dims& weights = node.input(1).meta().sizes;
  const SymExpr products = base::product(std::span(weights).subspan(1));
  const bool few = products.is_constant() && products.constant() <= kMostProducts;
  if (!few) return false;
  const bool narrow = node.integer("groups") != 1 || weights[1].constant() < kManyChannels ||
                      (weights[0] * products).as_constant().value_or(kManyWeights) < kManyWeights;
  return narrow && is_small(node.input(0)) && is_small(node.input(1));
}

/// A bias [m] beside the result.
Value by_channel(GraphBuilder& builder, const Node& conv, Value bias) {
  if (conv.flag("channels_last")) return bias;
  Dims sizes(static_cast<std::size_t>(conv.output().rank()) - 1, SymExpr(1));
  sizes[0] = conv.input(1).meta().sizes[0];
  return builder.emit("reshape", {bias}, {{"sizes", std::move(sizes)}});
}

}  // namespace

Graph byte_convs(const Graph& graph) {
  return rewrite(graph, [](Rewriter& rewriter, const NodePtr& node) -> std::optional<Values> {
    if (!adds_few_bytes(*node)) return {};
    GraphBuilder& builder = rewriter.builder();
    Values operands = rewriter.map(node->inputs());
    for (const std::size_t k : {0, 1})
      operands[k] = builder.emit("convert", {operands[k]}, {{"dtype", DType::F32}});
    Value bias;
    if (operands.size() > 2) bias = std::exchange(operands[2], Value());
    const Value sums = builder.call(node->op(), operands, node->attrs())->value();
    const Value result =
        builder.emit("convert", {builder.emit("round", {sums})}, {{"dtype", DType::I32}});
    if (!bias) return Values{result};
    return Values{builder.emit("add", {result, by_channel(builder, *node, bias)})};
  });
}

}  // namespace heddle::ir
