// The host as a device: memory and copies. Its kernels are functions, which the scheduler's executor
// calls; it takes no modules.
#pragma once

#include <memory>

#include "device/device.h"

namespace heddle::device::cpu {

/// Streams do their work at once, on the calling thread.
std::unique_ptr<Device> open_cpu();

}  // namespace heddle::device::cpu
