// The plan as a document for people and tests.

#include <fmt/format.h>
#include <map>
#include <numeric>

#include "base/json.h"
#include "engine/cuda_graph.h"
#include "engine/engine_impl.h"
#include "engine/plan_graph.h"
#include "engine/run_events.h"
#include "jit/cuda/compile.h"
#include "scheduler/streams.h"

namespace heddle::engine {

namespace {

using base::Json;
using ir::PlanBuffer;

const char* name_of(PlanBuffer::Role role) {
  switch (role) {
    case PlanBuffer::Role::Input:
      return "input";
    case PlanBuffer::Role::Parameter:
      return "parameter";
    case PlanBuffer::Role::Constant:
      return "constant";
    case PlanBuffer::Role::Output:
      return "output";
    case PlanBuffer::Role::Intermediate:
      return "intermediate";
    case PlanBuffer::Role::Workspace:
      break;
  }
  return "workspace";
}

const char* name_of(ir::PlanKernel::Kind kind) {
  switch (kind) {
    case ir::PlanKernel::Kind::Jit:
      return "jit";
    case ir::PlanKernel::Kind::Library:
      return "library";
    case ir::PlanKernel::Kind::Custom:
      return "custom";
    case ir::PlanKernel::Kind::Nested:
      return "nested";
    case ir::PlanKernel::Kind::Copy:
      break;
  }
  return "copy";
}

const char* name_of(RunEvent::Kind kind) {
  switch (kind) {
    case RunEvent::Kind::Alloc:
      return "alloc";
    case RunEvent::Kind::Free:
      return "free";
    case RunEvent::Kind::Launch:
      break;
  }
  return "launch";
}

/// What a document says of nested plans.
struct Described {
  ir::NestedGraphs graphs;
  /// What it calls the plans that it describes, each once, by unit and sizes.
  std::map<std::pair<const Unit*, base::SymbolValues>, std::size_t> ids{};
};

/// Builds the document part by part over the bound steps of one unit.
class StepsDocument {
 public:
  StepsDocument(const Executable& executable, const Unit& unit, const BoundSteps& plan,
                Described& described)
      : executable_(executable),
        plan_(plan),
        unit_(unit),
        record_(unit.schedule().record),
        described_(described) {
    kernel_names_ = names_of_kernels(record_);
  }

  void build(Json& document) const {
    document["kernels"] = kernels();
    document["steps"] = steps();
    document["batches"] = batches();
    document["buffers"] = buffers();
    document["peak_bytes"] = plan_.memory.peak_bytes;
    document["lower_bound_bytes"] = plan_.memory.lower_bound_bytes;
    document["order"] = order();
    document["missed_reinplace"] = missed_reinplace();
  }

 private:
  std::vector<std::string> values(const std::vector<ir::BufferId>& buffers) const {
    std::vector<std::string> names;
    for (const ir::BufferId buffer : buffers) names.push_back(record_.buffers[buffer].value);
    return names;
  }

  Json kernels() const {
    std::map<std::uint32_t, const ir::PlanStep*> first_use;
    for (const ir::PlanStep& step : record_.steps) first_use.emplace(step.kernel, &step);
    Json result = Json::array();
    for (const auto& [index, step] : first_use) {
      const ir::PlanKernel& kernel = record_.kernels[index];
      const auto& nest = unit_.program().kernels[index].nest;
      result.push_back({{"name", kernel_names_[index]},
                        {"region", executable_.region_id(kernel.region)},
                        {"unit", kernel.region},
                        {"nodes", kernel.nodes},
                        {"kind", name_of(kernel.kind)},
                        {"reads", values(step->reads)},
                        {"writes", values(step->writes)},
                        {"key", nest == nullptr ? "" : jit::structural_key(*nest).hex()},
                        {"source", nest == nullptr ? "" : jit::print(*nest)}});
      if (const auto* code = cuda_source_of(static_cast<std::size_t>(step - record_.steps.data())))
        result.back()["cuda"] = code->kernel;
    }
    return result;
  }

