#include "jit/lower/float8_products.h"

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "jit/lower/decompose.h"
#include "jit/lower/fixed_values.h"

namespace heddle::jit {
namespace {

using ir::GraphBuilder;
using ir::Node;
using ir::Value;
using Values = std::vector<Value>;

bool is_op(Value value, std::string_view name) { return value.node->op_name() == name; }

/// A right operand: codes times a scale, and whether rows and columns are exchanged after that.
struct Scaled {
  Value codes;
  Value scale;
  bool turned = false;
};

/// 8-bit floats as f32.
Value codes_of(Value value) {
  if (!is_op(value, "convert") || value.meta().dtype != DType::F32) return {};
  const Value codes = value.node->input(0);
  return is_float8(codes.meta().dtype) ? codes : Value();
}

std::optional<Scaled> scaled(Value right) {
  Scaled found;
  found.turned = is_op(right, "permute");
  if (found.turned) right = right.node->input(0);
  if (!is_op(right, "mul") || right.meta().rank() != 2) return {};
  for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
    found.codes = codes_of(right.node->input(k));
    found.scale = right.node->input(1 - k);
    if (found.codes && found.codes.meta().sizes == right.meta().sizes) return found;
  }
  return {};
}

/// Whether it is one number for each column of the product, or one for all.
bool is_of_columns(const Scaled& right) {
  const ir::Dims& sizes = right.scale.meta().sizes;
  if (right.scale.meta().dtype != DType::F32) return false;
  const std::size_t depth = right.turned ? 1 : 0;  // counted in the two dimensions of the codes
  for (std::size_t k = 0; k < sizes.size(); ++k)
    if (k + 2 - sizes.size() == depth && !sizes[k].is_constant(1)) return false;
  return sizes.size() <= 2;
}

class Mover {
 public:
  explicit Mover(const LowerOptions& options) : fixed_(options) {}

  std::optional<Values> visit(ir::Rewriter& rewriter, const Node& node) {
    if (node.op_name() != "matmul" || ir::wants_fallback(node)) return {};
    if (node.output().dtype != DType::F32 || node.input(0).meta().dtype != DType::F32) return {};
    const auto right = scaled(node.input(1));
    if (!right || !is_of_columns(*right) || !fixed_.contains(node.input(1).node)) return {};
    GraphBuilder& b = rewriter.builder();
    const Value wide = widened(rewriter, *right, node);
    const Value product = b.emit("matmul", {rewriter.map(node.input(0)), wide}, node.attrs());
    const ir::Dims columns{right->scale.meta().count()};
    const Value scale = b.emit("reshape", {rewriter.map(right->scale)}, {{"sizes", columns}});
    return Values{b.emit("mul", {product, scale})};
  }

 private:
  /// Once for all products of a unit, which then share panels.
  Value widened(ir::Rewriter& rewriter, const Scaled& right, const Node& node) {
    Value& wide = wide_[{node.input(1), region_of(node)}];
    if (wide) return wide;
    GraphBuilder& b = rewriter.builder();
    Value codes = rewriter.map(right.codes);
    if (right.turned)
      codes = b.emit("permute", {codes}, {{"perm", std::vector<std::int64_t>{1, 0}}});
    wide = b.emit("convert", {codes}, {{"dtype", DType::F32}});
    return wide;
  }

  std::map<std::pair<Value, std::string>, Value> wide_;
  FixedValues fixed_;
};

}  // namespace

ir::Graph float8_products(const ir::Graph& graph, const LowerOptions& options) {
  if (options.target != LowerOptions::Target::Cpu) return graph;
  Mover mover(options);
  return ir::rewrite(graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) {
    return mover.visit(rewriter, *node);
  });
}

}  // namespace heddle::jit
