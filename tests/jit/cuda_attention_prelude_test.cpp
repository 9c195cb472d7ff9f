// The prelude's instructions of attention, simulated: pairs of 16 bits, and powers of two.
#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/half.h"
#include "tests/jit/cuda_runner.h"

namespace heddle::tests {
namespace {

template <typename Number>
void check_pairs(const std::string& function) {
  std::vector<float> numbers;
  for (std::uint32_t k = 0; k < 65536; ++k) {
    Number low, high;
    low.bits = static_cast<std::uint16_t>(k);
    high.bits = static_cast<std::uint16_t>(k + 1);
    const float middle = (static_cast<float>(low) + static_cast<float>(high)) / 2;
    for (const float f : {static_cast<float>(low), middle, std::nextafter(middle, 1e38f)})
      numbers.push_back(f);
  }
  const std::size_t count = numbers.size();
  jit::cuda::CudaSource source;
  source.kernel =
      "extern \"C\" __global__ void f(const float* in, unsigned int* out, int* status) {\n"
      "  for (int k = threadIdx.x; k < " +
      std::to_string(count) + "; k += 256)\n    out[k] = " + function + "(in[k], -in[k]);\n}\n";
  source.entry = "f";
  source.block_threads = 256;
  source.blocks = 1;
  std::vector<std::uint32_t> words(count);
  const std::vector<std::span<unsigned char>> spans = {
      {reinterpret_cast<unsigned char*>(numbers.data()), 4 * count},
      {reinterpret_cast<unsigned char*>(words.data()), 4 * count}};
  SimulatedKernels({source}).run(0, {}, spans);
  for (std::size_t k = 0; k < count; ++k) {
    const float both[] = {numbers[k], -numbers[k]};
    for (std::size_t half = 0; half < 2; ++half) {
      Number got;
      got.bits = static_cast<std::uint16_t>(words[k] >> 16 * half);
      if (std::isnan(both[half]))
        ASSERT_TRUE(std::isnan(static_cast<float>(got))) << both[half];
      else
        ASSERT_EQ(got.bits, Number(both[half]).bits) << both[half];
    }
  }
}

TEST(CudaAttentions, PairsOfF16AreRounded) { check_pairs<base::Half>("hd_pack_f16"); }
TEST(CudaAttentions, PairsOfBf16AreRounded) { check_pairs<base::BFloat16>("hd_pack_bf16"); }

TEST(CudaAttentions, PowersOfTwo) {
  std::vector<float> in = {0, 1, -1, 10, -126, -127, -1e30f, 128, -INFINITY, INFINITY, NAN};
  for (int k = 0; k < 1000; ++k) in.push_back(static_cast<float>(k) / -7.3f);
  std::vector<float> out(in.size());
  jit::cuda::CudaSource source;
  source.kernel =
      "extern \"C\" __global__ void f(const float* in, float* out, int* status) {\n"
      "  for (int k = threadIdx.x; k < " +
      std::to_string(in.size()) + "; k += 32)\n    out[k] = hd_exp2(in[k]);\n}\n";
  source.entry = "f";
  source.block_threads = 32;
  source.blocks = 1;
  const std::vector<std::span<unsigned char>> spans = {
      {reinterpret_cast<unsigned char*>(in.data()), 4 * in.size()},
      {reinterpret_cast<unsigned char*>(out.data()), 4 * in.size()}};
  SimulatedKernels({source}).run(0, {}, spans);
  for (std::size_t k = 0; k < in.size(); ++k) {
    const double want = std::exp2(static_cast<double>(in[k]));
    if (std::isnan(want))
      EXPECT_TRUE(std::isnan(out[k]));
    else if (want < 0x1p-126)
      EXPECT_EQ(out[k], 0) << in[k];
    else if (std::isinf(want) || want > 3.4e38)
      EXPECT_EQ(out[k], INFINITY) << in[k];
    else
      EXPECT_NEAR(out[k], want, want * 0x1p-22) << in[k];
  }
}

}  // namespace
}  // namespace heddle::tests
