// A kernel of a test's own on the simulated driver, and what that objects to.
#pragma once

#include <cstdint>
#include <string>

#include "device/cuda/cuda_device.h"
#include "device/cuda/nvrtc.h"
#include "tests/cuda/support.h"

namespace heddle::testing {

/// Launches the kernel `f(unsigned int* memory)` of a text, on 64 words of zeros.
/// @return what the simulator objects to; empty: nothing.
inline std::string problem_of(const std::string& body, std::uint32_t blocks = 1,
                              std::uint32_t threads = 64) {
  const auto device = device::cuda::open_cuda(0, test::simulator_path());
  const device::cuda::Nvrtc nvrtc(test::simulator_path());
  const std::string text =
      "extern \"C\" __global__ void f(unsigned int* memory) {\n  const unsigned int t = "
      "threadIdx.x;\n" +
      body + "\n}\n";
  const auto module = device->load(nvrtc.compile_cubin(text, "f", "sm_90a").image);
  const auto stream = device->make_stream();
  const device::Allocation memory(*device, 64 * 4);
  device->fill(memory.get(), 0, 64 * 4, *stream);
  void* address = memory.get();
  void* const arguments[] = {&address};
  try {
    device->launch(module->kernel("f"), {.blocks = blocks, .threads = threads}, arguments, *stream);
    stream->synchronize();
  } catch (const DeviceLost&) {
    return control().problem();
  }
  return {};
}

}  // namespace heddle::testing
