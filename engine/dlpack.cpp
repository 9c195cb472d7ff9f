#include "heddle/dlpack.h"

#include <algorithm>
#include <fmt/format.h>
#include <memory>

#include "engine/dlpack_abi.h"
#include "engine/tensor_impl.h"
#include "heddle/error.h"

namespace heddle {

namespace {

using namespace engine;

struct DTypeCode {
  DType dtype;
  std::uint8_t code;
  std::uint8_t bits;
};
constexpr DTypeCode kDTypes[] = {
    {f32, kDlFloat, 32},
    {f64, kDlFloat, 64},
    {f16, kDlFloat, 16},
    {bf16, kDlBfloat, 16},
    {i8, kDlInt, 8},
    {u8, kDlUInt, 8},
    {i16, kDlInt, 16},
    {i32, kDlInt, 32},
    {i64, kDlInt, 64},
    {boolean, kDlBool, 8},
    {u16, kDlUInt, 16},
    {u32, kDlUInt, 32},
    {u64, kDlUInt, 64},
    {f8e4m3fn, kDlFloat8E4M3FN, 8},
    {f8e4m3fnuz, kDlFloat8E4M3FNUZ, 8},
    {f8e5m2, kDlFloat8E5M2, 8},
    {f8e5m2fnuz, kDlFloat8E5M2FNUZ, 8},
    {f8e8m0fnu, kDlFloat8E8M0FNU, 8},
};

template <typename E>
[[noreturn]] void fail(std::string what, std::string expected, std::string got) {
  throw E({.what = "from_dlpack: " + what,
           .where = {},
           .expected = std::move(expected),
           .got = std::move(got)});
}

DType dtype_of(const DLDataType& type) {
  for (const DTypeCode& known : kDTypes)
    if (type.lanes == 1 && type.code == known.code && type.bits == known.bits) return known.dtype;
  fail<DTypeError>(
      "element type",
      "f32, f64, f16, bf16, i8, u8, i16, u16, i32, u32, i64, u64, bool or an 8-bit float "
      "(e4m3fn, e4m3fnuz, e5m2, e5m2fnuz, e8m0fnu) of one lane",
      fmt::format("code {}, {} bits, {} lanes", type.code, type.bits, type.lanes));
}

void check(const DLTensor& tensor) {
  const std::int32_t device = tensor.device.device_type;
  if (device != kDlCpu && device != kDlCudaHost && device != kDlCudaManaged)
    fail<DeviceError>("device", "memory that the host can read (type 1, 3 or 13)",
                      fmt::format("type {}", device));
  if (tensor.ndim < 0 || (tensor.ndim > 0 && tensor.shape == nullptr))
    fail<ShapeError>("rank", "0 or more, with sizes", std::to_string(tensor.ndim));
}

template <typename Managed>
Tensor wrap_managed(Managed* managed) {
  const DLTensor& tensor = managed->dl_tensor;
  check(tensor);
  const DType dtype = dtype_of(tensor.dtype);
  const auto rank = static_cast<std::size_t>(tensor.ndim);
  Sizes sizes(tensor.shape, tensor.shape + rank);
  Sizes strides(rank);
  std::int64_t next = 1;
  for (std::size_t d = rank; d-- > 0;) {
    strides[d] = tensor.strides != nullptr ? tensor.strides[d] : next;
    next *= std::max<std::int64_t>(sizes[d], 1);
  }
  const auto release = [managed](void*) {
    if (managed->deleter != nullptr) managed->deleter(managed);
  };
  void* data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  return Tensor::wrap_strided(data, dtype, std::move(sizes), std::move(strides), release);
}

/// What the consumer holds: the struct, the handle that keeps the memory, and what the struct points to.
template <typename Managed>
struct Export {
  Managed managed{};
  Tensor tensor;
  Sizes sizes;
  Sizes strides;

  static void free(Managed* managed) { delete static_cast<Export*>(managed->manager_ctx); }
};

template <typename Managed>
Managed* export_tensor(const Tensor& tensor) {
  if (!tensor.defined())
    throw ArgumentError(
        {.what = "to_dlpack", .where = {}, .expected = "a tensor", .got = "an empty handle"});
  if (tensor.device() != Device::cpu())
    throw DeviceError({.what = "to_dlpack",
                       .where = {},
                       .expected = "a tensor on cpu",
                       .got = tensor.device().to_string()});
  auto made = std::make_unique<Export<Managed>>();
  made->tensor = tensor;
  made->sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  made->strides.assign(tensor.strides().begin(), tensor.strides().end());
  Managed& managed = made->managed;
  managed.manager_ctx = made.get();
  managed.deleter = Export<Managed>::free;
  DLTensor& to = managed.dl_tensor;
  to.data = const_cast<void*>(std::as_const(made->tensor).data());
  to.device = {kDlCpu, 0};
  to.ndim = static_cast<std::int32_t>(made->sizes.size());
  for (const DTypeCode& known : kDTypes)
    if (known.dtype == tensor.dtype()) to.dtype = {known.code, known.bits, 1};
  to.shape = made->sizes.data();
  to.strides = made->strides.data();
  return &made.release()->managed;
}

template <typename Managed>
void check_managed(const Managed* managed) {
  if (managed == nullptr) fail<ArgumentError>("tensor", "an address", "a null pointer");
}

}  // namespace

Tensor from_dlpack(DLManagedTensorVersioned* managed) {
  check_managed(managed);
  if (managed->version.major != 1)
    fail<ArgumentError>("version", "1.x",
                        fmt::format("{}.{}", managed->version.major, managed->version.minor));
  Tensor tensor = wrap_managed(managed);
  tensor.impl()->read_only = (managed->flags & engine::kDlReadOnly) != 0;
  return tensor;
}

Tensor from_dlpack(DLManagedTensor* managed) {
  check_managed(managed);
  return wrap_managed(managed);
}

DLManagedTensorVersioned* to_dlpack(const Tensor& tensor) {
  auto* managed = export_tensor<DLManagedTensorVersioned>(tensor);
  managed->version = {1, 0};
  managed->flags = tensor.impl()->read_only ? engine::kDlReadOnly : 0;
  return managed;
}

DLManagedTensor* to_dlpack_unversioned(const Tensor& tensor) {
  return export_tensor<DLManagedTensor>(tensor);
}

}  // namespace heddle