  /// Steps that are run for some entries of a batch after others.
  Json batches() const {
    Json result = Json::array();
    for (const auto& batch : plan_.batches)
      result.push_back({{"first_step", batch->first},
                        {"last_step", batch->first + batch->steps->steps.size() - 1},
                        {"times", batch->times},
                        {"entries", batch->steps->sizes.at(*record_.batch)},
                        {"workers", batch->workers}});
    return result;
  }

  Json steps() const {
    const std::vector<std::uint32_t> stages = scheduler::stage_numbers(unit_.schedule());
    Json result = Json::array();
    for (std::size_t k = 0; k < record_.steps.size(); ++k) {
      const ir::PlanStep& step = record_.steps[k];
      Json edges = Json::array();
      for (const ir::PlanEdge& edge : step.edges)
        edges.push_back({{"from", edge.from}, {"kind", edge.weak ? "weak" : "strong"}});
      result.push_back(
          {{"index", k},
           {"kernel", kernel_names_[step.kernel]},
           {"stream", step.stream},
           {"stage", stages[k]},
           {"waits_for", waits_for(k)},
           {"edges", std::move(edges)},
           {"phase", unit_.phases().phase_of(static_cast<ir::StepId>(k))},
           {"work", k < plan_.steps.size() ? Json(plan_.steps[k].work) : Json(nullptr)}});
      if (const std::string variant = variant_of(k); !variant.empty())
        result.back()["variant"] = variant;
      if (is_measured(k)) result.back()["measured"] = true;
      if (step.by_entry) result.back()["by_entry"] = true;
      add_timings(k, result.back());
      if (cuda_source_of(k) != nullptr && plan_.cuda[k].parts != 1)
        result.back()["parts"] = plan_.cuda[k].parts;
      if (unit_.program().kernels[step.kernel].nested != nullptr)
        result.back()["nested"] = nested(k);
    }
    return result;
  }

  /// What step k launches on CUDA; null for what is no kernel of ours, or where sizes are not known yet.
  const jit::cuda::CudaSource* cuda_source_of(std::size_t k) const {
    if (k >= plan_.cuda.size() || plan_.cuda[k].kernel == nullptr) return nullptr;
    return &plan_.cuda[k].kernel->source(plan_.cuda[k].variant);
  }

  /// The algorithm of a library call that has several; null for other steps.
  const jit::LibraryChoice* choice_of(std::size_t k) const {
    for (const auto& batch : plan_.batches)
      if (k >= batch->first && k < batch->first + batch->steps->library.size())
        return choice_of(*batch->steps, k - batch->first);
    return choice_of(plan_, k);
  }
  static const jit::LibraryChoice* choice_of(const BoundSteps& plan, std::size_t k) {
    const bool calls = k < plan.library.size() && plan.library[k] != nullptr;
    return calls ? plan.library[k]->choice() : nullptr;
  }

  /// Which of its kernel's or library call's variants the step takes; empty where there is one.
  std::string variant_of(std::size_t k) const {
    if (const jit::LibraryChoice* choice = choice_of(k)) return choice->ways[choice->way];
    const jit::cuda::CudaSource* code = cuda_source_of(k);
    return code == nullptr ? std::string() : code->variant;
  }

  bool is_measured(std::size_t k) const {
    if (const jit::LibraryChoice* choice = choice_of(k)) return choice->measured;
    return k < plan_.cuda.size() && plan_.cuda[k].measured;
  }

  /// What the variants took that this process measured, in microseconds, by their names.
  void add_timings(std::size_t k, Json& step) const {
    if (cuda_source_of(k) == nullptr || k >= plan_.step_sizes.size()) return;
    const jit::cuda::CudaKernel& kernel = *plan_.cuda[k].kernel;
    for (const jit::Verdicts::Timing& one : kernel.verdicts().timings(plan_.step_sizes[k]))
      step["variant_us"][kernel.source(one.variant).variant] = one.microseconds;
  }

  /// Null where only the run tells the sizes.
  Json number(const ir::SymExpr& size) const {
    if (unit_.phases().known_in(size) > plan_.phase) return nullptr;
    return size.evaluate(plan_.sizes);
  }

  /// Steps whose events the step waits for, where there are several streams.
  Json waits_for(std::size_t k) const {
    if (plan_.streams == nullptr) return Json::array();
    return plan_.streams->waits_for[k];
  }

