// Every entry point of the simulated driver and of its libraries fails once, at each of its call sites of runs that stand for
// what engines ask of a driver: the error is typed, or something else takes the place of what failed; nothing is leaked,
// and the next run is right. Without HEDDLE_NIGHTLY=1 some of the many calls that are alike fail, and of long runs those of the
// libraries.
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <fstream>
#include <gmock/gmock.h>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "device/cuda/cuda_device.h"
#include "device/cuda/nvrtc.h"
#include "tests/cuda/library_support.h"

namespace heddle::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kInvalidArgument = 1;
constexpr int kNoMemory = 2;
constexpr int kFatal = 719;

/// Entry points that no run fails, and why.
const std::map<std::string, const char*> kNeverFailed = {
    {"cuGetErrorName", "puts an error into words: asked after one"},
    {"cuGetErrorString", "puts an error into words: asked after one"},
    {"nvrtcGetErrorString", "puts an error into words: asked after one"},
    {"cublasLtGetStatusName", "puts an error into words: asked after one"},
    {"cudnnGetErrorString", "puts an error into words: asked after one"},
    {"cudnnGetLastErrorString", "puts an error into words: asked after one"},
    {"cudnnGetVersion", "has no way to fail"},
    {"cuCtxCreate", "of callers that bring a context of their own; an engine makes none"},
    {"cuCtxDestroy", "of callers that bring a context of their own; an engine makes none"},
};

constexpr const char* kTriedAgain = "tried again, memory after what is cached was given back";
constexpr const char* kNotNeeded = "the work is done without";
constexpr const char* kGivesBack = "gives back what it is asked to all the same";
constexpr const char* kCompiledAlone = "each kernel of a program that fails is compiled by itself";

using Numbers = std::vector<std::vector<double>>;

/// A run that opens the device, works and gives all back.
struct Scenario {
  const char* name;
  std::function<Numbers()> run;
  double tolerance = 0;  ///< of numbers; another kernel may take the place of one that failed
  bool is_long = false;

  /// Each how manieth call of a function fails; 0: none. By night all, else some of those of which there are many, and of
  /// long runs those that no short one makes.
  unsigned long step(std::string_view function, unsigned long calls) const {
    if (is_nightly()) return 1;
    if (!is_long) return calls > 30 ? calls / 10 : 1;
    const bool is_own = function.starts_with("cublasLt") || function.starts_with("cudnn") ||
                        function == "cuEventElapsedTime" || function.starts_with("cuModule");
    return is_own ? calls : 0;  // the first
  }
};

void append(Numbers& numbers, const std::vector<Tensor>& tensors) {
  for (const Tensor& tensor : tensors) numbers.push_back(tensor.to_doubles());
}

EngineOptions fresh(int streams, bool graphs) {
  EngineOptions options = on_cuda(streams, graphs);
  options.disk_cache = false;  // NVRTC's functions fail too
  options.log = [](std::string_view) {};
  return options;
}

/// Two streams, a parameter, a state and a loop: every kind of step.
Numbers on_streams() {
  static const Tensor weight = counted(f32, {6, 5});
  Engine engine(
      [](const Tensor& state, const Tensor& x) {
        const Tensor a = softmax(matmul(x, weight), -1);
        const Tensor b = sum(exp(x), {0});
        assign(state, state + b);
        const Tensor looped = while_loop(
            std::vector<Tensor>{a},
            [](const std::vector<Tensor>& s) { return greater(sum(s[0]), Tensor::scalar(f32, 1)); },
            [](const std::vector<Tensor>& s) { return std::vector<Tensor>{s[0] * 0.25}; })[0];
        return std::vector<Tensor>{looped, cumsum(b, 0)};
      },
      fresh(0, false));
  const Tensor state = counted(f32, {6}, 2);
  Numbers numbers;
  append(numbers, engine.run({state, counted(f32, {4, 6})}));
  append(numbers, {state});
  return numbers;
}

