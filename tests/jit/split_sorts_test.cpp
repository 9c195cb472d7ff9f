// Sorts in runs and scatters by the order of their destinations, as CUDA has them, against the definitions.
#include "jit/lower/split_sorts.h"

#include <cmath>

#include "heddle/error.h"
#include "jit/lower/order_scatters.h"
#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

using ::testing::Contains;
using ::testing::Not;

const jit::LowerOptions kSortsOnCuda{.target = jit::LowerOptions::Target::Cuda};

/// The CUDA program of one call.
void expect_sorts_right(const OneOp& call) {
  SCOPED_TRACE(std::string(call.op));
  const ir::Graph graph = testing::graph_of(call);
  expect_program_right(graph, jit::lower(graph, kSortsOnCuda), call.operands, as_code(), 1e-5);
}

/// Many equal elements, of floats a few NaN.
ir::Literal drawn_keys(DType dtype, const ir::Sizes& sizes) {
  ir::Literal x = random_literal(dtype, sizes, 9, 0, 100);
  for (std::int64_t k = 0; k < x.count(); ++k)
    if (is_floating(dtype)) x.set(k, k % 997 == 5 ? NAN : std::round(100 * x.at(k)));
  return x;
}

TEST(SplitSorts, LongRowsOfEveryDType) {
  for (const DType dtype : {f32, bf16, f64, i8, u8, i64}) {
    for (const bool descending : {false, true}) {
      SCOPED_TRACE(name_of(dtype));
      expect_sorts_right({"sort", {drawn_keys(dtype, {2, 1030})}, {{"descending", descending}}});
      expect_sorts_right({"topk",
                          {drawn_keys(dtype, {2, 1030})},
                          {{"k", ir::SymExpr(20)}, {"largest", descending}}});
    }
  }
}

TEST(SplitSorts, MoreRunsThanOneMergeJoins) {
  expect_sorts_right({"sort", {drawn_keys(f32, {jit::kSortedRun * 17 + 3})}});
  expect_sorts_right(
      {"topk", {drawn_keys(f32, {jit::kSortedRun * 17})}, {{"k", ir::SymExpr(200)}}});
  expect_sorts_right(
      {"topk", {drawn_keys(f32, {jit::kSortedRun * 3})}, {{"k", ir::SymExpr(1200)}}});
}

/// Keys of which many are what rows are padded with: NaN, or the last number of an integer dtype.
ir::Literal keys_like_padding(DType dtype, bool descending) {
  ir::Literal x = random_literal(dtype, {2, 1030}, 9, 0, 3);
  const double last = is_floating(dtype) ? NAN
                      : descending       ? (is_signed(dtype) ? -128 : 0)
                      : is_signed(dtype) ? 127
                                         : 255;
  for (std::int64_t k = 0; k < x.count(); ++k)
    if (k % 3 != 0) x.set(k, last);
  return x;
}

TEST(SplitSorts, KeysEqualToWhatRowsArePaddedWithComeFirst) {
  for (const DType dtype : {f32, i8, u8}) {
    for (const bool descending : {false, true}) {
      SCOPED_TRACE(name_of(dtype));
      const ir::Literal keys = keys_like_padding(dtype, descending);
      expect_sorts_right({"sort", {keys}, {{"descending", descending}}});
      expect_sorts_right({"topk", {keys}, {{"k", ir::SymExpr(1030)}, {"largest", descending}}});
    }
  }
}

/// On the CPU rows that lie across memory are brought side by side, but for short ones and those that nearly lie so.
TEST(SplitSorts, TurnsColumnsOnTheCpu) {
  const auto is_turned = [](const OneOp& call) {
    const ir::Graph graph = testing::graph_of(call);
    expect_fast_code_right(graph, call.operands);
    return !jit::split_sorts(graph, {}).identical(graph);
  };
  const ir::Attrs first{{"axis", std::int64_t{0}}};
  const ir::Attrs few{{"axis", std::int64_t{-2}}, {"k", ir::SymExpr(5)}};
  EXPECT_TRUE(is_turned({"sort", {drawn_keys(f32, {200, 9})}, first}));
  EXPECT_TRUE(is_turned({"topk", {drawn_keys(f64, {2, 150, 17})}, few}));
  EXPECT_FALSE(is_turned({"topk", {drawn_keys(f32, {2, 150, 17})}, few})) << "a row a lane";
  EXPECT_FALSE(is_turned({"topk", {drawn_keys(f64, {2, 150, 9})}, few})) << "read once for few";
  EXPECT_FALSE(is_turned({"sort", {drawn_keys(f32, {200, 2})}, first}));
  EXPECT_FALSE(is_turned({"sort", {drawn_keys(f32, {8, 9})}, first}));
  EXPECT_FALSE(is_turned({"sort", {drawn_keys(f32, {200, 9})}}));
}

