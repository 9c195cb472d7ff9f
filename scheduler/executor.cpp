#include "scheduler/executor.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <queue>
#include <tbb/info.h>
#include <tbb/task_arena.h>
#include <thread>
#include <utility>
#include <vector>

#include "base/float_control.h"
#include "base/processors.h"
#include "scheduler/stop.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

#if defined(__SANITIZE_THREAD__)
#define HEDDLE_NO_TSAN __attribute__((no_sanitize_thread))
#else
#define HEDDLE_NO_TSAN
#endif

namespace heddle::scheduler {

namespace {

/// Scalar operations below which a stage runs on the calling thread: a fork and join of spinning workers
/// costs about 0.5 µs, in which one thread does some 10^4 vectorised operations; four times that pays.
constexpr std::int64_t kForkWork = 48 * 1024;
/// Operations of one part: small enough to balance, large enough to hide one atomic add.
constexpr std::int64_t kPartWork = 16 * 1024;
/// How long a lent thread waits for the next region before it goes back to TBB; getting one anew costs
/// microseconds, tens of them when TBB has put it to sleep.
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

/// Threads that TBB runs at once, the caller's included: one for each processor that the process may run on.
int most_at_once() {
  static const int count = tbb::info::default_concurrency();
  return count;
}

/// Threads that TBB is asked for: it lends one for each processor but the caller's, and one at least.
int helpers_for(int threads) { return std::max(1, std::min(threads, most_at_once()) - 1); }

/// A thread's stay in run(), counted from the first stage on that is worth a fork. Where as many callers as there are processors are
/// at work, threads lent to one of them would take another's processor.
class Stay {
 public:
  Stay() = default;
  Stay(const Stay&) = delete;
  Stay& operator=(const Stay&) = delete;
  ~Stay() {
    if (!counts_) return;
    is_counted = false;
    callers.fetch_sub(1, std::memory_order_relaxed);
  }
  /// @param threads  of an executor: where they are more than the process has processors in time, they were asked for
  /// @return how many processors no caller is at work on
  int free_processors(int threads) {
    if (!is_counted) {
      is_counted = counts_ = true;
      callers.fetch_add(1, std::memory_order_relaxed);
    }
    return std::min(most_at_once(), std::max(base::processors(), threads)) -
           callers.load(std::memory_order_relaxed);
  }

 private:
  static std::atomic<int> callers;      ///< of all executors
  static thread_local bool is_counted;  ///< this thread, by this stay or one around it
  bool counts_ = false;
};

std::atomic<int> Stay::callers{0};
thread_local bool Stay::is_counted = false;

void run_iterations(const BoundStep& step, std::int64_t begin, std::int64_t end, bool backwards,
                    int worker, std::int32_t* status) {
  if (begin >= end) return;
  if (backwards && step.is_reversible) std::swap(begin, end);
  step.run(step, begin, end, worker, status);
}

/// The steps of a stage with the iterations that it runs.
class Steps {
 public:
  Steps() = default;
  Steps(const BoundStep* all, const BoundStage& stage) : first_(all + stage.first), stage_(stage) {}

  std::uint32_t count() const { return stage_.count; }
  std::int64_t work(std::uint32_t k) const { return first_[k].work / stage_.pieces; }
  /// How many parts the iterations of step `k` are cut into; of a piece, as many for each worker.
  std::int64_t parts(std::uint32_t k, int threads) const {
    const std::int64_t by_work = std::max<std::int64_t>(1, work(k) / kPartWork);
    const std::int64_t extent = first_[k].extent / stage_.pieces;
    const std::int64_t parts = std::min({extent, by_work, std::int64_t{threads} * 8});
    if (!stage_.is_partial()) return std::max<std::int64_t>(1, parts);
    return std::max<std::int64_t>(1, parts / threads) * threads;
  }
  void run(std::uint32_t k, bool backwards, int threads, std::int32_t* status) const {
    if (!stage_.is_partial()) {
      run_iterations(first_[k], 0, first_[k].extent, backwards, 0, status);
      return;
    }
    for (int worker = 0; worker < threads; ++worker) {
      const Iterations own = piece_of(first_[k].extent, stage_, worker, threads);
      run_iterations(first_[k], own.begin, own.end, backwards, 0, status);
    }
  }
  /// A part of `parts` in all, by a worker of `threads`.
  void run_part(std::uint32_t k, std::int64_t part, std::int64_t parts, bool backwards, int worker,
                int threads, std::int32_t* status) const {
    Iterations all{0, first_[k].extent};
    if (stage_.is_partial()) {
      parts /= threads;
      all = piece_of(first_[k].extent, stage_, static_cast<int>(part / parts), threads);
      part %= parts;
    }
    run_iterations(first_[k], bound_of(all, part, parts), bound_of(all, part + 1, parts), backwards,
                   worker, status);
  }

