// Kernels of groups that are alike are built once.
#include "jit/lower/kernel_memo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdexcept>
#include <thread>

#include "ir/text.h"
#include "jit/lower/region.h"
#include "tests/jit/lower_support.h"

namespace heddle::test {
namespace {

using ::testing::ElementsAre;

int built = 0;
bool asks_for_checks = false;

/// A kernel that reads the operands of a group's first node and stores its result.
jit::BuiltKernel build_stub(const jit::LoweringState& state, std::uint32_t group) {
  ++built;
  if (asks_for_checks) state.shared.checks.code("what", "where");
  jit::BuiltKernel kernel;
  kernel.nest = std::make_shared<const jit::Nest>();
  kernel.nodes = state.grouping.groups[group].nodes;
  kernel.buffers.assign(kernel.nodes[0]->inputs().begin(), kernel.nodes[0]->inputs().end());
  kernel.buffers.push_back(kernel.nodes.back()->value());
  return kernel;
}

/// The groups of a graph whose outputs are in memory.
struct Groups {
  Groups(const ir::Graph& graph, jit::LowerOptions given)
      : options(std::move(given)),
        live(graph, options),
        reads(live),
        grouping(jit::form_groups(reads)),
        placement(live) {
    for (const ir::Value& output : graph.outputs())
      placement.place(output, grouping.group_of[live.position(output.node)]);
  }
  jit::LowerOptions options;  // what the others refer to
  jit::LiveGraph live;
  jit::ReadAnalysis reads;
  jit::Grouping grouping;
  jit::Placement placement;
  jit::SharedLowering shared;
  jit::LoweringState state{reads, grouping, placement, shared};
};

/// How many kernels are built of the results of `body`, each of which is a kernel's; the values of the last.
struct Memo {
  int built = 0;
  std::vector<std::string> last;
};
Memo memo_of(const std::string& body, const std::string& results) {
  const ir::Graph graph =
      ir::parse("graph @main(%x: f32[8, 4], %y: f32[8, 4], %z: f32[4, 8], %w: f16[8, 4]) {\n" +
                body + "  return " + results + "\n}\n");
  const Groups groups(graph, {.rest = {.fuse = false}});  // a kernel for each node
  jit::KernelMemo memo(groups.state);
  built = 0;
  Memo result;
  for (std::uint32_t k = 0; k < groups.grouping.groups.size(); ++k) {
    result.last.clear();
    for (const ir::Value& value : memo.kernel(k, build_stub).buffers)
      result.last.push_back(value.name());
  }
  result.built = built;
  return result;
}

TEST(KernelMemo, AlikeGroupsAreBuiltOnce) {
  const Memo memo = memo_of("  %a = exp(%x)\n  %b = exp(%y)\n", "%a, %b");
  EXPECT_EQ(memo.built, 1);
  EXPECT_THAT(memo.last, ElementsAre("%y", "%b"));
  EXPECT_EQ(memo_of("  %a = sub(%x, %y)\n  %b = sub(%x, %y)\n", "%a, %b").built, 1);
  EXPECT_EQ(memo_of("  %a = sub(%x, %y)\n  %b = sub(%a, %y)\n", "%a, %b").built, 2)
      << "where one operand is stored by a kernel and one is not";
}

TEST(KernelMemo, WhatDiffersIsBuiltAnew) {
  for (const char* body : {
           "  %a = exp(%x)\n  %b = neg(%y)\n",             // op
           "  %a = exp(%x)\n  %b = exp(%z)\n",             // sizes
           "  %a = exp(%x)\n  %b = exp(%w)\n",             // dtype
           "  %a = add(%x, %x)\n  %b = add(%x, %y)\n",     // one operand or two
           "  %a = sub(%x, %y)\n  %b = sub(%y, %x)\n",     // their order
           "  %c = const 2 : f32\n  %d = const 3 : f32\n"  // a number
           "  %a = mul(%x, %c)\n  %b = mul(%x, %d)\n",
           "  %a = reduce_sum(%x) {axes = [0], keepdims = false}\n"  // an attribute
           "  %b = reduce_sum(%x) {axes = [1], keepdims = false}\n",
       })
    EXPECT_EQ(memo_of(body, "%a, %b").built, 2) << body;
}

TEST(KernelMemo, ChecksNameAPlaceOfTheirOwn) {
  asks_for_checks = true;
  const Memo memo = memo_of("  %a = exp(%x)\n  %b = exp(%y)\n", "%a, %b");
  asks_for_checks = false;
  EXPECT_EQ(memo.built, 2);
}

/// Layers that differ in their weights, in the order of their operands and in where they read: each has its own values.
TEST(KernelMemo, LayersAreRight) {
  const ir::Graph graph = ir::parse(
      R"(graph @main(%x: f32[6, 16], %v: f32[16, 16], %w: f32[16, 16], %p: f32[16], %q: f32[16]) {
  %a0 = matmul(%x, %v)
  %a1 = add(%a0, %p)
  %a2 = tanh(%a1)
  %a3 = softmax(%a2) {axis = 1}
  %b0 = matmul(%a3, %w)
  %b1 = add(%b0, %q)
  %b2 = tanh(%b1)
  %b3 = softmax(%b2) {axis = 1}
  %c0 = matmul(%b3, %v)
  %c1 = add(%q, %c0)
  %c2 = tanh(%c1)
  %c3 = softmax(%c2) {axis = 1}
  %d = sub(%a2, %c2)
  return %c3, %d
}
)");
  const auto arguments = random_arguments(graph, {});
  expect_right(graph, arguments);
  jit::LowerOptions options;
  options.build_all = true;
  expect_program_right(graph, jit::lower(graph, options), arguments, {}, 1e-5);
}

/// Kernels built ahead, on several threads and the last ones first, are those of one thread: checks have the same numbers, and
/// what cannot be built is told in its turn.
TEST(KernelMemo, BuiltAheadOnThreads) {
  const ir::Graph graph = ir::parse(
      R"(graph @main(%x: f32[s0, 16], %v: f32[16, 16], %i: i64[s1], %j: i64[s1]) {
  %a0 = exp(%x)
  %a1 = softmax(%a0) {axis = 1}
  %b0 = matmul(%a1, %v)
  %b1 = softmax(%b0) {axis = 1}
  %c0 = matmul(%b1, %v)
  %c1 = softmax(%c0) {axis = 1}
  %d = gather(%c1, %i) {axis = 0}
  %e = gather(%a1, %j) {axis = 0}
  %s = cumsum(%e) {axis = 0}
  %t = reduce_sum(%x) {axes = [0], keepdims = false}
  return %c1, %d, %s, %t
}
)");
  const auto texts_of = [](const jit::Program& program) {
    std::vector<std::string> texts;
    for (const auto& kernel : program.kernels)
      if (kernel.nest) texts.push_back(print(*kernel.nest));
    for (const jit::RuntimeCheck& check : program.checks)
      texts.push_back(check.what + " " + check.where);
    return texts;
  };
  jit::LowerOptions options;
  const jit::Program alone = jit::lower(graph, options);
  std::size_t ahead = 0;
  options.for_each = [&](std::size_t count, const std::function<void(std::size_t)>& work) {
    ahead += count;
    std::vector<std::thread> threads;
    for (std::size_t k = count; k-- > 0;) threads.emplace_back(work, k);
    for (std::thread& thread : threads) thread.join();
  };
  const jit::Program program = jit::lower(graph, options);
  EXPECT_EQ(texts_of(program), texts_of(alone));
  ASSERT_GE(program.checks.size(), 2u);
  EXPECT_GT(ahead, 2u);
  EXPECT_LT(ahead, program.kernels.size()) << "layers that are alike have one";
  expect_program_right(graph, program, random_arguments(graph, {5, 3}), {}, 1e-5);
  options.build_all = true;
  EXPECT_EQ(texts_of(jit::lower(graph, options)), texts_of(alone));
}

