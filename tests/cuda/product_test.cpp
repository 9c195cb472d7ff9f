// Products, and convolutions, which are products, of engines on the simulated CUDA device: which kernel a plan takes, one
// compile for all sizes, and the evaluator's results.
#include <gmock/gmock.h>

#include "base/half.h"
#include "tests/cuda/support.h"
#include "tests/support/json.h"

namespace heddle::testing {
namespace {

using test::Json;

/// Numbers of f16 or bf16 in (-1, 1) that differ.
Tensor narrow(DType dtype, Sizes sizes, int start = 0) {
  Tensor tensor = Tensor::empty(dtype, std::move(sizes));
  for (std::int64_t k = 0; k < tensor.count(); ++k) {
    const float number = static_cast<float>((k * 7 + start) % 23) / 12 - 0.9f;
    auto* at = static_cast<std::uint16_t*>(tensor.data()) + k;
    *at = dtype == f16 ? base::Half(number).bits : base::BFloat16(number).bits;
  }
  return tensor;
}

Tensor dense_gelu(const Tensor& x, const Tensor& w, const Tensor& bias) {
  return gelu(matmul(x, w) + bias);
}

/// The variants that the steps of the plan for `inputs` take; empty ones left out.
std::vector<std::string> variants(Engine& engine, const std::vector<Tensor>& inputs) {
  std::vector<std::string> found;
  const auto plan = Json::parse(engine.plan_json(inputs));
  for (const auto& step : plan.at("steps"))
    if (step.contains("variant")) found.push_back(step.at("variant"));
  return found;
}

struct ProductCase {
  std::int64_t rows, depth, columns;
  const char* variant;
};

class CudaProductEngine : public ::testing::TestWithParam<DType> {};

TEST_P(CudaProductEngine, OneCompileServesAllSizesWithTheKernelThatFitsThem) {
  const DType dtype = GetParam();
  const double tolerance = dtype == f16 ? 4e-3 : 3e-2;
  Engine engine(dense_gelu, on_cuda());
  Engine reference(dense_gelu, {.device = Device::reference()});
  for (const ProductCase& one :
       {ProductCase{64, 128, 192, "tensor_64x64x64"}, ProductCase{65, 77, 131, "tensor_64x64x64"},
        ProductCase{16, 512, 256, "tensor_16x64x64"}, ProductCase{7, 200, 33, "tensor_16x64x64"},
        ProductCase{1, 96, 136, "tensor_16x64x64"}, ProductCase{1, 600, 512, "rows_1x128"},
        ProductCase{0, 8, 8, ""}, ProductCase{4, 8, 0, ""}, ProductCase{4, 0, 8, ""},
        ProductCase{300, 40, 520, ""}}) {
    SCOPED_TRACE(std::to_string(one.rows) + " x " + std::to_string(one.depth) + " x " +
                 std::to_string(one.columns));
    const std::vector<Tensor> inputs = {narrow(dtype, {one.rows, one.depth}),
                                        narrow(dtype, {one.depth, one.columns}, 3),
                                        narrow(dtype, {one.columns}, 5)};
    const Tensor want = reference.run(inputs)[0];
    expect_near(engine.run(inputs)[0], want, tolerance);
    expect_near(engine.run(inputs)[0], want, tolerance);
    if (*one.variant != 0 && on_simulator()) {  // which has two multiprocessors
      EXPECT_THAT(variants(engine, inputs), ::testing::ElementsAre(one.variant));
    }
  }
  EXPECT_EQ(engine.stats().compiles, 1u);
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaProductEngine, ::testing::Values(f16, bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

/// Bytes over most of their range.
Tensor quantised_bytes(DType dtype, Sizes sizes, int start = 0) {
  Tensor tensor = Tensor::empty(dtype, std::move(sizes));
  for (std::int64_t k = 0; k < tensor.count(); ++k)
    static_cast<unsigned char*>(tensor.data())[k] = static_cast<unsigned char>(k * 37 + start);
  return tensor;
}

/// Rows of a product of bytes, and the variant that is chosen for them on the simulator.
constexpr std::pair<int, const char*> kByteWays[] = {
    {1, "tensor_16x128x128"}, {16, "tensor_16x128x128"}, {100, "tensor_64x64x128"}};

/// As a quantised model has it: bytes less their zero points, scaled back, with constant weights.
TEST(CudaProducts, QuantisedLayersMultiplyBytesExactly) {
  const Tensor weights = quantised_bytes(i8, {300, 136}, 11);
  const auto layer = [weights](const Tensor& x, const Tensor& zero, const Tensor& scale) {
    const Tensor wide = cast(x, i32) - cast(zero, i32);
    const Tensor sums = matmul(wide, cast(weights, i32));
    return std::vector<Tensor>{sums, relu(cast(sums, f32) * scale)};
  };
  Engine engine(layer, on_cuda());
  Engine reference(layer, {.device = Device::reference()});
  for (const auto& [rows, variant] : kByteWays) {
    SCOPED_TRACE(rows);
    const std::vector<Tensor> inputs = {quantised_bytes(u8, {rows, 300}, rows),
                                        Tensor::scalar_int(u8, 117),
                                        Tensor::full(f32, {136}, 0.03)};
    const std::vector<Tensor> want = reference.run(inputs);
    const std::vector<Tensor> got = engine.run(inputs);
    expect_near(got[0], want[0], 0);
    expect_near(got[1], want[1], 1e-6);
    if (on_simulator()) {
      EXPECT_THAT(variants(engine, inputs), ::testing::ElementsAre(variant));
    }
  }
  EXPECT_EQ(engine.stats().compiles, 1u);
}

/// What DequantizeLinear says on both sides is multiplied as bytes too: the scales come behind the exact sums.
TEST(CudaProducts, DequantisedTensorsAreMultipliedAsBytes) {
  const Tensor weights = quantised_bytes(i8, {300, 136}, 11);
  Tensor scales = Tensor::empty(f32, {136});
  for (int k = 0; k < 136; ++k)
    static_cast<float*>(scales.data())[k] = 0.01f + 0.001f * static_cast<float>(k);
  const auto layer = [weights, scales](const Tensor& x, const Tensor& zero, const Tensor& scale) {
    const Tensor left = cast(cast(x, i32) - cast(zero, i32), f32) * scale;
    return relu(matmul(left, cast(weights, f32) * scales));
  };
  Engine engine(layer, on_cuda());
  Engine reference(layer, {.device = Device::reference()});
  for (const auto& [rows, variant] : kByteWays) {
    SCOPED_TRACE(rows);
    const std::vector<Tensor> inputs = {quantised_bytes(u8, {rows, 300}, rows),
                                        Tensor::scalar_int(u8, 117), Tensor::full(f32, {}, 0.02)};
    // The evaluator rounds each of 300 products, and each of their sums.
    expect_near(engine.run(inputs)[0], reference.run(inputs)[0], 1e-4);
    if (on_simulator()) {
      EXPECT_THAT(variants(engine, inputs), ::testing::ElementsAre(variant));
    }
  }
}

/// Activations of 16 bits by weights of 8 (W8A16): what DequantizeLinear makes of constant weights is in no memory.
TEST(CudaProducts, WeightsOfBytesAreReadAsSuch) {
  for (const DType dtype : {f16, bf16}) {
    SCOPED_TRACE(std::string(name_of(dtype)));
    constexpr std::int64_t kDepth = 320, kColumns = 136;
    const Tensor weights = quantised_bytes(i8, {kDepth, kColumns}, 11);
    const Tensor scales = narrow(dtype, {10, 1, kColumns}, 3);
    const Tensor zeros = quantised_bytes(i8, {1, 1, kColumns}, 5);
    const Tensor bias = narrow(dtype, {kColumns}, 5);
    const auto layer = [=](const Tensor& x, const Tensor& residual) {
      const Tensor wide = reshape(cast(weights, i32), {10, 32, kColumns}) - cast(zeros, i32);
      const Tensor w = reshape(cast(wide, dtype) * scales, {kDepth, kColumns});
      return gelu(matmul(x, w) + bias) + residual;
    };
    Engine engine(layer, on_cuda());
    Engine reference(layer, {.device = Device::reference()});
    for (const auto& [rows, variant] : {std::pair{1, "rows_1x64"},
                                        {6, "tensor_16x64x64"},
                                        {16, "tensor_16x64x64"},
                                        {100, "wgmma_64x128x64"}}) {
      SCOPED_TRACE(rows);
      const std::vector<Tensor> inputs = {narrow(dtype, {rows, kDepth}),
                                          narrow(dtype, {rows, kColumns}, 9)};
      const Tensor want = reference.run(inputs)[0];
      for (const unsigned long seed : {0ul, 5ul}) {
        interleave(seed);
        expect_near(engine.run(inputs)[0], want, dtype == f16 ? 4e-3 : 3e-2);
      }
      interleave(0);
      const auto plan = Json::parse(engine.plan_json(inputs));
      ASSERT_EQ(plan.at("steps").size(), 1u);
      for (const auto& buffer : plan.at("buffers")) {
        if (buffer.at("role") == "parameter" || buffer.at("role") == "constant") {
          EXPECT_LE(static_cast<std::int64_t>(buffer.at("bytes")), kDepth * kColumns);
        }
      }
      if (!on_simulator()) continue;
      EXPECT_THAT(variants(engine, inputs), ::testing::ElementsAre(variant));
      if (rows != 1) continue;
      control().bytes_read();
      engine.run(inputs);
      // Each byte once; of every eight rows and columns the scales and zero points, and the row on the left. Numbers of 16 bits
      // would be two bytes each, and that row.
      EXPECT_LT(control().bytes_read(), 19ul * kDepth * kColumns / 10);
    }
    EXPECT_EQ(engine.stats().compiles, 1u);
  }
}

/// f32 is exact unless the pass allows tf32; then a result is off by what its operands may be.
TEST(CudaProducts, Tf32IsAskedForAndStaysWithinItsError) {
  const auto product = [](const Tensor& x, const Tensor& w) { return matmul(x, w); };
  constexpr std::int64_t kRows = 64, kDepth = 200, kColumns = 72;
  Tensor x = Tensor::empty(f32, {kRows, kDepth});
  Tensor w = Tensor::empty(f32, {kDepth, kColumns});
  std::uint32_t state = 7;
  for (Tensor* tensor : {&x, &w})
    for (std::int64_t k = 0; k < tensor->count(); ++k) {
      state = state * 1664525u + 1013904223u;
      static_cast<float*>(tensor->data())[k] = static_cast<float>(state >> 8) / 8388608.0f - 1.0f;
    }
  const auto largest_share = [&](const Tensor& got) {
    const std::vector<double> values = got.to_doubles();
    double largest = 0;
    for (std::int64_t m = 0; m < kRows; ++m)
      for (std::int64_t n = 0; n < kColumns; ++n) {
        double want = 0;
        double magnitude = 0;
        for (std::int64_t k = 0; k < kDepth; ++k) {
          const double one =
              static_cast<double>(static_cast<const float*>(x.data())[m * kDepth + k]) *
              static_cast<const float*>(w.data())[k * kColumns + n];
          want += one;
          magnitude += std::abs(one);
        }
        const double off = std::abs(values[static_cast<std::size_t>(m * kColumns + n)] - want);
        largest = std::max(largest, off / magnitude);
      }
    return largest;
  };
  Engine exact(product, on_cuda());
  EXPECT_LT(largest_share(exact.run({x, w})[0]), 0x1p-20);
  EngineOptions options = on_cuda();
  options.autotune = false;  // which may find a way faster that rounds nothing
  options.passes = {{.name = "tf32-products"}};
  Engine rounded(product, options);
  const double share = largest_share(rounded.run({x, w})[0]);
  EXPECT_LT(share, 0x1.01p-10);
  EXPECT_GT(share, 0x1p-17) << "nothing was rounded";
  if (on_simulator()) {
    EXPECT_THAT(variants(rounded, {x, w}),
                ::testing::ElementsAre(::testing::StartsWith("tensor_")));
    EXPECT_THAT(variants(exact, {x, w}),
                ::testing::ElementsAre(::testing::Not(::testing::StartsWith("tensor_"))));
  }
}

TEST(CudaProducts, StridedInputsAndWeightsThatAreGivenTransposed) {
  const Tensor w = narrow(bf16, {72, 40}, 2);
  const auto f = [w](const Tensor& x) { return relu(matmul(x, transpose(w, 0, 1))); };
  std::vector<std::uint16_t> memory(20 * 64);
  for (std::size_t k = 0; k < memory.size(); ++k)
    memory[k] = base::BFloat16(static_cast<float>(k % 19) / 10 - 0.9f).bits;
  // A window of a wider matrix; and one whose first column is not aligned.
  expect_agrees(f, {Tensor::wrap_strided(memory.data(), bf16, {20, 40}, {64, 1})}, 3e-2);
  expect_agrees(f, {Tensor::wrap_strided(memory.data() + 3, bf16, {20, 40}, {64, 1})}, 3e-2);
}

TEST(CudaProducts, ResidualsThatLieWhereTheResultGoes) {
  const auto f = [](const Tensor& x, const Tensor& w) {
    const Tensor h = x * 2.0f;
    return matmul(x, w) + h;
  };
  expect_agrees(f, {narrow(f16, {70, 70}), narrow(f16, {70, 70}, 4)}, 8e-3);
}

TEST(CudaProducts, PlansOfOtherSizesUpdateTheGraphOfTheDevice) {
  Engine engine([](const Tensor& x, const Tensor& w) { return matmul(x, w) + 1.0f; },
                on_cuda(0, true));
  Engine reference([](const Tensor& x, const Tensor& w) { return matmul(x, w) + 1.0f; },
                   {.device = Device::reference()});
  const Tensor w = narrow(f16, {64, 128}, 1);
  for (const std::int64_t rows : {64, 1, 64, 8, 0, 1, 16})
    for (int repeat = 0; repeat < 2; ++repeat) {
      const std::vector<Tensor> inputs = {narrow(f16, {rows, 64}, repeat), w};
      expect_near(engine.run(inputs)[0], reference.run(inputs)[0], 4e-3);
    }
}

/// A residual block with weights of its own: a window of one element, one of three by three, which reads channels in pieces
/// and so as the first stores them, and the sum with x.
auto residual_block() {
  return [first = narrow(f16, {16, 40, 1, 1}, 3), around = narrow(f16, {16, 16, 3, 3}, 5),
          bias = narrow(f16, {16}, 7), last = narrow(f16, {40, 16, 1, 1}, 9)](const Tensor& x) {
    const Tensor a = relu(conv(x, first, {}, {1, 1}, {0, 0}, {0, 0}));
    const Tensor b = relu(conv(a, around, bias, {1, 1}, {1, 1}, {1, 1}));
    return relu(conv(b, last, {}, {1, 1}, {0, 0}, {0, 0}) + x);
  };
}

TEST(CudaConvs, ABlockIsThreeProductsForAllSizes) {
  Engine engine(residual_block(), on_cuda(0, true));
  Engine reference(residual_block(), {.device = Device::reference()});
  struct Case {
    std::int64_t images, rows, columns;
  };
  for (const Case& one : {Case{2, 5, 7}, {1, 1, 1}, {3, 8, 8}, {0, 4, 4}, {2, 5, 7}}) {
    SCOPED_TRACE(std::to_string(one.images) + " x " + std::to_string(one.rows) + " x " +
                 std::to_string(one.columns));
    const std::vector<Tensor> inputs = {narrow(f16, {one.images, 40, one.rows, one.columns})};
    const Tensor want = reference.run(inputs)[0];
    for (const unsigned long seed : {0ul, 3ul}) {
      interleave(seed);
      expect_near(engine.run(inputs)[0], want, 2e-2);
    }
    interleave(0);
  }
  EXPECT_EQ(engine.stats().compiles, 1u);
  const std::vector<Tensor> images = {narrow(f16, {2, 40, 9, 9})};
  const auto plan = Json::parse(engine.plan_json(images));
  std::vector<std::string> names;
  for (const auto& step : plan.at("steps")) names.push_back(step.at("kernel"));
  EXPECT_THAT(names, ::testing::ElementsAre("matmul_clone", "conv_relu", "matmul_add_relu"));
  if (!on_simulator()) return;  // it has two multiprocessors
  EXPECT_THAT(variants(engine, images),
              ::testing::ElementsAre("tensor_16x64x64", "tensor_16x64x64", "tensor_64x64x64"));
}

/// QDQ: convolutions of what DequantizeLinear makes of bytes, behind which QuantizeLinear makes bytes again.
TEST(CudaConvs, OfDequantisedTensorsMultiplyBytes) {
  const Tensor first = quantised_bytes(i8, {48, 20, 3, 3}, 3);
  const Tensor last = quantised_bytes(i8, {96, 48, 1, 1}, 7);
  const Tensor scales = counted(f32, {48, 1, 1, 1}, 3);
  const Tensor bias = counted(f32, {48}, 5);
  const auto dequantised = [](const Tensor& bytes, int zero, double scale) {
    return cast(cast(bytes, i32) - cast(Tensor::scalar_int(u8, zero), i32), f32) *
           Tensor::full(f32, {}, scale);
  };
  const auto layers = [=](const Tensor& x) {
    const Tensor w = cast(cast(first, i32), f32) * (scales * 0.001f);
    const Tensor y = relu(conv(dequantised(x, 117, 0.02), w, bias, {2, 1}, {1, 1}, {1, 1}));
    const Tensor bytes = cast(clamp(round(y / 0.25f) + 31.0f, 0.0, 255.0), u8);
    const Tensor v = cast(cast(last, i32), f32) * 0.002f;
    return conv(dequantised(bytes, 31, 0.25), v, {}, {1, 1}, {0, 0}, {0, 0});
  };
  Engine engine(layers, on_cuda(0, true));
  Engine reference(layers, {.device = Device::reference()});
  for (const Sizes& sizes : {Sizes{2, 20, 9, 8}, {1, 20, 1, 1}, {3, 20, 14, 14}}) {
    const std::vector<Tensor> inputs = {quantised_bytes(u8, sizes, 1)};
    const Tensor want = reference.run(inputs)[0];
    for (const unsigned long seed : {0ul, 3ul, 4ul}) {
      interleave(seed);
      // A sum that lies between two bytes may become either.
      expect_near(engine.run(inputs)[0], want, 0.1);
    }
    interleave(0);
  }
  const std::vector<Tensor> inputs = {quantised_bytes(u8, {2, 20, 9, 8}, 1)};
  const auto plan = Json::parse(engine.plan_json(inputs));
  std::vector<std::string> names;
  for (const auto& step : plan.at("steps")) names.push_back(step.at("kernel"));
  EXPECT_THAT(names,
              ::testing::ElementsAre("int8_conv_sub_convert_mul", "int8_matmul_sub_convert_mul"));
  if (!on_simulator()) return;
  EXPECT_THAT(variants(engine, inputs), ::testing::ElementsAre(::testing::StartsWith("tensor_"),
                                                               ::testing::StartsWith("tensor_")));
}

/// Windows that move by two, of groups; weights that are an input have sizes that only a call tells, and are no matrix.
TEST(CudaConvs, WindowsOfGroups) {
  const auto halved = [](const Tensor& x, const Tensor& w) {
    return conv(x, w, {}, {2, 2}, {1, 0}, {0, 1}, 2);
  };
  const Tensor x = narrow(f16, {2, 12, 9, 6});
  const Tensor w = narrow(f16, {34, 6, 3, 2}, 4);
  const auto f = [halved, w](const Tensor& each) { return halved(each, w); };
  expect_agrees(f, {x}, 1e-2);
  expect_agrees(halved, {x, w}, 1e-2);
  Engine fixed(f, on_cuda());
  Engine given(halved, on_cuda());
  EXPECT_THAT(variants(fixed, {x}), ::testing::SizeIs(1));
  EXPECT_THAT(variants(given, {x, w}), ::testing::IsEmpty());
}

}  // namespace
}  // namespace heddle::testing
