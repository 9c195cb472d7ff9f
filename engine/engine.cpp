#include "heddle/engine.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sstream>
#include <thread>

#include "engine/engine_impl.h"
#include "engine/output_check.h"
#include "engine/settings.h"
#include "engine/tensor_impl.h"
#include "engine/trace.h"
#include "heddle/error.h"
#include "ir/evaluate.h"
#include "ir/op.h"
#include "ir/passes/control_deps.h"
#include "ir/text.h"
#include "jit/index_report.h"
#include "scheduler/stop.h"

namespace heddle {

using base::SymExpr;
using engine::BoundPlan;
using engine::Executable;

namespace {

std::unique_ptr<jit::CompileService> make_compiler(const EngineOptions& options) {
  if (options.cache_dir.empty() && options.disk_cache && options.dump_dir.empty() &&
      options.cpu.empty())
    return nullptr;
  jit::CompileOptions compile;
  compile.cache_folder = options.cache_dir;
  compile.disk_cache = options.disk_cache;
  compile.dump_folder = options.dump_dir;
  compile.cpu = options.cpu;
  return std::make_unique<jit::CompileService>(std::move(compile));
}

std::unique_ptr<engine::CudaExecutor> make_cuda(const EngineOptions& options) {
  const Device& device = options.device;
  if (device.is_cuda())
    return std::make_unique<engine::CudaExecutor>(engine::CudaRuntime::get(device, options.context),
                                                  options.stream);
  if (options.context == nullptr && options.stream == nullptr) return nullptr;
  throw OptionError({.what = options.stream != nullptr ? "stream" : "context",
                     .where = {},
                     .expected = "a device that is CUDA",
                     .got = device.to_string()});
}

/// The evaluator's last results are what the graph writes to its inputs.
void write_back(const ir::Graph& graph, std::span<const ir::Literal> values,
                std::span<ir::Literal> inputs) {
  // A source may be an input that another write-back has as its target.
  std::vector<ir::Literal> sources;
  for (std::size_t w = 0; w < graph.write_backs().size(); ++w)
    sources.push_back(values[graph.outputs().size() + w].clone());
  for (std::size_t w = 0; w < graph.write_backs().size(); ++w) {
    const ir::Literal& source = sources[w];
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      if (graph.inputs()[k] != graph.write_backs()[w].target) continue;
      for (std::int64_t i = 0; i < source.count(); ++i) {
        if (is_floating(source.dtype())) {
          inputs[k].set(i, source.at(i));
        } else {
          inputs[k].set_int(i, source.at_int(i));
        }
      }
    }
  }
}

}  // namespace

std::int64_t place_of(const std::vector<std::string>& strings, std::string_view string) {
  const auto at = std::ranges::lower_bound(strings, string);
  return at == strings.end() || *at != string ? -1 : at - strings.begin();
}

std::string ValueInfo::to_string() const {
  std::vector<std::string> texts;
  for (const SymInt& size : sizes) texts.push_back(size.to_string());
  return fmt::format("{}[{}]{}", name_of(dtype), fmt::join(texts, ", "),
                     is_text ? " (codes of strings)" : "");
}

void detail::wrong_input_count(std::size_t expected, std::size_t got) {
  throw ArgumentError({.what = "run: number of inputs",
                       .where = {},
                       .expected = std::to_string(expected),
                       .got = std::to_string(got)});
}

Engine::Impl::Impl(TraceFunction function, EngineOptions settings, Signature signature)
    : trace(std::move(function)),
      options(std::move(settings)),
      known(std::move(signature)),
      own_compiler(make_compiler(options)),
      compiler(own_compiler ? own_compiler.get() : &jit::CompileService::shared()),
      cuda(make_cuda(options)),
      caps(options, cuda.get()),
      executor(engine::thread_count(options)),
      plans(options.max_plans),
      counters_at_start(compiler->counters()),
      found_constants_at_start(found_constants()),
      cuda_kernels_at_start(cuda == nullptr ? 0 : cuda->runtime().compiler().compiled()),
      cuda_disk_hits_at_start(cuda == nullptr ? 0 : cuda->runtime().compiler().disk_hits()),
      specialise_after(engine::calls_before_specialising(options)),
      flushes_subnormals(engine::flushes_subnormals(options)),
      autotune(engine::wants_autotune(options)) {}

