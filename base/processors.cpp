#include "base/processors.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sched.h>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace heddle::base {
namespace {

namespace fs = std::filesystem;

/// Whether `name` is one of those between commas.
bool lists(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const std::size_t comma = std::min(names.find(','), names.size());
    if (names.substr(0, comma) == name) return true;
    names.remove_prefix(std::min(comma + 1, names.size()));
  }
  return false;
}

/// A hierarchy of control groups in the file system: the group `root` lies at `place`.
struct Mount {
  bool is_second = false;  ///< of version 2, else of version 1 for processor time
  fs::path root, place;
};

/// A field of mountinfo, in which blanks and backslashes are written \ooo, in octal digits.
std::string unescaped(const std::string& field) {
  std::string text;
  for (std::size_t k = 0; k < field.size(); ++k) {
    const std::string_view digits = std::string_view(field).substr(k + 1, 3);
    const bool escapes = field[k] == '\\' && digits.size() == 3 &&
                         digits.find_first_not_of("01234567") == std::string_view::npos;
    text.push_back(escapes ? static_cast<char>((digits[0] - '0') * 64 + (digits[1] - '0') * 8 +
                                               (digits[2] - '0'))
                           : field[k]);
    if (escapes) k += digits.size();
  }
  return text;
}

/// Lines of mountinfo: id, parent, device, root, place, options, …, "-", type, source, options.
std::vector<Mount> mounts_of(const fs::path& root) {
  std::vector<Mount> mounts;
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line.substr(0, dash));
    std::istringstream after(line.substr(dash + 3));
    std::string skipped, from, place, type, options;
    before >> skipped >> skipped >> skipped >> from >> place;
    after >> type >> skipped >> options;
    if (type == "cgroup2" || (type == "cgroup" && lists(options, "cpu")))
      mounts.push_back({type == "cgroup2", unescaped(from), unescaped(place)});
  }
  return mounts;
}

/// The process's group in a hierarchy, from lines of /proc/self/cgroup: number, controllers (none of version 2), path.
fs::path group_of(const fs::path& root, bool is_second) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string_view controllers =
        std::string_view(line).substr(first + 1, second - first - 1);
    if (is_second ? controllers.empty() : lists(controllers, "cpu")) return line.substr(second + 1);
  }
  return "/";
}

/// Of the files of one group; "max" and negative ones are none.
std::optional<double> quota_in(const fs::path& group, bool is_second) {
  std::string quota;
  double period = 0;
  if (is_second) {
    std::ifstream(group / "cpu.max") >> quota >> period;
  } else {
    std::ifstream(group / "cpu.cfs_quota_us") >> quota;
    std::ifstream(group / "cpu.cfs_period_us") >> period;
  }
  const double time = std::strtod(quota.c_str(), nullptr);
  if (time <= 0 || period <= 0) return std::nullopt;
  return time / period;
}

}  // namespace

std::optional<double> processor_quota(const fs::path& root) {
  std::optional<double> least;
  for (const Mount& mount : mounts_of(root)) {
    const fs::path top = root / mount.place.relative_path();
    // A container may see its group alone, whose path it is told from the outside.
    const fs::path group = group_of(root, mount.is_second).lexically_relative(mount.root);
    const bool is_seen = !group.empty() && *group.begin() != "..";
    fs::path at = is_seen ? (top / group).lexically_normal() : top;
    // The groups around it have quotas of their own.
    while (true) {
      if (const auto quota = quota_in(at, mount.is_second))
        least = std::min(least.value_or(*quota), *quota);
      if (at == top.lexically_normal() || at.native().size() <= top.native().size()) break;
      at = at.parent_path();
    }
  }
  return least;
}

int allowed_processors() {
#if defined(__linux__)
  constexpr int kMost = 1 << 16;
  for (int size = 1024; size <= kMost; size *= 2) {
    cpu_set_t* set = CPU_ALLOC(size);
    const std::size_t bytes = CPU_ALLOC_SIZE(size);
    const bool is_known = sched_getaffinity(0, bytes, set) == 0;
    const int count = is_known ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
#endif
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

int processors() {
  static const int count = [] {
    const int allowed = allowed_processors();
    const std::optional<double> quota = processor_quota();
    if (!quota) return allowed;
    return std::clamp(static_cast<int>(std::min(std::ceil(*quota), 1e6)), 1, allowed);
  }();
  return count;
}

}  // namespace heddle::base
