// Products on CUDA: every way to multiply, on operands that lie in every way, on the simulated device against the
// reference evaluator; what NVRTC makes of the texts; and which way the cost model takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jit/nest_builder.h"
#include "tests/jit/barriers_of.h"
#include "tests/jit/one_product.h"
#include "tests/support/nightly.h"

namespace heddle::tests {
namespace {

using jit::cuda::ProductShape;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr ProductDevice kH200 = kProductDevice;

/// gelu(a . b + bias) + residual of s0 x s1 and s1 x s2 matrices; operands are transposed where asked.
std::string product_text(const std::string& dtype, bool left_transposed, bool right_transposed,
                         bool tf32 = false) {
  const auto input = [&](const std::string& name, bool transposed, const std::string& rows,
                         const std::string& columns) {
    return "%" + name + ": " + dtype + "[" +
           (transposed ? columns + ", " + rows : rows + ", " + columns) + "]";
  };
  std::string text = "graph @product(" + input("a", left_transposed, "s0", "s1") + ", " +
                     input("b", right_transposed, "s1", "s2") + ", %bias: " + dtype +
                     "[s2], %r: " + dtype + "[s0, s2]) {\n";
  if (left_transposed) text += "  %at = permute(%a) {perm = [1, 0]}\n";
  if (right_transposed) text += "  %bt = permute(%b) {perm = [1, 0]}\n";
  text += std::string("  %m = matmul(") + (left_transposed ? "%at" : "%a") + ", " +
          (right_transposed ? "%bt" : "%b") + ")" + (tf32 ? " {tf32 = true}" : "") + "\n";
  return text +
         "  %x = add(%m, %bias)\n  %g = gelu(%x) {approximate = \"tanh\"}\n  %y = add(%g, %r)\n"
         "  return %y\n}\n";
}

/// The same of bytes, whose sums are scaled back before gelu; the residual is f32.
std::string byte_product_text(const std::string& left, const std::string& right,
                              bool right_transposed) {
  return "graph @bytes(%a: " + left + "[s0, s1], %b: " + right +
         (right_transposed ? "[s2, s1]" : "[s1, s2]") +
         ", %scale: f32[s2], %bias: f32[s2], %r: f32[s0, s2]) {\n" +
         (right_transposed ? "  %bt = permute(%b) {perm = [1, 0]}\n" : "") +
         "  %m = int8_matmul(%a, " + (right_transposed ? "%bt" : "%b") +
         ")\n  %f = convert(%m) {dtype = f32}\n  %d = mul(%f, %scale)\n  %x = add(%d, %bias)\n"
         "  %g = gelu(%x) {approximate = \"tanh\"}\n  %y = add(%g, %r)\n  return %y, %m\n}\n";
}

class CudaProduct : public ::testing::TestWithParam<std::tuple<const char*, bool, bool>> {
 protected:
  std::string dtype() const { return std::get<0>(GetParam()); }
  std::string text() const {
    return product_text(dtype(), std::get<1>(GetParam()), std::get<2>(GetParam()));
  }
};

/// s0, s1, s2: rows, depth, columns. Multiples of 8 (of 16 for bytes) let copies be wide, others not; depths end inside a
/// step and at its end, take fewer steps than there are stages and more, and tiles are full, cut and several.
const std::vector<std::vector<std::int64_t>> kSizes = {
    {1, 1, 1},   {1, 40, 24},   {7, 19, 33}, {8, 264, 16}, {16, 64, 64},
    {64, 72, 8}, {65, 200, 70}, {3, 0, 5},   {0, 4, 5},    {130, 104, 136}};

TEST_P(CudaProduct, EveryWayAgreesWithTheEvaluator) {
  OneProduct product(text());
  product.expect_right(kSizes, tolerance_of(dtype()));
}

/// Parts of whole steps, of one short and of none; more tiles than one, cut ones too.
const std::vector<std::vector<std::int64_t>> kSharedSizes = {
    {1, 700, 24}, {65, 200, 70}, {3, 0, 5}};

TEST_P(CudaProduct, BlocksThatShareATileAgreeWithTheEvaluator) {
  OneProduct product(text());
  product.expect_right(kSharedSizes, tolerance_of(dtype()), 3);
}

TEST_P(CudaProduct, OperandsLieAsTheyAreGiven) {
  const OneProduct product(text());
  EXPECT_EQ(product.left(), std::get<1>(GetParam()) ? Along::Columns : Along::Rows);
  EXPECT_EQ(product.right(), std::get<2>(GetParam()) ? Along::Columns : Along::Rows);
  const std::string rows = product.right() == Along::Rows ? "x128" : "x16";
  if (dtype() == "f32")
    EXPECT_THAT(product.names(), ElementsAre("rows_1" + rows, "rows_8" + rows, "plain_64x64x16"));
  else
    EXPECT_THAT(
        product.names(),
        ElementsAre("rows_1" + rows, product.right() == Along::Rows ? "rows_4x128" : "rows_8x16",
                    "tensor_16x64x64", "tensor_64x64x64", "tensor_128x128x32", "wgmma_64x128x64",
                    "wgmma_128x128x64", "wgmma_128x256x64"));
}

TEST_P(CudaProduct, NvrtcTakesEveryText) { expect_nvrtc_takes(OneProduct(text())); }

TEST_P(CudaProduct, ALibraryTakesThemAsTheyLie) {
  const OneProduct product(text());
  const auto form = product.library();
  ASSERT_TRUE(form);
  EXPECT_EQ(form->left.along_rows, !std::get<1>(GetParam()));
  EXPECT_EQ(form->right.along_rows, !std::get<2>(GetParam()));
  const std::vector<std::int64_t> sizes = product.parameters({3, 5, 7});
  EXPECT_EQ(form->left.stride.evaluate_sizes(sizes), std::get<1>(GetParam()) ? 3 : 5);
  EXPECT_EQ(form->right.stride.evaluate_sizes(sizes), std::get<2>(GetParam()) ? 5 : 7);
  EXPECT_FALSE(form->tf32);
  EXPECT_FALSE(form->result) << "more follows than a store";
}

TEST(CudaOccupancy, FollowsThreadsRegistersAndSharedMemory) {
  const auto blocks = [](int threads, int registers, std::int64_t shared_bytes) {
    return jit::cuda::resident_blocks(threads, registers, shared_bytes, kProductDevice);
  };
  EXPECT_EQ(blocks(256, 32, 0), 8);             // 64 warps
  EXPECT_EQ(blocks(256, 128, 0), 2);            // 65,536 registers
  EXPECT_EQ(blocks(256, 129, 0), 1);            // of which a warp gets multiples of 256
  EXPECT_EQ(blocks(128, 40, 72 * 1024), 3);     // 227 KiB, of which a block takes one more
  EXPECT_EQ(blocks(1024, 255, 200 * 1024), 1);  // a block that runs at all
  EXPECT_EQ(blocks(32, 16, 0), 32);             // blocks, whatever their size
}

jit::cuda::CudaCode code_of(const std::string& graph) {
  const jit::Program program = lowered_for_cuda(ir::parse(graph));
  EXPECT_EQ(program.kernels.size(), 1u);
  return jit::cuda::emit_code(*program.kernels.at(0).nest, {.multiprocessors = 10});
}

/// Blocks of 256 threads for 2048 elements each. By their threads eight run at once on each of ten multiprocessors, by 64 registers
/// four, by 128 two: as many are launched as there is work for, at most 16 times those.
TEST(CudaOccupancy, BoundsTheGridsOfLoopNests) {
  jit::cuda::CudaCode code =
      code_of("graph @add(%x: f32[s0], %y: f32[s0]) {\n  %z = add(%x, %y)\n  return %z\n}\n");
  ASSERT_EQ(code.variants.at(0).block_threads, 256u);
  const auto blocks = [&](std::int64_t count) {
    return code.choose(std::vector<std::int64_t>{count}).blocks;
  };
  EXPECT_EQ(blocks(2048 * 20000), 20000u) << "the compiler has not told of registers";
  for (const auto& [registers, at_once] : {std::pair{16, 80u}, {64, 40u}, {128, 20u}}) {
    code.set_registers(0, registers);
    EXPECT_EQ(blocks(2048 * 20000), 16 * at_once) << registers;
    EXPECT_EQ(blocks(2048 * 3 + 1), 4u) << registers;
    EXPECT_EQ(blocks(0), 0u) << registers;
  }
}

/// Rows of any length turned around, each through memory of the block's own.
jit::Nest reversed_rows() {
  jit::NestBuilder b("rows");
  b.nest().size_count = 2;
  const auto size = [](std::uint32_t k) {
    return ir::SymExpr(base::Symbol{base::Symbol::Kind::Size, k});
  };
  const ir::SymExpr rows = size(0), length = size(1);
  const base::Symbol row = b.new_axis(rows);
  b.set_parallel(row, rows);
  const jit::NestBufferId x = b.add_global(f32, rows * length);
  const jit::NestBufferId y = b.add_global(f32, rows * length);
  const jit::NestBufferId own = b.add_local(f32, length, 0);
  const base::Symbol i = b.begin_for(length, jit::ForStmt::Kind::Vector);
  b.store(own, i, b.load(x, length * row + i));
  b.end_for();
  const base::Symbol j = b.begin_for(length, jit::ForStmt::Kind::Vector);
  b.store(y, length * row + j, b.load(own, length - 1 - j));
  b.end_for();
  return b.finish();
}

TEST(CudaOccupancy, BoundsBlocksWithScratchToThoseThatRunAtOnce) {
  jit::cuda::CudaCode code = jit::cuda::emit_code(reversed_rows(), {.multiprocessors = 10});
  const jit::cuda::CudaSource& source = code.variants.at(0);
  ASSERT_TRUE(source.takes_scratch()) << source.kernel;
  ASSERT_EQ(source.block_threads, 256u);
  const std::vector<std::int64_t> sizes{5000, 30000};
  EXPECT_EQ(code.choose(sizes).blocks, 1024u);
  code.set_registers(0, 40);  // 51 warps, six blocks
  const jit::cuda::CudaChoice choice = code.choose(sizes);
  EXPECT_EQ(choice.blocks, 60u);
  EXPECT_EQ(choice.scratch_bytes, 60 * source.scratch_bytes.evaluate_sizes(sizes));
  EXPECT_EQ(code.choose(std::vector<std::int64_t>{7, 30000}).blocks, 7u);
}

TEST(CudaProductLibrary, AProductThatIsStoredAsItIsGoesStraightToItsPlace) {
  const OneProduct one(
      "graph @plain(%a: bf16[s0, 2, s1], %b: bf16[s1, s2]) {\n"
      "  %w = slice(%a) {start = [0, 1, 0], limit = [s0, 2, s1], stride = [1, 1, 1]}\n  %x = "
      "reshape(%w) {sizes = [s0, s1]}\n"
      "  %y = matmul(%x, %b)\n  return %y\n}\n");
  const auto form = one.library();
  ASSERT_TRUE(form && form->result);
  const std::vector<std::int64_t> sizes = one.parameters({3, 5, 7});
  EXPECT_EQ(form->left.offset.evaluate_sizes(sizes), 5);
  EXPECT_EQ(form->left.stride.evaluate_sizes(sizes), 10);
  EXPECT_EQ(form->result->stride.evaluate_sizes(sizes), 7);
}

TEST(CudaProductLibrary, BatchesHaveStridesAndOneMatrixForAllHasNone) {
  const OneProduct batched(
      "graph @batched(%a: f16[s3, s0, s1], %b: f16[s1, s2]) {\n"
      "  %w = expand(%b) {sizes = [s3, s1, s2]}\n  %y = matmul(%a, %w)\n  %z = neg(%y)\n"
      "  return %z\n}\n");
  const auto form = batched.library();
  ASSERT_TRUE(form);
  EXPECT_EQ(form->left.batch_stride.is_constant(0), false);
  EXPECT_TRUE(form->right.batch_stride.is_constant(0));
}

TEST(CudaProductLibrary, HeadsInsideRowsAreNoEvenBatches) {
  const OneProduct heads(
      "graph @heads(%a: f16[s0, s1, 4, 16], %b: f16[s0, 4, 16, s2]) {\n"
      "  %h = permute(%a) {perm = [0, 2, 1, 3]}\n  %y = matmul(%h, %b)\n  return %y\n}\n");
  EXPECT_FALSE(heads.library());
}

INSTANTIATE_TEST_SUITE_P(Operands, CudaProduct,
                         ::testing::Combine(::testing::Values("f32", "f16", "bf16"),
                                            ::testing::Bool(), ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) ? "_left_transposed" : "") +
                                  (std::get<2>(info.param) ? "_right_transposed" : "");
                         });

