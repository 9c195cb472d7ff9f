// Convolutions on CUDA, which are products: every way to multiply, for windows of every kind, on the simulated device
// against the reference evaluator; and what NVRTC makes of the texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/jit/one_product.h"

namespace heddle::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// relu((conv(x, w) + bias) * scale + residual) of s0 images of s1 x s2 positions.
std::string pointwise_text(const std::string& dtype, bool tf32) {
  return "graph @pointwise(%x: " + dtype + "[s0, 24, s1, s2], %w: " + dtype +
         "[40, 24, 1, 1], %b: " + dtype + "[40], %scale: " + dtype + "[40, 1, 1], %r: " + dtype +
         "[s0, 40, s1, s2]) {\n  %c = conv(%x, %w, %b) {strides = [1, 1], pads_low = [0, 0], "
         "pads_high = [0, 0], "
         "dilations = [1, 1]" +
         (tf32 ? ", tf32 = true" : "") +
         "}\n  %m = mul(%c, %scale)\n  %a = add(%m, %r)\n  %y = relu(%a)\n  return %y\n}\n";
}

/// s0, s1, s2: images, rows, columns.
const std::vector<std::vector<std::int64_t>> kImages = {{1, 1, 1},  {2, 3, 5}, {1, 8, 8},
                                                        {3, 7, 11}, {0, 4, 4}, {2, 0, 4}};

struct PointwiseCase {
  const char* dtype;
  bool tf32;
};

class CudaPointwiseConv : public ::testing::TestWithParam<PointwiseCase> {};

/// One kernel for the convolution and all that follows; the positions of an image are columns of its matrix.
TEST_P(CudaPointwiseConv, IsAProductOfEachImage) {
  const auto [dtype, tf32] = GetParam();
  const OneProduct product(pointwise_text(dtype, tf32));
  EXPECT_EQ(product.nest().name, "matmul_add_mul_add");
  EXPECT_EQ(product.nest().product->batches.to_string(), "s0");
  EXPECT_EQ(product.nest().product->rows, base::SymExpr(40));
  EXPECT_EQ(product.nest().product->columns.to_string(), "s1*s2");
  EXPECT_EQ(product.left(), Along::Rows);
  EXPECT_EQ(product.right(), Along::Rows);
  if (tf32)
    EXPECT_THAT(product.names(), ElementsAre("rows_1x32", "rows_8x32", "tensor_16x64x32",
                                             "tensor_64x64x32", "tensor_128x128x16"));
  else if (dtype == std::string("f32"))
    EXPECT_THAT(product.names(), ElementsAre("rows_1x32", "rows_8x32", "plain_64x64x16"));
  else
    EXPECT_THAT(product.names(), ElementsAre("rows_1x32", "rows_8x32", "tensor_16x64x64",
                                             "tensor_64x64x64", "tensor_128x128x32"));
  product.expect_right(kImages, tf32 ? 2e-3 : tolerance_of(dtype));
}

INSTANTIATE_TEST_SUITE_P(Operands, CudaPointwiseConv,
                         ::testing::Values(PointwiseCase{"f32", false}, PointwiseCase{"f32", true},
                                           PointwiseCase{"f16", false},
                                           PointwiseCase{"bf16", false}),
                         [](const auto& info) {
                           return std::string(info.param.dtype) + (info.param.tf32 ? "_tf32" : "");
                         });

/// Neither a quotient nor a remainder of sizes is left in what follows the product: an element of the result lies where
/// that of the product does.
TEST(CudaConvs, NothingDividesWhereAnElementGoes) {
  const OneProduct product(pointwise_text("f16", false));
  const std::string text = product.text();
  const std::string elements = text.substr(text.rfind("for (int e = threadIdx.x;"));
  for (const char* division : {"floordiv", "floormod", " / s", " % s", " / (", " % ("})
    EXPECT_EQ(elements.find(division), std::string::npos) << elements;
}

TEST(CudaConvs, OfOneAndThreeDimensionsAndChannelsLast) {
  OneProduct line(R"(graph @line(%x: f16[s0, 8, s1], %w: f16[16, 8, 1]) {
    %c = conv(%x, %w) {strides = [1], pads_low = [0], pads_high = [0], dilations = [1]}
    return %c
  })");
  line.expect_right({{2, 9}, {1, 1}}, 4e-3);
  OneProduct volume(
      R"(graph @volume(%x: f32[s0, 3, s1, 2, s2], %w: f32[5, 3, 1, 1, 1], %b: f32[5]) {
    %c = conv(%x, %w, %b) {strides = [1, 1, 1], pads_low = [0, 0, 0], pads_high = [0, 0, 0], dilations = [1, 1, 1]}
    return %c
  })");
  volume.expect_right({{2, 3, 5}}, 1e-5);
  OneProduct last(R"(graph @last(%x: bf16[s0, s1, s2, 24], %w: bf16[40, 24, 1, 1], %b: bf16[40]) {
    %c = conv(%x, %w, %b) {strides = [1, 1], pads_low = [0, 0], pads_high = [0, 0], dilations = [1, 1], channels_last = true}
    %y = relu(%c)
    return %y
  })");
  EXPECT_EQ(last.nest().product->rows.to_string(), "s0*s1*s2");
  EXPECT_EQ(last.right(), Along::Columns);
  last.expect_right({{2, 3, 5}, {1, 8, 9}}, 3e-2);
}

}  // namespace
}  // namespace heddle::tests
