// f32 as bf16 and f16: rounded once, bit for bit, whatever the target has for it.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/half.h"
#include "jit/nest_builder.h"
#include "tests/jit/nest_runner.h"

namespace heddle::jit {
namespace {

using Floats = std::vector<float>;

/// y[k] = the narrow number of x[k], or the negative of one, for k below s0.
Nest narrowing_nest(DType dtype, bool negates = false) {
  NestBuilder b("narrow");
  const SymExpr count = SymExpr::size(0);
  const NestBufferId x = b.add_global(negates ? dtype : DType::F32, count);
  const NestBufferId y = b.add_global(dtype, count);
  b.nest().size_count = 1;
  const Symbol p = b.new_axis(1);
  b.set_parallel(p, 1);
  const Symbol k = b.begin_for(count, ForStmt::Kind::Vector);
  const Scalar value = b.load(x, k);
  b.store(y, k, negates ? b.apply(ir::ScalarOp::Neg, {value}) : b.convert(value, dtype));
  b.end_for();
  return b.finish();
}

std::uint16_t bits_of(DType dtype, float value) {
  return dtype == DType::F16 ? base::Half(value).bits : base::BFloat16(value).bits;
}

void expect_rounded(DType dtype, const cpu::CodegenTarget& target, const Floats& x) {
  const auto code = cpu::load_object(cpu::compile_object(narrowing_nest(dtype), target), target);
  std::vector<std::uint16_t> y(x.size(), 7);
  void* buffers[] = {const_cast<float*>(x.data()), y.data()};
  const std::int64_t sizes[] = {static_cast<std::int64_t>(x.size())};
  std::int32_t status = 0;
  code.entry(buffers, sizes, 0, 1, nullptr, &status);
  for (std::size_t k = 0; k < x.size(); ++k)
    ASSERT_EQ(y[k], bits_of(dtype, x[k]))
        << std::hex << std::bit_cast<std::uint32_t>(x[k]) << " of " << x.size();
}

float of_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// Every exponent, and around ties of either neighbour: subnormal numbers, infinities and NaN among them.
Floats edges() {
  Floats x;
  for (std::uint32_t high = 0; high < 0x10000; high += 37)
    for (const std::uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      x.push_back(of_bits(high << 16 | low));
  return x;
}

std::vector<cpu::CodegenTarget> targets() {
  std::vector<cpu::CodegenTarget> found;
  for (const std::int64_t vector_bytes : {64, 32, 16})
    found.push_back(cpu::host_target(vector_bytes));
  return found;
}

TEST(LlvmNarrow, RoundsOnceOnEveryTarget) {
  for (const cpu::CodegenTarget& target : targets())
    for (const DType dtype : {DType::BF16, DType::F16}) expect_rounded(dtype, target, edges());
}

/// Where an instruction takes subnormal numbers for 0, one of them among many others must not be lost, nor change those.
TEST(LlvmNarrow, KeepsSubnormalNumbersAmongOthers) {
  for (const cpu::CodegenTarget& target : targets())
    for (const std::size_t place : {0u, 15u, 16u, 37u, 63u, 64u, 129u, 130u}) {
      Floats x(131);
      for (std::size_t k = 0; k < x.size(); ++k) x[k] = 1 + static_cast<float>(k) / 300;
      x[5] = 0;
      x[70] = -0.0f;
      x[place] = of_bits(0x80412345);
      expect_rounded(DType::BF16, target, x);
    }
}

/// How often it asks for NaN, once for each rounding of bf16 by integers.
std::size_t roundings(const Nest& nest, std::int64_t vector_bytes) {
  cpu::CodegenTexts texts;
  cpu::compile_object(nest, cpu::host_target(vector_bytes), &texts);
  std::size_t found = 0;
  for (std::size_t at = 0; (at = texts.ir.find(" uno ", at)) != std::string::npos; ++at) ++found;
  return found;
}

/// What was just rounded is stored as it is.
TEST(LlvmNarrow, RoundsNothingTwice) {
  for (const std::int64_t vector_bytes : {32, 16}) {
    const std::size_t once = roundings(narrowing_nest(DType::BF16, true), vector_bytes);
    EXPECT_GT(once, 0u);
    EXPECT_EQ(roundings(narrowing_nest(DType::BF16), vector_bytes), once);
  }
}

TEST(LlvmNarrow, TakesTheInstructionWhereThereIsOne) {
  const cpu::CodegenTarget target = cpu::host_target();
  cpu::CodegenTexts texts;
  cpu::compile_object(narrowing_nest(DType::BF16), target, &texts);
  EXPECT_EQ(texts.ir.find("cvtneps2bf16") != std::string::npos,
            target.vector_bytes == 64 && cpu::has_feature(target, "avx512bf16"));
}

}  // namespace
}  // namespace heddle::jit
