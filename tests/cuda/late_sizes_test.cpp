// Sizes that only the run tells, on the CUDA device: the values and counts of the CPU in every interleaving, with graphs
// and without; the host waits for nothing but the sizes, once a phase, and for one stream.
#include <gmock/gmock.h>

#include "tests/control_flow/updating_programs.h"
#include "tests/cuda/recorded.h"
#include "tests/cuda/support.h"

namespace heddle::testing {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> sizes_of(const std::vector<Tensor>& tensors) {
  std::vector<std::string> texts;
  for (const Tensor& tensor : tensors) {
    std::string& text = texts.emplace_back();
    for (const std::int64_t size : tensor.sizes()) text += " " + std::to_string(size);
  }
  return texts;
}

class CudaLateSizes : public ::testing::TestWithParam<LateProgram> {};

TEST_P(CudaLateSizes, AreThoseOfTheCpu) {
  if (HEDDLE_WITH_LLVM == 0) GTEST_SKIP() << "this build compiles nothing for the CPU";
  const LateProgram& program = GetParam();
  Engine cpu(program.function, {.threads = 1});
  Engine on_streams(program.function, on_cuda(4, false));
  Engine with_graphs(program.function, on_cuda(4, true));
  for (unsigned long seed = 0; seed < 6; ++seed) {
    interleave(seed);
    for (const std::vector<Tensor>& call : program.calls) {
      const std::vector<Tensor> want = cpu.run(call);
      for (Engine* engine : {&on_streams, &with_graphs}) {
        SCOPED_TRACE(seed);
        const std::vector<Tensor> got = engine->run(call);
        ASSERT_EQ(sizes_of(got), sizes_of(want));
        for (std::size_t k = 0; k < want.size(); ++k) expect_near(got[k], want[k], 1e-5);
      }
    }
  }
  interleave(0);
  for (const Engine* engine : {&on_streams, &with_graphs}) {
    EXPECT_EQ(engine->stats().compiles, cpu.stats().compiles);
    EXPECT_EQ(engine->stats().traces, cpu.stats().traces);
    EXPECT_EQ(engine->stats().binds, cpu.stats().binds);
    EXPECT_EQ(engine->stats().runs, cpu.stats().runs);
    EXPECT_EQ(engine->stats().evaluator_steps, 0u);
  }
}

/// Kinds of the events, and how often each byte count was taken and given back.
struct Summary {
  std::size_t launches = 0;
  std::map<std::string, std::int64_t> taken, freed;
};

Summary summary_of(const std::vector<RunEvent>& events) {
  Summary summary;
  for (const RunEvent& event : events) {
    if (event.kind == RunEvent::Kind::Launch) ++summary.launches;
    if (event.kind == RunEvent::Kind::Alloc) summary.taken[event.value] = event.bytes;
    if (event.kind == RunEvent::Kind::Free) summary.freed[event.value] = event.bytes;
  }
  return summary;
}

TEST_P(CudaLateSizes, AreTracedWithTheirBytes) {
  if (HEDDLE_WITH_LLVM == 0) GTEST_SKIP() << "this build compiles nothing for the CPU";
  const LateProgram& program = GetParam();
  Engine cpu(program.function, {.threads = 1});
  Engine cuda(program.function, on_cuda(4));
  for (const std::vector<Tensor>& call : program.calls) {
    std::vector<Tensor> got;
    const std::vector<RunEvent> events = cuda.run_trace(call, &got);
    const std::vector<Tensor> want = cpu.run(call);
    ASSERT_EQ(sizes_of(got), sizes_of(want));
    for (std::size_t k = 0; k < want.size(); ++k) expect_near(got[k], want[k], 1e-5);
    const Summary summary = summary_of(events);
    EXPECT_EQ(summary.taken, summary.freed);
    EXPECT_GT(summary.launches, 0u);
    for (const auto& [value, bytes] : summary.taken) EXPECT_GE(bytes, 0) << value;
    EXPECT_EQ(std::count_if(events.begin(), events.end(),
                            [](const RunEvent& e) { return e.kind == RunEvent::Kind::Launch; }),
              static_cast<std::ptrdiff_t>(summary.launches));
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, CudaLateSizes, ::testing::ValuesIn(late_programs()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(LoopsThatGrow, CudaLateSizes, ::testing::ValuesIn(growing_programs()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(LoopsThatUpdate, CudaLateSizes, ::testing::ValuesIn(updating_programs()),
                         [](const auto& info) { return info.param.name; });

const LateProgram& program_named(std::string_view name) {
  static const std::vector<LateProgram> programs = late_programs();
  return *std::ranges::find(programs, name, &LateProgram::name);
}

/// The record of a call of a kind that the engine has seen twice.
std::string steady_record(Engine& engine, const std::vector<Tensor>& call) {
  engine.run(call);
  engine.run(call);
  return recorded([&] { engine.run(call); });
}

std::string steady_record(std::string_view program, bool graphs, std::size_t call = 0) {
  const LateProgram& named = program_named(program);
  Engine engine(named.function, on_cuda(2, graphs));
  return steady_record(engine, named.calls[call]);
}

// Calls of one body on several streams at once have memory of their own for what only the run sizes.
TEST(CudaLateSizes, InABodyThatCallsOnSeveralStreamsShare) {
  positive();
  const std::string text = R"(graph @main(%x: f32[4], %y: f32[4]) {
  %a = invoke(%x) {body = @outer} @{stream = 0}
  %b = invoke(%y) {body = @outer} @{stream = 1}
  %c = add(%a, %b)
  return %a, %b, %c
}
graph @outer(%x: f32[4]) {
  %a = invoke(%x) {body = @inner}
  %b = cumsum(%a) {axis = 0}
  %c = tanh(%b)
  %d = invoke(%c) {body = @inner}
  %e = tanh(%d)
  return %e
}
graph @inner(%y: f32[4]) {
  %k = late::positive(%y) : f32[u0]
  %m = cumsum(%k) {axis = 0}
  %n = mul(%m, %m)
  %o = cumsum(%n) {axis = 0}
  %s = reduce_sum(%o) {axes = [0]}
  %t = mul(%s, 0.015625: f32)
  %u = add(%y, %t)
  return %u
}
)";
  const std::vector<Tensor> inputs{numbers({1, -1, 2, 3}), numbers({3, 1, 2, -1})};
  const std::vector<Tensor> want = parse_ir(text, {.device = Device::reference()}).run(inputs);
  Engine engine = parse_ir(text, on_cuda(2, false));
  for (unsigned long seed = 0; seed < 20; ++seed) {
    interleave(seed);
    const std::vector<Tensor> got = engine.run(inputs);
    for (std::size_t k = 0; k < want.size(); ++k) expect_near(got[k], want[k], 1e-5);
  }
  interleave(0);
}

// What is asked: the condition, one byte; the engine waits for it and knows then which branch runs.
TEST(CudaLateSizesSchedule, ABranchIsAskedForOnce) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  EXPECT_EQ(steady_record("OfABranch", false), R"(
s0 in 1
s0 in 12
s0 out 1
s0 synchronize
s0 launch mul
s0 launch mul_reduce_max_sub_exp
s0 synchronize
)");
}

// Elements of the arguments come to the host, 20 bytes and then 16: one wait each, for the stream of the op.
TEST(CudaLateSizesSchedule, APhaseWaitsForTheStreamThatBringsItsSizes) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  EXPECT_EQ(steady_record("OneAfterAnother", false), R"(
s0 in 20
s1 in 12
s1 record e0
s0 out 20
s0 synchronize
s0 launch positive
s0 launch sub_add
s0 out 16
s0 synchronize
s0 launch positive
s0 record e1
s0 launch concat
s2 wait e1
s2 launch mul
s2 record e2
s0 wait e0
s0 launch matmul
s0 wait e2
s0 synchronize
)");
}

// An op that counts on the device brings eight bytes, whatever its arguments. What the last part reads comes in beside the others.
TEST(CudaLateSizesSchedule, SizesCountedOnTheDeviceAreAllThatComesBack) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  EXPECT_EQ(steady_record("CountedOnTheDevice", true), R"(
s0 in 12
s0 record e0
s1 in 20
s1 launch count_positive
s1 out 8
s1 synchronize
s1 launch positive
s1 graph
  0 launch sub_add
s1 launch count_positive
s1 out 8
s1 synchronize
s1 launch positive
s1 wait e0
s1 graph
  0 launch concat
  1 launch mul
  2 launch matmul after 0
s1 synchronize
)");
}

// Work beside a chain of sizes goes on while the host waits: its stream is not waited for.
TEST(CudaLateSizesSchedule, OtherStreamsGoOn) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const std::string record = steady_record("BesideOtherWork", false);
  EXPECT_THAT(record, ::testing::HasSubstr("s1 launch matmul"));
  EXPECT_THAT(record, ::testing::Not(::testing::HasSubstr("s1 synchronize")));
  EXPECT_THAT(record, ::testing::Not(::testing::HasSubstr("synchronize all")));
}

