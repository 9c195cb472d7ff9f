#include "engine/executable.h"

#include <algorithm>
#include <atomic>
#include <set>

#include "engine/compile_scope.h"
#include "engine/fold.h"
#include "engine/kept_plan.h"
#include "engine/plan_check.h"
#include "jit/library.h"

namespace heddle::engine {

using base::SymbolValues;

namespace {

std::atomic<std::uint64_t> next_plan_id{1};

jit::LowerOptions lower_options(const BuildOptions& options, const OptimisedGraph& graph) {
  jit::LowerOptions lower;
  lower.rest = graph.rest;
  lower.units = graph.units;
  lower.vector_bytes = options.compiler->vector_bytes();
  lower.bf16_dot = options.compiler->has_bf16_dot();
  lower.fast_bf16_dot = options.compiler->has_fast_bf16_dot();
  lower.byte_dot = options.compiler->has_byte_dot();
  lower.amx = options.compiler->has_amx();
  lower.byte_tables = options.compiler->has_byte_tables();
  lower.threads = options.threads;
  lower.build_all = wants_check(options.engine);
  lower.for_each = [compiler = options.compiler](std::size_t count, const auto& work) {
    compiler->for_each(count, work);
  };
  if (options.cuda == nullptr) {
    lower.library_available = jit::library_serves;
  } else {
    lower.target = jit::LowerOptions::Target::Cuda;
  }
  return lower;
}

/// Where a literal lies.
MemoryRange range_of(const ir::Literal& literal) {
  const auto begin = reinterpret_cast<std::uintptr_t>(literal.unaligned_data());
  return {begin, begin + literal.bytes()};
}

/// Lets the region run op by op, if its mark allows that and this was not how it was tried.
bool fall_back(OptimisedGraph& graph, const std::string& region, bool tried_fused, const char* why,
               const EngineOptions& options) {
  if (std::ranges::find(graph.may_fall_back, region) == graph.may_fall_back.end()) return false;
  const auto info = std::ranges::find(graph.regions, region, &RegionInfo::name);
  if (info->fell_back) return tried_fused;
  log_fallback(options, *info, why);
  info->fell_back = true;
  for (auto& [name, unit] : graph.units)
    if (graph.region_of(name) == region) unit.fuse = false;
  return true;
}

}  // namespace

Executable::Executable(ir::Graph traced, Guards guards, const BuildOptions& options)
    : guards_(std::move(guards)), traced_(std::move(traced)), options_(options.engine) {
  const KeptPlan plan(traced_, options);
  if (std::optional<KeptPlan::Parts> kept = plan.find()) {
    was_kept_ = true;
    note_fixed(kept->fixed);
    unit_ = std::make_unique<Unit>(std::move(kept->program), std::move(kept->fixed), options,
                                   kept->folded_steps);
    return;
  }
  compile(options);
  if (regions_.empty()) plan.store(*unit_);
}

void Executable::compile(const BuildOptions& options) {
  OptimisedGraph graph = optimise(traced_, options.engine);
  std::call_once(passed_once_, [&] { passed_ = {graph.graph, std::move(graph.passes)}; });
  while (!build(graph, options)) {
  }
  regions_ = std::move(graph.regions);
  region_of_copy_ = std::move(graph.copies);
  if (wants_check(options.engine)) check_orders(*this, options.engine.passes.empty());
}

const Executable::Passed& Executable::passed() const {
  std::call_once(passed_once_, [&] {
    OptimisedGraph graph = optimise(traced_, options_);
    passed_ = {std::move(graph.graph), std::move(graph.passes)};
  });
  return passed_;
}

/// What calls must not overwrite: what the plan reads, and all that the graph read.
void Executable::note_fixed(std::span<const ir::Literal> fixed) {
  std::vector<MemoryRange> ranges;
  for (const ir::Literal& literal : fixed) ranges.push_back(range_of(literal));
  for (const ir::Literal* literal : literals_of(traced_)) ranges.push_back(range_of(*literal));
  guards_.note_fixed(std::move(ranges));
}

/// @return false when a region could not be compiled and was set to run op by op.
bool Executable::build(OptimisedGraph& graph, const BuildOptions& options) {
  std::set<std::string> one_by_one;
  for (const RegionInfo& region : graph.regions)
    if (region.fell_back) one_by_one.insert(region.name);
  jit::Program program = options.lower(graph.graph, lower_options(options, graph));
  std::vector<ir::Literal> fixed = fixed_buffers(program, graph.graph);
  note_fixed(fixed);
  try {
    unit_ = std::make_unique<Unit>(std::move(program), std::move(fixed), options);
  } catch (const KernelFailure& failure) {
    const std::string& region = graph.region_of(failure.region);
    const bool fused = !one_by_one.contains(region);
    if (!fall_back(graph, region, fused, failure.what(), options.engine))
      std::rethrow_exception(failure.cause);
    return false;
  }
  return true;
}

const std::string& id_of(const RegionInfo& region) {
  return region.id.empty() ? region.name : region.id;
}

std::string Executable::region_id(const std::string& unit) const {
  const auto copy = region_of_copy_.find(unit);
  const std::string& name = copy == region_of_copy_.end() ? unit : copy->second;
  const auto region = std::ranges::find(regions_, name, &RegionInfo::name);
  return region == regions_.end() ? name : id_of(*region);
}

std::size_t Executable::distinct_kernels() const {
  std::vector<const void*> code;
  unit_->collect_code(code);
  std::sort(code.begin(), code.end());
  return static_cast<std::size_t>(std::unique(code.begin(), code.end()) - code.begin());
}

void Executable::count_missed_donations(EngineStats& stats) const {
  const ir::ScheduleRecord& record = schedule().record;
  const auto roots = planner().roots();
  for (ir::BufferId b = 0; b < record.buffers.size(); ++b) {
    const ir::PlanBuffer& buffer = record.buffers[b];
    if (!buffer.donated) continue;
    const auto is_place = [&](const ir::SharedPlace& place) {
      return place.argument == buffer.position &&
             record.buffers[program().outputs[place.output]].bytes == buffer.bytes;
    };
    const auto lies_in = [&](const ir::PlanStep& step) {
      return std::ranges::any_of(step.writes,
                                 [&](ir::BufferId written) { return roots[written] == b; });
    };
    if (std::ranges::any_of(unit_->shared_places(), is_place) ||
        std::ranges::any_of(record.steps, lies_in))
      continue;
    ++stats.missed_donations;
    if (buffer.bytes.is_constant())
      stats.missed_donation_bytes += static_cast<std::uint64_t>(buffer.bytes.constant());
  }
}

std::unique_ptr<BoundPlan> Executable::bind(const SymbolValues& sizes, int threads) const {
  auto plan = std::make_unique<BoundPlan>();
  plan->executable = shared_from_this();
  plan->id = next_plan_id.fetch_add(1);
  unit_->bind(sizes, threads, *plan);
  const std::int64_t align = memory::kAlignment;
  plan->scratch_stride = (plan->scratch_bytes + align - 1) / align * align;
  plan->arena_bytes = plan->memory.peak_bytes + plan->scratch_stride * threads;
  for (const Append& append : in_place.appends)
    plan->appended.push_back(append.length.evaluate(sizes));
  for (std::size_t k = 0; k < program().outputs.size(); ++k) {
    Sizes& numbers = plan->output_sizes.emplace_back();
    for (const ir::SymExpr& dim : unit_->output_sizes(k))
      numbers.push_back(unit_->phases().known_in(dim) == 0 ? dim.evaluate(sizes) : kUnknownSize);
  }
  return plan;
}

}  // namespace heddle::engine
