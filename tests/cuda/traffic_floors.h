// What launches have to make of memory and of threads, at sizes that give all multiprocessors of a device work.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/heddle.h"
#include "tests/cuda/metered.h"
#include "tests/cuda/support.h"

namespace heddle::testing {

/// Of the simulated device: sizes that fill these can be simulated.
inline constexpr unsigned int kMultiprocessors = 4;
inline constexpr double kDeviceThreads = 1024.0 * kMultiprocessors;

/// Numbers of a launch, or of those of a run.
struct Traffic {
  double sectors =
      1;  ///< of the bytes of global memory that are moved, the share that lanes asked for
  double working = 1;  ///< of all threads, the share that touches global memory
  double passes = 1;   ///< of shared memory, for each that would do
  double chain = 1;    ///< accesses of one thread, for each it would have if threads had the same
};

/// The least, of passes and chain the most, that a launch may have.
inline constexpr Traffic kTrafficFloors{0.8, 0.5, 1.3, 6};

inline Traffic traffic_of(const LaunchTraffic& launch) {
  /// A thread has a few accesses in any case.
  constexpr double kFew = 24;
  const SiteTraffic global = launch.total(false);
  const SiteTraffic shared = launch.total(true);
  const auto share = [](std::uint64_t of, std::uint64_t all) {
    return all == 0 ? 1.0 : static_cast<double>(of) / static_cast<double>(all);
  };
  const double fair = std::max(kFew, static_cast<double>(launch.all) / kDeviceThreads);
  return {share(global.least, global.parts), share(launch.working, launch.threads),
          share(shared.parts, shared.least), static_cast<double>(launch.most) / fair};
}

/// A limit of its own, and why.
struct TrafficException {
  std::string_view name;  ///< of a case, or how names begin
  double Traffic::* what;
  double limit;
  std::string_view reason;
};

/// The first that fits.
inline double limit_for(std::string_view name, double Traffic::* what,
                        const std::vector<TrafficException>& exceptions) {
  for (const TrafficException& one : exceptions)
    if (one.what == what && name.starts_with(one.name)) return one.limit;
  return kTrafficFloors.*what;
}

/// Launches that move a small part of what a run moves, as the last step of a split reduction does.
inline std::vector<LaunchTraffic> large_ones(const std::vector<LaunchTraffic>& launches) {
  constexpr std::uint64_t kSmall = 20;
  std::uint64_t all = 0;
  for (const LaunchTraffic& launch : launches) all += launch.total(false).parts;
  std::vector<LaunchTraffic> large;
  for (const LaunchTraffic& launch : launches)
    if (launch.total(false).parts * kSmall >= all) large.push_back(launch);
  return large;
}

/// Each launch keeps the floors. HEDDLE_TRAFFIC=1 prints its numbers.
inline void expect_good_traffic(const std::string& name, const std::vector<LaunchTraffic>& launches,
                                const std::vector<TrafficException>& exceptions) {
  static const bool prints = std::getenv("HEDDLE_TRAFFIC") != nullptr;
  for (const LaunchTraffic& launch : large_ones(launches)) {
    const Traffic got = traffic_of(launch);
    const auto limit = [&](double Traffic::* what) { return limit_for(name, what, exceptions); };
    if (prints)
      std::cout << "traffic " << name << " " << launch.kernel << " threads " << launch.threads
                << " sectors " << got.sectors << " working " << got.working << " passes "
                << got.passes << " chain " << got.chain << " (" << launch.most << ")\n";
    SCOPED_TRACE(name + ": " + launch.kernel);
    EXPECT_GE(got.sectors, limit(&Traffic::sectors)) << ::testing::PrintToString(launch.sites);
    EXPECT_GE(got.working, limit(&Traffic::working)) << launch.threads << " threads";
    EXPECT_LE(got.passes, limit(&Traffic::passes)) << ::testing::PrintToString(launch.sites);
    EXPECT_LE(got.chain, limit(&Traffic::chain)) << launch.most << " accesses";
  }
}

/// Tests by number, on a simulated device that is given its size.
class TrafficTest : public ::testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override {
    if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
    control().multiprocessors(kMultiprocessors);
  }
  void TearDown() override {
    if (on_simulator()) control().multiprocessors(0);
  }
  /// The launches of a first call.
  static std::vector<LaunchTraffic> launches_of(Engine& engine, const std::vector<Tensor>& inputs) {
    return metered([&] {
      for (const Tensor& output : engine.run(inputs)) output.wait();
    });
  }
};

}  // namespace heddle::testing
