// Bytes made of reals by a scale and a zero point that kernels read.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include "jit/nest_builder.h"
#include "tests/jit/nest_runner.h"

namespace heddle::jit {
namespace {

using ir::ScalarOp;
using tests::CompiledNest;

/// What is taken from a byte in the numbers that are made of it.
constexpr int kTaken = 7;

/// QuantizeLinear by what the third and fourth buffer hold; or the zero point alone, of what was divided before. The last buffer has what
/// DequantizeLinear makes of each byte.
Nest quantisation_by_buffers(DType to, bool divides = true) {
  NestBuilder b("quantise");
  b.nest().size_count = 1;
  const SymExpr n = SymExpr::size(0);
  const auto x = b.add_global(f32, n);
  const auto y = b.add_global(to, n);
  const auto scale = b.add_global(f32, 1);
  const auto zero = b.add_global(f32, 1);
  const auto numbers = b.add_global(f32, n);
  b.set_parallel(b.new_axis(1), 1);
  const ir::Scalar by = b.load(scale, 0);
  const ir::Scalar origin = b.load(zero, 0);
  const double least = to == u8 ? 0 : -128;
  const Symbol i = b.begin_for(n, ForStmt::Kind::Vector);
  ir::Scalar ratio = b.load(x, i);
  if (divides) ratio = b.apply(ScalarOp::Div, {ratio, by});
  const ir::Scalar moved = b.apply(ScalarOp::Add, {b.apply(ScalarOp::Round, {ratio}), origin});
  const ir::Scalar above = b.apply(ScalarOp::Max, {moved, b.constant(f32, least)});
  const ir::Scalar byte =
      b.convert(b.apply(ScalarOp::Min, {above, b.constant(f32, least + 255)}), to);
  b.store(y, i, byte);
  const ir::Scalar wide = b.convert(byte, i32);
  b.store(numbers, i, b.convert(b.apply(ScalarOp::Sub, {wide, b.constant_int(i32, kTaken)}), f32));
  b.end_for();
  return b.finish();
}

/// Halves between two bytes and what lies next to them, and what no byte holds.
std::vector<float> reals_near_bytes(float scale) {
  std::vector<float> x = {0.0f, -0.0f, 1e30f, -1e30f, 1e-40f, std::nanf("")};
  x.push_back(std::numeric_limits<float>::infinity());
  x.push_back(-std::numeric_limits<float>::infinity());
  for (int k = -400; k <= 400; ++k) {
    const float half = (static_cast<float>(k) + 0.5f) * scale;
    for (const float value : {half, std::nextafter(half, 1e30f), std::nextafter(half, -1e30f)})
      x.push_back(value);
  }
  return x;
}

template <typename Byte>
void expect_bytes(DType to, std::int64_t vector_bytes) {
  const CompiledNest code(quantisation_by_buffers(to), vector_bytes);
  const CompiledNest undivided(quantisation_by_buffers(to, false), vector_bytes);
  const float inf = std::numeric_limits<float>::infinity();
  const auto least = static_cast<float>(std::numeric_limits<Byte>::min());
  const auto largest = static_cast<float>(std::numeric_limits<Byte>::max());
  for (float scale : {8.0f / 255, 0.25f, 1.0f, 3.7f, 1e-12f, 0x1p60f, 0x1p-60f, 0x1p61f, 1e-30f,
                      1e-42f, 0.0f, -0.5f, inf, std::nanf("")}) {
    for (float zero :
         {0.0f, 10.0f, -128.0f, 127.0f, 255.0f, 3.5f, 300.0f, -129.0f, inf, std::nanf("")}) {
      std::vector<float> x = reals_near_bytes(std::isfinite(scale) && scale != 0 ? scale : 1.0f);
      std::vector<Byte> y(x.size());
      std::vector<float> numbers(x.size());
      (scale == 1 ? undivided : code)
          .run({x.data(), y.data(), &scale, &zero, numbers.data()},
               {static_cast<std::int64_t>(x.size())});
      for (std::size_t k = 0; k < x.size(); ++k) {
        const float steps = std::nearbyint(x[k] / scale) + zero;
        const int want =
            std::isnan(steps) ? 0 : static_cast<int>(std::clamp(steps, least, largest));
        ASSERT_EQ(static_cast<int>(y[k]), want) << x[k] << " / " << scale << " + " << zero;
        ASSERT_EQ(numbers[k], static_cast<float>(want - kTaken)) << x[k];
      }
    }
  }
}

TEST(LlvmQuantiseByBuffers, GivesWhatItsPartsDo) {
  for (std::int64_t vector_bytes : {64, 32, 16}) {
    expect_bytes<std::uint8_t>(u8, vector_bytes);
    expect_bytes<std::int8_t>(i8, vector_bytes);
  }
}

/// Whether the scale and the zero fit is asked for all lanes, and where they do nothing is divided lane by lane.
TEST(LlvmQuantiseByBuffers, DividesOnlyWhereTheScaleDoesNotFit) {
  const cpu::CodegenTarget target = cpu::host_target(0);
  if (target.vector_bytes < 32) GTEST_SKIP() << "needs fused multiply-add";
  cpu::CodegenTexts texts;
  cpu::compile_object(quantisation_by_buffers(u8), target, &texts);
  EXPECT_NE(texts.optimized.find("quantise.beyond"), std::string::npos) << texts.optimized;
  std::size_t divisions = 0;
  for (std::size_t at = texts.optimized.find("fdiv contract <"); at != std::string::npos;
       at = texts.optimized.find("fdiv contract <", at + 1))
    ++divisions;
  // Of the main loop, of one vector at a time, and of the tail.
  EXPECT_EQ(divisions, 3u) << texts.optimized;
}

}  // namespace
}  // namespace heddle::jit
