// What a tensor handle points to.
#pragma once

#include <functional>
#include <memory>
#include <source_location>

#include "base/location.h"
#include "heddle/tensor.h"
#include "ir/graph.h"
#include "ir/literal.h"

namespace heddle {

namespace engine {
class CudaRuntime;
struct DeviceBytes;
class RoomShare;
class Trace;
}  // namespace engine

/// Concrete: sizes, strides, data and who owns it. Symbolic: a value of a trace in progress.
struct Tensor::Impl {
  DType dtype = DType::F32;
  Device device;
  bool row_major = true;
  std::int64_t count = 1;
  Sizes sizes;
  Sizes strides;
  std::shared_ptr<const void> owner;

  /// Address of the first element, a multiple of the dtype's size.
  void* data() const { return literal == nullptr ? address : literal->data(); }
  bool read_only = false;                ///< Tensor::wrap_bytes, DLPack's flag
  void* address = nullptr;               ///< null where `literal` has the bytes
  std::shared_ptr<ir::Literal> literal;  ///< not null: what this is a handle of

  std::shared_ptr<engine::DeviceBytes> device_bytes;  ///< of a tensor on a CUDA device
  std::shared_ptr<const engine::RoomShare>
      share;  ///< not null: it is, or is a part of, what this has

  std::shared_ptr<engine::Trace> trace;  ///< not null: symbolic
  ir::Value value;                       ///< gone with its node when the trace has ended
  ir::TensorMeta meta;                   ///< of `value`

  ~Impl();
  /// Bytes of the engine's own allocator, released with this object.
  void* allocation = nullptr;
  std::function<void(void*)> deleter;
  void* wrapped = nullptr;
};

struct SymInt::Impl {
  base::SymExpr expr;
  std::shared_ptr<engine::Trace> trace;
};

namespace engine {

base::Location location_of(const std::source_location& where);

/// Makes `impl` row-major of these sizes. @return bytes. @throws ShapeError when they overflow.
std::size_t fill_metadata(Tensor::Impl& impl, DType dtype, const Sizes& sizes);
/// A row-major tensor from the host allocator, uninitialised.
Tensor make_tensor(DType dtype, const Sizes& sizes);
/// The same in the memory of a CUDA device.
Tensor make_device_tensor(CudaRuntime& runtime, DType dtype, const Sizes& sizes);
/// A row-major copy of a tensor on a device (the host) in the host's memory (on the device).
Tensor copy_from_device(const Tensor& tensor);
Tensor copy_to_device(const Tensor& tensor, CudaRuntime& runtime);
/// Copies the elements of a tensor of the host, and nothing between them, from memory that is laid out alike.
void copy_from_like(const Tensor::Impl& to, const char* from);
/// The caller's memory on a device, row-major.
Tensor wrap_device_memory(CudaRuntime& runtime, void* data, DType dtype, const Sizes& sizes,
                          std::function<void(void*)> deleter);
/// @throws DeviceLost naming `what` when a tensor's device was lost and opened anew since; DeviceError when it
/// lies in another context.
void check_alive(const Tensor& tensor, const CudaRuntime& runtime, const std::string& what);
/// The tensor as a host literal that shares its bytes; of one on a device a copy of them.
ir::Literal to_literal(const Tensor& tensor);
Tensor from_literal(const ir::Literal& literal);
base::SymExpr to_expr(const SymInt& size);
/// Whether integers of `dtype` hold `number`, whose fraction is dropped. Floats take any number, bool says whether it is 0.
bool holds(DType dtype, double number);
bool holds(DType dtype, std::int64_t number);
/// @throws ArgumentError "<what>: expected memory that may be written" for a tensor that is to be read only.
void require_writable(const Tensor& tensor, std::string what,
                      const std::source_location& where = std::source_location());

}  // namespace engine
}  // namespace heddle
