// Reductions of few long columns in parts, as CUDA has them, against the definitions.
#include "jit/lower/split_columns.h"

#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;

const jit::LowerOptions kColumnsOnCuda{.target = jit::LowerOptions::Target::Cuda};

jit::Program expect_columns_right(const OneOp& call) {
  SCOPED_TRACE(std::string(call.op));
  const ir::Graph graph = testing::graph_of(call);
  jit::Program program = jit::lower(graph, kColumnsOnCuda);
  expect_program_right(graph, program, call.operands, as_code(), 1e-5);
  return program;
}

ir::Attrs over(std::vector<std::int64_t> axes, bool keepdims = false) {
  return {{"axes", std::move(axes)}, {"keepdims", keepdims}};
}

using Names = std::vector<std::string>;

/// Sums over `axes` of an input of these sizes.
ir::Graph sums(const Names& sizes, std::vector<std::int64_t> axes) {
  ir::Dims dims;
  for (const std::string& size : sizes) dims.push_back(base::parse_symexpr(size));
  ir::GraphBuilder b("main");
  b.output(b.emit("reduce_sum", {b.input(ir::TensorMeta::of(f32, dims))}, over(std::move(axes))));
  return b.finish();
}

TEST(SplitColumns, EveryReductionOfAWholeNumberOfParts) {
  for (const char* op : {"reduce_sum", "reduce_max", "reduce_min", "reduce_prod"}) {
    EXPECT_EQ(expect_columns_right({op, {noise(f32, {4096, 24})}, over({0})}).kernels.size(), 2u);
    expect_columns_right({op, {noise(i32, {3, 64, 64, 5})}, over({1, -2}, true)});
  }
  const ir::Literal bits = noise(boolean, {5, 2048, 8});
  for (const char* op : {"reduce_and", "reduce_or"}) expect_columns_right({op, {bits}, over({1})});
  expect_columns_right({"reduce_sum", {noise(f16, {2, 1, 3000, 1, 7})}, over({1, 2, 3})});
  for (const ir::Sizes& sizes : {ir::Sizes{2, 4096, 0}, {0, 4096, 8}, {2, 0, 8}})
    expect_columns_right({"reduce_sum", {noise(f32, sizes)}, over({1})});
}

TEST(SplitColumns, PartsThatDoNotMakeUpAColumn) {
  for (const char* op : {"reduce_sum", "reduce_max", "reduce_min", "reduce_prod"})
    for (const DType dtype : {f32, u8}) {
      expect_columns_right({op, {noise(dtype, {8209, 24})}, over({0})});
      expect_columns_right({op, {noise(dtype, {2, 1021, 300})}, over({1})});
    }
}

/// Of equal elements the first, or the last, whatever parts they lie in; a NaN is an extreme.
TEST(SplitColumns, PlacesOfExtremes) {
  for (const char* op : {"argmax", "argmin"})
    for (const bool last : {false, true}) {
      const ir::Attrs attrs = {{"axis", std::int64_t{1}}, {"last", last}};
      // A block has 256 of the 2 x 128 x 6 parts; one for each of the 12 results finds the best of 128.
      const jit::Program program = expect_columns_right({op, {noise(i8, {2, 4096, 6})}, attrs});
      EXPECT_THAT(blocks_of(program), ::testing::ElementsAre(6, 12));
      expect_columns_right(
          {op, {noise(f16, {8192, 4})}, {{"axis", std::int64_t{0}}, {"last", last}}});
      expect_columns_right(
          {op, {noise(u8, {1021, 24})}, {{"axis", std::int64_t{0}}, {"last", last}}});
      const ir::Literal numbers = noise(f32, {3, 2048, 5});
      for (const std::int64_t place : {777, 20001})
        expect_columns_right({op, {testing::with_nan(numbers, place)}, attrs});
      for (const ir::Sizes& sizes : {ir::Sizes{0, 4096, 8}, {2, 4096, 0}})
        expect_columns_right({op, {noise(f32, sizes)}, attrs});
    }
}

TEST(SplitColumns, AThreadHasSoMuchToDoThatAllAreBusy) {
  struct Case {
    ir::Sizes sizes;
    std::vector<std::int64_t> axes, blocks;
  };
  // Of 256 threads each: rows of few columns lie side by side in a block.
  for (const auto& [sizes, axes, blocks] :
       {Case{{1 << 20, 64}, {0}, {512, 64}}, Case{{8, 65536, 16}, {1}, {512, 128}},
        Case{{4096, 4096}, {0}, {512, 16}}, Case{{512, 2048}, {0}, {128, 8}},
        Case{{16, 64, 56, 56}, {0, 2, 3}, {1024, 1}}}) {
    SCOPED_TRACE(::testing::PrintToString(sizes));
    Names names;
    for (const std::int64_t size : sizes) names.push_back(std::to_string(size));
    const jit::Program program = jit::lower(sums(names, axes), kColumnsOnCuda);
    EXPECT_EQ(blocks_of(program), blocks);
  }
}

