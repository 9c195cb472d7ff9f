#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <pthread.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include "device/cuda/cuda_device.h"
#include "heddle/error.h"
#include "jit/cuda/compile.h"
#include "jit/nest_builder.h"
#include "tests/cuda_sim/control.h"
#include "tests/support/cuda_driver.h"

namespace heddle::tests {
namespace {

using device::CopyKind;
using jit::cuda::CudaCompiler;

/// y[i] = x[i] + by, through a local buffer in scratch where `scratch`.
jit::Nest add_constant(const std::string& name, double by, bool scratch = false) {
  jit::NestBuilder b(name);
  b.nest().size_count = 1;
  const auto n = base::SymExpr::size(0);
  const auto x = b.add_global(DType::F32, n);
  const auto y = b.add_global(DType::F32, n);
  const auto axis = b.new_axis(1);
  b.set_parallel(axis, 1);
  const auto local = scratch ? b.add_local(DType::F32, n, 0) : y;
  const auto i = b.new_axis(n);
  b.begin_for(i, n, jit::ForStmt::Kind::Vector);
  b.store(local, i, b.apply(ir::ScalarOp::Add, {b.load(x, i), b.constant(DType::F32, by)}));
  b.end_for();
  if (scratch) {
    const auto j = b.new_axis(n);
    b.begin_for(j, n, jit::ForStmt::Kind::Vector);
    b.store(y, j, b.load(local, j));
    b.end_for();
  }
  return b.finish();
}

class CudaCompile : public ::testing::Test {
 protected:
  std::vector<float> run(const jit::cuda::CudaKernel& kernel, std::vector<float> x) {
    const auto stream = device_->make_stream();
    const std::int64_t sizes[] = {static_cast<std::int64_t>(x.size())};
    device::Allocation in(*device_, 4 * x.size());
    device::Allocation out(*device_, 4 * x.size());
    device::Allocation status(*device_, 4);
    const jit::cuda::CudaChoice choice = kernel.expected(sizes);
    device::Allocation scratch(*device_, static_cast<std::size_t>(choice.scratch_bytes));
    device_->copy(in.get(), x.data(), 4 * x.size(), CopyKind::HostToDevice, *stream);
    void* const buffers[] = {in.get(), out.get()};
    kernel.launch(*device_, choice, buffers, sizes, scratch.get(), nullptr, status.get(), *stream);
    device_->copy(x.data(), out.get(), 4 * x.size(), CopyKind::DeviceToHost, *stream);
    stream->synchronize();
    return x;
  }

