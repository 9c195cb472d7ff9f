// New values for parameters of an engine that runs.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

#include "engine/engine_impl.h"
#include "engine/tensor_impl.h"
#include "heddle/error.h"

namespace heddle {

namespace {

using Updates = std::vector<std::pair<Tensor, Tensor>>;

std::string type_text(const Tensor& tensor) {
  if (!tensor.defined() || tensor.is_symbolic()) return "no tensor with data";
  return fmt::format("{}[{}]", name_of(tensor.dtype()), fmt::join(tensor.sizes(), ", "));
}

void check_type(std::string_view name, const Tensor& old, const Tensor& value) {
  const auto parts = [&] {
    return Error::Parts{.what = fmt::format("update_parameters: {}", name),
                        .where = {},
                        .expected = type_text(old),
                        .got = type_text(value)};
  };
  if (!value.defined() || value.is_symbolic()) throw ArgumentError(parts());
  if (value.dtype() != old.dtype()) throw DTypeError(parts());
  if (!std::ranges::equal(value.sizes(), old.sizes())) throw ShapeError(parts());
}

/// Whether a trace found `original` to be a parameter.
bool is_read_by(const engine::Executable& executable, const Tensor& original) {
  return std::ranges::any_of(executable.originals, [&](const auto& entry) {
    return entry.second.impl() == original.impl();
  });
}

}  // namespace

std::shared_ptr<engine::Executable> Engine::Impl::updated(const engine::Executable& old,
                                                          const Updates& values) {
  std::map<ir::Value, ir::LiteralPtr> literals;
  std::vector<Tensor> originals;  // in the order of the parameters
  for (const ir::Value input : old.traced().inputs()) {
    const auto original = old.originals.find(input);
    if (original == old.originals.end()) continue;
    originals.push_back(original->second);
    for (const auto& [replaced, value] : values)
      if (replaced.impl() == original->second.impl())
        literals[input] =
            std::make_shared<const ir::Literal>(engine::to_literal(value).contiguous());
  }
  ir::Graph graph = engine::with_parameters(old.traced(), literals);
  std::map<ir::Value, Tensor> now;
  std::size_t next = 0;
  for (std::size_t k = 0; k < graph.inputs().size(); ++k)
    if (old.originals.contains(old.traced().inputs()[k]))
      now[graph.inputs()[k]] = originals[next++];
  engine::BuildOptions build = build_options(old.hints);
  build.constants = nullptr;  // values that change while the engine runs are those of no start
  build.keep_plans = false;
  auto made = std::make_shared<engine::Executable>(std::move(graph), old.guards(), build);
  made->prototype = old.prototype;
  made->originals = std::move(now);
  made->hints = old.hints;
  made->in_place = old.in_place;
  made->is_exact = old.is_exact;
  return made;
}

void Engine::Impl::update(const Updates& values) {
  const std::scoped_lock one_at_a_time(compiling);
  std::vector<std::shared_ptr<const engine::Executable>> old;
  {
    const std::scoped_lock lock(mutex);
    old = executables;
    old.insert(old.end(), exact_executables.begin(), exact_executables.end());
  }
  for (const auto& [original, value] : values) {
    const auto reads = [&](const auto& executable) { return is_read_by(*executable, original); };
    if (!old.empty() && std::ranges::none_of(old, reads))
      throw ArgumentError({.what = "update_parameters: " + parameters.name_of(original),
                           .where = {},
                           .expected = "a parameter that the graph reads when it runs",
                           .got = "one that is unused, or whose elements the trace read"});
  }
  std::vector<std::shared_ptr<const engine::Executable>> made;
  for (const auto& executable : old) made.push_back(updated(*executable, values));
  for (const auto& [original, value] : values) parameters.replace(original, value);
  const std::scoped_lock lock(mutex);
  for (std::size_t k = 0; k < old.size(); ++k) {
    for (Executables* list : {&executables, &exact_executables})
      std::ranges::replace(*list, old[k], made[k]);
    old[k]->superseded = true;
    plans.erase(old[k].get());
  }
}

std::vector<Parameter> Engine::parameters() const {
  std::vector<Parameter> result;
  for (engine::ParameterTable::Entry& entry : impl_->parameters.entries())
    result.push_back({std::move(entry.name), std::move(entry.value)});
  return result;
}

void Engine::update_parameters(std::span<const NamedTensor> values) {
  Updates updates;
  std::set<std::string_view> given;
  for (const NamedTensor& named : values) {
    const Tensor original = impl_->parameters.original(named.name);
    if (!given.insert(named.name).second)
      throw ArgumentError({.what = "update_parameters",
                           .where = {},
                           .expected = "each name once",
                           .got = fmt::format("{} twice", named.name)});
    check_type(named.name, original, named.tensor);
    updates.emplace_back(original, named.tensor.clone());
  }
  impl_->update(updates);
}

void Engine::update_parameter(const Tensor& captured, const Tensor& value) {
  const std::string name = impl_->parameters.name_of(captured);
  if (name.empty())
    throw ArgumentError({.what = "update_parameter: captured",
                         .where = {},
                         .expected = "a handle that the callable captured, after its first trace",
                         .got = type_text(captured)});
  update_parameters({{name, value}});
}

}  // namespace heddle