/// A thread takes two columns of 16 bits at once: as many blocks, of twice as many columns.
TEST(SplitColumns, OfElementsSmallerThanAWord) {
  ir::GraphBuilder b("main");
  b.output(b.emit("reduce_sum",
                  {b.input(ir::TensorMeta::of(f16, {base::SymExpr(1 << 20), base::SymExpr(64)}))},
                  over({0})));
  const jit::Program program = jit::lower(b.finish(), kColumnsOnCuda);
  EXPECT_EQ(blocks_of(program), (std::vector<std::int64_t>{512, 64}));
  const auto& loop = std::get<jit::ForStmt>(program.kernels[0].nest->body[0].node);
  EXPECT_TRUE(loop.extent.is_constant(512));
  expect_columns_right({"reduce_sum", {noise(f16, {33792, 64})}, over({0})});
}

TEST(SplitColumns, SizesThatAreNotKnown) {
  const ir::Graph narrow = sums({"s0", "s1", "24"}, {1});
  const jit::Program parts = jit::lower(narrow, kColumnsOnCuda);
  EXPECT_EQ(parts.kernels.size(), 2u);
  for (const std::int64_t batch : {0, 1, 3})
    for (const std::int64_t rows : {0, 1, 640, 5000})
      expect_program_right(narrow, parts, {noise(f32, {batch, rows, 24})}, as_code(), 1e-5);
  const ir::Graph wide = sums({"s0", "s1", "300"}, {1});
  const jit::Program serial = jit::lower(wide, kColumnsOnCuda);
  EXPECT_EQ(serial.kernels.size(), 2u);
  for (const std::int64_t rows : {0, 1, 64, 300})
    expect_program_right(wide, serial, {noise(f32, {2, rows, 300})}, as_code(), 1e-5);
  const ir::Graph batches = sums({"s0", "1024", "48"}, {1});
  expect_program_right(batches, jit::lower(batches, kColumnsOnCuda), {noise(f32, {2, 1024, 48})},
                       as_code(), 1e-5);
}

TEST(SplitColumns, NormsOfFewLongOnes) {
  const jit::Program softmax =
      expect_columns_right({"softmax", {noise(f32, {2, 4096, 16})}, {{"axis", std::int64_t{1}}}});
  EXPECT_THAT(blocks_of(softmax), AllOf(::testing::SizeIs(5), Each(Ge(16))));
  expect_columns_right({"log_softmax", {noise(bf16, {4099, 3})}, {{"axis", std::int64_t{0}}}});
  expect_columns_right({"variance", {noise(f32, {5000, 12})}, over({0})});
  expect_columns_right({"variance", {noise(f32, {2, 3000, 4})}, over({1}, true)});
  expect_columns_right({"softmax", {noise(f32, {0, 4096, 16})}, {{"axis", std::int64_t{1}}}});
  expect_columns_right({"variance", {noise(f32, {4096, 0})}, over({0})});
  // One kernel reads these again while they are at hand.
  const auto kernels = [](const ir::Sizes& sizes) {
    return expect_columns_right({"softmax", {noise(f32, sizes)}, {{"axis", std::int64_t{1}}}})
        .kernels.size();
  };
  EXPECT_EQ(kernels({2, 511, 16}), 1u);
}

TEST(SplitColumns, OthersStayAsTheyAre) {
  const auto stays = [](const Names& sizes, std::vector<std::int64_t> axes,
                        const jit::LowerOptions& options) {
    const ir::Graph graph = sums(sizes, std::move(axes));
    return jit::split_columns(jit::separate_runs(graph, options), options).identical(graph);
  };
  EXPECT_FALSE(stays({"256", "64"}, {0}, kColumnsOnCuda));
  EXPECT_TRUE(stays({"256", "64"}, {0}, {}));
  EXPECT_TRUE(stays({"255", "64"}, {0}, kColumnsOnCuda)) << "one thread is done as soon";
  EXPECT_TRUE(stays({"4096", "65536"}, {0}, kColumnsOnCuda)) << "there are threads enough";
  EXPECT_TRUE(stays({"4096", "s0"}, {0}, kColumnsOnCuda));
  EXPECT_TRUE(stays({"4096", "1"}, {0}, kColumnsOnCuda)) << "a row";
  EXPECT_TRUE(stays({"300", "300", "30"}, {0, 2}, kColumnsOnCuda)) << "many rows";
  EXPECT_FALSE(stays({"300", "30", "30"}, {0, 2}, kColumnsOnCuda));
}

}  // namespace
}  // namespace heddle::test
