// Calls with outputs that lie where inputs do.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "engine/engine_impl.h"
#include "engine/output_check.h"
#include "heddle/error.h"

namespace heddle {

using engine::BoundPlan;

Engine::Impl::AppendedInputs& Engine::Impl::find_appended(std::size_t count) {
  if (const auto known_one = appended.find(count); known_one != appended.end())
    return known_one->second;
  AppendedInputs found;
  std::set<std::string> names;
  for (std::size_t k = 0; k < count; ++k) {
    const std::string name = engine::input_name(known, k);
    names.insert(name);
    if (!options.append.contains(name)) continue;
    if (is_donated(k))
      throw OptionError(
          {.what = "append", .where = {}, .expected = "an input that is not donated", .got = name});
    found.named.push_back(k);
  }
  for (const std::string& name : options.append)
    if (!names.contains(name))
      throw OptionError({.what = "append",
                         .where = {},
                         .expected = fmt::format("an input: {}", fmt::join(names, ", ")),
                         .got = name});
  found.axes.resize(found.named.size());
  return appended[count] = std::move(found);
}

std::vector<std::size_t> Engine::Impl::named_to_append(std::size_t count) {
  const std::scoped_lock lock(mutex);
  return find_appended(count).named;
}

void Engine::Impl::note_in_place(const engine::OutputsInPlace& in_place, std::size_t inputs) {
  for (const engine::Update& update : in_place.updates)
    for (const std::size_t output : update.outputs)
      known.outputs[output].lies_in = engine::input_name(known, update.input);
  if (!appends()) return;
  AppendedInputs& of_so_many = find_appended(inputs);
  for (const engine::Append& append : in_place.appends) {
    of_so_many.axes[append.named] = append.axis;
    for (const std::size_t output : append.outputs)
      known.outputs[output].lies_in = engine::input_name(known, in_place.inputs[append.named]);
  }
}

engine::InPlaceCall Engine::Impl::in_place_call(std::span<const Tensor> inputs,
                                                std::vector<Tensor>* owner) {
  std::vector<std::size_t> named;
  engine::AppendAxes axes;
  if (appends()) {
    const std::scoped_lock lock(mutex);
    const AppendedInputs& of_so_many = find_appended(inputs.size());
    named = of_so_many.named;
    axes = of_so_many.axes;
  }
  return {inputs,
          owner,
          named,
          axes,
          {cuda == nullptr ? nullptr : &cuda->runtime(), options.append_room}};
}

const BoundPlan& Engine::Impl::plan_for(engine::InPlaceCall& call) {
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
  engine::InPlaceCall call = in_place_call(inputs, nullptr);
  return plan_for(std::span<const Tensor>(call.inputs()));
}

namespace {

/// That outputs[k] may be `place`, or get a copy of it in the end, when what is donated is not needed any more.
/// @param own  the input that it lies in; kNoInput: none
/// @return whether it is that input
template <typename F>
bool check_placed(const Tensor& place, std::size_t own, std::span<const Tensor> inputs,
                  std::span<const Tensor> outputs, std::size_t k, F&& is_donated) {
  const std::size_t found =
      engine::check_output(place.dtype(), place.impl()->sizes, place.device(), inputs, outputs, k,
                           [&](std::size_t input) { return input == own || is_donated(input); });
  const engine::MemoryRange range = engine::extent_of(*outputs[k].impl());
  for (std::size_t other = k + 1; other < outputs.size(); ++other)
    if (outputs[other].defined() &&
        engine::overlap(range, engine::extent_of(*outputs[other].impl())))
      engine::refuse_overlap(other, "output", k);
  return found != engine::kNoInput && found == own;
}

}  // namespace

void Engine::Impl::run_in_place_into(std::span<const Tensor> inputs, std::span<Tensor> outputs) {
  engine::InPlaceCall call = in_place_call(inputs, nullptr);
  const BoundPlan& plan = plan_for(call);
  call.bring_updated(plan);
  const engine::OutputsInPlace& in_place = plan.executable->in_place;
  engine::check_output_count(in_place.outputs, outputs.size());
  // What the caller wants elsewhere in an input that is updated would come to lie over it.
  std::vector<std::size_t> own(outputs.size(), engine::kNoInput);
  for (const engine::Update& update : in_place.updates) {
    for (const std::size_t output : update.outputs) own[output] = update.input;
    const auto range = engine::extent_of(*inputs[update.input].impl());
    const auto lies_there = [&](const Tensor& output) {
      return output.defined() &&
             own[static_cast<std::size_t>(&output - outputs.data())] != update.input &&
             engine::overlap(range, engine::extent_of(*output.impl()));
    };
    if (std::ranges::any_of(outputs, lies_there))
      call.inputs()[update.input] = call.inputs()[update.input].clone();
  }
  std::vector<Tensor> places = call.places(plan);
  std::vector<Tensor> others;
  std::vector<bool> copies(outputs.size(), false);
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    if (!places[k].defined())
      others.push_back(outputs[k]);
    else if (outputs[k].defined())
      copies[k] = !check_placed(places[k], own[k], inputs, outputs, k, [&](std::size_t input) {
        return is_donated(input);
      }) || places[k].impl() != inputs[own[k]].impl();
  }
  run_plan_into(plan, call.inputs(), others);
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    if (copies[k]) {
      engine::copy_elements(places[k].is_row_major() ? places[k] : places[k].clone(), outputs[k]);
      copied_outputs.fetch_add(1, std::memory_order_relaxed);
    } else if (!outputs[k].defined()) {
      outputs[k] = places[k];
    }
  }
}

}  // namespace heddle
