// Memory for what stays: zeroed, aligned, side by side, and given back.
#include "base/lasting.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <span>
#include <sys/mman.h>
#include <thread>
#include <vector>

namespace heddle::base {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::uintptr_t address_of(const std::shared_ptr<void>& piece) {
  return reinterpret_cast<std::uintptr_t>(piece.get());
}

bool is_mapped(std::uintptr_t address) {
  constexpr std::uintptr_t kPage = 4096;
  return msync(reinterpret_cast<void*>(address / kPage * kPage), kPage, MS_ASYNC) == 0 ||
         errno != ENOMEM;
}

TEST(LastingMemory, IsZeroedAndAligned) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{65}, kMiB}) {
    const auto piece = lasting_memory(bytes);
    ASSERT_NE(piece, nullptr);
    EXPECT_EQ(address_of(piece) % 64, 0u);
    const std::span<std::uint8_t> all(static_cast<std::uint8_t*>(piece.get()), bytes);
    EXPECT_TRUE(std::ranges::all_of(all, [](std::uint8_t byte) { return byte == 0; }));
    std::ranges::fill(all, std::uint8_t{0xff});  // what follows must not get these
  }
}

TEST(LastingMemory, PiecesLieSideBySideInOneChunk) {
  const auto chunk = lasting_memory(40 * kMiB);  // one of its own, which is full
  const auto first = lasting_memory(100);
  const auto second = lasting_memory(kMiB);
  const auto third = lasting_memory(1);
  EXPECT_EQ(address_of(first) % (2 * kMiB), 0u) << "at the begin of a huge page";
  EXPECT_EQ(address_of(second), address_of(first) + 128);
  EXPECT_EQ(address_of(third), address_of(second) + kMiB);
}

TEST(LastingMemory, GoesBackWithTheLastPieceOfAChunk) {
  const auto full = lasting_memory(40 * kMiB);
  auto first = lasting_memory(kMiB);
  auto second = lasting_memory(kMiB);
  const std::uintptr_t address = address_of(first);
  first.reset();
  EXPECT_TRUE(is_mapped(address)) << "the second lies in the same chunk";
  second.reset();
  EXPECT_FALSE(is_mapped(address));
}

TEST(LastingMemory, IsCountedWhileItIsThere) {
  const std::size_t before = lasting_bytes();
  auto first = lasting_memory(100);
  const auto second = lasting_memory(kMiB);
  EXPECT_EQ(lasting_bytes(), before + 128 + kMiB);
  first.reset();
  EXPECT_EQ(lasting_bytes(), before + kMiB);
}

std::size_t resident_pages(std::uintptr_t begin, std::size_t bytes) {
  std::vector<unsigned char> pages(bytes / 4096);
  EXPECT_EQ(mincore(reinterpret_cast<void*>(begin), bytes, pages.data()), 0);
  return static_cast<std::size_t>(
      std::ranges::count_if(pages, [](unsigned char page) { return (page & 1) != 0; }));
}

/// A model that stays does not hold the memory of those that came and went beside it.
TEST(LastingMemory, APageGoesBackWithItsLastPiece) {
  const auto full = lasting_memory(40 * kMiB);
  auto before = lasting_memory(3 * kMiB);
  const auto stays = lasting_memory(kMiB / 2);
  auto half = lasting_memory(kMiB / 2);
  auto after = lasting_memory(4 * kMiB);
  const std::uintptr_t begin = address_of(before);
  for (const auto& piece : {before, half, after}) std::memset(piece.get(), 1, kMiB / 2);
  std::memset(before.get(), 1, 3 * kMiB);
  std::memset(stays.get(), 7, kMiB / 2);
  std::memset(after.get(), 1, 4 * kMiB);
  EXPECT_EQ(resident_pages(begin, 8 * kMiB), 2048u);
  before.reset();
  EXPECT_EQ(resident_pages(begin, 2 * kMiB), 0u);
  EXPECT_EQ(resident_pages(begin + 2 * kMiB, 2 * kMiB), 512u) << "another piece lies in it";
  half.reset();
  EXPECT_EQ(resident_pages(begin + 2 * kMiB, 2 * kMiB), 512u) << "and it stays";
  after.reset();
  EXPECT_EQ(resident_pages(begin + 4 * kMiB, 4 * kMiB), 0u);
  const std::span<std::uint8_t> all(static_cast<std::uint8_t*>(stays.get()), kMiB / 2);
  EXPECT_TRUE(std::ranges::all_of(all, [](std::uint8_t byte) { return byte == 7; }));
}

TEST(LastingMemory, ThreadsGetPiecesOfTheirOwn) {
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kPieces = 200;
  std::vector<std::vector<std::shared_ptr<void>>> taken(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (std::size_t k = 0; k < kPieces; ++k) {
        taken[t].push_back(lasting_memory(1000));
        std::memset(taken[t].back().get(), static_cast<int>(t + 1), 1000);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t t = 0; t < kThreads; ++t)
    for (const auto& piece : taken[t]) {
      const std::span<std::uint8_t> all(static_cast<std::uint8_t*>(piece.get()), 1000);
      EXPECT_TRUE(std::ranges::all_of(all, [&](std::uint8_t byte) { return byte == t + 1; }));
    }
}

}  // namespace
}  // namespace heddle::base
