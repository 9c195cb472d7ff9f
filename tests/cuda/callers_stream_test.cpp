// Engines on the caller's stream and in the caller's context: calls that do not wait.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <thread>

#include "tests/control_flow/late_programs.h"
#include "tests/cuda/support.h"

namespace heddle::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The driver as a caller that uses CUDA by itself has it.
struct Driver {
  void* library = ::dlopen(test::driver_library().c_str(), RTLD_NOW);
  template <typename Function>
  void load(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(::dlsym(library, name));
  }
  Driver() {
    load(retain, "cuDevicePrimaryCtxRetain");
    load(release, "cuDevicePrimaryCtxRelease_v2");
    load(create, "cuCtxCreate_v2");
    load(destroy, "cuCtxDestroy_v2");
    load(push, "cuCtxPushCurrent_v2");
    load(pop, "cuCtxPopCurrent_v2");
    load(make_stream, "cuStreamCreate");
    load(drop_stream, "cuStreamDestroy_v2");
    load(synchronize, "cuStreamSynchronize");
    load(allocate, "cuMemAlloc_v2");
    load(free, "cuMemFree_v2");
    load(fill, "cuMemsetD8Async");
    load(copy, "cuMemcpyDtoDAsync_v2");
    load(copy_out, "cuMemcpyDtoHAsync_v2");
    load(begin_capture, "cuStreamBeginCapture_v2");
    load(end_capture, "cuStreamEndCapture");
    load(drop_graph, "cuGraphDestroy");
  }
  int (*retain)(void**, int);
  int (*release)(int);
  int (*create)(void**, unsigned int, int);
  int (*destroy)(void*);
  int (*push)(void*);
  int (*pop)(void**);
  int (*make_stream)(void**, unsigned int);
  int (*drop_stream)(void*);
  int (*synchronize)(void*);
  int (*allocate)(void**, std::size_t);
  int (*free)(void*);
  int (*fill)(void*, unsigned char, std::size_t, void*);
  int (*copy)(void*, const void*, std::size_t, void*);
  int (*copy_out)(void*, const void*, std::size_t, void*);
  int (*begin_capture)(void*, int);
  int (*end_capture)(void*, void**);
  int (*drop_graph)(void*);
};

