// Products by constant matrices of numbers of 2 and 4 bits on CUDA: every way to multiply on the simulated device against the
// reference evaluator, what is read, and what NVRTC makes of the texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jit/lower/dequantised_products.h"
#include "tests/jit/barriers_of.h"
#include "tests/jit/of_architecture.h"
#include "tests/jit/one_product.h"
#include "tests/jit/ptxas_report.h"
#include "tests/support/bits_products.h"

namespace heddle::tests {
namespace {

using jit::cuda::ProductShape;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Weights = heddle::testing::FewBitsWeights;

/// x [s0, depth] by the matrix; with `follows` gelu(... + bias) + residual.
ir::Graph bits_graph(const Weights& w, bool follows = false, bool tf32 = false) {
  ir::GraphBuilder b("bits");
  const std::string depth = std::to_string(w.depth);
  const std::string columns = std::to_string(w.columns);
  const ir::Value x = b.input(test::tensor(w.dtype, {"s0", depth.c_str()}), "x");
  ir::Value y = b.emit("matmul", {x, heddle::testing::few_bits_matrix(b, w)}, {{"tf32", tf32}});
  if (follows) {
    const ir::Value bias = b.input(test::tensor(w.dtype, {columns.c_str()}), "bias");
    const ir::Value rest = b.input(test::tensor(w.dtype, {"s0", columns.c_str()}), "rest");
    y = b.emit("add", {b.emit("relu", {b.emit("add", {y, bias})}), rest});
  }
  b.output(y);
  return b.finish();
}

double bits_tolerance(DType dtype) { return tolerance_of(std::string(name_of(dtype))); }

std::vector<std::string> bits_ops(const ir::Graph& graph) {
  return heddle::testing::ops_of(
      jit::dequantised_products(graph, {.target = jit::LowerOptions::Target::Cuda}));
}

using BitsOperands = std::tuple<std::int64_t, DType, DType>;

class CudaBits : public ::testing::TestWithParam<BitsOperands> {
 protected:
  Weights weights() const {
    const auto [bits, dtype, zero] = GetParam();
    return {.depth = 160, .columns = 70, .bits = bits, .zero = zero, .dtype = dtype};
  }
};

TEST_P(CudaBits, EveryWayAgreesWithTheEvaluator) {
  const OneProduct product(bits_graph(weights(), true));
  if (weights().dtype == f32)
    EXPECT_THAT(product.names(), ElementsAre("rows_1x64", "rows_8x64", "plain_64x64x16"));
  else
    EXPECT_THAT(product.names(),
                ElementsAre("rows_1x64", "rows_8x64", "tensor_16x64x64", "tensor_64x64x64",
                            "tensor_128x128x32", "wgmma_64x128x64", "wgmma_128x128x64",
                            "wgmma_128x256x64"));
  product.expect_right({{1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {33}, {0}},
                       bits_tolerance(weights().dtype));
}

TEST_P(CudaBits, NvrtcTakesEveryText) { expect_nvrtc_takes(OneProduct(bits_graph(weights()))); }

std::string operands_name(const ::testing::TestParamInfo<BitsOperands>& info) {
  const auto [bits, dtype, zero] = info.param;
  const char* const of_zero = zero == u8 ? "zero" : zero == f32 ? "real_zero" : "middle";
  return std::to_string(bits) + "_" + std::string(name_of(dtype)) + "_" + of_zero;
}

INSTANTIATE_TEST_SUITE_P(Operands, CudaBits,
                         ::testing::Values(BitsOperands{4, f16, u8},
                                           BitsOperands{4, f16, DType::Bool},
                                           BitsOperands{4, bf16, u8}, BitsOperands{4, f32, u8},
                                           BitsOperands{4, f32, f32}, BitsOperands{4, f16, f32},
                                           BitsOperands{2, f16, u8},
                                           BitsOperands{2, bf16, DType::Bool},
                                           BitsOperands{2, f32, u8}),
                         operands_name);

/// Groups that a thread's words, a step and a part of the depth are in, and that are in these; one group; long depths.
class CudaBitsGroups : public ::testing::TestWithParam<Weights> {};

TEST_P(CudaBitsGroups, EveryWayAgreesWithTheEvaluator) {
  OneProduct(bits_graph(GetParam())).expect_right({{1}, {5}, {33}}, bits_tolerance(f16));
}

Weights in_groups(std::int64_t bits, std::int64_t depth, std::int64_t group, bool by_row) {
  return {
      .depth = depth, .columns = 68, .bits = bits, .group = group, .dtype = f16, .by_row = by_row};
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, CudaBitsGroups,
    ::testing::Values(in_groups(4, 176, 16, false), in_groups(2, 192, 64, true),
                      in_groups(2, 384, 128, false), in_groups(4, 512, 256, true),
                      in_groups(4, 1376, 32, false), in_groups(2, 176, 16, true),
                      in_groups(2, 208, 208, false)),
    [](const auto& info) {
      const Weights& w = info.param;
      return std::to_string(w.bits) + "_bits_" + std::to_string(w.group) +
             (w.by_row ? "_by_row" : "");
    });

/// Columns that are no multiple of four, of words, tiles or scales.
TEST(CudaBitsColumns, EveryWayAgreesWithTheEvaluator) {
  for (const auto& [columns, dtype] :
       {std::pair{1, f16}, {3, f32}, {33, f16}, {33, f32}, {64, f16}, {130, f16}}) {
    SCOPED_TRACE(columns);
    const OneProduct product(
        bits_graph({.depth = 96, .columns = columns, .bits = 4, .dtype = dtype}));
    product.expect_right({{1}, {8}, {18}}, bits_tolerance(dtype));
  }
}

TEST(CudaBitsParts, BlocksThatShareATileAgreeWithTheEvaluator) {
  for (const std::int64_t bits : {2, 4})
    for (const DType dtype : {bf16, f32}) {
      const OneProduct product(
          bits_graph({.depth = 800, .columns = 70, .bits = bits, .dtype = dtype}));
      product.expect_right({{1}, {33}}, bits_tolerance(dtype), 3);
    }
}

TEST(CudaBitsTf32, EveryWayAgreesWithTheEvaluator) {
  for (const std::int64_t bits : {2, 4}) {
    const OneProduct product(bits_graph({.depth = 160, .columns = 70, .bits = bits}, true, true));
    EXPECT_THAT(product.names(), ElementsAre("rows_1x64", "rows_8x64", "tensor_16x64x32",
                                             "tensor_64x64x32", "tensor_128x128x16"));
    product.expect_right({{1}, {33}}, 1e-3);
  }
}

TEST(CudaBitsTf32, NvrtcTakesEveryText) {
  expect_nvrtc_takes(OneProduct(bits_graph({.depth = 160, .columns = 70}, false, true)));
}

class CudaBitsRegisters : public OfArchitecture {};

TEST_P(CudaBitsRegisters, HoldAllThatIsTheThreads) {
  const std::string arch = GetParam();
  std::unique_ptr<device::cuda::Nvrtc> nvrtc;
  try {
    nvrtc = std::make_unique<device::cuda::Nvrtc>();
  } catch (const DeviceError&) {
    GTEST_SKIP() << "libnvrtc is not on this machine";
  }
  if (!nvrtc->supports(std::stoi(arch.substr(3)))) GTEST_SKIP() << "NVRTC makes no such code";
  for (const Weights& one :
       test::few_by_day<Weights>({{.dtype = f16},
                                  {.group = 16, .dtype = bf16},
                                  {.bits = 2, .zero = DType::Bool, .dtype = f16},
                                  {.dtype = f32}},
                                 2)) {
    const OneProduct product(bits_graph(one));
    const auto compiled = nvrtc->compile_cubin(product.text(arch == "sm_90a"), "product", arch,
                                               {"--ptxas-options=-v"});
    SCOPED_TRACE(name_of(one.dtype));
    const auto kernels = static_cast<std::size_t>(std::ranges::count_if(
        product.tiles(),
        [&](const ProductTile& tile) { return arch == "sm_90a" || !tile.warpgroups; }));
    expect_few_spills(compiled.log, kernels, 32);
  }
}

INSTANTIATE_TEST_SUITE_P(Arch, CudaBitsRegisters, ::testing::Values("sm_80", "sm_90a", "sm_100"),
                         [](const auto& info) { return std::string(info.param); });

/// A kernel's parameter for the matrix is words, each of which is read once where there is one tile of rows.
TEST(CudaBitsReads, ArePacked) {
  if (!test::on_simulator()) GTEST_SKIP() << test::kNeedsSimulator;
  constexpr std::int64_t kDepth = 512, kColumns = 256;
  for (const std::int64_t bits : {2, 4}) {
    const OneProduct product(bits_graph(
        {.depth = kDepth, .columns = kColumns, .bits = bits, .zero = DType::Bool, .dtype = f16}));
    for (const auto& source : product.sources())
      EXPECT_THAT(source.kernel,
                  AllOf(HasSubstr("const int* b1"), HasSubstr("hd_packed<hd_f16, hd_nothing, 32, " +
                                                              std::to_string(bits) + ">")));
    ASSERT_EQ(product.names()[0], "rows_1x64");
    const auto bytes = static_cast<double>(product.bytes_read(0, {1}));
    constexpr double kNumbers = static_cast<double>(kDepth * kColumns);
    // Besides each word the row on the left, half a byte for each number of a thread's four columns, and scales: two bytes for
    // each number of rows in a word.
    const auto width = static_cast<double>(bits);
    EXPECT_GE(bytes, kNumbers * width / 8);
    EXPECT_LE(bytes, kNumbers * (width / 8 + 0.5 + 2 * width / 32));
  }
}

/// Words of the step after the next are read while products are under way.
TEST(CudaBitsRaces, EveryBarrierIsNeeded) {
  if (!test::on_simulator()) GTEST_SKIP() << test::kNeedsSimulator;
  const OneProduct one(
      bits_graph({.depth = 320, .columns = 48, .group = 320, .zero = DType::Bool, .dtype = f16}));
  ASSERT_EQ(one.names()[2], "tensor_16x64x64");
  std::vector<ir::Literal> buffers;
  buffers.push_back(heddle::testing::noise(f16, {16, 320}));
  const heddle::testing::BitsMatrixNoise matrix{
      .depth = 320, .columns = 48, .scale = f16, .width = 48};
  buffers.push_back(matrix.words());
  buffers.push_back(matrix.scales());
  buffers.push_back(ir::Literal(f16, {16, 48}));
  BarriersOf launch(one.sources(), 2, one.parameters({16}), std::move(buffers));
  // One for each of five steps, two around the sums on their way out, and the last, after which a block would go on.
  EXPECT_EQ(launch.count(), 8u);
  EXPECT_THAT(launch.unnoticed(), ElementsAre(8u));
}

TEST(PackedProducts, OfConstantsStayPacked) {
  for (const std::int64_t bits : {2, 4})
    for (const bool by_row : {false, true})
      EXPECT_THAT(bits_ops(bits_graph({.bits = bits, .by_row = by_row})),
                  AllOf(Contains("packed_bits_matmul"), Contains("bit_panels"),
                        Not(Contains("matmul")), Not(Contains("dequantised_matmul"))));
}

/// Numbers of eight bits, of depths that are not in whole words, and of an input, which are bytes.
TEST(PackedProducts, LeaveOthersBytes) {
  EXPECT_THAT(bits_ops(bits_graph({.bits = 8})), Contains("dequantised_matmul"));
  EXPECT_THAT(bits_ops(bits_graph({.depth = 72, .bits = 2, .group = 8})),
              Contains("dequantised_matmul"));
  const auto input = ir::parse(R"(graph @g(%a: f16[s0, 64], %p: u8[40, 32]) {
    %u = unpack_bits(%p) {bits = 4, count = 64}
    %f = convert(%u) {dtype = f16}
    %d = mul(%f, 0.5: f16)
    %t = permute(%d) {perm = [1, 0]}
    %m = matmul(%a, %t)
    return %m
  })");
  EXPECT_THAT(bits_ops(input), Contains("dequantised_matmul"));
  OneProduct(bits_graph({.depth = 72, .columns = 20, .bits = 2, .group = 8, .dtype = f16}))
      .expect_right({{3}, {33}}, bits_tolerance(f16));
}

/// By the cost model a product by few bits takes no longer than one by bytes; of few rows two thirds, which its arithmetic takes.
TEST(PackedProducts, TakeNoLongerByTheModel) {
  const auto tiles =
      jit::cuda::product_tiles(f16, Along::Rows, Along::Rows, kProductDevice, false, true);
  const auto cycles = [&](std::int64_t rows, std::int64_t depth, std::int64_t columns,
                          std::int64_t bits) {
    const ProductShape shape{.rows = rows, .columns = columns, .depth = depth, .stored_bits = bits};
    const auto choice = jit::cuda::cheapest_tile(tiles, shape, kProductDevice);
    return jit::cuda::product_cycles(tiles[choice.tile], shape, kProductDevice, choice.parts);
  };
  for (const auto& [depth, columns] : {std::pair{4096, 4096}, {4096, 14336}, {14336, 4096}}) {
    for (std::int64_t rows = 1; rows <= 16384; rows *= 2)
      EXPECT_LE(cycles(rows, depth, columns, 4), 1.02 * cycles(rows, depth, columns, 8))
          << rows << " x " << depth << " x " << columns;
    if (columns == 4096) {
      EXPECT_LT(cycles(1, depth, columns, 4), 0.8 * cycles(1, depth, columns, 8)) << depth;
    }
  }
}

}  // namespace
}  // namespace heddle::tests
