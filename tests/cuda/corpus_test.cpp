// Graphs in text on the CUDA device, on streams and as graphs of the device, in several interleavings, against the
// evaluator.

#include "engine/tensor_impl.h"
#include "ir/evaluate.h"
#include "ir/text.h"
#include "tests/cuda/support.h"
#include "tests/jit/cuda_graph_cases.h"

namespace heddle::testing {
namespace {

using tests::cuda_graph_cases;

/// Numbers in [-2, 2], integers from -3 to 3, for every input.
std::vector<Tensor> inputs_of(const ir::Graph& graph, const std::vector<std::int64_t>& sizes) {
  std::vector<Tensor> inputs;
  std::uint32_t seed = 1;
  for (const ir::Value& input : graph.inputs()) {
    ir::Sizes concrete;
    for (const auto& size : input.meta().sizes) concrete.push_back(size.evaluate_sizes(sizes));
    inputs.push_back(engine::from_literal(noise(input.meta().dtype, concrete, seed++)));
  }
  return inputs;
}

class CudaCorpus : public ::testing::TestWithParam<std::size_t> {};

TEST_P(CudaCorpus, RunsLikeTheEvaluatorInEveryInterleaving) {
  const auto& one = cuda_graph_cases()[GetParam()];
  const ir::Graph graph = ir::parse(one.text);
  EngineOptions options = on_cuda(0, true);
  options.check_plans = true;
  Engine engine = parse_ir(one.text, options);
  Engine streams = parse_ir(one.text, on_cuda(0, false));
  Engine reference = parse_ir(one.text, {.device = Device::reference()});
  for (const auto& sizes : one.sizes) {
    SCOPED_TRACE(::testing::PrintToString(sizes));
    const std::vector<Tensor> inputs = inputs_of(graph, sizes);
    const std::vector<Tensor> want = reference.run(inputs);
    const std::vector<Tensor> on_streams = streams.run(inputs);
    for (unsigned long seed = 0; seed < 4; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      interleave(seed);
      const std::vector<Tensor> got = engine.run(inputs);
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t k = 0; k < want.size(); ++k) {
        expect_near(got[k], want[k], is_floating(want[k].dtype()) ? 4 * one.tolerance : 0);
        expect_near(got[k], on_streams[k], 0);
      }
    }
    interleave(0);
  }
  EXPECT_EQ(engine.stats().evaluator_steps, 0u);
  EXPECT_GT(engine.stats().graph_launches, 0u);
}

INSTANTIATE_TEST_SUITE_P(Graphs, CudaCorpus,
                         ::testing::Range(std::size_t{0}, cuda_graph_cases().size()),
                         [](const auto& info) {
                           const std::string text = cuda_graph_cases()[info.param].text;
                           const std::size_t begin = text.find('@') + 1;
                           return text.substr(begin, text.find('(') - begin);
                         });

}  // namespace
}  // namespace heddle::testing
