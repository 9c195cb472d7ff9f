// Prepared constants on disk.
#include "jit/constant_cache.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "heddle/mapped_file.h"
#include "tests/jit/folder_test.h"

namespace heddle::jit {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint64_t kCap = std::uint64_t{1} << 30;

class ConstantCacheTest : public tests::FolderTest {
 protected:
  static ConstantCache::Piece piece(std::string text) {
    const auto kept = std::make_shared<const std::string>(std::move(text));
    return {kept, kept->data()};
  }
  static void store(ConstantCache& cache, const std::string& key,
                    const std::vector<std::string>& texts) {
    std::vector<ConstantCache::Piece> pieces;
    for (const std::string& text : texts) pieces.push_back(piece(text));
    cache.store(key, std::move(pieces), sizes_of(texts));
    cache.wait();
  }
  static std::vector<std::size_t> sizes_of(const std::vector<std::string>& texts) {
    std::vector<std::size_t> bytes;
    for (const std::string& text : texts) bytes.push_back(text.size());
    return bytes;
  }
  /// What is kept under `key` in pieces of these numbers of bytes.
  static std::vector<std::string> find(const ConstantCache& cache, const std::string& key,
                                       const std::vector<std::size_t>& bytes) {
    std::vector<std::string> texts;
    for (const ConstantCache::Piece& piece : cache.find(key, bytes)) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(piece.get()) % 64, 0u);
      texts.emplace_back(static_cast<const char*>(piece.get()), bytes[texts.size()]);
    }
    return texts;
  }
};

TEST_F(ConstantCacheTest, FindsWhatWasStored) {
  ConstantCache cache(folder_, kCap);
  EXPECT_THAT(find(cache, "key", {5, 3}), IsEmpty());
  store(cache, "key", {"first", "two"});
  EXPECT_THAT(find(cache, "key", {5, 3}), ElementsAre("first", "two"));
  EXPECT_THAT(find(ConstantCache(folder_, kCap), "key", {5, 3}), ElementsAre("first", "two"));
  EXPECT_THAT(find(cache, "other", {5, 3}), IsEmpty());
  EXPECT_EQ(cache.found_bytes(), 8u);
  store(cache, "key", {"newer", "two"});
  EXPECT_THAT(find(cache, "key", {5, 3}), ElementsAre("newer", "two"));
}

TEST_F(ConstantCacheTest, PiecesOfOtherSizesAreAMiss) {
  ConstantCache cache(folder_, kCap);
  store(cache, "key", {"first", "two"});
  EXPECT_THAT(find(cache, "key", {3, 5}), IsEmpty());
  EXPECT_THAT(find(cache, "key", {5}), IsEmpty());
  EXPECT_THAT(find(cache, "key", {8}), IsEmpty());
  EXPECT_THAT(find(cache, "key", {5, 3, 0}), IsEmpty());
}

TEST_F(ConstantCacheTest, LivesOnWhenItsFileIsReplacedOrRemoved) {
  ConstantCache cache(folder_, kCap);
  store(cache, "key", {"first"});
  const std::vector<std::size_t> bytes{5};
  const std::vector<ConstantCache::Piece> found = cache.find("key", bytes);
  store(cache, "key", {"newer"});
  fs::remove_all(folder_);
  EXPECT_EQ(std::memcmp(found.at(0).get(), "first", 5), 0);
}

TEST_F(ConstantCacheTest, ABrokenFileIsAMissAndIsReplaced) {
  ConstantCache cache(folder_, kCap);
  store(cache, "key", {"some constants", "more"});
  const std::string path = cache.path_of("key");
  const std::string whole = read(path);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write(path, whole.substr(0, length));
    EXPECT_THAT(find(cache, "key", {14, 4}), IsEmpty()) << "truncated to " << length;
  }
  write(path, whole + std::string(64, '\0'));
  EXPECT_THAT(find(cache, "key", {14, 4}), IsEmpty());
  for (std::size_t k = 0; k < whole.size(); ++k) {
    std::string flipped = whole;
    flipped[k] = static_cast<char>(flipped[k] ^ 0x10);
    write(path, flipped);
    const std::vector<std::string> found = find(cache, "key", {14, 4});
    if (found.empty()) continue;
    // Padding behind a piece belongs to none.
    EXPECT_THAT(found, ElementsAre("some constants", "more")) << "byte " << k << " changed";
  }
  store(cache, "key", {"some constants", "more"});
  EXPECT_THAT(find(cache, "key", {14, 4}), ElementsAre("some constants", "more"));
}

