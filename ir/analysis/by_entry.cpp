#include "ir/analysis/by_entry.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/op.h"
#include "ir/ops/common.h"

namespace heddle::ir {

using base::Facts;
using base::Symbol;

namespace {

/// Axes of the element that is looked at.
constexpr std::uint32_t kFirstAxis = 1u << 20;

/// An element of a node's result, of an entry that is a symbol.
class AnyElement {
 public:
  AnyElement(const ByEntry& batches, Symbol batch)
      : batches_(batches), batch_(batch), entry_(between(SymExpr(0), SymExpr(batch) - 1)) {}

  /// A symbol for an index of 0 to `size` - 1.
  SymExpr any(const SymExpr& size) {
    return size.is_constant(1) ? SymExpr(0) : between(SymExpr(0), size - 1);
  }
  SymExpr between(const SymExpr& low, const SymExpr& high) {
    const Symbol symbol{Symbol::Kind::Axis, kFirstAxis + axes_++};
    facts_.set_range(symbol, low, high);
    return symbol;
  }
  /// Of a tensor of these sizes, which holds entries or does not mention the batch.
  std::vector<SymExpr> of(const Dims& sizes) {
    std::vector<SymExpr> index;
    const std::optional<BatchDimension> batch = batches_.dimension(sizes);
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      if (!batch || batch->dimension != d)
        index.push_back(any(sizes[d]));
      else
        index.push_back(entry_ * batch->of_entry + any(batch->of_entry));
    }
    return index;
  }

  /// Whether it is the same for all entries, and for batches of any size.
  bool is_free(const SymExpr& expr) const {
    if (!concerns(expr)) return true;
    return !concerns(expr.simplify(facts_));
  }
  /// Whether the element `index` of a tensor of `sizes` is one of the same entry, and the same one of any.
  bool is_of_entry(const Dims& sizes, std::span<const SymExpr> index) const {
    const std::optional<BatchDimension> batch = batches_.dimension(sizes);
    for (std::size_t d = 0; d < index.size(); ++d) {
      if (!batch || batch->dimension != d) {
        if (!is_free(index[d])) return false;
        continue;
      }
      const SymExpr entry = floordiv(index[d], batch->of_entry).simplify(facts_);
      if (!(entry == entry_) || !is_free(mod(index[d], batch->of_entry))) return false;
    }
    return true;
  }
  const Facts& facts() const { return facts_; }

 private:
  bool concerns(const SymExpr& expr) const {
    return expr.mentions(batch_) || expr.mentions(entry_.symbol());
  }

  const ByEntry& batches_;
  Symbol batch_;
  Facts facts_;
  std::uint32_t axes_ = 0;
  SymExpr entry_;
};

/// Watches what an element of a result is made of.
class Watcher final : public ElementBuilder {
 public:
  Watcher(const Node& node, AnyElement& element) : node_(node), element_(element) {}

  bool all_apart() const { return apart_; }

  Scalar operand(std::size_t k, std::span<const SymExpr> index) override {
    const TensorMeta& meta = node_.input(k).meta();
    apart_ = apart_ && element_.is_of_entry(meta.sizes, index);
    return {0, meta.dtype};
  }
  Scalar constant(DType dtype, double) override { return {0, dtype}; }
  Scalar constant_int(DType dtype, std::int64_t) override { return {0, dtype}; }
  Scalar apply(ScalarOp op, std::span<const Scalar> operands) override {
    return {0, result_of(op, operands[op == ScalarOp::Select ? 1 : 0].dtype)};
  }
  Scalar convert(Scalar, DType dtype) override { return {0, dtype}; }
  Scalar from_index(const SymExpr& index) override {
    apart_ = apart_ && element_.is_free(index);
    return {0, DType::I64};
  }
  SymExpr to_index(Scalar, const SymExpr& low, const SymExpr& high, bool) override {
    apart_ = apart_ && element_.is_free(low) && element_.is_free(high);
    return element_.between(low, high);
  }
  Scalar predicate(const base::Predicate& predicate) override {
    if (!predicate.decide(element_.facts()))
      apart_ = apart_ && element_.is_free(predicate.left) && element_.is_free(predicate.right);
    return {0, DType::Bool};
  }
  void begin_guard(Scalar) override {}
  void end_guard() override {}

