// A CUDA device through the Driver API.
#pragma once

#include <memory>
#include <string>

#include "device/device.h"

namespace heddle::device::cuda {

/// Opens device `index`, with its primary context, which is shared with whoever else uses CUDA in the process, or
/// with one of the caller's. It is current on a thread only while a function of the device runs there.
///
/// After an error that its context does not survive, every function of the device throws DeviceLost;
/// what was made from it can still be destroyed.
///
/// @param driver_path  the driver to use instead of the system's: a simulated one, for example
/// @param reset        throws away what is left of a primary context that was lost before
/// @param context      the caller's own (a CUcontext), which outlives the device and what was made from it; null: the
///                     primary one
/// @throws DeviceError naming what was looked for and where; also when there is no such device.
std::unique_ptr<Device> open_cuda(int index, const std::string& driver_path = {},
                                  bool reset = false, void* context = nullptr);

/// Whether the system's driver loads and has a device. Never throws.
bool cuda_available();

}  // namespace heddle::device::cuda
