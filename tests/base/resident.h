// What of a mapping is in the process's memory.
#pragma once

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace heddle::tests {

/// Of the mapping that begins at `begin`, as the system counts it; 0 where there is none.
inline std::size_t resident_bytes(const void* begin) {
  std::ostringstream wanted;
  wanted << std::hex << reinterpret_cast<std::uintptr_t>(begin) << '-';
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool is_it = false;
  while (std::getline(maps, line)) {
    std::istringstream words(line);
    std::string first;
    std::size_t kilobytes = 0;
    words >> first;
    if (first.find('-') != std::string::npos && first.back() != ':')
      is_it = first.starts_with(wanted.str());
    else if (is_it && first == "Rss:" && words >> kilobytes)
      return kilobytes * 1024;
  }
  return 0;
}

}  // namespace heddle::tests