class CudaTf32Product : public ::testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  std::string text() const {
    return product_text("f32", std::get<0>(GetParam()), std::get<1>(GetParam()), true);
  }
};

TEST_P(CudaTf32Product, EveryWayAgreesWithTheEvaluator) {
  OneProduct product(text());
  const std::string rows = std::get<1>(GetParam()) ? "x16" : "x128";
  EXPECT_THAT(product.names(), ElementsAre("rows_1" + rows, "rows_8" + rows, "tensor_16x64x32",
                                           "tensor_64x64x32", "tensor_128x128x16"));
  product.expect_right(kSizes, 1e-3);
  product.expect_right({{65, 200, 70}}, 1e-3, 3);
}

TEST_P(CudaTf32Product, NvrtcTakesEveryText) { expect_nvrtc_takes(OneProduct(text())); }

INSTANTIATE_TEST_SUITE_P(Operands, CudaTf32Product,
                         ::testing::Values(std::tuple{false, false}, std::tuple{false, true},
                                           std::tuple{true, false}),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) ? "left_transposed" : "") +
                                  (std::get<1>(info.param) ? "right_transposed" : "") +
                                  (std::get<0>(info.param) || std::get<1>(info.param) ? ""
                                                                                      : "plain");
                         });

using ByteOperands = std::tuple<const char*, const char*, bool>;