 private:
  /// Where a part begins. Longer parts lie among shorter ones, so that workers with as many parts have as many iterations, give or
  /// take one.
  static std::int64_t bound_of(const Iterations& all, std::int64_t part, std::int64_t parts) {
    return all.begin + all.size() / parts * part + all.size() % parts * part / parts;
  }

  const BoundStep* first_ = nullptr;
  BoundStage stage_;
};

/// Parts [begin, end) of a step.
struct PartRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
};

/// A worker's own parts of step `k` of a stage, of `parts` in all: as the iterations lie, so that what it left in its caches in one
/// stage it finds there in the next, and in the next step of a loop. Steps with fewer parts than there are workers begin with
/// different ones.
PartRange own_parts(std::uint32_t k, std::int64_t parts, std::int64_t worker,
                    std::int64_t threads) {
  const std::int64_t place = parts < threads ? (worker + threads - k % threads) % threads : worker;
  const auto first_of = [&](std::int64_t w) { return (w * parts + threads - 1) / threads; };
  return {first_of(place), first_of(place + 1)};
}

/// How many of a worker's own parts were claimed in the region with a tag, whoever claimed them; of another region's, none. On a cache
/// line of its own: its worker claims from it without traffic until others have nothing left.
class alignas(64) Claims {
 public:
  /// @return a number below `count`, each once in a region; -1: all were claimed
  std::int64_t next(std::uint32_t tag, std::int64_t count) {
    std::uint64_t seen = word_.load(std::memory_order_relaxed);
    while (true) {
      const auto claimed = static_cast<std::uint32_t>(seen >> 32 == tag ? seen : 0);
      if (claimed >= count) return -1;
      const std::uint64_t mine = std::uint64_t{tag} << 32 | (claimed + 1);
      if (word_.compare_exchange_weak(seen, mine, std::memory_order_relaxed)) return claimed;
    }
  }
  void forget() { word_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> word_{0};  ///< the tag, from bit 32 on, and the count
};

/// What callers and lent threads share. Counted: a thread that TBB lends late may find the executor gone.
class Crew {
 public:
  Crew(int threads, int most_helpers)
      : threads_(threads),
        most_helpers_(most_helpers),
        spin_(spin_microseconds()),
        claims_(new Claims[static_cast<std::size_t>(threads)]),
        taken_(new std::atomic<bool>[static_cast<std::size_t>(threads)]()) {
#if defined(__SANITIZE_ADDRESS__)
    // A task that TBB has not begun when the process ends keeps it, in memory that LeakSanitizer does not search.
    __lsan_ignore_object(this);
#endif
  }

  void release() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  void stop() {
    stop_.store(true);
    epoch_.fetch_add(1);
  }
  int threads() const { return threads_; }
  void run_stage(const Steps& steps, bool backwards, Stay& stay, std::int32_t* shared_status,
                 tbb::task_arena& arena);

 private:
  ~Crew() = default;
  void summon(std::int64_t wanted, tbb::task_arena& arena);
  void serve();
  std::uint32_t serve_regions();
  bool join();
  bool wait_for_region(std::uint32_t seen) const;
  void work(int worker);
  void work_on_parts_of(int owner, int worker, std::int32_t* status);
  void join_helpers();
  void offer(const Steps& steps, bool backwards, std::atomic<std::int32_t>* status);
  int take_number();

