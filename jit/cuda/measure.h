// Times the variants of a kernel on the device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "jit/cuda/compile.h"
#include "jit/verdicts.h"

namespace heddle::jit::cuda {

/// Memory of the device, given back with its owner. @throws OutOfMemory.
using DeviceMemory = std::function<std::shared_ptr<void>(std::size_t bytes)>;

/// The variants of the kernel at these sizes, the fastest first, in turns on memory of its own: floats and bytes that look random,
/// since equal ones take less power and time, and other integers, which may be positions, 0. The least median of the times
/// on the device, with the second-level cache overwritten
/// before each launch. Variants that the cost model expects to take more than four times the least are not tried,
/// nor are those tried again whose first launch took that long.
///
/// Waits on the host until the measurement is done. Other work of the device goes on, and may disturb it.
/// @throws OutOfMemory, DeviceError, DeviceLost.
std::vector<Verdicts::Timing> measure_variants(const CudaKernel& kernel, device::Device& device,
                                               std::span<const std::int64_t> sizes,
                                               const DeviceMemory& memory);

}  // namespace heddle::jit::cuda