class CudaByteProduct : public ::testing::TestWithParam<ByteOperands> {
 protected:
  std::string text() const {
    return byte_product_text(std::get<0>(GetParam()), std::get<1>(GetParam()),
                             std::get<2>(GetParam()));
  }
};

TEST_P(CudaByteProduct, EveryWayIsExact) {
  OneProduct product(text());
  EXPECT_THAT(product.names(), std::get<2>(GetParam())
                                   ? ElementsAre("rows_1x16", "rows_8x16", "tensor_16x128x128",
                                                 "tensor_64x64x128", "tensor_128x128x64")
                                   : ElementsAre("rows_1x128", "rows_4x128", "tensor_16x128x128",
                                                 "tensor_64x64x128", "tensor_128x128x64"));
  std::vector<std::vector<std::int64_t>> sizes = kSizes;
  sizes.push_back({130, 400, 144});  // copies are wide, more steps than stages
  product.expect_right(sizes, 1e-5);
}

TEST_P(CudaByteProduct, BlocksThatShareATileAreExact) {
  OneProduct(text()).expect_right(kSharedSizes, 1e-5, 3);
}

TEST_P(CudaByteProduct, NvrtcTakesEveryText) { expect_nvrtc_takes(OneProduct(text())); }

INSTANTIATE_TEST_SUITE_P(Operands, CudaByteProduct,
                         ::testing::Values(ByteOperands{"i8", "i8", true},
                                           ByteOperands{"u8", "i8", false},
                                           ByteOperands{"i8", "u8", true},
                                           ByteOperands{"u8", "u8", false}),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" +
                                  std::get<1>(info.param) +
                                  (std::get<2>(info.param) ? "_right_transposed" : "");
                         });

