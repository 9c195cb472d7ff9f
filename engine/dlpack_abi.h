// The structs of DLPack 1.0 and the codes of 1.1 (https://dmlc.github.io/dlpack/latest/c_api.html), declared here since systems ship
// older headers.
#pragma once

#include <cstdint>

struct DLPackVersion {
  std::uint32_t major;
  std::uint32_t minor;
};

struct DLDevice {
  std::int32_t device_type;
  std::int32_t device_id;
};

struct DLDataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  ///< null: row-major
  std::uint64_t byte_offset;
};

struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};

struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  std::uint64_t flags;
  DLTensor dl_tensor;
};

namespace heddle::engine {

// Device types that the host can read, and the codes of element types.
inline constexpr std::int32_t kDlCpu = 1;
inline constexpr std::uint64_t kDlReadOnly = 1;  ///< of DLManagedTensorVersioned::flags
inline constexpr std::int32_t kDlCudaHost = 3;
inline constexpr std::int32_t kDlCudaManaged = 13;
inline constexpr std::uint8_t kDlInt = 0;
inline constexpr std::uint8_t kDlUInt = 1;
inline constexpr std::uint8_t kDlFloat = 2;
inline constexpr std::uint8_t kDlBfloat = 4;
inline constexpr std::uint8_t kDlBool = 6;
inline constexpr std::uint8_t kDlFloat8E4M3FN = 10;
inline constexpr std::uint8_t kDlFloat8E4M3FNUZ = 11;
inline constexpr std::uint8_t kDlFloat8E5M2 = 12;
inline constexpr std::uint8_t kDlFloat8E5M2FNUZ = 13;
inline constexpr std::uint8_t kDlFloat8E8M0FNU = 14;

}  // namespace heddle::engine
