// Products by matrices of bytes that stand for numbers on CUDA: what becomes one, every way to multiply on the simulated device
// against the reference evaluator, what is read, and what NVRTC makes of the texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jit/lower/dequantised_products.h"
#include "tests/jit/barriers_of.h"
#include "tests/jit/of_architecture.h"
#include "tests/jit/one_product.h"
#include "tests/jit/ptxas_report.h"

namespace heddle::tests {
namespace {

using jit::cuda::ProductShape;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// How a graph says what bytes stand for.
struct ByteWeights {
  std::string dtype = "f16";  ///< of the product
  std::string bytes = "i8";
  bool transposed = false;
  bool by_column = true;  ///< else one scale and zero point for all
  bool zero = true;
  bool in_f32 = false;      ///< numbers are made in f32 and then rounded
  std::int64_t groups = 1;  ///< of a depth of 264
  bool follows = true;      ///< gelu(... + bias) + residual
  bool tf32 = false;
};

constexpr std::int64_t kGroupedDepth = 264;

std::string sizes_text(std::initializer_list<std::string> all) {
  std::string text;
  for (const std::string& one : all)
    if (!one.empty()) text += (text.empty() ? "" : ", ") + one;
  return "[" + text + "]";
}

std::string dequantised_text(const ByteWeights& w) {
  const std::string real = w.in_f32 ? "f32" : w.dtype;
  const bool grouped = w.groups != 1;
  const std::string depth = grouped ? std::to_string(kGroupedDepth) : "s1";
  const std::string groups = std::to_string(w.groups);
  const std::string group = std::to_string(kGroupedDepth / w.groups);
  const std::string columns = w.by_column ? "s2" : "1";
  const std::string stored = w.transposed ? sizes_text({"s2", depth}) : sizes_text({depth, "s2"});
  const std::string parted = !grouped       ? stored
                             : w.transposed ? sizes_text({"s2", groups, group})
                                            : sizes_text({groups, group, "s2"});
  const std::string beside = !grouped
                                 ? w.transposed ? sizes_text({columns, "1"}) : sizes_text({columns})
                             : w.transposed ? sizes_text({columns, groups, "1"})
                                            : sizes_text({groups, "1", columns});
  std::string text = "graph @dequantised(%a: " + w.dtype + "[s0, " + depth + "], %w: " + w.bytes +
                     stored + ", %scale: " + real + beside + ", %bias: " + w.dtype +
                     "[s2], %r: " + w.dtype + "[s0, s2]" +
                     (w.zero ? ", %zero: " + w.bytes + beside : "") + ") {\n";
  text += "  %i = convert(%w) {dtype = i32}\n";
  std::string last = "%i";
  if (grouped) {
    text += "  %p = reshape(%i) {sizes = " + parted + "}\n";
    last = "%p";
  }
  if (w.zero) {
    text += "  %z = convert(%zero) {dtype = i32}\n  %c = sub(" + last + ", %z)\n";
    last = "%c";
  }
  text += "  %f = convert(" + last + ") {dtype = " + real + "}\n  %d = mul(%f, %scale)\n";
  last = "%d";
  if (grouped) {
    text += "  %q = reshape(%d) {sizes = " + stored + "}\n";
    last = "%q";
  }
  if (real != w.dtype) {
    text += "  %n = convert(" + last + ") {dtype = " + w.dtype + "}\n";
    last = "%n";
  }
  if (w.transposed) {
    text += "  %t = permute(" + last + ") {perm = [1, 0]}\n";
    last = "%t";
  }
  text += "  %m = matmul(%a, " + last + ")" + (w.tf32 ? " {tf32 = true}" : "") + "\n";
  if (!w.follows) return text + "  return %m\n}\n";
  return text +
         "  %x = add(%m, %bias)\n  %g = gelu(%x) {approximate = \"tanh\"}\n  %y = add(%g, %r)\n"
         "  return %y\n}\n";
}

std::string with_calls(const ByteWeights& w) {
  jit::LowerOptions cuda;
  cuda.target = jit::LowerOptions::Target::Cuda;
  return ir::print(jit::dequantised_products(ir::parse(dequantised_text(w)), cuda));
}

/// Rows, depth, columns: as of other products, see cuda_product_test.cpp.
const std::vector<std::vector<std::int64_t>> kDequantisedSizes = {
    {1, 1, 1},   {1, 40, 24},   {7, 19, 33}, {8, 264, 16}, {16, 64, 64},
    {64, 72, 8}, {65, 200, 70}, {3, 0, 5},   {0, 4, 5},    {130, 104, 136}};
const std::vector<std::vector<std::int64_t>> kSharedDequantisedSizes = {
    {1, 700, 24}, {65, 200, 70}, {3, 0, 5}};

using DequantisedOperands = std::tuple<const char*, const char*, bool, bool, bool>;

class CudaDequantised : public ::testing::TestWithParam<DequantisedOperands> {
 protected:
  ByteWeights weights() const {
    const auto [dtype, bytes, transposed, by_column, zero] = GetParam();
    return {.dtype = dtype,
            .bytes = bytes,
            .transposed = transposed,
            .by_column = by_column,
            .zero = zero};
  }
};

TEST_P(CudaDequantised, EveryWayAgreesWithTheEvaluator) {
  OneProduct product(dequantised_text(weights()));
  const std::string rows = product.right() == Along::Rows ? "x64" : "x16";
  if (weights().dtype == "f32")
    EXPECT_THAT(product.names(), ElementsAre("rows_1" + rows, "rows_8" + rows, "plain_64x64x16"));
  else
    EXPECT_THAT(product.names(),
                ElementsAre("rows_1" + rows, "rows_8" + rows, "tensor_16x64x64", "tensor_64x64x64",
                            "tensor_128x128x32", "wgmma_64x128x64", "wgmma_128x128x64",
                            "wgmma_128x256x64"));
  product.expect_right(kDequantisedSizes, tolerance_of(weights().dtype));
}

TEST_P(CudaDequantised, BlocksThatShareATileAgreeWithTheEvaluator) {
  OneProduct(dequantised_text(weights()))
      .expect_right(kSharedDequantisedSizes, tolerance_of(weights().dtype), 3);
}

/// Where there is one product for each sum nothing but the numbers themselves is rounded.
TEST_P(CudaDequantised, NumbersAreThoseOfTheDefinition) {
  for (const bool in_f32 : {false, true}) {
    ByteWeights w = weights();
    w.in_f32 = in_f32;
    w.follows = false;
    OneProduct(dequantised_text(w)).expect_right({{17, 1, 70}, {1, 1, 9}}, 0);
  }
}

TEST_P(CudaDequantised, NvrtcTakesEveryText) {
  expect_nvrtc_takes(OneProduct(dequantised_text(weights())));
}

INSTANTIATE_TEST_SUITE_P(Operands, CudaDequantised,
                         ::testing::Values(DequantisedOperands{"f16", "i8", false, true, false},
                                           DequantisedOperands{"f16", "u8", false, true, true},
                                           DequantisedOperands{"f16", "i8", true, true, true},
                                           DequantisedOperands{"bf16", "i8", false, false, true},
                                           DequantisedOperands{"bf16", "u8", true, true, true},
                                           DequantisedOperands{"bf16", "i8", true, false, false},
                                           DequantisedOperands{"f32", "u8", false, true, true},
                                           DequantisedOperands{"f32", "i8", true, true, true}),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" +
                                  std::get<1>(info.param) +
                                  (std::get<2>(info.param) ? "_transposed" : "") +
                                  (std::get<3>(info.param) ? "_columns" : "") +
                                  (std::get<4>(info.param) ? "_zero" : "");
                         });

class CudaDequantisedRegisters : public OfArchitecture {};

TEST_P(CudaDequantisedRegisters, HoldAllThatIsTheThreads) {
  const std::string arch = GetParam();
  std::unique_ptr<device::cuda::Nvrtc> nvrtc;
  try {
    nvrtc = std::make_unique<device::cuda::Nvrtc>();
  } catch (const DeviceError&) {
    GTEST_SKIP() << "libnvrtc is not on this machine";
  }
  if (!nvrtc->supports(std::stoi(arch.substr(3)))) GTEST_SKIP() << "NVRTC makes no such code";
  for (const ByteWeights& one : test::few_by_day<ByteWeights>(
           {{.dtype = "f16", .groups = 11},
            {.dtype = "bf16", .bytes = "u8", .transposed = true, .groups = 3},
            {.dtype = "f32", .tf32 = true}},
           2)) {
    const OneProduct product(dequantised_text(one));
    const auto compiled = nvrtc->compile_cubin(product.text(arch == "sm_90a"), "product", arch,
                                               {"--ptxas-options=-v"});
    SCOPED_TRACE(one.dtype);
    // A few values of a whole tile may wait in memory where that lets another block run beside it.
    const auto compiled_kernels = static_cast<std::size_t>(std::ranges::count_if(
        product.tiles(),
        [&](const ProductTile& tile) { return arch == "sm_90a" || !tile.warpgroups; }));
    expect_few_spills(compiled.log, compiled_kernels, 64);
  }
}

INSTANTIATE_TEST_SUITE_P(Arch, CudaDequantisedRegisters,
                         ::testing::Values("sm_80", "sm_90a", "sm_100"),
                         [](const auto& info) { return std::string(info.param); });

/// Groups of 24 and 88 rows, which end inside a step or a part of the depth; zero points by group alone.
TEST(CudaDequantisedGroups, EveryWayAgreesWithTheEvaluator) {
  for (const auto& [groups, transposed, by_column] :
       {std::tuple{11, false, true}, {3, true, true}, {11, true, false}}) {
    SCOPED_TRACE(std::to_string(groups) + (transposed ? " transposed" : ""));
    OneProduct product(dequantised_text(
        {.bytes = "u8", .transposed = transposed, .by_column = by_column, .groups = groups}));
    product.expect_right({{1, kGroupedDepth, 72}, {65, kGroupedDepth, 70}}, 4e-3);
    product.expect_right({{3, kGroupedDepth, 70}}, 4e-3, 2);
  }
}

TEST(CudaDequantisedTf32, EveryWayAgreesWithTheEvaluator) {
  for (const bool transposed : {false, true}) {
    OneProduct product(dequantised_text({.dtype = "f32", .transposed = transposed, .tf32 = true}));
    const std::string rows = transposed ? "x16" : "x64";
    EXPECT_THAT(product.names(), ElementsAre("rows_1" + rows, "rows_8" + rows, "tensor_16x64x32",
                                             "tensor_64x64x32", "tensor_128x128x16"));
    product.expect_right(kDequantisedSizes, 1e-3);
    product.expect_right({{65, 200, 70}}, 1e-3, 3);
    expect_nvrtc_takes(product);
  }
}

/// Batches on the left share the rows of one matrix; those on the right have scales of their own.
TEST(CudaDequantisedBatches, AgreeWithTheEvaluator) {
  OneProduct flat(R"(graph @flat(%a: f16[s0, s1, 32], %w: i8[32, 48], %scale: f16[48]) {
    %f = convert(%w) {dtype = f16}
    %d = mul(%f, %scale)
    %m = matmul(%a, %d)
    %r = relu(%m)
    return %r
  })");
  EXPECT_EQ(flat.nest().product->batches, base::SymExpr(1));
  flat.expect_right({{3, 7}, {2, 40}}, 4e-3);
  OneProduct each(
      R"(graph @each(%a: bf16[3, s0, 64], %w: u8[3, 64, 40], %scale: bf16[3, 2, 1, 40], %zero: u8[3, 1, 1, 40]) {
    %i = convert(%w) {dtype = i32}
    %p = reshape(%i) {sizes = [3, 2, 32, 40]}
    %z = convert(%zero) {dtype = i32}
    %c = sub(%p, %z)
    %f = convert(%c) {dtype = bf16}
    %d = mul(%f, %scale)
    %q = reshape(%d) {sizes = [3, 64, 40]}
    %m = matmul(%a, %q)
    return %m
  })");
  each.expect_right({{5}, {70}}, 3e-2);
}