/// Sums are integers: nothing is rounded.
TEST(CudaProducts, SumsOfBytesAreExact) {
  OneProduct product(
      "graph @exact(%a: u8[s0, s1], %b: u8[s1, s2]) {\n  %m = int8_matmul(%a, %b)\n  "
      "return %m\n}\n");
  product.expect_right({{17, 300, 40}}, 0);
}

/// Neither instruction turns bytes round in the left operand: rows read it as it lies, tiles without tensor cores.
TEST(CudaProducts, BytesWhoseLeftMatrixIsTransposedAreMultipliedWithoutTensorCores) {
  OneProduct product(
      "graph @g(%a: i8[s1, s0], %b: i8[s1, s2]) {\n  %at = permute(%a) {perm = [1, "
      "0]}\n  %m = int8_matmul(%at, %b)\n  return %m\n}\n");
  EXPECT_EQ(product.left(), Along::Columns);
  EXPECT_THAT(product.names(), ElementsAre("rows_1x128", "rows_4x128", "plain_64x64x16"));
  product.expect_right({{7, 19, 33}, {65, 200, 70}}, 0);
  OneProduct strided(R"(graph @strided(%a: i8[s0, 20], %b: u8[20, 30, 2]) {
    %s = slice(%b) {start = [0, 0, 1], limit = [20, 30, 2], stride = [1, 1, 1]}
    %r = reshape(%s) {sizes = [20, 30]}
    %m = int8_matmul(%a, %r)
    return %m
  })");
  EXPECT_THAT(strided.names(), ElementsAre("plain_64x64x16"));
  strided.expect_right({{9}, {70}}, 0);
}

