// Acceptance cases of the capture partitioner on a device that records: what is queued, in which order, in which graphs
// with which nodes and edges, and what goes in and out of each part.
#include <cstdlib>
#include <gmock/gmock.h>

#include "heddle/cuda_text.h"
#include "heddle/custom_op.h"
#include "tests/control_flow/late_programs.h"
#include "tests/cuda/recorded.h"
#include "tests/support/json.h"

namespace heddle::testing {
namespace {

using test::Json;

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void host_on_cpu(const KernelCall& call) {
  for (std::int64_t k = 0; k < call.tensor(0).count(); ++k)
    call.results[0].as<float>()[k] = call.tensor(0).as<float>()[k] + 1;
}

/// cuda_ct::host(Tensor x) -> Tensor, x + 1, whose work may be in no graph: what stands for work of the host.
void register_host() {
  static const CudaText text(
      R"(extern "C" __global__ void host(const float* x, float* y, long long n) {
    for (long long k = threadIdx.x; k < n; k += blockDim.x) y[k] = x[k] + 1;
  })",
      "host");
  static const RegisteredOp op =
      register_op({.schema = "cuda_ct::host(Tensor x) -> Tensor",
                   .shape = like_first,
                   .cpu = host_on_cpu,
                   .cuda =
                       [](const KernelCall& call, void* stream) {
                         text.launch(call, stream, {.threads = 64},
                                     call.tensor(0).as<const float>(), call.results[0].as<float>(),
                                     static_cast<long long>(call.tensor(0).count()));
                       },
                   .capturable = false});
}

void route_on_cpu(const KernelCall& call) {
  for (std::int64_t k = 0; k < call.tensor(0).count(); ++k) {
    const float x = call.tensor(0).as<float>()[k];
    call.results[0].as<float>()[k] = 2 * x;
    call.results[1].as<float>()[k] = 3 * x;
    call.tensor(1).as<float>()[k] += x;
  }
}

/// cuda_ct::route(Tensor x, Tensor(a!) counts) -> (Tensor, Tensor), 2x and 3x; counts += x.
void register_route() {
  static const CudaText text(
      R"(extern "C" __global__ void route(const float* x, float* counts, float* u, float* v, long long n) {
    for (long long k = threadIdx.x; k < n; k += blockDim.x) {
      const float value = x[k];
      u[k] = 2 * value;
      v[k] = 3 * value;
      counts[k] = counts[k] + value;
    }
  })",
      "route");
  static const RegisteredOp op = register_op(
      {.schema = "cuda_ct::route(Tensor x, Tensor(a!) counts) -> (Tensor, Tensor)",
       .shape = [](const ShapeCall& call) { return std::vector{call.tensor(0), call.tensor(0)}; },
       .cpu = route_on_cpu,
       .cuda =
           [](const KernelCall& call, void* stream) {
             text.launch(call, stream, {.threads = 64}, call.tensor(0).as<const float>(),
                         call.tensor(1).as<float>(), call.results[0].as<float>(),
                         call.results[1].as<float>(),
                         static_cast<long long>(call.tensor(0).count()));
           }});
}

/// A variable of the environment for as long as it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

/// A graph in an engine on the device, with a kernel for each node unless it is to fuse.
class Captured {
 public:
  explicit Captured(const std::string& text, EngineOptions options = on_cuda(1, true),
                    bool fuse = false) {
    register_host();
    register_route();
    options.fuse = fuse;
    options.order = StepOrder::Given;
    engine_.emplace(parse_ir(text, options));
    reference_.emplace(parse_ir(text, {.device = Device::reference()}));
    int start = 0;
    for (const ValueInfo& info : engine_->signature().inputs) {
      Sizes sizes;
      for (const SymInt& size : info.sizes) sizes.push_back(size.is_symbolic() ? 8 : size.value());
      host_inputs_.push_back(counted(info.dtype, sizes, start++));
      inputs_.push_back(host_inputs_.back().to(cuda_device()));
    }
    plan_ = Json::parse(engine_->plan_json(inputs_));
  }