/// What its calls gave to be kept on disk is written before it goes.
Engine::Impl::~Impl() {
  if (jit::ConstantCache* constants = compiler->constants()) constants->wait();
}

std::uint64_t Engine::Impl::found_constants() const {
  const jit::ConstantCache* constants = compiler->constants();
  return constants == nullptr ? 0 : constants->found_bytes();
}

const BoundPlan& Engine::Impl::plan_for(std::span<const Tensor> inputs) {
  const engine::PackedDescriptors packed(inputs, options.device);
  const std::uint64_t hash = packed.hash();
  if (const BoundPlan* plan = plans.find(packed.words(), hash)) return *plan;
  for (;;) {
    Match match = find_executable(inputs);
    if (!match.executable) match = compile_for(inputs);
    std::unique_ptr<BoundPlan> plan = match.executable->bind(match.sizes, executor.threads());
    plan->words.assign(packed.words().begin(), packed.words().end());
    plan->hash = hash;
    const BoundPlan* bound = nullptr;
    {
      const std::scoped_lock lock(mutex);
      if (match.executable->superseded) continue;
      ++binds;
      bound = plans.insert(std::move(plan));
    }
    if (autotune) ask_for_measurements(*bound);
    return *bound;
  }
}

void Engine::Impl::execute(const BoundPlan& plan, std::span<const Tensor> inputs,
                           std::span<Tensor> outputs, std::vector<Tensor>* handed_over) {
  const bool releases = handed_over != nullptr && plan.executable->guards().donates();
  if (cuda != nullptr) [[unlikely]] {
    execute_on_device(plan, inputs, outputs, nullptr);  // keeps what the device still uses
    if (releases) engine::release_donated(plan.executable->guards(), *handed_over);
    return;
  }
  execute_with(plan, inputs, outputs, [&](engine::ExecutionContext& context) {
    if (!releases) [[likely]]
      return context.run(executor);
    return engine::run_phases(context.frame(), executor, [&](engine::Frame& frame) {
      return engine::run_releasing(frame, executor, *handed_over);
    });
  });
}

void Engine::Impl::execute_on_device(const BoundPlan& plan, std::span<const Tensor> inputs,
                                     std::span<Tensor> outputs, std::vector<RunEvent>* events) {
  plan.executable->guards().check_overlap(inputs);
  scheduler::end_if_stopped();
  LateOutputs late(*this, plan, inputs, outputs);
  const engine::CudaOutcome outcome = cuda->run({plan, inputs, outputs, late, events});
  note_peak(outcome.peak_bytes);
  finish_run(plan, outcome.status, nullptr);
}

void Engine::Impl::note_peak(std::int64_t arena_bytes) {
  if (arena_bytes > arena_peak.load(std::memory_order_relaxed))
    arena_peak.store(arena_bytes, std::memory_order_relaxed);
}

void Engine::Impl::finish_run(const BoundPlan& plan, std::int32_t status,
                              const std::exception_ptr& failure) {
  runs.add(1);
  if (failure != nullptr) std::rethrow_exception(failure);
  if (status != 0) [[unlikely]]
    throw jit::index_error(plan.executable->program(), status, {});
}

