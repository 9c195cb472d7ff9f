#include "jit/lower/split_sorts.h"

#include <limits>

#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "jit/lower/reduction_parts.h"
#include "jit/nests/best_in_lanes.h"

namespace heddle::jit {
namespace {

using base::SymExpr;
using ir::Node;
using ir::Value;

/// Rows up to this length are sorted at once.
constexpr std::int64_t kLongestRow = 2 * kSortedRun;
/// Runs that a merge joins.
constexpr std::int64_t kRuns = 16;
/// Merges of a row of unknown length: the last joins all runs there are.
constexpr int kMerges = 3;
/// The most elements of a run that topk takes: fewer than all by far.
constexpr std::int64_t kMostTaken = kSortedRun / 8;
/// Rows on the CPU that have fewer elements, or elements nearer to each other, are sorted where they lie.
constexpr std::int64_t kLeastSorted = 32;
constexpr std::int64_t kLeastStep = 8;

bool is_long(const SymExpr& length) {
  return !length.is_constant() || length.constant() > kLongestRow;
}

/// Keys and what goes with them, along the last dimension.
struct Row {
  Value keys;
  Value order;
};

/// One sort or topk, its axis the last one.
class SortSplitter {
 public:
  SortSplitter(ir::GraphBuilder& builder, bool descending)
      : builder_(builder), descending_(descending) {}

  Row sorted(Value x) const {
    const SymExpr length = x.meta().sizes.back();
    if (!is_long(length)) return row_of("sort", x, {{"descending", descending_}});
    const Value runs = in_runs(x);
    const Row each = row_of("sort", runs, {{"descending", descending_}});
    Row row = joined({each.keys, with_run(each.order)});
    std::int64_t run = kSortedRun;
    if (length.is_constant()) {
      for (; run < length.constant(); run *= kRuns) row = merged(row, run, kRuns);
    } else {
      for (int k = 1; k < kMerges; ++k, run *= kRuns) row = merged(row, run, kRuns);
      row = merged(row, run, ceildiv(length, run));
    }
    return {first(row.keys, length), first(row.order, length)};
  }

  Row best(Value x, const SymExpr& wanted) const {
    const SymExpr length = x.meta().sizes.back();
    const bool few = wanted.is_constant() && wanted.constant() <= kMostTaken;
    if (is_long(length) && !few) {
      const Row all = sorted(x);
      return {first(all.keys, wanted), first(all.order, wanted)};
    }
    if (!is_long(length)) return top(x, wanted);
    const Row each = top(in_runs(x), wanted);
    const Row taken = joined({each.keys, with_run(each.order)});
    // What is left of a row of unknown length may be long again.
    const Row last = length.is_constant() ? best(taken.keys, wanted) : cut(taken.keys, wanted);
    const std::int64_t axis = x.meta().rank() - 1;
    return {last.keys,
            builder_.emit("gather_elements", {taken.order, last.order}, {{"axis", axis}})};
  }

 private:
  Row row_of(std::string_view op, Value x, ir::Attrs attrs) const {
    attrs["axis"] = x.meta().rank() - 1;
    const Node* node = builder_.call(op, {x}, std::move(attrs));
    return {node->value(0), node->value(1)};
  }
  Row top(Value x, const SymExpr& wanted) const {
    return row_of("topk", x, {{"k", wanted}, {"largest", descending_}});
  }
  Row cut(Value x, const SymExpr& wanted) const {
    const Row all = sorted(x);
    return {first(all.keys, wanted), first(all.order, wanted)};
  }

  Value reshape(Value x, ir::Dims sizes) const {
    return builder_.emit("reshape", {x}, {{"sizes", std::move(sizes)}});
  }

  /// [..., n] as [..., runs, elements of a run]: what is missing of the last run comes after everything.
  Value in_runs(Value x) const {
    const ir::Dims& sizes = x.meta().sizes;
    const SymExpr parts[] = {ceildiv(sizes.back(), kSortedRun), kSortedRun};
    return in_parts(builder_, x, sizes.size() - 1, parts, [&] { return last_key(x.meta().dtype); });
  }

  Value last_key(DType dtype) const {
    if (is_floating(dtype)) return builder_.scalar(dtype, std::numeric_limits<double>::quiet_NaN());
    const IntegerRange range = integer_range(dtype);
    return builder_.constant(ir::Literal::scalar_int(dtype, descending_ ? range.low : range.high));
  }

  /// Positions in runs [..., runs, k] as positions in the row.
  Value with_run(Value order) const {
    const ir::Dims& sizes = order.meta().sizes;
    const Value run = builder_.emit(
        "iota", {}, {{"sizes", ir::Dims{sizes[sizes.size() - 2], 1}}, {"axis", std::int64_t{0}}});
    const Value length = builder_.constant(ir::Literal::scalar_int(DType::I64, kSortedRun));
    return builder_.emit("add", {order, builder_.emit("mul", {run, length})});
  }

  /// [..., runs, k] as [..., runs * k].
  Value flat(Value x) const {
    ir::Dims sizes = x.meta().sizes;
    const SymExpr last = sizes.back();
    sizes.pop_back();
    sizes.back() = sizes.back() * last;
    return reshape(x, std::move(sizes));
  }
  Row joined(const Row& runs) const { return {flat(runs.keys), flat(runs.order)}; }

