// Attention as a nest, against the definition of the op.
#include <cmath>

#include "ir/text.h"
#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

struct Shape {
  std::int64_t heads, shared, queries, keys, size, value_size;
};

std::vector<ir::Literal> operands(const Shape& s, DType dtype = f32) {
  return {noise(dtype, {2, s.heads, s.queries, s.size}, 1),
          noise(dtype, {2, s.shared, s.keys, s.size}, 2),
          noise(dtype, {2, s.shared, s.keys, s.value_size}, 3)};
}

TEST(AttentionNest, EachShapeCausalOrNot) {
  for (const Shape& s :
       {Shape{2, 2, 5, 7, 8, 8}, Shape{4, 2, 33, 70, 3, 5}, Shape{3, 1, 1, 130, 16, 4},
        Shape{1, 1, 9, 4, 70, 130}, Shape{1, 1, 2, 0, 3, 4}, Shape{2, 2, 65, 65, 8, 1}}) {
    for (const bool causal : {false, true})
      expect_nest_right({"attention", operands(s), {{"causal", causal}}}, 1e-4);
  }
}

TEST(AttentionNest, EveryDType) {
  for (const DType dtype : testing::kFloats) {
    expect_nest_right({"attention", operands({2, 1, 5, 70, 8, 8}, dtype), {{"causal", true}}},
                      1e-4);
    expect_nest_right({"attention", operands({1, 1, 17, 5, 33, 8}, dtype), {{"scale", 0.3}}}, 1e-4);
  }
}

TEST(AttentionNest, Masks) {
  for (const DType dtype : {boolean, f32, f16}) {
    for (const ir::Sizes& sizes : {ir::Sizes{2, 2, 6, 70}, {6, 70}, {2, 1, 1, 70}, {1}}) {
      for (const bool causal : {false, true}) {
        std::vector<ir::Literal> all = operands({2, 2, 6, 70, 4, 4});
        all.push_back(noise(dtype, sizes, 4));
        expect_nest_right({"attention", all, {{"causal", causal}}}, 1e-4);
      }
    }
  }
}

/// The same operands rounded to bf16 give nearly the same: only weights of keys are rounded besides.
void expect_pairs_right(const Shape& s, DType dtype, const ir::Attrs& attrs,
                        const std::vector<ir::Literal>& masks = {}) {
  std::vector<ir::Literal> all = operands(s, bf16);
  if (dtype != bf16)
    for (ir::Literal& operand : all)
      operand = testing::value_of({"convert", {operand}, {{"dtype", dtype}}});
  all.insert(all.end(), masks.begin(), masks.end());
  ir::Attrs allowed = attrs;
  allowed["bf16"] = true;
  const ir::Graph graph = testing::graph_of({"attention", all, allowed});
  const jit::Program program = jit::lower(graph, {.bf16_dot = true, .fast_bf16_dot = true});
  EXPECT_NE(nests_of(program).find(" group 2 gathered"), std::string::npos);
  const double tolerance = dtype == bf16 ? 2e-2 : 1e-2;
  expect_program_right(graph, program, arguments_of(testing::OneOp{"attention", all, allowed}), {},
                       tolerance);
  expect_program_right(graph, program, arguments_of(testing::OneOp{"attention", all, allowed}),
                       as_code(), tolerance);
}

TEST(AttentionNest, PairsOfBf16) {
  for (const Shape& s :
       {Shape{2, 2, 5, 7, 8, 8}, Shape{4, 2, 33, 70, 6, 5}, Shape{3, 1, 1, 130, 16, 4},
        Shape{1, 1, 9, 4, 70, 130}, Shape{2, 2, 65, 65, 32, 32}})
    for (const bool causal : {false, true})
      for (const DType dtype : {f32, bf16}) expect_pairs_right(s, dtype, {{"causal", causal}});
  for (const DType dtype : {boolean, f32})
    expect_pairs_right({2, 2, 6, 71, 4, 4}, f32, {}, {noise(dtype, {6, 71}, 4)});
}

TEST(AttentionNest, PairsOfBf16NeedTheInstructionEvenHeadsAndLeave) {
  const auto is_of_pairs = [](const Shape& s, bool allowed, bool has, DType dtype = f32) {
    const ir::Graph graph =
        testing::graph_of({"attention", operands(s, dtype), {{"bf16", allowed}}});
    const jit::Program program = jit::lower(graph, {.bf16_dot = has, .fast_bf16_dot = has});
    return nests_of(program).find("group 2") != std::string::npos;
  };
  const Shape even{2, 2, 5, 7, 8, 8};
  EXPECT_TRUE(is_of_pairs(even, true, true));
  EXPECT_FALSE(is_of_pairs(even, false, true));
  EXPECT_FALSE(is_of_pairs(even, true, false));
  EXPECT_FALSE(is_of_pairs({2, 2, 5, 7, 7, 8}, true, true));
  EXPECT_FALSE(is_of_pairs(even, false, true, f16));
}

