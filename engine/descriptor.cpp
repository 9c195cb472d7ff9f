#include "engine/descriptor.h"

#include <fmt/format.h>

#include "base/hash.h"
#include "engine/tensor_impl.h"
#include "heddle/error.h"

namespace heddle::engine {

namespace {

[[noreturn]] void reject(const Tensor& tensor, std::size_t position) {
  const std::string what = fmt::format("run: input {}", position);
  if (!tensor.defined())
    throw ArgumentError(
        {.what = what, .where = {}, .expected = "a tensor", .got = "an empty handle"});
  if (tensor.is_symbolic())
    throw TraceError({.what = what,
                      .where = {},
                      .expected = "a tensor with data",
                      .got = "a symbolic tensor; call the callable itself to nest traces"});
  throw DeviceError(
      {.what = what, .where = {}, .expected = "cpu", .got = tensor.device().to_string()});
}

}  // namespace

PackedDescriptors::PackedDescriptors(std::span<const Tensor> inputs) {
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const Tensor::Impl* impl = inputs[k].impl().get();
    if (impl == nullptr || impl->trace != nullptr || impl->device.kind() != Device::Kind::Cpu)
        [[unlikely]]
      reject(inputs[k], k);
    const auto rank = static_cast<std::int64_t>(impl->sizes.size());
    push(static_cast<std::int64_t>(impl->dtype) | rank << 8 |
         static_cast<std::int64_t>(impl->row_major) << 32);
    for (const std::int64_t size : impl->sizes) push(size);
    if (!impl->row_major) {
      for (const std::int64_t stride : impl->strides) push(stride);
    }
  }
}

void PackedDescriptors::push(std::int64_t word) {
  if (count_ < kInline) {
    inline_[count_] = word;
  } else {
    if (overflow_.empty()) overflow_.assign(inline_.begin(), inline_.end());
    overflow_.push_back(word);
  }
  ++count_;
}

std::uint64_t PackedDescriptors::hash() const {
  const auto all = words();
  return base::hash64(all.data(), all.size_bytes());
}

}  // namespace heddle::engine
