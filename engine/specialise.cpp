// Executables for exact sizes, compiled while calls run on the general one.
#include <algorithm>
#include <exception>
#include <fmt/format.h>

#include "engine/compile_scope.h"
#include "engine/engine_impl.h"
#include "ir/passes/resolve_sizes.h"

namespace heddle {

using base::SymbolValues;
using engine::BoundPlan;
using engine::Executable;

namespace {

/// One equality for each size of the inputs that the plan has a value for. The size of a batch that is run entry by entry stays open.
std::vector<ir::Assumption> exact_sizes(const BoundPlan& plan, int calls) {
  const engine::Guards& guards = plan.executable->guards();
  std::vector<ir::Assumption> exact;
  for (const auto& [symbol, value] : plan.sizes) {
    if (!plan.batches.empty() && symbol == plan.unit->schedule().record.batch) continue;
    const auto is_of = [&, wanted = base::SymExpr(symbol)](const ir::Dims& numbers) {
      return std::ranges::find(numbers, wanted) != numbers.end();
    };
    if (std::ranges::none_of(guards.inputs, [&](const engine::InputGuard& input) {
          return is_of(input.sizes) || is_of(input.strides);
        }))
      continue;
    exact.push_back({{base::Predicate::Op::Eq, base::SymExpr(symbol), base::SymExpr(value)},
                     fmt::format("compiled for just this size after {} calls", calls),
                     {}});
  }
  return exact;
}

/// Tells why `size` gets no executable of its own. What the embedder's log throws has nowhere to go.
void tell(const EngineOptions& options, const std::string& size, const char* why) noexcept {
  try {
    engine::log_line(options,
                     fmt::format("heddle: {} keeps the general executable: {}", size, why));
  } catch (...) {
  }
}

}  // namespace

void Engine::Impl::ask_for_specialisation(const BoundPlan& plan) {
  if (plan.executable->is_exact) return;
  std::vector<ir::Assumption> exact = exact_sizes(plan, specialise_after);
  if (exact.empty()) return;
  const std::string first = exact.front().predicate.to_string();
  const auto work = [this, first, general = plan.executable, exact = std::move(exact),
                     sizes = plan.sizes, words = plan.words, hash = plan.hash] {
    try {
      specialise(*general, exact, sizes, words, hash);
    } catch (const std::exception& error) {
      tell(options, first, error.what());
    } catch (...) {
      tell(options, first, "an exception that is no std::exception");
    }
  };
  try {
    background.post(work);
  } catch (const std::exception&
               error) {  // no thread to be had: the call's answer is right all the same
    tell(options, first, error.what());
  }
}

void Engine::Impl::specialise(const Executable& general, std::span<const ir::Assumption> exact,
                              const SymbolValues& sizes, const std::vector<std::int64_t>& words,
                              std::uint64_t hash) {
  const auto start = Clock::now();
  engine::Guards guards = general.guards();
  guards.assumptions.insert(guards.assumptions.end(), exact.begin(), exact.end());
  const auto made = std::make_shared<Executable>(ir::assuming(general.traced(), exact),
                                                 std::move(guards), build_options(sizes));
  made->prototype = general.prototype;
  made->originals = general.originals;
  made->hints = sizes;
  made->in_place = general.in_place;
  made->is_exact = true;
  std::unique_ptr<BoundPlan> plan = made->bind(sizes, executor.threads());
  plan->words = words;
  plan->hash = hash;
  if (autotune) ask_for_measurements(*plan);  // comes after this on the same thread
  const std::scoped_lock lock(mutex);
  const auto is_general = [&](const auto& other) { return other.get() == &general; };
  if (std::ranges::none_of(executables, is_general)) return;  // dropped, or its parameters updated
  exact_executables.insert(exact_executables.begin(), made);
  if (exact_executables.size() > options.max_executables) {
    plans.erase(exact_executables.back().get());
    exact_executables.pop_back();
  }
  ++specialisations;
  compile_ms += milliseconds_since(start);
  plans.replace(std::move(plan));
}

void Engine::wait_for_specialisations() { impl_->background.wait(); }

}  // namespace heddle
