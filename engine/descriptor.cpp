#include "engine/descriptor.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>

#include "engine/tensor_impl.h"
#include "heddle/error.h"

namespace heddle::engine {

namespace {

[[noreturn]] void reject(const Tensor& tensor, std::size_t position, const Device& device) {
  const std::string what = fmt::format("run: input {}", position);
  if (!tensor.defined())
    throw ArgumentError(
        {.what = what, .where = {}, .expected = "a tensor", .got = "an empty handle"});
  if (tensor.is_symbolic())
    throw TraceError({.what = what,
                      .where = {},
                      .expected = "a tensor with data",
                      .got = "a symbolic tensor; call the callable itself to nest traces"});
  throw DeviceError({.what = what,
                     .where = {},
                     .expected = device.is_cuda() ? "cpu or " + device.to_string() : "cpu",
                     .got = tensor.device().to_string()});
}

/// One step of a multiplicative hash: the tensors' own chains are short and independent, so that they
/// overlap in the processor.
std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  return (std::rotl(hash, 29) ^ word) * 0x9e3779b97f4a7c15u;
}

/// Brings the high bits down: tables are indexed by the low ones.
std::uint64_t finish(std::uint64_t hash) {
  hash ^= hash >> 32;
  hash *= 0xd6e8feb86659fd93u;
  return hash ^ hash >> 32;
}

std::uint64_t append(std::int64_t* words, const Sizes& numbers, std::uint64_t hash) {
  for (const std::int64_t number : numbers) {
    *words++ = number;
    hash = mix(hash, static_cast<std::uint64_t>(number));
  }
  return hash;
}

}  // namespace

PackedDescriptors::PackedDescriptors(std::span<const Tensor> inputs, const Device& device) {
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const Tensor::Impl* impl = inputs[k].impl().get();
    if (impl == nullptr || impl->trace != nullptr ||
        (impl->device.kind() != Device::Kind::Cpu && impl->device != device)) [[unlikely]]
      reject(inputs[k], k, device);
    const std::size_t rank = impl->sizes.size();
    std::int64_t* words = room_for(1 + 2 * rank);
    const std::uint64_t header = static_cast<std::uint64_t>(impl->dtype) | rank << 8 |
                                 static_cast<std::uint64_t>(impl->row_major) << 32;
    *words = static_cast<std::int64_t>(header);
    std::uint64_t own = append(words + 1, impl->sizes, header);
    count_ += 1 + rank;
    if (!impl->row_major) {
      own = append(words + 1 + rank, impl->strides, own);
      count_ += rank;
    }
    hash_ = mix(hash_, own);
  }
  hash_ = finish(hash_);
}

std::int64_t* PackedDescriptors::room_for(std::size_t more) {
  if (count_ + more > capacity_) [[unlikely]]
    return grow(more);
  return words_ + count_;
}

std::int64_t* PackedDescriptors::grow(std::size_t more) {
  capacity_ = 2 * (count_ + more);
  std::vector<std::int64_t> larger(capacity_);
  std::copy(words_, words_ + count_, larger.begin());
  overflow_ = std::move(larger);
  words_ = overflow_.data();
  return words_ + count_;
}

}  // namespace heddle::engine