std::vector<Tensor> Engine::Impl::make_outputs(const BoundPlan& plan,
                                               engine::TakenMemory* taken) const {
  std::vector<Tensor> outputs;
  outputs.reserve(plan.output_sizes.size());
  for (std::size_t k = 0; k < plan.output_sizes.size(); ++k) {
    const Sizes& sizes = plan.output_sizes[k];
    const bool late = std::ranges::find(sizes, engine::kUnknownSize) != sizes.end();
    const DType dtype = plan.unit->output_dtype(k);
    Tensor output = late || taken == nullptr ? Tensor() : taken->take(k, dtype, sizes);
    if (!output.defined() && !late && cuda == nullptr) output = make_output(dtype, sizes);
    outputs.push_back(std::move(output));
  }
  return outputs;
}

Tensor Engine::Impl::make_output(DType dtype, const Sizes& sizes) const {
  if (cuda == nullptr) return engine::make_tensor(dtype, sizes);
  return engine::make_device_tensor(cuda->runtime(), dtype, sizes);
}

std::vector<Tensor> Engine::Impl::run_reference(std::span<const Tensor> inputs,
                                                std::shared_ptr<const void>* prototype) {
  const engine::PackedDescriptors checked(inputs, Device::cpu());
  Traced traced;
  {
    const std::scoped_lock one_at_a_time(compiling);
    traced = trace_graph(inputs);
    const std::scoped_lock lock(mutex);
    ++traces;
    describe_outputs(traced);
  }
  traced.guards.check_overlap(inputs);
  std::vector<ir::Literal> arguments;
  for (const Tensor& input : inputs) arguments.push_back(engine::to_literal(input));
  const ir::Graph graph = ir::control_deps(traced.graph, options.control_deps);
  const std::vector<ir::Literal> values = ir::evaluate(graph, arguments);
  if (prototype != nullptr) *prototype = std::move(traced.prototype);
  std::vector<Tensor> results;
  for (std::size_t k = 0; k < graph.outputs().size(); ++k)
    results.push_back(engine::from_literal(values[k].clone()));
  write_back(graph, values, arguments);
  evaluator_steps += graph.nodes().size();
  runs.add(1);
  return results;
}

Engine::Engine(FromTrace, TraceFunction trace, EngineOptions options, Signature signature)
    : impl_(std::make_unique<Impl>(std::move(trace), std::move(options), std::move(signature))) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

std::vector<Tensor> Engine::Impl::run(std::span<const Tensor> inputs,
                                      std::vector<Tensor>* handed_over,
                                      std::shared_ptr<const void>* prototype) {
  scheduler::end_if_stopped();
  if (options.device.kind() == Device::Kind::Reference) return run_reference(inputs, prototype);
  const engine::Reclaimer::Reader reader(plans.reclaimer());
  return run_by(
      inputs, handed_over,
      [&](const BoundPlan& plan, std::span<const Tensor> given, std::vector<Tensor>* owner) {
        if (prototype != nullptr) *prototype = plan.executable->prototype;
        return run_plan(plan, given, owner);
      });
}

std::vector<Tensor> Engine::Impl::run_plan(const BoundPlan& plan, std::span<const Tensor> inputs,
                                           std::vector<Tensor>* handed_over) {
  std::vector<Tensor> outputs;
  if (handed_over == nullptr || plan.unit->shared_places().empty()) {
    outputs = make_outputs(plan, nullptr);
    execute(plan, inputs, outputs, handed_over);
  } else {
    engine::TakenMemory taken(*plan.unit, cuda != nullptr, inputs);
    outputs = make_outputs(plan, &taken);
    execute(plan, inputs, outputs, handed_over);
    taken.keep();
  }
  count_call(plan);
  return outputs;
}

std::pair<std::vector<Tensor>, std::shared_ptr<const void>> Engine::run_with_prototype(
    std::span<const Tensor> inputs) {
  if (engine::current_trace() != nullptr) {
    TraceResult inlined = impl_->trace(inputs);
    return {std::move(inlined.tensors), std::move(inlined.prototype)};
  }
  std::pair<std::vector<Tensor>, std::shared_ptr<const void>> results;
  results.first = impl_->run(inputs, nullptr, &results.second);
  return results;
}

