// The first call of a kind: trace, compile, file under its guards.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "engine/engine_impl.h"
#include "engine/graph_replay.h"
#include "engine/settings.h"
#include "engine/tensor_impl.h"
#include "engine/trace.h"
#include "heddle/engine.h"
#include "heddle/error.h"
#include "ir/analysis/late_sizes.h"

namespace heddle {

using base::SymExpr;
using engine::Executable;

namespace {

/// Sizes seen by this call as values of the symbols that the guards gave out.
void set_hints(ir::ShapeEnv& env, const engine::Guards& guards, std::span<const Tensor> inputs) {
  const auto set = [&](const SymExpr& expr, std::int64_t value) {
    if (expr.is_symbol()) env.hints[expr.symbol()] = value;
  };
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const auto& guard = guards.inputs[k];
    for (std::size_t d = 0; d < guard.sizes.size(); ++d) set(guard.sizes[d], inputs[k].sizes()[d]);
    for (std::size_t d = 0; d < guard.strides.size(); ++d)
      set(guard.strides[d], inputs[k].strides()[d]);
  }
}

/// What the graph calls input k, and the label that it shows with it: a graph's own words where one is traced, else
/// those of the signature and the guards.
std::pair<std::string, std::string> name_of_input(std::size_t k, const TraceFunction& trace,
                                                  const Signature& known,
                                                  const engine::InputGuard& guard) {
  if (const auto* replay = trace.target<engine::GraphReplay>())
    return {replay->name(k), replay->label(k)};
  return {guard.name, k < known.inputs.size() ? guard.name : std::string()};
}

}  // namespace

engine::BuildOptions Engine::Impl::build_options(const base::SymbolValues& hints) const {
  engine::BuildOptions build;
  build.engine = options;
  build.compiler = compiler;
  build.keep_plans = true;
  if (engine::keeps_constants(options)) build.constants = compiler->constants();
  build.hints = hints;
  build.threads = executor.threads();
  build.autotune = autotune;
  build.cache_bytes = engine::second_level_cache();
  if (cuda != nullptr) {
    build.engine.library = false;  // they are the CPU's
    build.cuda = cuda->runtime_pointer();
    build.streams = engine::stream_count(options);
    build.graphs = engine::wants_graphs(options);
    build.capture = engine::capture_options();
  }
  return build;
}

void Engine::Impl::note_donations(engine::Guards& guards) const {
  std::vector<std::string> names;
  for (const engine::InputGuard& input : guards.inputs) names.push_back(input.name);
  for (const std::string& name : options.donate) {
    const auto input = std::ranges::find(guards.inputs, name, &engine::InputGuard::name);
    if (input == guards.inputs.end())
      throw OptionError({.what = "donate",
                         .where = {},
                         .expected = fmt::format("an input: {}", fmt::join(names, ", ")),
                         .got = name});
    input->donated = true;
  }
}

bool Engine::Impl::is_donated(std::size_t k) const {
  const bool declared = k < known.inputs.size() && known.inputs[k].donated;
  return declared || options.donate.contains(engine::input_name(known, k));
}

Engine::Impl::Traced Engine::Impl::trace_graph(std::span<const Tensor> inputs) {
  Traced traced;
  traced.guards = engine::guards_for(inputs, known);
  note_donations(traced.guards);
  if (cuda != nullptr)
    for (engine::InputGuard& guard : traced.guards.inputs) guard.device = options.device;
  auto env = std::make_shared<ir::ShapeEnv>();
  set_hints(*env, traced.guards, inputs);
  auto tracing = std::make_shared<engine::Trace>("main", env);
  tracing->use(parameters);
  {
    const engine::TraceScope scope(tracing);
    std::vector<Tensor> symbolic;
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      const engine::InputGuard& guard = traced.guards.inputs[k];
      ir::TensorMeta meta = ir::TensorMeta::of(guard.dtype, guard.sizes);
      if (!guard.row_major) meta.strides = guard.strides;
      auto [name, label] = name_of_input(k, trace, known, guard);
      symbolic.push_back(tracing->handle(tracing->builder().input(
          std::move(meta), std::move(name), std::move(label), guard.donated)));
    }
    TraceResult result = trace(symbolic);
    for (std::size_t k = 0; k < result.tensors.size(); ++k) {
      const ir::Value value = tracing->value_of(result.tensors[k], {});
      if (!value)
        throw TraceError({.what = fmt::format("output {} of the callable", k),
                          .where = {},
                          .expected = "a tensor",
                          .got = "an empty handle"});
      tracing->builder().output(value, k < result.names.size() ? result.names[k] : std::string());
    }
    tracing->write_back_inputs();
    traced.prototype = std::move(result.prototype);
    traced.output_names = std::move(result.names);
  }
  traced.guards.assumptions = env->assumptions;
  traced.hints = env->hints;
  traced.graph = tracing->builder().finish();
  ir::check_late_sizes(traced.graph);
  traced.guards.note_writes(traced.graph);
  traced.originals = tracing->originals();
  for (const ir::Value input : traced.graph.inputs()) {
    const auto original = traced.originals.find(input);
    if (original != traced.originals.end()) parameters.add(original->second, input.node->name());
  }
  return traced;
}