TEST(CudaProducts, BatchesAreBroadcastAndTransposed) {
  // q . kT of heads that lie side by side: neither operand is contiguous.
  OneProduct scores(R"(graph @scores(%q: f16[s0, s1, 2, 24], %k: f16[s0, s2, 2, 24]) {
    %a = permute(%q) {perm = [0, 2, 1, 3]}
    %b = permute(%k) {perm = [0, 2, 3, 1]}
    %m = matmul(%a, %b)
    %y = mul(%m, 0.25: f16)
    return %y
  })");
  scores.expect_right({{2, 17, 5}, {1, 1, 1}, {1, 65, 66}}, 4e-3);
  OneProduct shared(R"(graph @shared(%a: bf16[s0, 1, s1, s2], %b: bf16[3, s2, 40]) {
    %m = matmul(%a, %b)
    return %m
  })");
  shared.expect_right({{2, 5, 16}, {1, 20, 9}}, 3e-2);
}

TEST(CudaProducts, RowsOfABatchAreRowsOfOneMatrix) {
  OneProduct flat(R"(graph @flat(%a: f16[s0, s1, 32], %b: f16[32, 48]) {
    %m = matmul(%a, %b)
    %r = relu(%m)
    return %r
  })");
  EXPECT_EQ(flat.nest().product->batches, base::SymExpr(1));
  EXPECT_EQ(flat.rows(), "s0*s1");
  flat.expect_right({{3, 7}, {2, 40}}, 4e-3);
}

/// Dimensions of size 1 lie between the others: whatever their strides, they part no rows.
TEST(CudaProducts, DimensionsOfSizeOnePartNoRows) {
  OneProduct ones(R"(graph @ones(%a: bf16[1, s0, 1, s1, 32], %b: bf16[32, 48]) {
    %p = permute(%a) {perm = [2, 1, 0, 3, 4]}
    %m = matmul(%p, %b)
    return %m
  })");
  EXPECT_EQ(ones.nest().product->batches, base::SymExpr(1));
  EXPECT_EQ(ones.rows(), "s0*s1");
  ones.expect_right({{3, 7}, {1, 1}, {0, 2}}, 3e-2);
  OneProduct apart(R"(graph @apart(%a: f16[s0, 3, s1, 32], %b: f16[32, 48]) {
    %s = slice(%a) {start = [0, 1, 0, 0], limit = [s0, 2, s1, 32], stride = [1, 1, 1, 1]}
    %m = matmul(%s, %b)
    return %m
  })");
  EXPECT_EQ(apart.nest().product->batches.to_string(), "s0") << "two other matrices lie between";
  EXPECT_EQ(apart.nest().product->rows.to_string(), "s1");
  apart.expect_right({{3, 7}, {1, 1}}, 4e-3);
}

TEST(CudaProducts, OperandsWithoutNeighboursAreMultipliedWithoutTensorCores) {
  OneProduct strided(R"(graph @strided(%a: f16[s0, 20], %b: f16[20, 30, 2]) {
    %s = slice(%b) {start = [0, 0, 1], limit = [20, 30, 2], stride = [1, 1, 1]}
    %r = reshape(%s) {sizes = [20, 30]}
    %m = matmul(%a, %r)
    return %m
  })");
  EXPECT_EQ(strided.right(), Along::Neither);
  EXPECT_THAT(strided.names(), ElementsAre("plain_64x64x16"));
  strided.expect_right({{9}, {70}}, 4e-3);
}

TEST(CudaProducts, SeveralResultsOfOneProduct) {
  OneProduct two(R"(graph @two(%a: f16[s0, 16], %b: f16[16, s1], %scale: f32[]) {
    %m = matmul(%a, %b)
    %w = convert(%m) {dtype = f32}
    %s = mul(%w, %scale)
    return %m, %s
  })");
  two.expect_right({{5, 12}, {66, 70}}, 4e-3);
}