  Row merged(const Row& row, std::int64_t run, const SymExpr& most) const {
    const SymExpr count = min(most, ceildiv(row.keys.meta().sizes.back(), run));
    const Node* node = builder_.call("merge_runs", {row.keys, row.order},
                                     {{"run", run}, {"count", count}, {"descending", descending_}});
    return {node->value(0), node->value(1)};
  }

  Value first(Value x, const SymExpr& count) const {
    ir::Dims limit = x.meta().sizes;
    if (limit.back() == count) return x;
    limit.back() = count;
    const ir::Dims start(limit.size(), SymExpr(0)), stride(limit.size(), SymExpr(1));
    return builder_.emit("slice", {x}, {{"start", start}, {"limit", limit}, {"stride", stride}});
  }

  ir::GraphBuilder& builder_;
  const bool descending_;
};

/// Exchanges dimension `axis` and the last one.
Value exchanged(ir::GraphBuilder& builder, Value x, std::int64_t axis) {
  const std::int64_t last = x.meta().rank() - 1;
  if (axis == last) return x;
  std::vector<std::int64_t> perm;
  for (std::int64_t d = 0; d <= last; ++d) perm.push_back(d == axis ? last : d == last ? axis : d);
  return builder.emit("permute", {x}, {{"perm", perm}});
}

std::int64_t axis_of(const Node& node) {
  const std::int64_t axis = node.integer("axis");
  return axis < 0 ? axis + node.input(0).meta().rank() : axis;
}

bool is_sort(const Node& node) {
  return node.op().lowering.nest == "sort" && !ir::wants_fallback(node);
}

bool is_split_sort(const Node& node) {
  return is_sort(node) &&
         is_long(node.input(0).meta().sizes[static_cast<std::size_t>(axis_of(node))]);
}

/// Whether the elements of a row, which are read several times, lie in a cache line each.
bool lies_across(const Node& node) {
  if (!is_sort(node) || takes_best_in_lanes(node)) return false;
  const ir::Dims& sizes = node.input(0).meta().sizes;
  const auto axis = static_cast<std::size_t>(axis_of(node));
  if (sizes[axis].is_constant() && sizes[axis].constant() < kLeastSorted) return false;
  SymExpr step = 1;
  for (std::size_t d = axis + 1; d < sizes.size(); ++d) step *= sizes[d];
  const bool few = node.op_name() == "topk";
  return !step.is_constant() || step.constant() >= (few ? 2 * kLeastStep : kLeastStep);
}

/// The same with its rows brought side by side first.
std::vector<Value> turned(ir::GraphBuilder& builder, const Node& node, Value x) {
  const std::int64_t axis = axis_of(node);
  ir::Attrs attrs = node.attrs();
  attrs["axis"] = x.meta().rank() - 1;
  const Value rows = builder.emit("clone", {exchanged(builder, x, axis)});
  const Node* sorted = builder.call(node.op_name(), {rows}, std::move(attrs));
  return {exchanged(builder, sorted->value(0), axis), exchanged(builder, sorted->value(1), axis)};
}

/// The same of a matrix that has its rows, of which the axis is the last one.
std::vector<Value> as_matrix(ir::GraphBuilder& builder, const Node& node, Value x) {
  const SymExpr length = x.meta().sizes.back();
  ir::Dims rows{1};
  for (std::size_t d = 0; d + 1 < x.meta().sizes.size(); ++d) rows[0] *= x.meta().sizes[d];
  rows.push_back(length);
  ir::Attrs attrs = node.attrs();
  attrs["axis"] = std::int64_t{1};
  const Value matrix = builder.emit("reshape", {x}, {{"sizes", rows}});
  const Node* sorted = builder.call(node.op_name(), {matrix}, std::move(attrs));
  const auto back = [&](std::uint32_t k) {
    return builder.emit("reshape", {sorted->value(k)}, {{"sizes", node.output(k).sizes}});
  };
  return {back(0), back(1)};
}

/// Whether rows go along lanes that as_matrix() must make rows of a matrix first.
bool lies_in_tensor(const Node& node) {
  return is_sort(node) && takes_best_in_lanes(node) && node.input(0).meta().rank() != 2 &&
         axis_of(node) == node.input(0).meta().rank() - 1;
}

}  // namespace

ir::Graph split_sorts(const ir::Graph& graph, const LowerOptions& options) {
  const bool cuda = options.target == LowerOptions::Target::Cuda;
  return ir::rewrite(
      graph,
      [&](ir::Rewriter& rewriter, const ir::NodePtr& node) -> std::optional<std::vector<Value>> {
        if (!cuda && lies_across(*node))
          return turned(rewriter.builder(), *node, rewriter.map(node->input(0)));
        if (!cuda && lies_in_tensor(*node))
          return as_matrix(rewriter.builder(), *node, rewriter.map(node->input(0)));
        if (!cuda || !is_split_sort(*node)) return std::nullopt;
        const std::int64_t axis = axis_of(*node);
        ir::GraphBuilder& builder = rewriter.builder();
        const Value x = exchanged(builder, rewriter.map(node->input(0)), axis);
        const bool topk = node->op_name() == "topk";
        const SortSplitter splitter(builder, node->flag(topk ? "largest" : "descending"));
        const Row row =
            topk ? splitter.best(x, std::get<SymExpr>(node->attr("k"))) : splitter.sorted(x);
        return std::vector<Value>{exchanged(builder, row.keys, axis),
                                  exchanged(builder, row.order, axis)};
      });
}

}  // namespace heddle::jit