/// Two calls with sizes of their own after the first: a graph is made, and then updated and a kernel left out.
Numbers on_graphs() {
  Engine engine(
      [](const Tensor& x, const Tensor& y) { return std::vector<Tensor>{softmax(x, -1), exp(y)}; },
      fresh(2, true));
  Numbers numbers;
  for (const auto& [n, m] : {std::pair{4, 4}, {4, 6}, {5, 0}})
    append(numbers, engine.run({counted(f32, {n, n}), counted(f32, {m}).to(cuda_device())}));
  return numbers;
}

/// Where the driver takes code as modules alone.
Numbers on_modules() {
  const struct Without {
    Without() { control().libraries(0); }
    ~Without() { control().libraries(1); }
  } without;
  Engine engine([](const Tensor& x) { return cumsum(softmax(x, -1), 0); }, fresh(2, false));
  Numbers numbers;
  append(numbers, engine.run({counted(f32, {4, 4})}));
  return numbers;
}

/// A capturable op: captured, captured anew, and captured where there is nothing to do.
Numbers captured_op() {
  static const CudaText text(R"(
extern "C" __global__ void entry_double(const float* x, float* y, long long n) {
  for (long long i = threadIdx.x; i < n; i += blockDim.x) y[i] = 2 * x[i];
})",
                             "entry_double");
  static const RegisteredOp op =
      register_op({.schema = "cuda_entry::twice(Tensor x) -> Tensor",
                   .shape = like_first,
                   .cpu = [](const KernelCall&) {},
                   .extent = [](const KernelCall& call) { return call.tensor(0).count(); },
                   .cuda =
                       [](const KernelCall& call, void* stream) {
                         text.launch(call, stream, {.threads = 64},
                                     call.tensor(0).as<const float>(), call.results[0].as<float>(),
                                     static_cast<long long>(call.tensor(0).count()));
                       },
                   .capturable = true});
  Engine engine([](const Tensor& x) { return op(cumsum(x, 0))[0]; }, fresh(2, true));
  Numbers numbers;
  for (const std::int64_t n : {3, 3, 70, 0, 0})
    append(numbers, engine.run({Tensor::full(f32, {n}, 1)}));
  return numbers;
}

/// A context that the caller made, current, and a stream of it.
struct OwnContext {
  void* library = ::dlopen(test::driver_library().c_str(), RTLD_NOW);
  void* context = nullptr;
  void* stream = nullptr;
  template <typename... Arguments>
  int call(const char* function, Arguments... arguments) const {
    return reinterpret_cast<int (*)(Arguments...)>(::dlsym(library, function))(arguments...);
  }
  OwnContext() {
    if (call("cuCtxCreate_v2", &context, 0u, 0) == 0 && call("cuStreamCreate", &stream, 1u) == 0)
      return;
    call("cuCtxDestroy_v2", context);
    throw DeviceError({.what = "the caller's", .where = {}, .expected = {}, .got = {}});
  }
  ~OwnContext() {
    call("cuStreamDestroy_v2", stream);
    call("cuCtxDestroy_v2", context);
  }
};

/// In a context and on a stream of the caller's own.
Numbers in_callers_context() {
  const OwnContext caller;
  EngineOptions options = fresh(2, false);
  options.context = caller.context;
  options.stream = caller.stream;
  Engine engine([](const Tensor& x) { return cumsum(softmax(x, -1), 0); }, options);
  Numbers numbers;
  for (int repeat = 0; repeat < 2; ++repeat) append(numbers, engine.run({counted(f32, {4, 4})}));
  return numbers;
}

