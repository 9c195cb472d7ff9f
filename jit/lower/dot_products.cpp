#include "jit/lower/dot_products.h"

#include <numeric>
#include <optional>

#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "jit/lower/decompose.h"
#include "jit/lower/fixed_values.h"
#include "jit/lower/neighbours.h"
#include "jit/nests/dot_conv.h"

namespace heddle::jit {
namespace {

using ir::Dims;
using ir::Node;
using ir::Value;
using Ints = std::vector<std::int64_t>;

/// Terms of a sum that fill a vector.
constexpr std::int64_t kLeastTerms = 8;
constexpr std::int64_t kFewColumns = 4;
/// Of each of several columns, from which on joining the lanes of its sum costs less than what vectors save.
constexpr std::int64_t kLeastTermsOfSeveral = 32;

class DotConverter {
 public:
  explicit DotConverter(const LowerOptions& options) : options_(options), fixed_(options) {}

  std::optional<std::vector<Value>> visit(ir::Rewriter& rewriter, const Node& node) {
    if (is_outer_product(node))
      return std::vector<Value>{rewriter.builder().emit(
          "mul", {rewriter.map(node.input(0)), rewriter.map(node.input(1))})};
    if (has_few_columns(node)) return as_conv(rewriter, node);
    if (!is_dot_product(node)) return std::nullopt;
    ir::GraphBuilder& builder = rewriter.builder();
    const Value left = rewriter.map(node.input(0));
    Dims rows = left.meta().sizes;
    rows.insert(rows.end() - 1, SymExpr(1));
    const Value apart = builder.emit("reshape", {left}, {{"sizes", std::move(rows)}});
    Value columns = turned(builder, rewriter.map(node.input(1)));
    if (!lies_along(node.input(1), rank_of(node, 1) - 2, options_))
      columns = builder.emit("clone", {columns});
    Dims sizes = columns.meta().sizes;
    sizes.insert(sizes.end() - 2, SymExpr(1));
    columns = builder.emit("reshape", {columns}, {{"sizes", std::move(sizes)}});
    const Value terms = builder.emit("mul", {apart, columns});
    const std::vector<std::int64_t> last{terms.meta().rank() - 1};
    return std::vector<Value>{builder.emit("reduce_sum", {terms}, {{"axes", last}})};
  }

 private:
  bool is_outer_product(const Node& node) const {
    if (node.op_name() != "matmul" || node.flag("bf16") || node.flag("int8")) return false;
    const ir::TensorMeta& left = node.input(0).meta();
    const ir::TensorMeta& right = node.input(1).meta();
    const DType dtype = node.output().dtype;
    return options_.vector_bytes != 64 && is_floating(dtype) && left.dtype == dtype &&
           right.dtype == dtype && left.rank() >= 2 && right.rank() >= 2 &&
           left.sizes.back().is_constant(1) && classify(node, options_) == NodeClass::Nest &&
           unit_of(node, options_).fuse && !ir::wants_fallback(node);
  }

  bool has_few_columns(const Node& node) {
    if (node.op_name() != "matmul" || node.flag("bf16") || node.flag("int8")) return false;
    const ir::TensorMeta& left = node.input(0).meta();
    const ir::TensorMeta& right = node.input(1).meta();
    const SymExpr& terms = right.sizes.front();
    const SymExpr& columns = right.sizes.back();
    return node.output().dtype == DType::F32 && left.dtype == DType::F32 &&
           right.dtype == DType::F32 && left.rank() >= 2 && right.rank() == 2 &&
           terms.is_constant() && columns.is_constant() &&
           pays_as_dot_conv(columns.constant(), terms.constant(), options_.vector_bytes) &&
           classify(node, options_) == NodeClass::Nest && unit_of(node, options_).fuse &&
           !ir::wants_fallback(node) && fixed_.contains(node.input(1).node) &&
           lies_along(node.input(0), rank_of(node, 0) - 1, options_);
  }

  /// As a convolution of one element: rows of the left operand are its positions.
  static std::vector<Value> as_conv(ir::Rewriter& rewriter, const Node& node) {
    ir::GraphBuilder& builder = rewriter.builder();
    const Value left = rewriter.map(node.input(0));
    const Dims& sizes = left.meta().sizes;
    const SymExpr rows = base::product(std::span(sizes).first(sizes.size() - 1));
    const Value x = builder.emit("reshape", {left}, {{"sizes", Dims{1, rows, sizes.back()}}});
    const Value right = rewriter.map(node.input(1));
    const Dims& matrix = right.meta().sizes;
    const Value filters =
        builder.emit("reshape", {right}, {{"sizes", Dims{1, matrix[0], matrix[1]}}});
    const Value turned =
        builder.emit("clone", {builder.emit("permute", {filters}, {{"perm", Ints{2, 0, 1}}})});
    const Value weights = builder.emit("permute", {turned}, {{"perm", Ints{0, 2, 1}}});
    const Value made = builder.emit("conv", {x, weights},
                                    {{"channels_last", true},
                                     {"strides", Ints{1}},
                                     {"pads_low", Ints{0}},
                                     {"pads_high", Ints{0}},
                                     {"dilations", Ints{1}},
                                     {"groups", std::int64_t{1}}});
    return {builder.emit("reshape", {made}, {{"sizes", node.output().sizes}})};
  }

  bool is_dot_product(const Node& node) {
    if (node.op_name() != "matmul" || node.flag("bf16") || node.flag("int8")) return false;
    const ir::TensorMeta& left = node.input(0).meta();
    const ir::TensorMeta& right = node.input(1).meta();
    const DType dtype = node.output().dtype;
    if ((dtype != DType::F32 && dtype != DType::F64) || left.dtype != dtype || right.dtype != dtype)
      return false;
    return left.rank() >= 2 && right.rank() >= 2 &&
           has_long_sums(left.sizes.back(), right.sizes.back()) &&
           classify(node, options_) == NodeClass::Nest && unit_of(node, options_).fuse &&
           !ir::wants_fallback(node) && lies_along(node.input(0), rank_of(node, 0) - 1, options_) &&
           (lies_along(node.input(1), rank_of(node, 1) - 2, options_) ||
            fixed_.contains(node.input(1).node));
  }

  static bool has_long_sums(const SymExpr& terms, const SymExpr& columns) {
    if (columns.is_constant(1)) return !terms.is_constant() || terms.constant() >= kLeastTerms;
    return columns.is_constant() && columns.constant() > 0 && columns.constant() <= kFewColumns &&
           terms.is_constant() && terms.constant() >= kLeastTermsOfSeveral * columns.constant();
  }

  static std::size_t rank_of(const Node& node, std::size_t operand) {
    return node.input(operand).meta().sizes.size();
  }

  /// The last two dimensions in the other order.
  static Value turned(ir::GraphBuilder& builder, Value matrices) {
    std::vector<std::int64_t> perm(matrices.meta().sizes.size());
    std::iota(perm.begin(), perm.end(), 0);
    std::swap(perm[perm.size() - 2], perm.back());
    return builder.emit("permute", {matrices}, {{"perm", std::move(perm)}});
  }

  const LowerOptions& options_;
  FixedValues fixed_;
};

}  // namespace

ir::Graph dot_products(const ir::Graph& graph, const LowerOptions& options) {
  if (options.target != LowerOptions::Target::Cpu) return graph;
  DotConverter converter(options);
  return ir::rewrite(graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) {
    return converter.visit(rewriter, *node);
  });
}

}  // namespace heddle::jit
