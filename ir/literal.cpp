#include "ir/literal.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <new>

#include "base/check.h"
#include "heddle/error.h"

namespace heddle::ir {
namespace {

constexpr std::size_t kAlignment = 64;

std::shared_ptr<void> uninitialised(std::size_t bytes) {
  void* data = ::operator new(std::max<std::size_t>(bytes, 1), std::align_val_t{kAlignment});
  return {data, [](void* p) { ::operator delete(p, std::align_val_t{kAlignment}); }};
}

std::shared_ptr<void> zeroed(std::size_t bytes) {
  std::shared_ptr<void> data = uninitialised(bytes);
  std::memset(data.get(), 0, bytes);
  return data;
}

/// The element at `offset` from `data`, which may lie at any address.
template <typename T>
T element(const void* data, std::int64_t offset) {
  T value;
  std::memcpy(&value,
              static_cast<const char*>(data) + offset * static_cast<std::int64_t>(sizeof(T)),
              sizeof value);
  return value;
}

/// Whether floats of the type are structures of their bits.
template <typename T>
constexpr bool kIsSmallFloat = std::is_class_v<T>;

/// The float next to `value` that is inexact-odd: rounding it again to fewer bits gives what rounding
/// `value` once would.
float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || !std::isfinite(nearest)) return nearest;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if (bits & 1u) return nearest;
  const bool away = std::fabs(value) > std::fabs(static_cast<double>(nearest));
  return std::bit_cast<float>(away ? bits + 1 : bits - 1);
}

/// Truncates towards zero, saturating; NaN gives 0.
std::int64_t to_int64(double value) {
  if (std::isnan(value)) return 0;
  if (value >= 9223372036854775808.0) return std::numeric_limits<std::int64_t>::max();
  if (value < -9223372036854775808.0) return std::numeric_limits<std::int64_t>::min();
  return static_cast<std::int64_t>(value);
}

template <typename T>
T from_double(double value) {
  if constexpr (std::is_same_v<T, bool>)
    return value != 0;
  else if constexpr (kIsSmallFloat<T>)
    return T(round_to_odd(value));
  else if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(value);
  else if (std::is_same_v<T, std::uint64_t> && value >= 0x1p63)
    return value < 0x1p64 ? static_cast<T>(value) : std::numeric_limits<T>::max();
  else
    return static_cast<T>(to_int64(value));
}

template <typename T>
T from_int(std::int64_t value) {
  if constexpr (std::is_same_v<T, bool>)
    return value != 0;
  else if constexpr (kIsSmallFloat<T>)
    return T(round_to_odd(static_cast<double>(value)));
  else
    return static_cast<T>(value);
}

template <typename T>
double to_double(T value) {
  if constexpr (kIsSmallFloat<T>)
    return static_cast<double>(static_cast<float>(value));
  else
    return static_cast<double>(value);
}

template <typename T>
std::int64_t to_int(T value) {
  if constexpr (kIsSmallFloat<T> || std::is_floating_point_v<T>)
    return to_int64(to_double(value));
  else
    return static_cast<std::int64_t>(value);
}

/// Calls `visit(offset)` with the element offset of each position in row-major order.
template <typename F>
void for_each_offset(const Sizes& sizes, const Sizes& strides, F&& visit) {
  const std::int64_t count = element_count(sizes);
  Sizes index(sizes.size(), 0);
  std::int64_t offset = 0;
  for (std::int64_t done = 0; done < count; ++done) {
    visit(offset);
    for (std::size_t d = sizes.size(); d-- > 0;) {
      offset += strides[d];
      if (++index[d] < sizes[d]) break;
      offset -= strides[d] * sizes[d];
      index[d] = 0;
    }
  }
}

template <typename T>
void copy_strided(const Literal& from, void* to) {
  const T* source = from.data_as<T>();
  T* target = static_cast<T*>(to);
  for_each_offset(from.sizes(), from.strides(), [&](std::int64_t at) { *target++ = source[at]; });
}

}  // namespace

Sizes row_major_strides(std::span<const std::int64_t> sizes) {
  Sizes strides(sizes.size(), 1);
  // Next to a size of 0 the others may be anything; their product then wraps and is never used.
  for (std::size_t d = sizes.size(); d-- > 1;)
    __builtin_mul_overflow(strides[d], sizes[d], &strides[d - 1]);
  return strides;
}

std::int64_t element_count(std::span<const std::int64_t> sizes) {
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return 0;
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) {
    HD_CHECK(size >= 0);
    if (__builtin_mul_overflow(count, size, &count))
      throw ShapeError({.what = "the number of elements overflows 64 bits",
                        .where = {},
                        .expected = {},
                        .got = {}});
  }
  return count;
}

Literal::Literal(DType dtype, Sizes sizes)
    : dtype_(dtype),
      sizes_(std::move(sizes)),
      strides_(row_major_strides(sizes_)),
      count_(element_count(sizes_)) {
  std::int64_t total = 0;
  if (__builtin_mul_overflow(count_, static_cast<std::int64_t>(size_of(dtype)), &total))
    throw ShapeError(
        {.what = "the number of bytes overflows 64 bits", .where = {}, .expected = {}, .got = {}});
  auto owner = zeroed(bytes());
  data_ = owner.get();
  owner_ = std::move(owner);
}

