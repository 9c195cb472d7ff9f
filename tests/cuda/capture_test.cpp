// Acceptance cases of the capture partitioner on a device that records: what is queued, in which order, in which graphs
// with which nodes and edges.
#include <gmock/gmock.h>

#include "tests/control_flow/late_programs.h"
#include "tests/cuda/capture_support.h"

namespace heddle::testing {
namespace {

using test::Json;

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
s0 synchronize
)");
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

// S3-23: three large values that host ops read one by one would lie there at once if all were made first. Beside a
// larger one that lies there all the time the same is worth it.
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

// S3-22: draining begins with what is in no graph; where that only makes more parts, the order stays.
TEST_F(CudaCapture, S3_22_NoReorderMakesMoreParts) {
  Captured captured(
      "graph @main(%x: f32[8], %y: f32[8]) {\n"
      "  %a = exp(%x)\n"
      "  %mask = cuda_ct::host(%y)\n"
      "  %h = cuda_ct::host(%a)\n"
      "  %t = sin(%h)\n"
      "  return %t, %mask\n"
      "}\n");
  EXPECT_EQ(captured.parts(), "[a] [mask,h]! [t]");
  captured.steady();
  EXPECT_EQ(captured.stats().graphs, 2u);
}

// S3-24 within the bound of S3-23: large values of host ops that wait for nothing would lie there at once if all were
// made first. Listed by the user, custom ops that a graph may hold are split too.
TEST_F(CudaCapture, S3_24_NoMoveTakesATenthMoreMemory) {
  const std::string text =
      "graph @main(%x: f32[64], %y: f32[64], %z: f32[64], %s: f32[64]) {\n"
      "  %h1 = cuda_ct::host(%x)\n"
      "  %r1 = reduce_sum(%h1) {axes = [0]}\n"
      "  %h2 = cuda_ct::host(%y)\n"
      "  %r2 = reduce_sum(%h2) {axes = [0]}\n"
      "  %u, %v, %t = cuda_ct::route(%z, %s)\n"
      "  %w = add(%u, %v)\n"
      "  %r3 = reduce_sum(%w) {axes = [0]}\n"
      "  write_back %s = %t\n"
      "  return %r1, %r2, %r3\n"
      "}\n";
  Captured captured(text);
  EXPECT_EQ(captured.parts(), "[h1,h2]! [r1,r2,u,w,r3]");
  const Variable listed("HEDDLE_GRAPH_SPLIT_OPS", "cuda_ct::route");
  Captured split(text);
  EXPECT_EQ(split.parts(), "[h1]! [r1] [h2]! [r2] [u]! [w,r3]");
  EXPECT_EQ(split.part(4)["reason"], "cuda_ct::route is listed by the user");
  split.steady();
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
s0 synchronize
)");
  EXPECT_EQ(Captured(text, on_cuda(2, false)).steady(), R"(
s0 launch exp
s0 record e0
s1 launch sin
s1 wait e0
s1 launch add
s1 synchronize
)");
}

/// The record of a call whose inputs and outputs lie on the host, of a kind that the engine has met twice.
std::string steady_on_host(const std::string& text, const EngineOptions& given,
                           const std::vector<Tensor>& inputs) {
  EngineOptions options = given;
  options.fuse = false;
  options.order = StepOrder::Given;
  Engine engine = parse_ir(text, options);
  Engine reference = parse_ir(text, {.device = Device::reference()});
  const std::vector<Tensor> want = reference.run(inputs);
  std::vector<Tensor> got;
  for (const Tensor& output : want)
    got.push_back(Tensor::empty(output.dtype(), {output.sizes().begin(), output.sizes().end()}));
  for (int repeat = 0; repeat < 2; ++repeat) engine.run_into(inputs, got);
  const std::string record = recorded([&] { engine.run_into(inputs, got); });
  for (std::size_t k = 0; k < want.size(); ++k) expect_near(got[k], want[k], 1e-5);
  return record;
}

constexpr const char* kTwoBranches =
    "graph @main(%x: f32[8], %y: f32[4], %z: f32[4]) {\n"
    "  %a = exp(%x)\n"
    "  %b = sin(%y)\n"
    "  %c = add(%b, %z)\n"
    "  %d = reduce_sum(%a) {axes = [0]}\n"
    "  return %b, %c, %d\n"
    "}\n";

constexpr const char* kChain =
    "graph @main(%x: f32[8], %y: f32[8], %z: f32[8]) {\n"
    "  %a = exp(%x)\n"
    "  %b = add(%a, %y)\n"
    "  %c = sin(%b)\n"
    "  %d = mul(%c, %z)\n"
    "  return %b, %d\n"
    "}\n";

std::vector<Tensor> of_chain() {
  return {counted(f32, {8}), counted(f32, {8}, 1), counted(f32, {8}, 2)};
}

