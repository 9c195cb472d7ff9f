// Sizes that only the run tells are refused on the CUDA device, and the engine is usable afterwards.
#include <gmock/gmock.h>

#include "tests/cuda/support.h"

namespace heddle::testing {
namespace {

TEST(CudaLateSizes, AreRefusedByName) {
  Engine engine(
      [](const Tensor& p, const Tensor& x) {
        return cond(p, [&] { return x * 3.0f; }, [&] { return concat({x, x}, 0); });
      },
      on_cuda());
  for (int repeat = 0; repeat < 2; ++repeat) {
    try {
      engine.run({Tensor::scalar_int(boolean, 1), counted(f32, {5, 3})});
      FAIL();
    } catch (const UnsupportedError& error) {
      EXPECT_THAT(error.what(), ::testing::StartsWith("cond: sizes of the results at %"));
      EXPECT_THAT(error.what(), ::testing::EndsWith("got sizes that only the run tells"));
    }
  }
}

}  // namespace
}  // namespace heddle::testing
