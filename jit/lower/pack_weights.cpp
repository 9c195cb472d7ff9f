#include "jit/lower/pack_weights.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "ir/op.h"
#include "ir/passes/drop_operands.h"
#include "ir/passes/form_regions.h"
#include "ir/passes/loop_graphs.h"
#include "jit/lower/byte_products.h"
#include "jit/lower/decompose.h"
#include "jit/lower/fixed_values.h"
#include "jit/lower/group_panels.h"
#include "jit/lower/split_products.h"

namespace heddle::jit {
namespace {

using ir::Node;
using ir::Value;

constexpr std::int64_t kPair = 2;

class Packer {
 public:
  Packer(const ir::Graph& graph, const LowerOptions& options)
      : options_(options), fixed_(options), split_(graph, options) {}

  std::optional<std::vector<Value>> visit(ir::Rewriter& rewriter, const ir::NodePtr& node) {
    if (ir::is_loop(*node)) return visit_loop(rewriter, *node);
    if (node->op_name() == "slice") return split_.part(rewriter, *node);
    if (!is_packable(*node) || !fixed_.contains(node->input(1).node)) return std::nullopt;
    if (const auto bytes = byte_product_of(*node)) return byte_product(rewriter, *bytes);
    if (is_of_pairs(*node)) return product_of_pairs(rewriter, *node);
    if (const std::int64_t parts = parts_of(split_, *node)) {
      const Value packed = split_panels(rewriter, node->input(1), parts, region_of(*node));
      return split_product(rewriter, split_, *node, packed);
    }
    const Value packed = panels(rewriter, node->input(1), region_of(*node));
    if (node->op_name() == "grouped_matmul") return grouped(rewriter, *node, packed);
    return product(rewriter, *node, packed);
  }

 private:
  bool is_packable(const Node& node) const {
    const bool is_grouped = node.op_name() == "grouped_matmul";
    if ((node.op_name() != "matmul" && !is_grouped) || classify(node, options_) != NodeClass::Nest)
      return false;
    if (!unit_of(node, options_).fuse || ir::wants_fallback(node)) return false;
    const ir::TensorMeta& right = node.input(1).meta();
    const SymExpr count = right.count();
    const bool is_narrow =
        !is_grouped && (byte_product_of(node).has_value() || (is_of_pairs(node) && options_.amx));
    return right.rank() == (is_grouped ? 3 : 2) && count.is_constant() &&
           count.constant() >= (is_narrow ? kLeastPackedBytes : kLeastPackedCount);
  }

  bool is_of_pairs(const Node& node) const {
    return options_.bf16_dot && node.op_name() == "matmul" && node.flag("bf16");
  }

  std::vector<Value> product_of_pairs(ir::Rewriter& rewriter, const Node& node) {
    const std::string region = region_of(node);
    Value& left = narrowed_[{node.input(0), region}];
    if (!left) left = as_bf16(rewriter.builder(), rewriter.map(node.input(0)));
    return product_of_pairs(rewriter.builder(), node, left,
                            panels_of_pairs(rewriter, node.input(1), region));
  }

  static std::vector<Value> product_of_pairs(ir::GraphBuilder& builder, const Node& node,
                                             Value left, Value panels) {
    const std::int64_t columns = node.input(1).meta().sizes[1].constant();
    const Value sums = builder.emit("packed_bf16_matmul", {left, panels}, {{"columns", columns}});
    const DType dtype = node.output().dtype;
    if (dtype == DType::F32) return {sums};
    return {builder.emit("convert", {sums}, {{"dtype", dtype}})};
  }

  /// The panels of pairs of `right`, made once for a unit.
  Value panels_of_pairs(ir::Rewriter& rewriter, Value right, const std::string& region) {
    Value& packed = pairs_[{right, region}];
    if (!packed) {
      ir::GraphBuilder& builder = rewriter.builder();
      packed = emit_group_panels(builder, as_bf16(builder, rewriter.map(right)), kPair);
    }
    return packed;
  }

  /// The panels of `right`, made once for a unit.
  Value panels(ir::Rewriter& rewriter, Value right, const std::string& region) {
    Value& packed = panels_[{right, region}];
    // A kernel widens it again, and reads half the bytes; those of groups do not.
    const Value given = right.meta().rank() == 2 ? without_widening(right) : right;
    if (!packed) packed = emit_panels(rewriter.builder(), rewriter.map(given), width_of(given));
    return packed;
  }

  /// Parts of a product that is none of bytes or pairs.
  static std::int64_t parts_of(const SplitProducts& split, const Node& node) {
    return without_widening(node.input(1)) == node.input(1) ? split.parts_of(node) : 0;
  }

