// Which variant of a kernel or library call is the fastest, found out while calls run on the one that a cost model expects
// to be.
#include <exception>
#include <fmt/format.h>
#include <utility>
#include <vector>

#include "device/cuda/optional_library.h"
#include "engine/compile_scope.h"
#include "engine/engine_impl.h"
#include "engine/unit.h"
#include "jit/compile_service.h"
#include "jit/cuda/measure.h"
#include "jit/library_choice.h"

namespace heddle {

using engine::BoundPlan;
using engine::BoundSteps;
using engine::CudaLaunch;
using engine::Executable;

namespace engine {

/// A launch of a plan whose variant was not measured.
struct Wanted {
  const jit::cuda::CudaKernel* kernel;
  std::uint32_t variant;
  std::vector<std::int64_t> sizes;
};

/// A library call of a plan whose way was not measured.
struct WantedCall {
  const jit::LibraryCall* call;
  jit::LibraryChoice choice;
  std::vector<jit::LibraryOperand> operands;
  std::int64_t bytes;  ///< of parameters that pass through the caches between two runs of the call
};

struct Unmeasured {
  std::vector<Wanted> launches;
  std::vector<WantedCall> calls;

  bool is_empty() const { return launches.empty() && calls.empty(); }
};

}  // namespace engine

namespace {

using engine::Unmeasured;
using engine::Wanted;
using engine::WantedCall;

void collect_launches(const BoundSteps& plan, std::vector<Wanted>& wanted) {
  for (std::size_t k = 0; k < plan.cuda.size(); ++k) {
    const CudaLaunch& launch = plan.cuda[k];
    if (launch.kernel == nullptr || launch.kernel->variants() < 2 || launch.measured ||
        launch.is_empty())
      continue;
    wanted.push_back({launch.kernel, launch.variant, plan.step_sizes[k]});
  }
}

/// @param sizes  of all entries of a batch, where the plan is for some of them
void collect_calls(const BoundSteps& plan, const base::SymbolValues& sizes,
                   std::vector<WantedCall>& wanted) {
  const base::ExprTable::Values values = plan.unit->values(sizes);
  for (std::size_t k = 0; k < plan.library.size(); ++k) {
    const jit::LibraryChoice* choice =
        plan.library[k] == nullptr ? nullptr : plan.library[k]->choice();
    if (choice == nullptr || choice->measured) continue;
    const ir::StepId step = plan.first_step + static_cast<ir::StepId>(k);
    const std::uint32_t kernel = plan.unit->schedule().record.steps[step].kernel;
    wanted.push_back({plan.unit->program().kernels[kernel].library.get(), *choice,
                      plan.unit->library_operands(step, values), plan.unit->fixed_bytes()});
  }
}

void collect(const BoundSteps& plan, Unmeasured& wanted) {
  collect_launches(plan, wanted.launches);
  collect_calls(plan, plan.sizes, wanted.calls);
  for (const auto& region : plan.regions)
    if (region != nullptr)
      for (const auto& nested : region->plans) collect(*nested, wanted);
  for (const auto& batch : plan.batches) collect_calls(*batch->steps, plan.sizes, wanted.calls);
}

/// @return whether it had to be measured.
bool measure(const Wanted& wanted, engine::CudaRuntime& runtime, jit::KernelCache* cache) {
  const std::scoped_lock one_at_a_time(runtime.measuring());
  if (const auto verdict = wanted.kernel->verdicts().find(wanted.sizes);
      verdict && wanted.kernel->is_ready(*verdict))
    return false;
  const auto memory = [&](std::size_t bytes) -> std::shared_ptr<void> {
    const auto block = std::make_shared<memory::PoolBlock>(runtime.pool(), bytes);
    return {block, block->get()};
  };
  wanted.kernel->add_verdict(
      wanted.sizes,
      jit::cuda::measure_variants(*wanted.kernel, runtime.device(), wanted.sizes, memory));
  if (cache != nullptr) wanted.kernel->store_verdicts(*cache);
  return true;
}

/// @return whether it had to be measured.
bool measure(const WantedCall& wanted, jit::LibraryVerdicts& verdicts, int threads) {
  const std::scoped_lock one_at_a_time(verdicts.measuring());
  if (verdicts.find(wanted.choice)) return false;
  verdicts.add(wanted.choice,
               jit::fastest_way(*wanted.call, wanted.operands, threads, wanted.bytes));
  return true;
}

/// Tells why variants stay those that are expected to be the fastest. What the embedder's log throws has nowhere to go.
void tell(const EngineOptions& options, const char* why) noexcept {
  try {
    engine::log_line(options, fmt::format("heddle: kernels were not measured: {}", why));
  } catch (...) {
  }
}

}  // namespace

/// It may take long, so that it is opened where nobody waits.
void Engine::Impl::open_library(const jit::cuda::CudaKernel& kernel) {
  if (device::cuda::OptionalLibrary* library = kernel.library()) library->open();
}

/// Once of each library.
void Engine::Impl::tell_of_library(const jit::cuda::CudaKernel& kernel) {
  const device::cuda::OptionalLibrary* library = kernel.library();
  const std::string why = library == nullptr ? std::string() : library->why();
  if (why.empty()) return;
  {
    const std::scoped_lock lock(mutex);
    if (!told_of_libraries.insert(library->name()).second) return;
  }
  engine::log_line(options, fmt::format("heddle: {} is not used{}: {}", library->name(),
                                        library->is_open() ? " everywhere" : "", why));
}

bool Engine::Impl::measure(const engine::Unmeasured& wanted) {
  bool better = false;
  for (const Wanted& one : wanted.launches) {
    open_library(*one.kernel);
    if (heddle::measure(one, cuda->runtime(), compiler->disk_cache())) ++measurements;
    if (const auto verdict = one.kernel->verdicts().find(one.sizes))
      one.kernel->prepare(*verdict, one.sizes);
    tell_of_library(*one.kernel);
    better = better || one.kernel->verdicts().find(one.sizes) != one.variant;
  }
  jit::LibraryVerdicts& verdicts = compiler->library_verdicts();
  for (const WantedCall& one : wanted.calls) {
    if (heddle::measure(one, verdicts, executor.threads())) ++measurements;
    better = better || verdicts.find(one.choice) != one.choice.way;
  }
  return better;
}

void Engine::Impl::ask_for_measurements(const BoundPlan& plan) {
  engine::Unmeasured wanted;
  collect(plan, wanted);
  if (wanted.is_empty()) return;
  const auto work = [this, wanted = std::move(wanted), executable = plan.executable,
                     sizes = plan.sizes, words = plan.words, hash = plan.hash] {
    try {
      if (measure(wanted)) rebind(executable, sizes, words, hash);
    } catch (const std::exception& error) {
      tell(options, error.what());
    } catch (...) {
      tell(options, "an exception that is no std::exception");
    }
  };
  try {
    background.post(work);
  } catch (const std::exception& error) {  // no thread to be had: the variants are right ones too
    tell(options, error.what());
  }
}

void Engine::Impl::rebind(const std::shared_ptr<const Executable>& executable,
                          const base::SymbolValues& sizes, const std::vector<std::int64_t>& words,
                          std::uint64_t hash) {
  std::unique_ptr<BoundPlan> plan = executable->bind(sizes, executor.threads());
  plan->words = words;
  plan->hash = hash;
  const std::scoped_lock lock(mutex);
  // Nothing enters or leaves the memo now. The old plan is not there any more where the executable was dropped, its
  // parameters were updated, or one for just these sizes has the place.
  const BoundPlan* old = plans.find(words, hash);
  if (old != nullptr && old->executable == executable) plans.replace(std::move(plan));
}

}  // namespace heddle
