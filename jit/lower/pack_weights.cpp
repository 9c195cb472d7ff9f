#include "jit/lower/pack_weights.h"

#include <map>
#include <unordered_map>

#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "jit/lower/decompose.h"

namespace heddle::jit {
namespace {

using ir::Node;
using ir::Value;

/// Smaller matrices stay in the caches in any order. Kernels of so few elements may also be joined with others,
/// which do not run once.
constexpr std::int64_t kMinCount = 4097;

class Packer {
 public:
  explicit Packer(const LowerOptions& options) : options_(options) {}

  std::optional<std::vector<Value>> visit(ir::Rewriter& rewriter, const ir::NodePtr& node) {
    if (!is_packable(*node)) return std::nullopt;
    const Value right = node->input(1);
    auto known = panels_.find({right, region_of(*node)});
    if (known == panels_.end()) {
      const Value packed = pack(rewriter.builder(), rewriter.map(without_widening(right)));
      known = panels_.emplace(std::pair(right, region_of(*node)), packed).first;
    }
    const std::int64_t columns = right.meta().sizes[1].constant();
    return std::vector<Value>{rewriter.builder().emit(
        "packed_matmul", {rewriter.map(node->input(0)), known->second}, {{"columns", columns}})};
  }

 private:
  bool is_packable(const Node& node) {
    if (node.op_name() != "matmul" || classify(node, options_) != NodeClass::Nest) return false;
    if (!unit_of(node, options_).fuse || ir::wants_fallback(node)) return false;
    const ir::TensorMeta& right = node.input(1).meta();
    const SymExpr count = right.count();
    return right.rank() == 2 && count.is_constant() && count.constant() >= kMinCount &&
           is_fixed(node.input(1).node);
  }

  /// Whether the node has the same value in each run and pack() may inline it.
  bool is_fixed(const Node* node) {
    const auto [found, is_new] = fixed_.emplace(node, false);
    if (!is_new) return found->second;
    const std::string_view name = node->op_name();
    bool fixed = name == "param" || name == "const";
    if (!fixed && node->after().empty() && !node->inputs().empty()) {
      const NodeClass kind = classify(*node, options_);
      fixed = kind == NodeClass::View || kind == NodeClass::Element;
      for (const Value& input : node->inputs()) fixed = fixed && input && is_fixed(input.node);
    }
    return fixed_[node] = fixed;
  }

  /// What a conversion from 16 bits to f32 reads: the kernel widens it again, and reads half the bytes.
  static Value without_widening(Value matrix) {
    if (matrix.node->op_name() != "convert" || matrix.meta().dtype != DType::F32) return matrix;
    const Value narrow = matrix.node->input(0);
    const DType dtype = narrow.meta().dtype;
    return dtype == DType::F16 || dtype == DType::BF16 ? narrow : matrix;
  }

  static Value pack(ir::GraphBuilder& builder, Value matrix) {
    const DType dtype = matrix.meta().dtype;
    const SymExpr depth = matrix.meta().sizes[0];
    const SymExpr columns = matrix.meta().sizes[1];
    const SymExpr panels = ceildiv(columns, kPanelColumns);
    const SymExpr missing = panels * kPanelColumns - columns;
    if (!missing.is_constant(0)) {
      const Value zero = builder.constant(is_floating(dtype) ? ir::Literal::scalar(dtype, 0)
                                                             : ir::Literal::scalar_int(dtype, 0));
      matrix = builder.emit("pad", {matrix, zero},
                            {{"low", ir::Dims{0, 0}}, {"high", ir::Dims{0, missing}}});
    }
    const ir::Dims split{depth, panels, SymExpr(kPanelColumns)};
    const Value parts = builder.emit("reshape", {matrix}, {{"sizes", split}});
    const std::vector<std::int64_t> order{1, 0, 2};
    return builder.emit("clone", {builder.emit("permute", {parts}, {{"perm", order}})});
  }

  const LowerOptions& options_;
  std::unordered_map<const Node*, bool> fixed_;
  /// By the matrix and the unit that reads it: units share no kernel.
  std::map<std::pair<Value, std::string>, Value> panels_;
};

}  // namespace

ir::Graph pack_weights(const ir::Graph& graph, const LowerOptions& options) {
  if (options.target != LowerOptions::Target::Cpu) return graph;
  Packer packer(options);
  return ir::rewrite(graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) {
    return packer.visit(rewriter, node);
  });
}

}  // namespace heddle::jit
