// Steps cut into pieces that take turns give what whole steps give, bit by bit.
#include "engine/chains.h"

#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>

#include "base/check.h"
#include "engine/context.h"
#include "engine/executable.h"
#include "ir/evaluate.h"
#include "ir/text.h"
#include "tests/support/one_op.h"

namespace heddle::engine {
namespace {

class Chains : public ::testing::Test {
 protected:
  void SetUp() override {
    if (HEDDLE_WITH_LLVM == 0) GTEST_SKIP() << "this build compiles nothing for the CPU";
  }
};

/// A graph compiled and bound for a thread's cache of so many bytes.
class Bound {
 public:
  Bound(const std::string& text, int threads, std::int64_t cache_bytes, bool fuse)
      : graph_(ir::parse(text)), executor_(threads) {
    BuildOptions options;
    options.engine.threads = threads;
    options.engine.fuse = fuse;
    options.engine.check_plans = true;
    options.compiler = &jit::CompileService::shared();
    options.cache_bytes = cache_bytes;
    executable_ = std::make_shared<Executable>(graph_, Guards{}, options);
    plan_ = executable_->bind({}, threads);
  }

  BoundPlan& plan() { return *plan_; }
  std::size_t pieces() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(plan_->stages, &scheduler::BoundStage::is_partial));
  }
  /// Whether a step begins before the one before it has ended.
  bool takes_turns() const {
    for (std::size_t k = 1; k < plan_->stages.size(); ++k)
      if (plan_->stages[k].first < plan_->stages[k - 1].first) return true;
    return false;
  }

  std::vector<ir::Literal> run() {
    std::vector<ir::Literal> results;
    std::vector<Tensor> inputs;
    std::vector<Tensor> outputs;
    std::vector<ir::Literal> arguments;
    for (const ir::Value& input : graph_.inputs()) {
      ir::Sizes sizes;
      for (const ir::SymExpr& size : input.meta().sizes) sizes.push_back(size.constant());
      arguments.push_back(testing::noise(input.meta().dtype, sizes,
                                         static_cast<std::uint32_t>(arguments.size() + 1)));
      inputs.push_back(wrapped(arguments.back()));
    }
    for (std::size_t k = 0; k < plan_->output_sizes.size(); ++k) {
      results.emplace_back(graph_.outputs()[k].meta().dtype, plan_->output_sizes[k]);
      outputs.push_back(wrapped(results.back()));
    }
    ExecutionContext context;
    context.use(*plan_);
    context.set_io(*plan_, inputs, outputs);
    EXPECT_EQ(context.run(executor_), 0);
    return results;
  }

 private:
  static Tensor wrapped(const ir::Literal& literal) {
    return Tensor::wrap(const_cast<void*>(literal.data()), literal.dtype(), literal.sizes());
  }

  ir::Graph graph_;
  scheduler::Executor executor_;
  std::shared_ptr<Executable> executable_;
  std::unique_ptr<BoundPlan> plan_;
};

/// Runs the graph whole and in pieces.
void expect_same_in_pieces(const std::string& text, std::int64_t cache_bytes, bool fuse = true) {
  for (const int threads : {1, 2, 3}) {
    SCOPED_TRACE(threads);
    Bound whole(text, threads, 0, fuse);
    Bound cut(text, threads, cache_bytes, fuse);
    EXPECT_EQ(whole.pieces(), 0u);
    EXPECT_GT(cut.pieces(), 4u);
    EXPECT_TRUE(cut.takes_turns());
    const std::vector<ir::Literal> want = whole.run();
    const std::vector<ir::Literal> got = cut.run();
    for (std::size_t k = 0; k < want.size(); ++k)
      EXPECT_EQ(
          std::memcmp(got[k].data(), want[k].data(), static_cast<std::size_t>(want[k].bytes())), 0);
  }
}

/// Each step reads what the one before it wrote at the same place, and takes its bytes.
TEST_F(Chains, OfOpsInPlace) {
  expect_same_in_pieces(
      "graph @main(%x: f32[1000, 1000]) {\n"
      "  %a = exp(%x)\n"
      "  %b = softmax(%a) {axis = -1}\n"
      "  %c = mul(%b, %x)\n"
      "  %y = sqrt(%c)\n"
      "  return %y\n"
      "}\n",
      200000, false);
}

/// Windows reach over what is next: a piece waits for one more of the piece before.
TEST_F(Chains, OfConvolutionsOfALargeImage) {
  if (HEDDLE_WITH_ONEDNN == 0) GTEST_SKIP() << "this build has no oneDNN";
  expect_same_in_pieces(
      "graph @main(%x: f32[1, 16, 600, 320], %v: f32[16, 1, 3, 3], %w: f32[16, 16, 3, 3], %p: "
      "f32[8, 16, 1, 1]) {\n"
      "  %a = conv(%x, %v) {strides = [1, 1], pads_low = [1, 1], pads_high = [1, 1], dilations = "
      "[1, 1], groups = 16}\n"
      "  %b = relu(%a)\n"
      "  %c = conv(%b, %w) {strides = [1, 1], pads_low = [1, 1], pads_high = [1, 1], dilations = "
      "[1, 1]}\n"
      "  %y = conv(%c, %p) {strides = [2, 2], pads_low = [0, 0], pads_high = [0, 0], dilations = "
      "[1, 1]}\n"
      "  return %y\n"
      "}\n",
      900000);
}

