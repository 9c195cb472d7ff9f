#include "engine/cuda_unit.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "base/file_place.h"
#include "engine/custom_step.h"
#include "engine/unit.h"
#include "heddle/error.h"
#include "ir/analysis/stream_pin.h"
#include "jit/custom/custom_call.h"

namespace heddle::engine {

using ir::BufferId;
using ir::PlanBuffer;

CudaUnit::CudaUnit(CudaRuntimePtr runtime, jit::Program& program, jit::KernelCache* cache,
                   bool tuned)
    : runtime_(std::move(runtime)), tuned_(tuned) {
  compile(program, cache);
  add_workspaces(program);
}

namespace {

/// Numbers of unbacked symbols that stand for workspaces of custom ops begin here, beyond those of regions.
constexpr std::uint32_t kFirstCustomWorkspace = 3u << 30;
/// The same of steps whose blocks may share tiles.
constexpr std::uint32_t kFirstSharesWorkspace = 7u << 29;

/// Gives step `k` a workspace: the last buffer of its launch.
void add_workspace(jit::Program& program, std::size_t k, const std::string& name,
                   ir::SymExpr bytes) {
  PlanBuffer workspace;
  workspace.value = name;
  workspace.dtype = DType::U8;
  workspace.sizes = {bytes};
  workspace.bytes = std::move(bytes);
  workspace.role = PlanBuffer::Role::Workspace;
  const auto id = static_cast<BufferId>(program.record.buffers.size());
  program.record.buffers.push_back(std::move(workspace));
  program.record.steps[k].writes.push_back(id);
  program.launches[k].buffers.push_back(id);
}

}  // namespace

base::Symbol custom_workspace(std::uint32_t kernel) {
  return {base::Symbol::Kind::Unbacked, kFirstCustomWorkspace + kernel};
}

base::Symbol shares_workspace(std::uint32_t step) {
  return {base::Symbol::Kind::Unbacked, kFirstSharesWorkspace + step};
}

bool CudaUnit::shares_tiles() const {
  for (std::uint32_t k = 0; k < kernels_.size(); ++k)
    if (shares_tiles(k)) return true;
  return false;
}

void CudaUnit::compile(const jit::Program& program, jit::KernelCache* cache) {
  std::vector<const jit::Nest*> nests;
  std::vector<std::uint32_t> numbers;
  std::vector<const jit::CustomCall*> custom;
  for (const ir::PlanStep& step : program.record.steps) {
    const jit::ProgramKernel& kernel = program.kernels[step.kernel];
    if (kernel.custom != nullptr && !kernel.custom->op->cuda)
      throw UnsupportedError({.what = "custom op " + kernel.custom->op->schema.name,
                              .where = kernel.custom->node,
                              .expected = "a device that the op has a kernel for: cpu",
                              .got = runtime_->name().to_string()});
    if (kernel.custom != nullptr) custom.push_back(kernel.custom.get());
    if (kernel.nest == nullptr) continue;
    nests.push_back(kernel.nest.get());
    numbers.push_back(step.kernel);
  }
  compile_texts(custom, *runtime_);
  const auto pending = runtime_->compiler().compile_all(nests, cache);
  kernels_.resize(program.kernels.size());
  for (std::size_t k = 0; k < pending.size(); ++k) {
    try {
      kernels_[numbers[k]] = pending[k].get();
    } catch (const std::exception& error) {
      throw KernelFailure(program.record.kernels[numbers[k]].region, error.what());
    }
  }
}

void CudaUnit::add_workspaces(jit::Program& program) const {
  for (std::size_t k = 0; k < program.record.steps.size(); ++k) {
    const std::uint32_t number = program.record.steps[k].kernel;
    const jit::CustomCall* custom = program.kernels[number].custom.get();
    if (custom != nullptr && custom->op->workspace_bytes)
      add_workspace(program, k, program.record.kernels[number].name + ".workspace",
                    ir::SymExpr(custom_workspace(number)));
    if (shares_tiles(number))
      add_workspace(program, k, program.record.kernels[number].name + ".shares",
                    ir::SymExpr(shares_workspace(static_cast<std::uint32_t>(k))));
    const jit::cuda::CudaKernel* kernel = kernels_[number].get();
    if (kernel == nullptr || kernel->source().scratch_bytes.is_constant(0)) continue;
    base::SymbolExprs sizes;
    for (std::uint32_t s = 0; s < program.launches[k].sizes.size(); ++s)
      sizes.emplace(base::Symbol{base::Symbol::Kind::Size, s}, program.launches[k].sizes[s]);
    add_workspace(program, k, program.record.kernels[number].name + ".scratch",
                  (kernel->source().blocks * kernel->source().scratch_bytes).substitute(sizes));
  }
}

void CudaUnit::upload(const jit::Program& program, const std::vector<ir::Literal>& fixed,
                      std::span<const BufferId> roots) {
  fixed_.resize(program.record.buffers.size());
  for (const jit::Launch& launch : program.launches) {
    for (const BufferId buffer : launch.buffers) {
      const BufferId root = roots[buffer];
      const PlanBuffer::Role role = program.record.buffers[root].role;
      if (role != PlanBuffer::Role::Parameter && role != PlanBuffer::Role::Constant) continue;
      if (fixed_[root] != nullptr) continue;
      fixed_[root] = runtime_->upload(fixed[root]);
      base::give_back_pages(fixed[root].identity(), fixed[root].bytes());
    }
  }
}

void* CudaUnit::fixed_address(BufferId root) const {
  return fixed_[root] == nullptr ? nullptr : fixed_[root]->address();
}

CudaLaunch CudaUnit::bind(std::uint32_t kernel, std::span<const std::int64_t> sizes,
                          std::int64_t& scratch_bytes) const {
  const jit::cuda::CudaKernel* code = kernels_[kernel].get();
  const auto verdict = tuned_ ? code->verdicts().find(sizes) : std::nullopt;
  const bool measured = verdict && code->is_ready(*verdict) && code->is_prepared(*verdict, sizes);
  std::optional<jit::cuda::CudaChoice> choice;
  if (measured) choice = code->choice_of(*verdict, sizes);
  if (!choice) choice = code->expected(sizes);
  scratch_bytes = choice->scratch_bytes;
  return {code,
          choice->variant,
          choice->blocks,
          choice->parts,
          static_cast<std::uint32_t>(sizes.size()),
          measured,
          std::move(choice->library)};
}

namespace {

/// By step: the stream that the nodes of its kernel are pinned to.
std::vector<std::optional<std::uint32_t>> stream_pins(const ir::Graph& graph,
                                                      const ir::ScheduleRecord& record) {
  std::map<std::string_view, std::uint32_t> pinned;
  for (const ir::NodePtr& node : graph.nodes())
    if (const auto stream = ir::pinned_stream(*node)) pinned.emplace(node->name(), *stream);
  std::vector<std::optional<std::uint32_t>> pins(record.steps.size());
  for (std::size_t k = 0; k < pins.size() && !pinned.empty(); ++k)
    for (const std::string& name : record.kernels[record.steps[k].kernel].nodes)
      if (const auto found = pinned.find(name); found != pinned.end()) pins[k] = found->second;
  return pins;
}

}  // namespace

void CudaUnit::assign_streams(const ir::Graph& graph, ir::ScheduleRecord& record,
                              std::uint32_t max_streams) {
  streams_ = scheduler::assign_streams(record, max_streams, stream_pins(graph, record));
  for (std::size_t k = 0; k < record.steps.size(); ++k)
    record.steps[k].stream = streams_.stream_of[k];
}

}  // namespace heddle::engine
