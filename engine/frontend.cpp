#include "heddle/frontend.h"

#include "engine/engine_impl.h"
#include "engine/tensor_impl.h"
#include "engine/trace.h"

namespace heddle {

namespace {
thread_local const detail::LocationScope* innermost = nullptr;
}  // namespace

namespace engine {

base::Location location_of(const std::source_location& where) {
  if (innermost != nullptr) return {innermost->name(), 0};
  return {where.file_name(), where.line()};
}

std::string wanted_name() { return innermost == nullptr ? std::string() : innermost->values(); }

}  // namespace engine

namespace detail {

bool in_region() {
  const engine::Trace* trace = engine::current_trace();
  return trace != nullptr && trace->parent() != nullptr;
}

SymInt size_symbol(std::uint32_t id) {
  return SymInt(
      std::make_shared<const SymInt::Impl>(SymInt::Impl{base::SymExpr::size(id), nullptr}));
}

void set_load_ms(Engine& engine, double milliseconds) {
  const std::scoped_lock lock(engine.impl_->mutex);
  engine.impl_->load_ms = milliseconds;
}

void name_parameter(Engine& engine, const std::string& name, const Tensor& parameter,
                    bool is_label) {
  engine.impl_->parameters.add(parameter, name, is_label);
}

LocationScope::LocationScope(std::string name, std::string values)
    : name_(std::move(name)), values_(std::move(values)), outer_(innermost) {
  innermost = this;
}

LocationScope::~LocationScope() { innermost = outer_; }

}  // namespace detail
}  // namespace heddle