TEST_F(ConstantCacheTest, TheFileOfAnotherKeyIsAMiss) {
  ConstantCache cache(folder_, kCap);
  store(cache, "key", {"first"});
  fs::copy_file(cache.path_of("key"), cache.path_of("yek"));
  EXPECT_THAT(find(cache, "yek", {5}), IsEmpty());
}

TEST_F(ConstantCacheTest, AFolderThatCannotBeWrittenIsNoFailure) {
  write(folder_, "a file, not a folder");
  ConstantCache cache(folder_ + "/below", kCap);
  store(cache, "key", {"first"});
  EXPECT_THAT(find(cache, "key", {5}), IsEmpty());
  ConstantCache nowhere("", kCap);
  store(nowhere, "key", {"first"});
  EXPECT_THAT(find(nowhere, "key", {5}), IsEmpty());
}

TEST_F(ConstantCacheTest, WhatIsUnusedForLongestIsDropped) {
  ConstantCache cache(folder_, 10000);
  const std::string text(2000, 'c');
  const auto now = fs::file_time_type::clock::now();
  for (int k = 0; k < 4; ++k) {
    const std::string key = "key" + std::to_string(k);
    store(cache, key, {text});
    fs::last_write_time(cache.path_of(key), now - std::chrono::hours(10 - k));
  }
  EXPECT_THAT(find(cache, "key0", {2000}), ElementsAre(text));  // used now: no longer the oldest
  store(cache, "key4", {text});
  EXPECT_THAT(find(cache, "key0", {2000}), ElementsAre(text));
  EXPECT_THAT(find(cache, "key1", {2000}), IsEmpty());
  EXPECT_THAT(find(cache, "key4", {2000}), ElementsAre(text));
  store(cache, "large", {std::string(20000, 'l')});  // would take more than all may
  EXPECT_THAT(find(cache, "large", {20000}), IsEmpty());
  EXPECT_THAT(find(cache, "key4", {2000}), ElementsAre(text));
}

TEST_F(ConstantCacheTest, WhatAKilledWriterLeftIsRemoved) {
  ConstantCache cache(folder_, kCap);
  store(cache, "key", {"first"});
  const std::string abandoned = cache.path_of("key") + ".123.0";
  const std::string fresh = cache.path_of("key") + ".124.0";
  write(abandoned, "half");
  write(fresh, "half");
  fs::last_write_time(abandoned, fs::file_time_type::clock::now() - std::chrono::hours(2));
  ConstantCache another(folder_, kCap);
  store(another, "other", {"second"});
  EXPECT_FALSE(fs::exists(abandoned));
  EXPECT_TRUE(fs::exists(fresh));
  EXPECT_THAT(find(cache, "key", {5}), ElementsAre("first"));
}

TEST_F(ConstantCacheTest, WritersOfOneKeyDoNotMix) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      ConstantCache cache(folder_, kCap);
      const std::string mine(50000, static_cast<char>('a' + t));
      for (int k = 0; k < 20; ++k) {
        store(cache, "key", {mine, "end"});
        const std::vector<std::string> found = find(cache, "key", {50000, 3});
        if (found.size() != 2 || found[0] != std::string(50000, found[0][0])) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(files(), 1u);
}

/// What source_key() says of the 4 bytes at `offset` of a file that it maps for that.
std::string mapped_key(const std::string& path, std::size_t offset) {
  std::string reason;
  const auto file = MappedFile::open(path, reason);
  EXPECT_NE(file, nullptr) << reason;
  return source_key(file->data() + offset, 4);
}

TEST_F(ConstantCacheTest, SourcesAreToldApartByContent) {
  EXPECT_EQ(source_key("abcd", 4), source_key(std::string("abcd").data(), 4));
  EXPECT_NE(source_key("abcd", 4), source_key("abce", 4));
  EXPECT_NE(source_key("abcd", 4), source_key("abcd", 3));
  // A file that changed just now is read.
  fs::create_directories(folder_);
  const std::string path = folder_ + "/weights";
  write(path, "abcdabcd");
  EXPECT_EQ(mapped_key(path, 0), source_key("abcd", 4));
  write(path, "abcdabce");
  EXPECT_EQ(mapped_key(path, 4), source_key("abce", 4));
}

}  // namespace
}  // namespace heddle::jit
