#include "engine/trace.h"

#include <fmt/format.h>

#include "base/check.h"
#include "heddle/error.h"
#include "ir/op.h"

namespace heddle::engine {

namespace {

thread_local std::vector<Trace*> trace_stack;

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

Trace::Trace(std::string name, std::shared_ptr<ir::ShapeEnv> env)
    : builder_(std::move(name), std::move(env)) {}

Tensor Trace::handle(ir::Value value) {
  auto impl = std::make_shared<Tensor::Impl>();
  impl->dtype = value.meta().dtype;
  impl->trace = shared_from_this();
  impl->value = value;
  return Tensor(std::move(impl));
}

ir::Value Trace::value_of(const Tensor& tensor, const base::Location& where) {
  if (!tensor.defined()) return {};
  if (tensor.is_symbolic()) {
    if (tensor.impl()->trace.get() != this)
      throw TraceError({.what = tensor.impl()->trace->ended()
                                    ? "a symbolic tensor is used after its trace ended"
                                    : "a symbolic tensor of another trace is used",
                        .where = where.to_string(),
                        .expected = "a tensor of this trace, or one with data",
                        .got = tensor.impl()->value.meta().to_string()});
    return current(tensor.impl()->value);
  }
  const auto found = by_tensor_.find(tensor.impl().get());
  if (found != by_tensor_.end()) return found->second;
  const ir::Literal literal = to_literal(tensor);
  ir::Value value;
  if (literal.rank() == 0) {
    value = builder_.constant(literal.clone());
  } else {
    ir::Dims sizes(literal.sizes().begin(), literal.sizes().end());
    value = builder_.parameter(ir::TensorMeta::of(literal.dtype(), std::move(sizes)),
                               std::make_shared<const ir::Literal>(literal.contiguous()));
    captured_.push_back(tensor);
  }
  by_tensor_.emplace(tensor.impl().get(), value);
  if (literal.rank() == 0) captured_.push_back(tensor);  // keeps the address taken
  return value;
}

std::vector<Tensor> Trace::apply(std::string_view op_name, std::span<const Tensor> operands,
                                 OpAttrs attrs, const base::Location& where) {
  const ir::OpDef& op = ir::op_named(op_name);
  std::vector<ir::Value> values;
  for (const Tensor& operand : operands) values.push_back(value_of(operand, where));
  if (op.custom != nullptr)
    return apply_custom(op, std::move(values), convert(std::move(attrs), op, where), where);
  builder_.context.location = where;
  const ir::Node* node = builder_.call(op, values, convert(std::move(attrs), op, where));
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
      throw TraceError({.what = "a symbolic tensor is used after its trace ended",
                        .where = engine::location_of(where).to_string(),
                        .expected = "a tensor with data",
                        .got = operand.impl()->value.meta().to_string()});
  }
  return engine::run_eagerly(op, operands, std::move(attrs), where);
}

}  // namespace heddle
