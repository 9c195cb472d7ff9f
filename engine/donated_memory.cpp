#include "engine/donated_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/cuda_runtime.h"
#include "engine/tensor_impl.h"

namespace heddle::engine {

namespace {

std::size_t bytes_of(const Tensor::Impl& tensor) {
  return static_cast<std::size_t>(tensor.count) * size_of(tensor.dtype);
}

/// Whether the tensor's memory is of our own allocators, and nobody else's.
bool owns_its_memory(const Tensor::Impl& tensor) {
  if (tensor.device_bytes != nullptr)
    return tensor.device_bytes.use_count() == 1 && tensor.device_bytes->block != nullptr;
  return tensor.allocation != nullptr;
}

}  // namespace

bool TakenMemory::is_free(std::uint32_t argument, std::size_t bytes) const {
  const std::shared_ptr<Tensor::Impl>& input = inputs_[argument].impl();
  const bool taken =
      std::ranges::any_of(taken_, [&](const Taken& other) { return other.argument == argument; });
  return !taken && (input->device_bytes != nullptr) == on_device_ &&
         is_sole_owner(inputs_[argument]) && input->row_major && bytes != 0 &&
         bytes_of(*input) == bytes;
}

bool is_sole_owner(const Tensor& tensor) {
  return tensor.impl().use_count() == 1 && owns_its_memory(*tensor.impl());
}

Tensor TakenMemory::take(std::size_t position, DType dtype, const Sizes& sizes) {
  auto impl = std::make_shared<Tensor::Impl>();
  const std::size_t bytes = fill_metadata(*impl, dtype, sizes);
  for (const ir::SharedPlace& place : unit_.shared_places()) {
    if (place.output != position || !is_free(place.argument, bytes)) continue;
    const std::shared_ptr<Tensor::Impl>& from = inputs_[place.argument].impl();
    impl->device = from->device;
    impl->address = from->data();
    impl->device_bytes = from->device_bytes;
    if (impl->device_bytes == nullptr) impl->owner = from;
    taken_.push_back({place.argument, from, impl});
    return Tensor(std::move(impl));
  }
  return {};
}

void TakenMemory::keep() {
  for (const Taken& taken : taken_) {
    taken.to->allocation = std::exchange(taken.from->allocation, nullptr);
    taken.to->owner.reset();
  }
  taken_.clear();
}

std::int32_t run_releasing(Frame& frame, scheduler::Executor& executor, std::span<Tensor> inputs) {
  const std::span<const scheduler::BoundStage> stages = frame.stages();
  std::uint32_t done = 0;
  for (const Release& release : frame.plan().releases) {
    const std::int32_t status =
        executor.run(frame.steps(), stages.subspan(done, release.stages - done));
    if (status != 0) return status;
    done = release.stages;
    inputs[release.argument] = {};
  }
  return executor.run(frame.steps(), stages.subspan(done));
}

void release_donated(const Guards& guards, std::span<Tensor> inputs) {
  for (std::size_t k = 0; k < inputs.size(); ++k)
    if (guards.inputs[k].donated) inputs[k] = {};
}

void copy_elements(const Tensor& from, Tensor& to) {
  const std::size_t bytes = bytes_of(*from.impl());
  if (bytes == 0) return;
  if (!from.device().is_cuda()) {
    std::memcpy(to.impl()->data(), from.impl()->data(), bytes);
    return;
  }
  from.wait();
  CudaRuntime& runtime = *from.impl()->device_bytes->runtime;
  if (to.device().is_cuda())
    runtime.copy_within(to.impl()->data(), from.impl()->data(), bytes);
  else
    runtime.copy_out(to.impl()->data(), from.impl()->data(), bytes);
}

}  // namespace heddle::engine
