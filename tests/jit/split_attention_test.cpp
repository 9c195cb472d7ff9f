// Attention of few queries in parts of the keys.
#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

/// q[1, 6, queries, 16] over keys[1, shared, keys, 16].
ir::Graph few_queries(const char* queries, const char* shared, const char* keys,
                      ir::Attrs attrs = {}, const char* masked = nullptr) {
  ir::GraphBuilder b("main");
  std::vector<ir::Value> all{b.input(tensor(f32, {"1", "6", queries, "16"})),
                             b.input(tensor(f32, {"1", shared, keys, "16"})),
                             b.input(tensor(f32, {"1", shared, keys, "16"}))};
  if (masked != nullptr) all.push_back(b.input(tensor(boolean, {"1", "1", masked, keys})));
  b.output(b.call("attention", all, std::move(attrs))->value());
  return b.finish();
}

using Names = std::vector<std::string>;
const Names kWhole{"attention"};
const Names kInParts{"attention_parts", "join_attention"};

TEST(SplitAttention, WhereHeadsAndQueriesAreFewForTheKeys) {
  EXPECT_EQ(kernels(few_queries("1", "2", "400")), kInParts);
  EXPECT_EQ(kernels(few_queries("s0", "2", "s1")), kInParts);
  EXPECT_EQ(kernels(few_queries("1", "2", "128")), kWhole);
  EXPECT_EQ(kernels(few_queries("8", "2", "400")), kWhole);
  EXPECT_EQ(kernels(few_queries("1", "6", "384")), kWhole);
  EXPECT_EQ(kernels(few_queries("s0", "2", "s0")), kWhole);
  EXPECT_EQ(kernels(few_queries("s0", "2", "128")), kWhole);
  const jit::LowerOptions cuda{.target = jit::LowerOptions::Target::Cuda};
  EXPECT_EQ(jit::lower(few_queries("1", "2", "400"), cuda).kernels.size(), 1u);
}

void expect_right_as_code(const ir::Graph& graph, const Ints& sizes) {
  expect_program_right(graph, lowered(graph), random_arguments(graph, sizes), as_code(), 1e-5);
}

TEST(SplitAttention, GivesWhatAttentionGives) {
  for (const char* shared : {"1", "2", "3", "6"}) {
    SCOPED_TRACE(shared);
    for (const bool causal : {false, true}) {
      const ir::Graph any = few_queries("s0", shared, "s1", {{"causal", causal}}, "s0");
      for (const Ints& sizes :
           {Ints{1, 1}, Ints{1, 128}, Ints{1, 129}, Ints{1, 1000}, Ints{3, 1000}, Ints{40, 90}})
        expect_right_as_code(any, sizes);
    }
  }
  expect_code_right_at(few_queries("s0", "2", "s1", {{"causal", true}}, "s0"), {1, 300});
  expect_right_as_code(few_queries("1", "1", "9000"), {});  // more than a tile of parts
  expect_code_right_at(few_queries("s0", "2", "s1", {{"nan_rows", true}}), {1, 0});
}

/// What reads the result of the parts does so while they are joined.
TEST(SplitAttention, WhatFollowsIsDoneWithTheJoin) {
  ir::GraphBuilder b("main");
  const ir::Value q = b.input(tensor(bf16, {"1", "6", "1", "16"}));
  const ir::Value k = b.input(tensor(bf16, {"1", "2", "400", "16"}));
  const ir::Value y = b.emit("attention", {q, k, k});
  b.output(b.emit("tanh", {y}));
  const ir::Graph graph = b.finish();
  EXPECT_EQ(kernels(graph), (Names{"attention_parts", "join_attention_convert_tanh"}));
  expect_code_right_at(graph, {}, 1e-2);
}

}  // namespace
}  // namespace heddle::test