/// A context, the primary one or one of its own, current while it lives, and a stream of it.
class Caller {
 public:
  explicit Caller(bool own_context = false) : own_(own_context) {
    if (own_) {
      EXPECT_EQ(driver.create(&context, 0, 0), 0);
    } else {
      EXPECT_EQ(driver.retain(&context, 0), 0);
      EXPECT_EQ(driver.push(context), 0);
    }
    EXPECT_EQ(driver.make_stream(&stream, 1), 0);
  }
  ~Caller() {
    EXPECT_EQ(driver.drop_stream(stream), 0);
    void* popped = nullptr;
    if (own_) {
      EXPECT_EQ(driver.destroy(context), 0);
    } else {
      EXPECT_EQ(driver.pop(&popped), 0);
      EXPECT_EQ(driver.release(0), 0);
    }
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  EngineOptions options(bool graphs = true) const {
    EngineOptions options = on_cuda(3, graphs);
    options.stream = stream;
    if (own_) options.context = context;
    return options;
  }

  Driver driver;
  void* context = nullptr;
  void* stream = nullptr;

 private:
  bool own_;
};

/// Kernels on several streams.
Tensor wide(const Tensor& x) {
  return matmul(softmax(matmul(x, x), -1), softmax(x * 0.5f, -1)) + sum(exp(x), {0});
}

Tensor on_device(const Tensor& tensor) { return tensor.to(cuda_device()); }

/// In the mode that captures begin with, which forbids every thread what may wait or allocate.
TEST(CallersStream, ACaptureOfTheCallersGoesOnWhileEnginesRun) {
  const Caller caller;
  constexpr int kGlobal = 0;
  ASSERT_EQ(caller.driver.begin_capture(caller.stream, kGlobal), 0);
  const auto run = [] {
    Engine engine(wide, on_cuda(3, true));
    Engine reference(wide, {.device = Device::reference()});
    const Tensor want = reference.run({counted(f32, {4, 4})})[0];
    for (int k = 0; k < 3; ++k) expect_near(engine.run({counted(f32, {4, 4})})[0], want, 1e-5);
  };
  EXPECT_NO_THROW(run());
  std::thread other([&] { EXPECT_NO_THROW(run()); });
  other.join();
  void* graph = nullptr;
  EXPECT_EQ(caller.driver.end_capture(caller.stream, &graph), 0) << "nothing broke it";
  EXPECT_EQ(caller.driver.drop_graph(graph), 0);
}

/// What is captured would run again when the call's memory is another's.
TEST(CallersStream, AStreamThatIsCapturedIsRefused) {
  const Caller caller;
  constexpr int kRelaxed = 2;
  for (const bool graphs : {false, true}) {
    Engine engine(wide, caller.options(graphs));
    Engine reference(wide, {.device = Device::reference()});
    const Tensor x = on_device(counted(f32, {4, 4}));
    for (int k = 0; k < 2; ++k)
      expect_near(engine.run({x})[0], reference.run({counted(f32, {4, 4})})[0], 1e-5);
    ASSERT_EQ(caller.driver.begin_capture(caller.stream, kRelaxed), 0);
    EXPECT_THAT(unplaced_text_of<DeviceError>([&] { engine.run({x}); }),
                HasSubstr("run: the caller's stream"));
    void* graph = nullptr;
    EXPECT_EQ(caller.driver.end_capture(caller.stream, &graph), 0) << "nothing broke it";
    EXPECT_EQ(caller.driver.drop_graph(graph), 0);
    expect_near(engine.run({x})[0], reference.run({counted(f32, {4, 4})})[0], 1e-5);
  }
}

TEST(CallersStream, ACallReturnsBeforeItsWorkRan) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const Caller caller;
  for (const bool graphs : {false, true}) {
    Engine engine(wide, caller.options(graphs));
    Engine reference(wide, {.device = Device::reference()});
    const Tensor x = on_device(counted(f32, {4, 4}));
    for (int k = 0; k < 3; ++k) {
      const unsigned long before = control().operations();
      control().fail(0, 0);
      const Tensor out = engine.run({x})[0];
      EXPECT_EQ(control().operations(), before) << "nothing runs until the host waits";
      EXPECT_EQ(control().calls_of("cuStreamSynchronize"), 0u);
      EXPECT_EQ(control().calls_of("cuCtxSynchronize"), 0u);
      out.wait();
      EXPECT_GT(control().operations(), before);
      expect_near(out, reference.run({counted(f32, {4, 4})})[0], 1e-5);
    }
  }
}

TEST(CallersStream, CallsThatFeedEachOtherNeedNoWait) {
  const Caller caller;
  const auto step = [](const Tensor& x) { return tanh(matmul(x, x) * 0.1f); };
  for (const bool graphs : {false, true}) {
    Engine engine(step, caller.options(graphs));
    Engine reference(step, {.device = Device::reference()});
    Tensor want = counted(f32, {4, 4});
    for (int k = 0; k < 12; ++k) want = reference.run({want})[0];
    for (unsigned long seed = 0; seed < 4; ++seed) {
      interleave(seed);
      Tensor x = on_device(counted(f32, {4, 4}));
      for (int k = 0; k < 12; ++k) x = engine.run({x})[0];
      expect_near(x, want, 1e-5);
    }
    interleave(0);
  }
}