TEST(KernelMemo, WhatCannotBeBuiltAheadIsBuiltInItsTurn) {
  const ir::Graph graph = ir::parse(
      "graph @main(%x: f32[8, 4], %y: f32[4]) {\n  %a = exp(%x)\n  %b = neg(%y)\n  return %a, "
      "%b\n}\n");
  const jit::LowerOptions options{
      .rest = {.fuse = false},
      .for_each = [](std::size_t count, const std::function<void(std::size_t)>& work) {
        for (std::size_t k = 0; k < count; ++k) work(k);
      }};
  const Groups groups(graph, options);
  jit::KernelMemo memo(groups.state);
  const auto fails = [](const jit::LoweringState&, std::uint32_t) -> jit::BuiltKernel {
    ++built;
    throw std::runtime_error("not this one");
  };
  built = 0;
  memo.build_ahead({{0, build_stub}, {1, fails}});
  EXPECT_EQ(built, 2);
  memo.kernel(0, build_stub);
  EXPECT_EQ(built, 2) << "it was built ahead";
  EXPECT_THROW(memo.kernel(1, fails), std::runtime_error);
  EXPECT_EQ(built, 3);
}

/// Nodes of a kernel are told in the order in which the kernel wants them, whatever their addresses: plans of two runs can be compared.
TEST(Kernel, TellsNodesInTheOrderOfTheirUse) {
  ir::GraphBuilder b("main");
  ir::Value x = b.input(ir::TensorMeta::of(f32, {8, 8}));
  std::vector<std::string> views;  // the last one first
  for (int k = 0; k < 12; ++k) {
    const std::vector<std::int64_t> perm{1, 0};
    x = b.emit("permute", {b.emit("neg", {x})}, {{"perm", perm}});
    views.insert(views.begin(), std::string(x.node->name()));
  }
  b.output(b.emit("neg", {x}));
  const jit::Program program = lowered(b.finish());
  ASSERT_EQ(program.record.kernels.size(), 1u);
  std::vector<std::string> told = program.record.kernels[0].nodes;
  std::erase_if(told,
                [&](const std::string& name) { return std::ranges::count(views, name) == 0; });
  EXPECT_EQ(told, views) << ::testing::PrintToString(program.record.kernels[0].nodes);
}

}  // namespace
}  // namespace heddle::test