  /// "[x1,y1] [c]!": parts by the nodes of their steps; those that are in no graph have a mark.
  std::string parts() const {
    std::string text;
    for (const Json& part : plan_["captures"]) {
      text += text.empty() ? "[" : " [";
      for (std::size_t k = 0; k < part["steps"].size(); ++k)
        text += (k == 0 ? "" : ",") + nodes_of(part["steps"][k]);
      text += part["captured"].get<bool>() ? "]" : "]!";
    }
    return text;
  }
  const Json& part(std::size_t k) const { return plan_["captures"][k]; }
  EngineStats stats() const { return engine_->stats(); }
  std::int64_t peak_bytes() const { return plan_["peak_bytes"]; }

  /// The record of a call of a kind that the engine has met twice, whose values are right.
  std::string steady() {
    std::vector<Tensor> want = reference_->run(host_inputs_);
    for (int repeat = 0; repeat < 2; ++repeat) engine_->run(inputs_);
    // States that the calls before have written are as at the beginning again.
    for (std::size_t k = 0; k < inputs_.size(); ++k)
      inputs_[k] = counted(host_inputs_[k].dtype(),
                           {host_inputs_[k].sizes().begin(), host_inputs_[k].sizes().end()},
                           static_cast<int>(k))
                       .to(cuda_device());
    std::vector<Tensor> got;
    const std::string record = recorded([&] { got = engine_->run(inputs_); });
    for (std::size_t k = 0; k < want.size(); ++k) expect_near(got[k], want[k], 1e-5);
    for (std::size_t k = 0; k < inputs_.size(); ++k)  // what was written back to them
      expect_near(inputs_[k], host_inputs_[k], 1e-5);
    return record;
  }

 private:
  std::string nodes_of(std::size_t step) const {
    const std::string kernel = plan_["steps"][step]["kernel"];
    for (const Json& entry : plan_["kernels"]) {
      if (entry["name"] != kernel) continue;
      std::string text;
      for (const std::string node : entry["nodes"]) text += (text.empty() ? "" : "+") + node;
      return text;
    }
    return "?";
  }

  std::optional<Engine> engine_, reference_;
  std::vector<Tensor> host_inputs_, inputs_;
  Json plan_;
};

class CudaCapture : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  }
};

TEST_F(CudaCapture, A3_18_ReordersToTheFewestGraphs) {
  Captured captured(
      "graph @main(%x: f32[8, 8], %y: f32[8, 8]) {\n"
      "  %x1 = exp(%x)\n"
      "  %y1 = sin(%y)\n"
      "  %c = cuda_ct::host(%y1)\n"
      "  %c1 = cuda_ct::host(%c)\n"
      "  %z = matmul(%x, %y)\n"
      "  %g = cuda_ct::host(%c1)\n"
      "  %a = add(%x1, %y1)\n"
      "  %b = add(%a, %z)\n"
      "  %o = add(%b, %g)\n"
      "  return %o\n"
      "}\n");
  EXPECT_EQ(captured.parts(), "[x1,y1,z,a,b] [c,c1,g]! [o]");
  EXPECT_EQ(captured.part(1)["reason"], "holds an op that is not capturable");
  EXPECT_EQ(captured.steady(), R"(
s0 graph
  0 launch exp
  1 launch sin after 0
  2 launch matmul after 1
  3 launch add after 2
  4 launch add after 3
s0 launch host
s0 launch host
s0 launch host
s0 graph
  0 launch add
  1 out 4 after 0
s0 synchronize
)");
  EXPECT_EQ(captured.stats().graphs, 2u);
}

TEST_F(CudaCapture, A3_19_TwoDeviceChainsAroundAHostChain) {
  Captured captured(
      "graph @main(%h: f32[8], %x: f32[8], %z: f32[8], %w: param f32[8]) {\n"
      "  %a1 = exp(%x)\n"
      "  %h1 = cuda_ct::host(%h)\n"
      "  %h2 = cuda_ct::host(%h1)\n"
      "  %b1 = sin(%z)\n"
      "  %b2 = add(%b1, %a1)\n"
      "  return %h2, %b2\n"
      "}\n",
      on_cuda(2, true));
  EXPECT_EQ(captured.parts(), "[h1,h2]! [a1,b1,b2]");
  EXPECT_EQ(captured.part(1)["inputs"], Json::array({"x", "z"}));
  EXPECT_EQ(captured.part(1)["arguments"], Json::array({1, 2}));
  EXPECT_EQ(captured.steady(), R"(
s0 launch host
s0 launch host
s0 graph
  0 launch exp
  1 launch sin
  2 launch add after 1,0
  3 out 4 after 2
s0 synchronize
)");
  EXPECT_EQ(captured.stats().graphs, 1u);
}

