// The kernel cache on disk and the compile service in front of it.
#include "jit/kernel_cache.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "heddle/error.h"
#include "jit/compile_service.h"
#include "jit/nest_builder.h"

namespace heddle::jit {
namespace {

namespace fs = std::filesystem;

/// A folder of its own for each test, removed afterwards.
class KernelCacheTest : public testing::Test {
 protected:
  KernelCacheTest() {
    static std::atomic<int> counter{0};
    folder_ = (fs::temp_directory_path() /
               ("heddle_cache_test_" + std::to_string(getpid()) + "_" + std::to_string(counter++)))
                  .string();
  }
  ~KernelCacheTest() override { fs::remove_all(folder_); }

  std::string read(const std::string& path) const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& path, const std::string& bytes) const {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }
  std::size_t files() const {
    if (!fs::exists(folder_)) return 0;
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  CompileOptions options() const {
    CompileOptions result;
    result.cache_folder = folder_;
    return result;
  }

  std::string folder_;
};

TEST_F(KernelCacheTest, FindsWhatWasStored) {
  KernelCache cache(folder_);
  EXPECT_EQ(cache.find("key"), std::nullopt);
  const std::string code("\0code\n", 6);
  EXPECT_TRUE(cache.store("key", code));
  EXPECT_TRUE(cache.store("other", ""));
  EXPECT_EQ(cache.find("key"), code);
  EXPECT_EQ(cache.find("other"), "");
  EXPECT_EQ(KernelCache(folder_).find("key"), code);
  EXPECT_TRUE(cache.store("key", "newer"));
  EXPECT_EQ(cache.find("key"), "newer");
  EXPECT_EQ(files(), 2u);
}

TEST_F(KernelCacheTest, ABrokenFileIsAMissAndIsReplaced) {
  KernelCache cache(folder_);
  cache.store("key", "some code");
  const std::string path = cache.path_of("key");
  const std::string whole = read(path);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write(path, whole.substr(0, length));
    EXPECT_EQ(cache.find("key"), std::nullopt) << "truncated to " << length;
  }
  write(path, whole + "x");
  EXPECT_EQ(cache.find("key"), std::nullopt);
  for (std::size_t k = 0; k < whole.size(); ++k) {
    if (k >= 12 && k < 16) continue;  // the size of the header is not read
    std::string flipped = whole;
    flipped[k] = static_cast<char>(flipped[k] ^ 0x10);
    write(path, flipped);
    EXPECT_EQ(cache.find("key"), std::nullopt) << "byte " << k << " changed";
  }
  EXPECT_TRUE(cache.store("key", "some code"));
  EXPECT_EQ(cache.find("key"), "some code");
}

TEST_F(KernelCacheTest, AnotherKeyInTheFileIsAMiss) {
  KernelCache cache(folder_);
  cache.store("key", "code");
  fs::copy_file(cache.path_of("key"), cache.path_of("collides"));
  EXPECT_EQ(cache.find("collides"), std::nullopt);
}

TEST_F(KernelCacheTest, AFolderThatCannotBeWrittenIsNoFailure) {
  write(folder_, "a file, not a folder");
  KernelCache cache(folder_ + "/below");
  EXPECT_FALSE(cache.store("key", "code"));
  EXPECT_EQ(cache.find("key"), std::nullopt);
}

TEST_F(KernelCacheTest, TheEntriesUnusedForLongestAreDropped) {
  KernelCache cache(folder_, 10000);
  const std::string code(1000, 'c');
  const auto now = fs::file_time_type::clock::now();
  for (int k = 0; k < 8; ++k) {
    const std::string key = "key" + std::to_string(k);
    cache.store(key, code);
    fs::last_write_time(cache.path_of(key), now - std::chrono::hours(10 - k));
  }
  EXPECT_EQ(cache.find("key0"), code);  // used now: no longer the oldest
  for (int k = 8; k < 11; ++k) cache.store("key" + std::to_string(k), code);
  EXPECT_EQ(cache.find("key0"), code);
  EXPECT_EQ(cache.find("key1"), std::nullopt);
  EXPECT_EQ(cache.find("key10"), code);
  EXPECT_LE(files(), 9u);
}

TEST_F(KernelCacheTest, WritersOfOneKeyDoNotMix) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      KernelCache cache(folder_);
      const std::string mine(5000, static_cast<char>('a' + t));
      for (int k = 0; k < 50; ++k) {
        cache.store("key", mine);
        const auto found = cache.find("key");
        if (!found || found->size() != 5000 || *found != std::string(5000, (*found)[0])) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(files(), 1u);
}

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

TEST_F(KernelCacheTest, OneStructureCompilesOnce) {
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

TEST_F(KernelCacheTest, AnotherProcessWouldLoadFromDisk) {
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

TEST_F(KernelCacheTest, AnObjectThatDoesNotLinkIsCompiledAnew) {
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

TEST_F(KernelCacheTest, WithoutADiskCacheNothingIsWritten) {
  CompileOptions no_disk = options();
  no_disk.disk_cache = false;
  CompileService service(no_disk);
  EXPECT_EQ(call(*service.compile(constant_nest(7))), 7);
  EXPECT_EQ(files(), 0u);
}

TEST_F(KernelCacheTest, ConcurrentRequestsShareOneCompile) {
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

TEST_F(KernelCacheTest, CodeOutlivesItsService) {
  CpuKernelPtr kernel;
  {
    CompileService service(options());
    kernel = service.compile(constant_nest(8));
  }
  EXPECT_EQ(call(*kernel), 8);
}

TEST_F(KernelCacheTest, DumpsShowEveryStage) {
  CompileOptions dumping = options();
  dumping.dump_folder = folder_ + "/dump";
  const Nest nest = constant_nest(9, "nine");
  CompileService(dumping).compile(nest);
  const std::string stem = dumping.dump_folder + "/nine_" + structural_key(nest).hex().substr(0, 8);
  EXPECT_EQ(read(stem + ".nest"), print(nest));
  EXPECT_NE(read(stem + ".ll").find("heddle_kernel"), std::string::npos);
  EXPECT_NE(read(stem + ".opt.ll").find("heddle_kernel"), std::string::npos);
}

}  // namespace
}  // namespace heddle::jit
