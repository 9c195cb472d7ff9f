// Numbers that threads add to at once, and where each of them does.
#include "base/stripes.h"

#include <gtest/gtest.h>
#include <set>
#include <thread>
#include <vector>

namespace heddle::base {
namespace {

TEST(Stripes, AThreadKeepsItsStripe) {
  const std::size_t stripe = thread_stripe();
  EXPECT_LT(stripe, kStripes);
  EXPECT_EQ(thread_stripe(), stripe);
}

TEST(Stripes, ThreadsAreSpreadOverThem) {
  std::vector<std::size_t> stripes(kStripes);
  for (std::size_t& stripe : stripes) std::thread([&stripe] { stripe = thread_stripe(); }).join();
  EXPECT_EQ(std::set(stripes.begin(), stripes.end()).size(), kStripes);
}

TEST(Stripes, ACounterLosesNothing) {
  StripedCounter counter;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&counter] {
      for (int k = 0; k < 10'000; ++k) counter.add(3);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.sum(), 4u * 3 * 10'000);
}

}  // namespace
}  // namespace heddle::base