/// One scale and zero point that the text holds, and one that a scalar input is and another reads.
TEST(CudaDequantisedNumbers, MayBeConstantsAndScalars) {
  OneProduct constants(R"(graph @constants(%a: bf16[s0, 40], %w: u8[40, 24]) {
    %i = convert(%w) {dtype = i32}
    %c = sub(%i, 7: i32)
    %f = convert(%c) {dtype = bf16}
    %d = mul(%f, 0.25: bf16)
    %m = matmul(%a, %d)
    return %m
  })");
  constants.expect_right({{5}, {70}}, 3e-2);
  OneProduct scalars(
      "graph @scalars(%a: f32[s0, 40], %w: i8[24, 40], %zero: i8[], %scale: f32[]) {\n"
      "  %i = convert(%w) {dtype = i32}\n  %z = convert(%zero) {dtype = i32}\n"
      "  %c = sub(%i, %z)\n  %f = convert(%c) {dtype = f32}\n  %d = mul(%f, %scale)\n"
      "  %t = permute(%d) {perm = [1, 0]}\n  %m = matmul(%a, %t)\n  %y = mul(%m, %scale)\n"
      "  return %y\n}\n");
  scalars.expect_right({{5}, {70}}, 1e-5);
}

/// A kernel's parameter for the matrix is bytes, of which it reads each once where there is one tile of rows.
TEST(CudaDequantisedReads, AreBytes) {
  if (!test::on_simulator()) GTEST_SKIP() << test::kNeedsSimulator;
  for (const bool transposed : {false, true}) {
    const ByteWeights w{.transposed = transposed, .follows = false};
    const OneProduct product(dequantised_text(w));
    for (const auto& source : product.sources())
      EXPECT_THAT(source.kernel,
                  AllOf(HasSubstr("const signed char* b1"),
                        HasSubstr("hd_quantised<signed char, hd_f16, signed char, 0>")));
    constexpr std::int64_t kDepth = 512, kColumns = 256;
    ASSERT_EQ(product.names()[0], transposed ? "rows_1x16" : "rows_1x64");
    const auto bytes = static_cast<double>(product.bytes_read(0, {1, kDepth, kColumns}));
    // Besides each byte of the matrix the row on the left, once for eight columns, or two; scales and zero points.
    EXPECT_GE(bytes, kDepth * kColumns);
    EXPECT_LT(bytes, kDepth * kColumns * (transposed ? 2.2 : 1.5));
  }
}

