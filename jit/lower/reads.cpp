#include "jit/lower/reads.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "jit/lower/affine.h"
#include "jit/lower/nest_context.h"
#include "jit/nests/row_conv.h"

namespace heddle::jit {

using ir::ScalarOp;

namespace {

// An inlined node that several readers evaluate costs at most this.
constexpr int kCheapOperations = 6;
constexpr int kCheapLoads = 2;
/// Reads of each element of a copy, from which on it is stored.
constexpr std::int64_t kManyReads = 8;
/// Elements of rows that are worth turning.
constexpr std::int64_t kLeastTurnedRow = 16;
/// One element, evaluated once a kernel or so: almost anything is cheaper than a kernel of its own.
constexpr int kScalarOperations = 64;
/// Nodes between a product and what is stored of it that are looked at.
constexpr std::size_t kMostFollowing = 64;
/// Elements of a row from which on it is worth lying side by side.
constexpr std::int64_t kLeastRow = 8;
/// How many elements that lie side by side are read in the time of one that lies across.
constexpr std::int64_t kDearerAcross = 4;
/// Elements of what is computed once and kept: larger ones cost more memory than they save time.
constexpr std::int64_t kMaxKept = 1 << 14;

bool is_expensive(ScalarOp op) {
  return (op >= ScalarOp::Exp && op <= ScalarOp::Sigmoid) || op == ScalarOp::Pow ||
         op == ScalarOp::Atan2;
}

/// Whether `index` is another one where `axis` is 1 than where all axes are 0.
bool moves_at_once(const SymExpr& index, const SymExpr& axis, const NodeReads& reads) {
  base::SymbolExprs places;
  for (const SymExpr& other : reads.axes)
    if (other.is_symbol()) places[other.symbol()] = 0;
  const SymExpr from = index.substitute(places).simplify(reads.facts);
  places[axis.symbol()] = 1;
  return !same(index.substitute(places), from, reads.facts);
}

/// With 1 for each size that only the run tells.
SymExpr with_small_unbacked(const SymExpr& expr) {
  std::vector<Symbol> symbols;
  expr.collect_symbols(symbols);
  base::SymbolExprs ones;
  for (const Symbol& symbol : symbols)
    if (symbol.kind == Symbol::Kind::Unbacked) ones.emplace(symbol, SymExpr(1));
  return expr.substitute(ones);
}

}  // namespace

/// Runs a node's element lowering to see what it reads, and what it costs.
class ReadAnalysis::Recorder final : public ir::ElementBuilder {
 public:
  Recorder(ReadAnalysis& analysis, const Node* reader, const Node* node)
      : analysis_(analysis), reader_(reader), node_(node) {}

  Scalar operand(std::size_t k, std::span<const SymExpr> index) override {
    const Value value = node_->input(k);
    if (reader_ != nullptr) analysis_.add_read(reader_, value, Index(index.begin(), index.end()));
    operands.push_back(value);
    return {0, value.meta().dtype};
  }
  Scalar constant(DType dtype, double) override { return {0, dtype}; }
  Scalar constant_int(DType dtype, std::int64_t) override { return {0, dtype}; }
  Scalar apply(ScalarOp op, std::span<const Scalar> scalars) override {
    ++cost.operations;
    cost.expensive = cost.expensive || is_expensive(op);
    return {0, ir::result_of(op, scalars[op == ScalarOp::Select ? 1 : 0].dtype)};
  }
  Scalar convert(Scalar, DType dtype) override {
    ++cost.operations;
    return {0, dtype};
  }
  Scalar from_index(const SymExpr&) override { return {0, DType::I64}; }
  SymExpr to_index(Scalar, const SymExpr& low, const SymExpr& high, bool) override {
    cost.operations += 2;
    const Symbol symbol{Symbol::Kind::Temp, analysis_.next_temp_++};
    if (reader_ != nullptr) {
      analysis_.reads_[analysis_.graph_.position(reader_)].facts.set_range(symbol, low, high);
    }
    return symbol;
  }
  Scalar predicate(const base::Predicate&) override {
    ++cost.operations;
    return {0, DType::Bool};
  }
  void begin_guard(Scalar) override {}
  void end_guard() override {}