/// Threads that run kernels may have small stacks.
TEST(SplitSorts, LongRowsDoNotLieOnTheStack) {
  ir::GraphBuilder b("main");
  const ir::Value x = b.input(tensor(f32, {"8", "1000000"}));
  const ir::Node* sorted = b.call("sort", {x}, {});
  b.output(sorted->value(0));
  b.output(sorted->value(1));
  const jit::Program program = jit::lower(b.finish(), {});
  for (const jit::ProgramKernel& kernel : program.kernels) {
    if (kernel.nest == nullptr) continue;
    for (const jit::NestBuffer& buffer : kernel.nest->buffers)
      EXPECT_LE(buffer.max_count * static_cast<std::int64_t>(size_of(buffer.dtype)), 256 << 10);
  }
}

TEST(SplitSorts, AnyAxis) {
  expect_sorts_right({"sort", {drawn_keys(f32, {1030, 3})}, {{"axis", std::int64_t{0}}}});
  expect_sorts_right({"topk",
                      {drawn_keys(i32, {2, 1030, 3})},
                      {{"axis", std::int64_t{1}}, {"k", ir::SymExpr(7)}}});
}

TEST(SplitSorts, LengthsThatAreNotKnown) {
  for (const bool topk : {false, true}) {
    ir::GraphBuilder b("main");
    const ir::Value x = b.input(tensor(f32, {"s0", "s1"}));
    const ir::Node* sorted = topk ? b.call("topk", {x}, {{"k", ir::SymExpr(6)}})
                                  : b.call("sort", {x}, {{"descending", true}});
    b.output(sorted->value(0));
    b.output(sorted->value(1));
    const ir::Graph graph = b.finish();
    const jit::Program program = jit::lower(graph, kSortsOnCuda);
    for (const std::int64_t length : {6, 512, 513, 9000})
      expect_program_right(graph, program, {drawn_keys(f32, {2, length})}, as_code(), 1e-5);
    // The last merge joins more than one run.
    const std::int64_t many = jit::kSortedRun * 16 * 16 + 1;
    expect_program_right(graph, program, {drawn_keys(f32, {1, many})}, as_code(), 1e-5);
  }
}

TEST(SplitSorts, ShortRowsAndTheCpuStayAsTheyAre) {
  const ir::Graph longer = testing::graph_of({"sort", {drawn_keys(f32, {2, 1025})}});
  const ir::Graph shorter = testing::graph_of({"sort", {drawn_keys(f32, {2, 1024})}});
  EXPECT_TRUE(jit::split_sorts(longer, {}).identical(longer));
  EXPECT_TRUE(jit::split_sorts(shorter, kSortsOnCuda).identical(shorter));
  EXPECT_THAT(testing::ops_of(jit::split_sorts(longer, kSortsOnCuda)), Contains("merge_runs"));
}

std::vector<std::string> ordered_ops(const OneOp& call) {
  return testing::ops_of(jit::order_scatters(testing::graph_of(call), kSortsOnCuda));
}

TEST(OrderScatters, EveryReductionDTypeAndKindOfIndex) {
  for (const char* how : {"none", "add", "mul", "max", "min"}) {
    const ir::Attrs attrs{{"reduction", std::string(how)}};
    for (const DType dtype : {f32, f16, i32, u8}) {
      SCOPED_TRACE(std::string(how) + " " + std::string(name_of(dtype)));
      const OneOp call{
          "scatter_nd",
          {noise(dtype, {6, 5, 3}), drawn_places({7, 6, 2}, -5, 4), noise(dtype, {7, 6, 3}, 2)},
          attrs};
      EXPECT_THAT(ordered_ops(call), Contains("ordered_scatter"));
      expect_sorts_right(call);
    }
    expect_sorts_right(
        {"scatter_elements",
         {noise(f32, {9, 4}), drawn_places({40, 4}, 0, 8, u8), noise(f32, {40, 4}, 2)},
         attrs});
    expect_sorts_right(
        {"scatter_elements",
         {noise(f32, {3, 50}), drawn_places({2, 40}, -50, 49, i32), noise(f32, {2, 40}, 2)},
         {{"reduction", std::string(how)}, {"axis", std::int64_t{1}}}});
  }
}