// One graph a part for all sizes: its nodes are updated, nothing is made or compiled anew.
TEST(CudaLateSizesSchedule, GraphsServeEverySize) {
  const LateProgram& program = program_named("OneAfterAnother");
  Engine engine(program.function, on_cuda(2, true));
  engine.run(program.calls[0]);
  const std::uint64_t compiled = engine.stats().kernels_compiled;
  for (int repeat = 0; repeat < 3; ++repeat)
    for (const auto& call : program.calls) engine.run(call);
  EXPECT_EQ(engine.stats().graphs, 2u);
  EXPECT_EQ(engine.stats().graph_launches, 2u * 12);
  EXPECT_GT(engine.stats().graph_updates, 0u);
  EXPECT_EQ(engine.stats().kernels_compiled, compiled);
}

TEST(CudaLateSizes, GoIntoTheCallersTensors) {
  if (HEDDLE_WITH_LLVM == 0) GTEST_SKIP() << "this build compiles nothing for the CPU";
  const auto f = [](const Tensor& p, const Tensor& x) { return once_or_twice(p, x); };
  Engine cpu(f, {.threads = 1});
  for (const bool graphs : {false, true}) {
    Engine engine(f, on_cuda(2, graphs));
    const std::vector<Tensor> call = {flag(false), ramp({2, 3})};
    const std::vector<double> want = cpu.run(call)[0].to_doubles();
    for (int repeat = 0; repeat < 3; ++repeat) {
      std::vector<Tensor> host = {Tensor::empty(f32, {4, 3})};
      engine.run_into(call, host);
      EXPECT_EQ(host[0].to_doubles(), want);
      std::vector<Tensor> device = {ramp({4, 3}).to(cuda_device())};
      engine.run_into(call, device);
      EXPECT_EQ(device[0].to_doubles(), want);
    }
    std::vector<Tensor> wrong = {Tensor::empty(f32, {3, 3})};
    const auto error = [&](Engine& in) {
      return unplaced_text_of<ShapeError>([&] { in.run_into(call, wrong); });
    };
    EXPECT_EQ(error(engine), "run_into: output 0: expected row-major f32[4, 3], got f32[3, 3]");
    EXPECT_EQ(error(engine), error(cpu));
    EXPECT_EQ(engine.run(call)[0].to_doubles(), want) << "and the engine is usable afterwards";
  }
}