 private:
  const Node& node_;
  AnyElement& element_;
  bool apart_ = true;
};

std::vector<std::int64_t> reduced_axes(const Node& node, std::int64_t rank) {
  if (node.has("axes")) return ops::sorted_axes(node.ints("axes"), rank);
  return {ops::from_front(node.integer("axis"), rank)};
}

/// The element of the operand that one of the results, at `index`, combines: any of them.
std::vector<SymExpr> combined_element(const Node& node, std::span<const SymExpr> index,
                                      AnyElement& element) {
  const Dims& sizes = node.input(0).meta().sizes;
  const auto axes = reduced_axes(node, static_cast<std::int64_t>(sizes.size()));
  const bool keepdims = node.flag("keepdims");
  std::vector<SymExpr> read;
  std::size_t next = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    const bool reduced = std::ranges::binary_search(axes, static_cast<std::int64_t>(d));
    read.push_back(reduced ? element.any(sizes[d]) : index[next]);
    next += !reduced || keepdims ? 1 : 0;
  }
  return read;
}

/// Dimensions from the last one that is treated apart to `dimension`; nothing: it is an inner one.
std::optional<std::size_t> outer_place(std::size_t rank, int inner, std::size_t dimension) {
  const std::size_t outer =
      inner == Apart::kAllButFirst ? 1 : rank - std::min(rank, std::size_t(inner));
  if (dimension >= outer) return std::nullopt;
  return outer - 1 - dimension;
}

}  // namespace

bool ByEntry::mentions(const Dims& sizes) const {
  return std::ranges::any_of(sizes, [&](const SymExpr& size) { return size.mentions(batch_); });
}

std::optional<BatchDimension> ByEntry::dimension(const Dims& sizes) const {
  std::optional<BatchDimension> found;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (!sizes[d].mentions(batch_)) continue;
    const auto linear = sizes[d].linear_in(batch_);
    if (found || !linear || !linear->rest.is_constant(0)) return std::nullopt;
    found = {d, linear->coefficient};
  }
  return found;
}

bool ByEntry::holds(const Node& node) {
  const auto [known, is_new] = known_.try_emplace(&node, false);
  if (is_new) known->second = find(node);
  return known->second;
}

/// Whether operands and results either do not mention the batch or hold its entries, all results alike.
bool ByEntry::holds_entries(const Node& node) const {
  const auto is_fine = [&](const Dims& sizes) { return !mentions(sizes) || dimension(sizes); };
  for (const Value& input : node.inputs())
    if (input && !is_fine(input.meta().sizes)) return false;
  return std::ranges::all_of(node.outputs(), [&](const TensorMeta& meta) {
    return is_fine(meta.sizes) && mentions(meta.sizes) == mentions(node.output().sizes);
  });
}

