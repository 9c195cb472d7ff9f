// The part of a compiled graph that lies on a CUDA device: kernels, parameters, streams.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/bound.h"
#include "engine/cuda_graph.h"
#include "engine/cuda_runtime.h"
#include "jit/cuda/compile.h"
#include "jit/program.h"
#include "scheduler/streams.h"

namespace heddle::engine {

/// Bytes of the workspace of a custom op's step: known when sizes are.
base::Symbol custom_workspace(std::uint32_t kernel);
/// The same of a step whose blocks may share tiles, by its number in the program that CudaUnit was given.
base::Symbol shares_workspace(std::uint32_t step);

class CudaUnit {
 public:
  /// Compiles the kernels of the program's steps, and gives each step whose kernel needs scratch, or whose
  /// custom op asks for it, a workspace in the program's record: the last buffer of its launch.
  /// @throws KernelFailure; UnsupportedError naming a custom op that has code for the CPU only; what
  /// compile_texts() throws.
  /// @param cache  compiled kernels on disk; may be null
  /// @param tuned  whether kernels with several variants are launched in the one that was measured to be the fastest
  CudaUnit(CudaRuntimePtr runtime, jit::Program& program, jit::KernelCache* cache, bool tuned);

  /// Puts the parameters and constants that steps use on the device.
  void upload(const jit::Program& program, const std::vector<ir::Literal>& fixed,
              std::span<const ir::BufferId> roots);
  void* fixed_address(ir::BufferId root) const;

  /// @return null for kernels that have no code here.
  const jit::cuda::CudaKernel* kernel(std::uint32_t k) const { return kernels_[k].get(); }
  /// How a kernel that has code here is launched.
  /// @param scratch_bytes  gets those of the launch
  CudaLaunch bind(std::uint32_t kernel, std::span<const std::int64_t> sizes,
                  std::int64_t& scratch_bytes) const;
  /// Whether blocks of any kernel may share tiles.
  bool shares_tiles() const;
  bool shares_tiles(std::uint32_t kernel) const {
    return kernels_[kernel] != nullptr && kernels_[kernel]->source().takes_counters();
  }

  /// Decides streams for the steps of `record` and notes them there.
  void assign_streams(const ir::Graph& graph, ir::ScheduleRecord& record,
                      std::uint32_t max_streams);
  const scheduler::StreamPlan& streams() const { return streams_; }
  /// Decides which steps go into graphs. @param capture  of the steps that streams were assigned to
  void plan_graphs(const scheduler::CapturePlan& capture) {
    graphs_ = engine::plan_graphs(capture, streams_);
  }
  const GraphPlan& graphs() const { return graphs_; }

 private:
  void compile(const jit::Program& program, jit::KernelCache* cache);
  void add_workspaces(jit::Program& program) const;

  CudaRuntimePtr runtime_;
  const bool tuned_;
  std::vector<jit::cuda::CudaKernelPtr> kernels_;    ///< by kernel of the program
  std::vector<std::shared_ptr<DeviceBytes>> fixed_;  ///< by buffer
  scheduler::StreamPlan streams_;
  GraphPlan graphs_;
};

}  // namespace heddle::engine
