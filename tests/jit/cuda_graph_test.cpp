// Whole graphs on CUDA: lowered for it, their kernels emitted, taken by NVRTC, and run on the simulated
// device against the reference evaluator.
#include <gtest/gtest.h>
#include <map>

#include "heddle/error.h"
#include "ir/evaluate.h"
#include "ir/text.h"
#include "tests/jit/cuda_runner.h"
#include "tests/jit/lower_support.h"
#include "tests/jit/random_graph.h"
#include "tests/support/one_op.h"

namespace heddle::tests {
namespace {

struct GraphCase {
  const char* text;
  std::vector<std::vector<std::int64_t>> sizes;  ///< values of s0, s1, … to run at
  double tolerance = 1e-5;
};

const std::vector<GraphCase>& graphs() {
  static const std::vector<GraphCase> cases = {
      {R"(graph @pointwise(%x: f32[s0, s1], %y: f32[s1], %z: f32[s0, 1]) {
            %a = mul(%x, %y)
            %b = tanh(%a)
            %c = add(%b, %z)
            %d = lt(%c, %x)
            %e = where(%d, %c, %x)
            %f = permute(%e) {perm = [1, 0]}
            return %e, %f
          })",
       {{5, 37}, {1, 1}, {0, 3}}},
      {R"(graph @mlp(%x: f32[s0, 24], %w: f32[24, 70], %bias: f32[70]) {
            %m = matmul(%x, %w)
            %a = add(%m, %bias)
            %g = gelu(%a)
            return %g
          })",
       {{40}, {1}, {33}}},
      {R"(graph @mlp_half(%x: f16[s0, 24], %w: f16[24, 40], %bias: f16[40]) {
            %m = matmul(%x, %w)
            %a = add(%m, %bias)
            %g = gelu(%a) {approximate = "tanh"}
            return %g
          })",
       {{9}},
       4e-3},
      {R"(graph @attention(%q: f32[s0, 2, s1, 8], %k: f32[s0, 2, s2, 8], %v: f32[s0, 2, s2, 8]) {
            %o = attention(%q, %k, %v)
            return %o
          })",
       {{2, 5, 11}, {1, 1, 1}, {1, 33, 70}}},
      {R"(graph @causal(%q: f32[1, 4, s0, 16], %k: f32[1, 2, s0, 16], %v: f32[1, 2, s0, 16]) {
            %o = attention(%q, %k, %v) {causal = true}
            return %o
          })",
       {{7}, {40}}},
      {R"(graph @norms(%x: f32[s0, s1], %w: f32[s1], %b: f32[s1]) {
            %a = layer_norm(%x, %w, %b)
            %c = softmax(%a)
            %d = log_softmax(%x) {axis = 0}
            %e = rms_norm(%x, %w)
            return %a, %c, %d, %e
          })",
       {{3, 100}, {2, 1}, {1, 300}}},
      {R"(graph @reductions(%x: f32[s0, s1, 6]) {
            %a = reduce_sum(%x) {axes = [1]}
            %b = reduce_max(%x) {axes = [0, 2]}
            %c = variance(%x) {axes = [2]}
            %d = argmax(%x) {axis = 1}
            %e = reduce_mean(%x) {axes = [0, 1, 2]}
            %f = reduce_prod(%x) {axes = [2], keepdims = true}
            return %a, %b, %c, %d, %e, %f
          })",
       {{4, 9}, {1, 1}}},
      {R"(graph @moves(%x: f32[s0, 6], %i: i64[s1]) {
            %n = neg(%x)
            %a = concat(%x, %n) {axis = 0}
            %b = slice(%a) {start = [0, 1], limit = [2*s0, 6], stride = [1, 2]}
            %p = pad(%b) {low = [1, 0], high = [0, 2]}
            %r = reverse(%p) {axes = [1]}
            return %a, %r
          })",
       {{3, 4}, {1, 1}}},
      {R"(graph @integers(%x: i32[s0, s1], %y: i64[s1], %z: bool[s0, s1]) {
            %a = add(%x, %y)
            %b = mod(%a, 3: i64)
            %c = reduce_sum(%b) {axes = [1]}
            %d = convert(%x) {dtype = i8}
            %e = where(%z, %d, 7: i8)
            %f = reduce_and(%z) {axes = [0]}
            return %b, %c, %e, %f
          })",
       {{5, 9}, {1, 2}}},
      {R"(graph @lookup(%table: f16[9, s0], %i: i64[s1]) {
            %j = abs(%i)
            %g = gather(%table, %j)
            %s = exp(%g)
            return %s
          })",
       {{5, 6}, {300, 2}},
       4e-3},
      {R"(graph @conv(%x: f32[s0, 4, s1, 9], %w: f32[6, 2, 3, 3], %bias: f32[6]) {
            %c = conv(%x, %w, %bias) {strides = [1, 2], pads_low = [1, 1], pads_high = [1, 0], dilations = [1, 1], groups = 2}
            %r = relu(%c)
            return %r
          })",
       {{2, 7}, {1, 3}}},
      {R"(graph @conv_transpose(%x: f32[s0, 4, 5], %w: f32[4, 3, 3]) {
            %c = conv_transpose(%x, %w) {strides = [2], pads_low = [1], pads_high = [1], dilations = [1], output_padding = [1], groups = 1}
            return %c
          })",
       {{2}}},
      {R"(graph @pools(%x: f32[s0, 3, 8, 9]) {
            %m = max_pool(%x) {kernel = [3, 2], strides = [2, 2], pads_low = [1, 0], pads_high = [1, 1], dilations = [1, 1]}
            %i = max_pool_indices(%x) {kernel = [2, 2], strides = [2, 2], pads_low = [0, 0], pads_high = [0, 0], dilations = [1, 1]}
            %a = avg_pool(%x) {kernel = [2, 2], strides = [1, 2], pads_low = [0, 1], pads_high = [1, 0], dilations = [1, 1]}
            return %m, %i, %a
          })",
       {{2}, {1}}},
      {R"(graph @scans(%x: f32[s0, s1], %y: i32[s0, s1]) {
            %a = cumsum(%x) {axis = 1}
            %b = cumsum(%y) {axis = 0, exclusive = true, reverse = true}
            return %a, %b
          })",
       {{4, 33}, {1, 1}}},
      {R"(graph @scatters(%x: f32[s0, 300], %i: i64[s1, 1], %u: f32[s1, 300], %e: i32[s1, 9], %f: f32[s1, 9]) {
            %a = scatter_nd(%x, %i, %u) {reduction = "add"}
            %b = slice(%x) {start = [0, 0], limit = [s0, 9], stride = [1, 1]}
            %c = scatter_elements(%b, %e, %f) {axis = 0, reduction = "max"}
            %d = scatter_elements(%b, %e, %f) {axis = 1}
            return %a, %c, %d
          })",
       {{5, 5}}},
      {R"(graph @sorts(%x: f32[s0, s1], %y: i32[s0, 40]) {
            %v, %i = sort(%x) {axis = 1, descending = true}
            %w, %j = sort(%x) {axis = 0}
            %t, %k = topk(%y) {k = 7}
            %z = expand(%x) {sizes = [200, s0, s1]}
            %q = reshape(%z) {sizes = [200, s0*s1]}
            %b, %n = topk(%q) {k = 3, axis = 0, largest = false}
            return %v, %i, %w, %j, %t, %k, %b, %n
          })",
       {{3, 150}, {1, 1}}},
  };
  return cases;
}