/// An engine that lost its context stays while a new one is made.
Numbers after_a_loss() {
  static const CudaText text(
      "extern \"C\" __global__ void entry_wild(float* y) { y[1 << 20] = 1; }", "entry_wild");
  static const RegisteredOp op = register_op(
      {.schema = "cuda_entry::wild(Tensor x) -> Tensor",
       .shape = like_first,
       .cpu = [](const KernelCall&) {},
       .cuda = [](const KernelCall& call,
                  void* stream) { text.launch(call, stream, {}, call.results[0].as<float>()); }});
  Engine lost([](const Tensor& x) { return op(x)[0]; }, fresh(1, false));
  try {
    lost.run({counted(f32, {4})});
    throw std::logic_error("the wild write was not seen");
  } catch (const DeviceLost&) {
  }
  Engine engine([](const Tensor& x) { return x * 2.0f; }, fresh(1, false));
  Numbers numbers;
  append(numbers, engine.run({counted(f32, {4})}));
  return numbers;
}

constexpr const char* kByHand = "ByHand";
/// What the interface of devices has, of which engines ask for some at times and for some never.
Numbers by_hand() {
  const auto cuda = device::cuda::open_cuda(0, test::driver_path());
  const auto stream = cuda->make_stream();
  const auto begin = cuda->make_event(true);
  const auto end = cuda->make_event(true);
  device::Allocation memory(*cuda, 16);
  stream->record(*begin);
  cuda->fill(memory.get(), 0, 16, *stream);
  stream->record(*end);
  cuda->synchronize();
  device::Allocation copied(*cuda, 16);
  cuda->copy(copied.get(), memory.get(), 16, device::CopyKind::DeviceToDevice, *stream);
  std::vector<float> host(4, 1.0f);
  cuda->copy(host.data(), copied.get(), 16, device::CopyKind::DeviceToHost, *stream);
  stream->synchronize();
  const bool is_done = end->done() && end->milliseconds_since(*begin) >= 0;
  return {{host.begin(), host.end()}, {is_done ? 1.0 : 0.0}};
}

/// The environment's variable that says where a library is, for as long as it lives, and kernels of ours that are slow.
class WithLibrary {
 public:
  explicit WithLibrary(const char* variable) : variable_(variable) {
    ::setenv(variable_, test::simulator_path().c_str(), 1);
    control().slow(kOurs, kForAges);
  }
  ~WithLibrary() {
    control().slow(nullptr, 0);
    ::unsetenv(variable_);
  }

 private:
  const char* variable_;
};

/// Measured in the background, and run again with what was picked.
template <typename F>
Numbers tuned(F f, const std::vector<Tensor>& inputs) {
  EngineOptions options = fresh(2, true);
  options.autotune = true;
  Engine engine = engine_of(f, options);
  Numbers numbers;
  append(numbers, engine.run(inputs));
  engine.wait_for_specialisations();
  append(numbers, engine.run(inputs));
  return numbers;
}

Tensor entry_product(const Tensor& x, const Tensor& w) { return gelu(matmul(x, w)) * 0.5f; }

Numbers autotuned() {
  return tuned(entry_product, {fractions(f16, {3, 96}), fractions(f16, {96, 64}, 3)});
}
Numbers by_cublaslt() {
  const WithLibrary library("HEDDLE_CUBLASLT_PATH");
  const auto f = [](const Tensor& x, const Tensor& w) { return matmul(x, permute(w, {0, 2, 1})); };
  return tuned(f, {fractions(f16, {3, 16, 128}), fractions(f16, {3, 16, 128}, 3)});
}
Numbers by_cudnn() {
  const WithLibrary library("HEDDLE_CUDNN_PATH");
  const std::string text =
      "graph @c(%x: f16[2, 16, 8, 10], %w: f16[24, 16, 3, 3], %b: f16[24]) {\n  %c = conv(%x, %w, "
      "%b) {strides = [2, 3], pads_low = [0, 2], pads_high = [1, 0], dilations = [1, 1]}\n  %y = "
      "relu(%c)\n  return %y\n}\n";
  return tuned(text, {fractions(f16, {2, 16, 8, 10}), fractions(f16, {24, 16, 3, 3}, 3),
                      fractions(f16, {24}, 5)});
}

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> all = {
      {"Streams", on_streams},
      {"Graphs", on_graphs},
      {"Modules", on_modules},
      {"CapturedOp", captured_op},
      {"CallersContext", in_callers_context},
      {"AfterALoss", after_a_loss},
      {kByHand, by_hand},
      {"Autotuned", autotuned, 1e-2, true},
      {"CublasLt", by_cublaslt, 1e-2, true},
      {"Cudnn", by_cudnn, 1e-2, true},
  };
  return all;
}

