// Memory of tensors with room behind their last element along one axis (EngineOptions::append).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/tensor_impl.h"

namespace heddle::engine {

/// Tensors of several lengths share the memory, each from its beginning. What lies behind the longest of them is free:
/// who claims it appends there. Threads: any.
class Room {
 public:
  /// Row-major memory of `sizes` with `capacity` along `axis`; uninitialised.
  /// @param runtime  of the CUDA device where it lies; null: the host
  /// @throws OutOfMemory
  static std::shared_ptr<Room> make(CudaRuntime* runtime, DType dtype, Sizes sizes,
                                    std::size_t axis, std::int64_t capacity);

  const Tensor& whole() const { return whole_; }
  std::size_t axis() const { return axis_; }
  std::int64_t capacity() const { return whole_.impl()->sizes[axis_]; }

  /// Whether `tensor`, which lies in this memory, is the beginning of it, of all that is beside the axis.
  bool begins(const Tensor::Impl& tensor) const;
  /// Copies a tensor's elements to the beginning; of as many dimensions, and of the same sizes but along the axis.
  void fill(const Tensor& from);

 private:
  friend class RoomShare;
  Room(Tensor whole, std::size_t axis) : whole_(std::move(whole)), axis_(axis) {}

  const Tensor whole_;
  const std::size_t axis_;
  std::mutex mutex_;
  std::vector<std::int64_t> lengths_;  ///< of those who share it, in no order
};

/// The beginning of a room, which stays as it is while somebody holds this.
class RoomShare {
 public:
  /// `length` of `room`. @return null where somebody has more than `from` of it, or there is no such room
  static std::shared_ptr<const RoomShare> append(std::shared_ptr<Room> room, std::int64_t from,
                                                 std::int64_t length);
  /// A part of what another share has.
  static std::shared_ptr<const RoomShare> part(const RoomShare& of, std::int64_t length);
  ~RoomShare();
  RoomShare(const RoomShare&) = delete;
  RoomShare& operator=(const RoomShare&) = delete;

  const std::shared_ptr<Room>& room() const { return room_; }
  std::int64_t length() const { return length_; }

 private:
  RoomShare(std::shared_ptr<Room> room, std::int64_t length)
      : room_(std::move(room)), length_(length) {}

  const std::shared_ptr<Room> room_;
  const std::int64_t length_;
  bool counted_ = false;  ///< among the room's lengths
};

/// The tensor that a share is of.
Tensor tensor_of(std::shared_ptr<const RoomShare> share);

}  // namespace heddle::engine