Literal::Literal(DType dtype, Sizes sizes, Sizes strides, void* bytes,
                 std::shared_ptr<const void> owner)
    : dtype_(dtype),
      sizes_(std::move(sizes)),
      strides_(std::move(strides)),
      count_(element_count(sizes_)),
      data_(bytes),
      owner_(std::move(owner)) {
  HD_CHECK(sizes_.size() == strides_.size());
}

struct Literal::AlignedCopy {
  std::once_flag made;
  std::shared_ptr<void> bytes;
  std::atomic<void*> data = nullptr;  ///< of `bytes`, once they are made
};

Literal Literal::at_any_address(DType dtype, Sizes sizes, const void* bytes,
                                std::shared_ptr<const void> owner) {
  Sizes strides = row_major_strides(sizes);
  Literal result(dtype, std::move(sizes), std::move(strides), const_cast<void*>(bytes),
                 std::move(owner));
  if (reinterpret_cast<std::uintptr_t>(bytes) % size_of(dtype) != 0)
    result.aligned_ = std::make_shared<AlignedCopy>();
  return result;
}

void* Literal::aligned_data() const {
  std::call_once(aligned_->made, [this] {
    aligned_->bytes = uninitialised(bytes());
    std::memcpy(aligned_->bytes.get(), data_, bytes());
    aligned_->data.store(aligned_->bytes.get(), std::memory_order_release);
  });
  return aligned_->bytes.get();
}

const void* Literal::unaligned_data() const {
  const void* copy = aligned_ == nullptr ? nullptr : aligned_->data.load(std::memory_order_acquire);
  return copy == nullptr ? data_ : copy;
}

Literal Literal::scalar(DType dtype, double value) {
  Literal result(dtype, Sizes{});
  result.set(0, value);
  return result;
}

Literal Literal::scalar_int(DType dtype, std::int64_t value) {
  Literal result(dtype, Sizes{});
  result.set_int(0, value);
  return result;
}

Literal Literal::of_ints(DType dtype, Sizes sizes, std::span<const std::int64_t> values) {
  Literal result(dtype, std::move(sizes));
  HD_CHECK(result.count() == static_cast<std::int64_t>(values.size()));
  for (std::int64_t k = 0; k < result.count(); ++k) result.set_int(k, values[k]);
  return result;
}

Literal Literal::of_doubles(DType dtype, Sizes sizes, std::span<const double> values) {
  Literal result(dtype, std::move(sizes));
  HD_CHECK(result.count() == static_cast<std::int64_t>(values.size()));
  for (std::int64_t k = 0; k < result.count(); ++k) result.set(k, values[k]);
  return result;
}

bool Literal::is_row_major() const {
  if (count_ <= 1) return true;
  std::int64_t expected = 1;
  for (std::size_t d = sizes_.size(); d-- > 0;) {
    if (sizes_[d] != 1 && strides_[d] != expected) return false;
    expected *= sizes_[d];
  }
  return true;
}

std::int64_t Literal::offset_of(std::int64_t position) const {
  std::int64_t offset = 0;
  for (std::size_t d = sizes_.size(); d-- > 0;) {
    offset += position % sizes_[d] * strides_[d];
    position /= sizes_[d];
  }
  return offset;
}

double Literal::at(std::int64_t position) const {
  const std::int64_t offset = offset_of(position);
  return dispatch(dtype_,
                  [&]<typename T>() { return to_double<T>(element<T>(unaligned_data(), offset)); });
}

std::int64_t Literal::at_int(std::int64_t position) const {
  const std::int64_t offset = offset_of(position);
  return dispatch(dtype_,
                  [&]<typename T>() { return to_int<T>(element<T>(unaligned_data(), offset)); });
}

void Literal::set(std::int64_t position, double value) {
  const std::int64_t offset = offset_of(position);
  dispatch(dtype_, [&]<typename T>() { data_as<T>()[offset] = from_double<T>(value); });
}

void Literal::set_int(std::int64_t position, std::int64_t value) {
  const std::int64_t offset = offset_of(position);
  dispatch(dtype_, [&]<typename T>() { data_as<T>()[offset] = from_int<T>(value); });
}

Literal Literal::contiguous() const { return is_row_major() && data_ ? *this : clone(); }

Literal Literal::clone() const {
  Literal result(dtype_, sizes_);
  if (is_row_major()) {
    if (count_ > 0) std::memcpy(result.data_, unaligned_data(), bytes());
    return result;
  }
  switch (size_of(dtype_)) {
    case 1:
      copy_strided<std::uint8_t>(*this, result.data_);
      break;
    case 2:
      copy_strided<std::uint16_t>(*this, result.data_);
      break;
    case 4:
      copy_strided<std::uint32_t>(*this, result.data_);
      break;
    default:
      copy_strided<std::uint64_t>(*this, result.data_);
      break;
  }
  return result;
}

Literal Literal::view(Sizes sizes, Sizes strides, std::int64_t offset_elements) const {
  char* start = const_cast<char*>(static_cast<const char*>(data())) +
                offset_elements * static_cast<std::int64_t>(size_of(dtype_));
  std::shared_ptr<const void> owner = owner_;
  if (aligned_ != nullptr) owner = aligned_;
  return {dtype_, std::move(sizes), std::move(strides), start, std::move(owner)};
}

base::Hash128 Literal::checksum() const {
  const Literal plain = contiguous();
  const base::Hash128 content = base::hash128(plain.unaligned_data(), plain.bytes());
  std::string key(name_of(dtype_));
  for (const std::int64_t size : sizes_) key += "," + std::to_string(size);
  key += ":" + content.hex();
  return base::hash128(key);
}

}  // namespace heddle::ir