TEST_F(CudaCapture, A3_20_UnsafeOpsSplit) {
  const std::string text =
      "graph @main(%in: f32[8, 4]) {\n"
      "  %x = exp(%in)\n"
      "  %mv = cuda_ct::host(%x)\n"
      "  %z = sin(%mv)\n"
      "  %v = reduce_sum(%z) {axes = [1]}\n"
      "  %md = cuda_ct::host(%v)\n"
      "  %o = cos(%md)\n"
      "  return %o\n"
      "}\n";
  Captured captured(text);
  EXPECT_EQ(captured.parts(), "[x] [mv]! [z,v] [md]! [o]");
  EXPECT_EQ(captured.steady(), R"(
s0 graph
  0 launch exp
s0 launch host
s0 graph
  0 launch sin
  1 launch reduce_sum after 0
s0 launch host
s0 graph
  0 launch cos
  1 out 4 after 0
s0 synchronize
)");
  EXPECT_EQ(captured.stats().graphs, 3u);
  // Ops that the user lists split as well.
  const Variable listed("HEDDLE_GRAPH_SPLIT_OPS", "reduce_sum,cos");
  Captured fewer(text);
  EXPECT_EQ(fewer.parts(), "[x] [mv]! [z] [v,md,o]!");
  EXPECT_EQ(fewer.part(3)["reason"], "reduce_sum is listed by the user");
  EXPECT_EQ(fewer.steady(), R"(
s0 graph
  0 launch exp
s0 launch host
s0 graph
  0 launch sin
s0 launch reduce_sum
s0 launch host
s0 launch cos
s0 out 4
s0 synchronize
)");
}

TEST_F(CudaCapture, A3_22_SplitStepsMoveToTheEnds) {
  Captured captured(
      "graph @main(%x: f32[8], %m: f32[8]) {\n"
      "  %a = exp(%x)\n"
      "  %mask = cuda_ct::host(%m)\n"
      "  %b = mul(%a, %mask)\n"
      "  %log = cuda_ct::host(%b)\n"
      "  %c = sin(%b)\n"
      "  return %log, %c\n"
      "}\n");
  EXPECT_EQ(captured.parts(), "[mask]! [a,b,c] [log]!");
  EXPECT_EQ(captured.steady(), R"(
s0 launch host
s0 graph
  0 launch exp
  1 launch mul after 0
  2 launch sin after 1
s0 launch host
s0 out 4
s0 synchronize
)");
  EXPECT_EQ(captured.stats().graphs, 1u);
}

TEST_F(CudaCapture, A3_24_AllCapturableIsOneGraphInTheGivenOrder) {
  Captured captured(
      "graph @main(%x: f32[8]) {\n"
      "  %n1 = exp(%x)\n"
      "  %n2 = sin(%x)\n"
      "  %n3 = cos(%n2)\n"
      "  %n4 = tanh(%n1)\n"
      "  return %n3, %n4\n"
      "}\n",
      on_cuda(2, true));
  EXPECT_EQ(captured.parts(), "[n1,n2,n3,n4]");
  EXPECT_EQ(captured.steady(), R"(
s0 graph
  0 launch exp
  1 launch sin
  2 launch cos after 1
  3 launch tanh after 0
  4 out 4 after 3,2
s0 synchronize
)");
}

