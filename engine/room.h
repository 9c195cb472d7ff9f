// Memory of a tensor with room behind its last element along one axis (EngineOptions::append).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "engine/tensor_impl.h"

namespace heddle::engine {

/// Elements up to `used` never change, so tensors of any length up to it share the memory. Who claims what is
/// behind it appends there; whoever comes later with a tensor of the same length appends to a copy. Threads: any.
class Room {
 public:
  /// Row-major memory of `sizes` with `capacity` along `axis`, of which the first `used` are taken; uninitialised.
  /// @param runtime  of the CUDA device where it lies; null: the host
  /// @throws OutOfMemory
  static std::shared_ptr<Room> make(CudaRuntime* runtime, DType dtype, Sizes sizes,
                                    std::size_t axis, std::int64_t capacity, std::int64_t used);

  const Tensor& whole() const { return whole_; }
  std::size_t axis() const { return axis_; }
  std::int64_t capacity() const { return whole_.impl()->sizes[axis_]; }

  /// Takes what lies from `from` up to `to`. @return false: somebody has it, or there is no such room
  bool claim(std::int64_t from, std::int64_t to) {
    return to <= capacity() && used_.compare_exchange_strong(from, to, std::memory_order_acq_rel);
  }
  /// Undoes a claim, where nobody has claimed what comes behind.
  void give_back(std::int64_t from, std::int64_t to) {
    used_.compare_exchange_strong(to, from, std::memory_order_acq_rel);
  }

  /// Copies a tensor's elements to the beginning; of as many dimensions, and of the same sizes but along the axis.
  void fill(const Tensor& from);
  /// The first `length` along the axis: a tensor that shares the memory.
  static Tensor view(const std::shared_ptr<Room>& room, std::int64_t length);

 private:
  Room(Tensor whole, std::size_t axis, std::int64_t used)
      : whole_(std::move(whole)), axis_(axis), used_(used) {}

  const Tensor whole_;
  const std::size_t axis_;
  std::atomic<std::int64_t> used_;
};

}  // namespace heddle::engine
