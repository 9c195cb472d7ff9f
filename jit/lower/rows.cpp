// Row groups: reductions over the columns of each row of a domain, with what they read and what reads them,
// in one kernel of one or more passes over the row.
//
// Two shapes. Where the columns lie innermost in memory, a row is one parallel iteration and each pass a
// vector loop over its columns. Where the kept dimensions lie innermost, neighbouring rows are the lanes of
// a vector loop and each pass is a serial loop inside it.
#include "base/check.h"
#include "ir/op.h"
#include "ir/ops/reduce_ops.h"
#include "jit/lower/domain.h"
#include "jit/lower/kernel.h"
#include "jit/lower/row_loops.h"
#include "jit/lower/row_plan.h"

namespace heddle::jit {
namespace {

using ir::ReduceOp;
using ir::ScalarOp;

/// Rows shorter than this waste the lanes of a vector loop over columns. On CUDA a few threads of a warp go through each if
/// they share no memory: nothing is kept for a later pass.
constexpr std::int64_t kShortCpuRow = 8;
constexpr std::int64_t kShortCudaRow = 32;
/// Bounded rows up to this many elements are kept on the stack.
constexpr std::int64_t kMaxStackElements = 1 << 16;
/// Bytes of shared memory that kept elements may take.
constexpr std::int64_t kMaxSharedBytes = 32 << 10;

/// Whether some element of a row is stored and read again.
bool rereads(const Kernel& kernel) {
  return std::ranges::any_of(kernel.stored, [&](const Value& value) {
    return row_role(kernel.group, kernel.state.reads, value.node) == RowRole::Full &&
           std::ranges::any_of(kernel.group.nodes, [&](const Node* node) {
             return std::ranges::count(node->inputs(), value) != 0;
           });
  });
}

/// Whether neighbouring rows are the lanes, not neighbouring columns.
bool uses_lanes(const Kernel& kernel) {
  const Group& group = kernel.group;
  const SymExpr columns = base::product(dims_at(group.domain, group.reduced));
  const SymExpr rows = base::product(dims_but(group.domain, group.reduced));
  if (rows.is_constant(1)) return false;
  const bool cuda = kernel.state.options().target == LowerOptions::Target::Cuda;
  if (columns.is_constant() && columns.constant() < (cuda ? kShortCudaRow : kShortCpuRow) &&
      (!cuda || rereads(kernel)))
    return true;
  for (std::size_t d = group.domain.size(); d-- > 0;) {
    if (group.domain[d].is_constant(1)) continue;
    const auto dim = static_cast<std::int64_t>(d);
    return std::find(group.reduced.begin(), group.reduced.end(), dim) == group.reduced.end();
  }
  return false;
}

/// Rows from which on lanes along them are full.
constexpr std::int64_t kLeastLanes = 16;

/// The dimension that lies innermost among those that are reduced, or among those that are kept; its number among those
/// that are not 1.
std::optional<std::size_t> innermost(const Group& group, bool reduced) {
  std::optional<std::size_t> found;
  std::size_t number = 0;
  for (std::size_t d = 0; d < group.domain.size(); ++d) {
    if (group.domain[d].is_constant(1)) continue;
    const bool is_reduced = std::ranges::count(group.reduced, static_cast<std::int64_t>(d)) != 0;
    if (is_reduced == reduced) found = number;
    ++number;
  }
  return found;
}

/// The node's axes but for those of one element.
Index long_axes(const NodeReads& reads) {
  Index axes;
  for (std::size_t d = 0; d < reads.domain.size(); ++d)
    if (!reads.domain[d].is_constant(1)) axes.push_back(reads.axes[d]);
  return axes;
}

/// Whether all elements that the kernel reads lie along neighbouring rows, as those of a result with the channels last that
/// is read with the channels first, and it writes none: neighbouring columns would have to be gathered.
bool reads_along_rows(const Kernel& kernel) {
  const Group& group = kernel.group;
  const ReadAnalysis& reads = kernel.state.reads;
  const auto row = innermost(group, false);
  const auto column = innermost(group, true);
  if (!row || !column) return false;
  const SymExpr rows = without_ones(group.domain)[*row];
  if (!rows.is_constant() || rows.constant() < kLeastLanes) return false;
  for (const Value& value : kernel.stored)
    if (row_role(group, reads, value.node) == RowRole::Full) return false;
  bool found = false;
  for (const Node* node : group.nodes) {
    const NodeReads& mine = reads.of(node);
    const RowRole role = row_role(group, reads, node);
    if (role == RowRole::Row) continue;
    if (!same_dims(without_ones(mine.domain), without_ones(group.domain))) return false;
    const Index axes = long_axes(mine);
    for (const Read& read : mine.reads) {
      if (std::ranges::count(group.nodes, read.value.node) != 0) continue;
      const SymExpr at = linear_index(read.index, read.value.meta().sizes).simplify(mine.facts);
      if (!at.mentions(axes[*column].symbol())) continue;
      const auto by_row = at.linear_in(axes[*row].symbol());
      const auto by_column = at.linear_in(axes[*column].symbol());
      if (!by_row || !by_row->coefficient.is_constant(1) || !by_column ||
          by_column->coefficient.is_constant(1))
        return false;
      found = true;
    }
  }
  return found;
}

class RowBuilder {
 public:
  RowBuilder(const LoweringState& state, std::uint32_t group)
      : kernel_(state, group),
        group_(kernel_.group),
        builder_(kernel_.builder),
        lanes_(uses_lanes(kernel_) ||
               (state.options().target == LowerOptions::Target::Cpu && reads_along_rows(kernel_))) {
  }

