#include "jit/lower/pool_bytes.h"

#include <algorithm>
#include <cmath>
#include <ranges>
#include <vector>

#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "jit/lower/decompose.h"
#include "jit/nests/row_conv.h"

namespace heddle::jit {
namespace {

using ir::Node;
using ir::Value;

/// Whether each window has an element: those that begin in the padding end behind it.
bool has_no_empty_windows(const Node& pool) {
  const auto& kernel = pool.ints("kernel");
  for (const char* pads : {"pads_low", "pads_high"})
    for (std::size_t d = 0; d < kernel.size(); ++d)
      if (pool.ints(pads)[d] >= kernel[d]) return false;
  return std::ranges::all_of(pool.ints("dilations"), [](std::int64_t each) { return each == 1; });
}

/// Whether the numbers of what `x` is made of, from `bytes` on, grow with these.
bool grows(Value x, Value bytes) {
  for (; x != bytes; x = x.node->input(0)) {
    if (x.node->op_name() != "mul") continue;
    const Value scale = x.node->input(1);
    if (scale.node->op_name() != "const" || !is_floating(scale.meta().dtype)) return false;
    const double number = scale.node->literal("value").at(0);
    if (!(number > 0) || std::isinf(number)) return false;
  }
  return true;
}

}  // namespace

ir::Graph pool_bytes(const ir::Graph& graph, const LowerOptions& options) {
  if (options.target != LowerOptions::Target::Cpu) return graph;
  const auto is_free = [&](const Node& node) {
    return node.after().empty() && unit_of(node, options).fuse && !ir::wants_fallback(node);
  };
  return ir::rewrite(
      graph,
      [&](ir::Rewriter& rewriter, const ir::NodePtr& node) -> std::optional<std::vector<Value>> {
        if (node->op_name() != "max_pool" || !is_free(*node) || !has_no_empty_windows(*node))
          return std::nullopt;
        const Value x = node->input(0);
        const std::optional<Value> bytes = bytes_behind(x);
        if (!bytes || x.meta().dtype != DType::F32 || !grows(x, *bytes)) return std::nullopt;
        std::vector<const Node*> chain;
        for (Value value = x; value != *bytes; value = value.node->input(0)) {
          if (!is_free(*value.node)) return std::nullopt;
          chain.push_back(value.node);
        }
        ir::GraphBuilder& builder = rewriter.builder();
        Value made =
            builder.call(node->op(), std::vector<Value>{rewriter.map(*bytes)}, node->attrs())
                ->value();
        for (const Node* each : chain | std::views::reverse) {
          std::vector<Value> operands = rewriter.map(each->inputs());
          operands[0] = made;
          made = builder.call(each->op(), operands, each->attrs())->value();
        }
        return std::vector<Value>{made};
      });
}

}  // namespace heddle::jit
