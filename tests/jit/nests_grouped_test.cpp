// grouped_matmul as a nest, on the CPU and in every way to multiply on the simulated device, against its definition.
#include <gmock/gmock.h>

#include "tests/jit/nests_support.h"
#include "tests/jit/one_product.h"

namespace heddle::test {
namespace {

using ::testing::HasSubstr;
using testing::ints;

/// Ends of groups among `rows`: equal ones, some that go back, beyond all rows, and rows left over.
std::vector<ir::Literal> ends_among(std::int64_t rows) {
  return {ints(i64, {3}, {rows / 3, rows / 2, rows}),
          ints(i64, {3}, {0, rows, rows}),
          ints(i64, {3}, {rows / 2, 1, rows - 1}),
          ints(i64, {3}, {-4, rows / 2, rows / 2}),
          ints(i64, {3}, {0, 0, 0}),
          ints(i64, {3}, {1, rows + 9, 2})};
}

TEST(GroupedNest, GroupsOfAnyLength) {
  for (const std::int64_t rows : {1, 31, 70})
    for (const ir::Literal& ends : ends_among(rows))
      expect_nest_right(
          {"grouped_matmul", {noise(f32, {rows, 19}), noise(f32, {3, 19, 66}, 2), ends}});
}

TEST(GroupedNest, EveryDType) {
  for (const DType dtype : testing::kNumbers)
    for (const DType index : {i64, i32})
      expect_nest_right(
          {"grouped_matmul",
           {noise(dtype, {9, 5}), noise(dtype, {2, 5, 7}, 2), ints(index, {2}, {4, 8})}},
          dtype == f16 || dtype == bf16 ? 3e-2 : 1e-5);
}

TEST(GroupedNest, OfNothing) {
  expect_nest_right(
      {"grouped_matmul", {noise(f32, {0, 5}), noise(f32, {2, 5, 7}), ints(i64, {2}, {0, 0})}});
  expect_nest_right(
      {"grouped_matmul", {noise(f32, {3, 0}), noise(f32, {2, 0, 7}), ints(i64, {2}, {1, 3})}});
  expect_nest_right(
      {"grouped_matmul", {noise(f32, {3, 5}), noise(f32, {0, 5, 7}), ints(i64, {0}, {})}});
  expect_nest_right(
      {"grouped_matmul", {noise(f32, {3, 5}), noise(f32, {2, 5, 0}), ints(i64, {2}, {1, 3})}});
}

/// gelu(x . w[group] + bias) * r, of s0 rows, depth s1, s2 columns and s3 groups.
std::string text_of_groups(const std::string& dtype, bool transposed, bool tf32 = false) {
  return "graph @groups(%x: " + dtype + "[s0, s1], %w: " + dtype +
         (transposed ? "[s3, s2, s1]" : "[s3, s1, s2]") + ", %ends: i64[s3], %bias: " + dtype +
         "[s2], %r: " + dtype + "[s0, s2]) {\n" +
         (transposed ? "  %t = permute(%w) {perm = [0, 2, 1]}\n" : "") +
         "  %m = grouped_matmul(%x, " + (transposed ? "%t" : "%w") + ", %ends)" +
         (tf32 ? " {tf32 = true}" : "") +
         "\n  %a = add(%m, %bias)\n  %g = gelu(%a) {approximate = \"tanh\"}\n  %y = mul(%g, %r)\n"
         "  return %y\n}\n";
}

TEST(GroupedNest, WithAnEpilogueAtAnySizes) {
  for (const bool transposed : {false, true}) {
    const ir::Graph graph = ir::parse(text_of_groups("f32", transposed));
    for (const Ints& sizes : {Ints{65, 40, 70, 3}, Ints{1, 1, 1, 1}, Ints{40, 3, 5, 9}}) {
      std::vector<ir::Literal> arguments = random_arguments(graph, sizes);
      arguments[2] = tests::any_ends(sizes[0], sizes[3]);
      expect_code_right(graph, arguments);
    }
  }
}

struct Way {
  const char* dtype;
  bool transposed;
  bool tf32;
};

class GroupedProduct : public ::testing::TestWithParam<Way> {
 protected:
  std::string text() const {
    return text_of_groups(GetParam().dtype, GetParam().transposed, GetParam().tf32);
  }
};

TEST_P(GroupedProduct, EveryWayAgreesWithTheEvaluator) {
  const tests::OneProduct product(text());
  EXPECT_FALSE(product.library());
  const double tolerance = GetParam().tf32 ? 4e-3 : tests::tolerance_of(GetParam().dtype);
  product.expect_right({{70, 72, 24, 3},
                        {3, 19, 33, 5},
                        {130, 40, 136, 2},
                        {1, 1, 1, 1},
                        {5, 0, 8, 2},
                        {9, 8, 8, 0}},
                       tolerance);
}

TEST_P(GroupedProduct, NvrtcTakesTheText) {
  const tests::OneProduct product(text());
  EXPECT_THAT(product.text(), HasSubstr("hd_place_in_groups<"));
  tests::expect_nvrtc_takes(product);
}

INSTANTIATE_TEST_SUITE_P(, GroupedProduct,
                         ::testing::Values(Way{"f32", false, false}, Way{"f32", true, true},
                                           Way{"f16", false, false}, Way{"bf16", true, false}),
                         [](const auto& test) {
                           return std::string(test.param.dtype) +
                                  (test.param.transposed ? "_transposed" : "") +
                                  (test.param.tf32 ? "_tf32" : "");
                         });

TEST(GroupedChoice, OneWayIsPlausibleAndNoTileIsShared) {
  const tests::OneProduct product(text_of_groups("f16", false));
  const jit::cuda::CudaCode code = jit::cuda::emit_code(product.nest(), {});
  ASSERT_GT(code.variants.size(), 1u);
  for (const Ints& sizes :
       {Ints{64, 4096, 512, 8}, Ints{4096, 1024, 1024, 64}, Ints{2, 64, 64, 8}}) {
    const Ints values = product.parameters(sizes);
    EXPECT_EQ(code.plausible(values, 3).size(), 1u);
    EXPECT_EQ(code.choose(values).parts, 1u);
    EXPECT_EQ(code.plausible(values, 3)[0], code.choose(values).variant);
  }
}

TEST(GroupedChoice, TilesAreAsTallAsGroupsAre) {
  const tests::OneProduct product(text_of_groups("f16", false));
  const jit::cuda::CudaCode code = jit::cuda::emit_code(product.nest(), {});
  const auto rows_at = [&](const Ints& sizes) {
    return code.tiles[code.choose(product.parameters(sizes)).variant].rows;
  };
  EXPECT_GT(rows_at({8192, 1024, 1024, 8}), rows_at({64, 1024, 1024, 64}));
}

}  // namespace
}  // namespace heddle::test