void Engine::Impl::describe_outputs(const Traced& traced) {
  if (!known.outputs.empty()) return;
  for (std::size_t k = 0; k < traced.graph.outputs().size(); ++k) {
    const ir::TensorMeta& meta = traced.graph.outputs()[k].meta();
    ValueInfo info{fmt::format("output{}", k), meta.dtype, {}};
    if (k < traced.output_names.size()) info.name = traced.output_names[k];
    for (const SymExpr& size : meta.sizes) info.sizes.push_back(engine::from_expr(size, nullptr));
    known.outputs.push_back(std::move(info));
  }
}

Engine::Impl::Match Engine::Impl::find_executable(std::span<const Tensor> inputs) {
  const std::scoped_lock lock(mutex);
  Match match;
  const auto find_in = [&](Executables& list) {
    for (auto it = list.begin(); it != list.end(); ++it) {
      engine::Guards::Outcome outcome = (*it)->guards().match(inputs);
      if (!outcome.holds) {
        if (match.failed.empty()) match.failed = std::move(outcome.failed);
        continue;
      }
      std::rotate(list.begin(), it, it + 1);
      match = {list.front(), std::move(outcome.sizes), {}};
      return true;
    }
    return false;
  };
  if (find_in(exact_executables)) return match;
  match.failed.clear();  // the guard of a general one is what makes a compile necessary
  find_in(executables);
  return match;
}

Engine::Impl::Match Engine::Impl::compile_for(std::span<const Tensor> inputs) {
  const std::scoped_lock one_at_a_time(compiling);
  Match match = find_executable(inputs);
  if (match.executable) return match;
  const auto start = Clock::now();
  {
    const std::scoped_lock lock(mutex);
    ++traces;
  }
  engine::OutputsInPlace in_place;
  if (appends()) in_place.inputs = named_to_append(inputs.size() - options.append.size());
  Traced traced = trace_graph(engine::callable_inputs(inputs, in_place.inputs));
  {
    const std::scoped_lock lock(mutex);
    describe_outputs(traced);
  }
  traced.graph = engine::put_outputs_in_place(traced.graph, traced.hints, traced.guards, in_place);
  auto made = std::make_shared<Executable>(std::move(traced.graph), std::move(traced.guards),
                                           build_options(traced.hints));
  made->prototype = std::move(traced.prototype);
  made->originals = std::move(traced.originals);
  made->hints = std::move(traced.hints);
  made->in_place = std::move(in_place);
  engine::Guards::Outcome outcome = made->guards().match(inputs);
  HD_CHECK(outcome.holds, outcome.failed);
  const std::scoped_lock lock(mutex);
  if (!executables.empty()) {
    recompiles.push_back("guard failed: " + match.failed);
    if (recompiles.size() > kRecompilesTold) recompiles.pop_front();
  }
  note_in_place(made->in_place, inputs.size() - options.append.size());
  executables.insert(executables.begin(), made);
  ++compiles;
  found_plans += made->was_kept() ? 1 : 0;
  for (const RegionInfo& region : made->regions()) {
    ++regions_compiled;
    region_fallbacks += region.fell_back ? 1 : 0;
  }
  compile_ms += milliseconds_since(start);
  if (executables.size() > options.max_executables) {
    plans.erase(executables.back().get());
    executables.pop_back();
  }
  return {std::move(made), std::move(outcome.sizes), {}};
}

}  // namespace heddle
