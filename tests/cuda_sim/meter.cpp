#include "tests/cuda_sim/meter.h"

#include <algorithm>

#include "tests/cuda_sim/entry.h"
#include "tests/cuda_sim/machine.h"

namespace heddle::sim {
namespace {

constexpr std::uintptr_t kBankBytes = 4;
constexpr std::uintptr_t kBanks = 32;

std::string word(const char* name, std::uint64_t number) {
  return " " + std::string(name) + " " + std::to_string(number);
}

}  // namespace

Meter& Meter::instance() {
  static Meter meter;
  return meter;
}

void Meter::listen(bool on) {
  on_ = on;
  text_.clear();
}

void Meter::begin(const Operation& launch) {
  running_ = on_;
  if (!running_) return;
  const Kernel& kernel = *launch.kernel;
  head_ = kernel.name + word("blocks", launch.grid.x) +
          word("threads", std::uint64_t{launch.grid.x} * launch.block.x);
  parameters_.clear();
  for (std::size_t k = 0; k < kernel.kinds.size(); ++k)
    if (kernel.kinds[k] == 'p') parameters_.emplace(launch.arguments[k], static_cast<int>(k));
  totals_.clear();
  warps_.assign((launch.block.x + kWarp - 1) / kWarp, {});
  accesses_.assign(launch.block.x, 0);
  working_ = most_ = all_ = 0;
}

void Meter::access(std::uint32_t thread, const Site& site, std::uintptr_t address,
                   std::uint32_t bytes) {
  if (!running_) return;
  const std::uint32_t lane = thread % kWarp;
  Pending& pending = warps_[thread / kWarp][site];
  for (std::uint32_t done = 0; done < bytes; done += kWidest) {
    const std::uint32_t number = pending.count[lane]++;
    if (number == pending.requests.size()) pending.requests.emplace_back();
    pending.requests[number][lane] = {address + done, std::min(kWidest, bytes - done)};
    if (!site.shared) ++accesses_[thread];
  }
}

void Meter::meet(std::uint32_t begin, std::uint32_t end) {
  if (!running_) return;
  for (std::uint32_t warp = begin / kWarp; warp * kWarp < end; ++warp) {
    for (const auto& [site, pending] : warps_[warp])
      for (const Request& request : pending.requests) count(site, request);
    warps_[warp].clear();
  }
}

void Meter::end_block() {
  if (!running_) return;
  meet(0, static_cast<std::uint32_t>(accesses_.size()));
  for (std::uint64_t& accesses : accesses_) {
    working_ += accesses != 0 ? 1 : 0;
    most_ = std::max(most_, accesses);
    all_ += accesses;
    accesses = 0;
  }
}

void Meter::end() {
  if (!running_) return;
  running_ = false;
  text_ += head_ + word("working", working_) + word("most", most_) + word("all", all_) + "\n";
  constexpr const char* kKinds[] = {"read", "write", "atomic"};
  for (const auto& [site, total] : totals_) {
    const char* kind = kKinds[static_cast<std::size_t>(site.kind)];
    text_ += site.shared ? std::string("  shared ") + kind
                         : "  " + std::string(kind) + " " + std::to_string(total.parameter);
    text_ += word("bytes", total.bytes) + word("requests", total.requests) +
             word(site.shared ? "passes" : "sectors", total.parts) + word("least", total.least) +
             "\n";
  }
}

int Meter::parameter_of(std::uintptr_t address) const {
  const auto after = parameters_.upper_bound(address);
  return after == parameters_.begin() ? 0 : std::prev(after)->second;
}

void Meter::count(const Site& site, const Request& request) {
  Total& total = totals_[site];
  if (total.requests++ == 0 && !site.shared) {
    const auto first =
        std::ranges::find_if(request, [](const Lane& lane) { return lane.bytes != 0; });
    total.parameter = parameter_of(first->address);
  }
  for (const Lane& lane : request) total.bytes += lane.bytes;
  site.shared ? count_shared(request, total) : count_global(request, total);
}

void Meter::count_global(const Request& request, Total& total) {
  Request lanes = request;
  std::ranges::sort(lanes, {}, &Lane::address);
  std::uintptr_t end = 0;       // of what was counted
  std::uintptr_t next = 0;      // sector
  std::uint64_t different = 0;  // bytes
  for (const Lane& lane : lanes) {
    if (lane.bytes == 0) continue;
    const std::uintptr_t lane_end = lane.address + lane.bytes;
    if (lane_end > end) different += lane_end - std::max(lane.address, end);
    end = std::max(end, lane_end);
    const std::uintptr_t first = std::max(next, lane.address / kSector);
    const std::uintptr_t last = (lane_end - 1) / kSector;
    if (last >= first) total.parts += last + 1 - first;
    next = std::max(next, last + 1);
  }
  total.least += (different + kSector - 1) / kSector;
}

void Meter::count_shared(const Request& request, Total& total) {
  std::uint32_t widest = 0;
  for (const Lane& lane : request) widest = std::max(widest, lane.bytes);
  const std::uint32_t lanes = widest <= 4 ? kWarp : widest <= 8 ? kWarp / 2 : kWarp / 4;
  for (std::uint32_t begin = 0; begin < kWarp; begin += lanes) {
    std::array<std::vector<std::uintptr_t>, kBanks> words;
    for (std::uint32_t k = begin; k < begin + lanes; ++k) {
      const Lane& lane = request[k];
      if (lane.bytes == 0) continue;
      const std::uintptr_t last = (lane.address + lane.bytes - 1) / kBankBytes;
      for (std::uintptr_t at = lane.address / kBankBytes; at <= last; ++at) {
        auto& of_bank = words[at % kBanks];
        if (std::ranges::find(of_bank, at) == of_bank.end()) of_bank.push_back(at);
      }
    }
    const auto size = [](const auto& of_bank) { return of_bank.size(); };
    const std::size_t passes = std::ranges::max(words, {}, size).size();
    total.parts += passes;
    total.least += passes != 0 ? 1 : 0;
  }
}

}  // namespace heddle::sim

EXPORT void heddle_cuda_sim_meter(int on) {
  const std::lock_guard lock(heddle::sim::mutex());
  heddle::sim::Meter::instance().listen(on != 0);
}
EXPORT const char* heddle_cuda_sim_metered() {
  const std::lock_guard lock(heddle::sim::mutex());
  return heddle::sim::Meter::instance().text().c_str();
}