TEST(OrderScatters, SlicesLongerThanABlock) {
  expect_sorts_right({"scatter_nd",
                      {noise(f32, {5, 700}), drawn_places({30, 1}, 0, 4), noise(f32, {30, 700}, 2)},
                      {{"reduction", std::string("add")}}});
}

TEST(OrderScatters, MoreUpdatesThanOneRun) {
  expect_sorts_right({"scatter_elements",
                      {noise(f32, {100}), drawn_places({1100}, 0, 99), noise(f32, {1100}, 2)},
                      {{"reduction", std::string("add")}}});
}

TEST(OrderScatters, IndicesThatBroadcast) {
  const ir::Literal x = noise(f32, {4, 5, 6});
  for (const bool accumulate : {false, true}) {
    const ir::Attrs attrs{{"accumulate", accumulate}};
    expect_sorts_right(
        {"index_put",
         {x, noise(f32, {6}, 2), drawn_places({9, 1}, -4, 3), drawn_places({3}, 0, 4)},
         attrs});
    expect_sorts_right({"index_put", {x, noise(f32, {}, 2), drawn_places({30}, 0, 3)}, attrs});
  }
}

TEST(OrderScatters, SizesThatAreNotKnownOrZero) {
  const ir::Graph graph = scatter_of_any_sizes();
  const jit::Program program = jit::lower(graph, kSortsOnCuda);
  for (const Ints& s : std::vector<Ints>{{4, 300, 5}, {4, 0, 5}, {4, 3, 0}, {2, 1, 600}})
    expect_program_right(
        graph, program,
        {noise(f32, {s[0], s[1]}), drawn_places({s[2], 1}, -2, 1), noise(f32, {s[2], s[1]}, 2)},
        as_code(), 1e-4);
}

TEST(OrderScatters, AnIndexOutOfRangeIsReportedByTheNameOfTheOp) {
  const OneOp call{"scatter_elements",
                   {noise(f32, {4}), drawn_places({20}, 4, 4), noise(f32, {20})},
                   {{"reduction", std::string("add")}}};
  const ir::Graph graph = testing::graph_of(call);
  try {
    run_program(graph, jit::lower(graph, kSortsOnCuda), call.operands);
    FAIL() << "no error";
  } catch (const IndexError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("scatter_elements: index out of range"));
  }
}

TEST(OrderScatters, FewUpdatesOrManyPartsGoOneAfterTheOther) {
  const ir::Attrs add{{"reduction", std::string("add")}};
  const OneOp few{
      "scatter_nd", {noise(f32, {9}), drawn_places({16, 1}, 0, 8), noise(f32, {16})}, add};
  EXPECT_THAT(ordered_ops(few), Not(Contains("ordered_scatter")));
  EXPECT_THAT(ordered_ops(few), Contains("clone"));
  expect_sorts_right(few);
  const OneOp rows{"scatter_elements",
                   {noise(f32, {300, 9}), drawn_places({300, 20}, 0, 8), noise(f32, {300, 20})},
                   {{"reduction", std::string("add")}, {"axis", std::int64_t{1}}}};
  const ir::Graph graph = testing::graph_of(rows);
  EXPECT_TRUE(jit::order_scatters(graph, kSortsOnCuda).identical(graph));
  expect_sorts_right(rows);
}

/// On the CPU what is scattered into in pieces of rows is copied in whole ones.
TEST(OrderScatters, TheCpuCopiesRowsBeforeTheirPieces) {
  using Names = std::vector<std::string>;
  const auto kernels_of = [](std::int64_t rows, std::int64_t columns) {
    const OneOp call{"scatter_nd",
                     {noise(f32, {rows, columns}), drawn_places({9, 1}, -rows, rows - 1),
                      noise(f32, {9, columns}, 2)}};
    expect_fast_nest_right(call);
    return kernels(testing::graph_of(call));
  };
  EXPECT_EQ(kernels_of(64, 257), (Names{"clone", "scatter_nd"}));
  EXPECT_EQ(kernels_of(65, 256), Names{"scatter_nd"});
  EXPECT_EQ(kernels_of(63, 257), Names{"scatter_nd"});
}

}  // namespace
}  // namespace heddle::test
