// Tensors from and to other libraries without a copy, by the DLPack protocol.
#pragma once

#include "heddle/export.h"
#include "heddle/tensor.h"

// As <dlpack/dlpack.h> declares them; include that header, of any version from 0.2 to 1.x, to look inside.
struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace heddle {

/// A tensor over the memory of `managed`, which is deleted when the last handle is gone. One that is marked
/// read-only is refused as an output, a state or a donated input. When this throws, `managed` is still the caller's.
/// @throws ArgumentError for a null pointer, a major version other than 1, and memory that is not aligned;
///         DTypeError for element types that Heddle has not; DeviceError for memory that the host cannot read;
///         ShapeError for negative sizes or strides.
HEDDLE_API Tensor from_dlpack(DLManagedTensorVersioned* managed);
/// The same for producers before DLPack 1.0.
HEDDLE_API Tensor from_dlpack(DLManagedTensor* managed);

/// `tensor` for another library, DLPack 1.0, marked read-only if it is. Its memory lives until the consumer has called the deleter.
/// @throws TraceError on a symbolic tensor, ArgumentError on an empty handle.
HEDDLE_API DLManagedTensorVersioned* to_dlpack(const Tensor& tensor);
/// The same for consumers before DLPack 1.0.
HEDDLE_API DLManagedTensor* to_dlpack_unversioned(const Tensor& tensor);

}  // namespace heddle
