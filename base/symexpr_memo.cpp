#include "base/symexpr_memo.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"

namespace heddle::base {
namespace {

constexpr std::size_t kMostAnswers = 2048;

std::uint64_t hash(const Facts& facts) {
  const auto end = [](const std::optional<SymExpr>& one) { return one ? one->hash() : 1; };
  std::uint64_t key = facts.sizes_positive ? 1 : 0;
  for (const auto& [symbol, range] : facts.ranges)
    key = combine(combine(combine(key, symbol.id), end(range.low)), end(range.high));
  return key;
}

bool same(const Facts& a, const Facts& b) {
  return a.sizes_positive == b.sizes_positive &&
         std::ranges::equal(a.ranges, b.ranges, [](const auto& x, const auto& y) {
           return x.first == y.first && x.second.low == y.second.low &&
                  x.second.high == y.second.high;
         });
}

}  // namespace

std::size_t FactsMemo::Hash::operator()(const Key& key) const {
  return combine(key.expr.hash(), reinterpret_cast<std::uintptr_t>(key.facts));
}

FactsMemo& FactsMemo::of_this_thread() {
  thread_local FactsMemo memo;
  return memo;
}

FactsMemo::Answers& FactsMemo::at(const SymExpr& expr, const Facts& facts) {
  const auto known = answers_.find({expr, kept(facts)});
  if (known != answers_.end()) return known->second;
  if (answers_.size() >= kMostAnswers) {
    answers_.clear();
    facts_.clear();
    recent_ = {};
  }
  return answers_[{expr, kept(facts)}];
}

const Facts* FactsMemo::kept(const Facts& facts) {
  for (const Facts*& recent : recent_)
    if (recent != nullptr && same(*recent, facts)) {
      std::swap(recent, recent_[0]);
      return recent_[0];
    }
  std::shift_right(recent_.begin(), recent_.end(), 1);
  return recent_[0] = found_or_kept(facts);
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
