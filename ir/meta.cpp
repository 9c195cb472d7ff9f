#include "ir/meta.h"

namespace heddle::ir {
namespace {

std::string list(std::span<const SymExpr> dims) {
  std::string text;
  for (const SymExpr& dim : dims) {
    if (!text.empty()) text += ", ";
    text += dim.to_string();
  }
  return text;
}

}  // namespace

std::string DeviceTag::to_string() const {
  return kind == Kind::Cpu ? "cpu" : "cuda:" + std::to_string(index);
}

TensorMeta TensorMeta::of(DType dtype, Dims sizes, DeviceTag device) {
  TensorMeta meta;
  meta.dtype = dtype;
  meta.strides = row_major(sizes);
  meta.sizes = std::move(sizes);
  meta.device = device;
  return meta;
}

bool TensorMeta::is_row_major() const {
  SymExpr expected = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    if (!sizes[d].is_constant(1) && !(strides[d] == expected)) return false;
    expected *= sizes[d];
  }
  return true;
}

bool TensorMeta::same_layout(const TensorMeta& other) const {
  return dtype == other.dtype && device == other.device && sizes == other.sizes &&
         strides == other.strides;
}

std::string TensorMeta::to_string() const {
  std::string text = std::string(name_of(dtype)) + "[" + list(sizes) + "]";
  if (strides != row_major(sizes)) text += "{" + list(strides) + "}";
  if (device != DeviceTag{}) text += "@" + device.to_string();
  return text;
}

Dims row_major(std::span<const SymExpr> sizes) {
  Dims strides(sizes.size(), SymExpr(1));
  for (std::size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
  return strides;
}

}  // namespace heddle::ir