// Handles that are handed over are gone when the call returns, but their memory stays until the stream has passed the last
// step that uses it; and a call that overwrites an input waits for those that still read it.
TEST(CallersStream, DonatedMemoryStaysUntilTheStreamHasPassed) {
  const Caller caller;
  const auto step = [](const Tensor& x) { return tanh(matmul(x, x) * 0.1f); };
  for (const bool graphs : {false, true}) {
    EngineOptions options = caller.options(graphs);
    options.donate = {"input0"};
    Engine engine(step, options);
    Engine reader([](const Tensor& x) { return cumsum(x, 0); }, on_cuda(2, graphs));
    Engine reference(step, {.device = Device::reference()});
    Tensor want = counted(f32, {4, 4});
    for (int k = 0; k < 12; ++k) want = reference.run({want})[0];
    for (unsigned long seed = 0; seed < 4; ++seed) {
      interleave(seed);
      std::vector<Tensor> state{on_device(counted(f32, {4, 4}))};
      for (int k = 0; k < 12; ++k) {
        if (k == 6) reader.run(state);
        std::vector<Tensor> next = engine.run(std::move(state));
        EXPECT_FALSE(state[0].defined());
        state = std::move(next);
      }
      expect_near(state[0], want, 1e-5);
    }
    interleave(0);
  }
}

// Calls are queued one behind the other, and read what those before them append.
TEST(CallersStream, CachesAreAppendedToWithoutWaiting) {
  const Caller caller;
  const auto grow = [](const Tensor& x, const Tensor& past) {
    const Tensor all = concat({past, exp(x)}, 1);
    return std::vector<Tensor>{sum(all * 2.0f, {1}), all, cumsum(x, 1)};
  };
  const auto token = [](int number) { return Tensor::full(f32, {3, 1, 5}, 0.1 * number); };
  for (const bool graphs : {false, true}) {
    EngineOptions options = caller.options(graphs);
    options.append = {"input1"};
    Engine engine(grow, options);
    Engine reference(grow, {.device = Device::reference()});
    for (unsigned long seed = 0; seed < 4; ++seed) {
      interleave(seed);
      Tensor want_past = Tensor::full(f32, {3, 2, 5}, 3), past = on_device(want_past);
      std::vector<std::vector<Tensor>> got, want;
      for (int number = 0; number < 70; ++number) {
        got.push_back(engine.run({on_device(token(number)), past}));
        want.push_back(reference.run({token(number), want_past}));
        past = got.back()[1], want_past = want.back()[1];
      }
      for (std::size_t k = 0; k < got.size(); ++k)
        for (std::size_t o = 0; o < 3; ++o) expect_near(got[k][o], want[k][o], 1e-4);
    }
    interleave(0);
    EXPECT_EQ(engine.stats().append_copies, 4 * 2u);
  }
}

// Memory that is handed over goes from call to call while all of them are under way; others that read it are waited for.
TEST(CallersStream, OutputsTakeOverMemoryOfCallsUnderWay) {
  const Caller caller;
  const auto step = [](const Tensor& x) { return x * 2.0f - 1.0f; };
  for (const bool graphs : {false, true}) {
    EngineOptions options = caller.options(graphs);
    options.donate = {"input0"};
    Engine engine(step, options);
    Engine reader([](const Tensor& x) { return cumsum(x, 0); }, on_cuda(2, graphs));
    for (unsigned long seed = 0; seed < 4; ++seed) {
      interleave(seed);
      std::vector<Tensor> state{on_device(Tensor::full(f32, {100}, 2))};
      const void* const memory = state[0].data();
      Tensor sums;
      for (int k = 0; k < 10; ++k) {
        if (k == 4) sums = reader.run(state)[0];
        state = engine.run(std::move(state));
        EXPECT_EQ(state[0].data(), memory) << k;
      }
      EXPECT_THAT(state[0].to_doubles(), ::testing::Each(1025));
      EXPECT_EQ(sums.to_doubles().back(), 1700);
      const Tensor other = state[0];
      state = engine.run(std::move(state));
      EXPECT_NE(state[0].data(), memory) << "somebody holds it";
      EXPECT_THAT(other.to_doubles(), ::testing::Each(1025));
    }
    interleave(0);
  }
}

