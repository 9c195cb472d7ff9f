#include "jit/cuda/measure.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "heddle/error.h"

namespace heddle::jit::cuda {
namespace {

constexpr int kRounds = 9;                 ///< launches of a variant whose median counts
constexpr double kHopeless = 4;            ///< times the least
constexpr double kMostMilliseconds = 200;  ///< of all launches; three rounds are made in any case
/// Of memory that looks random the host makes so much; the rest repeats it.
constexpr std::size_t kRandomBytes = std::size_t{1} << 20;

/// Halves of words that are small finite floats of either sign, and no subnormals, in each floating dtype: 0.5 to 1 in f16,
/// 2^-15 to 2^-7 in bf16 and f32.
std::vector<std::uint16_t> random_halves() {
  std::vector<std::uint16_t> halves(kRandomBytes / sizeof(std::uint16_t));
  std::uint32_t state = 1;
  for (std::uint16_t& half : halves) {
    state = state * 1664525u + 1013904223u;  // Numerical Recipes, "ranqd1"
    half = static_cast<std::uint16_t>(0x3800u | (state >> 16 & 0x83ffu));
  }
  return halves;
}

/// Positions in what a kernel gathers are wider than a byte.
bool looks_random(DType dtype) {
  return is_floating(dtype) || dtype == DType::I8 || dtype == DType::U8;
}

class Measurement {
 public:
  Measurement(const CudaKernel& kernel, device::Device& device, std::span<const std::int64_t> sizes,
              const DeviceMemory& memory)
      : kernel_(kernel),
        device_(device),
        sizes_(sizes),
        stream_(device.make_stream()),
        begin_(device.make_event(true)),
        end_(device.make_event(true)) {
    // All of the memory before the first work that uses it.
    for (const CudaBuffer& buffer : kernel.buffers())
      buffers_.push_back(add(memory, bytes_of(buffer), looks_random(buffer.dtype)));
    std::int64_t scratch_bytes = 0;
    for (const std::uint32_t variant : kernel.plausible(sizes, kHopeless)) {
      const std::optional<CudaChoice> choice = kernel.choice_of(variant, sizes);
      if (!choice) continue;
      candidates_.push_back({*choice, 0, {}});
      scratch_bytes = std::max(scratch_bytes, choice->scratch_bytes);
    }
    scratch_ = add(memory, scratch_bytes, false);
    counters_ = add(memory, kMostSharedTiles * sizeof(std::uint32_t), false);
    status_ = add(memory, sizeof(std::int32_t), false);
    add(memory, 2 * device.properties().cache_bytes, false);
  }
  /// No work may use the memory when it is given back.
  ~Measurement() {
    try {
      stream_->synchronize();
    } catch (...) {  // the context is lost, and its memory with it
    }
  }
  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;

  std::vector<Verdicts::Timing> run() {
    for (const Block& block : blocks_) block.random ? randomise(block) : clear(block);
    std::erase_if(candidates_, [&](Candidate& one) { return !try_first(one); });
    const double least = std::ranges::min(candidates_, {}, &Candidate::first).first;
    std::erase_if(candidates_, [&](const Candidate& one) { return one.first > kHopeless * least; });
    for (int round = 0; round < kRounds && (round < 3 || spent_ < kMostMilliseconds); ++round)
      for (Candidate& one : candidates_) one.times.push_back(launch(one.choice));
    std::vector<Verdicts::Timing> timings;
    for (const Candidate& one : candidates_)
      timings.push_back({one.choice.variant, 1000 * median(one)});
    std::ranges::stable_sort(timings, {}, &Verdicts::Timing::microseconds);
    return timings;
  }

 private:
  struct Candidate {
    CudaChoice choice;
    double first;  ///< with the code's own way to the device
    std::vector<double> times;
  };
  struct Block {
    std::shared_ptr<void> memory;
    std::size_t bytes;
    bool random;
  };
  static double median(const Candidate& one) {
    std::vector<double> times = one.times;
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::ranges::nth_element(times, middle);
    return *middle;
  }

  std::int64_t bytes_of(const CudaBuffer& buffer) const {
    return buffer.count.evaluate_sizes(sizes_) * static_cast<std::int64_t>(size_of(buffer.dtype));
  }

  void* add(const DeviceMemory& memory, std::int64_t bytes, bool random) {
    const auto count = static_cast<std::size_t>(bytes);
    blocks_.push_back({memory(count), count, random});
    return blocks_.back().memory.get();
  }
  void clear(const Block& block) { device_.fill(block.memory.get(), 0, block.bytes, *stream_); }
  void randomise(const Block& block) {
    auto* const begin = static_cast<char*>(block.memory.get());
    std::size_t done = std::min(block.bytes, kRandomBytes);
    device_.copy(begin, halves_.data(), done, device::CopyKind::HostToDevice, *stream_);
    while (done < block.bytes) {
      const std::size_t more = std::min(done, block.bytes - done);
      device_.copy(begin + done, begin, more, device::CopyKind::DeviceToDevice, *stream_);
      done += more;
    }
  }

  /// False where the library refuses what it said it could do.
  bool try_first(Candidate& one) {
    try {
      one.first = launch(one.choice);
      // At its first call a library loads its code.
      if (one.choice.library != nullptr) one.first = std::min(one.first, launch(one.choice));
      return true;
    } catch (const DeviceLost&) {
      throw;
    } catch (const DeviceError& error) {
      if (one.choice.library == nullptr) throw;
      kernel_.library()->note(error.what());
      return false;
    }
  }

  /// Milliseconds.
  double launch(const CudaChoice& choice) {
    clear(blocks_.back());
    stream_->record(*begin_);
    kernel_.launch(device_, choice, buffers_, sizes_, scratch_, counters_, status_, *stream_);
    stream_->record(*end_);
    end_->synchronize();
    const double time = end_->milliseconds_since(*begin_);
    spent_ += time;
    return time;
  }

  const CudaKernel& kernel_;
  device::Device& device_;
  std::span<const std::int64_t> sizes_;
  const std::vector<std::uint16_t> halves_ = random_halves();
  std::vector<Block> blocks_;  ///< the last one is there to be overwritten
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<device::Event> begin_, end_;
  std::vector<void*> buffers_;
  std::vector<Candidate> candidates_;
  void* scratch_ = nullptr;
  void* counters_ = nullptr;
  void* status_ = nullptr;
  double spent_ = 0;
};

}  // namespace

std::vector<Verdicts::Timing> measure_variants(const CudaKernel& kernel, device::Device& device,
                                               std::span<const std::int64_t> sizes,
                                               const DeviceMemory& memory) {
  return Measurement(kernel, device, sizes, memory).run();
}

}  // namespace heddle::jit::cuda