  /// Panels of all `parts` of the columns of `right`, made once for a unit.
  Value split_panels(ir::Rewriter& rewriter, Value right, std::int64_t parts,
                     const std::string& region) {
    Value& packed = split_panels_[{right, region, parts}];
    if (packed) return packed;
    ir::GraphBuilder& builder = rewriter.builder();
    const ir::Dims& sizes = right.meta().sizes;
    const std::int64_t width = SplitProducts::unit_columns(sizes[1].constant() / parts);
    const SymExpr panels = sizes[1].constant() / parts / width;
    const ir::Dims apart{sizes[0], parts, panels, width};
    const Value columns = builder.emit("reshape", {rewriter.map(right)}, {{"sizes", apart}});
    const Value turned =
        builder.emit("permute", {columns}, {{"perm", std::vector<std::int64_t>{2, 0, 1, 3}}});
    const ir::Dims whole{panels, sizes[0], parts * width};
    packed = builder.emit("reshape", {builder.emit("clone", {turned})}, {{"sizes", whole}});
    return packed;
  }

  static std::vector<Value> split_product(ir::Rewriter& rewriter, SplitProducts& split,
                                          const Node& node, Value packed) {
    const Value operands[] = {rewriter.map(node.input(0)), packed};
    const std::int64_t parts = split.parts_of(node);
    const std::int64_t width = packed.meta().sizes[2].constant() / parts;
    const Node* made = rewriter.builder().call("packed_split_matmul", operands,
                                               {{"parts", parts}, {"width", width}});
    std::vector<Value> results;
    for (std::uint32_t k = 0; k < made->outputs().size(); ++k) results.push_back(made->value(k));
    return split.replace(rewriter, node, std::move(results));
  }

  /// Of few columns a panel is as wide as they are, in whole lines.
  static std::int64_t width_of(Value matrix) {
    const SymExpr& columns = matrix.meta().sizes.back();
    if (!columns.is_constant()) return kPanelColumns;
    constexpr std::int64_t kLineBytes = 64;
    const std::int64_t line = kLineBytes / static_cast<std::int64_t>(size_of(matrix.meta().dtype));
    return std::min(kPanelColumns, (columns.constant() + line - 1) / line * line);
  }

  static std::vector<Value> product(ir::Rewriter& rewriter, const Node& node, Value packed) {
    const std::int64_t columns = node.input(1).meta().sizes[1].constant();
    return {rewriter.builder().emit("packed_matmul", {rewriter.map(node.input(0)), packed},
                                    {{"columns", columns}})};
  }

  static std::vector<Value> grouped(ir::Rewriter& rewriter, const Node& node, Value packed) {
    const std::int64_t columns = node.input(1).meta().sizes[2].constant();
    return {rewriter.builder().emit(
        "packed_grouped_matmul", {rewriter.map(node.input(0)), packed, rewriter.map(node.input(2))},
        {{"columns", columns}})};
  }

  std::vector<Value> byte_product(ir::Rewriter& rewriter, ByteProduct product) const {
    for (ByteOperand* operand : {&product.left, &product.right}) {
      operand->bytes = rewriter.map(operand->bytes);
      if (operand->zero) operand->zero = rewriter.map(operand->zero);
    }
    return {emit_byte_product(rewriter.builder(), product, options_)};
  }

  /// Matrices that are the same in each iteration, and in each run, are packed before the loop: their panels are
  /// operands after the others.
  std::optional<std::vector<Value>> visit_loop(ir::Rewriter& rewriter, const Node& node) {
    const ir::Graph& body = node.graph("body");
    const std::size_t first = ir::first_captured(node);
    std::vector<Value> operands = rewriter.map(node.inputs());
    // Panels in the body, by the matrix and in how many parts they are; kOfPairs: of pairs.
    constexpr std::int64_t kOfPairs = -1;
    std::map<std::pair<Value, std::int64_t>, Value> inside;
    SplitProducts split(body, options_);
    std::map<std::pair<Value, Value>, BytePanels> bytes;  // by the matrix and its zero point
    // What the loop reads around it for a value of the body, if that is the same in each run.
    const auto given_to = [&](Value value) -> Value {
      const auto inputs = body.inputs();
      const auto k = static_cast<std::size_t>(std::ranges::find(inputs, value) - inputs.begin());
      if (k == inputs.size() || k < first || !fixed_.contains(node.input(k).node)) return {};
      return node.input(k);
    };
    const ir::Graph packed = ir::rewrite(
        body,
        [&](ir::Rewriter& within, const ir::NodePtr& part) -> std::optional<std::vector<Value>> {
          if (part->op_name() == "slice") return split.part(within, *part);
          if (!is_packable(*part)) return std::nullopt;
          if (const auto product = byte_product_of(*part)) {
            const Value matrix = given_to(product->right.bytes);
            const Value zero = product->right.zero;
            const Value point = zero ? given_to(behind_conversion(zero)) : Value();
            if (!matrix || (zero && !point)) return std::nullopt;
            return product_in_loop(rewriter, within, operands, bytes[{matrix, point}], *product,
                                   {matrix, point});
          }
          const Value matrix = given_to(part->input(1));
          if (!matrix) return std::nullopt;
          const std::int64_t parts = is_of_pairs(*part) ? kOfPairs : parts_of(split, *part);
          Value& given = inside[{matrix, parts}];
          if (!given) {
            const std::string region = region_of(node);
            operands.push_back(parts == kOfPairs ? panels_of_pairs(rewriter, matrix, region)
                               : parts > 0       ? split_panels(rewriter, matrix, parts, region)
                                                 : panels(rewriter, matrix, region));
            const ir::TensorMeta& meta = operands.back().meta();
            given = within.builder().input(ir::TensorMeta::of(meta.dtype, meta.sizes));
          }
          if (parts == 0) return product(within, *part, given);
          if (parts > 0) return split_product(within, split, *part, given);
          const Value left = as_bf16(within.builder(), within.map(part->input(0)));
          return product_of_pairs(within.builder(), *part, left, given);
        });
    if (packed.identical(body)) return std::nullopt;
    ir::Attrs attrs = node.attrs();
    std::get<ir::GraphRef>(attrs.at("body")).graph = std::make_shared<const ir::Graph>(packed);
    if (const auto condition = attrs.find("condition"); condition != attrs.end()) {
      auto& graph = std::get<ir::GraphRef>(condition->second).graph;
      graph =
          std::make_shared<const ir::Graph>(ir::with_inputs(*graph, [&](ir::GraphBuilder& builder) {
            for (std::size_t k = node.inputs().size(); k < operands.size(); ++k)
              builder.input(ir::TensorMeta::of(operands[k].meta().dtype, operands[k].meta().sizes));
          }));
    }
    const Node* made = rewriter.builder().call(node.op(), operands, std::move(attrs));
    std::vector<Value> results;
    for (std::uint32_t k = 0; k < made->outputs().size(); ++k) results.push_back(made->value(k));
    return results;
  }

