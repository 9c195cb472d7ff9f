// Random graphs whose batches are run some entries at a time (engine/batch_runs.h) give the same bits as whole ones.
#include <cstring>
#include <gtest/gtest.h>

#include "engine/context.h"
#include "engine/executable.h"
#include "ir/text.h"
#include "tests/support/nightly.h"
#include "tests/support/one_op.h"
#include "tests/support/random_graph.h"

namespace heddle::test {
namespace {

using ir::Literal;

struct Outcome {
  std::vector<Literal> results;
  std::size_t batches = 0;
};

Tensor wrapped(const Literal& literal) {
  return Tensor::wrap(const_cast<void*>(literal.data()), literal.dtype(), literal.sizes());
}

Outcome run(const ir::Graph& graph, const std::vector<std::int64_t>& sizes, int threads, bool fuse,
            std::int64_t cache_bytes) {
  base::SymbolValues values;
  for (std::uint32_t k = 0; k < sizes.size(); ++k)
    values[base::Symbol{base::Symbol::Kind::Size, k}] = sizes[k];
  engine::BuildOptions options;
  options.engine.threads = threads;
  options.engine.fuse = fuse;
  options.engine.check_plans = true;
  options.compiler = &jit::CompileService::shared();
  options.cache_bytes = cache_bytes;
  options.threads = threads;
  const auto executable = std::make_shared<engine::Executable>(graph, engine::Guards{}, options);
  const auto plan = executable->bind(values, threads);
  Outcome outcome;
  outcome.batches = plan->batches.size();
  std::vector<Literal> arguments;
  for (const ir::Value& input : graph.inputs()) {
    ir::Sizes numbers;
    for (const ir::SymExpr& size : input.meta().sizes) numbers.push_back(size.evaluate(values));
    const auto number = static_cast<std::uint32_t>(arguments.size() + 1);
    arguments.push_back(testing::noise(input.meta().dtype, numbers, number));
  }
  std::vector<Tensor> inputs, outputs;
  for (const Literal& argument : arguments) inputs.push_back(wrapped(argument));
  for (std::size_t k = 0; k < plan->output_sizes.size(); ++k) {
    outcome.results.emplace_back(graph.outputs()[k].meta().dtype, plan->output_sizes[k]);
    outputs.push_back(wrapped(outcome.results.back()));
  }
  scheduler::Executor executor(threads);
  engine::ExecutionContext context;
  context.use(*plan);
  context.set_io(*plan, inputs, outputs);
  EXPECT_EQ(context.run(executor), 0);
  return outcome;
}

TEST(RandomBatches, GiveTheSameBits) {
  if (HEDDLE_WITH_LLVM == 0) GTEST_SKIP() << "this build compiles nothing for the CPU";
  std::size_t with_batches = 0;
  const std::uint32_t seeds = is_nightly() ? 1000 : 120;
  for (std::uint32_t seed = 1; seed <= seeds; ++seed) {
    const ir::Graph graph = RandomGraph(seed).make();
    const std::vector<std::int64_t> sizes{2 + seed % 7, 3 + seed % 4};
    const int threads = 1 + static_cast<int>(seed % 3);
    const bool fuse = seed % 2 == 0;
    const Outcome whole = run(graph, sizes, threads, fuse, 0);
    const Outcome apart = run(graph, sizes, threads, fuse, 64);
    with_batches += apart.batches != 0 ? 1 : 0;
    for (std::size_t k = 0; k < whole.results.size(); ++k)
      ASSERT_EQ(
          std::memcmp(whole.results[k].data(), apart.results[k].data(), whole.results[k].bytes()),
          0)
          << "seed " << seed << ", output " << k << "\n"
          << ir::print(graph);
  }
  EXPECT_GT(with_batches, seeds / 10);
}

}  // namespace
}  // namespace heddle::test