std::vector<Tensor> Engine::run(std::span<const Tensor> inputs) {
  if (engine::current_trace() != nullptr) return impl_->trace(inputs).tensors;
  return impl_->run(inputs, nullptr, nullptr);
}

std::vector<Tensor> Engine::run(std::vector<Tensor>&& inputs) {
  if (engine::current_trace() != nullptr) return run(std::span<const Tensor>(inputs));
  return impl_->run(inputs, &inputs, nullptr);
}

std::vector<Tensor> Engine::run_named(std::span<const NamedTensor> inputs) {
  Signature names = signature();
  if (names.inputs.empty())  // of a callable before its first call
    for (std::size_t k = 0; k < inputs.size(); ++k)
      names.inputs.push_back({engine::input_name(names, k), f32, {}});
  std::vector<Tensor> ordered(names.inputs.size());
  std::vector<std::string> wanted;
  for (const ValueInfo& info : names.inputs) wanted.push_back(info.name);
  const auto fail = [&](std::string got) {
    throw ArgumentError({.what = "run_named: inputs",
                         .where = {},
                         .expected = fmt::format("each of {} once", fmt::join(wanted, ", ")),
                         .got = std::move(got)});
  };
  for (const NamedTensor& input : inputs) {
    const auto found = std::find(wanted.begin(), wanted.end(), input.name);
    if (found == wanted.end()) fail(std::string(input.name));
    Tensor& slot = ordered[static_cast<std::size_t>(found - wanted.begin())];
    if (slot.defined()) fail(fmt::format("{} twice", input.name));
    slot = input.tensor;
  }
  for (std::size_t k = 0; k < ordered.size(); ++k) {
    if (!ordered[k].defined()) fail("no " + wanted[k]);
  }
  return run(std::span<const Tensor>(ordered));
}

namespace {

template <typename F>
void copy_into(std::span<const Tensor> results, std::span<const Tensor> inputs,
               std::span<Tensor> outputs, F&& is_donated) {
  engine::check_output_count(results.size(), outputs.size());
  for (std::size_t k = 0; k < results.size(); ++k)
    engine::check_output(results[k].dtype(), results[k].impl()->sizes, Device::cpu(), inputs,
                         outputs, k, is_donated);
  for (std::size_t k = 0; k < results.size(); ++k) {
    const auto bytes = static_cast<std::size_t>(results[k].count()) * size_of(results[k].dtype());
    if (bytes != 0) std::memcpy(outputs[k].data(), results[k].data(), bytes);
  }
}

}  // namespace

void* Engine::Impl::LateOutputs::output(std::uint32_t position, const Sizes& sizes) {
  const DType dtype = plan_.unit->output_dtype(position);
  Tensor& output = outputs_[position];
  const auto is_donated = [](std::size_t) { return false; };  // those lie aside
  if (output.defined())
    engine::check_output(dtype, sizes, impl_.options.device, inputs_, outputs_, position,
                         is_donated);
  else
    output = impl_.make_output(dtype, sizes);
  return output.impl()->data();
}

void Engine::Impl::run_aside(const BoundPlan& plan, std::span<const Tensor> inputs,
                             std::span<Tensor> outputs, std::span<const std::size_t> aside) {
  std::vector<Tensor> places(outputs.begin(), outputs.end());
  for (const std::size_t k : aside) {
    const Sizes& sizes = plan.output_sizes[k];
    places[k] = engine::is_late(sizes) ? Tensor() : make_output(plan.unit->output_dtype(k), sizes);
  }
  execute(plan, inputs, places);
  const auto anywhere = [](std::size_t) { return true; };
  for (const std::size_t k : aside)
    engine::check_output(places[k].dtype(), places[k].impl()->sizes, options.device, inputs,
                         outputs, k, anywhere);
  for (const std::size_t k : aside) engine::copy_elements(places[k], outputs[k]);
  copied_outputs.fetch_add(aside.size(), std::memory_order_relaxed);
}

