// The CUDA device over a driver (tests/support/cuda_driver.h), and without any.
#include "device/cuda/cuda_device.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "device/cuda/driver.h"
#include "device/cuda/nvrtc.h"
#include "heddle/error.h"
#include "tests/cuda_sim/control.h"
#include "tests/support/cuda_driver.h"
#include "tests/support/primary_context.h"

namespace heddle::tests {
namespace {

using device::CopyKind;
using device::cuda::Nvrtc;
using device::cuda::open_cuda;
using test::driver_path;
using test::kNeedsSimulator;
using test::on_simulator;

std::unique_ptr<device::Module> compile(device::Device& device, const std::string& text) {
  const Nvrtc nvrtc(driver_path());
  const auto compiled = nvrtc.compile_cubin(text, "test", device.properties().arch);
  return device.load(compiled.image);
}

/// The text of the error that `call` throws.
template <typename Expected, typename Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Expected& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error of this type";
  return {};
}

TEST(CudaDevice, NamesTheDriverItCannotLoad) {
  const std::string text = error_of<DeviceError>([] { open_cuda(0, "/nonexistent/libcuda.so.1"); });
  EXPECT_NE(text.find("the CUDA driver cannot be loaded"), std::string::npos) << text;
  EXPECT_NE(text.find("expected one of /nonexistent/libcuda.so.1"), std::string::npos) << text;
  EXPECT_NE(text.find("No such file"), std::string::npos) << text;
}

TEST(CudaDevice, NamesTheFunctionThatALibraryLacks) {
  const std::string text = error_of<DeviceError>([] { open_cuda(0, "libm.so.6"); });
  EXPECT_NE(text.find("the function cuInit"), std::string::npos) << text;
}

TEST(CudaDevice, LooksWhereItIsTold) {
  EXPECT_EQ(device::cuda::driver_paths("/a/b.so"), std::vector<std::string>{"/a/b.so"});
  EXPECT_EQ(device::cuda::nvrtc_paths("/a/b.so"), std::vector<std::string>{"/a/b.so"});
  EXPECT_EQ(device::cuda::nvrtc_paths("/usr"),
            (std::vector<std::string>{"/usr/libnvrtc.so.13", "/usr/libnvrtc.so.12"}));
}

TEST(CudaDevice, KnowsWhichErrorsAContextDoesNotSurvive) {
  using device::cuda::Driver;
  // Illegal address, assertion, misaligned address, launch failure, leak of tensor memory, server gone, device gone.
  for (const int error : {700, 710, 716, 719, 721, 810, 911})
    EXPECT_TRUE(Driver::is_fatal(error)) << error;
  // None, value, memory, captures, not ready, resources of a launch, not permitted, unsupported.
  for (const int error : {0, 1, 2, 900, 901, 600, 701, 800, 801})
    EXPECT_FALSE(Driver::is_fatal(error)) << error;
}

TEST(CudaDevice, HasNoDeviceBeyondTheLast) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const std::string text = error_of<DeviceError>([] { open_cuda(7, driver_path()); });
  EXPECT_NE(text.find("CUDA device 7"), std::string::npos) << text;
  EXPECT_NE(text.find("an index below 1"), std::string::npos) << text;
}

TEST(CudaDevice, TellsItsProperties) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const auto cuda = open_cuda(0, driver_path());
  EXPECT_EQ(cuda->properties().arch, "sm_90a");
  EXPECT_EQ(cuda->properties().name, "heddle simulated device");
  EXPECT_GT(cuda->properties().memory_bytes, 0);
  EXPECT_GT(cuda->properties().max_shared_bytes, 48 * 1024);
}

TEST(CudaDevice, RunsAKernelAcrossStreamsAndEvents) {
  const auto cuda = open_cuda(0, driver_path());
  const auto module = compile(*cuda, R"(
extern "C" __global__ void scale(float* x, long long n, float by) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * by;
})");
  const auto first = cuda->make_stream();
  const auto second = cuda->make_stream();
  const auto event = cuda->make_event();
  std::vector<float> host(100, 2.0f);
  device::Allocation memory(*cuda, 400);
  cuda->copy(memory.get(), host.data(), 400, CopyKind::HostToDevice, *first);
  void* pointer = memory.get();
  long long count = 100;
  float by = 1.5f;
  void* const arguments[] = {&pointer, &count, &by};
  cuda->launch(module->kernel("scale"), {.blocks = 2, .threads = 64}, arguments, *first);
  first->record(*event);
  second->wait(*event);
  cuda->copy(host.data(), memory.get(), 400, CopyKind::DeviceToHost, *second);
  second->synchronize();
  EXPECT_TRUE(event->done());
  for (const float x : host) ASSERT_EQ(x, 3.0f);
}

