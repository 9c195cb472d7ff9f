// What is known about a value before it is computed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/symexpr.h"
#include "heddle/dtype.h"

namespace heddle::ir {

using base::SymExpr;
using Dims = std::vector<SymExpr>;

/// Where a value lives. Prints as "cpu", "cuda:0".
struct DeviceTag {
  enum class Kind : std::uint8_t { Cpu, Cuda };
  Kind kind = Kind::Cpu;
  std::int32_t index = 0;
  friend bool operator==(const DeviceTag&, const DeviceTag&) = default;
  std::string to_string() const;
};

/// Names the bytes a value lives in. Values with the same id share storage (one is a view of the
/// other). 0: not assigned yet.
using StorageId = std::uint64_t;

/// dtype, symbolic sizes and strides, device and storage of one value.
struct TensorMeta {
  DType dtype = DType::F32;
  Dims sizes;
  Dims strides;  ///< in elements; always `sizes.size()` entries
  DeviceTag device;
  StorageId storage = 0;

  /// Row-major.
  static TensorMeta of(DType dtype, Dims sizes, DeviceTag device = {});

  std::int64_t rank() const { return static_cast<std::int64_t>(sizes.size()); }
  SymExpr count() const { return base::product(sizes); }
  SymExpr bytes() const { return count() * SymExpr(static_cast<std::int64_t>(size_of(dtype))); }
  bool is_row_major() const;
  /// Sizes, strides, dtype and device equal (statically); storage is not compared.
  bool same_layout(const TensorMeta& other) const;
  /// IR text: "f32[s0, 128]", "f32[4, 8]{1, 4}@cuda:0".
  std::string to_string() const;
};

Dims row_major(std::span<const SymExpr> sizes);

}  // namespace heddle::ir