  const int threads_;
  const int most_helpers_;
  const int spin_;
  std::atomic<int> references_{1};
  std::atomic<bool> stop_{false};
  std::atomic<bool> busy_{false};     ///< a caller owns the crew
  std::atomic<int> helpers_{0};       ///< threads that TBB was asked for and has not got back
  std::unique_ptr<Claims[]> claims_;  ///< by worker number; 0 is the caller
  std::unique_ptr<std::atomic<bool>[]> taken_;  ///< by worker number

  // The region on offer; written while the gate is closed and no helper is inside.
  Steps steps_;
  bool backwards_ = false;
  std::uint32_t tag_ = 0;  ///< of the region; none has 0
  std::atomic<std::int32_t>* status_ = nullptr;
  base::SubnormalMode subnormals_ = base::SubnormalMode::current();  ///< the caller's

  alignas(64) std::atomic<std::uint32_t> gate_{0};   ///< kOpen | helpers inside
  alignas(64) std::atomic<std::uint32_t> epoch_{0};  ///< counts regions
};

/// Asks TBB for the threads that are missing. Those that come too late find nothing to do.
void Crew::summon(std::int64_t wanted, tbb::task_arena& arena) {
  int present = helpers_.load(std::memory_order_relaxed);
  while (present < wanted) {
    if (!helpers_.compare_exchange_weak(present, present + 1, std::memory_order_acq_rel)) continue;
    references_.fetch_add(1, std::memory_order_relaxed);
    // TBB hands the task over by means that ThreadSanitizer cannot see; serve() acquires helpers_.
    arena.enqueue([this]() HEDDLE_NO_TSAN { serve(); });
    ++present;
  }
}

/// Enters the open region, if there is one.
bool Crew::join() {
  std::uint32_t seen = gate_.load(std::memory_order_relaxed);
  while ((seen & kOpen) != 0) {
    if (gate_.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire)) return true;
  }
  return false;
}

/// Runs those of a worker's own parts that nobody has claimed.
void Crew::work_on_parts_of(int owner, int worker, std::int32_t* status) {
  std::int64_t count = 0;
  for (std::uint32_t k = 0; k < steps_.count(); ++k)
    count += own_parts(k, steps_.parts(k, threads_), owner, threads_).size();
  Claims& claims = claims_[static_cast<std::size_t>(owner)];
  for (std::int64_t claimed = claims.next(tag_, count); claimed >= 0;
       claimed = claims.next(tag_, count)) {
    std::int64_t at = backwards_ ? count - 1 - claimed : claimed;
    for (std::uint32_t k = 0; k < steps_.count(); ++k) {
      const std::int64_t parts = steps_.parts(k, threads_);
      const PartRange own = own_parts(k, parts, owner, threads_);
      if (at < own.size()) {
        steps_.run_part(k, own.begin + at, parts, backwards_, worker, threads_, status);
        break;
      }
      at -= own.size();
    }
  }
}

/// Its own parts first, then what others have left.
void Crew::work(int worker) {
  std::int32_t mine = 0;
  for (int k = 0; k < threads_; ++k) work_on_parts_of((worker + k) % threads_, worker, &mine);
  if (mine != 0) {
    std::int32_t none = 0;
    status_->compare_exchange_strong(none, mine);
  }
}

/// Spins for a bounded time. @return whether a region came.
bool Crew::wait_for_region(std::uint32_t seen) const {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::microseconds(spin_);
  for (int turn = 0;; ++turn) {
    if (epoch_.load(std::memory_order_acquire) != seen) return true;
    if (turn % 64 == 63 && Clock::now() > deadline) return false;
    relax();
  }
}

int Crew::take_number() {
  for (int worker = 1;; worker = worker % (threads_ - 1) + 1) {
    if (!taken_[static_cast<std::size_t>(worker)].exchange(true, std::memory_order_acquire))
      return worker;
  }
}

/// Works as long as regions keep coming. @return the last region that was looked at.
std::uint32_t Crew::serve_regions() {
  const int worker = take_number();
  const base::SubnormalScope scope(base::SubnormalMode::current());
  std::uint32_t seen = 0;
  do {
    seen = epoch_.load(std::memory_order_acquire);
    if (join()) {
      subnormals_.set();
      work(worker);
      gate_.fetch_sub(1, std::memory_order_release);
    }
  } while (!stop_.load(std::memory_order_relaxed) && wait_for_region(seen));
  taken_[static_cast<std::size_t>(worker)].store(false, std::memory_order_release);
  return seen;
}

/// A lent thread's stay. A region that opened while it took its leave did not ask for another thread, so
/// it looks once more.
void Crew::serve() {
  static_cast<void>(helpers_.load(std::memory_order_acquire));
  bool stay = true;
  while (stay) {
    const std::uint32_t seen = serve_regions();
    const int present = helpers_.fetch_sub(1, std::memory_order_seq_cst) - 1;
    stay = epoch_.load(std::memory_order_seq_cst) != seen && present < most_helpers_ &&
           !stop_.load(std::memory_order_relaxed);
    if (stay && helpers_.fetch_add(1, std::memory_order_seq_cst) >= most_helpers_) {
      helpers_.fetch_sub(1, std::memory_order_seq_cst);
      stay = false;
    }
  }
  release();
}

/// Opens a region; nobody is inside the one before it.
void Crew::offer(const Steps& steps, bool backwards, std::atomic<std::int32_t>* status) {
  steps_ = steps;
  backwards_ = backwards;
  status_ = status;
  subnormals_ = base::SubnormalMode::current();
  if (++tag_ == 0) {  // tags of long ago come again
    for (int worker = 0; worker < threads_; ++worker)
      claims_[static_cast<std::size_t>(worker)].forget();
    tag_ = 1;
  }
  gate_.store(kOpen, std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_seq_cst);
}

/// Closes the region and waits until nobody is inside; a helper whose processor the system gave to another thread may need ours.
void Crew::join_helpers() {
  constexpr int kSpins = 2000;
  gate_.fetch_and(~kOpen, std::memory_order_relaxed);
  for (int turn = 0; gate_.load(std::memory_order_acquire) != 0; ++turn) {
    if (turn < kSpins)
      relax();
    else
      std::this_thread::yield();
  }
}

void Crew::run_stage(const Steps& steps, bool backwards, Stay& stay, std::int32_t* shared_status,
                     tbb::task_arena& arena) {
  std::int64_t work_total = 0;
  std::int64_t parts = 0;
  for (std::uint32_t k = 0; k < steps.count(); ++k) {
    work_total += steps.work(k);
    parts += steps.parts(k, threads_);
  }
  bool free = false;
  const int spare =
      threads_ == 1 || work_total < kForkWork || parts == 1 ? 0 : stay.free_processors(threads_);
  if (spare <= 0 || !busy_.compare_exchange_strong(free, true, std::memory_order_acquire)) {
    for (std::uint32_t k = 0; k < steps.count(); ++k)
      steps.run(k, backwards, threads_, shared_status);
    return;
  }
  std::atomic<std::int32_t> region_status{0};
  offer(steps, backwards, &region_status);
  summon(std::min<std::int64_t>(parts - 1, std::min(most_helpers_, spare)), arena);
  work(0);
  join_helpers();
  busy_.store(false, std::memory_order_release);
  if (*shared_status == 0) *shared_status = region_status.load();
}

/// When the last of `threads` threads would be done that begin at once: with what they own, a list each, and then with what others own.
double longest_share(const std::vector<std::vector<double>>& own) {
  using Thread = std::pair<double, std::size_t>;  // done at, number
  std::priority_queue<Thread, std::vector<Thread>, std::greater<>> threads;
  for (std::size_t k = 0; k < own.size(); ++k) threads.emplace(0, k);
  std::vector<std::size_t> claimed(own.size(), 0);
  double end = 0;
  while (!threads.empty()) {
    const auto [at, thread] = threads.top();
    threads.pop();
    for (std::size_t k = 0; k < own.size(); ++k) {
      const std::size_t owner = (thread + k) % own.size();
      if (claimed[owner] == own[owner].size()) continue;
      const double done = at + own[owner][claimed[owner]++];
      end = std::max(end, done);
      threads.emplace(done, thread);
      break;
    }
  }
  return end;
}

}  // namespace