  Cost cost;
  std::vector<Value> operands;

 private:
  ReadAnalysis& analysis_;
  const Node* reader_;
  const Node* node_;
};

ReadAnalysis::ReadAnalysis(const LiveGraph& graph)
    : graph_(graph),
      owned_(graph.nodes().size(), false),
      fixed_(graph.nodes().size(), false),
      reads_(graph.nodes().size()),
      readers_(graph.nodes().size()),
      opaque_readers_(graph.nodes().size(), 0),
      costs_(graph.nodes().size()),
      is_pinned_(graph.nodes().size(), false),
      stands_for_bytes_(graph.nodes().size(), false) {
  const auto nodes = graph.nodes();
  find_fixed();
  for (const Value& result : graph.results()) pin(result);
  for (const Node* node : nodes) pin_operands(node);
  pin_ordered();
  pin_overwritten();
  for (std::size_t k = 0; k < nodes.size(); ++k) costs_[k] = inlined_cost(nodes[k]);
  for (std::size_t k = nodes.size(); k-- > 0;) visit(nodes[k]);
  // What inlined nodes read stands beside them.
  for (NodeReads& reads : reads_) {
    std::erase_if(reads.reads, [&](const Read& read) {
      return !is_owned(read.value.node) && graph.class_of(read.value.node) != NodeClass::Source;
    });
  }
}

void ReadAnalysis::find_fixed() {
  for (const Node* node : graph_.nodes()) {
    const std::string_view name = node->op_name();
    bool fixed = name == "param" || name == "const";
    const NodeClass kind = graph_.class_of(node);
    const bool computes =
        kind == NodeClass::View || kind == NodeClass::Element || kind == NodeClass::Reduce;
    if (computes && node->after().empty() && !node->inputs().empty())
      fixed = std::ranges::all_of(
          node->inputs(), [&](const Value& input) { return !input || is_fixed(input.node); });
    fixed_[graph_.position(node)] = fixed;
  }
}

void ReadAnalysis::pin(Value value) {
  const Value storage = graph_.storage(value);
  if (graph_.class_of(storage.node) == NodeClass::Source) return;
  if (std::find(pinned_.begin(), pinned_.end(), storage) == pinned_.end())
    pinned_.push_back(storage);
  is_pinned_[graph_.position(storage.node)] = true;
}

void ReadAnalysis::pin_operands(const Node* node) {
  const NodeClass kind = graph_.class_of(node);
  if (kind == NodeClass::Library || kind == NodeClass::Region) {
    for (const Value& input : node->inputs())
      if (input) pin(input);
    return;
  }
  if (kind != NodeClass::Nest) return;
  const NestRecipe& recipe = *find_recipe(node->op().lowering.nest);
  for (std::size_t k = 0; k < node->inputs().size(); ++k) {
    if (!node->input(k)) continue;
    if (ir::overwrites(*node, k)) pin(node->input(k));
    if ((recipe.memory_operands >> k & 1) == 0) continue;
    if (k == 0 && pin_bytes(*node)) continue;
    pin(affine_base(graph_, node->input(k)).value_or(node->input(k)));
  }
}

/// Keeps the bytes behind what a convolution multiplies, and not the numbers that they stand for, where it reads them so.
bool ReadAnalysis::pin_bytes(const Node& node) {
  if (graph_.options().target != LowerOptions::Target::Cpu || node.op_name() != "conv")
    return false;
  const std::optional<Value> bytes = bytes_behind_x(node);
  if (!bytes || affine_base(graph_, *bytes).value_or(*bytes) != *bytes) return false;
  for (Value x = node.input(0); x != *bytes; x = x.node->input(0)) {
    if (!unit_of(*x.node, graph_.options()).fuse || ir::wants_fallback(*x.node)) return false;
    if (!same_unit(*x.node, node, graph_.options())) return false;
  }
  for (Value x = node.input(0); x != *bytes; x = x.node->input(0))
    stands_for_bytes_[graph_.position(x.node)] = true;
  pin(*bytes);
  return true;
}

/// Nodes that order edges name, and what views named by them look at, are computed by a kernel, so that there is
/// something to order.
void ReadAnalysis::pin_ordered() {
  const auto force = [&](const Node* node) {
    if (!graph_.is_live(node) || graph_.class_of(node) != NodeClass::Element) return;
    is_pinned_[graph_.position(node)] = true;
  };
  std::vector<const Node*> named;
  for (const Node* node : graph_.nodes()) {
    if (!node->after().empty()) force(node);
    for (const Value& before : node->after()) named.push_back(before.node);
  }
  std::set<const Node*> seen;
  while (!named.empty()) {
    const Node* node = named.back();
    named.pop_back();
    force(node);
    if (!graph_.is_live(node) || graph_.class_of(node) != NodeClass::View) continue;
    if (!seen.insert(node).second) continue;
    for (const Value& input : node->inputs())
      if (input) named.push_back(input.node);
  }
}

/// What reads memory before it is overwritten is computed then, and not where it is used.
void ReadAnalysis::pin_overwritten() {
  for (const LiveGraph::Overwrite& overwrite : graph_.overwrites())
    for (const std::uint32_t reader : overwrite.readers)
      if (graph_.class_of(graph_.nodes()[reader]) == NodeClass::Element) is_pinned_[reader] = true;
}

void ReadAnalysis::visit(const Node* node) {
  const std::uint32_t k = graph_.position(node);
  const NodeClass kind = graph_.class_of(node);
  if (kind == NodeClass::Source) return;
  const bool inlineable = kind == NodeClass::View || kind == NodeClass::Element;
  owned_[k] = !inlineable || is_pinned_[k] ||
              (kind == NodeClass::Element ? !should_inline(node) && !keeps_bytes_instead(node)
                                          : brings_together(node));
  if (owned_[k]) {
    open(node);
    return;
  }
  for (const Reader& reader : readers_[k]) record(reader.node, node, reader.index);
  if (opaque_readers_[k] == 0) return;
  for (const Value& input : node->inputs())
    if (input) ++opaque_readers_[graph_.position(input.node)];
}

bool ReadAnalysis::should_inline(const Node* node) const {
  const std::uint32_t k = graph_.position(node);
  const bool computes = !node->inputs().empty();
  if (computes && (!unit_of(*node, graph_.options()).fuse || ir::wants_fallback(*node)))
    return false;
  if (computes && leaves_its_region(node)) return false;
  if (is_computed_once(node) || turns_what_many_read(node) || is_joined_and_turned(node))
    return false;
  const Cost& cost = costs_[k];
  if (node->output(0).count().is_constant(1))
    return cost.operations <= kScalarOperations && cost.loads <= 2 * kCheapLoads;
  if (cost.operations == 0 && cost.loads == 0) return true;
  const std::vector<Reader>& readers = readers_[k];
  const bool own_index = std::all_of(readers.begin(), readers.end(), [&](const Reader& reader) {
    return reads_same(reads_[graph_.position(reader.node)], {node->value(), reader.index});
  });
  if (stands_for_bytes_[k]) return true;
  if (readers.size() == 1 && opaque_readers_[k] == 0 && widens_what_is_kept(node)) return true;
  if (own_index && opaque_readers_[k] == 0) return false;
  if (narrows_a_nest(node)) return false;
  if (readers.size() == 1 && opaque_readers_[k] == 0 && reads_each_once(node, readers[0]))
    return true;
  const bool few_loads = cost.loads <= 1 || (cost.loads <= kCheapLoads && readers.size() <= 2);
  return !cost.expensive && few_loads && cost.operations <= kCheapOperations;
}

/// Whether rows of its elements are looked up that lie across memory without it, often enough to be worth a copy.
bool ReadAnalysis::brings_together(const Node* view) const {
  if (graph_.options().target != LowerOptions::Target::Cpu || graph_.is_relabelling(view) ||
      !unit_of(*view, graph_.options()).fuse || ir::wants_fallback(*view))
    return false;
  return std::ranges::any_of(readers_[graph_.position(view)],
                             [&](const Reader& reader) { return looks_up_across(view, reader); });
}

bool ReadAnalysis::looks_up_across(const Node* view, const Reader& reader) const {
  const NodeReads& reads = reads_[graph_.position(reader.node)];
  if (reads.axes.empty() || !reads.axes.back().is_symbol()) return false;
  const SymExpr& row = reads.domain.back();
  if (row.is_constant() && row.constant() < kLeastRow) return false;
  const SymExpr spare = kDearerAcross * base::product(reads.domain) - view->output(0).count();
  if (!base::provably_nonnegative(with_small_unbacked(spare), reads.facts)) return false;
  const auto step_of = [&](const Index& index, const ir::TensorMeta& meta) {
    const SymExpr place = linear_index(index, meta.sizes);
    return place.simplify(reads.facts).linear_in(reads.axes.back().symbol());
  };
  const auto together = step_of(reader.index, view->output(0));
  if (!together || !together->coefficient.is_constant(1)) return false;
  std::vector<Symbol> symbols;
  together->rest.collect_symbols(symbols);
  if (std::ranges::none_of(symbols, [](Symbol s) { return s.kind == Symbol::Kind::Temp; }))
    return false;
  Index index = reader.index;
  Value value = view->value();
  while (graph_.class_of(value.node) == NodeClass::View) {
    index = value.node->op().lowering.view(*value.node, index);
    value = value.node->input(0);
  }
  const auto apart = step_of(index, value.meta());
  return !apart || (!apart->coefficient.is_constant(1) && !apart->coefficient.is_constant(0));
}

/// Whether it makes more bytes, by few operations of one value and constants, of what is in memory anyway.
bool ReadAnalysis::widens_what_is_kept(const Node* node) const {
  const ir::TensorMeta& made = node->output(0);
  for (int steps = 0; steps < kCheapOperations; ++steps) {
    Value wide;
    for (const Value& input : node->inputs()) {
      if (!input || input.meta().count().is_constant(1)) continue;
      if (wide || !same_dims(input.meta().sizes, made.sizes)) return false;
      wide = input;
    }
    if (!wide || graph_.class_of(wide.node) != NodeClass::Element) return false;
    if (is_pinned_[graph_.position(wide.node)])
      return size_of(wide.meta().dtype) < size_of(made.dtype);
    node = wide.node;
  }
  return false;
}

/// Whether the bytes that it makes numbers of, by few operations with constants, are kept in its place: a quarter of the memory.
bool ReadAnalysis::keeps_bytes_instead(const Node* node) {
  const std::uint32_t k = graph_.position(node);
  if (graph_.options().target != LowerOptions::Target::Cpu || is_fixed(node) ||
      leaves_its_region(node) || !unit_of(*node, graph_.options()).fuse ||
      ir::wants_fallback(*node) || opaque_readers_[k] != 0)
    return false;
  const std::optional<Value> bytes = bytes_behind(node->value());
  if (!bytes) return false;
  const NodeClass kind = graph_.class_of(bytes->node);
  if (kind != NodeClass::Element && kind != NodeClass::Nest) return false;
  is_pinned_[graph_.position(bytes->node)] = true;
  return true;
}

/// Whether it makes fewer bytes of what a recipe with an epilogue gives.
bool ReadAnalysis::narrows_a_nest(const Node* node) const {
  if (graph_.options().target != LowerOptions::Target::Cpu) return false;
  const ir::TensorMeta& made = node->output(0);
  std::vector<const Node*> open{node};
  for (std::size_t k = 0; k < open.size() && k < kMostFollowing; ++k) {
    for (const Value& input : open[k]->inputs()) {
      if (!input || !same_dims(input.meta().sizes, made.sizes)) continue;
      const NodeClass kind = graph_.class_of(input.node);
      const bool is_nest =
          kind == NodeClass::Nest && find_recipe(input.node->op().lowering.nest)->epilogue;
      if (is_nest && size_of(input.meta().dtype) > size_of(made.dtype)) return true;
      if (kind == NodeClass::Element) open.push_back(input.node);
    }
  }
  return false;
}

/// Whether it computes something fixed for what is not. One element is cheaper than a kernel at any rate.
bool ReadAnalysis::is_computed_once(const Node* node) const {
  if (!is_fixed(node) || graph_.class_of(node) != NodeClass::Element) return false;
  const SymExpr count = node->output(0).count();
  if (!count.is_constant() || count.constant() <= 1 || count.constant() > kMaxKept) return false;
  const auto has_fixed_load = [](const Value& input) { return input && !splat_of(*input.node); };
  return std::ranges::any_of(node->inputs(), has_fixed_load) &&
         std::ranges::any_of(readers_[graph_.position(node)],
                             [&](const Reader& reader) { return !is_fixed(reader.node); });
}

/// Whether it copies what a permute shows, for a reader that reads each element several times: what lies across then would be
/// gathered each time.
bool ReadAnalysis::turns_what_many_read(const Node* node) const {
  if (graph_.options().target != LowerOptions::Target::Cpu || node->op_name() != "clone" ||
      node->input(0).node->op_name() != "permute")
    return false;
  const SymExpr often = node->output(0).count() * kManyReads;
  return std::ranges::any_of(readers_[graph_.position(node)], [&](const Reader& reader) {
    const NodeReads& reads = reads_[graph_.position(reader.node)];
    return base::provably_nonnegative(base::product(reads.domain) - often, reads.facts);
  });
}

/// Whether it puts rows of several values together for a reader that goes across them and takes a row of each in turn: lanes would
/// be gathered from all of them, where whole rows are copied and then turned in registers.
bool ReadAnalysis::is_joined_and_turned(const Node* node) const {
  if (graph_.options().target != LowerOptions::Target::Cpu || node->op_name() != "concat")
    return false;
  const SymExpr& row = node->output(0).sizes.back();
  const std::vector<Reader>& readers = readers_[graph_.position(node)];
  if (!row.is_constant() || row.constant() < kLeastTurnedRow || readers.size() != 1) return false;
  const NodeReads& reads = reads_[graph_.position(readers[0].node)];
  const Index& index = readers[0].index;
  if (reads.axes.empty() || !reads.axes.back().is_symbol() ||
      index.back().mentions(reads.axes.back().symbol()))
    return false;
  const std::int64_t axis = node->integer("axis");
  const SymExpr& part = index[static_cast<std::size_t>(axis < 0 ? axis + std::ssize(index) : axis)];
  return std::ranges::any_of(reads.axes, [&](const SymExpr& along) {
    return along.is_symbol() && part.mentions(along.symbol()) && !part.linear_in(along.symbol()) &&
           moves_at_once(part, along, reads);
  });
}

/// Whether a node outside the node's region reads it, or one that shares no kernel.
bool ReadAnalysis::leaves_its_region(const Node* node) const {
  return std::ranges::any_of(readers_[graph_.position(node)], [&](const Reader& reader) {
    return !same_unit(*node, *reader.node, graph_.options()) || ir::wants_fallback(*reader.node);
  });
}

/// Whether each axis of the reader moves along a dimension of its own of what it reads.
bool ReadAnalysis::is_injective(const NodeReads& reads, const Index& index) const {
  for (const SymExpr& axis : reads.axes) {
    if (!axis.is_symbol()) continue;
    const SymExpr* along = nullptr;
    for (const SymExpr& expr : index) {
      if (!expr.mentions(axis.symbol())) continue;
      if (along != nullptr) return false;
      along = &expr;
    }
    const auto linear = along == nullptr ? std::nullopt : along->linear_in(axis.symbol());
    if (!linear || !linear->coefficient.is_constant() || linear->coefficient.is_constant(0))
      return false;
    for (const SymExpr& other : reads.axes)
      if (other.is_symbol() && linear->rest.mentions(other.symbol())) return false;
  }
  return true;
}

/// Whether the reader evaluates no element twice, or has no more elements than the node.
bool ReadAnalysis::reads_each_once(const Node* node, const Reader& reader) const {
  const NodeReads& reads = reads_[graph_.position(reader.node)];
  const SymExpr spare = node->output(0).count() - base::product(reads.domain);
  return base::provably_nonnegative(spare, reads.facts) || is_injective(reads, reader.index);
}

/// Sets up the domain of an owned node and records its own reads.
void ReadAnalysis::open(const Node* node) {
  const NodeClass kind = graph_.class_of(node);
  NodeReads& reads = reads_[graph_.position(node)];
  reads.domain = kind == NodeClass::Reduce ? node->input(0).meta().sizes : node->output(0).sizes;
  reads.facts.sizes_positive = true;
  reads.axes = domain_axes(reads.domain, 0, reads.facts);
  if (kind == NodeClass::Reduce) {
    add_read(node, node->input(0), reads.axes);
  } else if (kind == NodeClass::Nest || kind == NodeClass::Library || kind == NodeClass::Region) {
    for (const Value& input : node->inputs()) {
      if (!input) continue;
      reads.opaque.push_back(input);
      ++opaque_readers_[graph_.position(input.node)];
    }
  } else {
    record(node, node, reads.axes);
  }
}

/// The reads of `node`, computed as part of `reader` at `index`.
void ReadAnalysis::record(const Node* reader, const Node* node, const Index& index) {
  const ir::Lowering& ways = node->op().lowering;
  if (graph_.class_of(node) == NodeClass::View) {
    add_read(reader, node->input(0), ways.view(*node, index));
    return;
  }
  Recorder recorder(*this, reader, node);
  ways.element(recorder, *node, 0, index);
}

/// Readers of a node that comes before `reader`: it is decided later whether it is inlined.
void ReadAnalysis::add_read(const Node* reader, Value value, const Index& index) {
  const std::uint32_t k = graph_.position(value.node);
  NodeReads& reads = reads_[graph_.position(reader)];
  Index simple;
  for (const SymExpr& expr : index) simple.push_back(expr.simplify(reads.facts));
  const auto& known = readers_[k];
  const bool repeated = std::any_of(known.begin(), known.end(), [&](const Reader& other) {
    return other.node == reader && same_dims(other.index, simple);
  });
  reads.reads.push_back({value, simple});
  if (!repeated) readers_[k].push_back({reader, std::move(simple)});
}

/// Cost of one element with everything up to the next memory inlined.
ReadAnalysis::Cost ReadAnalysis::inlined_cost(const Node* node) {
  const NodeClass kind = graph_.class_of(node);
  const bool inlineable = kind == NodeClass::View || kind == NodeClass::Element;
  if (kind == NodeClass::Source && splat_of(*node)) return {};
  if (!inlineable) return {.operations = 0, .loads = 1};
  Cost cost;
  std::vector<Value> operands(node->inputs().begin(), node->inputs().end());
  if (kind == NodeClass::Element) {
    base::Facts facts;
    Recorder recorder(*this, nullptr, node);
    node->op().lowering.element(recorder, *node, 0, domain_axes(node->output(0).sizes, 0, facts));
    cost = recorder.cost;
    operands = recorder.operands;
  }
  constexpr int kMany = 1 << 20;
  for (const Value& operand : operands) {
    if (!operand) continue;
    const Cost& inner = costs_[graph_.position(operand.node)];
    cost.operations = std::min(kMany, cost.operations + inner.operations);
    cost.loads = std::min(kMany, cost.loads + inner.loads);
    cost.expensive = cost.expensive || inner.expensive;
  }
  return cost;
}

bool reads_same(const NodeReads& reader, const Read& read) {
  const ir::Dims& sizes = read.value.meta().sizes;
  if (same_dims(read.index, reader.axes) && same_dims(sizes, reader.domain)) return true;
  if (!same(base::product(sizes), base::product(reader.domain), reader.facts)) return false;
  return same(linear_index(read.index, sizes), linear_index(reader.axes, reader.domain),
              reader.facts);
}

}  // namespace heddle::jit
