#include "base/symexpr_memo.h"

#include <algorithm>

#include "base/hash.h"

namespace heddle::base {
namespace {

/// A power of two.
constexpr std::size_t kRecent = 4096;
/// A large model asks some two thousand.
constexpr std::size_t kMostQuestions = 8192;

using Ranges = std::vector<std::pair<Symbol, Facts::Range>>;

/// In order of their symbols.
Ranges ranges_of(const SymExpr& expr, const Facts& facts) {
  Ranges ranges;
  std::vector<Symbol> symbols;
  std::vector<Symbol> mentioned;
  expr.collect_symbols(symbols);
  for (std::size_t k = 0; k < symbols.size(); ++k) {
    const auto found = facts.ranges().find(symbols[k]);
    if (found == facts.ranges().end()) continue;
    ranges.emplace_back(*found);
    mentioned.clear();
    for (const std::optional<SymExpr>* end : {&found->second.low, &found->second.high})
      if (*end) (*end)->collect_symbols(mentioned);
    for (const Symbol& symbol : mentioned)
      if (std::ranges::find(symbols, symbol) == symbols.end()) symbols.push_back(symbol);
  }
  std::ranges::sort(ranges, {}, &Ranges::value_type::first);
  return ranges;
}

std::uint64_t hash(const SymExpr& expr, const Ranges& ranges, bool sizes_positive) {
  const auto end = [](const std::optional<SymExpr>& one) { return one ? one->hash() : 1; };
  std::uint64_t key = combine(expr.hash(), sizes_positive ? 1 : 0);
  for (const auto& [symbol, range] : ranges)
    key = combine(combine(combine(key, symbol.id), end(range.low)), end(range.high));
  return key;
}

bool same(const Ranges& a, const Ranges& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.low == y.second.low && x.second.high == y.second.high;
  });
}

}  // namespace

FactsMemo& FactsMemo::of_this_thread() {
  thread_local FactsMemo memo;
  return memo;
}

FactsMemo::Answers& FactsMemo::at(const SymExpr& expr, const Facts& facts) {
  if (recent_.empty()) recent_.resize(kRecent);
  Recent& recent = recent_[combine(expr.hash(), facts.version()) % kRecent];
  const bool is_there = recent.version != 0 && recent.version == facts.version() &&
                        recent.sizes_positive == facts.sizes_positive && recent.expr == expr;
  if (!is_there) recent = {expr, facts.version(), facts.sizes_positive, question_of(expr, facts)};
  return recent.question->answers;
}

std::shared_ptr<FactsMemo::Question> FactsMemo::question_of(const SymExpr& expr,
                                                            const Facts& facts) {
  Ranges ranges = ranges_of(expr, facts);
  const std::uint64_t key = hash(expr, ranges, facts.sizes_positive);
  const auto [first, last] = questions_.equal_range(key);
  const auto known = std::find_if(first, last, [&](const auto& entry) {
    const Question& asked = *entry.second;
    return asked.sizes_positive == facts.sizes_positive && asked.expr == expr &&
           same(asked.ranges, ranges);
  });
  if (known != last) return known->second;
  if (questions_.size() >= kMostQuestions) questions_.clear();
  auto asked = std::make_shared<Question>(
      Question{expr, facts.sizes_positive, std::move(ranges), Answers{}});
  return questions_.emplace(key, std::move(asked))->second;
}

}  // namespace heddle::base