  BuiltKernel run() {
    if (kernel_.is_empty()) return kernel_.finish_empty();
    make_domain();
    const RowPlan plan = plan_row(kernel_, may_keep());
    add_keeps(plan);
    kernel_.emitter.override_value = [this](Value value, const Index& index) {
      return recall(value, index);
    };
    store_rows(plan.early_rows);
    for (const RowPass& pass : plan.passes) emit_pass(pass);
    wrap();
    return kernel_.finish(/*loops_run=*/false);
  }

 private:
  void make_domain() {
    // Rows first: their axes are the outer ones.
    point_.assign(group_.domain.size(), SymExpr(0));
    for (const bool reduced : {false, true}) {
      for (std::size_t d = 0; d < group_.domain.size(); ++d) {
        if (is_reduced(d) != reduced || group_.domain[d].is_constant(1)) continue;
        const Symbol axis = builder_.new_axis(group_.domain[d]);
        point_[d] = axis;
        (reduced ? columns_ : rows_).push_back({axis, group_.domain[d]});
      }
    }
    row_ = dims_but(point_, group_.reduced);
    row_sizes_ = dims_but(group_.domain, group_.reduced);
    const ir::Dims column_sizes = dims_at(group_.domain, group_.reduced);
    column_ = linear_index(dims_at(point_, group_.reduced), column_sizes);
    column_count_ = base::product(column_sizes);
    placeholder_ = builder_.new_axis(1);
  }

  bool is_reduced(std::size_t d) const {
    const auto dim = static_cast<std::int64_t>(d);
    return std::find(group_.reduced.begin(), group_.reduced.end(), dim) != group_.reduced.end();
  }

  bool may_keep() const {
    if (lanes_) return false;
    if (kernel_.state.options().target == LowerOptions::Target::Cpu) return true;
    return column_count_.is_constant() && column_count_.constant() >= kShortCudaRow &&
           column_count_.constant() * 8 <= kMaxSharedBytes;
  }

  void add_keeps(const RowPlan& plan) {
    const bool bounded =
        column_count_.is_constant() && column_count_.constant() <= kMaxStackElements;
    std::vector<Value> homes = homes_of_keeps(plan);
    for (const RowPass& pass : plan.passes) {
      for (const Value& value : pass.keeps) {
        const auto home = std::find_if(homes.begin(), homes.end(), [&](const Value& stored) {
          return stored.meta().dtype == value.meta().dtype;
        });
        if (home == homes.end()) {
          kept_[value] = {builder_.add_local(value.meta().dtype, column_count_,
                                             bounded ? column_count_.constant() : 0),
                          column_};
          continue;
        }
        const ir::Dims& sizes = home->meta().sizes;
        const Index index = index_in(sizes, group_.domain, point_, builder_.facts());
        kept_[value] = {kernel_.memory.buffer(*home), linear_index(index, sizes)};
        homes.erase(home);
      }
    }
  }

  /// Results that the last pass stores: elements kept for it may lie there until then. The memory is fetched
  /// while earlier passes compute, and the row is held in the caches once.
  std::vector<Value> homes_of_keeps(const RowPlan& plan) const {
    if (kernel_.state.options().target != LowerOptions::Target::Cpu || plan.passes.empty())
      return {};
    return plan.passes.back().stores;
  }

  /// Values that are at hand: reductions done, elements kept or stored by an earlier pass.
  std::optional<Scalar> recall(Value value, const Index& index) {
    if (const auto found = reduced_.find(value); found != reduced_.end()) return found->second;
    if (ready_.count(value) == 0) return std::nullopt;
    if (const auto kept = kept_.find(value); kept != kept_.end())
      return builder_.load(kept->second.buffer, kept->second.index);
    return builder_.load(kernel_.memory.buffer(value), linear_index(index, value.meta().sizes));
  }

  void emit_pass(const RowPass& pass) {
    if (!pass.empty()) {
      kernel_.emitter.open_scope();
      // An extent that mentions the columns, so that work is counted right until loops replace it.
      builder_.begin_for(placeholder_, column_count_, ForStmt::Kind::Serial);
      std::vector<std::vector<Scalar>> results;
      for (const Node* node : pass.reductions) results.push_back(reduce(*node));
      emit_elements(pass);
      builder_.end_for();
      kernel_.emitter.close_scope();
      for (std::size_t k = 0; k < results.size(); ++k)
        reduced_[pass.reductions[k]->value()] = finished(*pass.reductions[k], results[k]);
    }
    for (const Value& value : pass.keeps) ready_.insert(value);
    for (const Value& value : pass.stores) ready_.insert(value);
    store_rows(pass.rows);
  }

