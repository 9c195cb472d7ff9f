#include "engine/region_trace.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>

#include "base/check.h"
#include "base/relabel.h"
#include "heddle/custom_op.h"
#include "heddle/error.h"
#include "ir/analysis/unbacked.h"
#include "ir/op.h"

namespace heddle::engine {

namespace {

/// Rethrows what is being handled with `label` before its text: an error of the engine as one of its class,
/// another exception nested in a TraceError.
[[noreturn]] void fail_in(const std::string& label, const base::Location& where) {
  try {
    throw;
  } catch (const CustomOpError& error) {
    Error::Parts parts = error.parts();
    parts.what = label + ": " + parts.what;
    throw CustomOpError(std::move(parts));
  } catch (const Error& error) {
    base::rethrow_labelled(error, label);
    throw;
  } catch (const std::exception& error) {
    std::throw_with_nested(
        TraceError({.what = label + ": " + error.what(), .where = where.to_string()}));
  }
}

bool is_input(ir::Value value) { return value.node->op_name() == "input"; }

}  // namespace

RegionTrace::RegionTrace(std::string label, std::string graph_name,
                         std::span<const ir::TensorMeta> arguments, const detail::Body& body,
                         const base::Location& where, Scope scope)
    : label_(std::move(label)), graph_name_(std::move(graph_name)), where_(where) {
  Trace& outer = *current_trace();
  trace_ =
      std::make_shared<Trace>(graph_name_, outer.builder().shared_env(), outer.shared_from_this());
  if (scope == Scope::OfTheCall)
    trace_->builder().context.annotations = outer.builder().context.annotations;
  const TraceScope tracing(trace_);
  std::vector<Tensor> given;
  for (const ir::TensorMeta& meta : arguments) {
    arguments_.push_back(trace_->builder().input(meta));
    given.push_back(trace_->handle(arguments_.back()));
  }
  try {
    leaves_ = body(given);
  } catch (...) {
    fail_in(label_, where_);
  }
  if (trace_->writes_inputs() || trace_->builder().write_back_count() != 0)
    throw MutationError({.what = label_ + ": the body mutates what it is given",
                         .where = where_.to_string(),
                         .expected = "new values, returned from the body",
                         .got = "a write to an input of the region"});
  for (const detail::Leaves::Leaf& leaf : leaves()) {
    trace_->builder().context.location = where_;
    if (leaf.tensor != nullptr)
      values_.push_back(trace_->value_of(*leaf.tensor, where_));
    else
      values_.push_back(
          trace_->builder().call("symint", {}, {{"value", to_expr(*leaf.size)}})->value());
  }
}

std::vector<ir::Value> RegionTrace::leaks() const {
  std::set<const Tensor::Impl*> returned;
  for (const detail::Leaves::Leaf& leaf : leaves())
    if (leaf.tensor != nullptr) returned.insert(leaf.tensor->impl().get());
  std::vector<ir::Value> leaks;
  for (const auto& handle : trace_->living_handles()) {
    const ir::Value value = handle->value;
    const bool known = std::ranges::find(leaks, value) != leaks.end() ||
                       std::ranges::find(values_, value) != values_.end();
    if (!returned.contains(handle.get()) && !is_input(value) && !known) leaks.push_back(value);
  }
  return leaks;
}

void RegionTrace::refuse_leaks() const {
  const std::vector<ir::Value> kept = leaks();
  if (kept.empty()) return;
  throw SideEffectError(
      {.what = label_ + ": the body keeps a tensor that it does not return",
       .where = kept[0].node->location().to_string(),
       .expected = "no handle of the body's values outside its return value",
       .got = fmt::format("{}: {}", kept[0].node->op_name(), kept[0].meta().to_string())});
}

void RegionTrace::add_fresh_output(ir::Value value) {
  if (storages_.empty())
    for (const ir::Value& input : trace_->builder().inputs())
      storages_.insert(input.meta().storage);
  if (!storages_.insert(value.meta().storage).second)
    value = trace_->builder().emit("clone", {value});
  storages_.insert(value.meta().storage);
  trace_->builder().output(value);
}

ir::GraphRef RegionTrace::finish() {
  return trace_->root().install(graph_name_, trace_->builder().finish());
}

void RegionTrace::name_late_sizes(std::span<const ir::Dims> results, const ir::Node& call) {
  for (std::uint32_t k = 0; k < results.size(); ++k) {
    const ir::Dims& inside = results[k];
    for (std::size_t d = 0; d < inside.size(); ++d)
      if (inside[d].is_symbol() && ir::is_unbacked(inside[d]))
        late_.try_emplace(inside[d].symbol(), call.output(k).sizes[d]);
  }
}

void RegionTrace::repoint(std::size_t leaf, ir::Value value) {
  Trace& outer = *trace_->parent();
  Tensor* tensor = leaves()[leaf].tensor;
  if (tensor == nullptr) {
    const ir::SymExpr size = to_expr(*leaves()[leaf].size).substitute(late_);
    *leaves()[leaf].size = from_expr(size, outer.shared_from_this());
    return;
  }
  const auto known = pointed_.find(tensor->impl().get());
  if (known != pointed_.end() && known->second.value == value) {
    *tensor = known->second.handle;
    return;
  }
  const Tensor before = *tensor;
  if (known == pointed_.end() && before.impl()->trace == trace_)
    outer.repoint(before.impl(), value);
  else
    *tensor = outer.handle(value);
  if (known == pointed_.end())
    pointed_.emplace(before.impl().get(), Pointed{value, *tensor, before});
}

void RegionTrace::repoint_kept(ir::Value inner, ir::Value outer) {
  for (const auto& handle : trace_->living_handles())
    if (handle->value == inner) trace_->parent()->repoint(handle, outer);
}

void RegionTrace::repoint_inputs(std::span<const ir::Value> operands) {
  for (std::size_t k = 0; k < arguments_.size() && k < operands.size(); ++k)
    repoint_kept(arguments_[k], operands[k]);
  for (const Trace::Capture& capture : captures()) repoint_kept(capture.inner, capture.outer);
}

std::vector<ir::Value> share_signature(RegionTrace& first, RegionTrace& second) {
  const auto has = [](const RegionTrace& region, ir::Value outer) {
    return std::ranges::any_of(region.captures(),
                               [&](const auto& capture) { return capture.outer == outer; });
  };
  std::vector<ir::Value> groups[3];
  for (const Trace::Capture& capture : first.captures())
    groups[has(second, capture.outer) ? 0 : 1].push_back(capture.outer);
  for (const Trace::Capture& capture : second.captures())
    if (!has(first, capture.outer)) groups[2].push_back(capture.outer);
  std::vector<ir::Value> captured;
  for (auto& group : groups) {
    std::ranges::sort(group, {}, [](ir::Value value) { return value.name(); });
    captured.insert(captured.end(), group.begin(), group.end());
  }
  for (RegionTrace* region : {&first, &second}) {
    std::vector<ir::Value> inputs(region->arguments().begin(), region->arguments().end());
    for (const ir::Value& outer : captured) inputs.push_back(region->trace().capture(outer));
    region->trace().builder().order_inputs(inputs);
  }
  return captured;
}

}  // namespace heddle::engine