  /// The plans that step k runs, each a document like the whole, or the `id` of one that is the same.
  Json nested(std::size_t k) const {
    const std::uint32_t kernel = record_.steps[k].kernel;
    const jit::NestedCall& call = *unit_.program().kernels[kernel].nested;
    Json result = Json::array();
    for (std::size_t r = 0; r < call.regions.size(); ++r) {
      if (k >= plan_.regions.size() && !is_told(call.regions[r])) continue;
      const Unit& unit = *unit_.nested(kernel)[r];
      base::SymbolValues sizes = nested_sizes(call.regions[r], plan_.sizes);
      if (k >= plan_.regions.size() && !may_bind(unit, sizes)) continue;
      BoundSteps bound;
      if (k >= plan_.regions.size()) unit.bind(sizes, plan_.threads, bound);
      const BoundSteps& plan =
          k < plan_.regions.size() ? *plan_.regions[k]->plans[r] : std::as_const(bound);
      if (plan.refusal) continue;
      const auto [known, fresh] =
          described_.ids.emplace(std::pair(&unit, std::move(sizes)), described_.ids.size());
      const jit::NestedCall::Region& region = call.regions[r];
      Json document{{"graph", described_.graphs.name_of(region.graph.get(), region.name)},
                    {fresh ? "id" : "same_as", known->second}};
      if (fresh) StepsDocument(executable_, unit, plan, described_).build(document);
      result.push_back(std::move(document));
    }
    return result;
  }

  /// Whether `sizes` has all that the unit's first phase needs: a nested graph speaks of late sizes around it.
  static bool may_bind(const Unit& unit, const base::SymbolValues& sizes) {
    std::vector<base::Symbol> needed;
    for (const PlanBuffer& buffer : unit.schedule().record.buffers)
      if (unit.phases().known_in(buffer.bytes) == 0) buffer.bytes.collect_symbols(needed);
    return std::ranges::all_of(needed,
                               [&](const base::Symbol& symbol) { return sizes.contains(symbol); });
  }

  bool is_told(const jit::NestedCall::Region& region) const {
    return std::ranges::all_of(region.sizes, [&](const auto& entry) {
      return unit_.phases().known_in(entry.second) <= plan_.phase;
    });
  }

  Json buffers() const {
    Json result = Json::array();
    for (std::size_t b = 0; b < record_.buffers.size(); ++b) {
      const PlanBuffer& buffer = record_.buffers[b];
      const memory::Lifetime& life = unit_.planner().lifetimes()[b];
      Json entry{{"value", buffer.value}, {"role", name_of(buffer.role)}, {"bytes", bytes_of(b)}};
      entry["offset"] = plan_.memory.offsets[b] == memory::kNotInArena
                            ? Json(nullptr)
                            : Json(plan_.memory.offsets[b]);
      entry["first_step"] = life.first_step == ir::kNone ? Json(nullptr) : Json(life.first_step);
      entry["last_step"] = life.last_step == ir::kNone ? Json(nullptr) : Json(life.last_step);
      const ir::BufferId taken = unit_.planner().taken_from()[b];
      const ir::BufferId shared = buffer.alias_of != ir::kNone ? buffer.alias_of : taken;
      entry["alias_of"] = shared == ir::kNone ? Json(nullptr) : Json(record_.buffers[shared].value);
      if (taken != ir::kNone) entry["in_place"] = true;  // from its first step on
      if (buffer.donated) entry["donated"] = true;
      result.push_back(std::move(entry));
    }
    return result;
  }

  Json bytes_of(std::size_t buffer) const {
    if (unit_.phases().arena_of()[buffer] > plan_.phase) return nullptr;
    const auto once = plan_.memory.once_of(static_cast<ir::BufferId>(buffer));
    if (once.bytes != 0) return once.bytes;
    return number(record_.buffers[buffer].bytes);
  }

  /// Arguments that were copied for a step that writes them.
  Json missed_reinplace() const {
    std::int64_t bytes = 0;
    for (const std::vector<ir::SymExpr>& argument : unit_.program().copied_arguments) {
      for (const ir::SymExpr& tensor : argument) {
        const Json copied = number(tensor);
        bytes += copied.is_null() ? 0 : copied.integer();
      }
    }
    return {{"count", unit_.program().copied_arguments.size()}, {"bytes", bytes}};
  }