TEST(CudaDevice, WorksOnAnyThread) {
  const auto cuda = open_cuda(0, driver_path());
  std::thread([&] { device::Allocation memory(*cuda, 64); }).join();
}

/// The call of the driver that loads: behind those that make the context current and set the mode of captures.
constexpr unsigned long kLoadingCall = 3;

/// What the simulator counts while `kernel` is loaded from `image`, the n-th call of the driver given `error`.
struct Loading {
  unsigned long libraries = 0, modules = 0, loaded = 0;
  std::string failed;
};
Loading load_counting(unsigned long n, int error) {
  const auto cuda = open_cuda(0, driver_path());
  const Nvrtc nvrtc(driver_path());
  const auto compiled = nvrtc.compile_cubin("extern \"C\" __global__ void here(int* x) { *x = 7; }",
                                            "here", cuda->properties().arch);
  const sim::Control control(driver_path());
  control.fail(n, error);
  const auto module = cuda->load(compiled.image);
  const device::Kernel kernel = module->kernel("here");
  const Loading loading{control.calls_of("cuLibraryLoadData"), control.calls_of("cuModuleLoadData"),
                        control.calls_of("cuFuncLoad"), control.failed()};
  control.fail(0, 0);
  const auto stream = cuda->make_stream();
  device::Allocation memory(*cuda, 4);
  void* pointer = memory.get();
  void* const arguments[] = {&pointer};
  cuda->launch(kernel, {}, arguments, *stream);
  int value = 0;
  cuda->copy(&value, memory.get(), 4, CopyKind::DeviceToHost, *stream);
  stream->synchronize();
  EXPECT_EQ(value, 7);
  return loading;
}

TEST(CudaDevice, LoadsCodeAsALibraryAndAtOnce) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const Loading loading = load_counting(0, 0);
  EXPECT_EQ(loading.libraries, 1u);
  EXPECT_EQ(loading.modules, 0u);
  EXPECT_EQ(loading.loaded, 1u) << "before a launch";
}

TEST(CudaDevice, LoadsCodeAsAModuleWhereTheDriverRefusesLibraries) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  constexpr int kNotSupported = 801;
  const Loading loading = load_counting(kLoadingCall, kNotSupported);
  EXPECT_EQ(loading.failed, "cuLibraryLoadData");
  EXPECT_EQ(loading.modules, 1u);
  EXPECT_EQ(loading.loaded, 1u);
}

TEST(CudaDevice, SaysWhatALibraryDoesNotLoadBy) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  constexpr int kInvalidImage = 200;
  EXPECT_NE(error_of<DeviceError>([] {
              load_counting(kLoadingCall, kInvalidImage);
            }).find("cuLibraryLoadData failed"),
            std::string::npos);
  sim::Control(driver_path()).fail(0, 0);
}

TEST(CudaDevice, SaysWhereNvrtcsBuiltinsWereLookedFor) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  constexpr int kBuiltinFailure = 7;
  const Nvrtc nvrtc(driver_path());
  const sim::Control control(driver_path());
  control.fail(2, kBuiltinFailure);  // a program is made first
  const std::string text = error_of<DeviceError>([&] { nvrtc.compile_cubin("", "f", "sm_90a"); });
  control.fail(0, 0);
  EXPECT_NE(text.find("NVRTC cannot load its built-ins"), std::string::npos) << text;
  const std::string name = "libnvrtc-builtins.so.13.0";
  const auto folder = std::filesystem::canonical(driver_path()).parent_path();
  EXPECT_NE(text.find((folder / name).string() + ", or " + name), std::string::npos) << text;
  EXPECT_NE(text.find("failed to open the built-ins"), std::string::npos) << text;
}