TEST(AttentionNest, HeadsThatShareKeysAreRowsOfATile) {
  for (const Shape& s : {Shape{6, 2, 25, 70, 8, 8}, Shape{8, 1, 1, 130, 16, 5},
                         Shape{4, 2, 33, 70, 70, 130}, Shape{34, 2, 3, 5, 4, 4}}) {
    for (const ir::Sizes& sizes :
         {ir::Sizes{2, s.heads, s.queries, s.keys}, {s.queries, s.keys}, {2, s.heads, 1, s.keys}}) {
      std::vector<ir::Literal> all = operands(s);
      all.push_back(noise(boolean, sizes, 4));
      for (const bool causal : {false, true})
        expect_fast_nest_right({"attention", all, {{"causal", causal}}}, 1e-4);
    }
  }
  expect_nest_right({"attention", operands({3, 1, 23, 5, 2, 2})}, 1e-4);
  // 21 queries of three heads are a tile.
  for (const auto& [length, extent] :
       {std::pair("s0", "4*floor((s0+20)/21)"), std::pair("1", "4")}) {
    ir::GraphBuilder b("main");
    const ir::Value q = b.input(tensor(f32, {"2", "6", length, "8"}));
    const ir::Value k = b.input(tensor(f32, {"2", "2", "70", "8"}));
    b.output(b.emit("attention", {q, k, k}));
    const jit::Program program = jit::lower(b.finish(), {.target = jit::LowerOptions::Target::Cpu});
    ASSERT_EQ(program.kernels.size(), 1u);
    EXPECT_EQ(program.kernels[0].nest->parallel_extent.to_string(), extent);
  }
}

TEST(AttentionNest, ScoresAreCapped) {
  for (const DType dtype : {f32, f64, f16}) {
    std::vector<ir::Literal> all = operands({4, 2, 6, 70, 4, 4}, dtype);
    expect_nest_right({"attention", all, {{"softcap", 0.25}, {"causal", true}}}, 1e-4);
    all.push_back(noise(boolean, {6, 70}, 4));
    expect_nest_right({"attention", all, {{"softcap", 2.0}}}, 1e-4);
  }
}

/// Values there are NaN, which would show in sums that read them.
TEST(AttentionNest, TilesOfHiddenKeysAreNotRead) {
  for (const DType dtype : {boolean, f32}) {
    for (const ir::Sizes& sizes : {ir::Sizes{2, 1, 1, 300}, {3, 300}}) {
      std::vector<ir::Literal> all = operands({4, 2, 3, 300, 4, 4});
      ir::Literal mask(dtype, sizes);
      for (std::int64_t k = 0; k < mask.count(); ++k) {
        const bool seen = k % 300 >= 64 && k % 300 < 200;
        mask.set(k, dtype == boolean ? (seen ? 1.0 : 0.0) : (seen ? 0.5 : -INFINITY));
      }
      all.push_back(mask);
      const ir::Literal want = testing::value_of({"attention", all});
      ir::Literal& v = all[2];
      for (std::int64_t k = 0; k < v.count(); ++k) {
        const std::int64_t key = k / 4 % 300;
        if (key < 64 || key >= 256) v.set(k, NAN);
      }
      const ir::Graph graph = testing::graph_of({"attention", all});
      testing::expect_close(run_program(graph, lowered(graph), all, as_code()).at(0), want, 1e-4);
    }
  }
}

TEST(AttentionNest, QueriesThatSeeNothingGiveZero) {
  std::vector<ir::Literal> all = operands({1, 1, 3, 70, 4, 4});
  ir::Literal mask = noise(f32, {3, 70});
  for (std::int64_t k = 0; k < 70; ++k) mask.set(70 + k, -INFINITY);
  for (std::int64_t k = 0; k < 66; ++k) mask.set(k, -INFINITY);
  all.push_back(mask);
  expect_nest_right({"attention", all}, 1e-4);
}

