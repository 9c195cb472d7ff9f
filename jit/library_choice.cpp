#include "jit/library_choice.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

namespace heddle::jit {
namespace {

using Duration = std::chrono::nanoseconds;

/// Of this thread on a processor: others that wait for one do not count.
Duration processor_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + Duration(time.tv_nsec);
}

constexpr int kRounds = 15;  ///< at most
constexpr int kLeastRounds = 7;
constexpr auto kMost =
    std::chrono::milliseconds(200);  ///< of all runs; the least rounds are made in any case
constexpr float kSmall = 0.0625f;

/// Memory whose first byte lies at a multiple of 64.
class Memory {
 public:
  explicit Memory(std::int64_t bytes)
      : floats_(static_cast<std::size_t>(bytes) / sizeof(float) + kLine, kSmall) {}
  void* begin() {
    const auto address = reinterpret_cast<std::uintptr_t>(floats_.data());
    return reinterpret_cast<void*>((address + 63) / 64 * 64);
  }
  /// Brings it into the caches, in the place of what is there.
  void read() const {
    float sum = 0;
    for (std::size_t k = 0; k < floats_.size(); k += kLine) sum += floats_[k];
    asm volatile("" : : "x"(sum));
  }

 private:
  static constexpr std::size_t kLine = 64 / sizeof(float);
  std::vector<float> floats_;
};

std::int64_t bytes_of(const LibraryOperand& operand, const ir::TensorMeta& meta) {
  return std::accumulate(operand.sizes.begin(), operand.sizes.end(),
                         static_cast<std::int64_t>(size_of(meta.dtype)), std::multiplies<>());
}

class Measurement {
 public:
  Measurement(const LibraryCall& call, std::span<const LibraryOperand> operands, int threads,
              std::int64_t bytes)
      : others_(std::min(bytes, LibraryWays::kManyBytes)) {
    std::int64_t scratch = 0;
    std::size_t ways = 1;
    for (std::uint32_t way = 0; way < ways; ++way) {
      auto bound = bind_library_call(call, operands, threads, {.way = way});
      if (bound->choice() != nullptr) ways = bound->choice()->ways.size();
      scratch = std::max(scratch, bound->scratch_bytes());
      candidates_.push_back({std::move(bound), Duration::max()});
    }
    memory_.reserve(operands.size() + 1);
    for (std::size_t k = 0; k < operands.size(); ++k) {
      const bool is_input = k < call.inputs.size();
      const ir::TensorMeta& meta = is_input ? call.inputs[k] : call.outputs[k - call.inputs.size()];
      buffers_.push_back(operands[k].fixed != nullptr ? const_cast<void*>(operands[k].fixed)
                                                      : add(bytes_of(operands[k], meta)));
    }
    scratch_ = add(scratch);
  }

  std::vector<double> run() {
    for (int round = 0; round < kRounds && (round < kLeastRounds || spent_ < kMost); ++round)
      for (Candidate& one : candidates_) one.least = std::min(one.least, time(*one.bound));
    std::vector<double> seconds;
    for (const Candidate& one : candidates_)
      seconds.push_back(std::chrono::duration<double>(one.least).count());
    return seconds;
  }

 private:
  struct Candidate {
    std::unique_ptr<BoundLibraryCall> bound;
    Duration least;
  };

  void* add(std::int64_t bytes) { return memory_.emplace_back(bytes).begin(); }

  /// What the call reads was just written by a step before it, but for the parameters.
  Duration time(const BoundLibraryCall& bound) {
    others_.read();
    for (const Memory& memory : memory_) memory.read();
    const Duration start = processor_time();
    for (std::int64_t k = 0; k < bound.extent(); ++k)
      bound.run(buffers_.data(), k, k + 1, scratch_);
    const Duration taken = processor_time() - start;
    spent_ += taken;
    return taken;
  }

  Memory others_;
  std::vector<Candidate> candidates_;
  std::vector<Memory> memory_;
  std::vector<void*> buffers_;
  void* scratch_ = nullptr;
  Duration spent_{};
};

}  // namespace

LibraryVerdicts::LibraryVerdicts(KernelCache* cache, std::string key)
    : cache_(cache), key_("heddle library verdicts\n" + std::move(key)) {}

void LibraryVerdicts::load(std::span<const std::string> ways) const {
  if (cache_ == nullptr) return;
  if (const auto text = cache_->find(key_)) verdicts_.add_text(*text, ways);
}

std::optional<std::uint32_t> LibraryVerdicts::find(const LibraryChoice& choice) const {
  std::call_once(loaded_, [&] { load(choice.ways); });
  return verdicts_.find(choice.sizes);
}

void LibraryVerdicts::add(const LibraryChoice& choice, std::uint32_t way) {
  verdicts_.set(choice.sizes, way);
  load(choice.ways);  // of other processes
  if (cache_ != nullptr) cache_->store(key_, verdicts_.to_text(choice.ways));
}

std::vector<double> seconds_of_ways(const LibraryCall& call,
                                    std::span<const LibraryOperand> operands, int threads,
                                    std::int64_t bytes) {
  return Measurement(call, operands, threads, bytes).run();
}

std::uint32_t fastest_way(const LibraryCall& call, std::span<const LibraryOperand> operands,
                          int threads, std::int64_t bytes) {
  const std::vector<double> seconds = seconds_of_ways(call, operands, threads, bytes);
  return static_cast<std::uint32_t>(std::ranges::min_element(seconds) - seconds.begin());
}

}  // namespace heddle::jit
