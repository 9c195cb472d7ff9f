// Convolutions of bytes on CUDA: every way to multiply on the simulated device against the reference evaluator, exactly, and
// what NVRTC makes of the texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jit/lower/conv_products.h"
#include "jit/lower/quantised_products.h"
#include "tests/jit/of_architecture.h"
#include "tests/jit/one_product.h"
#include "tests/jit/ptxas_report.h"

namespace heddle::tests {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct ByteConv {
  std::vector<std::int64_t> weights{40, 32, 3, 3}, strides{1, 1}, low{1, 1}, high{1, 1},
      dilations{1, 1};
  DType x = u8, w = i8;
  bool channels_last = false;
  std::int64_t zero = 0;     ///< of x
  bool dequantised = false;  ///< else integers
};

ir::Graph byte_conv(const ByteConv& c) {
  ir::GraphBuilder b("main");
  ir::Dims sizes{2, c.weights[1], base::SymExpr::size(0), base::SymExpr::size(1)};
  if (c.channels_last) std::rotate(sizes.begin() + 1, sizes.begin() + 2, sizes.end());
  const auto wide = [&](ir::Value bytes) { return b.emit("convert", {bytes}, {{"dtype", i32}}); };
  ir::Value x = wide(b.input(ir::TensorMeta::of(c.x, sizes), "x"));
  if (c.zero != 0) x = b.emit("sub", {x, b.constant(ir::Literal::scalar_int(i32, c.zero))});
  ir::Value w = wide(b.constant(heddle::testing::any_bytes(c.w, c.weights, 7)));
  if (c.dequantised) {
    const ir::Literal scales = heddle::testing::noise(f32, {c.weights[0], 1, 1, 1}, 5);
    x = b.emit("mul", {b.emit("convert", {x}, {{"dtype", f32}}), b.scalar(f32, 0.03)});
    w = b.emit("mul", {b.emit("convert", {w}, {{"dtype", f32}}), b.constant(scales)});
  }
  const ir::Value made = b.emit("conv", {x, w},
                                {{"strides", c.strides},
                                 {"pads_low", c.low},
                                 {"pads_high", c.high},
                                 {"dilations", c.dilations},
                                 {"channels_last", c.channels_last}});
  b.output(b.emit("relu", {made}));
  return b.finish();
}

const std::vector<std::vector<std::int64_t>> kByteImages = {{7, 9}, {1, 1}, {12, 20}};

TEST(CudaByteConvs, EveryWayIsExact) {
  for (const ByteConv& c :
       {ByteConv{},
        {.x = i8, .w = u8, .channels_last = true},
        {.strides = {2, 3}, .low = {0, 2}, .high = {2, 1}},
        {.weights = {19, 24, 2, 5}, .low = {2, 2}, .high = {2, 2}, .dilations = {3, 1}, .w = u8},
        {.weights = {40, 48, 2, 3},
         .strides = {2, 1},
         .low = {1, 2},
         .high = {1, 2},
         .dilations = {1, 2},
         .zero = 117},
        {.weights = {72, 64, 1, 1}, .strides = {2, 2}, .low = {0, 0}, .high = {0, 0}, .x = i8}}) {
    SCOPED_TRACE(::testing::Message() << "kernel " << c.weights[2] << " x " << c.weights[3]);
    OneProduct product(byte_conv(c));
    const bool fills_pieces = c.weights[1] % 16 == 0 && c.weights[2] * c.weights[3] != 1;
    EXPECT_EQ(product.right(), fills_pieces ? Along::Channels : Along::Windows);
    EXPECT_THAT(product.names(),
                ElementsAre("tensor_16x128x64", "tensor_64x64x64", "tensor_128x128x64"));
    product.expect_right(kByteImages, 0);
    product.expect_right({{7, 9}}, 0, 3);
  }
}

TEST(CudaByteConvs, WindowsOfOneElementAreOfMatricesInMemory) {
  OneProduct second(byte_conv({.weights = {72, 64, 1, 1}, .low = {0, 0}, .high = {0, 0}}));
  EXPECT_EQ(second.right(), Along::Rows);
  second.expect_right(kByteImages, 0);
  OneProduct last(
      byte_conv({.weights = {72, 64, 1, 1}, .low = {0, 0}, .high = {0, 0}, .channels_last = true}));
  EXPECT_EQ(last.right(), Along::Columns);
  last.expect_right(kByteImages, 0);
}

TEST(CudaByteConvs, AreCallsOfTheirOwn) {
  jit::LowerOptions cuda;
  cuda.target = jit::LowerOptions::Target::Cuda;
  const auto text = [&](const ByteConv& c) {
    return ir::print(jit::quantised_products(byte_conv(c), cuda));
  };
  EXPECT_THAT(text({.zero = 117}),
              AllOf(HasSubstr("int8_conv("), HasSubstr("reduce_sum("), Not(HasSubstr(" conv("))));
  EXPECT_THAT(text({.dequantised = true}),
              AllOf(HasSubstr("int8_conv("), Not(HasSubstr(" conv("))));
  EXPECT_THAT(text({}), Not(HasSubstr("reduce_sum(")));
  EXPECT_THAT(text({.weights = {8, 64, 3, 3}}), HasSubstr(" conv(")) << "few rows";
  EXPECT_THAT(text({.zero = -5}), HasSubstr(" conv(")) << "no byte without a sign";
}

TEST(CudaByteConvs, ReadBytes) {
  for (const auto& source : OneProduct(byte_conv({})).sources())
    EXPECT_THAT(source.kernel, AllOf(HasSubstr("hd_windows<unsigned char, 1, 3, 3, 32>"),
                                     HasSubstr("hd_tensor_tile<signed char, unsigned char, "),
                                     Not(HasSubstr("const float*"))));
}

TEST(CudaByteConvs, NvrtcTakesEveryText) {
  expect_nvrtc_takes(OneProduct(byte_conv({})));
  expect_nvrtc_takes(OneProduct(byte_conv({.x = i8, .w = u8, .channels_last = true})));
}

class CudaByteConvRegisters : public OfArchitecture {};

TEST_P(CudaByteConvRegisters, HoldAllThatIsTheThreads) {
  const std::string arch = GetParam();
  std::unique_ptr<device::cuda::Nvrtc> nvrtc;
  try {
    nvrtc = std::make_unique<device::cuda::Nvrtc>();
  } catch (const DeviceError&) {
    GTEST_SKIP() << "libnvrtc is not on this machine";
  }
  if (!nvrtc->supports(std::stoi(arch.substr(3)))) GTEST_SKIP() << "NVRTC makes no such code";
  const OneProduct product(byte_conv({}));
  const auto compiled =
      nvrtc->compile_cubin(product.text(), "product", arch, {"--ptxas-options=-v"});
  expect_few_spills(compiled.log, product.sources().size(), 0);
}

INSTANTIATE_TEST_SUITE_P(Arch, CudaByteConvRegisters,
                         ::testing::Values("sm_80", "sm_90a", "sm_100"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace heddle::tests
