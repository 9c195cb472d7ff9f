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

const jit::LowerOptions kCuda{.target = jit::LowerOptions::Target::Cuda};

/// The CUDA program of one call.
void expect_cuda_right(const OneOp& call) {
  SCOPED_TRACE(std::string(call.op));
  const ir::Graph graph = testing::graph_of(call);
  expect_program_right(graph, jit::lower(graph, kCuda), call.operands, as_code(), 1e-5);
}

/// Many equal elements, of floats a few NaN.
ir::Literal keys(DType dtype, const ir::Sizes& sizes) {
  ir::Literal x = random_literal(dtype, sizes, 9, 0, 100);
  for (std::int64_t k = 0; k < x.count(); ++k)
    if (is_floating(dtype)) x.set(k, k % 997 == 5 ? NAN : std::round(100 * x.at(k)));
  return x;
}

TEST(SplitSorts, LongRowsOfEveryDType) {
  for (const DType dtype : {f32, bf16, f64, i8, u8, i64}) {
    for (const bool descending : {false, true}) {
      SCOPED_TRACE(name_of(dtype));
      expect_cuda_right({"sort", {keys(dtype, {2, 1030})}, {{"descending", descending}}});
      expect_cuda_right(
          {"topk", {keys(dtype, {2, 1030})}, {{"k", ir::SymExpr(20)}, {"largest", descending}}});
    }
  }
}

TEST(SplitSorts, MoreRunsThanOneMergeJoins) {
  expect_cuda_right({"sort", {keys(f32, {jit::kSortedRun * 17 + 3})}});
  expect_cuda_right({"topk", {keys(f32, {jit::kSortedRun * 17})}, {{"k", ir::SymExpr(200)}}});
  expect_cuda_right({"topk", {keys(f32, {jit::kSortedRun * 3})}, {{"k", ir::SymExpr(1200)}}});
}

TEST(SplitSorts, AnyAxis) {
  expect_cuda_right({"sort", {keys(f32, {1030, 3})}, {{"axis", std::int64_t{0}}}});
  expect_cuda_right(
      {"topk", {keys(i32, {2, 1030, 3})}, {{"axis", std::int64_t{1}}, {"k", ir::SymExpr(7)}}});
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
    const jit::Program program = jit::lower(graph, kCuda);
    for (const std::int64_t length : {6, 512, 513, 9000})
      expect_program_right(graph, program, {keys(f32, {2, length})}, as_code(), 1e-5);
  }
}

TEST(SplitSorts, ShortRowsAndTheCpuStayAsTheyAre) {
  const ir::Graph longer = testing::graph_of({"sort", {keys(f32, {2, 1025})}});
  const ir::Graph shorter = testing::graph_of({"sort", {keys(f32, {2, 1024})}});
  EXPECT_TRUE(jit::split_sorts(longer, {}).identical(longer));
  EXPECT_TRUE(jit::split_sorts(shorter, kCuda).identical(shorter));
  EXPECT_THAT(testing::ops_of(jit::split_sorts(longer, kCuda)), Contains("merge_runs"));
}

ir::Literal picks(ir::Sizes sizes, std::int64_t low, std::int64_t high, DType dtype = i64) {
  return random_literal(dtype, std::move(sizes), 5, low, high);
}

std::vector<std::string> ordered_ops(const OneOp& call) {
  return testing::ops_of(jit::order_scatters(testing::graph_of(call), kCuda));
}

TEST(OrderScatters, EveryReductionDTypeAndKindOfIndex) {
  for (const char* how : {"none", "add", "mul", "max", "min"}) {
    const ir::Attrs attrs{{"reduction", std::string(how)}};
    for (const DType dtype : {f32, f16, i32, u8}) {
      SCOPED_TRACE(std::string(how) + " " + std::string(name_of(dtype)));
      const OneOp call{
          "scatter_nd",
          {noise(dtype, {6, 5, 3}), picks({7, 6, 2}, -5, 4), noise(dtype, {7, 6, 3}, 2)},
          attrs};
      EXPECT_THAT(ordered_ops(call), Contains("ordered_scatter"));
      expect_cuda_right(call);
    }
    expect_cuda_right({"scatter_elements",
                       {noise(f32, {9, 4}), picks({40, 4}, 0, 8, u8), noise(f32, {40, 4}, 2)},
                       attrs});
    expect_cuda_right({"scatter_elements",
                       {noise(f32, {3, 50}), picks({2, 40}, -50, 49, i32), noise(f32, {2, 40}, 2)},
                       {{"reduction", std::string(how)}, {"axis", std::int64_t{1}}}});
  }
}

