// Engines whose options name inputs to append to.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "engine/engine_impl.h"
#include "engine/output_check.h"
#include "heddle/error.h"

namespace heddle {

using engine::BoundPlan;

void Engine::Impl::find_appended(std::size_t count) {
  if (appended && appended->count == count) return;
  AppendedInputs found{count, {}, {}};
  std::set<std::string> names;
  for (std::size_t k = 0; k < count; ++k) {
    const std::string name = engine::input_name(known, k);
    names.insert(name);
    if (!options.append.contains(name)) continue;
    if (is_donated(k))
      throw OptionError({.what = "append",
                         .where = {},
                         .expected = "an input that is not donated",
                         .got = name});
    found.named.push_back(k);
  }
  for (const std::string& name : options.append)
    if (!names.contains(name))
      throw OptionError({.what = "append",
                         .where = {},
                         .expected = fmt::format("an input: {}", fmt::join(names, ", ")),
                         .got = name});
  found.axes.resize(found.named.size());
  appended = std::move(found);
}

std::vector<std::size_t> Engine::Impl::named_to_append(std::size_t count) {
  const std::scoped_lock lock(mutex);
  find_appended(count);
  return appended->named;
}

void Engine::Impl::note_appends(const engine::AppendedGraph& appends) {
  if (!appended || appended->named != appends.inputs) return;
  for (const engine::Append& append : appends.list) {
    appended->axes[append.named] = append.axis;
    for (const std::size_t output : append.outputs)
      known.outputs[output].appends_to = engine::input_name(known, appends.inputs[append.named]);
  }
}

engine::AppendCall Engine::Impl::append_call(std::span<const Tensor> inputs,
                                             std::vector<Tensor>* owner) {
  std::vector<std::size_t> named;
  engine::AppendAxes axes;
  {
    const std::scoped_lock lock(mutex);
    find_appended(inputs.size());
    named = appended->named;
    axes = appended->axes;
  }
  return {inputs, owner, named, axes,
          {cuda == nullptr ? nullptr : &cuda->runtime(), options.append_room}};
}

const BoundPlan& Engine::Impl::plan_for(engine::AppendCall& call) {
  // The memory that a plan needs may make it another plan's call, of an executable that appends elsewhere at the worst.
  constexpr int kMostRounds = 8;
  for (int round = 0; round < kMostRounds; ++round) {
    const BoundPlan& plan = plan_for(std::span<const Tensor>(call.inputs()));
    const bool ready = call.take_room(plan);
    if (!ready) continue;
    append_copies.fetch_add(call.copies(), std::memory_order_relaxed);
    append_copied_bytes.fetch_add(call.copied_bytes(), std::memory_order_relaxed);
    return plan;
  }
  HD_CHECK(false, "no plan for what is appended");
}

const BoundPlan& Engine::Impl::plan_like(std::span<const Tensor> inputs) {
  if (!appends()) return plan_for(inputs);
  engine::AppendCall call = append_call(inputs, nullptr);
  return plan_for(std::span<const Tensor>(call.inputs()));
}

namespace {

/// That outputs[k] may get a copy of `result` in the end.
void check_copied(const Tensor& result, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                  std::size_t k) {
  const auto is_donated = [](std::size_t) { return false; };
  engine::check_output(result.dtype(), result.impl()->sizes, result.device(), inputs, outputs, k,
                       is_donated);
  const engine::MemoryRange own = engine::extent_of(*outputs[k].impl());
  for (std::size_t other = k + 1; other < outputs.size(); ++other)
    if (outputs[other].defined() && engine::overlap(own, engine::extent_of(*outputs[other].impl())))
      engine::refuse_overlap(other, "output", k);
}

}  // namespace

void Engine::Impl::run_appending_into(std::span<const Tensor> inputs, std::span<Tensor> outputs) {
  engine::AppendCall call = append_call(inputs, nullptr);
  const BoundPlan& plan = plan_for(call);
  const engine::AppendedGraph& all = plan.executable->appends;
  engine::check_output_count(all.outputs, outputs.size());
  std::vector<bool> is_appended(outputs.size(), false);
  for (std::size_t k = 0; k < all.list.size(); ++k)
    for (const std::size_t output : all.list[k].outputs) {
      is_appended[output] = true;
      if (outputs[output].defined()) check_copied(call.appended(plan, k), inputs, outputs, output);
    }
  std::vector<Tensor> others;
  for (std::size_t k = 0; k < outputs.size(); ++k)
    if (!is_appended[k]) others.push_back(outputs[k]);
  run_plan_into(plan, call.inputs(), others);
  std::vector<Tensor> results = call.results(plan, std::move(others));
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    if (!outputs[k].defined()) {
      outputs[k] = std::move(results[k]);
    } else if (is_appended[k]) {
      engine::copy_elements(results[k].clone(), outputs[k]);
      copied_outputs.fetch_add(1, std::memory_order_relaxed);
    }
  }
}

}  // namespace heddle