/// Of two NVRTCs in a folder; a driver takes no code of a later major version.
TEST(CudaDevice, TakesAnNvrtcThatTheDriverIsNotTooOldFor) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const auto folder =
      std::filesystem::temp_directory_path() / ("heddle-nvrtc-" + std::to_string(::getpid()));
  const auto new_one = folder / "new";
  std::filesystem::create_directories(new_one);
  for (const auto& file :
       {folder / "libnvrtc.so.13", folder / "libnvrtc.so.12", new_one / "libnvrtc.so.13"})
    std::filesystem::copy_file(driver_path(), file,
                               std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(Nvrtc(folder.string()).version(), "nvrtc 13.0");
  EXPECT_EQ(Nvrtc(folder.string(), 13000).version(), "nvrtc 13.0");
  EXPECT_EQ(Nvrtc(folder.string(), 12080).version(), "nvrtc 12.9");
  EXPECT_EQ(Nvrtc(folder.string(), 12080).path(), (folder / "libnvrtc.so.12").string());
  EXPECT_EQ(Nvrtc(new_one.string(), 12080).version(), "nvrtc 13.0") << "there is no other";
  std::filesystem::remove_all(folder);
}

TEST(CudaDevice, TextThatDoesNotCompileNamesBothVersions) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const auto text_with = [](const Nvrtc& nvrtc) {
    return error_of<CompileError>([&] { nvrtc.compile_cubin("wrong", "f", "sm_90a"); });
  };
  const std::string text = text_with(Nvrtc(driver_path(), 13010));
  EXPECT_NE(text.find("nvrtc 13.0, driver 13.1"), std::string::npos) << text;
  EXPECT_EQ(text_with(Nvrtc(driver_path())).find("driver 1"), std::string::npos);
}

TEST(CudaDevice, SaysWhichKernelIsMissing) {
  const auto cuda = open_cuda(0, driver_path());
  const auto module = compile(*cuda, "extern \"C\" __global__ void here() {}");
  const std::string text = error_of<DeviceError>([&] { module->kernel("absent"); });
  EXPECT_NE(text.find("absent"), std::string::npos) << text;
}

/// A driver that loads what it is asked for at the first use says so then.
TEST(CudaDevice, RefusesAnImageThatIsNone) {
  const auto cuda = open_cuda(0, driver_path());
  const std::vector<char> image(64, 'x');
  EXPECT_THROW(cuda->load(image)->kernel("f"), DeviceError);
}

TEST(CudaDevice, RunsOutOfMemory) {
  const auto cuda = open_cuda(0, driver_path());
  EXPECT_THROW(cuda->allocate(std::size_t{1} << 40), OutOfMemory);
  EXPECT_NE(device::Allocation(*cuda, 16).get(), nullptr);
}

/// Launches `text`'s kernel f(int*) with one block of 64 threads on 16 bytes.
void launch_f(device::Device& cuda, const std::string& text) {
  const auto module = compile(cuda, text);
  const auto stream = cuda.make_stream();
  device::Allocation memory(cuda, 16);
  void* pointer = memory.get();
  void* const arguments[] = {&pointer};
  cuda.launch(module->kernel("f"), {.blocks = 1, .threads = 64}, arguments, *stream);
  stream->synchronize();
}

TEST(CudaDevice, LosesItsContextToAWildWriteAndStaysLost) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const auto cuda = open_cuda(0, driver_path());
  EXPECT_THROW(launch_f(*cuda, "extern \"C\" __global__ void f(int* x) { x[4] = 1; }"), DeviceLost);
  EXPECT_THROW(device::Allocation(*cuda, 16), DeviceLost);
}

TEST(CudaDevice, StartsAnewAfterALoss) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  {
    const auto cuda = open_cuda(0, driver_path());
    EXPECT_THROW(launch_f(*cuda, "extern \"C\" __global__ void f(int* x) { x[4] = 1; }"),
                 DeviceLost);
  }
  const auto cuda = open_cuda(0, driver_path());
  EXPECT_NO_THROW(launch_f(
      *cuda, "extern \"C\" __global__ void f(int* x) { if (threadIdx.x == 0) x[3] = 1; }"));
}

TEST(CudaDevice, LosesItsContextToABarrierThatNotAllReach) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const auto cuda = open_cuda(0, driver_path());
  EXPECT_THROW(launch_f(*cuda,
                        "extern \"C\" __global__ void f(int* x) { if (threadIdx.x < 5) "
                        "__syncthreads(); }"),
               DeviceLost);
}

TEST(CudaDevice, PoisonsFreshMemory) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const auto cuda = open_cuda(0, driver_path());
  const auto stream = cuda->make_stream();
  device::Allocation memory(*cuda, 4);
  float value = 0;
  cuda->copy(&value, memory.get(), 4, CopyKind::DeviceToHost, *stream);
  EXPECT_NE(value, value);
}

