// 8-bit floats in compiled code, on vectors of every length and element by element.

#include <bit>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <vector>

#include "base/float8.h"
#include "jit/nest_builder.h"
#include "tests/jit/nest_runner.h"
#include "tests/support/float8_values.h"

namespace heddle::jit {
namespace {

using base::SymExpr;
using tests::CompiledNest;

struct Way {
  ForStmt::Kind kind;
  std::int64_t vector_bytes;
};
constexpr Way kWays[] = {{ForStmt::Kind::Vector, 64},
                         {ForStmt::Kind::Vector, 32},
                         {ForStmt::Kind::Vector, 16},
                         {ForStmt::Kind::Serial, 64}};

/// out[i] = in[i] in another dtype.
CompiledNest conversion(DType from, DType to, const Way& way) {
  NestBuilder b("convert");
  b.nest().size_count = 1;
  const SymExpr n = SymExpr::size(0);
  const NestBufferId in = b.add_global(from, n);
  const NestBufferId out = b.add_global(to, n);
  b.set_parallel(b.new_axis(1), 1);
  const auto i = b.new_axis(n);
  b.begin_for(i, n, way.kind);
  b.store(out, i, b.convert(b.load(in, i), to));
  b.end_for();
  return CompiledNest(b.finish(), way.vector_bytes);
}

class LlvmFloat8 : public ::testing::TestWithParam<DType> {};

TEST_P(LlvmFloat8, WidensEveryCode) {
  std::vector<std::uint8_t> codes(256);
  for (std::size_t k = 0; k < codes.size(); ++k) codes[k] = static_cast<std::uint8_t>(k);
  for (const Way& way : kWays) {
    std::vector<float> wide(codes.size());
    conversion(GetParam(), f32, way).run({codes.data(), wide.data()}, {256});
    for (std::size_t k = 0; k < codes.size(); ++k) {
      const float want = base::float8_value(GetParam(), codes[k]);
      if (std::isnan(want))
        EXPECT_TRUE(std::isnan(wide[k])) << k;
      else
        EXPECT_EQ(std::bit_cast<std::uint32_t>(wide[k]), std::bit_cast<std::uint32_t>(want))
            << "code " << k << " by " << way.vector_bytes << " bytes";
    }
  }
}

TEST_P(LlvmFloat8, RoundsWhereResultsChange) {
  std::vector<float> numbers = tests::numbers_around(GetParam());
  for (const Way& way : kWays) {
    std::vector<std::uint8_t> codes(numbers.size());
    conversion(f32, GetParam(), way)
        .run({numbers.data(), codes.data()}, {static_cast<std::int64_t>(numbers.size())});
    for (std::size_t k = 0; k < codes.size(); ++k)
      EXPECT_EQ(codes[k], base::float8_code(GetParam(), numbers[k]))
          << numbers[k] << " by " << way.vector_bytes << " bytes";
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, LlvmFloat8, ::testing::ValuesIn(kFloat8DTypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace heddle::jit
