// Host tensors with concrete sizes: constants, parameters and what the reference evaluator computes.
#pragma once

#include <complex>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/float8.h"
#include "base/half.h"
#include "base/hash.h"
#include "heddle/dtype.h"

namespace heddle::ir {

using Sizes = std::vector<std::int64_t>;

/// Row-major strides in elements for `sizes`.
Sizes row_major_strides(std::span<const std::int64_t> sizes);
/// Number of elements. Throws ShapeError on overflow of 64 bits.
std::int64_t element_count(std::span<const std::int64_t> sizes);

/// A tensor in host memory. Copies share the bytes. Strides are in elements and may be 0 or negative;
/// `offset` elements lie before the first one.
class Literal {
 public:
  Literal() = default;
  /// Owns zeroed row-major bytes.
  Literal(DType dtype, Sizes sizes);
  /// Shares `bytes` (kept alive by `owner`); strides in elements.
  Literal(DType dtype, Sizes sizes, Sizes strides, void* bytes, std::shared_ptr<const void> owner);
  /// Shares row-major bytes at any address, as they lie in a file. Where the address does not suit the dtype, data()
  /// gives an aligned copy, made when it is first asked for.
  static Literal at_any_address(DType dtype, Sizes sizes, const void* bytes,
                                std::shared_ptr<const void> owner);

  static Literal scalar(DType dtype, double value);
  static Literal scalar_int(DType dtype, std::int64_t value);
  static Literal of_ints(DType dtype, Sizes sizes, std::span<const std::int64_t> values);
  static Literal of_doubles(DType dtype, Sizes sizes, std::span<const double> values);

  DType dtype() const { return dtype_; }
  const Sizes& sizes() const { return sizes_; }
  const Sizes& strides() const { return strides_; }
  std::int64_t rank() const { return static_cast<std::int64_t>(sizes_.size()); }
  std::int64_t count() const { return count_; }
  std::size_t bytes() const { return static_cast<std::size_t>(count_) * size_of(dtype_); }
  bool is_row_major() const;

  /// Address of element [0, …, 0], a multiple of the dtype's size.
  void* data() { return aligned_ == nullptr ? data_ : aligned_data(); }
  const void* data() const { return aligned_ == nullptr ? data_ : aligned_data(); }
  /// The same for those who copy bytes, or load them from any address.
  const void* unaligned_data() const;
  /// Tells these bytes from others as long as they live, whether aligned or not.
  const void* identity() const { return data_; }
  /// Of the bytes: expired when nothing shares them any more, and of bytes without an owner.
  std::weak_ptr<const void> life() const { return owner_; }
  template <typename T>
  T* data_as() {
    return static_cast<T*>(data());
  }
  template <typename T>
  const T* data_as() const {
    return static_cast<const T*>(data());
  }

  /// The element at row-major position `position`, whatever the strides. Integers convert exactly
  /// where double holds them; use at_int for i64 and u64, of which it gives numbers of 2^63 or more less 2^64.
  double at(std::int64_t position) const;
  std::int64_t at_int(std::int64_t position) const;
  /// Stores with the dtype's rounding (floats to nearest even) or wrapping (integers).
  void set(std::int64_t position, double value);
  void set_int(std::int64_t position, std::int64_t value);
  /// Element offset (through the strides) of row-major position `position`.
  std::int64_t offset_of(std::int64_t position) const;

  /// Row-major copy (or itself when it already is).
  Literal contiguous() const;
  /// A view: same bytes.
  Literal view(Sizes sizes, Sizes strides, std::int64_t offset_elements) const;
  /// Same sizes and dtype, row-major, own bytes.
  Literal clone() const;

  /// xxh3-128 of dtype, sizes and row-major bytes: the checksum of IR text and cache keys.
  base::Hash128 checksum() const;

 private:
  struct AlignedCopy;
  void* aligned_data() const;

  DType dtype_ = DType::F32;
  Sizes sizes_;
  Sizes strides_;
  std::int64_t count_ = 1;
  void* data_ = nullptr;
  std::shared_ptr<const void> owner_;
  std::shared_ptr<AlignedCopy> aligned_;  ///< not null: data_ is no multiple of the dtype's size
};

/// Calls f.template operator()<T>() with the storage type of `dtype`: float, double, base::Half,
/// base::BFloat16, base::Float8, bool, or the integer of its size and sign.
template <typename F>
decltype(auto) dispatch(DType dtype, F&& f) {
  switch (dtype) {
    case DType::F32:
      return f.template operator()<float>();
    case DType::F64:
      return f.template operator()<double>();
    case DType::F16:
      return f.template operator()<base::Half>();
    case DType::BF16:
      return f.template operator()<base::BFloat16>();
    case DType::I8:
      return f.template operator()<std::int8_t>();
    case DType::U8:
      return f.template operator()<std::uint8_t>();
    case DType::I16:
      return f.template operator()<std::int16_t>();
    case DType::I32:
      return f.template operator()<std::int32_t>();
    case DType::I64:
      return f.template operator()<std::int64_t>();
    case DType::U16:
      return f.template operator()<std::uint16_t>();
    case DType::U32:
      return f.template operator()<std::uint32_t>();
    case DType::U64:
      return f.template operator()<std::uint64_t>();
    case DType::F8E4M3FN:
      return f.template operator()<base::Float8<DType::F8E4M3FN>>();
    case DType::F8E4M3FNUZ:
      return f.template operator()<base::Float8<DType::F8E4M3FNUZ>>();
    case DType::F8E5M2:
      return f.template operator()<base::Float8<DType::F8E5M2>>();
    case DType::F8E5M2FNUZ:
      return f.template operator()<base::Float8<DType::F8E5M2FNUZ>>();
    case DType::F8E8M0FNU:
      return f.template operator()<base::Float8<DType::F8E8M0FNU>>();
    case DType::Bool:
      break;
  }
  return f.template operator()<bool>();
}

}  // namespace heddle::ir
