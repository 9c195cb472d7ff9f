#include "jit/lower/reduction_parts.h"

#include <algorithm>
#include <limits>

#include "ir/op.h"

namespace heddle::jit {

using ir::Node;
using ir::ReduceOp;
using ir::Value;

bool is_variance(const Node& node) { return node.op().lowering.reduce == ReduceOp::Welford; }

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
  constexpr auto kLowest = std::numeric_limits<std::int64_t>::min();
  const bool floating = is_floating(dtype);
  // Integers are combined in i64 for sums and products, in their own dtype for extremes.
  const int bits = static_cast<int>(size_of(dtype) * 8);
  const std::int64_t low = is_signed(dtype) ? kLowest >> (64 - bits) : 0;
  const std::int64_t high = is_signed(dtype) ? ~low : (std::int64_t{1} << bits) - 1;
  const auto constant = [&](double number, std::int64_t integer) {
    return builder.constant(floating ? ir::Literal::scalar(dtype, number)
                                     : ir::Literal::scalar_int(dtype, integer));
  };
  switch (op) {
    case ReduceOp::Prod:
    case ReduceOp::And:
      return constant(1, 1);
    case ReduceOp::Max:
      return constant(-kInfinity, low);
    case ReduceOp::Min:
      return constant(kInfinity, high);
    default:
      return constant(0, 0);
  }
}

Value converted(ir::GraphBuilder& builder, Value value, DType dtype) {
  if (value.meta().dtype == dtype) return value;
  return builder.emit("convert", {value}, {{"dtype", dtype}});
}

}  // namespace heddle::jit
