// Where steps run that read only parameters and constants, when an executable is made.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/cuda_runtime.h"
#include "ir/literal.h"
#include "jit/compile_service.h"
#include "jit/index_report.h"

namespace heddle::engine {

/// The kernels of one program's folded steps, by its numbers of kernels.
///
/// Threads: one at a time.
class FoldingKernels {
 public:
  virtual ~FoldingKernels() = default;

  /// What results depend on besides nests, sizes and operands: how code is made, and for what.
  virtual std::string code_key() const = 0;
  /// Has kernels compiled, in the background where that is how it goes. Errors show in run().
  /// @param nests  null where a kernel has no folded step
  virtual void submit(std::vector<std::shared_ptr<const jit::Nest>> nests) = 0;
  /// Runs one step, on the calling thread or a device, and returns when it is done.
  /// @param buffers  of the nest, row-major, in the host's memory; results are zeroed, or what a step before made of them
  /// @return its status; not 0: the check that failed
  /// @throws what compiling it did; on a device DeviceError, OutOfMemory, DeviceLost
  virtual std::int32_t run(std::uint32_t kernel, std::span<const ir::Literal* const> buffers,
                           std::span<const std::int64_t> sizes) = 0;
  /// Of the check that failed last.
  virtual jit::IndexReport report() { return {}; }
};

std::unique_ptr<FoldingKernels> fold_on_cpu(jit::CompileService& compiler);
/// Results stay on the device, for those who upload them while this lives.
/// @param cache  compiled kernels on disk; may be null
std::unique_ptr<FoldingKernels> fold_on_cuda(CudaRuntimePtr runtime, jit::KernelCache* cache);

}  // namespace heddle::engine
