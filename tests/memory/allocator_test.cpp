#include "memory/allocator.h"

#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <sys/mman.h>
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

/// One thread makes results, another is done with them.
TEST(CachingAllocator, ABlockComesBackToTheThreadThatItWasMadeFor) {
  CachingAllocator& allocator = CachingAllocator::host();
  for (const std::size_t bytes : {std::size_t{700}, std::size_t{700'000}}) {
    void* made = allocator.allocate(bytes);
    std::thread([&] { allocator.release(made); }).join();
    EXPECT_EQ(allocator.allocate(bytes), made) << bytes;
    allocator.release(made);
  }
}

TEST(CachingAllocator, TrimGivesBackWhatOtherThreadsLeft) {
  CachingAllocator& allocator = CachingAllocator::host();
  allocator.trim();
  for (int t = 0; t < 3; ++t)
    std::thread([&] { allocator.release(allocator.allocate(700)); }).join();
  const std::size_t cached = allocator.stats().cached_bytes;
  EXPECT_GE(cached, 700u);
  EXPECT_EQ(allocator.trim(), cached);
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

TEST(CachingAllocator, WhatGrowsCountsOnce) {
  CachingAllocator& allocator = CachingAllocator::host();
  allocator.trim();
  const auto before = allocator.stats();
  void* block = nullptr;
  for (const std::size_t bytes : {1000ul, 3ul << 19, 5ul << 20, 5ul << 20, 9ul << 20, 40ul << 20}) {
    block = allocator.grow(block, bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0u) << bytes;
    std::memset(block, 1, bytes);
    EXPECT_GE(allocator.stats().in_use_bytes, before.in_use_bytes + bytes);
    EXPECT_LE(allocator.stats().in_use_bytes, before.in_use_bytes + bytes * 5 / 4);
  }
  EXPECT_EQ(allocator.stats().allocations, before.allocations + 5);
  EXPECT_EQ(allocator.grow(block, 1 << 20), block) << "room for less";
  EXPECT_GE(allocator.stats().peak_bytes, before.in_use_bytes + (40 << 20));
  allocator.release(block);
  EXPECT_EQ(allocator.stats().in_use_bytes, before.in_use_bytes);
  EXPECT_GE(allocator.trim(), std::size_t{40} << 20);
}

#if !defined(__SANITIZE_ADDRESS__)
TEST(CachingAllocator, WhatGrowsKeepsItsPages) {
  CachingAllocator& allocator = CachingAllocator::host();
  allocator.trim();
  auto* block = static_cast<char*>(allocator.allocate(5 << 20));
  std::memset(block, 7, 5 << 20);
  block = static_cast<char*>(allocator.grow(block, 32 << 20));
  EXPECT_EQ(block[0], 7);
  EXPECT_EQ(block[(4 << 20) - 1], 7) << "all huge pages";
  EXPECT_EQ(block[4 << 20], 0);
  EXPECT_EQ(block[(32 << 20) - 1], 0);
  EXPECT_EQ(allocator.stats().cached_bytes, 0u) << "the smaller block is gone";
  allocator.release(block);
}

TEST(CachingAllocator, PagesThatCannotMoveAreFetchedAnew) {
  CachingAllocator& allocator = CachingAllocator::host();
  allocator.trim();
  const std::size_t in_use = allocator.stats().in_use_bytes;
  auto* block = static_cast<char*>(allocator.allocate(5 << 20));
  // The system moves no range of two kinds.
  ASSERT_EQ(madvise(block, 2 << 20, MADV_DONTDUMP), 0);
  block = static_cast<char*>(allocator.grow(block, 32 << 20));
  std::memset(block, 1, 32 << 20);
  EXPECT_EQ(allocator.stats().cached_bytes, std::size_t{5} << 20);
  allocator.release(block);
  EXPECT_EQ(allocator.stats().in_use_bytes, in_use);
  allocator.trim();
}
#endif

TEST(CachingAllocator, ABlockOfTheNewClassIsTakenFirst) {
  CachingAllocator& allocator = CachingAllocator::host();
  allocator.trim();
  void* waits = allocator.allocate(16 << 20);
  void* block = allocator.allocate(4 << 20);
  allocator.release(waits);
  const auto before = allocator.stats();
  EXPECT_EQ(allocator.grow(block, 16 << 20), waits);
  EXPECT_EQ(allocator.stats().system_allocations, before.system_allocations);
  EXPECT_EQ(allocator.stats().cached_bytes, std::size_t{4} << 20);
  allocator.release(waits);
  allocator.trim();
}

TEST(CachingAllocator, WhatCannotGrowIsReleased) {
  CachingAllocator& allocator = CachingAllocator::host();
  const std::size_t in_use = allocator.stats().in_use_bytes;
  void* block = allocator.allocate(4 << 20);
  {
    const auto cap = allocator.hold_cap(in_use + (8 << 20));
    block = allocator.grow(block, 8 << 20);
    EXPECT_THROW(allocator.grow(block, 9 << 20), OutOfMemory);
    EXPECT_EQ(allocator.stats().in_use_bytes, in_use);
  }
  EXPECT_THROW(allocator.grow(allocator.allocate(4 << 20), std::size_t{1} << 60), OutOfMemory);
#if !defined(__SANITIZE_ADDRESS__)  // which ends the process
  EXPECT_THROW(allocator.grow(allocator.allocate(4 << 20), std::size_t{1} << 45), OutOfMemory)
      << "more than the system has";
#endif
  EXPECT_EQ(allocator.stats().in_use_bytes, in_use);
}

TEST(CachingAllocator, AnAbsurdRequestIsATypedError) {
  EXPECT_THROW(CachingAllocator::host().allocate(std::size_t{1} << 60), OutOfMemory);
}

}  // namespace
}  // namespace heddle::memory
