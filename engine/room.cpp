#include "engine/room.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "engine/cuda_runtime.h"

namespace heddle::engine {

namespace {

/// What lies side by side in each of `count` rows, in bytes.
struct Rows {
  std::size_t count, bytes, from_pitch, to_pitch;
};

void copy_on_host(char* to, const char* from, const Rows& rows) {
  for (std::size_t row = 0; row < rows.count; ++row)
    std::memcpy(to + row * rows.to_pitch, from + row * rows.from_pitch, rows.bytes);
}

}  // namespace

std::shared_ptr<Room> Room::make(CudaRuntime* runtime, DType dtype, Sizes sizes, std::size_t axis,
                                 std::int64_t capacity) {
  sizes[axis] = capacity;
  Tensor whole =
      runtime == nullptr ? make_tensor(dtype, sizes) : make_device_tensor(*runtime, dtype, sizes);
  return std::shared_ptr<Room>(new Room(std::move(whole), axis));
}

bool Room::begins(const Tensor::Impl& tensor) const {
  const Tensor::Impl& whole = *whole_.impl();
  bool same = tensor.address == whole.data() && tensor.sizes.size() == whole.sizes.size();
  for (std::size_t d = 0; same && d < whole.sizes.size(); ++d)
    same =
        tensor.strides[d] == whole.strides[d] && (d == axis_ || tensor.sizes[d] == whole.sizes[d]);
  return same;
}

void Room::fill(const Tensor& from) {
  const Tensor::Impl& source = *from.impl();
  if (source.count == 0) return;
  const bool in_room = source.share != nullptr && source.share->room()->axis() == axis_ &&
                       source.share->room()->begins(source);
  if (!in_room && !source.row_major) return fill(from.clone());
  const Sizes& sizes = source.sizes;
  const auto inner =
      static_cast<std::size_t>(ir::element_count(std::span(sizes).subspan(axis_ + 1))) *
      size_of(source.dtype);
  const auto length = static_cast<std::size_t>(sizes[axis_]);
  const auto pitch = in_room ? static_cast<std::size_t>(source.share->room()->capacity()) : length;
  const Rows rows{static_cast<std::size_t>(ir::element_count(std::span(sizes).first(axis_))),
                  length * inner, pitch * inner, static_cast<std::size_t>(capacity()) * inner};
  auto* to = static_cast<char*>(whole_.impl()->data());
  const auto* begin = static_cast<const char*>(source.data());
  const DeviceBytes* device = whole_.impl()->device_bytes.get();
  if (device == nullptr) return copy_on_host(to, begin, rows);
  from.wait();
  device->runtime->copy_rows({to, rows.to_pitch}, {begin, rows.from_pitch}, rows.bytes, rows.count,
                             source.device_bytes != nullptr);
}

std::shared_ptr<const RoomShare> RoomShare::append(std::shared_ptr<Room> room, std::int64_t from,
                                                   std::int64_t length) {
  if (length > room->capacity()) return nullptr;
  std::shared_ptr<RoomShare> share(new RoomShare(std::move(room), length));
  const std::scoped_lock lock(share->room_->mutex_);
  std::vector<std::int64_t>& lengths = share->room_->lengths_;
  const auto is_longer = [&](std::int64_t has) { return has > from; };
  if (length != from && std::ranges::any_of(lengths, is_longer)) return nullptr;
  lengths.push_back(length);
  share->counted_ = true;
  return share;
}

std::shared_ptr<const RoomShare> RoomShare::part(const RoomShare& of, std::int64_t length) {
  return append(of.room_, length, length);
}

RoomShare::~RoomShare() {
  if (!counted_) return;
  const std::scoped_lock lock(room_->mutex_);
  const auto own = std::ranges::find(room_->lengths_, length_);
  std::swap(*own, room_->lengths_.back());
  room_->lengths_.pop_back();
}

Tensor tensor_of(std::shared_ptr<const RoomShare> share) {
  const Room& room = *share->room();
  const Tensor::Impl& whole = *room.whole().impl();
  auto impl = std::make_shared<Tensor::Impl>();
  Sizes sizes = whole.sizes;
  sizes[room.axis()] = share->length();
  fill_metadata(*impl, whole.dtype, sizes);
  impl->strides = whole.strides;
  impl->row_major =
      ir::Literal(whole.dtype, sizes, whole.strides, whole.data(), nullptr).is_row_major();
  impl->device = whole.device;
  impl->address = whole.data();
  impl->device_bytes = whole.device_bytes;
  impl->share = std::move(share);
  return Tensor(std::move(impl));
}

}  // namespace heddle::engine