void expect_numbers(const Numbers& got, const Numbers& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t k = 0; k < got.size(); ++k) {
    ASSERT_EQ(got[k].size(), want[k].size());
    for (std::size_t i = 0; i < got[k].size(); ++i)
      ASSERT_NEAR(got[k][i], want[k][i], tolerance * (1 + std::abs(want[k][i])))
          << "output " << k << ", element " << i;
  }
}

/// Calls by entry point since the last `fail`.
std::map<std::string, unsigned long> called() {
  std::istringstream lines(control().called());
  std::map<std::string, unsigned long> calls;
  std::string function;
  unsigned long count = 0;
  while (lines >> function >> count) calls[function] = count;
  return calls;
}

class CudaEntryPoints : public ::testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override {
    if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
    want_ = one().run();
    control().leaked();
    control().fail(0, 0);
    expect_numbers(one().run(), want_, one().tolerance);
  }
  void TearDown() override {
    if (on_simulator()) control().fail(0, 0);
  }

  const Scenario& one() const { return scenarios()[GetParam()]; }
  /// @return whether an error was thrown.
  bool run_failing() {
    try {
      expect_numbers(one().run(), want_, one().tolerance);
    } catch (const Error& typed) {
      EXPECT_THAT(std::string(typed.what()), Not(IsEmpty()));
      return true;
    }
    return false;
  }
  /// @param left  what the run that failed could not give back
  void expect_next_run_is_right(unsigned long left) {
    control().fail(0, 0);
    EXPECT_EQ(control().live(), left);
    EXPECT_EQ(control().leaked(), 0u);
    expect_numbers(one().run(), want_, one().tolerance);
    EXPECT_EQ(control().leaked(), 0u);
  }

  Numbers want_;
};

INSTANTIATE_TEST_SUITE_P(Runs, CudaEntryPoints,
                         ::testing::Range(std::size_t{0}, scenarios().size()),
                         [](const auto& info) { return scenarios()[info.param].name; });

/// Entry points whose failure need not end a run that measures nothing, and why.
const std::map<std::string, const char*> kMaySurvive = {
    {"cuMemAlloc", kTriedAgain},
    {"cuMemHostAlloc", kTriedAgain},
    {"cuEventSynchronize", kTriedAgain},
    {"cuCtxPushCurrent", "tried again by who gives something back"},
    {"cuCtxPopCurrent", kNotNeeded},
    {"cuThreadExchangeStreamCaptureMode", kNotNeeded},
    {"cuGraphExecChildGraphNodeSetParams", "the graph is made anew"},
    {"cuMemFree", kGivesBack},
    {"cuMemFreeHost", kGivesBack},
    {"cuStreamDestroy", kGivesBack},
    {"cuEventDestroy", kGivesBack},
    {"cuGraphDestroy", kGivesBack},
    {"cuGraphExecDestroy", kGivesBack},
    {"cuModuleUnload", kGivesBack},
    {"cuLibraryUnload", kGivesBack},
    {"cuDevicePrimaryCtxRelease", kGivesBack},
    {"nvrtcDestroyProgram", kGivesBack},
    {"nvrtcCreateProgram", kCompiledAlone},
    {"nvrtcCompileProgram", kCompiledAlone},
    {"nvrtcGetProgramLogSize", kCompiledAlone},
    {"nvrtcGetProgramLog", kCompiledAlone},
    {"nvrtcGetCUBINSize", kCompiledAlone},
    {"nvrtcGetCUBIN", kCompiledAlone},
    {"cuLibraryLoadData", kCompiledAlone},
    {"cuLibraryGetKernel", kCompiledAlone},
    {"cuKernelGetFunction", kCompiledAlone},
    {"cuModuleLoadData", kCompiledAlone},
    {"cuModuleGetFunction", kCompiledAlone},
    {"cuFuncLoad", kCompiledAlone},
    {"cuFuncGetAttribute", kCompiledAlone},
};

