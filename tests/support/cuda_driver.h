// Which CUDA driver tests run on: the simulated one, or with HEDDLE_TEST_DEVICE=cuda the machine's own.
#pragma once

#include <cstdlib>
#include <heddle_test_paths.h>
#include <string>
#include <string_view>

#include "device/cuda/driver.h"

namespace heddle::test {

/// False where HEDDLE_TEST_DEVICE is "cuda".
inline bool on_simulator() {
  const char* device = std::getenv("HEDDLE_TEST_DEVICE");
  return device == nullptr || std::string_view(device) != "cuda";
}

/// Why a test is skipped that asks things of the driver which only the simulated one answers.
inline constexpr const char* kNeedsSimulator = "needs the controls of the simulated driver";

/// $HEDDLE_CUDA_SIM_PATH, or what this build made.
inline std::string simulator_path() {
  const char* path = std::getenv("HEDDLE_CUDA_SIM_PATH");
  return path == nullptr ? HEDDLE_CUDA_SIM_PATH : path;
}

/// What open_cuda() and Nvrtc take: empty for the machine's own.
inline std::string driver_path() { return on_simulator() ? simulator_path() : std::string(); }
/// What dlopen takes.
inline std::string driver_library() { return device::cuda::driver_paths(driver_path()).front(); }

}  // namespace heddle::test
