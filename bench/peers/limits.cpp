// What this machine can do now, as one JSON line: what the floors of the comparison are computed from.
//
// `fma_gflops`: f32 multiply-adds, one thread. `copy_bytes_per_second`: of copies whose source and target together
// have so many bytes, read and written counted.

#include <cstdint>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/machine.h"

int main() {
  nlohmann::json copies;
  for (std::int64_t bytes = std::int64_t{1} << 15; bytes <= std::int64_t{1} << 28; bytes *= 2)
    copies[std::to_string(bytes)] = heddle::bench::measured_bandwidth(bytes);
  const nlohmann::json limits{{"fma_gflops", heddle::bench::measured_fma_gflops()},
                              {"copy_bytes_per_second", copies}};
  std::cout << limits.dump() << '\n';
}