  /// What a zero point was widened from.
  static Value behind_conversion(Value zero) {
    return zero.node->op_name() == "convert" ? zero.node->input(0) : zero;
  }

  /// A product of bytes in a loop with panels that are made before it.
  /// @param panels  those as the body has them, once they are there
  /// @param right   the matrix and its zero point around the loop
  std::vector<Value> product_in_loop(ir::Rewriter& rewriter, ir::Rewriter& within,
                                     std::vector<Value>& operands, BytePanels& panels,
                                     const ByteProduct& product, ByteOperand right) const {
    if (!panels.panels) {
      right.bytes = rewriter.map(right.bytes);
      if (right.zero) {
        right.zero = rewriter.map(right.zero);
        if (right.zero.meta().dtype != DType::I32)
          right.zero = rewriter.builder().emit("convert", {right.zero}, {{"dtype", DType::I32}});
      }
      panels = emit_byte_panels(rewriter.builder(), right, options_);
      for (Value* value : {&panels.panels, &panels.sums, &panels.zero, &panels.pairs_fit}) {
        if (!*value) continue;
        operands.push_back(*value);
        const ir::TensorMeta& meta = value->meta();
        *value = within.builder().input(ir::TensorMeta::of(meta.dtype, meta.sizes));
      }
    }
    ByteOperand left{within.map(product.left.bytes), {}};
    if (product.left.zero) left.zero = within.map(product.left.zero);
    return {emit_byte_product(within.builder(), left, panels, options_)};
  }

  const LowerOptions& options_;
  FixedValues fixed_;
  /// By the matrix and the unit that reads it: units share no kernel.
  using ByUnit = std::map<std::pair<Value, std::string>, Value>;
  ByUnit panels_;
  ByUnit pairs_;
  std::map<std::tuple<Value, std::string, std::int64_t>, Value>
      split_panels_;  ///< of so many parts
  SplitProducts split_;
  ByUnit narrowed_;  ///< left operands in bf16
};

}  // namespace

Value emit_panels(ir::GraphBuilder& builder, Value matrix, std::int64_t width) {
  const DType dtype = matrix.meta().dtype;
  const ir::Dims around(matrix.meta().sizes.begin(), matrix.meta().sizes.end() - 1);
  const SymExpr columns = matrix.meta().sizes.back();
  const SymExpr panels = ceildiv(columns, width);
  const SymExpr missing = panels * width - columns;
  if (!missing.is_constant(0)) {
    const Value zero = builder.constant(is_floating(dtype) ? ir::Literal::scalar(dtype, 0)
                                                           : ir::Literal::scalar_int(dtype, 0));
    ir::Dims high(around.size(), 0);
    high.push_back(missing);
    matrix =
        builder.emit("pad", {matrix, zero}, {{"low", ir::Dims(high.size(), 0)}, {"high", high}});
  }
  ir::Dims split = around;
  split.insert(split.end(), {panels, SymExpr(width)});
  const Value parts = builder.emit("reshape", {matrix}, {{"sizes", split}});
  std::vector<std::int64_t> order(split.size());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[order.size() - 2], order[order.size() - 3]);
  return builder.emit("clone", {builder.emit("permute", {parts}, {{"perm", order}})});
}

ir::Graph pack_weights(const ir::Graph& graph, const LowerOptions& options) {
  if (options.target != LowerOptions::Target::Cpu) return graph;
  Packer packer(graph, options);
  return ir::drop_operands(ir::rewrite(graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) {
    return packer.visit(rewriter, node);
  }));
}

}  // namespace heddle::jit