TEST_P(CudaEntryPoints, FailOnceAtEachCallSite) {
  for (const auto& [function, count] : called()) {
    if (kNeverFailed.contains(function)) continue;
    bool was_failed = false;
    const unsigned long step = one().step(function, count);
    if (step == 0) continue;
    for (unsigned long n = 1; n <= count; n += step) {
      SCOPED_TRACE(function + ", call " + std::to_string(n));
      control().fail_call_of(function.c_str(), n, n % 2 == 0 ? kNoMemory : kInvalidArgument);
      const bool threw = run_failing();
      was_failed = was_failed || control().failed() == function;
      EXPECT_TRUE(threw || one().is_long || kMaySurvive.contains(function));
      expect_next_run_is_right(0);
      if (HasFatalFailure()) return;
    }
    EXPECT_TRUE(was_failed) << function;
  }
}

/// A lost context is not touched again, so that what libraries made for it stays.
TEST_P(CudaEntryPoints, AfterAFatalErrorAnywhereANewEngineWorks) {
  const unsigned long calls = control().calls();
  const unsigned long step = is_nightly() ? 1 : one().is_long ? calls / 2 : 13;
  for (unsigned long n = 1; n <= calls; n += step) {
    SCOPED_TRACE("call " + std::to_string(n));
    control().fail(n, kFatal);
    run_failing();
    SCOPED_TRACE(control().failed());
    expect_next_run_is_right(control().live());
    if (HasFatalFailure()) return;
  }
}

/// The functions that the simulator exports under names of the driver and its libraries, without their versions.
std::set<std::string> exported() {
  std::ifstream file(test::simulator_path(), std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  const auto at = [&](std::size_t offset, auto& to) {
    std::memcpy(&to, bytes.data() + offset, sizeof to);
  };
  Elf64_Ehdr header{};
  at(0, header);
  std::set<std::string> names;
  for (std::size_t k = 0; k < header.e_shnum; ++k) {
    Elf64_Shdr symbols{}, strings{};
    at(header.e_shoff + k * sizeof symbols, symbols);
    if (symbols.sh_type != SHT_DYNSYM) continue;
    at(header.e_shoff + symbols.sh_link * sizeof strings, strings);
    for (std::size_t offset = 0; offset < symbols.sh_size; offset += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol{};
      at(symbols.sh_offset + offset, symbol);
      std::string name = bytes.data() + strings.sh_offset + symbol.st_name;
      if (symbol.st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol.st_info) != STT_FUNC) continue;
      if (!name.starts_with("cu") && !name.starts_with("nvrtc")) continue;
      names.insert(name.substr(0, name.find("_v")));
    }
  }
  return names;
}

/// A function that the simulator gains has to be failed somewhere too. No engine waits for all that a device has to do, which is others'
/// work too; nor does it use the default stream, which the simulator refuses.
TEST(CudaEntryPointsOfTheSimulator, AreAllCalledByTheRunsOrNamed) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  std::set<std::string> reached;
  for (const Scenario& one : scenarios()) {
    control().fail(0, 0);
    one.run();
    for (const auto& [function, count] : called()) {
      EXPECT_TRUE(function != "cuCtxSynchronize" || std::string_view(one.name) == kByHand)
          << one.name;
      reached.insert(function);
    }
  }
  const std::set<std::string> names = exported();
  EXPECT_GT(names.size(), 90u);
  for (const std::string& name : names)
    EXPECT_TRUE(reached.contains(name) || kNeverFailed.contains(name)) << name;
  for (const std::string& name : reached) EXPECT_TRUE(names.contains(name)) << name;
  for (const auto& [name, why] : kNeverFailed) EXPECT_TRUE(names.contains(name)) << name;
}

}  // namespace
}  // namespace heddle::testing
