// Steps of custom ops as the executor runs them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/cuda_runtime.h"
#include "heddle/kernel_call.h"
#include "jit/custom/custom_call.h"
#include "scheduler/executor.h"

namespace heddle::engine {

/// Compiles the texts that custom ops name, all at once.
/// @throws CustomOpError naming the first op of which one does not compile; OutOfMemory, DeviceLost.
void compile_texts(std::span<const jit::CustomCall* const> calls, CudaRuntime& runtime);

/// Queues a custom op's step on a CUDA stream.
/// @param table  room for the tensors of the call
/// @throws CustomOpError when the op's function throws.
void queue_custom(const scheduler::BoundStep& step, CudaRuntime& runtime, device::Stream& stream,
                  std::vector<KernelTensor>& table);

/// Queues what a custom op says of the sizes of its results on a CUDA stream: jit::queue_sizes().
/// @throws CustomOpError when the op's function throws.
void queue_sizes(const jit::CustomCall& call, const base::SymbolValues& sizes, void* const* buffers,
                 std::int64_t* told, CudaRuntime& runtime, device::Stream& stream);

/// BoundStep::run of a step whose code is a jit::BoundCustomCall and whose request is a Failure.
void run_custom(const scheduler::BoundStep& step, std::int64_t begin, std::int64_t end, int worker,
                std::int32_t* status);

}  // namespace heddle::engine
