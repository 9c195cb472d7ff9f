// Custom ops on the CUDA device: their function gets addresses of the device, sizes, a workspace and the stream.
#include <atomic>
#include <chrono>
#include <dlfcn.h>
#include <future>
#include <gmock/gmock.h>
#include <pthread.h>

#include "examples/moe/layer.h"

#include "engine/cuda_texts.h"
#include "heddle/custom_op_c.h"
#include "tests/cuda/support.h"
#include "tests/support/error_text.h"

namespace heddle::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Number = long long;

/// Running sums: y[i] = x[0] + … + x[i], by way of the workspace, which two kernels use. `seen[0]` counts the
/// elements, wherever it lies.
void sums_on_cpu(const KernelCall& call) {
  float sum = 0;
  const KernelTensor& x = call.tensor(0);
  for (std::int64_t k = 0; k < x.count(); ++k)
    call.results[0].as<float>()[k] = sum += x.as<const float>()[k * x.strides()[0]];
  *call.tensor(1).as<std::int64_t>() += x.count();
}

constexpr const char* kCopyText = R"(
extern "C" __global__ void to_workspace(const float* x, long long stride, float* workspace, long long n) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) workspace[i] = x[i * stride];
})";
constexpr const char* kSumText = R"(
extern "C" __global__ void sum_up(const float* workspace, float* y, long long* seen, long long n) {
  float sum = 0.0f;
  for (long long i = 0; i < n; ++i) y[i] = sum += workspace[i];
  *seen += n;
})";

void sums_on_cuda(const KernelCall& call, void* stream) {
  static const CudaText copy(kCopyText, "to_workspace");
  static const CudaText sum(kSumText, "sum_up");
  const KernelTensor& x = call.tensor(0);
  EXPECT_EQ(call.workspace_bytes, x.count() * 4);
  EXPECT_EQ(call.begin, 0);
  EXPECT_EQ(call.end, 1);
  EXPECT_EQ(call.workers, 1);
  auto* workspace = static_cast<float*>(call.workspace);
  copy.launch(call, stream, {.blocks = (x.count() + 63) / 64, .threads = 64}, x.as<const float>(),
              Number{x.strides()[0]}, workspace, Number{x.count()});
  sum.launch(call, stream, {.threads = 1}, static_cast<const float*>(workspace),
             call.results[0].as<float>(), call.tensor(1).as<Number>(), Number{x.count()});
}

const RegisteredOp& sums() {
  static const RegisteredOp op = register_op(
      {.schema = "cuda_custom::sums(Tensor x, Tensor(a!) seen) -> Tensor",
       .shape = like_first,
       .cpu = sums_on_cpu,
       .workspace_bytes = [](const KernelCall& call) { return call.tensor(0).count() * 4; },
       .cuda = sums_on_cuda});
  return op;
}

/// Two branches with a custom op in each, which streams may run at the same time, and kernels around them.
std::vector<Tensor> branches(const Tensor& x, const Tensor& y, const Tensor& seen) {
  const Tensor first = slice(seen, 0, 0, 1);
  const Tensor second = slice(seen, 0, 1, 2);
  const Tensor a = sums()(exp(x), first)[0];
  const Tensor b = sums()(y * 0.5, second)[0];
  return {softmax(a * 0.01, -1) + sum(b), cumsum(b, 0)};
}

TEST(CudaCustomOp, RunsInEveryInterleavingWithAWorkspaceOfItsOwn) {
  Engine engine(branches, on_cuda(4));
  Engine reference(branches, {.device = Device::reference()});
  const Tensor seen = Tensor::of<std::int64_t>({0, 100}, {2});
  const Tensor want_seen = Tensor::of<std::int64_t>({0, 100}, {2});
  for (unsigned long seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    interleave(seed);
    const std::int64_t n = 40 + static_cast<std::int64_t>(seed);
    const std::vector<Tensor> got = engine.run({counted(f32, {n}), counted(f32, {n}, 3), seen});
    const std::vector<Tensor> want =
        reference.run({counted(f32, {n}), counted(f32, {n}, 3), want_seen});
    for (std::size_t k = 0; k < want.size(); ++k) expect_near(got[k], want[k], 1e-4);
    EXPECT_EQ(seen.to_doubles(), want_seen.to_doubles());
  }
  interleave(0);
  EXPECT_EQ(engine.stats().compiles, 1u) << "workspaces are bound, not compiled in";
  EXPECT_EQ(engine.stats().evaluator_steps, 0u);
}