struct Executor::Impl {
  explicit Impl(int threads)
      : arena(helpers_for(threads), 0), crew(new Crew(threads, helpers_for(threads))) {}
  ~Impl() {
    crew->stop();
    crew->release();
  }
  tbb::task_arena arena;        ///< initialised by the first fork
  std::atomic<int> sharing{0};  ///< scopes of ShareScope
  Crew* crew;
};

Executor::Executor(int threads) : impl_(std::make_unique<Impl>(std::clamp(threads, 1, 1024))) {}
Executor::~Executor() = default;

int Executor::threads() const { return impl_->crew->threads(); }

namespace {

/// What run() on this thread is told to; null: it runs as it does.
thread_local ShareScope* shares = nullptr;

}  // namespace

ShareScope::ShareScope(Executor& executor)
    : executor_(executor), around_(std::exchange(shares, this)) {
  executor.impl_->sharing.fetch_add(1, std::memory_order_relaxed);
}

ShareScope::~ShareScope() {
  executor_.impl_->sharing.fetch_sub(1, std::memory_order_relaxed);
  shares = around_;
}

std::int32_t Executor::run(std::span<const BoundStep> steps, std::span<const BoundStage> stages,
                           bool backwards) {
  if (impl_->sharing.load(std::memory_order_relaxed) != 0 && shares != nullptr &&
      &shares->executor_ == this)
    return run_shares(steps, stages);
  std::int32_t status = 0;
  Stay stay;
  const std::stop_token* const stop = watched_stop();
  for (const BoundStage& stage : stages) {
    if (stop != nullptr) [[unlikely]]
      end_if_stopped(*stop);
    const BoundStep* first = steps.data() + stage.first;
    if (first->run_alone != nullptr)
      first->run_alone(*first, *this, &status);
    else
      impl_->crew->run_stage({steps.data(), stage}, backwards, stay, &status, impl_->arena);
    if (status != 0) return status;
  }
  return status;
}