namespace {

/// Whether operands and results agree with one of the ways in which the op treats dimensions apart.
bool agrees(const Node& node, const Apart& apart, const ByEntry& batches) {
  const auto result = batches.dimension(node.output().sizes);
  if (!result) return false;
  const auto place = outer_place(node.output().sizes.size(), apart.result, result->dimension);
  if (!place) return false;
  for (const TensorMeta& output : node.outputs())
    if (batches.dimension(output.sizes)->dimension != result->dimension) return false;
  for (std::size_t k = 0; k < node.inputs().size(); ++k) {
    if (!node.input(k) || !batches.mentions(node.input(k).meta().sizes)) continue;
    const int inner = k < apart.operands.size() ? apart.operands[k] : Apart::kWhole;
    if (inner == Apart::kWhole) return false;
    const Dims& sizes = node.input(k).meta().sizes;
    const auto operand = batches.dimension(sizes);
    if (outer_place(sizes.size(), inner, operand->dimension) != place ||
        !(operand->of_entry == result->of_entry))
      return false;
  }
  return true;
}

/// The same of elements of operands that are broadcast together, which needs no look at them.
bool agrees_pointwise(const Node& node, const ByEntry& batches) {
  return std::ranges::all_of(node.inputs(), [&](const Value& input) {
    if (!input) return true;
    const Dims& from = input.meta().sizes;
    const Dims& to = node.output().sizes;
    const auto operand = batches.dimension(from);
    if (!operand) return true;
    const auto result = batches.dimension(to);
    return result && from.size() - operand->dimension == to.size() - result->dimension &&
           operand->of_entry == result->of_entry;
  });
}

/// Of windows and reductions over dimensions that the node names.
bool names_axis(const Node& node, std::size_t axis) {
  return node.has("axes") &&
         std::ranges::find(node.ints("axes"), static_cast<std::int64_t>(axis)) !=
             node.ints("axes").end();
}

bool mentions_in_attrs(const Node& node, Symbol batch) {
  return std::ranges::any_of(node.attrs(), [&](const auto& attr) {
    const auto* sizes = std::get_if<Dims>(&attr.second);
    return sizes != nullptr &&
           std::ranges::any_of(*sizes, [&](const SymExpr& size) { return size.mentions(batch); });
  });
}

}  // namespace

bool ByEntry::find(const Node& node) const {
  if (!holds_entries(node)) return false;
  const Lowering& lowering = node.op().lowering;
  if (lowering.element != nullptr && node.op().reorder == ops::reorder_pointwise)
    return agrees_pointwise(node, *this);
  AnyElement element(*this, batch_);
  if (lowering.view != nullptr) {
    const std::vector<SymExpr> index = element.of(node.output().sizes);
    return element.is_of_entry(node.input(0).meta().sizes, lowering.view(node, index));
  }
  if (lowering.element != nullptr) {
    Watcher watcher(node, element);
    for (std::uint32_t k = 0; k < node.outputs().size() && watcher.all_apart(); ++k)
      lowering.element(watcher, node, k, element.of(node.output(k).sizes));
    return watcher.all_apart();
  }
  if (lowering.reduce) {
    const std::vector<SymExpr> index = element.of(node.output().sizes);
    return element.is_of_entry(node.input(0).meta().sizes, combined_element(node, index, element));
  }
  if (node.inputs().empty()) return !mentions(node.output().sizes);  // parameters, constants
  const std::optional<BatchDimension> batch = dimension(node.output().sizes);
  if (!batch || mentions_in_attrs(node, batch_) || names_axis(node, batch->dimension)) return false;
  return std::ranges::any_of(node.op().apart,
                             [&](const Apart& apart) { return agrees(node, apart, *this); });
}

namespace {

/// Steps of one record by one batch.
class Marks {
 public:
  Marks(const Graph& graph, const ScheduleRecord& record, Symbol batch)
      : record_(record), batches_(batch), batch_(batch), roots_(alias_roots(record)) {
    for (const NodePtr& node : graph.nodes())
      for (std::uint32_t k = 0; k < node->names().size(); ++k)
        values_.emplace(node->names()[k], node->value(k));
    for (const Value& input : graph.inputs())
      if (!input.meta().is_row_major()) strided_.insert(input.node->name());
  }

  std::vector<bool> steps() {
    std::vector<bool> marks;
    for (const PlanStep& step : record_.steps) marks.push_back(is_by_entry(step));
    return marks;
  }