TEST(CudaCustomOp, WritesAStateOfTheDeviceInPlace) {
  Engine engine([](const Tensor& x, const Tensor& seen) { return sums()(x, seen)[0]; }, on_cuda());
  const Tensor seen = Tensor::of<std::int64_t>({5}, {1}).to(cuda_device());
  const Tensor x = Tensor::of<float>({1, 2, 3}, {3}).to(cuda_device());
  EXPECT_THAT(engine.run({x, seen})[0].to_doubles(), ElementsAre(1, 3, 6));
  EXPECT_THAT(seen.to_doubles(), ElementsAre(8));
}

TEST(CudaCustomOp, RunsInsideALoop) {
  const auto f = [](const Tensor& x, const Tensor& seen) {
    using State = std::pair<Tensor, Tensor>;
    const State end = while_loop(
        State(x, seen),
        [](const State& s) { return less(sum(s.second), Tensor::scalar_int(i64, 9)); },
        [](const State& s) {
          const Tensor count = s.second + 0;
          const Tensor next = sums()(s.first, count)[0];
          return State(next * 0.5, count);
        });
    return end.first;
  };
  expect_agrees(f, {Tensor::of<float>({1, 2, 3}, {3}), Tensor::of<std::int64_t>({0}, {1})});
}

TEST(CudaCustomOp, SaysWhatItsFunctionThrewAndGoesOn) {
  static bool throws = true;
  static const RegisteredOp op = register_op(
      {.schema = "cuda_custom::throws(Tensor x) -> Tensor",
       .shape = like_first,
       .cpu = [](const KernelCall&) {},
       .cuda =
           [](const KernelCall& call, void* stream) {
             if (throws) throw std::runtime_error("the moon is full");
             static const CudaText copy(kCopyText, "to_workspace");
             copy.launch(call, stream, {.threads = 64}, call.tensor(0).as<const float>(), Number{1},
                         call.results[0].as<float>(), Number{call.tensor(0).count()});
           }});
  Engine engine([](const Tensor& x) { return op(x + 1.0f)[0] * 2.0f; }, on_cuda());
  const Tensor x = counted(f32, {3});
  const std::string text = text_of<CustomOpError>([&] { engine.run({x}); });
  EXPECT_THAT(text, HasSubstr("cuda_custom::throws: the kernel failed"));
  EXPECT_THAT(text, HasSubstr("got the moon is full"));
  throws = false;
  EXPECT_THAT(engine.run({x})[0].to_doubles(), ElementsAre(0, 1.25, 2.5));
}

TEST(CudaCustomOp, TextThatDoesNotCompileIsToldWithItsLog) {
  static const RegisteredOp op =
      register_op({.schema = "cuda_custom::broken(Tensor x) -> Tensor",
                   .shape = like_first,
                   .cpu = [](const KernelCall&) {},
                   .cuda =
                       [](const KernelCall& call, void* stream) {
                         static const CudaText text(
                             "extern \"C\" __global__ void f() { undeclared = 1; }", "f");
                         text.launch(call, stream, {});
                       }});
  Engine engine([](const Tensor& x) { return op(x)[0]; }, on_cuda());
  const std::string text = text_of<CustomOpError>([&] { engine.run({counted(f32, {3})}); });
  EXPECT_THAT(text, HasSubstr("CUDA text of f does not compile for sm_"));
  EXPECT_THAT(text, HasSubstr("undeclared"));
}

/// x * 2 + shift, whose text is compiled nowhere else.
RegisteredOp shifted(const std::string& name, int shift, const std::string& more = {}) {
  const std::string kernel = "shift_by_" + std::to_string(shift);
  const CudaText text("extern \"C\" __global__ void " + kernel +
                          "(const float* x, float* y, long long n) {\n" +
                          "  for (long long i = 0; i < n; ++i) y[i] = 2 * x[i] + " +
                          std::to_string(shift) + ";\n" + more + "}\n",
                      kernel);
  return register_op({.schema = "cuda_custom::" + name + "(Tensor x) -> Tensor",
                      .shape = like_first,
                      .cpu = [](const KernelCall&) {},
                      .cuda =
                          [text](const KernelCall& call, void* stream) {
                            text.launch(
                                call, stream, {.threads = 1}, call.tensor(0).as<const float>(),
                                call.results[0].as<float>(), Number{call.tensor(0).count()});
                          },
                      .cuda_texts = {text}});
}

