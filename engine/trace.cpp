#include "engine/trace.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/hash.h"
#include "heddle/error.h"
#include "ir/analysis/regions.h"
#include "ir/analysis/unbacked.h"
#include "ir/op.h"
#include "ir/structural_key.h"

namespace heddle::engine {

namespace {

thread_local std::vector<Trace*> trace_stack;

/// Made where a body is called: what it takes and gives.
bool is_of_the_call(const ir::Node& node) {
  const std::string_view op = node.op_name();
  return op == "input" || op == "const" || op == "symint" || op == "clone";
}

/// The attribute as the schema wants it: sizes where it says sizes, numbers where it says numbers.
ir::Attr convert(const OpAttr& attr, ir::AttrKind kind, std::string_view op, std::string_view name,
                 const base::Location& where) {
  using ir::AttrKind;
  const auto wrong = [&]() -> ir::Attr {
    throw ArgumentError({.what = fmt::format("{}: attribute {}", op, name),
                         .where = where.to_string(),
                         .expected = std::string(ir::name_of(kind)),
                         .got = "a value of another kind"});
  };
  switch (kind) {
    case AttrKind::Bool:
      if (auto* v = std::get_if<bool>(&attr)) return *v;
      break;
    case AttrKind::Int:
      if (auto* v = std::get_if<std::int64_t>(&attr)) return *v;
      if (auto* v = std::get_if<SymInt>(&attr)) return v->value();
      break;
    case AttrKind::Float:
      if (auto* v = std::get_if<double>(&attr)) return *v;
      if (auto* v = std::get_if<std::int64_t>(&attr)) return static_cast<double>(*v);
      break;
    case AttrKind::String:
      if (auto* v = std::get_if<std::string>(&attr)) return *v;
      break;
    case AttrKind::DType:
      if (auto* v = std::get_if<DType>(&attr)) return *v;
      break;
    case AttrKind::Ints:
      if (auto* v = std::get_if<std::vector<std::int64_t>>(&attr)) return *v;
      if (auto* v = std::get_if<std::vector<SymInt>>(&attr)) {
        std::vector<std::int64_t> values;
        for (const SymInt& size : *v) values.push_back(size.value());
        return values;
      }
      break;
    case AttrKind::Floats:
      if (auto* v = std::get_if<std::vector<double>>(&attr)) return *v;
      break;
    case AttrKind::SymInt:
      if (auto* v = std::get_if<SymInt>(&attr)) return to_expr(*v);
      if (auto* v = std::get_if<std::int64_t>(&attr)) return ir::SymExpr(*v);
      break;
    case AttrKind::SymInts: {
      ir::Dims dims;
      if (auto* v = std::get_if<std::vector<SymInt>>(&attr)) {
        for (const SymInt& size : *v) dims.push_back(to_expr(size));
        return dims;
      }
      if (auto* v = std::get_if<std::vector<std::int64_t>>(&attr)) {
        dims.assign(v->begin(), v->end());
        return dims;
      }
      break;
    }
    case AttrKind::Literal:
      if (auto* v = std::get_if<Tensor>(&attr))
        return std::make_shared<const ir::Literal>(to_literal(*v).clone());
      break;
    case AttrKind::Graph:
      break;
  }
  return wrong();
}

ir::Attrs convert(OpAttrs attrs, const ir::OpDef& op, const base::Location& where) {
  ir::Attrs result;
  for (const auto& [name, value] : attrs) {
    const ir::AttrSpec* spec = nullptr;
    for (const ir::AttrSpec& candidate : op.attrs)
      if (candidate.name == name) spec = &candidate;
    if (spec == nullptr)
      throw ArgumentError({.what = fmt::format("{}: unknown attribute", op.name),
                           .where = where.to_string(),
                           .expected = {},
                           .got = name});
    result.emplace(name, convert(value, spec->kind, op.name, name, where));
  }
  return result;
}

}  // namespace

Trace::Trace(std::string name, std::shared_ptr<ir::ShapeEnv> env, std::shared_ptr<Trace> parent)
    : builder_(std::move(name), std::move(env)), parent_(std::move(parent)) {}

Tensor Trace::handle(ir::Value value) {
  auto impl = std::make_shared<Tensor::Impl>();
  impl->dtype = value.meta().dtype;
  impl->trace = shared_from_this();
  impl->value = value;
  impl->meta = value.meta();
  if (parent_ != nullptr) handles_.push_back(impl);
  return Tensor(std::move(impl));
}

std::vector<std::shared_ptr<Tensor::Impl>> Trace::living_handles() const {
  std::vector<std::shared_ptr<Tensor::Impl>> living;
  for (const auto& handle : handles_) {
    std::shared_ptr<Tensor::Impl> alive = handle.lock();
    if (alive != nullptr && alive->trace.get() == this) living.push_back(std::move(alive));
  }
  return living;
}

void Trace::repoint(const std::shared_ptr<Tensor::Impl>& handle, ir::Value value) {
  handle->trace = shared_from_this();
  handle->value = value;
  handle->meta = value.meta();
  if (parent_ != nullptr) handles_.push_back(handle);
}

bool Trace::is_around(const Trace* inner) const {
  while (inner != nullptr && inner != this) inner = inner->parent_.get();
  return inner == this;
}

ir::Value Trace::capture(ir::Value outer) {
  const auto found = by_outer_.find(outer);
  if (found != by_outer_.end()) return found->second;
  const std::string name = outer.name().substr(1);
  ir::Value inner;
  if (outer.node->op_name() == "const") {
    builder_.context.name = name;
    inner = builder_.call("const", {}, outer.node->attrs())->value();
  } else {
    inner = builder_.input(
        ir::TensorMeta::of(outer.meta().dtype, outer.meta().sizes, outer.meta().device), name);
    captures_.push_back({outer, inner});
  }
  by_outer_.emplace(outer, inner);
  return inner;
}

ir::Value Trace::order_after(const Tensor& tensor) {
  const std::shared_ptr<Trace>& of = tensor.impl()->trace;
  if (of.get() == this || of->ended() || !of->is_around(this)) return value_of(tensor, {});
  const ir::Value first = of->current(tensor.impl()->value);
  if (std::ranges::find(of->call_after_, first) == of->call_after_.end())
    of->call_after_.push_back(first);
  return {};
}

Trace::Checkpoint Trace::checkpoint() const {
  Checkpoint now{builder_.checkpoint(), captured_.size(), captures_.size(), written_,
                 last_effect_,          call_after_,      nullptr};
  if (parent_ != nullptr) now.parent = std::make_unique<Checkpoint>(parent_->checkpoint());
  return now;
}

void Trace::rollback(const Checkpoint& before) {
  std::set<const ir::Node*> removed;
  for (std::size_t k = before.graph.nodes; k < builder_.nodes().size(); ++k)
    removed.insert(builder_.nodes()[k].get());
  const auto is_removed = [&](const auto& entry) { return removed.contains(entry.second.node); };
  std::erase_if(by_tensor_, is_removed);
  std::erase_if(by_outer_, is_removed);
  std::erase_if(originals_, [&](const auto& entry) { return removed.contains(entry.first.node); });
  std::erase_if(moved_, is_removed);
  written_ = before.written;
  last_effect_ = before.last_effect;
  call_after_ = before.call_after;
  captured_.resize(before.captured);
  captures_.resize(before.captures);
  builder_.rollback(before.graph);
  if (parent_ != nullptr) parent_->rollback(*before.parent);
}

/// Where the nodes of a body were written: errors tell it, so that a body written elsewhere is another one.
std::uint64_t Trace::places_of(const ir::Graph& body) {
  std::uint64_t places = 0;
  for (const ir::NodePtr& node : body.nodes()) {
    if (is_of_the_call(*node)) continue;
    places = base::combine(places, base::hash64(node->location().to_string()));
    for (const ir::GraphRef* nested : ir::regions_of(*node)) {
      const auto [known, fresh] = places_.try_emplace(nested->graph.get());
      if (fresh) known->second = places_of(*nested->graph);
      places = base::combine(places, known->second);
    }
  }
  return places;
}

ir::GraphRef Trace::install(const std::string& wanted, ir::Graph graph) {
  const base::Hash128 key = ir::body_key(graph);
  ir::GraphRef& installed = installed_[{key.low, key.high, places_of(graph)}];
  if (installed.graph != nullptr) return installed;
  std::string name = wanted;
  for (int k = 0; !installed_names_.insert(name).second; ++k)
    name = fmt::format("{}_{}", wanted, k);
  installed = {"@" + name, std::make_shared<const ir::Graph>(std::move(graph))};
  return installed;
}

ir::Value Trace::value_of(const Tensor& tensor, const base::Location& where) {
  if (!tensor.defined()) return {};
  if (tensor.is_symbolic()) {
    const Trace* of = tensor.impl()->trace.get();
    if (of != this && parent_ != nullptr && of->is_around(parent_.get()) && !of->ended())
      return capture(parent_->value_of(tensor, where));
    if (of != this)
      throw TraceError({.what = tensor.impl()->trace->ended()
                                    ? "a symbolic tensor is used after its trace ended"
                                    : "a symbolic tensor of another trace is used",
                        .where = where.to_string(),
                        .expected = "a tensor of this trace, or one with data",
                        .got = tensor.impl()->meta.to_string()});
    return current(tensor.impl()->value);
  }
  const auto found = by_tensor_.find(tensor.impl().get());
  if (found != by_tensor_.end()) return found->second;
  const ir::Literal literal = to_literal(tensor);
  ir::Value value;
  if (literal.rank() != 0 && parent_ != nullptr) {
    captured_.push_back(tensor);
    value = capture(parent_->value_of(tensor, where));
  } else if (literal.rank() == 0) {
    value = builder_.constant(literal.clone());
  } else {
    return parameter(tensor, {});
  }
  by_tensor_.emplace(tensor.impl().get(), value);
  if (literal.rank() == 0) captured_.push_back(tensor);  // keeps the address taken
  return value;
}

ir::Value Trace::parameter(const Tensor& tensor, std::string name) {
  const auto found = by_tensor_.find(tensor.impl().get());
  if (found != by_tensor_.end()) return found->second;
  const Tensor now = table_ == nullptr ? tensor : table_->value_of(tensor);
  const std::string label = table_ == nullptr ? std::string() : table_->label_of(tensor);
  if (name.empty()) name = label;
  const ir::Literal literal = to_literal(now);
  ir::Dims sizes(literal.sizes().begin(), literal.sizes().end());
  const ir::Value value = builder_.parameter(
      ir::TensorMeta::of(literal.dtype(), std::move(sizes)),
      std::make_shared<const ir::Literal>(literal.contiguous()), std::move(name), label);
  captured_.push_back(tensor);
  originals_.emplace(value, tensor);
  by_tensor_.emplace(tensor.impl().get(), value);
  return value;
}

namespace {

/// Whether a size that only the run tells gives way to `other`: to one that is known, or that is known before it.
bool gives_way(const base::SymExpr& size, const base::SymExpr& other) {
  const std::vector<base::Symbol> own = ir::unbacked_in(size);
  const std::vector<base::Symbol> others = ir::unbacked_in(other);
  return !own.empty() && (others.empty() || others.back() < own.back());
}

bool has_size(const ir::Value& value, const base::SymExpr& size) {
  return value && std::ranges::find(value.meta().sizes, size) != value.meta().sizes.end();
}

/// A size of operands of `node` and what it is required to be; each gives way once.
std::optional<std::pair<base::SymExpr, base::SymExpr>> misfit(
    const ir::Node& node, std::span<const base::SymExpr> gave_way) {
  for (const ir::Assumption& required : node.late_requirements()) {
    const auto& [op, left, right] = required.predicate;
    if (op != base::Predicate::Op::Eq) continue;
    std::pair fit(left, right);
    if (!gives_way(left, right)) std::swap(fit.first, fit.second);
    for (int k = 0; k < 2; ++k, std::swap(fit.first, fit.second)) {
      const auto has = [&](const ir::Value& operand) { return has_size(operand, fit.first); };
      if (std::ranges::any_of(node.inputs(), has) &&
          std::ranges::find(gave_way, fit.second) == gave_way.end())
        return fit;
    }
  }
  return {};
}

}  // namespace

/// Calls `op`. Operands whose sizes must be equal, as only the run can tell, get equal types: by a reshape, which the run
/// refuses where they are not.
const ir::Node* Trace::call_fitted(const ir::OpDef& op, std::vector<ir::Value> values,
                                   const ir::Attrs& attrs) {
  if (env().next_unbacked_ == 0) return builder_.call(op, values, attrs);
  std::vector<base::SymExpr> gave_way;
  for (;;) {
    const ir::GraphBuilder::Checkpoint before = builder_.checkpoint();
    const ir::Node* node = builder_.call(op, values, attrs);
    const auto fit = op.name == "reshape" ? std::nullopt : misfit(*node, gave_way);
    if (!fit) return node;
    builder_.rollback(before);
    gave_way.push_back(fit->first);
    const std::string wanted = std::exchange(builder_.context.name, {});
    builder_.context.origin = op.name;
    for (ir::Value& value : values) {
      if (!has_size(value, fit->first)) continue;
      ir::Dims sizes = value.meta().sizes;
      std::ranges::replace(sizes, fit->first, fit->second);
      value = builder_.emit("reshape", {value}, {{"sizes", std::move(sizes)}});
    }
    builder_.context.origin.clear();
    builder_.context.name = wanted;
  }
}

std::vector<Tensor> Trace::apply(std::string_view op_name, std::span<const Tensor> operands,
                                 OpAttrs attrs, const base::Location& where) {
  const ir::OpDef& op = ir::op_named(op_name);
  std::vector<ir::Value> values;
  for (const Tensor& operand : operands) values.push_back(value_of(operand, where));
  if (op.custom != nullptr)
    return apply_custom(op, std::move(values), convert(std::move(attrs), op, where), where);
  const ir::Attrs converted = convert(std::move(attrs), op, where);
  builder_.context.location = where;
  builder_.context.name = wanted_name();
  const ir::Node* node = call_fitted(op, std::move(values), converted);
  std::vector<Tensor> results;
  for (std::uint32_t k = 0; k < node->outputs().size(); ++k)
    results.push_back(handle(node->value(k)));
  return results;
}

Trace* current_trace() { return trace_stack.empty() ? nullptr : trace_stack.back(); }

TraceScope::TraceScope(std::shared_ptr<Trace> trace) : trace_(std::move(trace)) {
  trace_stack.push_back(trace_.get());
}

TraceScope::~TraceScope() {
  trace_->end();
  trace_stack.pop_back();
}

SymInt from_expr(const base::SymExpr& expr, const std::shared_ptr<Trace>& trace) {
  if (expr.is_constant()) return SymInt(expr.constant());
  return SymInt(std::make_shared<const SymInt::Impl>(SymInt::Impl{expr, trace}));
}

}  // namespace heddle::engine

