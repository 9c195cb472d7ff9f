// What need not be better than bf16 is: where it is taken, and that it is good enough.
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

#include "base/half.h"
#include "jit/nest_builder.h"
#include "tests/jit/cuda_runner.h"

namespace heddle::tests {
namespace {

using ir::ScalarOp;

/// out[i] = op(in[i]), or op(in[i], 3), of bf16.
jit::Nest of_bf16(ScalarOp op, std::int64_t count, bool floor) {
  jit::NestBuilder b("coarse_" + std::string(name_of(op)));
  const auto in = b.add_global(DType::BF16, count);
  const auto out = b.add_global(DType::BF16, count);
  const auto axis = b.new_axis(count);
  b.set_parallel(axis, count);
  std::vector<jit::Scalar> operands{b.load(in, axis)};
  if (op == ScalarOp::Div) operands.push_back(b.constant(DType::BF16, 3));
  auto value = b.apply(op, operands);
  if (floor) value = b.apply(ScalarOp::Floor, {value});
  b.store(out, axis, value);
  return b.finish();
}

double exactly(ScalarOp op, double x) {
  switch (op) {
    case ScalarOp::Exp:
      return std::exp(x);
    case ScalarOp::Exp2:
      return std::exp2(x);
    case ScalarOp::Tanh:
      return std::tanh(x);
    case ScalarOp::Sqrt:
      return std::sqrt(x);
    case ScalarOp::Rsqrt:
      return 1 / std::sqrt(x);
    case ScalarOp::Reciprocal:
      return 1 / x;
    case ScalarOp::Sigmoid:
      return 1 / (1 + std::exp(-x));
    default:
      return x / 3;
  }
}

/// Of each bf16: the result is that of the exact one's neighbourhood, 2^-11 of it to each side.
TEST(CudaCoarse, IsOffByLessThanRoundingChanges) {
  constexpr std::int64_t kCount = 65536;
  for (const ScalarOp op :
       {ScalarOp::Exp, ScalarOp::Exp2, ScalarOp::Tanh, ScalarOp::Sqrt, ScalarOp::Rsqrt,
        ScalarOp::Reciprocal, ScalarOp::Sigmoid, ScalarOp::Div}) {
    SCOPED_TRACE(name_of(op));
    const auto source = jit::cuda::emit_cuda(of_bf16(op, kCount, false));
    EXPECT_NE(source.kernel.find(op == ScalarOp::Exp2 ? "hd_exp2" : "hd_coarse_"),
              std::string::npos);
    SimulatedKernels kernels({source});
    std::vector<CorpusBuffer> b = {make_buffer(DType::BF16, kCount, 0, false),
                                   make_buffer(DType::BF16, kCount, 0, false)};
    for (std::int64_t k = 0; k < kCount; ++k) {
      const auto bits = static_cast<std::uint16_t>(k);
      std::memcpy(b[0].bytes.data() + 2 * k, &bits, 2);
    }
    kernels.run(0, {}, b);
    for (std::int64_t k = 0; k < kCount; ++k) {
      const double x = b[0].number(k);
      const double want = exactly(op, x);
      const double got = b[1].number(k);
      if (x != 0 && std::fabs(x) < 0x1p-126) continue;  // may count as 0
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(got)) << x;
      } else if (std::fabs(want) < 0x1p-123) {
        ASSERT_LT(std::fabs(got), 0x1p-122) << x;
      } else {
        const auto low = base::BFloat16(static_cast<float>(want * (1 - 0x1p-10)));
        const auto high = base::BFloat16(static_cast<float>(want * (1 + 0x1p-10)));
        ASSERT_GE(got, std::fmin(static_cast<float>(low), static_cast<float>(high))) << x;
        ASSERT_LE(got, std::fmax(static_cast<float>(low), static_cast<float>(high))) << x;
      }
    }
  }
}

/// A third of 6 is 2, not a little less.
TEST(CudaCoarse, IsNotTakenBeforeSteps) {
  const auto source = jit::cuda::emit_cuda(of_bf16(ScalarOp::Div, 64, true));
  EXPECT_EQ(source.kernel.find("hd_coarse_"), std::string::npos) << source.kernel;
}

/// out[i] = round(f(x)) of what is computed in f32.
std::string kernel_of_f32(DType to, bool adds) {
  jit::NestBuilder b("gate");
  const auto in = b.add_global(DType::F32, 64);
  const auto out = b.add_global(to, 64);
  const auto axis = b.new_axis(64);
  b.set_parallel(axis, 64);
  const auto x = b.load(in, axis);
  const auto gate =
      b.apply(ScalarOp::Add, {b.apply(ScalarOp::Tanh, {x}), b.constant(DType::F32, 1)});
  auto value = b.apply(ScalarOp::Mul, {x, gate});
  if (adds) value = b.apply(ScalarOp::Add, {value, x});
  b.store(out, axis, b.convert(value, to));
  return jit::cuda::emit_cuda(b.finish()).kernel;
}

TEST(CudaCoarse, IsF32OnlyWhereAShareOfItIsRounded) {
  EXPECT_NE(kernel_of_f32(DType::BF16, false).find("hd_coarse_tanh_gate"), std::string::npos);
  EXPECT_EQ(kernel_of_f32(DType::BF16, true).find("hd_coarse_"), std::string::npos);
  EXPECT_EQ(kernel_of_f32(DType::F16, false).find("hd_coarse_"), std::string::npos);
  EXPECT_EQ(kernel_of_f32(DType::F32, false).find("hd_coarse_"), std::string::npos);
}

}  // namespace
}  // namespace heddle::tests