/// Numbers come into a step's tile while the products of another are under way.
TEST(CudaDequantisedRaces, EveryBarrierIsNeeded) {
  if (!test::on_simulator()) GTEST_SKIP() << test::kNeedsSimulator;
  const OneProduct one(dequantised_text({.zero = false, .follows = false}));
  ASSERT_EQ(one.names()[2], "tensor_16x64x64");
  std::vector<ir::Literal> buffers = test::random_arguments(one.graph(), {16, 296, 48});
  buffers[3] = ir::Literal(f16, {16, 48});  // in place of the bias, which nothing reads
  buffers.erase(buffers.begin() + 4, buffers.end());
  BarriersOf launch(one.sources(), 2, one.parameters({16, 296, 48}), std::move(buffers));
  // One for each of five steps, the last of which is where the sums will be, two around the sums on their way out, and the last, after which a block would go on to
  // another tile.
  EXPECT_EQ(launch.count(), 8u);
  EXPECT_THAT(launch.unnoticed(), ElementsAre(8u));
}

TEST(DequantisedProducts, AreCallsOfTheirOwn) {
  const std::string text = with_calls({.in_f32 = true});
  EXPECT_THAT(text, AllOf(HasSubstr("dequantised_matmul(%a, %w, "), Not(HasSubstr(" matmul("))));
}