namespace heddle {

std::vector<Tensor> apply(std::string_view op, std::span<const Tensor> operands, OpAttrs attrs,
                          At where) {
  if (engine::Trace* trace = engine::current_trace())
    return trace->apply(op, operands, std::move(attrs), engine::location_of(where));
  for (const Tensor& operand : operands) {
    if (operand.is_symbolic())
      throw TraceError({.what = operand.impl()->trace->ended()
                                    ? "a symbolic tensor is used after its trace ended"
                                    : "a symbolic tensor is used on another thread than its trace",
                        .where = engine::location_of(where).to_string(),
                        .expected = "a tensor with data",
                        .got = operand.impl()->meta.to_string()});
  }
  return engine::run_eagerly(op, operands, std::move(attrs), where);
}

void assign(const Tensor& state, const Tensor& value, At where) {
  const base::Location location = engine::location_of(where);
  if (engine::Trace* trace = engine::current_trace()) return trace->assign(state, value, location);
  const auto described = [](const Tensor& tensor) {
    return fmt::format("{}[{}]", name_of(tensor.dtype()), fmt::join(tensor.sizes(), ", "));
  };
  const auto misfit = [&] {
    return Error::Parts{.what = "assign: state",
                        .where = location.to_string(),
                        .expected = "row-major " + described(value),
                        .got = described(state) + (state.is_row_major() ? "" : ", strided")};
  };
  if (state.dtype() != value.dtype()) throw DTypeError(misfit());
  if (state.impl()->sizes != value.impl()->sizes || !state.is_row_major())
    throw ShapeError(misfit());
  engine::require_writable(state, "assign: state", where);
  if (state.impl()->device.is_cuda() || value.impl()->device.is_cuda())
    throw DeviceError({.what = "assign: outside a traced callable",
                       .where = location.to_string(),
                       .expected = "tensors on cpu",
                       .got = state.device().to_string() + " and " + value.device().to_string()});
  const Tensor copy = value.clone();
  const auto bytes = static_cast<std::size_t>(copy.count()) * size_of(copy.dtype());
  if (bytes != 0) std::memcpy(state.impl()->data(), copy.data(), bytes);
}

}  // namespace heddle
