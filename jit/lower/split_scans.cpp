#include "jit/lower/split_scans.h"

#include <algorithm>

#include "ir/analysis/unbacked.h"
#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "jit/lower/reduction_parts.h"

namespace heddle::jit {
namespace {

using base::SymExpr;
using ir::Node;
using ir::Value;
using Values = std::vector<Value>;

/// The operand of a scan as [outer, length, inner].
struct Scanned {
  SymExpr outer = 1, length = 1, inner = 1;

  explicit Scanned(const Node& node) {
    const ir::Dims& sizes = node.output().sizes;
    const std::int64_t axis = node.integer("axis");
    const auto at = static_cast<std::size_t>(axis < 0 ? axis + node.output().rank() : axis);
    for (std::size_t d = 0; d < sizes.size(); ++d)
      (d < at ? outer : d == at ? length : inner) *= sizes[d];
  }
};

/// Elements of a part; none where the scan stays as it is.
std::optional<std::int64_t> part_of(const Node& node) {
  if (node.op_name() != "cumsum" || ir::wants_fallback(node)) return std::nullopt;
  const Scanned scanned(node);
  if (!scanned.length.is_constant() || !scanned.inner.is_constant() ||
      scanned.outer.is_constant(0) || ir::is_unbacked(scanned.outer))
    return std::nullopt;
  const std::int64_t length = scanned.length.constant();
  const std::int64_t inner = scanned.inner.constant();
  const std::int64_t outer = scanned.outer.as_constant().value_or(1);
  if (inner == 1) {
    if (length < kLongRow || outer >= kManyRows) return std::nullopt;
    return row_part(length);
  }
  if (inner == 0 || length < kLeastColumn || outer * inner > kBusyThreads / 4) return std::nullopt;
  const std::int64_t parts = std::min(kBusyThreads / (outer * inner), length / kLeastPart);
  const std::int64_t least = (length + parts - 1) / parts;
  for (std::int64_t part = least; part < 2 * least; ++part)
    if (length % part == 0) return part;
  return least;
}

/// The sums of the parts before each, [outer, parts, 1, inner], of parts [outer, parts, elements, inner].
Value before_parts(ir::GraphBuilder& b, Value parts, bool reverse) {
  const ir::Dims sizes = parts.meta().sizes;
  const Value sums =
      b.emit("reduce_sum", {parts}, {{"axes", std::vector<std::int64_t>{2}}, {"keepdims", false}});
  const auto scanned = [&](Value x, std::int64_t axis) {
    return b.emit("cumsum", {x}, {{"axis", axis}, {"exclusive", true}, {"reverse", reverse}});
  };
  Value before = sums;
  if (sizes[3].is_constant(1) || sizes[1].constant() <= kFewParts) {
    before = scanned(sums, 1);
  } else {
    const ir::Attrs turn = {{"perm", std::vector<std::int64_t>{0, 2, 1}}};
    before = b.emit("permute", {scanned(b.emit("permute", {sums}, turn), 2)}, turn);
  }
  return reshaped(b, before, {sizes[0], sizes[1], 1, sizes[3]});
}

Value split_scan(ir::GraphBuilder& b, const Node& node, Value x, std::int64_t part) {
  const Scanned scanned(node);
  const DType dtype = x.meta().dtype;
  x = converted(b, x, partial_dtype(ir::ReduceOp::Sum, dtype));
  x = reshaped(b, x, {scanned.outer, scanned.length, scanned.inner});
  const std::int64_t count = (scanned.length.constant() + part - 1) / part;
  const SymExpr sizes[] = {count, part};
  x = in_parts(b, x, 1, sizes,
               [&] { return reduction_identity(b, ir::ReduceOp::Sum, x.meta().dtype); });
  const bool reverse = node.flag("reverse");
  const Value within = b.emit(
      "cumsum", {x},
      {{"axis", std::int64_t{2}}, {"exclusive", node.flag("exclusive")}, {"reverse", reverse}});
  Value sums = converted(b, b.emit("add", {within, before_parts(b, x, reverse)}), dtype);
  sums = reshaped(b, sums, {scanned.outer, count * part, scanned.inner});
  if (!scanned.length.is_constant(count * part))
    sums = b.emit("slice", {sums},
                  {{"start", ir::Dims{0, 0, 0}},
                   {"limit", ir::Dims{scanned.outer, scanned.length, scanned.inner}},
                   {"stride", std::vector<std::int64_t>{1, 1, 1}}});
  return reshaped(b, sums, node.output().sizes);
}

}  // namespace

ir::Graph split_scans(const ir::Graph& graph, const LowerOptions& options) {
  if (options.target != LowerOptions::Target::Cuda) return graph;
  return ir::rewrite(
      graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) -> std::optional<Values> {
        const auto part = part_of(*node);
        if (!part) return std::nullopt;
        return Values{split_scan(rewriter.builder(), *node, rewriter.map(node->input(0)), *part)};
      });
}

}  // namespace heddle::jit