TEST(DequantisedProducts, LeaveOthers) {
  const auto stays = [](const std::string& matrix, const char* operands = "%w: i8[64, 40]") {
    jit::LowerOptions cuda;
    cuda.target = jit::LowerOptions::Target::Cuda;
    const ir::Graph graph =
        ir::parse("graph @g(%a: f16[s0, 64], %s: f16[40], " + std::string(operands) + ") {\n" +
                  matrix + "  %m = matmul(%a, %d)\n  return %m\n}\n");
    return jit::dequantised_products(graph, cuda).identical(graph);
  };
  EXPECT_FALSE(stays("  %f = convert(%w) {dtype = f16}\n  %d = mul(%f, %s)\n"));
  EXPECT_FALSE(
      stays("  %f = convert(%w) {dtype = f16}\n  %c = sub(%f, 3.0: f16)\n"
            "  %d = mul(%c, %s)\n"));
  EXPECT_TRUE(
      stays("  %f = convert(%w) {dtype = f16}\n  %c = sub(%f, 0.5: f16)\n"
            "  %d = mul(%c, %s)\n"))
      << "a zero point that is no integer";
  EXPECT_TRUE(
      stays("  %f = convert(%w) {dtype = f16}\n  %c = sub(%f, 200.0: f16)\n"
            "  %d = mul(%c, %s)\n"))
      << "one beyond the bytes' range";
  EXPECT_TRUE(stays("  %f = convert(%w) {dtype = f16}\n  %d = mul(%f, %s)\n", "%w: i16[64, 40]"));
  EXPECT_TRUE(
      stays("  %f = convert(%w) {dtype = f16}\n  %p = reshape(%f) {sizes = [16, 4, 40]}\n"
            "  %n = mul(%p, %g)\n  %d = reshape(%n) {sizes = [64, 40]}\n",
            "%w: i8[64, 40], %g: f16[16, 1, 40]"))
      << "groups of four rows";
  EXPECT_TRUE(stays("  %f = convert(%w) {dtype = f16}\n  %d = mul(%f, %g)\n",
                    "%w: i8[64, 40], %g: f16[64, 1]"))
      << "a scale for each row";
  EXPECT_TRUE(
      stays("  %f = convert(%w) {dtype = f16}\n  %d = mul(%f, %s) @{should_fallback = true}\n"));
  const ir::Graph graph = ir::parse(dequantised_text({}));
  EXPECT_TRUE(jit::dequantised_products(graph, {}).identical(graph)) << "the CPU's";
}