/// An op whose size functions do what `mode` says.
const RegisteredOp& contrary() {
  static const RegisteredOp op = [] {
    CustomOp made = positive_op("late::contrary");
    made.schema = "late::contrary(Tensor x, int mode) -> Tensor";
    made.sizes = [](const KernelCall& call) -> std::vector<Sizes> {
      if (call.integer("mode") == 0) throw std::runtime_error("no idea");
      if (call.integer("mode") == 1) return {{1, 2}};
      return {{-1}};
    };
    return register_op(std::move(made));
  }();
  return op;
}

TEST(CudaLateSizes, ThatCannotBeToldAreTheErrorsOfTheCpu) {
  if (HEDDLE_WITH_LLVM == 0) GTEST_SKIP() << "this build compiles nothing for the CPU";
  for (const std::int64_t mode : {0, 1, 2}) {
    SCOPED_TRACE(mode);
    const auto f = [mode](const Tensor& x) { return contrary()(x + 1.0f, mode)[0] * 2.0f; };
    Engine cpu(f, {.threads = 1});
    Engine engine(f, on_cuda(2));
    const auto error = [&](Engine& in) {
      try {
        in.run({numbers({1, 2})});
      } catch (const Error& typed) {
        return std::string(typed.what());
      }
      return std::string("none");
    };
    EXPECT_THAT(error(cpu), ::testing::StartsWith("late::contrary"));
    for (int repeat = 0; repeat < 2; ++repeat) EXPECT_EQ(error(engine), error(cpu));
    if (on_simulator()) {
      EXPECT_EQ(control().problem(), std::string());
    }
  }
}

