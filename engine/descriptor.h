// What guards see of a call's inputs, packed for one hash and one compare.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "heddle/tensor.h"

namespace heddle::engine {

/// dtype, rank, layout, sizes (and strides where not row-major) of every input, as words. Lives on the
/// stack up to kInline words.
class PackedDescriptors {
 public:
  /// @throws ArgumentError on an undefined tensor, DeviceError on one of another device, TraceError on
  ///         a symbolic one; each names the input.
  explicit PackedDescriptors(std::span<const Tensor> inputs);

  std::span<const std::int64_t> words() const {
    return {overflow_.empty() ? inline_.data() : overflow_.data(), count_};
  }
  std::uint64_t hash() const;

 private:
  static constexpr std::size_t kInline = 192;
  void push(std::int64_t word);

  std::array<std::int64_t, kInline> inline_;
  std::vector<std::int64_t> overflow_;
  std::size_t count_ = 0;
};

}  // namespace heddle::engine