/// By the cost model, which chooses tiles, no product by bytes takes longer than the one by numbers in memory: of few rows half
/// as long, where it waits for the matrix.
TEST(DequantisedProducts, TakeNoLongerByTheModel) {
  const auto cycles = [](std::int64_t rows, std::int64_t depth, std::int64_t columns, Along right,
                         bool dequantised) {
    const auto tiles =
        jit::cuda::product_tiles(f16, Along::Rows, right, kProductDevice, false, dequantised);
    const ProductShape shape{
        .rows = rows, .columns = columns, .depth = depth, .stored_bits = dequantised ? 8 : 0};
    const auto choice = jit::cuda::cheapest_tile(tiles, shape, kProductDevice);
    return jit::cuda::product_cycles(tiles[choice.tile], shape, kProductDevice, choice.parts);
  };
  for (const Along right : {Along::Rows, Along::Columns})
    for (const auto& [depth, columns] :
         {std::pair{4096, 4096}, {4096, 14336}, {14336, 4096}, {8192, 1024}})
      for (std::int64_t rows = 1; rows <= 16384; rows *= 2) {
        const double ratio =
            cycles(rows, depth, columns, right, true) / cycles(rows, depth, columns, right, false);
        EXPECT_LE(ratio, 1.02) << rows << " x " << depth << " x " << columns;
        if (rows <= 2 && depth * columns > (1 << 25)) {
          EXPECT_LT(ratio, 0.65) << rows << " x " << depth << " x " << columns;
        }
      }
}

}  // namespace
}  // namespace heddle::tests