const RegisteredOp& cannot_count() {
  static const RegisteredOp op = [] {
    CustomOp made = positive_op("late::cannot_count");
    made.cuda_sizes = [](const KernelCall&, std::int64_t*, void*) {
      throw std::runtime_error("no counter");
    };
    return register_op(std::move(made));
  }();
  return op;
}

TEST(CudaLateSizes, AFunctionThatFailsIsNamed) {
  Engine engine([](const Tensor& x) { return cannot_count()(x)[0]; }, on_cuda());
  EXPECT_EQ(unplaced_text_of<CustomOpError>([&] { engine.run({numbers({1, 2})}); }),
            "late::cannot_count: the function `cuda_sizes` failed: got no counter");
}

// The host meets what a check found where it waits for sizes, and queues nothing behind it.
TEST(CudaLateSizes, AreNotAskedForBehindAFailedCheck) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const auto f = [](const Tensor& x, const Tensor& at) {
    return positive()(gather(x, at, 0))[0] * 2.0f;
  };
  for (const bool graphs : {false, true}) {
    Engine engine(f, on_cuda(1, graphs));
    const std::vector<Tensor> good = {numbers({1, -2, 3}), Tensor::of<std::int64_t>({2, 0}, {2})};
    for (int repeat = 0; repeat < 3; ++repeat)
      EXPECT_THAT(engine.run(good)[0].to_doubles(), ElementsAre(6, 2));
    const std::string record = recorded([&] {
      EXPECT_THROW(engine.run({good[0], Tensor::of<std::int64_t>({2, 5}, {2})}), IndexError);
    });
    EXPECT_THAT(record, ::testing::Not(::testing::HasSubstr("launch positive")));
    EXPECT_THAT(engine.run(good)[0].to_doubles(), ElementsAre(6, 2));
  }
}

// Each call of the driver fails once: the error is typed, nothing leaks, the next run is right.
TEST(CudaLateSizes, EveryCallFailsOnceAndTheNextRunIsRight) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  constexpr int kInvalidValue = 1;
  constexpr int kOutOfMemory = 2;
  for (const char* name : {"BesideOtherWork", "InAWhileLoop"}) {
    const LateProgram& program = program_named(name);
    const auto run = [&](Engine& engine) {
      std::vector<std::vector<double>> values;
      for (const Tensor& output : engine.run(program.calls[0]))
        values.push_back(output.to_doubles());
      return values;
    };
    Engine engine(program.function, on_cuda(2, false));
    const auto want = run(engine);
    control().fail(0, 0);
    run(engine);
    const unsigned long calls = control().calls();
    ASSERT_GT(calls, 40u);
    unsigned long failures = 0;
    for (unsigned long n = 1; n <= calls; ++n) {
      SCOPED_TRACE(n);
      control().fail(n, n % 2 == 0 ? kOutOfMemory : kInvalidValue);
      try {
        EXPECT_EQ(run(engine), want) << control().failed();
      } catch (const DeviceLost& lost) {
        ADD_FAILURE() << lost.what();
      } catch (const Error&) {
        ++failures;
      }
      control().fail(0, 0);
      ASSERT_EQ(run(engine), want);
    }
    EXPECT_GT(failures, calls / 4);
  }
}

// Mutation: each wait of a stream for an event in turn is left out, and noticed, but for one that the host's own wait for
// sizes makes up for: for a copy that it has seen the end of.
TEST(CudaLateSizes, AWaitThatIsLeftOutIsNoticed) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const LateProgram& program = program_named("BesideOtherWork");
  const auto run_twice = [&](unsigned long left_out) {
    Engine engine(program.function, on_cuda(4, false));
    const auto run = [&] {
      for (const Tensor& output : engine.run(program.calls[0])) output.to_doubles();
    };
    run();
    control().skip_wait(left_out);
    std::string error;
    try {
      run();
      if (left_out != 0) run();
    } catch (const DeviceLost& lost) {
      error = lost.what();
    }
    return error;
  };
  EXPECT_EQ(run_twice(0), "");
  const unsigned long waits = control().waits();
  ASSERT_GE(waits, 6u);
  unsigned long noticed = 0;
  for (unsigned long n = 1; n <= waits; ++n) {
    noticed += run_twice(n).empty() ? 0 : 1;
    control().skip_wait(0);
  }
  EXPECT_GE(noticed + 1, waits);
}

}  // namespace
}  // namespace heddle::testing
