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

/// out[i] = op(a[i], b[i]), of f32.
std::vector<double> of_f32(ir::ScalarOp op, const std::vector<float>& left,
                           const std::vector<float>& right) {
  const auto count = static_cast<std::int64_t>(left.size());
  jit::NestBuilder b("of_f32_" + std::string(name_of(op)));
  const auto x = b.add_global(DType::F32, count), y = b.add_global(DType::F32, count);
  const auto out = b.add_global(DType::F32, count);
  const auto axis = b.new_axis(count);
  b.set_parallel(axis, count);
  std::vector<jit::Scalar> operands{b.load(x, axis)};
  if (op == ir::ScalarOp::Div) operands.push_back(b.load(y, axis));
  b.store(out, axis, b.apply(op, operands));
  SimulatedKernels kernels({jit::cuda::emit_cuda(b.finish())});
  std::vector<CorpusBuffer> buffers(3, make_buffer(DType::F32, count, 0, false));
  std::memcpy(buffers[0].bytes.data(), left.data(), 4 * left.size());
  std::memcpy(buffers[1].bytes.data(), right.data(), 4 * right.size());
  kernels.run(0, {}, buffers);
  std::vector<double> got;
  for (std::int64_t k = 0; k < count; ++k) got.push_back(buffers[2].number(k));
  return got;
}

void expect_last_place(double got, float want, int places, const std::string& where) {
  if (std::isnan(want)) {
    ASSERT_TRUE(std::isnan(got)) << where;
    return;
  }
  float low = want, high = want;
  for (int k = 0; k < places; ++k) {
    low = std::nextafter(low, -INFINITY);
    high = std::nextafter(high, INFINITY);
  }
  ASSERT_GE(got, low) << where;
  ASSERT_LE(got, high) << where;
}

/// Of each pair of what is special and of what is not, with a reciprocal that is off by as much as the device's may be.
TEST(CudaPrelude, DividesAndTakesRoots) {
  std::vector<float> numbers{0.0f,     INFINITY, NAN,   1e-40f, 1.4e-45f,
                             1.2e-38f, 3.4e38f,  1e38f, 8.6e37f};
  for (int k = -126; k < 128; k += 7) numbers.push_back(std::ldexp(1.0f + 0.013f * (k + 126), k));
  for (int k = 1; k < 40; ++k) numbers.push_back(static_cast<float>(k));
  for (std::size_t k = numbers.size(); k-- > 0;) numbers.push_back(-numbers[k]);
  std::vector<float> left, right;
  for (const float a : numbers)
    for (const float b : numbers) {
      left.push_back(a);
      right.push_back(b);
    }
  const auto quotients = of_f32(ir::ScalarOp::Div, left, right);
  const auto roots = of_f32(ir::ScalarOp::Sqrt, left, right);
  for (std::size_t k = 0; k < left.size(); ++k) {
    const std::string where = std::to_string(left[k]) + " " + std::to_string(right[k]);
    const float want = left[k] / right[k];
    const bool whole = std::fabs(want) >= 1 && std::fabs(want) < 40 && want == std::rint(want) &&
                       want * right[k] == left[k];
    const bool tiny = std::fabs(want) < 0x1p-100f || std::fabs(left[k]) < 0x1p-100f;
    if (!std::isnan(want) && (left[k] == 0 || std::fabs(want) >= 0x1p-126f)) {
      ASSERT_EQ(std::signbit(quotients[k]), std::signbit(want)) << where;
    }
    expect_last_place(quotients[k], want, tiny ? 3 : whole ? 0 : 1, where);
    const float root = std::sqrt(left[k]);
    if (!std::isnan(root)) {
      ASSERT_EQ(std::signbit(roots[k]), std::signbit(root)) << where;
    }
    expect_last_place(roots[k], root, root == std::rint(root) && root < 40 ? 0 : 1, where);
  }
}

TEST(CudaPrelude, WidensEveryF16) { check_widening<base::Half>(DType::F16); }
TEST(CudaPrelude, WidensEveryBf16) { check_widening<base::BFloat16>(DType::BF16); }
TEST(CudaPrelude, RoundsToEveryF16) { check_narrowing<base::Half>(DType::F16); }
TEST(CudaPrelude, RoundsToEveryBf16) { check_narrowing<base::BFloat16>(DType::BF16); }

}  // namespace
}  // namespace heddle::tests
