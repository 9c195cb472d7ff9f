// The prelude's conversions, on every 16-bit value, and its simulated twins with them.
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

#include "base/half.h"
#include "jit/nest_builder.h"
#include "tests/jit/cuda_runner.h"

namespace heddle::tests {
namespace {

constexpr std::int64_t kCount = 65536;

/// out[i] = convert(in[i]) over `count` elements.
jit::Nest conversion(DType from, DType to, std::int64_t count) {
  jit::NestBuilder b("convert_" + std::string(name_of(from)) + "_" + std::string(name_of(to)));
  const auto in = b.add_global(from, count);
  const auto out = b.add_global(to, count);
  const auto axis = b.new_axis(count);
  b.set_parallel(axis, count);
  b.store(out, axis, b.convert(b.load(in, axis), to));
  return b.finish();
}

template <typename Stored>
void check_widening(DType dtype) {
  SimulatedKernels kernels({jit::cuda::emit_cuda(conversion(dtype, DType::F32, kCount))});
  std::vector<CorpusBuffer> b = {make_buffer(dtype, kCount, 0, false),
                                 make_buffer(DType::F32, kCount, 0, false)};
  for (std::int64_t k = 0; k < kCount; ++k) {
    const auto bits = static_cast<std::uint16_t>(k);
    std::memcpy(b[0].bytes.data() + 2 * k, &bits, 2);
  }
  kernels.run(0, {}, b);
  for (std::int64_t k = 0; k < kCount; ++k) {
    Stored stored;
    stored.bits = static_cast<std::uint16_t>(k);
    const auto want = static_cast<float>(stored);
    const double got = b[1].number(k);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << k;
    } else {
      ASSERT_EQ(got, want) << k;
      ASSERT_EQ(std::signbit(got), std::signbit(want)) << k;
    }
  }
}

/// Each 16-bit value, the floats halfway to the next one, and their neighbours.
template <typename Stored>
void check_narrowing(DType dtype) {
  std::vector<float> floats;
  for (std::int64_t k = 0; k < kCount; ++k) {
    Stored low;
    Stored high;
    low.bits = static_cast<std::uint16_t>(k);
    high.bits = static_cast<std::uint16_t>(k + 1);
    const float middle = (static_cast<float>(low) + static_cast<float>(high)) / 2;
    for (const float f : {static_cast<float>(low), middle, std::nextafter(middle, 1e38f),
                          std::nextafter(middle, -1e38f)})
      floats.push_back(f);
  }
  const auto count = static_cast<std::int64_t>(floats.size());
  SimulatedKernels kernels({jit::cuda::emit_cuda(conversion(DType::F32, dtype, count))});
  std::vector<CorpusBuffer> b = {make_buffer(DType::F32, count, 0, false),
                                 make_buffer(dtype, count, 0, false)};
  std::memcpy(b[0].bytes.data(), floats.data(), 4 * floats.size());
  kernels.run(0, {}, b);
  for (std::size_t k = 0; k < floats.size(); ++k) {
    const auto want = static_cast<float>(Stored(floats[k]));
    const double got = b[1].number(static_cast<std::int64_t>(k));
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << floats[k];
    } else {
      ASSERT_EQ(got, want) << floats[k];
      ASSERT_EQ(std::signbit(got), std::signbit(want)) << floats[k];
    }
  }
}

TEST(CudaPrelude, WidensEveryF16) { check_widening<base::Half>(DType::F16); }
TEST(CudaPrelude, WidensEveryBf16) { check_widening<base::BFloat16>(DType::BF16); }
TEST(CudaPrelude, RoundsToEveryF16) { check_narrowing<base::Half>(DType::F16); }
TEST(CudaPrelude, RoundsToEveryBf16) { check_narrowing<base::BFloat16>(DType::BF16); }

}  // namespace
}  // namespace heddle::tests