// Into the same memory, call after call, with nobody waiting in between.
TEST(CallersStream, OutputsInDonatedMemory) {
  const Caller caller;
  EngineOptions options = caller.options();
  options.donate = {"input0"};
  Engine engine([](const Tensor& x) { return x * 2.0f + 1.0f; }, options);
  Tensor x = on_device(Tensor::full(f32, {100}, 1));
  for (int k = 0; k < 6; ++k) engine.run_into(std::array{x}, std::span(&x, 1));
  EXPECT_THAT(x.to_doubles(), ::testing::Each(127));
}

/// A call waits on the host for the sizes that it cannot know, and for nothing behind them.
TEST(CallersStream, WaitsForSizesAndLeavesTheRest) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const Caller caller;
  const auto f = [](const Tensor& x) {
    const Tensor kept = positive_counted_there()(x * 2.0f)[0];
    return concat({cumsum(kept, 0), kept}, 0) - 1.0f;
  };
  Engine reference(f, {.device = Device::reference()});
  const Tensor first = numbers({1, -2, 3, 4, -5});
  const Tensor want = reference.run({reference.run({first})[0]})[0];
  for (const bool graphs : {false, true}) {
    Engine engine(f, caller.options(graphs));
    for (unsigned long seed = 0; seed < 6; ++seed) {
      control().seed(seed);
      const Tensor middle = engine.run({on_device(first)})[0];
      control().fail(0, 0);
      const Tensor out = engine.run({middle})[0];
      EXPECT_EQ(control().calls_of("cuStreamSynchronize"), 1u) << "for the sizes";
      EXPECT_EQ(control().calls_of("cuCtxSynchronize"), 0u);
      const unsigned long before = control().operations();
      out.wait();
      EXPECT_GT(control().operations(), before) << "what follows the sizes ran later";
      ASSERT_TRUE(std::ranges::equal(out.sizes(), want.sizes()));
      expect_near(out, want, 1e-5);
    }
    control().seed(0);
  }
}

/// Memory of tensors that nobody holds any more is not handed out while queued work uses it.
TEST(CallersStream, InputsAndOutputsAreKeptUntilTheyAreUsed) {
  const Caller caller;
  Engine engine(wide, caller.options());
  Engine reference(wide, {.device = Device::reference()});
  const Tensor want = reference.run({counted(f32, {8, 8})})[0];
  for (unsigned long seed = 0; seed < 6; ++seed) {
    interleave(seed);
    std::vector<Tensor> outputs;
    for (int k = 0; k < 5; ++k) {
      const Tensor out = engine.run({on_device(counted(f32, {8, 8}))})[0];
      if (k % 2 == 0) outputs.push_back(out);
      on_device(Tensor::full(f32, {8, 8}, 7));  // takes the memory of what was given back
    }
    for (const Tensor& output : outputs) expect_near(output, want, 1e-5);
  }
  interleave(0);
}

TEST(CallersStream, TheCallersOwnWorkIsBeforeAndAfter) {
  const Caller caller;
  Engine engine([](const Tensor& x) { return x + 1.0f; }, caller.options());
  constexpr std::size_t kBytes = 16;
  void* in = nullptr;
  void* out = nullptr;
  ASSERT_EQ(caller.driver.allocate(&in, kBytes), 0);
  ASSERT_EQ(caller.driver.allocate(&out, kBytes), 0);
  int freed = 0;
  {
    const Tensor x = engine.wrap_device(in, f32, {4}, [&](void*) { ++freed; });
    std::vector<Tensor> outputs = {engine.wrap_device(out, f32, {4})};
    for (int k = 0; k < 3; ++k) {
      ASSERT_EQ(caller.driver.fill(in, 0, kBytes, caller.stream), 0);
      engine.run_into(std::vector{x}, outputs);
      ASSERT_EQ(caller.driver.copy(in, out, kBytes, caller.stream), 0);
      engine.run_into(std::vector{x}, outputs);
      std::vector<float> host(4);
      ASSERT_EQ(caller.driver.copy_out(host.data(), out, kBytes, caller.stream), 0);
      ASSERT_EQ(caller.driver.synchronize(caller.stream), 0);
      EXPECT_THAT(host, ElementsAre(2, 2, 2, 2));
    }
  }
  EXPECT_EQ(freed, 0) << "the last call has not been found done yet";
  engine.run({Tensor::zeros(f32, {4})})[0].wait();
  {
    const Engine gone = std::move(engine);
  }
  EXPECT_EQ(freed, 1);
  EXPECT_EQ(caller.driver.free(in), 0);
  EXPECT_EQ(caller.driver.free(out), 0);
}