TEST(OrderScatters, SlicesLongerThanABlock) {
  expect_cuda_right({"scatter_nd",
                     {noise(f32, {5, 700}), picks({30, 1}, 0, 4), noise(f32, {30, 700}, 2)},
                     {{"reduction", std::string("add")}}});
}

TEST(OrderScatters, MoreUpdatesThanOneRun) {
  expect_cuda_right({"scatter_elements",
                     {noise(f32, {100}), picks({1100}, 0, 99), noise(f32, {1100}, 2)},
                     {{"reduction", std::string("add")}}});
}

TEST(OrderScatters, IndicesThatBroadcast) {
  const ir::Literal x = noise(f32, {4, 5, 6});
  for (const bool accumulate : {false, true}) {
    const ir::Attrs attrs{{"accumulate", accumulate}};
    expect_cuda_right(
        {"index_put", {x, noise(f32, {6}, 2), picks({9, 1}, -4, 3), picks({3}, 0, 4)}, attrs});
    expect_cuda_right({"index_put", {x, noise(f32, {}, 2), picks({30}, 0, 3)}, attrs});
  }
}

TEST(OrderScatters, SizesThatAreNotKnownOrZero) {
  ir::GraphBuilder b("main");
  const ir::Value x = b.input(tensor(f32, {"s0", "s1"}));
  const ir::Value i = b.input(tensor(i64, {"s2", "1"}));
  const ir::Value u = b.input(tensor(f32, {"s2", "s1"}));
  b.output(b.emit("scatter_nd", {x, i, u}, {{"reduction", std::string("add")}}));
  const ir::Graph graph = b.finish();
  const jit::Program program = jit::lower(graph, kCuda);
  for (const Ints& s : std::vector<Ints>{{4, 300, 5}, {4, 0, 5}, {4, 3, 0}, {2, 1, 600}})
    expect_program_right(
        graph, program,
        {noise(f32, {s[0], s[1]}), picks({s[2], 1}, -2, 1), noise(f32, {s[2], s[1]}, 2)}, as_code(),
        1e-4);
}

TEST(OrderScatters, AnIndexOutOfRangeIsReportedByTheNameOfTheOp) {
  const OneOp call{"scatter_elements",
                   {noise(f32, {4}), picks({20}, 4, 4), noise(f32, {20})},
                   {{"reduction", std::string("add")}}};
  const ir::Graph graph = testing::graph_of(call);
  try {
    run_program(graph, jit::lower(graph, kCuda), call.operands);
    FAIL() << "no error";
  } catch (const IndexError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("scatter_elements: index out of range"));
  }
}

TEST(OrderScatters, FewUpdatesOrManyPartsGoOneAfterTheOther) {
  const ir::Attrs add{{"reduction", std::string("add")}};
  const OneOp few{"scatter_nd", {noise(f32, {9}), picks({16, 1}, 0, 8), noise(f32, {16})}, add};
  EXPECT_THAT(ordered_ops(few), Not(Contains("ordered_scatter")));
  EXPECT_THAT(ordered_ops(few), Contains("clone"));
  expect_cuda_right(few);
  const OneOp rows{"scatter_elements",
                   {noise(f32, {300, 9}), picks({300, 20}, 0, 8), noise(f32, {300, 20})},
                   {{"reduction", std::string("add")}, {"axis", std::int64_t{1}}}};
  const ir::Graph graph = testing::graph_of(rows);
  EXPECT_TRUE(jit::order_scatters(graph, kCuda).identical(graph));
  expect_cuda_right(rows);
}

}  // namespace
}  // namespace heddle::test