TEST(CudaCustomOp, TextsThatItNamesAreCompiledWithTheGraph) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  static const RegisteredOp op = shifted("ahead", 7);
  static const RegisteredOp inner = shifted("ahead_in_a_loop", 9);
  const auto f = [](const Tensor& x) {
    const Tensor y = op(x)[0];
    return while_loop(
        y, [](const Tensor& s) { return less(sum(s), Tensor::scalar(f32, 100.0)); },
        [](const Tensor& s) { return inner(s)[0]; });
  };
  Engine engine(f, on_cuda());
  control().fail(0, 0);
  engine.prepare(std::vector<Tensor>{counted(f32, {3})});
  EXPECT_GE(control().calls_of("nvrtcCompileProgram"), 2u);
  control().fail(0, 0);
  EXPECT_EQ(engine.run({Tensor::of<float>({1, 2, 3}, {3})})[0].to_doubles(),
            (std::vector<double>{63, 71, 79}));
  for (const char* function :
       {"nvrtcCompileProgram", "cuLibraryLoadData", "cuModuleLoadData", "cuLibraryGetKernel"})
    EXPECT_EQ(control().calls_of(function), 0u) << function << " in a call";
}

TEST(CudaCustomOp, ATextThatItNamesAndDoesNotCompileIsToldWhenTheGraphIsCompiled) {
  static const RegisteredOp op = shifted("broken_ahead", 8, "undeclared = 1;");
  Engine engine([](const Tensor& x) { return op(x)[0]; }, on_cuda());
  const std::vector<Tensor> inputs{counted(f32, {3})};
  for (int time = 0; time < 2; ++time) {
    const std::string text = text_of<CustomOpError>([&] { engine.prepare(inputs); });
    EXPECT_THAT(text, HasSubstr("cuda_custom::broken_ahead: a text of its kernels failed"));
    EXPECT_THAT(text, HasSubstr("undeclared"));
  }
}

/// A module of any kernel but "none".
class AnyModule : public device::Module {
 public:
  explicit AnyModule(void* handle) : handle_(handle) {}
  device::Kernel kernel(const std::string& name, std::uint32_t) const override {
    if (name == "none") throw std::runtime_error("no such kernel");
    return {handle_};
  }

 private:
  void* handle_;
};

ir::KernelText text_named(const std::string& name, const std::string& kernel = "k") {
  return {name, kernel, base::hash128(name + kernel)};
}

TEST(CudaTexts, ACompileHoldsUpThoseWhoAskForItsTextAndNobodyElse) {
  std::promise<void> begun;
  std::promise<void> go_on;
  std::shared_future<void> until = go_on.get_future().share();
  std::atomic<int> compiles = 0;
  int handle = 0;
  engine::CudaTexts texts([&](const ir::KernelText& text) {
    ++compiles;
    if (text.text == "slow") {
      begun.set_value();
      until.wait();
    }
    return std::make_unique<AnyModule>(&handle);
  });
  const auto ask = [&](const char* text) {
    return std::async(std::launch::async,
                      [&texts, text] { return texts.kernel(text_named(text)); });
  };
  std::vector<std::future<device::Kernel>> slow;
  slow.push_back(ask("slow"));
  begun.get_future().wait();
  slow.push_back(ask("slow"));
  auto first = ask("other");
  const bool was_served = first.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
  go_on.set_value();
  EXPECT_TRUE(was_served) << "a launch of another text waited";
  EXPECT_EQ(first.get().handle, &handle);
  for (auto& kernel : slow) EXPECT_EQ(kernel.get().handle, &handle);
  EXPECT_EQ(compiles, 2) << "one compile a text";
}

TEST(CudaTexts, AreCompiledAtOnceOnLargeStacksAndAgainWhenTheyFailed) {
  std::atomic<int> compiles = 0;
  int handle = 0;
  engine::CudaTexts texts([&](const ir::KernelText&) -> std::unique_ptr<device::Module> {
    pthread_attr_t attributes;
    std::size_t bytes = 0;
    EXPECT_EQ(::pthread_getattr_np(::pthread_self(), &attributes), 0);
    ::pthread_attr_getstacksize(&attributes, &bytes);
    ::pthread_attr_destroy(&attributes);
    EXPECT_GE(bytes, std::size_t{16} << 20);
    if (++compiles == 1) throw std::runtime_error("once");
    return std::make_unique<AnyModule>(&handle);
  });
  const ir::KernelText text = text_named("text");
  const ir::KernelText absent = text_named("text", "none");
  const ir::KernelText equal = text_named("text");
  EXPECT_EQ(text_of<std::runtime_error>([&] { texts.kernel(text); }), "once");
  const ir::KernelText* const all[] = {&text, &absent, &equal};
  auto kernels = texts.compile_all(all);
  EXPECT_EQ(kernels[0].get().handle, &handle);
  EXPECT_EQ(kernels[2].get().handle, &handle);
  EXPECT_EQ(text_of<std::runtime_error>([&] { kernels[1].get(); }), "no such kernel");
  EXPECT_EQ(compiles, 3) << "equal texts are one";
  EXPECT_EQ(texts.kernel(equal).handle, &handle);
  EXPECT_EQ(compiles, 3);
}