TEST_F(CudaCapture, A3_29_30_SmallPartsAreQueuedWithoutAGraphAndMapsNameArguments) {
  const std::string text =
      "graph @main(%x: f32[s0], %y: f32[s0]) {\n"
      "  %a = exp(%x)\n"
      "  %b = add(%a, %y)\n"
      "  %h = cuda_ct::host(%b)\n"
      "  %o = sin(%h)\n"
      "  return %o, %a\n"
      "}\n";
  Captured captured(text);
  EXPECT_EQ(captured.parts(), "[a,b] [h]! [o]");
  EXPECT_EQ(captured.part(0)["arguments"], Json::array({0, 1}));
  EXPECT_EQ(captured.part(2)["arguments"], Json::array({Json()}));
  EXPECT_EQ(captured.part(2)["results"], Json::array({0}));
  EXPECT_FALSE(captured.part(1).contains("arguments")) << "a part in no graph has no map";
  EXPECT_EQ(captured.steady(), R"(
s0 graph
  0 launch exp
  1 launch add after 0
s0 launch host
s0 graph
  0 launch sin
  1 out 4 after 0
s0 synchronize
)");
  const Variable least("HEDDLE_GRAPH_MIN_KERNELS", "2");
  Captured larger(text);
  EXPECT_EQ(larger.parts(), "[a,b] [h]! [o]!") << "as many parts, fewer graphs";
  EXPECT_EQ(larger.part(2)["reason"], "");
  EXPECT_EQ(larger.steady(), R"(
s0 graph
  0 launch exp
  1 launch add after 0
s0 launch host
s0 launch sin
s0 out 4
s0 synchronize
)");
  EXPECT_EQ(larger.stats().graphs, 1u);
}

TEST_F(CudaCapture, A3_31_OneMemberSplitsAFusedStepAndNoCaptureIsOnePart) {
  const std::string text =
      "graph @main(%x: f32[8, 8]) {\n"
      "  %a = exp(%x)\n"
      "  %b = sin(%a)\n"
      "  %c = matmul(%b, %b)\n"
      "  return %c\n"
      "}\n";
  {
    const Variable listed("HEDDLE_GRAPH_SPLIT_OPS", "exp");
    Captured captured(text, on_cuda(1, true), true);
    EXPECT_EQ(captured.parts(), "[a+b]! [c]");
    EXPECT_EQ(captured.part(0)["reason"], "exp is listed by the user");
    EXPECT_EQ(captured.steady(), R"(
s0 launch exp_sin
s0 graph
  0 launch matmul
  1 out 4 after 0
s0 synchronize
)");
  }
  Captured off(text, on_cuda(1, false), true);
  EXPECT_EQ(off.stats().graphs, 0u);
  EXPECT_EQ(off.parts(), "[a+b,c]!");
  EXPECT_EQ(off.part(0)["reason"], "capture is off");
  EXPECT_EQ(off.steady(), R"(
s0 launch exp_sin
s0 launch matmul
s0 out 4
s0 synchronize
)");
}

TEST_F(CudaCapture, AnUnknownOpOfTheListIsAnError) {
  const Variable listed("HEDDLE_GRAPH_SPLIT_OPS", "sinn");
  const std::string text = "graph @main(%x: f32[8]) {\n  %a = exp(%x)\n  return %a\n}\n";
  EXPECT_THROW(Captured{text}, Error);
}

// S3-20: kernels of sizes that the user calls unsafe, or of any symbolic size, are in no graph.
TEST_F(CudaCapture, S3_20_SizesThatChangeKeepTheirKernelsOut) {
  const std::string text =
      "graph @main(%x: f32[s0], %y: f32[s1], %z: f32[4]) {\n"
      "  %a = exp(%x)\n"
      "  %b = sin(%y)\n"
      "  %c = cos(%z)\n"
      "  return %a, %b, %c\n"
      "}\n";
  EXPECT_EQ(Captured(text).parts(), "[a,b,c]");
  {
    const Variable unsafe("HEDDLE_GRAPH_UNSAFE_SIZES", "s1,u3");
    Captured captured(text);
    EXPECT_EQ(captured.parts(), "[b]! [a,c]");
    EXPECT_EQ(captured.part(0)["reason"], "uses a size declared unsafe");
    EXPECT_EQ(captured.steady(), R"(
s0 launch sin
s0 graph
  0 launch exp
  1 launch cos after 0
  2 out 4 after 1
s0 synchronize
)");
  }
  {
    const Variable dynamic("HEDDLE_GRAPH_SPLIT_DYNAMIC", "1");
    Captured captured(text);
    EXPECT_EQ(captured.parts(), "[a,b]! [c]");
    EXPECT_EQ(captured.part(0)["reason"], "uses symbolic sizes");
    EXPECT_EQ(captured.stats().graphs, 0u);
    captured.steady();
    EXPECT_EQ(captured.stats().graphs, 1u);
  }
  for (const char* wrong : {"t1", "s", "1", "s1x", "s01", "s1,,s2"}) {
    const Variable unsafe("HEDDLE_GRAPH_UNSAFE_SIZES", wrong);
    EXPECT_THROW(Captured{text}, OptionError) << wrong;
  }
}