TEST(CudaDevice, PoisonsFreedMemoryAndGivesItToNobodyAtOnce) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const auto cuda = open_cuda(0, driver_path());
  const auto stream = cuda->make_stream();
  constexpr std::size_t kBytes = 1000;
  auto* stale = static_cast<unsigned char*>(cuda->allocate(kBytes));
  cuda->fill(stale, 1, kBytes, *stream);
  stream->synchronize();
  ASSERT_EQ(std::count(stale, stale + kBytes, 1), kBytes) << "the device's memory is the host's";
  cuda->release(stale);
  EXPECT_EQ(std::count(stale, stale + kBytes, 0xfd), kBytes);
  EXPECT_NE(device::Allocation(*cuda, kBytes).get(), stale);
}

/// A device that is given work on memory that is freed then.
class FreedUnderWork : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
    cuda_ = open_cuda(0, driver_path());
    stream_ = cuda_->make_stream();
    memory_ = cuda_->allocate(kBytes);
    other_ = cuda_->allocate(kBytes);
    pinned_ = cuda_->allocate_pinned(kBytes);
  }
  void expect_lost(const std::string& why) {
    EXPECT_THROW(stream_->synchronize(), DeviceLost);
    EXPECT_TRUE(cuda_->lost());
    EXPECT_EQ(sim::Control(driver_path()).problem(), why);
  }

  static constexpr std::size_t kBytes = 64;
  static constexpr const char* kWhy = "memory is freed that queued work uses";
  std::unique_ptr<device::Device> cuda_;
  std::unique_ptr<device::Stream> stream_;
  void* memory_ = nullptr;
  void* other_ = nullptr;
  void* pinned_ = nullptr;
};

TEST_F(FreedUnderWork, OfAFillLosesTheContext) {
  cuda_->fill(static_cast<char*>(memory_) + 8, 0, 8, *stream_);
  cuda_->release(memory_);
  expect_lost(kWhy);
}

TEST_F(FreedUnderWork, OfACopyThatReadsItLosesTheContext) {
  cuda_->copy(other_, memory_, kBytes, CopyKind::DeviceToDevice, *stream_);
  cuda_->release(memory_);
  expect_lost(kWhy);
}

TEST_F(FreedUnderWork, OfACopyFromPinnedMemoryLosesTheContext) {
  cuda_->copy(memory_, pinned_, kBytes, CopyKind::HostToDevice, *stream_);
  cuda_->release_pinned(pinned_);
  expect_lost(kWhy);
}

TEST_F(FreedUnderWork, OfAKernelLosesTheContext) {
  const auto module = compile(*cuda_, "extern \"C\" __global__ void f(int* x) {}");
  void* inside = static_cast<char*>(memory_) + 16;
  void* const arguments[] = {&inside};
  cuda_->launch(module->kernel("f"), {}, arguments, *stream_);
  cuda_->release(memory_);
  expect_lost(kWhy);
}

TEST_F(FreedUnderWork, OfAGraphThatWasLaunchedLosesTheContext) {
  const auto graph = cuda_->make_graph();
  graph->add_copy(memory_, pinned_, kBytes, CopyKind::HostToDevice, {});
  graph->instantiate();
  graph->launch(*stream_);
  cuda_->release(memory_);
  expect_lost(kWhy);
}

TEST_F(FreedUnderWork, IsFineWhereOthersWorkOnOtherMemoryOrTheWorkIsDone) {
  cuda_->fill(memory_, 0, kBytes, *stream_);
  cuda_->release(other_);
  stream_->synchronize();
  cuda_->release(memory_);
  cuda_->release_pinned(pinned_);
  EXPECT_NO_THROW(stream_->synchronize());
}

TEST_F(FreedUnderWork, OfCodeThatIsUnloadedLosesTheContext) {
  auto module = compile(*cuda_, "extern \"C\" __global__ void f(int* x) {}");
  void* const arguments[] = {&memory_};
  cuda_->launch(module->kernel("f"), {}, arguments, *stream_);
  module.reset();
  expect_lost("a module is unloaded that queued work uses");
}

/// Memory of the same size, taken since, does not hide it.
TEST_F(FreedUnderWork, AStaleAddressIsInNoAllocation) {
  const auto module = compile(*cuda_, "extern \"C\" __global__ void f(int* x) { *x = 1; }");
  cuda_->release(memory_);
  const device::Allocation next(*cuda_, kBytes);
  void* const arguments[] = {&memory_};
  EXPECT_THROW(cuda_->launch(module->kernel("f"), {}, arguments, *stream_), DeviceLost);
  expect_lost("f: argument 0 points to no allocation");
}

}  // namespace
}  // namespace heddle::tests
