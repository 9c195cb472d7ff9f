#include "memory/allocator.h"

#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "heddle/error.h"

namespace heddle::memory {
namespace {

TEST(CachingAllocator, BlocksAreAlignedAndUsable) {
  CachingAllocator& allocator = CachingAllocator::host();
  for (const std::size_t bytes : {0ul, 1ul, 64ul, 65ul, 1000ul, 4096ul, 3ul << 20}) {
    void* block = allocator.allocate(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0u) << bytes;
    std::memset(block, 1, bytes);
    allocator.release(block);
  }
}

TEST(CachingAllocator, AReleasedBlockIsUsedAgain) {
  CachingAllocator& allocator = CachingAllocator::host();
  void* first = allocator.allocate(12345);
  allocator.release(first);
  const auto before = allocator.stats();
  void* second = allocator.allocate(12300);
  EXPECT_EQ(first, second);
  EXPECT_EQ(allocator.stats().system_allocations, before.system_allocations);
  allocator.release(second);
}

TEST(CachingAllocator, CountsExactly) {
  CachingAllocator& allocator = CachingAllocator::host();
  const auto before = allocator.stats();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&allocator] {
      for (std::size_t k = 0; k < 500; ++k) {
        void* block = allocator.allocate(k * 37 % 5000);
        std::memset(block, 0, k * 37 % 5000);
        allocator.release(block);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(allocator.stats().in_use_bytes, before.in_use_bytes);
  EXPECT_EQ(allocator.stats().allocations, before.allocations + 2000);
  allocator.trim();
  EXPECT_EQ(allocator.stats().cached_bytes, 0u);
}

TEST(CachingAllocator, TheCapIsAnErrorThatSaysSo) {
  CachingAllocator& allocator = CachingAllocator::host();
  allocator.set_cap(allocator.stats().in_use_bytes + 1000);
  try {
    allocator.allocate(2000);
    ADD_FAILURE() << "no error";
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("a request of 2000 bytes"), std::string::npos)
        << error.what();
  }
  allocator.set_cap(0);
  void* block = allocator.allocate(2000);
  allocator.release(block);
}

TEST(CachingAllocator, TheSmallestCapThatIsHeldHolds) {
  CachingAllocator& allocator = CachingAllocator::host();
  allocator.set_cap(5000);
  const std::size_t in_use = allocator.stats().in_use_bytes;
  auto wide = allocator.hold_cap(in_use + (8 << 20));
  EXPECT_EQ(allocator.hold_cap(0), nullptr);
  EXPECT_EQ(allocator.stats().cap_bytes, in_use + (8 << 20)) << "in place of the one that is set";
  {
    const auto narrow = allocator.hold_cap(in_use + (4 << 20));
    const auto equal = allocator.hold_cap(in_use + (4 << 20));
    EXPECT_EQ(allocator.stats().cap_bytes, in_use + (4 << 20));
    EXPECT_THROW(allocator.allocate(6 << 20), OutOfMemory);
  }
  allocator.release(allocator.allocate(6 << 20));
  EXPECT_EQ(allocator.stats().cap_bytes, in_use + (8 << 20));
  wide.reset();
  EXPECT_EQ(allocator.stats().cap_bytes, 5000u);
  allocator.set_cap(0);
  EXPECT_EQ(allocator.stats().cap_bytes, 0u);
}

TEST(CachingAllocator, CachedBlocksGoBeforeTheCapIsPassed) {
  CachingAllocator& allocator = CachingAllocator::host();
  allocator.trim();
  const std::size_t in_use = allocator.stats().in_use_bytes;
  void* kept = allocator.allocate(1 << 20);
  allocator.release(allocator.allocate(2 << 20));
  EXPECT_EQ(allocator.stats().cached_bytes, std::size_t{2} << 20);
  const auto cap = allocator.hold_cap(in_use + (5 << 19));
  EXPECT_EQ(allocator.stats().cached_bytes, 0u) << "more than the new cap";
  allocator.release(allocator.allocate(5 << 18));
  void* block = allocator.allocate(3 << 19);
  EXPECT_EQ(allocator.stats().cached_bytes, 0u) << "both together are more";
  allocator.release(block);
  EXPECT_EQ(allocator.trim(), std::size_t{3} << 19);
  EXPECT_EQ(allocator.trim(), 0u);
  allocator.release(kept);
}

TEST(CachingAllocator, AnAbsurdRequestIsATypedError) {
  EXPECT_THROW(CachingAllocator::host().allocate(std::size_t{1} << 60), OutOfMemory);
}

}  // namespace
}  // namespace heddle::memory
