// Runs emitted CUDA text on the CUDA device of tests/support/cuda_driver.h, through the driver layer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "device/cuda/nvrtc.h"
#include "jit/cuda/emit.h"
#include "jit/cuda/prelude.h"
#include "tests/jit/cuda_corpus.h"
#include "tests/support/cuda_driver.h"
#include "tests/support/primary_context.h"

namespace heddle::tests {

/// Kernels compiled together and loaded.
class SimulatedKernels {
 public:
  explicit SimulatedKernels(std::vector<jit::cuda::CudaSource> sources)
      : sources_(std::move(sources)), device_(device::cuda::open_cuda(0, test::driver_path())) {
    std::string kernels;
    for (const auto& source : sources_) kernels += source.kernel + "\n";
    const device::cuda::Nvrtc nvrtc(test::driver_path());
    const auto compiled = nvrtc.compile_cubin(jit::cuda::prelude_for(kernels) + kernels, "tests",
                                              device_->properties().arch);
    module_ = device_->load(compiled.image);
  }

  device::Device& device() { return *device_; }

  /// Runs kernel `k` and leaves in `buffers` what the device has; the status word.
  /// @param parts  blocks that share a tile, of kernels whose blocks may
  std::int32_t run(std::size_t k, const std::vector<std::int64_t>& sizes,
                   std::vector<CorpusBuffer>& buffers) {
    std::vector<std::span<unsigned char>> spans(buffers.size());
    for (std::size_t b = 0; b < buffers.size(); ++b) spans[b] = buffers[b].bytes;
    return run(k, sizes, spans);
  }
  std::int32_t run(std::size_t k, const std::vector<std::int64_t>& sizes,
                   std::span<const std::span<unsigned char>> buffers, std::int64_t parts = 1) {
    using device::CopyKind;
    const jit::cuda::CudaSource& source = sources_[k];
    const auto stream = device_->make_stream();
    std::vector<device::Allocation> memory;
    for (const std::span<unsigned char> buffer : buffers) {
      memory.emplace_back(*device_, buffer.size());
      device_->copy(memory.back().get(), buffer.data(), buffer.size(), CopyKind::HostToDevice,
                    *stream);
    }
    const std::int64_t tiles = source.blocks.evaluate_sizes(sizes);
    const std::int64_t blocks = tiles * parts;
    const std::int64_t scratch_bytes =
        parts == 1 ? source.scratch_bytes.evaluate_sizes(sizes) : source.part_bytes;
    std::vector<std::uint32_t> counts(static_cast<std::size_t>(tiles), 0);
    device::Allocation counters(*device_, 4 * counts.size());
    device_->fill(counters.get(), 0, 4 * counts.size(), *stream);
    device::Allocation status(*device_, sizeof(std::int32_t));
    device::Allocation scratch(*device_, static_cast<std::size_t>(blocks * scratch_bytes));
    device_->fill(status.get(), 0, sizeof(std::int32_t), *stream);

    std::vector<void*> pointers;
    for (const device::Allocation& m : memory) pointers.push_back(m.get());
    std::vector<std::int64_t> values = sizes;
    void* scratch_pointer = scratch.get();
    void* counters_pointer = counters.get();
    void* status_pointer = status.get();
    std::vector<void*> arguments;
    for (void*& pointer : pointers) arguments.push_back(&pointer);
    for (std::int64_t& value : values) arguments.push_back(&value);
    if (source.takes_scratch()) arguments.push_back(&scratch_pointer);
    if (source.takes_counters()) arguments.push_back(&counters_pointer);
    arguments.push_back(&status_pointer);
    const device::LaunchShape shape{static_cast<std::uint32_t>(blocks), source.block_threads,
                                    static_cast<std::uint32_t>(source.dynamic_shared_bytes)};
    if (blocks != 0) device_->launch(module_->kernel(source.entry), shape, arguments, *stream);

    for (std::size_t b = 0; b < buffers.size(); ++b)
      device_->copy(buffers[b].data(), memory[b].get(), buffers[b].size(), CopyKind::DeviceToHost,
                    *stream);
    std::int32_t result = 0;
    device_->copy(&result, status.get(), sizeof result, CopyKind::DeviceToHost, *stream);
    device_->copy(counts.data(), counters.get(), 4 * counts.size(), CopyKind::DeviceToHost,
                  *stream);
    stream->synchronize();
    EXPECT_EQ(counts, std::vector<std::uint32_t>(counts.size(), 0)) << "counters after a launch";
    return result;
  }

 private:
  std::vector<jit::cuda::CudaSource> sources_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Module> module_;
};

}  // namespace heddle::tests