// S3-29: a part takes the sizes that its kernels and inputs have, by name.
TEST_F(CudaCapture, S3_29_SizesOfAPartAreSorted) {
  Captured captured(
      "graph @main(%x: f32[s2, 4], %y: f32[s0], %z: f32[4]) {\n"
      "  %a = reduce_sum(%x) {axes = [1]}\n"
      "  %b = exp(%y)\n"
      "  %h = cuda_ct::host(%z)\n"
      "  %c = add(%h, %z)\n"
      "  return %a, %b, %c\n"
      "}\n");
  EXPECT_EQ(captured.parts(), "[h]! [a,b,c]");
  EXPECT_EQ(captured.part(0)["sizes"], Json::array());
  EXPECT_EQ(captured.part(1)["sizes"], Json::array({"s0", "s2"}));
}

// S3-23: three large values that host ops read one by one would lie there at once if all were made first. Beside a larger
// one that lies there all the time the same is worth it.
TEST_F(CudaCapture, S3_23_NoReorderTakesATenthMoreMemory) {
  const auto text = [](const std::string& first, const std::string& last) {
    return "graph @main(%x: f32[64], %y: f32[64], %z: f32[64], %w: f32[4096]) {\n" + first +
           "  %a1 = exp(%x)\n"
           "  %h1 = cuda_ct::host(%a1)\n"
           "  %r1 = reduce_sum(%h1) {axes = [0]}\n"
           "  %a2 = sin(%y)\n"
           "  %h2 = cuda_ct::host(%a2)\n"
           "  %r2 = reduce_sum(%h2) {axes = [0]}\n"
           "  %a3 = cos(%z)\n"
           "  %h3 = cuda_ct::host(%a3)\n"
           "  %r3 = reduce_sum(%h3) {axes = [0]}\n" +
           last + "}\n";
  };
  Captured kept(text("", "  return %r1, %r2, %r3\n"));
  EXPECT_EQ(kept.parts(), "[a1] [h1]! [r1,a2] [h2]! [r2,a3] [h3]! [r3]");
  kept.steady();
  EXPECT_EQ(kept.stats().graphs, 4u);
  Captured reordered(text("  %big = tanh(%w)\n",
                          "  %s = reduce_sum(%big) {axes = [0]}\n"
                          "  %t = add(%s, %r3)\n"
                          "  return %r1, %r2, %t\n"));
  EXPECT_EQ(reordered.parts(), "[big,a1,a2,a3,s] [h1,h2,h3]! [r1,r2,r3,t]");
  reordered.steady();
  EXPECT_EQ(reordered.stats().graphs, 2u);
}

// S3-24: what another step waits for, by order alone too, stays in front of it.
TEST_F(CudaCapture, S3_24_OnlyWhatNobodyWaitsForGoesLast) {
  const auto text = [](const std::string& order) {
    return "graph @main(%x: f32[8]) {\n"
           "  %b = exp(%x)\n"
           "  %log = cuda_ct::host(%b)\n"
           "  %c = sin(%b)" +
           order + "\n  return %log, %c\n}\n";
  };
  EXPECT_EQ(Captured(text("")).parts(), "[b,c] [log]!");
  Captured waits(text(" after(%log)"));
  EXPECT_EQ(waits.parts(), "[b] [log]! [c]");
  waits.steady();
}