/// As a softmax that is written out: NaN where all scores are -inf, 0 where there are no keys.
TEST(AttentionNest, NanRows) {
  std::vector<ir::Literal> all = operands({1, 1, 3, 70, 4, 4});
  ir::Literal mask = noise(f32, {3, 70});
  for (std::int64_t k = 0; k < 70; ++k) mask.set(70 + k, -INFINITY);
  for (std::int64_t k = 0; k < 66; ++k) mask.set(k, -INFINITY);
  all.push_back(mask);
  const ir::Attrs nan_rows{{"nan_rows", true}};
  const testing::OneOp call{"attention", all, nan_rows};
  const ir::Literal value = testing::value_of(call);
  EXPECT_FALSE(std::isnan(value.at(0)));
  EXPECT_TRUE(std::isnan(value.at(4)));
  EXPECT_FALSE(std::isnan(value.at(8)));
  expect_nest_right(call, 1e-4);
  expect_nest_right({"attention", operands({2, 2, 5, 0, 4, 4}), nan_rows}, 1e-4);
  expect_nest_right({"attention", operands({2, 2, 5, 70, 4, 4}), nan_rows}, 1e-4);
}

TEST(AttentionNest, AFiniteScoreForWhatIsHidden) {
  std::vector<ir::Literal> all = operands({2, 2, 6, 70, 4, 4});
  ir::Literal mask = noise(boolean, {6, 70}, 4);
  for (std::int64_t k = 0; k < 70; ++k) mask.set(70 + k, 0);
  all.push_back(mask);
  for (const double hidden : {-1e4, -3.0, 0.5})
    for (const bool causal : {false, true})
      expect_nest_right(
          {"attention", all, {{"hidden", hidden}, {"causal", causal}, {"nan_rows", true}}}, 1e-4);
}

TEST(AttentionNest, ANaNScoreMakesItsQueryNaN) {
  std::vector<ir::Literal> all = operands({1, 1, 3, 70, 4, 4});
  all[0] = testing::with_nan(all[0], 5);
  expect_nest_right({"attention", all}, 1e-4);
}

TEST(AttentionNest, SizesThatAreNotKnownAndViews) {
  ir::GraphBuilder b("main");
  const ir::Attrs heads_first{{"perm", Ints{0, 2, 1, 3}}};
  std::vector<ir::Value> turned;
  for (const char* length : {"s1", "s2", "s2"}) {
    const ir::Value x = b.input(tensor(f32, {"s0", length, "2", "s3"}));
    turned.push_back(b.emit("permute", {x}, heads_first));
  }
  const ir::Value y = b.call("attention", turned, {{"causal", true}})->value();
  b.output(b.emit("relu", {y}));
  const ir::Graph graph = b.finish();
  EXPECT_EQ(kernels(graph).size(), 1u);
  expect_code_right_at(graph, {2, 3, 5, 4}, 1e-4);
  expect_code_right_at(graph, {1, 2, 65, 66}, 1e-4);
}

/// Whose scores are sums of neighbouring terms, up to eight rows of a tile: blocks of 4, 2 and 1 rows, and keys left over.
TEST(AttentionNest, FewQueriesOfEachNumber) {
  for (const char* type : {"f32", "f16", "bf16", "f64"})
    for (const auto& [heads, bytes] :
         {std::pair("1", 64), {"3", 64}, {"8", 64}, {"3", 32}, {"3", 16}}) {
      const std::string of = std::string("[1, ") + heads + ", s0, 32]";
      const ir::Graph graph = ir::parse(std::string("graph @main(%q: ") + type + of +
                                        ", %k: " + type + "[1, 1, s1, 32], %v: " + type +
                                        "[1, 1, s1, 5]) {\n  %y = attention(%q, %k, %v)\n"
                                        "  return %y\n}\n");
      const jit::Program program = jit::lower(graph, {.target = jit::LowerOptions::Target::Cpu});
      const RunOptions options = as_code_once(bytes);
      for (const std::int64_t queries : {1, 2, 3, 9})
        for (const std::int64_t keys : {1, 7, 16, 23, 64, 70, 133}) {
          SCOPED_TRACE(std::string(type) + " " + heads + " " + std::to_string(queries) + " " +
                       std::to_string(keys) + " " + std::to_string(bytes));
          expect_program_right(graph, program, random_arguments(graph, {queries, keys}), options,
                               type[1] == '1' || type[0] == 'b' ? 1e-2 : 1e-4);
          if (::testing::Test::HasFailure()) return;
        }
    }
}

TEST(AttentionNest, KeysThatLieAlongNeitherSide) {
  ir::GraphBuilder b("main");
  const ir::Value q = b.input(tensor(f32, {"2", "2", "s0", "70"}));
  const ir::Value k = b.input(tensor(f32, {"70", "66", "2", "2"}));
  const ir::Value v = b.input(tensor(f32, {"2", "2", "66", "70"}));
  const ir::Value turned = b.emit("permute", {k}, {{"perm", Ints{2, 3, 1, 0}}});
  b.output(b.emit("attention", {q, turned, v}));
  expect_code_right_at(b.finish(), {5}, 1e-4);
}

}  // namespace
}  // namespace heddle::test