TEST(CudaProducts, EveryBarrierAndProxyFenceOfWarpgroupsIsNeeded) {
  if (!test::on_simulator()) GTEST_SKIP() << test::kNeedsSimulator;
  const OneProduct one(
      "graph @g(%a: bf16[s0, s1], %b: bf16[s1, s2]) {\n  %m = matmul(%a, %b)\n  return %m\n}\n");
  const std::vector<std::string> names = one.names();
  const auto found = std::find(names.begin(), names.end(), "wgmma_64x128x64");
  ASSERT_NE(found, names.end());
  std::vector<ir::Literal> buffers = test::random_arguments(one.graph(), {64, 320, 128});
  buffers.emplace_back(bf16, ir::Sizes{64, 128});
  BarriersOf launch(one.sources(), static_cast<std::size_t>(found - names.begin()),
                    one.parameters({64, 320, 128}), std::move(buffers));
  // One for each of five steps, two around the sums on their way out, and the last, after which a block would go on to
  // another tile.
  EXPECT_EQ(launch.count(), 8u);
  EXPECT_THAT(launch.unnoticed(), ElementsAre(8u));
  const auto fence = BarriersOf::What::ProxyFence;
  EXPECT_EQ(launch.count(fence), 5u * 128);
  EXPECT_THAT(launch.unnoticed(fence, 37), ElementsAre());
}

TEST(CudaProducts, OtherNestsAreNotProducts) {
  const auto parts = [](const char* text) {
    const ir::Graph graph = ir::parse(text);
    return jit::cuda::product_parts(*lowered_for_cuda(graph).kernels.at(0).nest);
  };
  EXPECT_FALSE(parts("graph @g(%a: i32[4, 4]) {\n  %m = matmul(%a, %a)\n  return %m\n}\n"));
  EXPECT_FALSE(parts("graph @g(%a: f32[4, 4]) {\n  %m = exp(%a)\n  return %m\n}\n"));
}

/// The tile for a product on an H200.
std::string chosen(std::int64_t rows, std::int64_t columns, std::int64_t depth, DType dtype = f16) {
  const auto tiles = jit::cuda::product_tiles(dtype, Along::Rows, Along::Columns, kH200);
  const ProductShape shape{1, rows, columns, depth, static_cast<std::int64_t>(size_of(dtype))};
  const jit::cuda::TileChoice choice = jit::cuda::cheapest_tile(tiles, shape, kH200);
  return tiles[choice.tile].name() +
         (choice.parts == 1 ? "" : " / " + std::to_string(choice.parts));
}

TEST(CudaProducts, TheCostModelTakesRowsForFewRowsAndTilesThatFillTheDevice) {
  EXPECT_EQ(chosen(1, 4096, 4096), "rows_1x16");
  EXPECT_EQ(chosen(4, 4096, 4096), "rows_8x16");
  EXPECT_EQ(chosen(16, 4096, 4096), "tensor_16x64x64 / 4");
  EXPECT_EQ(chosen(128, 8192, 4096), "wgmma_64x128x64 / 2");
  EXPECT_EQ(chosen(512, 512, 512), "tensor_16x64x64") << "large tiles would leave most of it idle";
  EXPECT_EQ(chosen(8192, 8192, 8192), "wgmma_128x256x64");
  EXPECT_EQ(chosen(1, 4096, 4096, i8), "rows_1x16");
  EXPECT_EQ(chosen(512, 512, 512, i8), "tensor_16x128x128");
  EXPECT_EQ(chosen(1024, 1024, 1024, i8), "tensor_64x64x128");
  EXPECT_EQ(chosen(8192, 8192, 8192, i8), "tensor_128x128x64");
}

TEST(CudaProducts, TheCostModelSharesTilesWhereFewOfThemAreDeep) {
  EXPECT_EQ(chosen(1, 512, 16384, i8), "rows_1x16 / 8");
  EXPECT_EQ(chosen(16, 512, 16384), "tensor_16x64x64 / 33");
  EXPECT_EQ(chosen(64, 512, 16384), "tensor_64x64x64 / 16");
  EXPECT_EQ(chosen(64, 4096, 4096), "tensor_64x64x64 / 4");
  EXPECT_EQ(chosen(16, 4096, 4096), "tensor_16x64x64 / 4")
      << "twice as many blocks as fill the device";
  // Neither more parts than fill the device nor than have steps, nor tiles beyond the counters.
  const auto tiles = jit::cuda::product_tiles(f16, Along::Rows, Along::Columns, kH200);
  for (const std::int64_t depth : {1, 64, 300, 5000, 1 << 20})
    for (const std::int64_t rows : {0, 1, 16, 100, 3000})
      for (const ProductDevice& device :
           {kH200, ProductDevice{2, 99 * 1024, true}, ProductDevice{5000, 99 * 1024, true}}) {
        const ProductShape shape{1, rows, 4096, depth, 2};
        const auto choice = jit::cuda::cheapest_tile(tiles, shape, device);
        const ProductTile& tile = tiles[choice.tile];
        ASSERT_GE(choice.parts, 1);
        if (choice.parts == 1) continue;
        if (tile.kind != ProductTile::Kind::Rows) {
          EXPECT_LT(jit::cuda::tiles_of(tile, shape), device.multiprocessors);
        }
        EXPECT_LE(jit::cuda::tiles_of(tile, shape), jit::cuda::kMostSharedTiles);
        EXPECT_GE(depth, choice.parts * tile.part_depth());
      }
}