  /// Which order the steps are in, and the peaks of those it was chosen among.
  Json order() const {
    Json peaks = Json::object();
    for (const auto& [method, peak] : unit_.schedule().peaks)
      peaks[scheduler::name_of(method)] = peak;
    return {{"method", scheduler::name_of(unit_.schedule().method)}, {"peaks", std::move(peaks)}};
  }

  const Executable& executable_;
  const BoundSteps& plan_;
  const Unit& unit_;
  const ir::ScheduleRecord& record_;
  Described& described_;
  std::vector<std::string> kernel_names_;
};

Json options_of(const AnnotationMap& options) {
  Json result = Json::object();
  for (const auto& [key, option] : options)
    std::visit(
        [&, &key = key](const auto& value) {
          if constexpr (!requires { value->begin(); }) result[key] = value;
        },
        option.value);
  return result;
}

Json regions(const Executable& executable) {
  Json result = Json::array();
  for (const RegionInfo& region : executable.regions())
    result.push_back({{"id", id_of(region)},
                      {"name", region.name},
                      {"options", options_of(region.options)},
                      {"nodes", region.nodes},
                      {"fell_back", region.fell_back}});
  return result;
}

Json events(const BoundPlan& plan) {
  Json result = Json::array();
  for (const RunEvent& event : events_of(plan))
    result.push_back({{"step", event.step},
                      {"kind", name_of(event.kind)},
                      {"value", event.value},
                      {"bytes", event.bytes == kUnknownSize ? Json(nullptr) : Json(event.bytes)}});
  return result;
}

Json passes(const Executable& executable) {
  Json result = Json::array();
  for (const ir::PassRecord& pass : executable.passes())
    result.push_back({{"name", pass.name},
                      {"microseconds", pass.microseconds},
                      {"changed", pass.changed},
                      {"nodes_before", pass.nodes_before},
                      {"nodes_after", pass.nodes_after},
                      {"inferred", pass.inferred}});
  return result;
}

/// The parts of a plan on CUDA that are queued as graphs of the device, and those that are not.
Json captures(const BoundPlan& plan) {
  Json result = Json::array();
  if (plan.graphs == nullptr) return result;
  const ir::ScheduleRecord& record = plan.unit->schedule().record;
  const auto names = [&](const std::vector<ir::BufferId>& buffers) {
    Json list = Json::array();
    for (const ir::BufferId buffer : buffers) list.push_back(record.buffers[buffer].value);
    return list;
  };
  const auto positions = [](const std::vector<std::optional<std::uint32_t>>& map) {
    Json list = Json::array();
    for (const auto& position : map) list.push_back(position ? Json(*position) : Json(nullptr));
    return list;
  };
  for (const GraphSegment& segment : *plan.graphs) {
    std::vector<ir::StepId> steps(segment.after.size());
    std::iota(steps.begin(), steps.end(), segment.first);
    Json sizes = Json::array();
    for (const base::Symbol& size : segment.sizes) sizes.push_back(size.to_string());
    result.push_back({{"steps", std::move(steps)},
                      {"captured", segment.captured},
                      {"reason", segment.reason},
                      {"inputs", names(segment.inputs)},
                      {"outputs", names(segment.outputs)},
                      {"sizes", std::move(sizes)}});
    if (!segment.captured) continue;
    result.back()["arguments"] = positions(segment.arguments);
    result.back()["results"] = positions(segment.results);
  }
  return result;
}

}  // namespace

std::string plan_json(const BoundPlan& plan) {
  const Executable& executable = *plan.executable;
  Json document;
  document["guards"] = executable.guards().describe();
  document["regions"] = regions(executable);
  Described described{ir::NestedGraphs(executable.optimised())};
  StepsDocument(executable, executable.unit(), plan, described).build(document);
  document["events"] = events(plan);
  document["graphs"] = graphs_json(executable.optimised(), described.graphs);
  document["passes"] = passes(executable);
  document["captures"] = captures(plan);
  document["folded_steps"] = executable.folded_steps();
  return document.dump();
}

}  // namespace heddle::engine
