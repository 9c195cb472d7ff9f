// The kernel cache on disk.
#include "jit/kernel_cache.h"

#include <atomic>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "tests/jit/folder_test.h"

namespace heddle::jit {
namespace {

namespace fs = std::filesystem;

using KernelCacheTest = tests::FolderTest;

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

}  // namespace
}  // namespace heddle::jit