std::vector<Tensor> of_two_branches() {
  return {counted(f32, {8}), counted(f32, {4}, 1), counted(f32, {4}, 2)};
}

// A copy to the device comes before the steps that read it and after none; one to the host after the step that writes it.
TEST_F(CudaCapture, CopiesOfGraphsAreOrderedWithTheirReadersAndWritersAlone) {
  EXPECT_EQ(steady_on_host(kTwoBranches, on_cuda(2, true), of_two_branches()), R"(
s0 graph
  0 in 32
  1 in 16
  2 in 16
  3 launch exp after 0
  4 launch sin after 1
  5 launch add after 4,2
  6 launch reduce_sum after 3
  7 out 16 after 4
  8 out 16 after 5
  9 out 4 after 6
s0 synchronize
)");
  EXPECT_EQ(steady_on_host(kChain, on_cuda(1, true), of_chain()), R"(
s0 graph
  0 in 32
  1 in 32
  2 in 32
  3 launch exp after 0
  4 launch add after 3,1
  5 launch sin after 4
  6 launch mul after 5,2
  7 out 32 after 4
  8 out 32 after 6
s0 synchronize
)");
}

// On streams too, with an event for who would not have to wait else.
TEST_F(CudaCapture, CopiesOfStreamsGoBesideTheSteps) {
  EXPECT_EQ(steady_on_host(kTwoBranches, on_cuda(2, false), of_two_branches()), R"(
s0 in 32
s1 in 16
s2 in 16
s2 record e0
s0 launch exp
s1 launch sin
s1 record e1
s3 wait e1
s3 out 16
s1 wait e0
s1 launch add
s1 out 16
s1 record e2
s0 launch reduce_sum
s0 out 4
s0 wait e2
s3 record e3
s0 wait e3
s0 synchronize
)");
  EXPECT_EQ(steady_on_host(kChain, on_cuda(1, false), of_chain()), R"(
s0 in 32
s1 in 32
s1 record e0
s1 in 32
s1 record e1
s0 launch exp
s0 wait e0
s0 launch add
s0 record e2
s2 wait e2
s2 out 32
s0 launch sin
s0 wait e1
s0 launch mul
s0 out 32
s2 record e3
s0 wait e3
s0 synchronize
)");
}

// Where only parts are graphs, what a later one is the first to use comes in beside those before, and what an earlier one is
// the last to write goes out beside those after.
TEST_F(CudaCapture, CopiesGoBesideGraphsThatDoNotNeedThem) {
  {
    const Variable split("HEDDLE_GRAPH_SPLIT_OPS", "sin");
    EXPECT_EQ(steady_on_host(kChain, on_cuda(1, true), of_chain()), R"(
s0 in 32
s0 record e0
s1 graph
  0 in 32
  1 in 32
  2 launch exp after 0
  3 launch add after 2,1
s1 record e1
s2 wait e1
s2 out 32
s1 launch sin
s1 wait e0
s1 graph
  0 launch mul
  1 out 32 after 0
s2 record e2
s1 wait e2
s1 synchronize
)");
  }
  const Variable split("HEDDLE_GRAPH_SPLIT_OPS", "exp,mul");
  EXPECT_EQ(steady_on_host(kChain, on_cuda(1, true), of_chain()), R"(
s0 in 32
s0 record e0
s0 in 32
s0 record e1
s1 in 32
s1 launch exp
s1 wait e0
s1 graph
  0 launch add
  1 launch sin after 0
s1 record e2
s2 wait e2
s2 out 32
s1 wait e1
s1 launch mul
s1 out 32
s2 record e3
s1 wait e3
s1 synchronize
)");
}

// A state that gets its own elements is written by no step: nothing comes back.
TEST_F(CudaCapture, AStateThatNoStepWritesIsNotCopied) {
  const std::string text =
      "graph @main(%x: f32[4], %s: f32[1]) {\n"
      "  %y = exp(%x)\n"
      "  %t = reverse(%s) {axes = [0]}\n"
      "  write_back %s = %t\n"
      "  return %y\n"
      "}\n";
  const std::vector<Tensor> inputs = {counted(f32, {4}), counted(f32, {1}, 3)};
  EXPECT_EQ(steady_on_host(text, on_cuda(1, false), inputs), R"(
s0 in 16
s0 launch exp
s0 out 16
s0 synchronize
)");
  const std::string graph = steady_on_host(text, on_cuda(1, true), inputs);
  EXPECT_THAT(graph, ::testing::HasSubstr("out 16 after"));
  EXPECT_THAT(inputs[1].to_doubles(), ::testing::ElementsAre(counted(f32, {1}, 3).to_doubles()[0]));
}

}  // namespace
}  // namespace heddle::testing
