// The machine's CUDA device for as long as the test program runs: opening and closing its context takes as long as many a
// test.
#pragma once

#include <gtest/gtest.h>
#include <memory>

#include "device/cuda/cuda_device.h"
#include "tests/support/cuda_driver.h"

namespace heddle::test {

/// With HEDDLE_TEST_DEVICE=cuda. Devices that tests open still have modules and memory of their own.
class PrimaryContext : public ::testing::Environment {
 public:
  void SetUp() override {
    if (!on_simulator() && device::cuda::cuda_available()) device_ = device::cuda::open_cuda(0);
  }
  void TearDown() override { device_.reset(); }

 private:
  std::unique_ptr<device::Device> device_;
};

inline const ::testing::Environment* const kPrimaryContext =
    ::testing::AddGlobalTestEnvironment(new PrimaryContext);

}  // namespace heddle::test
