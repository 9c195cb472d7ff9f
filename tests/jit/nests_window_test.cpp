// Pools and convolutions as nests, against the definitions of their ops.
#include <cmath>
#include <set>

#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

struct Window {
  Ints kernel, strides, low, high, dilations;
  bool ceil_mode = false;
};

ir::Attrs attrs_of(const Window& w) {
  return {{"strides", w.strides},
          {"pads_low", w.low},
          {"pads_high", w.high},
          {"dilations", w.dilations}};
}

ir::Attrs pool_attrs(const Window& w) {
  ir::Attrs attrs = attrs_of(w);
  attrs.emplace("kernel", w.kernel);
  attrs.emplace("ceil_mode", w.ceil_mode);
  return attrs;
}

const Window kWindows[] = {
    {{2, 2}, {2, 2}, {0, 0}, {0, 0}, {1, 1}},       {{3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {{3, 2}, {2, 3}, {1, 0}, {0, 1}, {1, 2}},       {{3, 3}, {2, 2}, {0, 1}, {1, 0}, {1, 1}, true},
    {{2, 3}, {3, 2}, {1, 2}, {2, 1}, {2, 1}, true}, {{1, 1}, {2, 2}, {0, 0}, {0, 0}, {1, 1}},
};

ir::Literal special(ir::Literal x) {
  x = testing::with_nan(x, 7);
  x.set(9, -INFINITY);
  return x;
}

TEST(PoolNest, EveryWindow) {
  for (const Window& w : kWindows) {
    const ir::Literal x = special(noise(f32, {2, 3, 9, 20}));
    expect_nest_right({"max_pool", {x}, pool_attrs(w)});
    for (const bool column_major : {false, true}) {
      ir::Attrs attrs = pool_attrs(w);
      attrs.emplace("column_major", column_major);
      expect_nest_right({"max_pool_indices", {x}, attrs});
    }
    for (const bool include : {false, true}) {
      ir::Attrs attrs = pool_attrs(w);
      attrs.emplace("count_include_pad", include);
      expect_nest_right({"avg_pool", {noise(f32, {2, 3, 9, 20})}, attrs});
    }
  }
}

/// With channels last, those that lie inside are written out, and others are not.
TEST(PoolNest, EveryWindowWithChannelsLast) {
  for (const Window& w : kWindows) {
    ir::Attrs attrs = pool_attrs(w);
    attrs.emplace("axes", Ints{1, 2});
    const ir::Literal x = special(noise(f32, {2, 9, 20, 19}));
    expect_fast_nest_right({"max_pool", {x}, attrs});
    for (const bool include : {false, true}) {
      attrs.insert_or_assign("count_include_pad", include);
      expect_fast_nest_right({"avg_pool", {noise(f32, {2, 9, 20, 19})}, attrs});
    }
  }
  ir::Attrs inside = pool_attrs(kWindows[0]);
  inside.emplace("axes", Ints{1, 2});
  const ir::Graph graph = testing::graph_of({"max_pool", {noise(f32, {1, 8, 8, 32})}, inside});
  EXPECT_EQ(nests_of(lowered(graph)).find("serial"), std::string::npos);
}

/// Windows wider than what is unrolled, and than what they slide over.
TEST(PoolNest, WideWindows) {
  for (const Window& w : {Window{{9, 9}, {1, 1}, {4, 4}, {4, 4}, {1, 1}},
                          Window{{1, 13}, {1, 2}, {0, 6}, {0, 5}, {1, 1}},
                          Window{{2, 10}, {3, 3}, {1, 9}, {0, 9}, {1, 2}, true},
                          Window{{9, 20}, {1, 1}, {0, 0}, {0, 0}, {1, 1}}}) {
    const ir::Literal x = special(noise(f32, {2, 2, 9, 20}));
    expect_nest_right({"max_pool", {x}, pool_attrs(w)});
    expect_nest_right({"avg_pool", {noise(f32, {2, 2, 9, 20})}, pool_attrs(w)});
  }
  const Window line{{33}, {1}, {16}, {16}, {1}};
  for (const char* op : {"max_pool", "avg_pool"})
    expect_nest_right({op, {noise(f32, {1, 2, 40})}, pool_attrs(line)});
}

/// Rows that fill blocks, of which only a few fit one, and that are longer than one; windows that are far apart.
TEST(PoolNest, BlocksOfRows) {
  const Window close{{2, 3}, {2, 2}, {0, 1}, {0, 1}, {1, 1}};
  const Window far{{2, 3}, {1, 5}, {1, 2}, {1, 1}, {1, 1}, true};
  const Window farthest{{1, 9}, {1, 9}, {0, 4}, {0, 0}, {1, 1}};
  for (const Window& w : {close, far, farthest}) {
    for (const ir::Sizes& sizes :
         {ir::Sizes{3, 7, 6, 21}, ir::Sizes{1, 1, 9, 700}, ir::Sizes{1, 1, 3, 4100}}) {
      const ir::Literal x = special(noise(f32, sizes));
      expect_nest_right({"max_pool", {x}, pool_attrs(w)});
      expect_nest_right({"avg_pool", {noise(f32, sizes)}, pool_attrs(w)});
    }
  }
}

/// A NaN shows in each window that it lies in, whichever tap reads it, and nowhere else.
TEST(PoolNest, ANanAtEveryTap) {
  const Window windows[] = {{{3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
                            {{2, 3}, {2, 2}, {0, 1}, {1, 0}, {1, 1}}};
  for (const Window& w : windows) {
    const ir::Literal x = noise(f32, {1, 1, 6, 7});
    for (std::int64_t k = 0; k < 42; ++k)
      expect_nest_right({"max_pool", {testing::with_nan(x, k)}, pool_attrs(w)});
  }
}

/// The padding is as wide as the window, so that some windows hold nothing else.
TEST(PoolNest, WindowsOfPaddingOnly) {
  const Window w{{2, 2}, {1, 1}, {2, 2}, {2, 2}, {1, 1}};
  const ir::Literal x = noise(f32, {1, 2, 3, 4});
  expect_nest_right({"max_pool", {x}, pool_attrs(w)});
  ir::Attrs attrs = pool_attrs(w);
  attrs.emplace("count_include_pad", true);
  expect_nest_right({"avg_pool", {x}, attrs});
}

/// Local buffers that the loop stores to, and reads.
void collect_locals(const jit::Nest& nest, const jit::Block& body,
                    std::set<jit::NestBufferId>& stored, std::set<jit::NestBufferId>& read) {
  for (const jit::Stmt& statement : body) {
    if (const auto* loop = std::get_if<jit::ForStmt>(&statement.node))
      collect_locals(nest, *loop->body, stored, read);
    if (const auto* branch = std::get_if<jit::IfStmt>(&statement.node))
      collect_locals(nest, *branch->body, stored, read);
    if (const auto* store = std::get_if<jit::StoreStmt>(&statement.node);
        store != nullptr && store->buffer >= nest.global_count())
      stored.insert(store->buffer);
    if (const auto* load = std::get_if<jit::LoadStmt>(&statement.node);
        load != nullptr && load->buffer >= nest.global_count())
      read.insert(load->buffer);
  }
}

/// What is stored for one row waits for the other rows of its block before it is read.
TEST(PoolNest, ARowIsReadLongAfterItIsStored) {
  for (const std::int64_t stride : {1, 2, 5}) {
    const Window w{{3, 3}, {stride, stride}, {1, 1}, {1, 1}, {1, 1}};
    const ir::Graph graph =
        testing::graph_of({"max_pool", {noise(f32, {1, 8, 20, 28})}, pool_attrs(w)});
    const jit::Program program = lowered(graph);
    const jit::Nest& nest = *program.kernels.at(0).nest;
    std::set<jit::NestBufferId> before;
    int loops = 0;
    for (const jit::Stmt& statement : nest.body) {
      const auto* rows = std::get_if<jit::ForStmt>(&statement.node);
      if (rows == nullptr) continue;
      EXPECT_EQ(rows->kind, jit::ForStmt::Kind::Serial);
      ++loops;
      std::set<jit::NestBufferId> stored, read;
      collect_locals(nest, *rows->body, stored, read);
      for (const jit::NestBufferId buffer : read) {
        EXPECT_TRUE(before.contains(buffer));
        EXPECT_FALSE(stored.contains(buffer));
      }
      before.insert(stored.begin(), stored.end());
    }
    EXPECT_EQ(loops, stride == 5 ? 4 : 3) << "the padding, the columns, and along the rows";
  }
}

TEST(PoolNest, EveryDType) {
  for (const DType dtype : testing::kNumbers) {
    const ir::Literal x = noise(dtype, {1, 2, 5, 6});
    expect_nest_right({"max_pool", {x}, pool_attrs(kWindows[1])});
    expect_nest_right({"max_pool_indices", {x}, pool_attrs(kWindows[1])});
    if (is_floating(dtype)) expect_nest_right({"avg_pool", {x}, pool_attrs(kWindows[1])});
  }
}

TEST(PoolNest, OneAndThreeDimensions) {
  const Window line{{3}, {2}, {1}, {1}, {1}};
  const Window cube{{2, 2, 2}, {1, 2, 1}, {0, 1, 1}, {1, 0, 1}, {1, 1, 1}};
  for (const char* op : {"max_pool", "avg_pool", "max_pool_indices"}) {
    expect_nest_right({op, {noise(f32, {2, 2, 11})}, pool_attrs(line)});
    expect_nest_right({op, {noise(f32, {1, 2, 3, 4, 5})}, pool_attrs(cube)});
  }
}

TEST(PoolNest, SymbolicSizesAndAnEpilogue) {
  ir::GraphBuilder b("main");
  const ir::Value x = b.input(tensor(f32, {"s0", "3", "s1", "s2"}));
  const ir::Value y = b.emit("max_pool", {x}, pool_attrs(kWindows[1]));
  b.output(b.emit("tanh", {y}));
  const ir::Graph graph = b.finish();
  EXPECT_EQ(kernels(graph).size(), 1u);
  expect_code_right_at(graph, {2, 4, 7});
  expect_code_right_at(graph, {0, 4, 7});
}

TEST(ConvNest, EveryWindow) {
  for (const Window& w : kWindows) {
    const ir::Sizes kernel{4, 3, w.kernel[0], w.kernel[1]};
    expect_nest_right({"conv",
                       {noise(f32, {2, 3, 9, 20}), noise(f32, kernel, 2), noise(f32, {4}, 3)},
                       attrs_of(w)},
                      1e-4);
  }
}

TEST(ConvNest, GroupsAndDTypes) {
  for (const DType dtype : testing::kNumbers) {
    for (const std::int64_t groups : {1, 2, 4}) {
      ir::Attrs attrs = attrs_of(kWindows[1]);
      attrs.emplace("groups", groups);
      const ir::Literal w = noise(dtype, {8, 4 / groups, 3, 3}, 2);
      expect_nest_right({"conv", {noise(dtype, {1, 4, 5, 6}), w}, attrs}, 1e-4);
    }
  }
}

TEST(ConvNest, AnInfiniteWeightOfThePaddingIsNotRead) {
  ir::Literal w = noise(f32, {1, 1, 3, 3});
  w.set(0, INFINITY);
  expect_nest_right({"conv", {noise(f32, {1, 1, 5, 5}), w}, attrs_of(kWindows[1])}, 1e-4);
}

TEST(ConvNest, SymbolicSizesAndAnEpilogue) {
  ir::GraphBuilder b("main");
  const ir::Value x = b.input(tensor(f32, {"s0", "3", "s1", "s2"}));
  const ir::Value w = b.input(tensor(f32, {"6", "3", "3", "3"}));
  const ir::Value bias = b.input(tensor(f32, {"6"}));
  b.output(b.emit("relu", {b.call("conv", {x, w, bias}, attrs_of(kWindows[1]))->value()}));
  const ir::Graph graph = b.finish();
  EXPECT_EQ(kernels(graph).size(), 1u);
  expect_code_right_at(graph, {2, 4, 7}, 1e-4);
}

TEST(ConvNest, OneAndThreeDimensions) {
  const Window line{{3}, {2}, {1}, {1}, {1}};
  const Window cube{{2, 2, 2}, {1, 2, 1}, {0, 1, 1}, {1, 0, 1}, {1, 1, 1}};
  expect_nest_right({"conv", {noise(f32, {2, 2, 11}), noise(f32, {4, 2, 3})}, attrs_of(line)},
                    1e-4);
  expect_nest_right(
      {"conv", {noise(f32, {1, 2, 3, 4, 5}), noise(f32, {3, 2, 2, 2, 2})}, attrs_of(cube)}, 1e-4);
}

TEST(ConvTransposeNest, EveryWindow) {
  for (const Window& w : kWindows) {
    for (const std::int64_t groups : {1, 2}) {
      ir::Attrs attrs = attrs_of(w);
      attrs.emplace("groups", groups);
      attrs.emplace("output_padding", Ints{1, 0});
      const ir::Sizes kernel{4, 3, w.kernel[0], w.kernel[1]};
      expect_nest_right(
          {"conv_transpose",
           {noise(f32, {2, 4, 5, 7}), noise(f32, kernel, 2), noise(f32, {3 * groups}, 3)},
           attrs},
          1e-4);
    }
  }
}

TEST(ConvTransposeNest, EveryDType) {
  for (const DType dtype : testing::kNumbers) {
    ir::Attrs attrs = attrs_of(kWindows[0]);
    attrs.emplace("output_padding", Ints{0, 1});
    expect_nest_right(
        {"conv_transpose", {noise(dtype, {1, 3, 4, 5}), noise(dtype, {3, 2, 2, 2}, 2)}, attrs},
        1e-4);
  }
}

}  // namespace
}  // namespace heddle::test