/// A graph lowered for CUDA, and where it runs.
struct LoweredCase {
  std::string what;
  ir::Graph graph;
  std::vector<std::vector<std::int64_t>> sizes;
  double tolerance;
  jit::Program program;
};

/// Lowered graphs, and each nest of theirs once, under a name of its own.
class Lowered {
 public:
  void add(std::string what, ir::Graph graph, std::vector<std::vector<std::int64_t>> sizes,
           double tolerance, bool fuse = true) {
    jit::Program program = jit::lower(graph, {.target = jit::LowerOptions::Target::Cuda,
                                              .rest = {.fuse = fuse, .library = false}});
    for (const jit::ProgramKernel& kernel : program.kernels) add_kernel(*kernel.nest);
    cases_.push_back(
        {std::move(what), std::move(graph), std::move(sizes), tolerance, std::move(program)});
  }

  /// Every graph at all its sizes, on the simulated device, against the evaluator.
  void expect_right() const {
    SimulatedKernels device(kernels_);
    const auto runner = [&](const jit::Nest& nest, std::span<const test::InterpreterBuffer> buffers,
                            std::span<const std::int64_t> sizes) {
      std::vector<std::span<unsigned char>> spans;
      for (std::size_t b = 0; b < buffers.size(); ++b)
        spans.emplace_back(
            static_cast<unsigned char*>(buffers[b].data),
            static_cast<std::size_t>(buffers[b].count) * size_of(nest.buffers[b].dtype));
      const std::size_t k = position_.at(jit::structural_key(nest).hex());
      return device.run(k, {sizes.begin(), sizes.end()}, spans);
    };
    for (const LoweredCase& one : cases_)
      for (const std::vector<std::int64_t>& sizes : one.sizes) {
        SCOPED_TRACE(one.what);
        SCOPED_TRACE(::testing::PrintToString(sizes));
        expect_right(one, test::random_arguments(one.graph, sizes), runner);
        if (::testing::Test::HasFailure()) return;
      }
  }