  std::unique_ptr<device::Device> device_ = device::cuda::open_cuda(0, test::driver_path());
  jit::cuda::CudaCompileOptions options_{.nvrtc_path = test::driver_path(), .dump_folder = {}};
};

TEST_F(CudaCompile, CompilesAndLaunches) {
  CudaCompiler compiler(*device_, options_);
  EXPECT_EQ(run(*compiler.compile(add_constant("one", 1)), {1, 2, 3}),
            (std::vector<float>{2, 3, 4}));
  const auto through_scratch = compiler.compile(add_constant("scratch", 5, true));
  EXPECT_EQ(run(*through_scratch, std::vector<float>(300, 1)), std::vector<float>(300, 6));
}

TEST(CudaText, NeighboursAreReadAndWrittenAtOnce) {
  const std::string text = jit::cuda::emit_cuda(add_constant("wide", 1)).kernel;
  EXPECT_NE(
      text.find("const hd_lanes<float, 4> x0_i1 = *(const hd_lanes<float, 4>*)(p0_i1 + first_i1);"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("hd_store(p1_i1 + first_i1, x1_i1);"), std::string::npos) << text;
}

/// 1024 blocks with more than 4 MiB each have more than 32 bits count.
TEST(CudaText, ScratchOfABlockIsFoundWith64Bits) {
  const std::string text = jit::cuda::emit_cuda(add_constant("scratch", 5, true)).text;
  EXPECT_NE(text.find("scratch + (long long)blockIdx.x * ("), std::string::npos) << text;
}

TEST_F(CudaCompile, CompilesAStructureOnceWhateverItsName) {
  CudaCompiler compiler(*device_, options_);
  const auto first = compiler.compile(add_constant("first", 2));
  EXPECT_EQ(compiler.compile(add_constant("second", 2)), first);
  EXPECT_EQ(compiler.compiled(), 1u);
  EXPECT_NE(compiler.compile(add_constant("third", 3)), first);
  EXPECT_EQ(compiler.compiled(), 2u);
}

TEST_F(CudaCompile, SharesOneCompileAmongThreads) {
  CudaCompiler compiler(*device_, options_);
  std::vector<jit::cuda::CudaKernelPtr> kernels(4);
  std::vector<std::thread> threads;
  for (auto& kernel : kernels)
    threads.emplace_back([&] { kernel = compiler.compile(add_constant("shared", 7)); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& kernel : kernels) EXPECT_EQ(kernel, kernels[0]);
  EXPECT_EQ(compiler.compiled(), 1u);
}

/// Programs are as many as threads that compile, and more where one would hold more than 24 kernels.
TEST_F(CudaCompile, KernelsShareProgramsWhereThreadsAreFewer) {
  std::vector<jit::Nest> nests;
  for (int k = 0; k < 30; ++k) nests.push_back(add_constant("shares", k));
  std::vector<const jit::Nest*> all;
  for (const jit::Nest& nest : nests) all.push_back(&nest);
  for (const auto& [threads, kernels, programs] :
       {std::tuple<int, std::size_t, std::uint64_t>{1, 5, 1},
        {3, 5, 3},
        {8, 5, 5},
        {1, 30, 2},
        {4, 30, 4}}) {
    SCOPED_TRACE(std::to_string(threads) + " threads, " + std::to_string(kernels) + " kernels");
    options_.threads = threads;
    CudaCompiler compiler(*device_, options_);
    const auto compiled = compiler.compile_all(std::span(all).first(kernels));
    EXPECT_EQ(compiler.programs(), programs);
    EXPECT_EQ(compiler.compiled(), kernels);
    for (std::size_t k = 0; k < kernels; ++k)
      EXPECT_EQ(run(*compiled[k].get(), {1}), std::vector<float>{static_cast<float>(1 + k)});
  }
}

/// Call by call: a program of several that fails is compiled kernel by kernel, and what fails alone fails for itself.
TEST_F(CudaCompile, AFailureIsThatOfOneKernel) {
  if (!test::on_simulator()) GTEST_SKIP() << test::kNeedsSimulator;
  const sim::Control control(test::simulator_path());
  const jit::Nest nests[] = {add_constant("a", 1), add_constant("b", 2), add_constant("c", 3)};
  const jit::Nest* const all[] = {&nests[0], &nests[1], &nests[2]};
  constexpr int kOutOfMemory = 2;
  for (const int threads : {1, 3}) {
    std::size_t mended = 0, lost = 0;
    for (unsigned long n = 1;; ++n) {
      options_.threads = threads;
      CudaCompiler compiler(*device_, options_);
      control.fail(n, kOutOfMemory);
      const auto compiled = compiler.compile_all(all);
      const std::string failed = control.failed();
      control.fail(0, 0);
      if (failed.empty()) break;
      SCOPED_TRACE(failed + " of call " + std::to_string(n));
      std::size_t good = 0;
      for (std::size_t k = 0; k < compiled.size(); ++k) {
        try {
          EXPECT_EQ(run(*compiled[k].get(), {1}), std::vector<float>{static_cast<float>(2 + k)});
          ++good;
        } catch (const Error&) {
        }
      }
      EXPECT_GE(good, 2u);
      mended += good == 3 ? 1 : 0;
      lost += good == 2 ? 1 : 0;
      const auto again = compiler.compile_all(all);  // what failed is not remembered as failed
      for (const auto& kernel : again) EXPECT_NO_THROW(kernel.get());
    }
    EXPECT_GT(threads == 1 ? mended : lost, 0u);
  }
}

/// The size of stacks that new threads get unless they say: one that no system has lets every new thread fail.
class NoNewThreads {
 public:
  NoNewThreads() {
    ::pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    ::pthread_attr_init(&huge);
    ::pthread_attr_setstacksize(&huge, (std::size_t{1} << 47) - (std::size_t{1} << 20));
    EXPECT_EQ(::pthread_setattr_default_np(&huge), 0);
    ::pthread_attr_destroy(&huge);
  }
  ~NoNewThreads() {
    EXPECT_EQ(::pthread_setattr_default_np(&before_), 0);
    ::pthread_attr_destroy(&before_);
  }
  NoNewThreads(const NoNewThreads&) = delete;
  NoNewThreads& operator=(const NoNewThreads&) = delete;

 private:
  pthread_attr_t before_;
};

TEST_F(CudaCompile, GoesOnAloneWhereNoThreadIsToBeHad) {
  CudaCompiler compiler(*device_, options_);
  std::vector<jit::Nest> nests;
  for (int k = 0; k < 40; ++k) nests.push_back(add_constant("alone", k));
  std::vector<const jit::Nest*> all;
  for (const jit::Nest& nest : nests) all.push_back(&nest);
  std::vector<std::shared_future<jit::cuda::CudaKernelPtr>> kernels;
  {
    const NoNewThreads none;
    EXPECT_THROW(std::thread([] {}), std::system_error);
    kernels = compiler.compile_all(all);
  }
  ASSERT_EQ(kernels.size(), all.size());
  for (std::size_t k = 0; k < kernels.size(); ++k)
    EXPECT_EQ(run(*kernels[k].get(), {1, 2}),
              (std::vector<float>{static_cast<float>(1 + k), static_cast<float>(2 + k)}));
}

TEST_F(CudaCompile, WritesTheTextBeforeItCompiles) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("heddle-cuda-dump-" + std::to_string(::getpid()));
  options_.dump_folder = folder.string();
  CudaCompiler compiler(*device_, options_);
  compiler.compile(add_constant("dumped", 1));
  std::size_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    ++files;
    EXPECT_TRUE(file.path().filename().string().starts_with("heddle_dumped_"));
    std::ifstream stream(file.path());
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    EXPECT_NE(text.find("__global__ void"), std::string::npos);
  }
  EXPECT_EQ(files, 1u);
  std::filesystem::remove_all(folder);
}

TEST_F(CudaCompile, SaysWhereItLookedForNvrtc) {
  options_.nvrtc_path = "/nonexistent/libnvrtc.so";
  EXPECT_THROW(CudaCompiler(*device_, options_), DeviceError);
}

}  // namespace
}  // namespace heddle::tests