TEST(CudaProducts, WithoutTensorCoresOrSharedMemoryNothingAsksForThem) {
  for (const DType dtype : {f16, i8})
    for (const ProductDevice& device :
         {ProductDevice{80, 96 * 1024, false}, ProductDevice{80, 20 * 1024, true}})
      for (const ProductTile& tile :
           jit::cuda::product_tiles(dtype, Along::Rows, Along::Rows, device)) {
        EXPECT_NE(tile.kind, ProductTile::Kind::Tensor);
        EXPECT_LE(tile.shared_bytes(static_cast<std::int64_t>(size_of(dtype))),
                  device.max_shared_bytes);
      }
}

struct BarrierCase {
  const char* operands;
  const char* op;  ///< with its attributes
  DType sum;
  std::int64_t parts;  ///< blocks that share a tile
};

/// Steps come into shared memory while the products of others are under way, and sums go out through the same memory.
TEST(CudaProducts, EveryBarrierOfATileIsNeeded) {
  if (!test::is_nightly()) GTEST_SKIP() << test::kByNight;
  if (!test::on_simulator()) GTEST_SKIP() << test::kNeedsSimulator;
  const std::vector<std::int64_t> sizes = {1, 300, 24};
  for (const BarrierCase& one :
       {BarrierCase{"%a: f16[s0, s1], %b: f16[s1, s2]", "matmul(%a, %b)", f16, 1},
        {"%a: f16[s0, s1], %b: f16[s1, s2]", "matmul(%a, %b)", f16, 2},
        {"%a: f32[s0, s1], %b: f32[s1, s2]", "matmul(%a, %b)", f32, 1},
        {"%a: f32[s0, s1], %b: f32[s1, s2]", "matmul(%a, %b) {tf32 = true}", f32, 1},
        {"%a: u8[s0, s1], %b: i8[s1, s2]", "int8_matmul(%a, %b)", i32, 1}}) {
    const OneProduct product("graph @g(" + std::string(one.operands) + ") {\n  %m = " + one.op +
                             "\n  return %m\n}\n");
    for (std::size_t k = 2; k < product.sources().size(); ++k) {
      SCOPED_TRACE(product.names()[k] + " / " + std::to_string(one.parts));
      std::vector<ir::Literal> buffers = test::random_arguments(product.graph(), sizes);
      buffers.emplace_back(one.sum, ir::Sizes{sizes[0], sizes[2]});
      BarriersOf launch(product.sources(), k, product.parameters(sizes), std::move(buffers),
                        one.parts);
      const std::uint64_t last = launch.count();
      // After the last a block would go on to another tile; sums may go where no thread reads any more. Of two blocks one waits
      // with its fence, and the last one for what it left itself.
      if (one.parts == 1)
        EXPECT_THAT(launch.unnoticed(), AnyOf(ElementsAre(last), ElementsAre(last - 2, last)));
      else
        EXPECT_LE(launch.unnoticed().size(), 5u) << "of " << last;
      EXPECT_GE(last, 5u);
    }
  }
}

TEST(CudaProducts, TextIsThePlaceTheProductAndTheExpressions) {
  const OneProduct product(product_text("bf16", false, true));
  EXPECT_THAT(product.text(),
              HasSubstr("typedef hd_tensor_tile<hd_bf16, hd_bf16, 64, 64, 64, 2, 2, 3, true, "
                        "false> Tile;"));
  EXPECT_THAT(product.text(), HasSubstr("heddle_matmul_add_gelu_add_tensor_64x64x64("));
}

}  // namespace
}  // namespace heddle::tests