  /// All kernels as one text.
  std::string text() const {
    std::string kernels;
    for (const auto& source : kernels_) kernels += source.kernel + "\n";
    return jit::cuda::prelude_for(kernels) + kernels;
  }

 private:
  void add_kernel(jit::Nest nest) {
    const std::string key = jit::structural_key(nest).hex();
    if (!position_.try_emplace(key, kernels_.size()).second) return;
    nest.name += "_" + key.substr(0, 8);
    kernels_.push_back(jit::cuda::emit_cuda(nest));
  }

  static void expect_right(const LoweredCase& one, const std::vector<ir::Literal>& arguments,
                           const test::NestRunner& runner) {
    const auto want = ir::evaluate(one.graph, arguments);
    const auto got = test::run_program(one.graph, one.program, arguments, {.runner = runner});
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t k = 0; k < want.size(); ++k)
      heddle::testing::expect_close(got[k], want[k],
                                    is_floating(want[k].dtype()) ? one.tolerance : 0);
  }

  std::vector<LoweredCase> cases_;
  std::vector<jit::cuda::CudaSource> kernels_;
  std::map<std::string, std::size_t> position_;  ///< of a nest's kernel, by structural key
};

const Lowered& lowered() {
  static const Lowered all = [] {
    Lowered result;
    for (const GraphCase& one : graphs())
      result.add(one.text, ir::parse(one.text), one.sizes, one.tolerance);
    return result;
  }();
  return all;
}

TEST(CudaGraph, RunsLikeTheEvaluator) { lowered().expect_right(); }

TEST(CudaGraph, RandomGraphsRunLikeTheEvaluator) {
  Lowered random;
  for (std::uint32_t seed = 1; seed <= 30; ++seed) {
    const ir::Graph graph = test::RandomGraph(seed).make();
    random.add("seed " + std::to_string(seed) + "\n" + test::text_of(graph), graph,
               {{2 + seed % 2, 19}}, 1e-4, seed % 4 != 0);
  }
  random.expect_right();
}

class CudaGraphNvrtc : public ::testing::TestWithParam<const char*> {};

TEST_P(CudaGraphNvrtc, CompilesTheKernels) {
  std::unique_ptr<device::cuda::Nvrtc> nvrtc;
  try {
    nvrtc = std::make_unique<device::cuda::Nvrtc>();
  } catch (const DeviceError&) {
    GTEST_SKIP() << "libnvrtc is not on this machine";
  }
  const auto compiled =
      nvrtc->compile_cubin(lowered().text(), "graphs", GetParam(), {"--ptxas-options=-O0"});
  EXPECT_EQ(compiled.log, "");
  EXPECT_FALSE(compiled.image.empty());
}

INSTANTIATE_TEST_SUITE_P(Arch, CudaGraphNvrtc, ::testing::Values("sm_80", "sm_90a", "sm_100"),
                         [](const auto& arch) { return std::string(arch.param); });

}  // namespace
}  // namespace heddle::tests
