// Largest bytes of windows in place of the largest numbers that they stand for.
#include "jit/lower/pool_bytes.h"

#include <gmock/gmock.h>

#include "tests/jit/nests_support.h"
#include "tests/jit/quantised_values.h"

namespace heddle::test {
namespace {

using ir::GraphBuilder;
using ir::Value;
using ::testing::HasSubstr;
using ::testing::Not;

struct Pool {
  DType dtype = u8;
  double scale = 0.04;
  Ints kernel{3, 3}, strides{2, 2}, low{1, 1}, high{1, 1}, dilations{1, 1};
  bool ceil_mode = false;
  bool is_read_twice = false;
};

Value largest(GraphBuilder& b, const Pool& pool, Value x) {
  return b.emit("max_pool", {x},
                {{"kernel", pool.kernel},
                 {"strides", pool.strides},
                 {"pads_low", pool.low},
                 {"pads_high", pool.high},
                 {"dilations", pool.dilations},
                 {"ceil_mode", pool.ceil_mode},
                 {"axes", Ints{1, 2}}});
}

ir::Graph graph_of(const Pool& pool) {
  GraphBuilder b("main");
  const Value x =
      dequantised(b, b.input(tensor(pool.dtype, {"2", "s0", "13", "20"})), 7, pool.scale);
  b.output(largest(b, pool, x));
  return b.finish();
}

ir::Literal bytes_of(DType dtype) { return testing::any_bytes(dtype, {2, 11, 13, 20}, 5); }

/// Whether its windows hold bytes.
bool pools_bytes(const Pool& pool) {
  const ir::Graph graph = graph_of(pool);
  return !jit::pool_bytes(graph, {}).identical(graph);
}

TEST(PoolBytes, OfBothKinds) {
  for (const DType dtype : {u8, i8}) {
    const Pool pool{.dtype = dtype};
    EXPECT_TRUE(pools_bytes(pool));
    expect_code_right(graph_of(pool), {bytes_of(dtype)}, 0);
  }
}

TEST(PoolBytes, OfWindowsThatReachBeyond) {
  const Pool pools[] = {{.kernel = {2, 3}, .strides = {3, 2}, .low = {1, 0}, .ceil_mode = true},
                        {.kernel = {5, 5}, .low = {4, 4}, .high = {4, 4}},
                        {.low = {0, 0}, .high = {2, 2}}};
  for (const Pool& pool : pools) {
    EXPECT_TRUE(pools_bytes(pool));
    expect_code_right(graph_of(pool), {bytes_of(u8)}, 0);
  }
}

/// The largest number is that of the least byte, or windows may have no byte at all, whose largest number is -inf.
TEST(PoolBytes, LeaveOthers) {
  const Pool others[] = {
      {.scale = -0.04}, {.scale = 0},     {.scale = std::numeric_limits<double>::infinity()},
      {.low = {3, 3}},  {.high = {3, 0}}, {.dilations = {2, 1}}};
  for (const Pool& pool : others) {
    EXPECT_FALSE(pools_bytes(pool));
    if (pool.scale < 1) expect_code_right(graph_of(pool), {bytes_of(u8)}, 0);
  }
  const jit::LowerOptions cuda{.target = jit::LowerOptions::Target::Cuda};
  const ir::Graph graph = graph_of({});
  EXPECT_TRUE(jit::pool_bytes(graph, cuda).identical(graph));
}

/// Of one scale before and behind, no number is made at all.
TEST(PoolBytes, BetweenQuantisedTensors) {
  for (const double scale : {0.04, 0.03}) {
    GraphBuilder b("main");
    const Value x = dequantised(b, b.input(tensor(u8, {"2", "s0", "13", "20"})), 7, 0.04);
    b.output(quantised(b, largest(b, {}, x), u8, 7, scale));
    const ir::Graph graph = b.finish();
    const std::string text = nests_of(lowered(graph));
    if (scale == 0.04)
      EXPECT_THAT(text, Not(HasSubstr("f32"))) << text;
    else
      EXPECT_THAT(text, HasSubstr("round"));
    expect_code_right(graph, {bytes_of(u8)}, 0);
  }
}

/// Several that read the numbers make them of the bytes, which alone are kept.
TEST(PoolBytes, ReadBySeveral) {
  GraphBuilder b("main");
  const Value x = dequantised(b, b.input(tensor(u8, {"2", "s0", "13", "20"})), 7, 0.04);
  const Value y = largest(b, {}, x);
  b.output(b.emit("reduce_sum", {y}, {{"axes", Ints{3}}}));
  b.output(b.emit("reduce_max", {y}, {{"axes", Ints{1}}}));
  const ir::Graph graph = b.finish();
  const jit::Program program = lowered(graph);
  for (const jit::Nest* nest : distinct_nests(program, "max_pool"))
    EXPECT_THAT(print(*nest), Not(HasSubstr("f32"))) << "no numbers lie in memory";
  EXPECT_EQ(distinct_nests(program, "max_pool").size(), 1u);
  expect_code_right(graph, {bytes_of(u8)});
}

}  // namespace
}  // namespace heddle::test
