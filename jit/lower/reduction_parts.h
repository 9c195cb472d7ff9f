// What taking reductions, scans and sorts apart works with.
#pragma once

#include <functional>
#include <span>
#include <unordered_set>
#include <vector>

#include "ir/graph.h"
#include "ir/scalar.h"
#include "jit/program.h"

namespace heddle::jit {

bool is_variance(const ir::Node& node);
/// Whether it gives places of extremes.
bool is_arg(const ir::Node& node);
/// Whether the node's op is a reduction whose results can be reduced again: arg-reductions and variances are none.
bool combines(const ir::Node& node);
/// The dimensions that a reduction or arg-reduction runs over, counted from the front, ascending.
std::vector<std::int64_t> reduced_axes(const ir::Node& node);
/// The dtype of results that are reduced again.
DType partial_dtype(ir::ReduceOp op, DType dtype);
/// What changes nothing when it is combined: the value that fills the last block.
ir::Value reduction_identity(ir::GraphBuilder& builder, ir::ReduceOp op, DType dtype);
ir::Value converted(ir::GraphBuilder& builder, ir::Value value, DType dtype);
ir::Value reshaped(ir::GraphBuilder& builder, ir::Value x, const ir::Dims& sizes);
/// The places that an arg-reduction finds along a dimension which is given in parts: `x` has `axis` of parts and the next of
/// their `length` elements. That dimension is kept with one element.
ir::Value place_in_parts(ir::GraphBuilder& builder, const ir::Node& arg, ir::Value x,
                         std::int64_t axis, std::int64_t length);

/// The least and the largest value of an integer dtype or bool.
struct IntegerRange {
  std::int64_t low, high;
};
IntegerRange integer_range(DType dtype);

/// Rows that one block of threads takes long for, and as many rows as keep all of a device busy.
inline constexpr std::int64_t kLongRow = 32768;
inline constexpr std::int64_t kManyRows = 264;
/// Parts of a column whose results one thread reduces; of more, a block of threads does.
inline constexpr std::int64_t kFewParts = 64;
/// Elements of the parts of a long row: of equal ones that make up the row, if there are such.
std::int64_t row_part(std::int64_t length);

/// Threads that keep a large device's memory busy: those of 132 multiprocessors are 270336, and each has eight loads in flight.
inline constexpr std::int64_t kBusyThreads = 1 << 17;
/// Elements of a column that one thread takes, at least.
inline constexpr std::int64_t kLeastPart = 32;
/// Of a column of fewer elements a thread takes as long as two more kernels do.
inline constexpr std::int64_t kLeastColumn = 256;

/// Nodes of a graph.
using Reductions = std::unordered_set<const ir::Node*>;
/// Leaves out those from which elements of what they reduce are computed: one kernel reads each row again while it is at hand.
void leave_rows_out(Reductions& reductions, const ir::Graph& graph, const LowerOptions& options);

/// Dimension `axis` of `x` as several of sizes `parts`, with `filler` behind its elements up to their product.
ir::Value in_parts(ir::GraphBuilder& builder, ir::Value x, std::size_t axis,
                   std::span<const base::SymExpr> parts, const std::function<ir::Value()>& filler);

}  // namespace heddle::jit
