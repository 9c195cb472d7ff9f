#include "engine/late_plans.h"

#include <algorithm>

#include "engine/unit.h"

namespace heddle::engine {

using Plan = std::shared_ptr<const BoundSteps>;

Plan LatePlans::known_next(std::span<const std::int64_t> late_sizes) {
  const auto found = std::ranges::find_if(
      next_, [&](const Next& next) { return std::ranges::equal(next.late_sizes, late_sizes); });
  if (found == next_.end()) return nullptr;
  std::rotate(next_.begin(), found, found + 1);
  return next_.front().plan;
}

Plan LatePlans::next(const BoundSteps& before, std::span<const std::int64_t> late_sizes,
                     const base::SymbolValues& sizes) {
  {
    const std::scoped_lock lock(mutex_);
    if (Plan known = known_next(late_sizes)) return known;
  }
  const auto made = std::make_shared<BoundSteps>();
  before.unit->bind_next(before, sizes, *made);
  const std::scoped_lock lock(mutex_);
  if (Plan known = known_next(late_sizes)) return known;  // another thread was faster
  next_.insert(next_.begin(), {{late_sizes.begin(), late_sizes.end()}, made});
  if (next_.size() > kRemembered) next_.pop_back();
  return made;
}

Plan LatePlans::started(std::size_t position, const Unit& nested, const base::SymbolValues& sizes,
                        int threads) {
  const auto known = [&]() -> Plan {
    return position < started_.size() ? started_[position] : nullptr;
  };
  {
    const std::scoped_lock lock(mutex_);
    if (Plan plan = known()) return plan;
  }
  const auto made = std::make_shared<BoundSteps>();
  nested.bind(sizes, threads, *made);
  const std::scoped_lock lock(mutex_);
  if (Plan plan = known()) return plan;
  started_.resize(std::max(started_.size(), position + 1));
  started_[position] = made;
  return made;
}

}  // namespace heddle::engine
