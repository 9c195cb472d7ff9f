// Lowered graphs as machine code: the compiled nests give what the interpreter gives.
#include <gtest/gtest.h>

#include "tests/jit/lower_support.h"
#include "tests/jit/nest_runner.h"
#include "tests/support/random_graph.h"

#if HEDDLE_WITH_LLVM
namespace heddle::test {
namespace {

std::int32_t run_compiled(const jit::Nest& nest, std::span<const InterpreterBuffer> buffers,
                          std::span<const std::int64_t> sizes) {
  std::vector<void*> addresses;
  for (const InterpreterBuffer& buffer : buffers) addresses.push_back(buffer.data);
  return heddle::tests::CompiledNest(nest).run(addresses, {sizes.begin(), sizes.end()});
}

TEST(LowerLlvm, RandomGraphsAgreeWithTheEvaluator) {
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const ir::Graph graph = RandomGraph(seed).make();
    SCOPED_TRACE(text_of(graph));
    const auto arguments = random_arguments(graph, {2 + seed % 2, 19});
    expect_program_right(graph, lowered(graph), arguments, {.runner = run_compiled}, 1e-4);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace heddle::test
#endif
