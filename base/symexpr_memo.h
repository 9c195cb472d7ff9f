// What a thread found out about expressions under facts.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/symexpr.h"

namespace heddle::base {

/// The statements of a kernel, and of the next one, ask the same again and again with the same facts. An answer is kept
/// until another one takes its place.
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
  /// Of `facts`, one of facts_; null: nothing is here.
  struct Place {
    SymExpr expr;
    const Facts* facts = nullptr;
    Answers answers;
  };
  struct Recent {
    const Facts* facts = nullptr;
    std::uint64_t version = 0;  ///< of those that it was asked for with
  };

  /// The same facts among facts_.
  const Facts* kept(const Facts& facts);
  const Facts* found_or_kept(const Facts& facts);
  void clear();

  /// Those that were asked for last: comparing them takes less than a hash.
  std::array<Recent, 4> recent_{};
  std::unordered_multimap<std::uint64_t, std::unique_ptr<const Facts>> facts_;  ///< by their hash
  std::vector<Place> places_;  ///< by a hash of expression and facts; none until they are asked for
};

}  // namespace heddle::base
