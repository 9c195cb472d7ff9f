// Times of single steps.
#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <optional>

#include "engine/engine_impl.h"
#include "engine/nested_clock.h"
#include "engine/run_events.h"
#include "heddle/error.h"

namespace heddle {

namespace engine {

namespace {

using Clock = std::chrono::steady_clock;

/// Times of each step of a plan, in the order of the schedule.
class StepClock {
 public:
  StepClock(const Unit& unit, Profile what)
      : unit_(unit),
        what_(what),
        times_(unit.schedule().record.steps.size()),
        around_(NestedClock::set_current(nullptr)) {}
  ~StepClock() { NestedClock::set_current(around_); }
  StepClock(const StepClock&) = delete;
  StepClock& operator=(const StepClock&) = delete;

  /// Runs the steps of one phase one by one. @return as RegionMachine::run().
  std::int32_t run(Frame& frame, scheduler::Executor& executor) {
    const BoundSteps& plan = frame.plan();
    // Between phases the sizes of the next one's first step are found, for which a loop may have run.
    const double asked = plan.phase == 0 ? 0 : microseconds_since(phase_end_);
    const double saved = shares_ ? shares_->saved_us() : 0;
    shares_.reset();
    for (std::size_t k = 0; k < plan.steps.size(); ++k) {
      Times& step = times_[plan.first_step + k];
      if (k == 0) step.inside.take(between_);
      NestedClock::set_current(what_ == Profile::Steps ? &step.inside : nullptr);
      const std::int32_t status = time_step(frame, executor, k, step);
      if (k == 0) step.microseconds.back() += asked;
      if (k == 0 && what_ == Profile::Shares) step.shared.back() += asked - saved;
      step.work = plan.steps[k].work;
      const std::size_t last = last_of(plan, k);
      step.bytes = 0;
      for (std::size_t own = k; own <= last; ++own)
        step.bytes += bytes_of(plan, plan.first_step + own);
      step.last = plan.first_step + last;
      if (status != 0) return status;
      k = last;
    }
    NestedClock::set_current(what_ == Profile::Steps ? &between_ : nullptr);
    if (what_ == Profile::Shares) shares_.emplace(executor);
    phase_end_ = Clock::now();
    return 0;
  }
  /// A run is over: nothing follows its last phase.
  void end_run() {
    shares_.reset();
    NestedClock::set_current(nullptr);
    ++runs_;
  }

  std::vector<StepTime> medians() {
    const ir::ScheduleRecord& record = unit_.schedule().record;
    const std::vector<std::string> names = names_of_kernels(record);
    std::vector<StepTime> steps;
    for (std::size_t k = 0; k < times_.size(); k = std::max(k, times_[k].last) + 1) {
      const std::string& kernel = names[record.steps[k].kernel];
      steps.push_back({.step = k,
                       .kernel = times_[k].last <= k
                                     ? kernel
                                     : fmt::format("steps {} to {}", k, times_[k].last),
                       .microseconds = median_of(times_[k].microseconds),
                       .shared_microseconds = median_of(times_[k].shared),
                       .bytes = times_[k].bytes,
                       .work = times_[k].work,
                       .inside = times_[k].inside.times(runs_)});
    }
    return steps;
  }

 private:
  struct Times {
    std::vector<double> microseconds, shared;
    std::size_t last =
        0;  ///< of the steps that this one runs for some entries of a batch after others
    std::int64_t bytes = 0;
    std::int64_t work = 0;
    NestedClock inside{};
  };

  /// The last step that runs when step `k` does.
  static std::size_t last_of(const BoundSteps& plan, std::size_t k) {
    for (const auto& batch : plan.batches)
      if (batch->first == k) return k + batch->steps->steps.size() - 1;
    return k;
  }

  std::int32_t time_step(Frame& frame, scheduler::Executor& executor, std::size_t k, Times& times) {
    if (what_ == Profile::Shares) {
      const scheduler::ShareTimes shares = executor.run_shares(frame.steps()[k]);
      times.microseconds.push_back(shares.all_us);
      times.shared.push_back(shares.longest_us);
      return shares.status;
    }
    const scheduler::BoundStage alone{static_cast<std::uint32_t>(k), 1};
    const auto start = Clock::now();
    const std::int32_t status = executor.run(frame.steps(), {&alone, 1});
    times.microseconds.push_back(microseconds_since(start));
    return status;
  }

  static double microseconds_since(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  }

  static double median_of(std::vector<double>& times) {
    if (times.empty()) return 0;
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
  }

  const Unit& unit_;
  Profile what_;
  std::vector<Times> times_;  ///< by step of the schedule
  Clock::time_point phase_end_;
  NestedClock between_;  ///< what runs after a phase, to find the sizes of the next
  std::optional<scheduler::ShareScope> shares_;  ///< the same
  NestedClock* around_;
  int runs_ = 0;
};

}  // namespace
}  // namespace engine

std::vector<StepTime> Engine::profile(std::span<const Tensor> inputs, int runs, Profile what) {
  if (impl_->options.device.kind() != Device::Kind::Cpu)
    throw DeviceError({.what = "profile",
                       .where = {},
                       .expected = "cpu",
                       .got = impl_->options.device.to_string()});
  if (runs < 1)
    throw ArgumentError({.what = "profile: runs",
                         .where = {},
                         .expected = "at least 1",
                         .got = std::to_string(runs)});
  const engine::Reclaimer::Reader reader(impl_->plans.reclaimer());
  std::vector<StepTime> medians;
  impl_->run_by(
      inputs, nullptr,
      [&](const engine::BoundPlan& plan, std::span<const Tensor> given, std::vector<Tensor>*) {
        std::vector<Tensor> results = impl_->make_outputs(plan, nullptr);
        engine::StepClock clock(*plan.unit, what);
        for (int run = 0; run < runs; ++run) {
          impl_->execute_with(plan, given, results, [&](engine::ExecutionContext& context) {
            return engine::run_phases(context.frame(), impl_->executor, [&](engine::Frame& frame) {
              return clock.run(frame, impl_->executor);
            });
          });
          clock.end_run();
        }
        medians = clock.medians();
        return results;
      });
  return medians;
}

}  // namespace heddle