// S3-32: bytes that one part is the last to read are taken by the next; graphs take no more memory than streams.
TEST_F(CudaCapture, S3_32_InputsOfAPartDieInIt) {
  const std::string text =
      "graph @main(%x: f32[512]) {\n"
      "  %a = cumsum(%x) {axis = 0}\n"
      "  %h = cuda_ct::host(%a)\n"
      "  %b = cumsum(%h) {axis = 0}\n"
      "  %c = cumsum(%b) {axis = 0, reverse = true}\n"
      "  %g = cuda_ct::host(%c)\n"
      "  %d = cumsum(%g) {axis = 0}\n"
      "  return %d\n"
      "}\n";
  Captured graphs(text);
  Captured streams(text, on_cuda(1, false));
  EXPECT_EQ(graphs.parts(), "[a] [h]! [b,c] [g]! [d]");
  EXPECT_EQ(graphs.part(2)["inputs"], Json::array({"h"}));
  EXPECT_EQ(graphs.part(2)["outputs"], Json::array({"c"})) << "%h has died there";
  EXPECT_EQ(graphs.peak_bytes(), 2 * 512 * 4);
  EXPECT_EQ(streams.peak_bytes(), graphs.peak_bytes());
  graphs.steady();
  EXPECT_EQ(graphs.stats().arena_peak_bytes, static_cast<std::uint64_t>(graphs.peak_bytes()));
}

// S3-20: who listens is told each reason once, with what it is about; who asked for no graphs is told nothing.
TEST_F(CudaCapture, S3_20_EachReasonIsToldOnce) {
  const std::string text =
      "graph @main(%p: bool[], %x: f32[8]) {\n"
      "  %a = cuda_ct::host(%x)\n"
      "  %b = cond(%p, %a) {then = @twice, else = @half}\n"
      "  %c = exp(%b)\n"
      "  %d = cuda_ct::host(%c)\n"
      "  %i = invoke(%d) {body = @half}\n"
      "  %n = late::positive(%d) : f32[u0]\n"
      "  %s = sin(%n)\n"
      "  return %s, %i\n"
      "}\n"
      "graph @twice(%t: f32[8]) {\n  %u = cuda_ct::host(%t)\n  return %u\n}\n"
      "graph @half(%t: f32[8]) {\n  %n = neg(%t)\n  return %n\n}\n";
  positive();
  for (const bool graphs : {true, false}) {
    std::vector<std::string> lines;
    EngineOptions options = on_cuda(1, graphs);
    options.log = [&](std::string_view line) { lines.emplace_back(line); };
    Captured captured(text, options);
    captured.steady();
    if (graphs)
      EXPECT_THAT(
          lines,
          ElementsAre(
              "heddle: in no graph of the device: 2 steps, the first cuda_ct::host: holds an op "
              "that is not capturable",
              "heddle: in no graph of the device: 1 step, the first cond: is conditional",
              "heddle: in no graph of the device: 1 step, the first late::positive: makes sizes "
              "known only at run time",
              "heddle: in no graph of the device: 1 step, the first invoke: queues work of its "
              "own"));
    else
      EXPECT_TRUE(lines.empty()) << lines[0];
  }
}

// S3-32: a donated argument ends in the part that reads it last, and is not given back by it; S3-28: others are.
TEST_F(CudaCapture, S3_32_DonatedArgumentsEndInsideParts) {
  for (const bool donated : {true, false}) {
    const Captured captured(std::string("graph @main(%x: ") + (donated ? "donated " : "") +
                            "f32[8]) {\n"
                            "  %a = exp(%x)\n"
                            "  %h = cuda_ct::host(%a)\n"
                            "  %o = add(%h, %x)\n"
                            "  %g = cuda_ct::host(%o)\n"
                            "  %r = sin(%g)\n"
                            "  return %r\n"
                            "}\n");
    EXPECT_EQ(captured.parts(), "[a] [h]! [o] [g]! [r]");
    EXPECT_EQ(captured.part(0)["outputs"], Json::array({"x", "a"})) << "it is read again";
    EXPECT_EQ(captured.part(2)["inputs"], Json::array({"x", "h"}));
    EXPECT_EQ(captured.part(2)["outputs"], donated ? Json::array({"o"}) : Json::array({"x", "o"}));
  }
}

