// What launches asked of memory, as the simulated driver's meter tells (tests/cuda_sim/meter.h).
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/support.h"

namespace heddle::testing {

struct SiteTraffic {
  std::string place;           ///< "read 0", "write 1", "shared read"
  std::uint64_t bytes = 0;     ///< asked for by all lanes
  std::uint64_t requests = 0;  ///< of warps
  std::uint64_t parts = 0;     ///< sectors, or passes
  std::uint64_t least = 0;     ///< of these

  bool is_shared() const { return place.starts_with("shared"); }
  friend bool operator==(const SiteTraffic&, const SiteTraffic&) = default;
};

inline std::ostream& operator<<(std::ostream& out, const SiteTraffic& site) {
  return out << site.place << ": " << site.bytes << " bytes, " << site.requests << " requests, "
             << site.parts << " parts, " << site.least << " at least";
}

struct LaunchTraffic {
  std::string kernel;
  std::uint64_t blocks = 0;
  std::uint64_t threads = 0;
  std::uint64_t working = 0;  ///< threads that touch global memory
  std::uint64_t most = 0;     ///< accesses of one of them
  std::uint64_t all = 0;      ///< of all
  std::vector<SiteTraffic> sites{};

  /// The sum of all sites in global memory, or in shared memory.
  SiteTraffic total(bool shared) const {
    SiteTraffic sum{shared ? "shared" : "global"};
    for (const SiteTraffic& site : sites) {
      if (site.is_shared() != shared) continue;
      sum.bytes += site.bytes;
      sum.requests += site.requests;
      sum.parts += site.parts;
      sum.least += site.least;
    }
    return sum;
  }
};

inline std::vector<LaunchTraffic> parse_traffic(const std::string& text) {
  std::vector<LaunchTraffic> launches;
  std::istringstream lines(text);
  std::string line, word;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    if (!line.starts_with("  ")) {
      LaunchTraffic launch;
      words >> launch.kernel >> word >> launch.blocks >> word >> launch.threads >> word >>
          launch.working >> word >> launch.most >> word >> launch.all;
      launches.push_back(std::move(launch));
    } else {
      SiteTraffic site;
      std::string which;
      words >> site.place >> which >> word >> site.bytes >> word >> site.requests >> word >>
          site.parts >> word >> site.least;
      site.place += " " + which;
      launches.back().sites.push_back(std::move(site));
    }
  }
  return launches;
}

/// The launches of `action`, in the order in which they ran.
template <typename F>
std::vector<LaunchTraffic> metered(F&& action) {
  control().meter(1);
  action();
  const std::string text = control().metered();
  control().meter(0);
  return parse_traffic(text);
}

}  // namespace heddle::testing