  /// Stores come after every load of the pass, so that a result may overwrite an operand.
  void emit_elements(const RowPass& pass) {
    const base::Facts& facts = builder_.facts();
    std::vector<Scalar> kept;
    for (const Value& value : pass.keeps)
      kept.push_back(kernel_.emitter.request(
          value, index_in(value.meta().sizes, group_.domain, point_, facts)));
    std::vector<Scalar> stored;
    for (const Value& value : pass.stores)
      stored.push_back(kernel_.emitter.request(
          value, index_in(value.meta().sizes, group_.domain, point_, facts)));
    for (std::size_t k = 0; k < kept.size(); ++k)
      builder_.store(kept_.at(pass.keeps[k]).buffer, kept_.at(pass.keeps[k]).index, kept[k]);
    for (std::size_t k = 0; k < stored.size(); ++k) {
      const Value value = pass.stores[k];
      kernel_.store(value, index_in(value.meta().sizes, group_.domain, point_, facts), stored[k]);
    }
  }

  std::vector<Scalar> reduce(const Node& node) {
    const ReduceOp op = *node.op().lowering.reduce;
    const Value operand = node.input(0);
    const Scalar element = kernel_.emitter.request(
        operand, index_in(operand.meta().sizes, group_.domain, point_, builder_.facts()));
    const bool arg = op == ReduceOp::ArgMax || op == ReduceOp::ArgMin;
    const DType accumulator = accumulator_for(op, operand.meta().dtype);
    std::vector<Scalar> contributions{builder_.convert(element, accumulator)};
    if (arg)
      contributions.push_back(
          builder_.from_index(counts_from_end(node) ? column_count_ - 1 - column_ : column_));
    return builder_.reduce(op, accumulator, contributions);
  }

  static bool counts_from_end(const Node& node) { return node.has("last") && node.flag("last"); }

  static DType accumulator_for(ReduceOp op, DType dtype) {
    const bool exact = op != ReduceOp::Sum && op != ReduceOp::Prod && op != ReduceOp::Welford;
    if (exact && !is_floating(dtype)) return dtype;
    if (op == ReduceOp::Welford) return ir::ops::variance_dtype(dtype);
    return accumulator_of(dtype);
  }

  /// What the node's value is, from what its loop carried.
  Scalar finished(const Node& node, const std::vector<Scalar>& results) {
    const DType dtype = node.output().dtype;
    switch (*node.op().lowering.reduce) {
      case ReduceOp::ArgMax:
      case ReduceOp::ArgMin: {
        Scalar place = results[1];
        if (counts_from_end(node))
          place = builder_.apply(ScalarOp::Sub, {builder_.from_index(column_count_ - 1), place});
        return builder_.convert(place, dtype);
      }
      case ReduceOp::Welford: {
        const SymExpr divisor = max(column_count_ - node.integer("correction"), 0);
        const Scalar count = builder_.convert(builder_.from_index(divisor), results[1].dtype);
        return builder_.convert(builder_.apply(ScalarOp::Div, {results[1], count}), dtype);
      }
      default:
        return builder_.convert(results[0], dtype);
    }
  }

  void store_rows(const std::vector<Value>& values) {
    for (const Value& value : values) {
      const Index index = index_in(value.meta().sizes, row_sizes_, row_, builder_.facts());
      kernel_.store(value, index, kernel_.emitter.request(value, index));
    }
  }

  void wrap() {
    Block body = kernel_.take_body();
    const std::vector<AxisRun> rows = collapse(builder_, body, rows_);
    const auto kind = lanes_ ? ForStmt::Kind::Serial : ForStmt::Kind::Vector;
    // On a GPU the threads of a block walk over a loop: one long loop is best.
    const bool cuts_runs = !lanes_ && kernel_.state.options().target == LowerOptions::Target::Cpu;
    expand_column_loops(builder_, body, placeholder_, columns_, kind, cuts_runs);
    if (lanes_) {
      wrap_lanes(builder_, std::move(body), rows, kernel_.state.options());
    } else {
      wrap_parallel(builder_, std::move(body), rows);
    }
  }

  Kernel kernel_;
  const Group& group_;
  NestBuilder& builder_;
  const bool lanes_;
  Index point_;  ///< index in the domain
  Index row_;    ///< the kept part of it
  ir::Dims row_sizes_;
  std::vector<AxisRun> rows_, columns_;
  SymExpr column_;  ///< position in the row
  SymExpr column_count_;
  Symbol placeholder_;  ///< axis of the loops over columns until they are made
  std::map<Value, Scalar> reduced_;
  /// Where the element at this row and column is kept.
  struct Place {
    NestBufferId buffer;
    SymExpr index;
  };
  std::map<Value, Place> kept_;
  std::set<Value> ready_;
};

}  // namespace

BuiltKernel build_row(const LoweringState& state, std::uint32_t group) {
  return RowBuilder(state, group).run();
}

}  // namespace heddle::jit
