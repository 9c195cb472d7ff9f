#include "jit/lower/reduction_parts.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <unordered_map>

#include "ir/op.h"
#include "jit/lower/decompose.h"

namespace heddle::jit {

using base::SymExpr;
using ir::Node;
using ir::ReduceOp;
using ir::Value;

bool is_variance(const Node& node) { return node.op().lowering.reduce == ReduceOp::Welford; }

bool is_arg(const Node& node) {
  const auto& reduce = node.op().lowering.reduce;
  return reduce == ReduceOp::ArgMax || reduce == ReduceOp::ArgMin;
}

bool combines(const Node& node) {
  const auto& reduce = node.op().lowering.reduce;
  return reduce && *reduce <= ReduceOp::Or;
}

std::vector<std::int64_t> reduced_axes(const Node& node) {
  const std::int64_t rank = node.input(0).meta().rank();
  std::vector<std::int64_t> axes =
      node.has("axes") ? node.ints("axes") : std::vector<std::int64_t>{node.integer("axis")};
  for (std::int64_t& axis : axes)
    if (axis < 0) axis += rank;
  std::sort(axes.begin(), axes.end());
  return axes;
}

DType partial_dtype(ReduceOp op, DType dtype) {
  const bool widens = op == ReduceOp::Sum || op == ReduceOp::Prod;
  return widens ? accumulator_of(dtype) : dtype;
}

Value reduction_identity(ir::GraphBuilder& builder, ReduceOp op, DType dtype) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const bool floating = is_floating(dtype);
  // Integers are combined in i64 for sums and products, in their own dtype for extremes.
  const auto [low, high] = floating ? IntegerRange{} : integer_range(dtype);
  const auto constant = [&](double number, std::int64_t integer) {
    return builder.constant(floating ? ir::Literal::scalar(dtype, number)
                                     : ir::Literal::scalar_int(dtype, integer));
  };
  switch (op) {
    case ReduceOp::Prod:
    case ReduceOp::And:
      return constant(1, 1);
    case ReduceOp::Max:
    case ReduceOp::ArgMax:
      return constant(-kInfinity, low);
    case ReduceOp::Min:
    case ReduceOp::ArgMin:
      return constant(kInfinity, high);
    default:
      return constant(0, 0);
  }
}

Value converted(ir::GraphBuilder& builder, Value value, DType dtype) {
  if (value.meta().dtype == dtype) return value;
  return builder.emit("convert", {value}, {{"dtype", dtype}});
}

Value reshaped(ir::GraphBuilder& builder, Value x, const ir::Dims& sizes) {
  return builder.emit("reshape", {x}, {{"sizes", sizes}});
}

Value place_in_parts(ir::GraphBuilder& builder, const Node& arg, Value x, std::int64_t axis,
                     std::int64_t length) {
  const auto place = [&](Value of, std::int64_t along, bool keepdims) {
    const Value operands[] = {of};
    return builder
        .call(arg.op(), operands,
              {{"axis", along}, {"keepdims", keepdims}, {"last", arg.flag("last")}})
        ->value();
  };
  const bool largest = arg.op().lowering.reduce == ReduceOp::ArgMax;
  Value extremes =
      builder.emit(largest ? "reduce_max" : "reduce_min", {x},
                   {{"axes", std::vector<std::int64_t>{axis + 1}}, {"keepdims", false}});
  Value within = place(x, axis + 1, false);
  const SymExpr& parts = x.meta().sizes[static_cast<std::size_t>(axis)];
  const std::int64_t last = extremes.meta().rank() - 1;
  const bool turned = axis != last && !(parts.is_constant() && parts.constant() <= kFewParts);
  std::vector<std::int64_t> perm(static_cast<std::size_t>(last + 1));
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[static_cast<std::size_t>(axis)], perm.back());
  const auto turn = [&](Value value) {
    return turned ? builder.emit("permute", {value}, {{"perm", perm}}) : value;
  };
  extremes = turn(extremes);
  within = turn(within);
  const std::int64_t along = turned ? last : axis;
  const Value part = place(extremes, along, true);
  const Value count = builder.constant(ir::Literal::scalar_int(DType::I64, length));
  within = builder.emit("gather_elements", {within, part}, {{"axis", along}});
  return turn(builder.emit("add", {builder.emit("mul", {part, count}), within}));
}

IntegerRange integer_range(DType dtype) {
  const int bits = static_cast<int>(size_of(dtype) * 8);
  if (!is_signed(dtype)) return {0, bits == 64 ? -1 : (std::int64_t{1} << bits) - 1};
  const std::int64_t low = std::numeric_limits<std::int64_t>::min() >> (64 - bits);
  return {low, ~low};
}

std::int64_t row_part(std::int64_t length) {
  // One block of threads goes over the parts of a row in the second step.
  constexpr std::int64_t kPart = 4096;
  constexpr std::int64_t kMostParts = 4096;
  const std::int64_t wanted = std::max(kPart, (length + kMostParts - 1) / kMostParts);
  for (std::int64_t part = wanted; part <= 2 * wanted; ++part)
    if (length % part == 0) return part;
  for (std::int64_t part = wanted; part >= wanted / 2; --part)
    if (length % part == 0) return part;
  return wanted;
}

Value in_parts(ir::GraphBuilder& builder, Value x, std::size_t axis, std::span<const SymExpr> parts,
               const std::function<Value()>& filler) {
  ir::Dims sizes = x.meta().sizes;
  const SymExpr missing = base::product(parts) - sizes[axis];
  if (!missing.is_constant(0)) {
    ir::Dims low(sizes.size(), SymExpr(0)), high(sizes.size(), SymExpr(0));
    high[axis] = missing;
    x = builder.emit("pad", {x, filler()}, {{"low", low}, {"high", high}});
  }
  const auto at = sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(axis));
  sizes.insert(at, parts.begin(), parts.end());
  return builder.emit("reshape", {x}, {{"sizes", std::move(sizes)}});
}

/// From the last node to the first: how many elements tensors have that are computed from a node one by one.
void leave_rows_out(Reductions& reductions, const ir::Graph& graph, const LowerOptions& options) {
  struct Hash {
    std::size_t operator()(const SymExpr& count) const { return count.hash(); }
  };
  const auto read_by = [](const Node* node) { return node->input(0).meta().count(); };
  std::unordered_map<SymExpr, std::size_t, Hash> numbers;  // of the counts that matter
  for (const Node* reduction : reductions) numbers.try_emplace(read_by(reduction), numbers.size());
  std::unordered_map<const Node*, std::set<std::size_t>> reached;
  for (std::size_t k = graph.nodes().size(); k-- > 0;) {
    const Node* node = graph.nodes()[k].get();
    std::set<std::size_t> counts = std::move(reached[node]);
    reached.erase(node);
    if (reductions.contains(node) && counts.contains(numbers.at(read_by(node))))
      reductions.erase(node);
    const NodeClass kind = classify(*node, options);
    if (kind != NodeClass::Element && kind != NodeClass::View) continue;
    if (const auto own = numbers.find(node->output().count()); own != numbers.end())
      counts.insert(own->second);
    if (counts.empty()) continue;
    for (const Value& input : node->inputs())
      if (input) reached[input.node].insert(counts.begin(), counts.end());
  }
}

}  // namespace heddle::jit