void Engine::run_into(std::span<const Tensor> inputs, std::span<Tensor> outputs) {
  scheduler::end_if_stopped();
  if (impl_->options.device.kind() == Device::Kind::Reference)
    return copy_into(impl_->run_reference(inputs, nullptr), inputs, outputs,
                     [&](std::size_t i) { return impl_->is_donated(i); });
  const engine::Reclaimer::Reader reader(impl_->plans.reclaimer());
  if (impl_->appends()) [[unlikely]]
    return impl_->run_in_place_into(inputs, outputs);
  const BoundPlan& plan = impl_->plan_for(inputs);
  if (!plan.executable->in_place.empty()) [[unlikely]]
    return impl_->run_in_place_into(inputs, outputs);
  engine::check_output_count(plan.output_sizes.size(), outputs.size());
  impl_->run_plan_into(plan, inputs, outputs);
}

void Engine::Impl::run_plan_into(const BoundPlan& plan, std::span<const Tensor> inputs,
                                 std::span<Tensor> outputs) {
  const auto& guards = plan.executable->guards().inputs;
  std::vector<std::size_t>
      aside;  // outputs that lie in inputs which are still read when they are written, or of sizes not known yet
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const std::size_t place =
        engine::check_output(plan.unit->output_dtype(k), plan.output_sizes[k], options.device,
                             inputs, outputs, k, [&](std::size_t i) { return guards[i].donated; });
    if (place == engine::kNoInput) continue;
    const bool staged = cuda != nullptr && !inputs[place].device().is_cuda();
    if (engine::is_late(plan.output_sizes[k]) || (!staged && !plan.unit->may_share(place, k)))
      aside.push_back(k);
  }
  if (aside.empty()) [[likely]]
    execute(plan, inputs, outputs);
  else
    run_aside(plan, inputs, outputs, aside);
  count_call(plan);
}

/// A call for another thread, which ends early where one on this thread would.
engine::CallThreads::Call Engine::Impl::call_of(std::vector<Tensor> inputs) {
  const std::stop_token* const watched = scheduler::watched_stop();
  return engine::CallThreads::Call(
      [this, kept = std::move(inputs),
       stop = watched == nullptr ? std::stop_token() : *watched]() mutable {
        const scheduler::StopScope scope(stop);
        std::vector<Tensor> handed_over = std::move(kept);
        return run(handed_over, &handed_over, nullptr);
      });
}

std::future<std::vector<Tensor>> Engine::submit(std::vector<Tensor> inputs) {
  return impl_->submitted.submit(impl_->call_of(std::move(inputs)));
}

void Engine::submit(std::vector<Tensor> inputs,
                    std::function<void(std::future<std::vector<Tensor>>)> done) {
  impl_->submitted.submit(impl_->call_of(std::move(inputs)), std::move(done));
}

Tensor Engine::wrap_device(void* data, DType dtype, Sizes sizes,
                           std::function<void(void*)> deleter) {
  if (impl_->cuda == nullptr)
    throw DeviceError({.what = "wrap_device",
                       .where = {},
                       .expected = "an engine on CUDA",
                       .got = impl_->options.device.to_string()});
  return engine::wrap_device_memory(impl_->cuda->runtime(), data, dtype, sizes, std::move(deleter));
}

void Engine::prepare(std::span<const Tensor> inputs) {
  const engine::Reclaimer::Reader reader(impl_->plans.reclaimer());
  impl_->plan_like(inputs);
}

void Engine::prepare(std::span<const Sizes> shapes) {
  const Signature known = signature();
  if (known.inputs.size() != shapes.size())
    throw ArgumentError(
        {.what = "prepare: shapes",
         .where = {},
         .expected = known.inputs.empty()
                         ? "inputs whose dtypes are known: of a model, or after the first call"
                         : fmt::format("{}, one an input", known.inputs.size()),
         .got = std::to_string(shapes.size())});
  std::vector<Tensor> inputs;
  for (std::size_t k = 0; k < shapes.size(); ++k)
    inputs.push_back(Tensor::empty(known.inputs[k].dtype, shapes[k]));
  prepare(inputs);
}

