// What a thread found out about expressions under facts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/symexpr.h"

namespace heddle::base {

/// The statements of a kernel, and of the next one, ask the same again and again. Facts grow with each loop and differ from kernel to
/// kernel, but few of them say anything of what an expression mentions: answers are found by these.
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
  using Ranges = std::vector<std::pair<Symbol, Facts::Range>>;
  /// An expression, and the ranges of what it mentions and of what these mention.
  struct Question {
    SymExpr expr;
    bool sizes_positive = false;
    Ranges ranges;
    Answers answers;
  };
  /// The answer to a question asked a short while ago, found without looking at any range.
  struct Recent {
    SymExpr expr;
    std::uint64_t version = 0;  ///< of the facts; 0: nothing is here
    bool sizes_positive = false;
    std::shared_ptr<Question> question;
  };

  std::shared_ptr<Question> question_of(const SymExpr& expr, const Facts& facts);

  std::vector<Recent>
      recent_;  ///< by a hash of expression and version; none until they are asked for
  std::unordered_multimap<std::uint64_t, std::shared_ptr<Question>> questions_;  ///< by their hash
};

}  // namespace heddle::base