TEST(CallersStream, OtherEnginesWaitForWhatTheyRead) {
  const Caller caller;
  Engine producer(wide, caller.options());
  Engine consumer([](const Tensor& x) { return softmax(x, -1); }, on_cuda(2));
  Engine writer([](const Tensor& x) { return x * 0.0f; }, on_cuda(2));
  Engine reference([](const Tensor& x) { return softmax(wide(x), -1); },
                   {.device = Device::reference()});
  const Tensor want = reference.run({counted(f32, {6, 6})})[0];
  for (unsigned long seed = 0; seed < 12; ++seed) {
    interleave(seed);
    const Tensor x = on_device(counted(f32, {6, 6}));
    const Tensor made = producer.run({x})[0];
    // Overwrites what the producer reads: that has to wait too.
    std::vector<Tensor> over = {x};
    const Tensor ones = on_device(Tensor::full(f32, {6, 6}, 1));
    writer.run_into(std::vector{ones}, over);
    expect_near(consumer.run({made})[0], want, 1e-5);
    EXPECT_EQ(x.to_doubles()[5], 0);
  }
  interleave(0);
}

TEST(CallersStream, ResultsOnTheHostAreThereWhenACallReturns) {
  const Caller caller;
  Engine engine(
      [](const Tensor& state, const Tensor& x) {
        assign(state, state + x);
        return sum(state, {0});
      },
      caller.options());
  const Tensor x = on_device(Tensor::full(f32, {2}, 10));
  const Tensor state = Tensor::of<float>({1, 2}, {2});
  for (int k = 1; k <= 3; ++k) {
    engine.run({state, x});
    EXPECT_THAT(state.to_doubles(), ElementsAre(1 + 10 * k, 2 + 10 * k));
  }
  std::vector<Tensor> outputs = {Tensor::empty(f32, {})};
  engine.run_into(std::vector{on_device(state), x}, outputs);
  EXPECT_EQ(outputs[0].data_as<float>()[0], 83);
}

TEST(CallersStream, HostInputsMayChangeWhenACallReturned) {
  const Caller caller;
  Engine engine([](const Tensor& x) { return x * 2.0f; }, caller.options());
  std::vector<Tensor> outputs;
  Tensor x = Tensor::zeros(f32, {3});
  for (int k = 0; k < 7; ++k) {
    std::fill_n(x.data_as<float>(), 3, static_cast<float>(k));
    outputs.push_back(engine.run({x})[0]);
  }
  for (int k = 0; k < 7; ++k)
    EXPECT_THAT(outputs[static_cast<std::size_t>(k)].to_doubles(),
                ElementsAre(2 * k, 2 * k, 2 * k));
}

TEST(CallersStream, AnIndexOutOfRangeIsToldByWhoWaits) {
  const Caller caller;
  Engine engine([](const Tensor& table, const Tensor& at) { return gather(table, at) * 2.0f; },
                caller.options());
  const Tensor table = on_device(counted(f32, {3, 2}));
  const auto at = [](std::int64_t k) { return on_device(Tensor::of<std::int64_t>({k}, {1})); };
  const std::vector<double> good = engine.run({table, at(2)})[0].to_doubles();
  for (int k = 0; k < 3; ++k) {
    const Tensor bad = engine.run({table, at(9)})[0];
    const Tensor next = engine.run({table, at(2)})[0];
    for (int again = 0; again < 2; ++again) {
      try {
        bad.wait();
        ADD_FAILURE() << "no error";
      } catch (const IndexError& error) {
        EXPECT_THAT(std::string(error.what()), HasSubstr("gather: index out of range"));
      }
    }
    EXPECT_THROW(bad.to_doubles(), IndexError);
    EXPECT_EQ(next.to_doubles(), good);
    EXPECT_NO_THROW(table.wait()) << "it was read only";
  }
}

