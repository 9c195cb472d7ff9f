// Kernels of custom ops as CUDA C++ text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "heddle/export.h"
#include "heddle/kernel_call.h"

namespace heddle {

/// A CUDA kernel as text, for CustomOp::cuda where no CUDA compiler is at hand. NVRTC compiles it for the device, once
/// for all handles of equal texts, and it is kept as long as the device is open: when a graph with the op is compiled if
/// the op names it among CustomOp::cuda_texts, else at its first launch, in the call.
///
/// The text includes no header. The kernel is `extern "C" __global__ void` of the name given, its parameters
/// are pointers and numbers.
///
///   static const hd::CudaText text(R"(extern "C" __global__ void twice(const float* x, float* y, long long n) {
///     const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
///     if (i < n) y[i] = 2 * x[i];
///   })", "twice");
///   .cuda_texts = {text},
///   .cuda = [](const hd::KernelCall& call, void* stream) {
///     const std::int64_t n = call.tensor(0).count();
///     text.launch(call, stream, {.blocks = (n + 255) / 256, .threads = 256}, call.tensor(0).as<const float>(),
///                 call.results[0].as<float>(), n);
///   },
///   .cuda_texts = {text}
class HEDDLE_API CudaText {
 public:
  CudaText(std::string text, std::string kernel);

  struct Shape {
    std::int64_t blocks = 1;  ///< 0: nothing is launched
    std::uint32_t threads = 256;
    std::uint32_t dynamic_shared_bytes = 0;
  };
  /// Queues a launch. `arguments`: pointers and numbers of just the types of the kernel's parameters.
  /// @throws CompileError with NVRTC's log; DeviceError, also when the text has no such kernel; ArgumentError when
  ///         `call` is not one on CUDA.
  /// Threads: any. A launch that has to wait for NVRTC holds up no launch of another text.
  template <typename... T>
  void launch(const KernelCall& call, void* stream, const Shape& shape, T... arguments) const {
    static_assert(((std::is_pointer_v<T> || std::is_arithmetic_v<T>) && ...),
                  "pointers and numbers");
    void* addresses[] = {const_cast<void*>(static_cast<const void*>(&arguments))..., nullptr};
    launch_with(call, stream, shape, addresses, sizeof...(T));
  }

  struct Text;
  const std::shared_ptr<const Text>& impl() const { return text_; }

 private:
  void launch_with(const KernelCall& call, void* stream, const Shape& shape, void* const* arguments,
                   std::size_t count) const;

  std::shared_ptr<const Text> text_;  ///< of all copies
};

}  // namespace heddle
