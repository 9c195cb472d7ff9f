// Tensors in the memory of a CUDA device.
#include <cstring>
#include <vector>

#include "engine/cuda_runtime.h"
#include "engine/guards.h"
#include "engine/tensor_impl.h"
#include "heddle/error.h"

namespace heddle::engine {

Tensor make_device_tensor(CudaRuntime& runtime, DType dtype, const Sizes& sizes) {
  auto impl = std::make_shared<Tensor::Impl>();
  const std::size_t bytes = fill_metadata(*impl, dtype, sizes);
  impl->device = runtime.name();
  impl->device_bytes = runtime.allocate(bytes);
  impl->address = impl->device_bytes->address();
  return Tensor(std::move(impl));
}

Tensor wrap_device_memory(CudaRuntime& runtime, void* data, DType dtype, const Sizes& sizes,
                          std::function<void(void*)> deleter) {
  Tensor result = Tensor::wrap(data, dtype, sizes);  // checks
  Tensor::Impl& impl = *result.impl();
  impl.deleter = std::move(deleter);
  impl.device = runtime.name();
  impl.device_bytes = std::make_shared<DeviceBytes>();
  impl.device_bytes->runtime = runtime.shared_from_this();
  return result;
}

void copy_from_like(const Tensor::Impl& to, const char* from) {
  const std::size_t size = size_of(to.dtype);
  std::size_t rank = to.sizes.size(), run = size;  // bytes side by side
  for (; rank > 0 && static_cast<std::size_t>(to.strides[rank - 1]) * size == run; --rank)
    run *= static_cast<std::size_t>(to.sizes[rank - 1]);
  if (to.count == 0) return;
  std::vector<std::int64_t> at(rank, 0);
  for (;;) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < rank; ++d) offset += at[d] * to.strides[d];
    const std::size_t bytes = static_cast<std::size_t>(offset) * size;
    std::memcpy(static_cast<char*>(to.data()) + bytes, from + bytes, run);
    std::size_t d = rank;
    while (d > 0 && ++at[d - 1] == to.sizes[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

Tensor copy_from_device(const Tensor& tensor) {
  const Tensor::Impl& from = *tensor.impl();
  from.device_bytes->uses.wait();
  if (!from.row_major) {
    const MemoryRange range = extent_of(from);
    const Tensor all =
        make_tensor(DType::U8, {static_cast<std::int64_t>(range.second - range.first)});
    from.device_bytes->runtime->copy_out(all.impl()->data(), from.data(),
                                         range.second - range.first);
    return from_literal(
        ir::Literal(from.dtype, from.sizes, from.strides, all.impl()->data(), all.impl())
            .contiguous());
  }
  Tensor result = make_tensor(from.dtype, from.sizes);
  from.device_bytes->runtime->copy_out(result.impl()->data(), from.data(),
                                       static_cast<std::size_t>(from.count) * size_of(from.dtype));
  return result;
}

Tensor copy_to_device(const Tensor& tensor, CudaRuntime& runtime) {
  const ir::Literal source = to_literal(tensor).contiguous();
  Tensor result = make_device_tensor(runtime, source.dtype(), source.sizes());
  runtime.copy_in(result.impl()->data(), source.data(), source.bytes());
  return result;
}

void check_alive(const Tensor& tensor, const CudaRuntime& runtime, const std::string& what) {
  CudaRuntime& own = *tensor.impl()->device_bytes->runtime;
  if (&own == &runtime) return;
  if (!own.device().lost())
    throw DeviceError({.what = what,
                       .where = tensor.device().to_string(),
                       .expected = "a tensor in the CUDA context of the engine",
                       .got = "one in another context"});
  throw DeviceLost({.what = what,
                    .where = tensor.device().to_string(),
                    .expected = "a tensor made since the device was opened",
                    .got = "one of a context that was lost"});
}

}  // namespace heddle::engine