TEST(BestChains, KeepTheMostTogether) {
  using Choice = std::vector<std::size_t>;
  EXPECT_EQ(best_chains({}), Choice{});
  // The longest from the first stage on would leave the largest link out.
  const ChainValue overlapping[] = {{0, 2, 6}, {0, 3, 12}, {0, 4, 18}, {3, 2, 25}, {5, 2, 1}};
  EXPECT_EQ(best_chains(overlapping), (Choice{1, 3, 4}));
  const ChainValue nested[] = {{1, 2, 5}, {1, 4, 5}, {2, 2, 9}, {4, 3, 2}};
  EXPECT_EQ(best_chains(nested), (Choice{2, 3}));
  const ChainValue nothing[] = {{0, 2, 0}};
  EXPECT_EQ(best_chains(nothing), Choice{});
}

/// A reader of everything ends a chain.
TEST_F(Chains, NotWhereAStepReadsAll) {
  Bound bound(
      "graph @main(%x: f32[300, 1000]) {\n"
      "  %a = exp(%x)\n"
      "  %b = reverse(%a) {axes = [0]}\n"
      "  %c = cumsum(%b) {axis = 0}\n"
      "  return %c\n"
      "}\n",
      2, 65536, false);
  EXPECT_FALSE(bound.takes_turns());
}

TEST_F(Chains, NotWhereAllStaysInTheCaches) {
  Bound bound(
      "graph @main(%x: f32[300, 1000]) {\n"
      "  %a = exp(%x)\n"
      "  %y = sqrt(%a)\n"
      "  return %y\n"
      "}\n",
      2, 151000, false);
  EXPECT_EQ(bound.pieces(), 0u);
}

/// The proof sees a piece that does not wait, one that runs twice and one that is left out.
TEST_F(Chains, AreProved) {
  const std::string text =
      "graph @main(%x: f32[1000, 1000]) {\n"
      "  %a = exp(%x)\n"
      "  %y = softmax(%a) {axis = -1}\n"
      "  return %y\n"
      "}\n";
  for (const int threads : {1, 2, 3}) {
    Bound bound(text, threads, 200000, false);
    std::vector<scheduler::BoundStage>& stages = bound.plan().stages;
    ASSERT_TRUE(bound.takes_turns());
    EXPECT_NO_THROW(check_chains(bound.plan()));
    const std::vector<scheduler::BoundStage> right = stages;
    std::ranges::stable_sort(stages, std::greater(), &scheduler::BoundStage::first);
    EXPECT_THROW(check_chains(bound.plan()), InternalError);
    stages = right;
    stages.pop_back();
    EXPECT_THROW(check_chains(bound.plan()), InternalError);
    stages = right;
    stages.push_back(right.back());
    EXPECT_THROW(check_chains(bound.plan()), InternalError);
    stages = right;
    std::erase_if(stages, [](const scheduler::BoundStage& stage) { return stage.first == 1; });
    stages.insert(stages.begin() + 1, {1, 1});
    EXPECT_THROW(check_chains(bound.plan()), InternalError) << "whole between pieces";
  }
}

/// The first of a window's rows in one worker's share is the last of the other's.
TEST_F(Chains, AreProvedAcrossShares) {
  if (HEDDLE_WITH_ONEDNN == 0) GTEST_SKIP() << "this build has no oneDNN";
  Bound bound(
      "graph @main(%x: f32[1, 16, 600, 320], %v: f32[16, 1, 3, 3], %w: f32[16, 16, 3, 3]) {\n"
      "  %a = conv(%x, %v) {strides = [1, 1], pads_low = [1, 1], pads_high = [1, 1], dilations = "
      "[1, 1], groups = 16}\n"
      "  %b = conv(%a, %w) {strides = [1, 1], pads_low = [1, 1], pads_high = [1, 1], dilations = "
      "[1, 1]}\n"
      "  return %b\n"
      "}\n",
      2, 900000, true);
  ASSERT_TRUE(bound.takes_turns());
  std::vector<scheduler::BoundStage>& stages = bound.plan().stages;
  // As many pieces of the second step as of the first, none of which waits for the one that its last row reads.
  const auto of = [&](std::uint32_t step) {
    return std::ranges::count(stages, step, &scheduler::BoundStage::first);
  };
  const std::uint32_t pieces = stages.front().pieces;
  ASSERT_GT(of(0), 1);
  std::vector<scheduler::BoundStage> eager;
  for (std::uint32_t k = 0; k < pieces; ++k) {
    eager.push_back({0, 1, k, pieces});
    eager.push_back({1, 1, k, pieces});
  }
  stages = eager;
  EXPECT_THROW(check_chains(bound.plan()), InternalError);
}

}  // namespace
}  // namespace heddle::engine
