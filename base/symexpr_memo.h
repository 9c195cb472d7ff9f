// What a thread found out about expressions under facts.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <unordered_map>

#include "base/symexpr.h"

namespace heddle::base {

/// The statements of a kernel, and of the next one, ask the same again and again with the same facts. Answers are kept
/// until they are many.
class FactsMemo {
 public:
  struct Answers {
    std::optional<bool> nonnegative;
    std::optional<SymExpr> simple;
  };

  static FactsMemo& of_this_thread();

  /// What is known so far. Stays until the next call.
  Answers& at(const SymExpr& expr, const Facts& facts);

 private:
  struct Key {
    SymExpr expr;
    const Facts* facts;  ///< of facts_
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const;
  };

  /// The same facts among facts_.
  const Facts* kept(const Facts& facts);
  const Facts* found_or_kept(const Facts& facts);

  /// Of facts_, those that were asked for last: comparing them takes less than a hash.
  std::array<const Facts*, 4> recent_{};
  std::unordered_multimap<std::uint64_t, std::unique_ptr<const Facts>> facts_;  ///< by their hash
  std::unordered_map<Key, Answers, Hash> answers_;
};

}  // namespace heddle::base
