// The compile service: what compiles, and how often.
#include "jit/compile_service.h"

#include <atomic>
#include <chrono>
#include <future>
#include <gtest/gtest.h>
#include <memory>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "heddle/error.h"
#include "jit/compile_threads.h"
#include "jit/kernel_cache.h"
#include "jit/nest_builder.h"
#include "tests/jit/folder_test.h"

namespace heddle::jit {
namespace {

namespace fs = std::filesystem;

class CompileServiceTest : public tests::FolderTest {
 protected:
  CompileOptions options() const {
    CompileOptions result;
    result.cache_folder = folder_;
    return result;
  }
};

/// out[0] = value
Nest constant_nest(double value, const std::string& name = "constant") {
  NestBuilder b(name);
  const auto out = b.add_global(f32, 1);
  b.set_parallel(b.new_axis(1), 1);
  b.store(out, 0, b.constant(f32, value));
  return b.finish();
}

float call(const CpuKernel& kernel) {
  float out = 0;
  void* const buffers[] = {&out};
  std::int32_t status = 0;
  kernel.entry(buffers, nullptr, 0, 1, nullptr, &status);
  return out;
}

TEST_F(CompileServiceTest, OneStructureCompilesOnce) {
  CompileService service(options());
  const CpuKernelPtr first = service.compile(constant_nest(3, "first"));
  const CpuKernelPtr second = service.compile(constant_nest(3, "another_name"));
  const CpuKernelPtr third = service.compile(constant_nest(4));
  EXPECT_EQ(first, second);
  EXPECT_EQ(call(*first), 3);
  EXPECT_EQ(call(*third), 4);
  EXPECT_EQ(service.counters().compiled, 2u);
  EXPECT_EQ(service.counters().memory_hits, 1u);
  EXPECT_EQ(service.counters().disk_hits, 0u);
  EXPECT_GT(service.counters().compile_microseconds, 0u);
}

/// Of those that nobody uses the last ones stay; what is in use is not made twice.
TEST_F(CompileServiceTest, KernelsThatNobodyUsesAreDropped) {
  CompileOptions few = options();
  few.max_idle_kernels = 4;
  CompileService service(few);
  const CpuKernelPtr used = service.compile(constant_nest(-1));
  std::weak_ptr<const CpuKernel> first = service.compile(constant_nest(0));
  std::weak_ptr<const CpuKernel> last;
  for (int k = 1; k <= 20; ++k) last = service.compile(constant_nest(k));
  EXPECT_TRUE(first.expired());
  EXPECT_FALSE(last.expired());
  EXPECT_EQ(service.compile(constant_nest(-1)), used);
  EXPECT_EQ(call(*service.compile(constant_nest(0))), 0);
  EXPECT_EQ(service.counters().compiled, 22u);
  EXPECT_EQ(service.counters().disk_hits, 1u) << "it comes from the disk";
}

TEST_F(CompileServiceTest, AnotherProcessWouldLoadFromDisk) {
  CompileService(options()).compile(constant_nest(5));
  CompileService service(options());
  EXPECT_EQ(call(*service.compile(constant_nest(5))), 5);
  EXPECT_EQ(service.counters().compiled, 0u);
  EXPECT_EQ(service.counters().disk_hits, 1u);
  // Other vectors, another key.
  CompileOptions narrow = options();
  narrow.vector_bytes = 16;
  CompileService other(narrow);
  EXPECT_EQ(call(*other.compile(constant_nest(5))), 5);
  EXPECT_EQ(other.counters().compiled, other.vector_bytes() == service.vector_bytes() ? 0u : 1u);
}

/// Kernels for a processor by name are those of any machine that has its instructions.
TEST_F(CompileServiceTest, KernelsOfANamedProcessorHaveItsKey) {
  if (CompileService(options()).vector_bytes() < 32) GTEST_SKIP() << "the processor has no AVX2";
  CompileOptions named = options();
  named.cpu = "x86-64-v3";
  CompileService first(named);
  EXPECT_EQ(first.vector_bytes(), 32);
  EXPECT_NE(first.code_key().find("\nx86-64-v3 "), std::string::npos) << first.code_key();
  EXPECT_EQ(call(*first.compile(constant_nest(7))), 7);
  CompileService again(named);
  EXPECT_EQ(call(*again.compile(constant_nest(7))), 7);
  EXPECT_EQ(again.counters().disk_hits, 1u);
  CompileService host(options());
  EXPECT_EQ(call(*host.compile(constant_nest(7))), 7);
  EXPECT_EQ(host.counters().compiled, 1u);
  named.cpu = "no such";
  EXPECT_THROW(CompileService{named}, OptionError);
}

TEST_F(CompileServiceTest, AnObjectThatDoesNotLinkIsCompiledAnew) {
  CompileService(options()).compile(constant_nest(6));
  ASSERT_EQ(files(), 1u);
  // A whole entry of the right key whose code is no object.
  const std::string path = fs::directory_iterator(folder_)->path().string();
  const std::string bytes = read(path);
  std::uint64_t key_bytes = 0;
  bytes.copy(reinterpret_cast<char*>(&key_bytes), sizeof key_bytes, 16);
  KernelCache(folder_).store(bytes.substr(48, key_bytes), "not an object");
  CompileService service(options());
  EXPECT_EQ(call(*service.compile(constant_nest(6))), 6);
  EXPECT_EQ(service.counters().compiled, 1u);
  EXPECT_EQ(read(path), bytes);
}

TEST_F(CompileServiceTest, WithoutADiskCacheNothingIsWritten) {
  CompileOptions no_disk = options();
  no_disk.disk_cache = false;
  CompileService service(no_disk);
  EXPECT_EQ(call(*service.compile(constant_nest(7))), 7);
  EXPECT_EQ(files(), 0u);
}

TEST_F(CompileServiceTest, ConcurrentRequestsShareOneCompile) {
  CompileService service(options());
  std::vector<std::shared_future<CpuKernelPtr>> futures;
  for (int k = 0; k < 24; ++k)
    futures.push_back(service.submit(std::make_shared<const Nest>(constant_nest(k % 3))));
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int k = 0; k < 6; ++k)
        if (call(*service.compile(constant_nest((k + t) % 3))) != static_cast<float>((k + t) % 3))
          ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  for (int k = 0; k < 24; ++k)
    EXPECT_EQ(call(*futures[static_cast<std::size_t>(k)].get()), static_cast<float>(k % 3));
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(service.counters().compiled, 3u);
  EXPECT_EQ(service.counters().memory_hits, 24u + 24u - 3u);
}

TEST_F(CompileServiceTest, CodeOutlivesItsService) {
  CpuKernelPtr kernel;
  {
    CompileService service(options());
    kernel = service.compile(constant_nest(8));
  }
  EXPECT_EQ(call(*kernel), 8);
}

TEST_F(CompileServiceTest, DumpsShowEveryStage) {
  CompileOptions dumping = options();
  dumping.dump_folder = folder_ + "/dump";
  const Nest nest = constant_nest(9, "nine");
  CompileService(dumping).compile(nest);
  const std::string stem = dumping.dump_folder + "/nine_" + structural_key(nest).hex().substr(0, 8);
  EXPECT_EQ(read(stem + ".nest"), print(nest));
  EXPECT_NE(read(stem + ".ll").find("heddle_kernel"), std::string::npos);
  EXPECT_NE(read(stem + ".opt.ll").find("heddle_kernel"), std::string::npos);
}

/// Two calls that wait for each other, so that one thread alone would never be done.
TEST_F(CompileServiceTest, ForEachHasHelp) {
  CompileOptions two = options();
  two.threads = 2;
  CompileService service(two);
  std::atomic<int> here{0};
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  service.for_each(2, [&](std::size_t) {
    ++here;
    while (here != 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    EXPECT_EQ(here, 2);
  });
}

TEST_F(CompileServiceTest, ForEachCallsWithEachNumberOnce) {
  CompileService service(options());
  for (const std::size_t count : {0, 1, 2, 100, 100'000})
    for (const bool may_be_short : {false, true}) {
      std::vector<std::atomic<int>> calls(count);
      service.for_each(count, [&](std::size_t k) { ++calls[k]; }, may_be_short);
      for (const std::atomic<int>& number : calls) EXPECT_EQ(number, 1) << count;
    }
}

TEST_F(CompileServiceTest, ForEachWithinForEachAndOfManyThreadsAtOnce) {
  CompileService service(options());
  std::atomic<int> calls{0};
  const auto call = [&] {
    service.for_each(8, [&](std::size_t) { service.for_each(8, [&](std::size_t) { ++calls; }); });
  };
  {
    const std::jthread other(call);
    call();
  }
  EXPECT_EQ(calls, 2 * 8 * 8);
}

TEST_F(CompileServiceTest, ForEachThrowsTheFirstErrorWhenAllCallsHaveReturned) {
  CompileService service(options());
  std::atomic<int> calls{0};
  const auto call = [&](std::size_t k) {
    ++calls;
    if (k % 2 == 1) throw std::runtime_error(std::to_string(k));
  };
  try {
    service.for_each(64, call);
    ADD_FAILURE() << "no error";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "1");
  }
  EXPECT_EQ(calls, 64);
}

std::size_t stack_bytes() {
  std::size_t bytes = 0;
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
  pthread_attr_getstacksize(&attributes, &bytes);
  pthread_attr_destroy(&attributes);
  return bytes;
}

TEST(CompileThread, HasALargeStackAndIsWaitedFor) {
  std::size_t bytes = 0;
  {
    const auto thread = CompileThread::start([&] { bytes = stack_bytes(); });
    ASSERT_NE(thread, nullptr);
  }
  EXPECT_GE(bytes, kCompileStackBytes);
}

/// Nobody waits for it: it gives back what it was given.
TEST(CompileThread, ThatIsStartedAloneGivesUpWhatItHolds) {
  std::promise<std::size_t> bytes;
  const auto held = std::make_shared<int>(0);
  ASSERT_TRUE(start_compile_thread([&bytes, held] { bytes.set_value(stack_bytes()); }));
  EXPECT_GE(bytes.get_future().get(), kCompileStackBytes);
  while (held.use_count() > 1) std::this_thread::yield();
}

/// A compiler's frames on a caller's small stack would end the process.
TEST(CompileThread, HoldsMoreThanTheUsualStackDoes) {
  int reached = 0;
  {
    const auto thread = CompileThread::start([&] {
      volatile char deep[10 << 20];
      for (std::size_t k = 0; k < sizeof deep; k += 4096) deep[k] = 1;
      reached = deep[4096];
    });
    ASSERT_NE(thread, nullptr);
  }
  EXPECT_EQ(reached, 1);
}

}  // namespace
}  // namespace heddle::jit
