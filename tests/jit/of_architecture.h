// Tests of what NVRTC makes of kernels for an architecture, their parameter.
#pragma once

#include <gtest/gtest.h>
#include <string_view>

#include "tests/support/nightly.h"

namespace heddle::tests {

/// By day for one architecture.
class OfArchitecture : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!test::is_nightly() && std::string_view(GetParam()) != "sm_90a")
      GTEST_SKIP() << test::kByNight;
  }
};

}  // namespace heddle::tests