TEST(CudaCustomOp, TextIsLaunchedOnCudaOnly) {
  static const CudaText text(kCopyText, "to_workspace");
  KernelCall call;
  call.op = "some::op";
  EXPECT_EQ(
      text_of<ArgumentError>([&] { text.launch(call, nullptr, {}); }),
      "CudaText to_workspace: launch at some::op: expected a call on CUDA, got one on the CPU");
}

/// A fault in a user's kernel ends like one in ours.
TEST(CudaCustomOp, AWildAccessLosesTheDevice) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  static const RegisteredOp op = register_op(
      {.schema = "cuda_custom::wild(Tensor x) -> Tensor",
       .shape = like_first,
       .cpu = [](const KernelCall&) {},
       .cuda =
           [](const KernelCall& call, void* stream) {
             static const CudaText copy(kCopyText, "to_workspace");
             copy.launch(call, stream, {.blocks = 100}, call.tensor(0).as<const float>(), Number{1},
                         call.results[0].as<float>(), Number{25600});
           }});
  Engine engine([](const Tensor& x) { return op(x)[0]; }, on_cuda());
  EXPECT_THROW(engine.run({counted(f32, {3})}), DeviceLost);
  EXPECT_THAT(std::string(control().problem()), HasSubstr("to_workspace: block"));
}

/// The driver's copy on the stream that a C function is given.
const char* copy_on_cuda(const heddle_kernel_call* call, void* stream, void* user) {
  using Copy = int (*)(void*, const void*, std::size_t, void*);
  void* driver = ::dlopen(test::driver_library().c_str(), RTLD_NOW);
  const auto copy = reinterpret_cast<Copy>(::dlsym(driver, "cuMemcpyDtoDAsync_v2"));
  ++*static_cast<int*>(user);
  const heddle_kernel_tensor& x = call->tensors[0];
  const std::size_t bytes = static_cast<std::size_t>(x.sizes[0]) * 4;
  return copy(call->results[0].data, x.data, bytes, stream) == 0 ? nullptr : "the copy failed";
}

TEST(CudaCustomOp, IsRegisteredFromC) {
  static int calls = 0;
  heddle_custom_op op{};
  op.schema = "cuda_custom::from_c(Tensor x) -> Tensor";
  op.shape = [](heddle_shape_call* call, void*) -> const char* {
    const heddle_size size = heddle_shape_size(call, 0, 0);
    heddle_shape_result(call, heddle_shape_dtype(call, 0), 1, &size);
    return nullptr;
  };
  op.cpu = [](const heddle_kernel_call*, void*) -> const char* { return "not on the CPU"; };
  op.cuda = copy_on_cuda;
  op.user = &calls;
  op.pure = op.capturable = 1;
  ASSERT_EQ(heddle_register_op(&op), HEDDLE_OK) << heddle_last_error();
  Engine engine([](const Tensor& x) { return call("cuda_custom::from_c", {x * 2.0f})[0] + 1.0f; },
                on_cuda());
  EXPECT_THAT(engine.run({Tensor::of<float>({1, 2}, {2})})[0].to_doubles(), ElementsAre(3, 5));
  EXPECT_EQ(calls, 1);
}

TEST(CudaCustomOp, TheMixtureOfExpertsRoutesAndCountsOnTheDevice) {
  const auto engine_on = [](const EngineOptions& options) {
    return Engine([layer = example::MoeLayer(4)](const Tensor& x,
                                                 const Tensor& counts) { return layer(x, counts); },
                  options);
  };
  Engine engine = engine_on(on_cuda());
  Engine reference = engine_on({.device = Device::reference()});
  const Tensor counts = Tensor::zeros(i64, {4}).to(cuda_device());
  const Tensor want_counts = Tensor::zeros(i64, {4});
  for (const std::int64_t rows : {3, 5}) {
    const Tensor x = counted(f32, {rows, 64});
    expect_near(engine.run({x, counts})[0], reference.run({x, want_counts})[0], 1e-4);
    EXPECT_EQ(counts.to_doubles(), want_counts.to_doubles());
  }
  EXPECT_EQ(engine.stats().evaluator_steps, 0u);
}

}  // namespace
}  // namespace heddle::testing
