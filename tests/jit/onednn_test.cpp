// Library calls bound to several sizes.
#include "jit/cpu/onednn/onednn.h"

#include <gtest/gtest.h>
#include <vector>

namespace heddle::jit {
namespace {

using Ints = std::vector<std::int64_t>;

LibraryCall conv_call() {
  LibraryCall call;
  call.name = "conv";
  call.attrs = {{"strides", Ints{1, 1}},
                {"dilations", Ints{1, 1}},
                {"pads_low", Ints{1, 1}},
                {"pads_high", Ints{1, 1}},
                {"groups", std::int64_t{1}}};
  return call;
}

std::unique_ptr<BoundLibraryCall> bind_for(std::int64_t size, const float* weights) {
  const std::vector<LibraryOperand> operands{
      {{1, 32, size, size}, nullptr}, {{32, 32, 3, 3}, weights}, {{1, 32, size, size}, nullptr}};
  return onednn::bind(conv_call(), operands);
}

TEST(OneDnn, PlansOfSeveralSizesShareThePackedWeights) {
  const std::vector<float> weights(32 * 32 * 3 * 3, 1.0f);
  const std::size_t before = onednn::packed_parameters();
  auto small = bind_for(16, weights.data());
  const std::size_t with_one = onednn::packed_parameters();
  if (with_one == before) GTEST_SKIP() << "oneDNN takes these weights row-major on this machine";
  auto large = bind_for(20, weights.data());
  EXPECT_EQ(onednn::packed_parameters(), with_one);
  const std::vector<float> others(32 * 32 * 3 * 3, 2.0f);
  auto other = bind_for(16, others.data());
  EXPECT_EQ(onednn::packed_parameters(), with_one + 1);
  small.reset();
  const std::vector<float> x(32 * 20 * 20, 1.0f);
  std::vector<float> y(32 * 20 * 20, 0.0f);
  std::vector<char> scratch(static_cast<std::size_t>(large->scratch_bytes()) + 64);
  void* const aligned =
      reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(scratch.data()) + 63) / 64 * 64);
  void* const buffers[] = {const_cast<float*>(x.data()), const_cast<float*>(weights.data()),
                           y.data()};
  large->run(buffers, 0, 1, aligned);
  EXPECT_EQ(y[0], 32 * 4);
  EXPECT_EQ(y[21], 32 * 9);
  large.reset();
  other.reset();
  EXPECT_EQ(onednn::packed_parameters(), before);
}

}  // namespace
}  // namespace heddle::jit
