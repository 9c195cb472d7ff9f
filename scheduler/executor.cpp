#include "scheduler/executor.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace heddle::scheduler {

namespace {

/// Scalar operations below which a stage runs on the calling thread: a fork and join of spinning workers
/// costs about 0.5 µs, in which one thread does some 10^4 vectorised operations; four times that pays.
constexpr std::int64_t kForkWork = 48 * 1024;
/// Operations of one part: small enough to balance, large enough to hide one atomic add.
constexpr std::int64_t kPartWork = 16 * 1024;
/// How long an idle worker spins before it sleeps; waking it costs tens of microseconds.
constexpr int kDefaultSpinMicroseconds = 50;
constexpr std::uint32_t kOpen = 1u << 31;

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

int spin_microseconds() {
  const char* text = std::getenv("HEDDLE_SPIN_US");
  return text == nullptr ? kDefaultSpinMicroseconds : std::max(0, std::atoi(text));
}

/// How many parts a step is cut into.
std::int64_t parts_of(const BoundStep& step, int threads) {
  const std::int64_t by_work = std::max<std::int64_t>(1, step.work / kPartWork);
  return std::max<std::int64_t>(1, std::min({step.extent, by_work, std::int64_t{threads} * 4}));
}

void run_part(const BoundStep& step, std::int64_t part, std::int64_t parts, int worker,
              std::int32_t* status) {
  const std::int64_t begin = step.extent / parts * part + std::min(part, step.extent % parts);
  const std::int64_t size = step.extent / parts + (part < step.extent % parts ? 1 : 0);
  if (size > 0) step.run(step, begin, begin + size, worker, status);
}

}  // namespace

struct Executor::Impl {
  explicit Impl(int count) : threads(count), spin(spin_microseconds()) {
    for (int worker = 1; worker < threads; ++worker)
      workers.emplace_back([this, worker] { serve(worker); });
  }
  ~Impl() {
    stop.store(true);
    epoch.fetch_add(1);
    epoch.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  void serve(int worker);
  bool join();
  void work(int worker);
  void run_stage(const BoundStep* first, std::uint32_t count, std::int32_t* shared_status);

  const int threads;
  const int spin;
  std::vector<std::thread> workers;
  std::atomic<bool> stop{false};
  std::atomic<bool> busy{false};  ///< a caller owns the workers

  // The region on offer; written while the gate is closed and no worker is inside.
  const BoundStep* steps = nullptr;
  std::uint32_t step_count = 0;
  std::int64_t total_parts = 0;
  std::atomic<std::int32_t>* status = nullptr;

  alignas(64) std::atomic<std::uint32_t> gate{0};  ///< kOpen | workers inside
  alignas(64) std::atomic<std::int64_t> next{0};   ///< next part to claim
  alignas(64) std::atomic<std::uint32_t> epoch{
      0};  ///< counts regions; what sleeping workers wait on
  std::atomic<int> sleepers{0};
};

/// Enters the open region, if there is one.
bool Executor::Impl::join() {
  std::uint32_t seen = gate.load(std::memory_order_relaxed);
  while ((seen & kOpen) != 0) {
    if (gate.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire)) return true;
  }
  return false;
}

void Executor::Impl::work(int worker) {
  std::int32_t mine = 0;
  for (std::int64_t claimed = next.fetch_add(1, std::memory_order_relaxed); claimed < total_parts;
       claimed = next.fetch_add(1, std::memory_order_relaxed)) {
    for (std::uint32_t k = 0; k < step_count; ++k) {
      const std::int64_t parts = parts_of(steps[k], threads);
      if (claimed < parts) {
        run_part(steps[k], claimed, parts, worker, &mine);
        break;
      }
      claimed -= parts;
    }
  }
  if (mine != 0) {
    std::int32_t none = 0;
    status->compare_exchange_strong(none, mine);
  }
}

void Executor::Impl::serve(int worker) {
  using Clock = std::chrono::steady_clock;
  std::uint32_t seen = epoch.load();
  while (!stop.load(std::memory_order_relaxed)) {
    if (join()) {
      work(worker);
      gate.fetch_sub(1, std::memory_order_release);
    }
    const auto deadline = Clock::now() + std::chrono::microseconds(spin);
    bool idle = true;
    for (int turn = 0; idle; ++turn) {
      if (epoch.load(std::memory_order_acquire) != seen) idle = false;
      if (idle && turn % 64 == 63 && Clock::now() > deadline) break;
      relax();
    }
    if (idle) {
      sleepers.fetch_add(1);
      epoch.wait(seen);
      sleepers.fetch_sub(1);
    }
    seen = epoch.load(std::memory_order_acquire);
  }
}

void Executor::Impl::run_stage(const BoundStep* first, std::uint32_t count,
                               std::int32_t* shared_status) {
  std::int64_t work_total = 0;
  std::int64_t parts = 0;
  for (std::uint32_t k = 0; k < count; ++k) {
    work_total += first[k].work;
    parts += parts_of(first[k], threads);
  }
  bool free = false;
  if (threads == 1 || work_total < kForkWork || parts == 1 ||
      !busy.compare_exchange_strong(free, true, std::memory_order_acquire)) {
    for (std::uint32_t k = 0; k < count; ++k)
      if (first[k].extent > 0) first[k].run(first[k], 0, first[k].extent, 0, shared_status);
    return;
  }
  std::atomic<std::int32_t> region_status{0};
  steps = first;
  step_count = count;
  total_parts = parts;
  status = &region_status;
  next.store(0, std::memory_order_relaxed);
  gate.store(kOpen, std::memory_order_release);
  epoch.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) > 0) epoch.notify_all();
  work(0);
  gate.fetch_and(~kOpen, std::memory_order_relaxed);
  while (gate.load(std::memory_order_acquire) != 0) relax();
  busy.store(false, std::memory_order_release);
  if (*shared_status == 0) *shared_status = region_status.load();
}

Executor::Executor(int threads) : impl_(std::make_unique<Impl>(std::clamp(threads, 1, 1024))) {}
Executor::~Executor() = default;

int Executor::threads() const { return impl_->threads; }

std::int32_t Executor::run(std::span<const BoundStep> steps, std::span<const BoundStage> stages) {
  std::int32_t status = 0;
  for (const BoundStage& stage : stages) {
    impl_->run_stage(steps.data() + stage.first, stage.count, &status);
    if (status != 0) return status;
  }
  return status;
}

}  // namespace heddle::scheduler
