// What guards see of a call's inputs, packed for one hash and one compare.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "heddle/tensor.h"

namespace heddle::engine {

/// dtype, rank, layout, sizes (and strides where not row-major) of every input, as words, and their hash.
/// Lives on the stack up to kInline words.
class PackedDescriptors {
 public:
  /// @param device  where inputs may lie besides the host's memory
  /// @throws ArgumentError on an undefined tensor, DeviceError on one of another device, TraceError on
  ///         a symbolic one; each names the input.
  PackedDescriptors(std::span<const Tensor> inputs, const Device& device);
  PackedDescriptors(const PackedDescriptors&) = delete;
  PackedDescriptors& operator=(const PackedDescriptors&) = delete;

  std::span<const std::int64_t> words() const { return {words_, count_}; }
  /// Good enough to find a plan by; whoever finds one compares the words.
  std::uint64_t hash() const { return hash_; }

 private:
  static constexpr std::size_t kInline = 192;
  /// Room for `more` words behind those there are.
  std::int64_t* room_for(std::size_t more);
  std::int64_t* grow(std::size_t more);

  std::array<std::int64_t, kInline> inline_;
  std::int64_t* words_ = inline_.data();
  std::size_t capacity_ = kInline;
  std::size_t count_ = 0;
  std::uint64_t hash_ = 0;
  std::vector<std::int64_t> overflow_;
};

}  // namespace heddle::engine