Signature Engine::signature() const {
  const std::scoped_lock lock(impl_->mutex);
  Signature result = impl_->known;
  if (result.inputs.empty() && !impl_->executables.empty()) {
    const engine::Executable& last = *impl_->executables.back();
    const std::vector<engine::InputGuard>& guards = last.guards().inputs;
    for (std::size_t k = 0; k < guards.size() - last.in_place.inputs.size(); ++k) {
      const engine::InputGuard& guard = guards[k];
      ValueInfo info{guard.name, guard.dtype, {}, guard.donated};
      for (const SymExpr& size : engine::callable_sizes(guards, last.in_place, k))
        info.sizes.push_back(engine::from_expr(size, nullptr));
      result.inputs.push_back(std::move(info));
    }
  }
  return result;
}

EngineStats Engine::stats() const {
  const std::scoped_lock lock(impl_->mutex);
  const jit::CompileCounters counters = impl_->compiler->counters();
  EngineStats stats;
  stats.traces = impl_->traces;
  stats.compiles = impl_->compiles;
  stats.found_plans = impl_->found_plans;
  stats.binds = impl_->binds;
  stats.specialisations = impl_->specialisations;
  stats.regions_compiled = impl_->regions_compiled;
  stats.region_fallbacks = impl_->region_fallbacks;
  stats.runs = impl_->runs.sum();
  for (const auto* list : {&impl_->executables, &impl_->exact_executables}) {
    for (const auto& executable : *list) {
      stats.kernels += executable->distinct_kernels();
      executable->unit().count_updates(stats);
      executable->count_missed_donations(stats);
    }
  }
  stats.kernels_compiled = counters.compiled - impl_->counters_at_start.compiled;
  if (impl_->cuda != nullptr)
    stats.kernels_compiled +=
        impl_->cuda->runtime().compiler().compiled() - impl_->cuda_kernels_at_start;
  stats.measurements = impl_->measurements.load();
  if (impl_->cuda != nullptr) {
    stats.graphs = impl_->cuda->graphs().made.load();
    stats.graph_launches = impl_->cuda->graphs().launches.load();
    stats.graph_updates = impl_->cuda->graphs().updates.load();
  }
  stats.disk_hits = counters.disk_hits - impl_->counters_at_start.disk_hits;
  if (impl_->cuda != nullptr)
    stats.disk_hits +=
        impl_->cuda->runtime().compiler().disk_hits() - impl_->cuda_disk_hits_at_start;
  stats.found_constant_bytes = impl_->found_constants() - impl_->found_constants_at_start;
  stats.evaluator_steps = impl_->evaluator_steps.load();
  stats.copied_outputs = impl_->copied_outputs.load();
  stats.append_copies = impl_->append_copies.load();
  stats.append_copied_bytes = impl_->append_copied_bytes.load();
  stats.compile_ms = impl_->compile_ms;
  stats.load_ms = impl_->load_ms;
  stats.arena_peak_bytes = static_cast<std::uint64_t>(impl_->arena_peak.load());
  stats.recompiles.assign(impl_->recompiles.begin(), impl_->recompiles.end());
  return stats;
}

const EngineOptions& Engine::options() const { return impl_->options; }

std::string Engine::plan_json(std::span<const Tensor> inputs) {
  const engine::Reclaimer::Reader reader(impl_->plans.reclaimer());
  return engine::plan_json(impl_->plan_like(inputs));
}

std::string Engine::graph_text(std::span<const Tensor> inputs, bool after_passes) {
  const engine::Reclaimer::Reader reader(impl_->plans.reclaimer());
  const BoundPlan& plan = impl_->plan_like(inputs);
  return ir::print(after_passes ? plan.executable->optimised() : plan.executable->traced());
}

}  // namespace heddle