TEST(CallersStream, NewParametersAndTheEndOfAnEngineDoNotDisturbCallsUnderWay) {
  const Caller caller;
  const Tensor weights = counted(f32, {64});
  Tensor late;
  std::vector<Tensor> early;
  {
    Engine engine([weights](const Tensor& x) { return cumsum(x * weights, 0); }, caller.options());
    const Tensor ones = on_device(Tensor::full(f32, {64}, 1));
    engine.run({ones})[0].wait();
    for (int k = 0; k < 3; ++k) early.push_back(engine.run({ones})[0]);
    engine.update_parameter(weights, Tensor::full(f32, {64}, 2));
    late = engine.run({ones})[0];
  }
  EXPECT_EQ(late.to_doubles()[63], 128);
  double sum = 0;
  for (const double value : weights.to_doubles()) sum += value;
  for (const Tensor& output : early) EXPECT_NEAR(output.to_doubles()[63], sum, 1e-4);
}

TEST(CallersStream, ManyThreadsShareAStream) {
  const Caller caller;
  Engine engine(wide, caller.options());
  Engine reference(wide, {.device = Device::reference()});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const Tensor want = reference.run({counted(f32, {4 + t, 4 + t})})[0];
      for (int k = 0; k < 6; ++k) {
        const Tensor x = on_device(counted(f32, {4 + t, 4 + t}));
        expect_near(engine.run({x})[0], want, 1e-5);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(CallersStream, IsForCudaOnly) {
  EngineOptions options;
  options.stream = &options;
  try {
    const Engine engine(wide, options);
    ADD_FAILURE() << "no error";
  } catch (const OptionError& error) {
    EXPECT_EQ(std::string(error.what()), "stream: expected a device that is CUDA, got cpu");
  }
}

TEST(CallersContext, NothingOfThePrimaryOneIsUsed) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  control().fail(0, 0);
  {
    const Caller caller(true);
    Engine engine(wide, caller.options());
    Engine reference(wide, {.device = Device::reference()});
    const Tensor want = reference.run({counted(f32, {4, 4})})[0];
    for (int k = 0; k < 3; ++k) {
      const Tensor out = engine.run({counted(f32, {4, 4})})[0];
      expect_near(out, want, 1e-5);
      expect_near(out.clone(), want, 1e-5);
    }
    EXPECT_EQ(control().calls_of("cuDevicePrimaryCtxRetain"), 0u);
    EXPECT_EQ(control().calls_of("cuDevicePrimaryCtxReset"), 0u);
  }
  EXPECT_EQ(control().live(), 0u);
}

TEST(CallersContext, TensorsOfAnotherContextAreRefusedByName) {
  const Caller caller(true);
  Engine engine([](const Tensor& x) { return x + 1.0f; }, caller.options());
  const Tensor x = on_device(counted(f32, {4}));
  try {
    engine.run({x});
    ADD_FAILURE() << "no error";
  } catch (const DeviceLost&) {
    ADD_FAILURE() << "no device is lost";
  } catch (const DeviceError& error) {
    EXPECT_EQ(
        std::string(error.what()),
        "run: input input0 at " + cuda_device().to_string() +
            ": expected a tensor in the CUDA context of the engine, got one in another context");
  }
}

/// A stream of one context used in another one is refused by drivers.
TEST(CallersContext, AStreamOfAnotherContextIsAnError) {
  const Caller other;
  const Caller caller(true);
  EngineOptions options = caller.options();
  options.stream = other.stream;
  Engine engine([](const Tensor& x) { return x + 1.0f; }, options);
  EXPECT_THROW(engine.run({counted(f32, {4})}), DeviceError);
}

}  // namespace
}  // namespace heddle::testing