std::int32_t Executor::run_shares(std::span<const BoundStep> steps,
                                  std::span<const BoundStage> stages) {
  ShareTimes& sums = shares->times_;
  std::uint32_t done = 0;  // pieces of a chain are of steps that were run whole
  for (const BoundStage& stage : stages)
    for (; done < stage.first + stage.count; ++done) {
      const ShareTimes times = run_shares(steps[done]);
      sums.all_us += times.all_us;
      sums.longest_us += times.longest_us;
      if (times.status != 0) return times.status;
    }
  return 0;
}

ShareTimes Executor::run_shares(const BoundStep& step) {
  using Clock = std::chrono::steady_clock;
  ShareTimes times;
  const auto timed = [&](const auto& run) {
    const auto start = Clock::now();
    run();
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    times.all_us += us;
    return us;
  };
  const Steps steps(&step, {0, 1});
  const std::int64_t parts = step.run_alone != nullptr ? 1 : steps.parts(0, threads());
  if (step.run_alone != nullptr) {
    const ShareScope inside(*this);
    times.longest_us = timed([&] { step.run_alone(step, *this, &times.status); });
    times.longest_us -= inside.saved_us();
  } else if (threads() == 1 || parts == 1 || steps.work(0) < kForkWork) {
    times.longest_us = timed([&] { steps.run(0, false, threads(), &times.status); });
  } else {
    std::vector<std::vector<double>> own(static_cast<std::size_t>(threads()));
    for (int worker = 0; worker < threads(); ++worker) {
      const PartRange range = own_parts(0, parts, worker, threads());
      for (std::int64_t part = range.begin; part < range.end; ++part)
        own[static_cast<std::size_t>(worker)].push_back(timed(
            [&] { steps.run_part(0, part, parts, false, worker, threads(), &times.status); }));
    }
    times.longest_us = longest_share(own);
  }
  return times;
}

}  // namespace heddle::scheduler
