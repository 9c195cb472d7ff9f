// The tensor handle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "heddle/device.h"
#include "heddle/dtype.h"
#include "heddle/export.h"
#include "heddle/symint.h"

namespace heddle {

using Sizes = std::vector<std::int64_t>;

/// A tensor: dtype, sizes, strides, device and reference-counted storage. Copies share the storage.
/// While a callable is traced its tensors are symbolic: they have metadata and no data. A
/// default-constructed tensor is empty (stands for an absent optional operand).
class HEDDLE_API Tensor {
 public:
  Tensor() = default;

  /// Uninitialised, row-major, in the engine's own memory.
  /// @throws OutOfMemory, ShapeError; DeviceError when the device cannot be opened.
  static Tensor empty(DType dtype, Sizes sizes, Device device = {});
  static Tensor zeros(DType dtype, Sizes sizes);
  /// @throws ArgumentError when an integer dtype does not hold `value`, whose fraction is dropped.
  static Tensor full(DType dtype, Sizes sizes, double value);
  /// A copy of `values`, row-major. @throws ShapeError unless their number is the product of sizes.
  template <typename T>
  static Tensor of(std::span<const T> values, Sizes sizes);
  template <typename T>
  static Tensor of(std::initializer_list<T> values, Sizes sizes) {
    return of(std::span<const T>(values.begin(), values.size()), std::move(sizes));
  }
  /// A scalar (rank 0).
  static Tensor scalar(DType dtype, double value);
  static Tensor scalar_int(DType dtype, std::int64_t value);

  /// The caller's memory, row-major, no copy. `deleter` is called once when the last handle is gone.
  /// @throws ArgumentError unless `data` is a multiple of the element's size, as every kernel relies on.
  static Tensor wrap(void* data, DType dtype, Sizes sizes, std::function<void(void*)> deleter = {});
  /// Row-major bytes at any address, as weights lie in a mapped file, to be read only: a pointer to write through, an output,
  /// a state or a donated input of them is an ArgumentError. Kernels of the CPU read them
  /// where they are; where the address does not suit the dtype, data() gives an aligned copy, made when it is first
  /// asked for.
  static Tensor wrap_bytes(const void* data, DType dtype, Sizes sizes,
                           std::function<void(void*)> deleter = {});
  /// The same as wrap() with strides in elements.
  static Tensor wrap_strided(void* data, DType dtype, Sizes sizes, Sizes strides,
                             std::function<void(void*)> deleter = {});

  bool defined() const { return impl_ != nullptr; }
  bool is_symbolic() const;  ///< traced: no data
  DType dtype() const;
  std::int64_t rank() const;
  Device device() const;
  /// Size of dimension `axis` (negative counts from the end); symbolic while tracing.
  SymInt size(std::int64_t axis,
              std::source_location where = std::source_location::current()) const;
  std::vector<SymInt> shape() const;
  /// Concrete sizes and strides (elements). @throws TraceError on a symbolic tensor.
  std::span<const std::int64_t> sizes(
      std::source_location where = std::source_location::current()) const;
  std::span<const std::int64_t> strides() const;
  std::int64_t count() const;  ///< elements
  bool is_row_major() const;

  /// Address of element [0, …, 0], in the device's memory. @throws TraceError on a symbolic tensor:
  /// reading data while tracing is not possible; ArgumentError where the tensor is to be read only, which a const handle
  /// and data_as<const T> do.
  void* data(std::source_location where = std::source_location::current());
  const void* data(std::source_location where = std::source_location::current()) const;
  template <typename T>
  T* data_as(std::source_location where = std::source_location::current()) {
    check_type<T>(where);
    if constexpr (std::is_const_v<T>)
      return static_cast<T*>(std::as_const(*this).data(where));
    else
      return static_cast<T*>(data(where));
  }
  template <typename T>
  const T* data_as(std::source_location where = std::source_location::current()) const {
    check_type<T>(where);
    return static_cast<const T*>(data(where));
  }
  /// The one element of a one-element tensor as a double. @throws TraceError, ShapeError.
  double item(std::source_location where = std::source_location::current()) const;
  /// Row-major elements converted to double. For tests and printing.
  std::vector<double> to_doubles() const;
  /// The `length` from `start` on along `axis` (negative counts from the end): a tensor that shares the memory, of a symbolic tensor a
  /// slice. From 0 on of a cache that calls append to (EngineOptions::append) it is one that they append to: it was cut back.
  /// @throws ShapeError
  Tensor narrow(std::int64_t axis, std::int64_t start, std::int64_t length,
                std::source_location where = std::source_location::current()) const;
  /// Row-major copy on the same device; of a symbolic tensor one made when the trace runs.
  Tensor clone() const;
  /// The same tensor if it lies on `device`, else a row-major copy there; the host waits for it.
  /// @throws DeviceError, DeviceLost, OutOfMemory; TraceError on a symbolic tensor.
  Tensor to(Device device) const;
  /// Blocks the host until the data is there: after a call on a stream of the caller's (EngineOptions::stream).
  /// Reading the data (to, item, to_doubles) waits by itself.
  /// @throws IndexError when a check of that call failed; DeviceLost.
  void wait() const;

  struct Impl;  // defined by the engine
  explicit Tensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  template <typename T>
  void check_type(std::source_location where) const;
  void check_dtype(DType wanted, std::source_location where) const;
  static Tensor copy_of(const void* data, DType dtype, Sizes sizes, std::size_t elements);

  std::shared_ptr<Impl> impl_;
};

/// The dtype whose elements are stored as T.
template <typename T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return f32;
}
template <>
constexpr DType dtype_of<double>() {
  return f64;
}
template <>
constexpr DType dtype_of<std::int8_t>() {
  return i8;
}
template <>
constexpr DType dtype_of<std::uint8_t>() {
  return u8;
}
template <>
constexpr DType dtype_of<std::int16_t>() {
  return i16;
}
template <>
constexpr DType dtype_of<std::uint16_t>() {
  return u16;
}
template <>
constexpr DType dtype_of<std::uint32_t>() {
  return u32;
}
template <>
constexpr DType dtype_of<std::uint64_t>() {
  return u64;
}
template <>
constexpr DType dtype_of<std::int32_t>() {
  return i32;
}
template <>
constexpr DType dtype_of<std::int64_t>() {
  return i64;
}
template <>
constexpr DType dtype_of<bool>() {
  return boolean;
}

template <typename T>
Tensor Tensor::of(std::span<const T> values, Sizes sizes) {
  return copy_of(values.data(), dtype_of<T>(), std::move(sizes), values.size());
}
template <typename T>
void Tensor::check_type(std::source_location where) const {
  check_dtype(dtype_of<std::remove_cv_t<T>>(), where);
}

}  // namespace heddle