 private:
  bool is_by_entry(const PlanStep& step) {
    const PlanKernel& kernel = record_.kernels[step.kernel];
    const bool known =
        kernel.kind == PlanKernel::Kind::Jit || kernel.kind == PlanKernel::Kind::Library;
    if (!known || kernel.nodes.empty() || step.writes.empty()) return false;
    for (const BufferId buffer : step.writes)
      if (!is_written_apart(buffer)) return false;
    for (const BufferId buffer : step.reads)
      if (!is_read_apart(buffer)) return false;
    return all_apart(kernel, step);
  }

  /// Whether entries lie one behind the other.
  bool has_entries(const PlanBuffer& buffer) const {
    const auto bytes = buffer.bytes.linear_in(batch_);
    const auto batch = batches_.dimension(buffer.sizes);
    return batch && bytes && bytes->rest.is_constant(0) &&
           std::ranges::all_of(buffer.sizes.begin(),
                               buffer.sizes.begin() + static_cast<std::ptrdiff_t>(batch->dimension),
                               [](const SymExpr& size) { return size.is_constant(1); });
  }
  bool is_written_apart(BufferId buffer) const {
    const PlanBuffer::Role role = record_.buffers[roots_[buffer]].role;
    return (role == PlanBuffer::Role::Intermediate || role == PlanBuffer::Role::Output) &&
           has_entries(record_.buffers[buffer]) && has_entries(record_.buffers[roots_[buffer]]);
  }
  bool is_read_apart(BufferId buffer) const {
    const PlanBuffer& read = record_.buffers[buffer];
    const PlanBuffer& root = record_.buffers[roots_[buffer]];
    if (!root.bytes.mentions(batch_) && !batches_.mentions(read.sizes)) return true;
    return has_entries(read) && has_entries(root) && !strided_.contains(root.value);
  }

  /// Of the nodes that the kernel computes, and views and others that it computes on the way from what the step reads.
  bool all_apart(const PlanKernel& kernel, const PlanStep& step) {
    std::set<std::string_view> read;
    for (const BufferId buffer : step.reads) read.insert(record_.buffers[buffer].value);
    std::vector<const Node*> nodes;
    for (const std::string& name : kernel.nodes) {
      const auto value = values_.find(name);
      if (value == values_.end()) return false;
      nodes.push_back(value->second.node);
    }
    std::set<const Node*> seen(nodes.begin(), nodes.end());
    while (!nodes.empty()) {
      const Node* node = nodes.back();
      nodes.pop_back();
      if (!batches_.holds(*node)) return false;
      for (const Value& input : node->inputs())
        if (input && !input.node->inputs().empty() &&
            !read.contains(input.node->names()[input.index]) && seen.insert(input.node).second)
          nodes.push_back(input.node);
    }
    return true;
  }

  const ScheduleRecord& record_;
  ByEntry batches_;
  Symbol batch_;
  std::vector<BufferId> roots_;
  std::unordered_map<std::string_view, Value> values_;
  std::set<std::string_view> strided_;  ///< arguments
};

}  // namespace

void find_batch(const Graph& graph, ScheduleRecord& record) {
  std::set<Symbol> candidates;
  for (const Value& input : graph.inputs())
    if (const Dims& sizes = input.meta().sizes; !sizes.empty() && sizes[0].is_symbol())
      candidates.insert(sizes[0].symbol());
  std::vector<bool> best;
  for (const Symbol& batch : candidates) {
    std::vector<bool> marks = Marks(graph, record, batch).steps();
    if (std::ranges::count(marks, true) <= std::ranges::count(best, true)) continue;
    best = std::move(marks);
    record.batch = batch;
  }
  // Entries that take turns would run what is ordered only the other way round, too.
  for (std::size_t k = 0; k < best.size(); ++k)
    for (const PlanEdge& edge : record.steps[k].edges)
      if (edge.weak) best[k] = best[edge.from] = false;
  for (std::size_t k = 0; k < best.size(); ++k) record.steps[k].by_entry = best[k];
}

}  // namespace heddle::ir