// S3-26, S4-31: who is only waited for is nothing that a part takes; the wait holds all the same.
TEST_F(CudaCapture, S4_31_WeakEdgesAreNoInputsOfParts) {
  for (const int streams : {1, 3}) {
    Captured captured(
        "graph @main(%x: f32[8], %y: f32[8]) {\n"
        "  %a = exp(%x)\n"
        "  %h = cuda_ct::host(%y) after(%a)\n"
        "  %o = sin(%y) after(%h)\n"
        "  %r = cos(%o) after(%a)\n"
        "  return %r, %a, %h\n"
        "}\n",
        on_cuda(streams, true));
    EXPECT_EQ(captured.parts(), "[a] [h]! [o,r]");
    EXPECT_EQ(captured.part(0)["inputs"], Json::array({"x"}));
    EXPECT_EQ(captured.part(1)["inputs"], Json::array({"y"}));
    EXPECT_EQ(captured.part(2)["inputs"], Json::array({"y"}));
    EXPECT_EQ(captured.part(2)["arguments"], Json::array({1}));
    EXPECT_EQ(captured.steady(), R"(
s0 graph
  0 launch exp
s0 launch host
s0 graph
  0 launch sin
  1 launch cos after 0
  2 out 4 after 1
s0 synchronize
)");
  }
}

// A region's result feeds an op that writes; its results are taken in two parts.
TEST_F(CudaCapture, AX_03_ARegionIntoAWritingOpWhoseResultsArePartedByASplit) {
  Captured captured(
      "graph @main(%x: f32[8], %counts: f32[8]) {\n"
      "  %m = mul(%x, %x) @{compile = \"r\"}\n"
      "  %s = sin(%m) @{compile = \"r\"}\n"
      "  %u, %v, %new = cuda_ct::route(%s, %counts)\n"
      "  %a = exp(%u)\n"
      "  %h = cuda_ct::host(%a)\n"
      "  %b = add(%h, %v)\n"
      "  write_back %counts = %new\n"
      "  return %b\n"
      "}\n",
      on_cuda(1, true), true);
  EXPECT_EQ(captured.parts(), "[m+s,u,a] [h]! [b]");
  EXPECT_EQ(captured.part(0)["inputs"], Json::array({"x", "counts"}));
  EXPECT_EQ(captured.part(0)["outputs"], Json::array({"x", "counts", "v", "a"}));
  EXPECT_EQ(captured.part(1)["inputs"], Json::array({"a"}));
  EXPECT_EQ(captured.part(2)["inputs"], Json::array({"v", "h"}));
  EXPECT_EQ(captured.steady(), R"(
s0 graph
  0 launch mul_sin
  1 launch route after 0
  2 launch exp after 1
s0 launch host
s0 graph
  0 launch add
  1 out 4 after 0
s0 synchronize
)");
  EXPECT_EQ(captured.stats().graphs, 2u);
}

// Two streams: each wait for an event is an edge of the graph, and a wait where there is none.
TEST_F(CudaCapture, EventsOfStreamsAreEdgesOfGraphs) {
  const std::string text =
      "graph @main(%x: f32[8], %y: f32[8]) {\n"
      "  %a = exp(%x)\n"
      "  %b = sin(%y)\n"
      "  %c = add(%a, %b)\n"
      "  return %c\n"
      "}\n";
  EXPECT_EQ(Captured(text, on_cuda(2, true)).steady(), R"(
s0 graph
  0 launch exp
  1 launch sin
  2 launch add after 1,0
  3 out 4 after 2
s0 synchronize
)");
  EXPECT_EQ(Captured(text, on_cuda(2, false)).steady(), R"(
s0 record e0
s1 wait e0
s1 launch exp
s1 record e1
s0 launch sin
s0 wait e1
s0 launch add
s0 out 4
s0 synchronize
)");
}

}  // namespace
}  // namespace heddle::testing
