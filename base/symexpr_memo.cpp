#include "base/symexpr_memo.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"

namespace heddle::base {
namespace {

/// A power of two.
constexpr std::size_t kPlaces = 8192;
constexpr std::size_t kMostFacts = 1024;

std::uint64_t hash(const Facts& facts) {
  const auto end = [](const std::optional<SymExpr>& one) { return one ? one->hash() : 1; };
  std::uint64_t key = facts.sizes_positive ? 1 : 0;
  for (const auto& [symbol, range] : facts.ranges())
    key = combine(combine(combine(key, symbol.id), end(range.low)), end(range.high));
  return key;
}

bool same(const Facts& a, const Facts& b) {
  return a.sizes_positive == b.sizes_positive &&
         std::ranges::equal(a.ranges(), b.ranges(), [](const auto& x, const auto& y) {
           return x.first == y.first && x.second.low == y.second.low &&
                  x.second.high == y.second.high;
         });
}

}  // namespace

FactsMemo& FactsMemo::of_this_thread() {
  thread_local FactsMemo memo;
  return memo;
}

FactsMemo::Answers& FactsMemo::at(const SymExpr& expr, const Facts& facts) {
  if (facts_.size() >= kMostFacts) clear();
  if (places_.empty()) places_.resize(kPlaces);
  const Facts* own = kept(facts);
  const std::uint64_t key = combine(expr.hash(), reinterpret_cast<std::uintptr_t>(own));
  Place& place = places_[key % kPlaces];
  if (place.facts != own || place.expr != expr) place = {expr, own, {}};
  return place.answers;
}

void FactsMemo::clear() {
  places_.clear();
  facts_.clear();
  recent_ = {};
}

const Facts* FactsMemo::kept(const Facts& facts) {
  const std::uint64_t version = facts.version();
  for (Recent& recent : recent_) {
    if (recent.facts == nullptr) break;
    const bool same_version = version != 0 && recent.version == version &&
                              recent.facts->sizes_positive == facts.sizes_positive;
    if (!same_version && !same(*recent.facts, facts)) continue;
    recent.version = version;
    std::swap(recent, recent_[0]);
    return recent_[0].facts;
  }
  std::shift_right(recent_.begin(), recent_.end(), 1);
  recent_[0] = {found_or_kept(facts), version};
  return recent_[0].facts;
}

const Facts* FactsMemo::found_or_kept(const Facts& facts) {
  const std::uint64_t key = hash(facts);
  const auto [first, last] = facts_.equal_range(key);
  const auto known =
      std::find_if(first, last, [&](const auto& entry) { return same(*entry.second, facts); });
  if (known != last) return known->second.get();
  return facts_.emplace(key, std::make_unique<const Facts>(facts))->second.get();
}

}  // namespace heddle::base
