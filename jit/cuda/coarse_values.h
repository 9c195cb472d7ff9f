// Floats that need not be better than bf16 is.
#pragma once

#include <map>
#include <optional>
#include <set>

#include "jit/nest.h"

namespace heddle::jit::cuda {

/// What may be off by a part of what rounding to bf16 changes, since it is rounded to that, or would be:
///
/// - scalars of bf16, which are not rounded between operations, where nothing that follows has steps: no comparison, no floor,
///   no conversion to an integer, which tell an exact quotient from its neighbour;
/// - scalars of f32 that nothing reads but roundings to bf16, perhaps of products and quotients of them: what these are off by, in
///   parts of themselves, so are the results. A sum would not do, as it may be far smaller than its terms; but one of positive numbers
///   is as good as they are, so tanh(x) + 1, which nothing else reads tanh(x) of, is taken for one operation.
class CoarseValues {
 public:
  explicit CoarseValues(const Nest& nest);

  bool has(ScalarId id) const { return coarse_.count(id) != 0; }
  /// The x of what is 1 + tanh(x); nothing where the scalar is anything else.
  std::optional<ScalarId> gate(ScalarId sum) const {
    const auto found = gates_.find(sum);
    return found == gates_.end() ? std::nullopt : std::optional(found->second);
  }
  /// Whether it is the tanh of such a sum, which is not needed then.
  bool is_in_gate(ScalarId tanh) const { return in_gates_.count(tanh) != 0; }

 private:
  std::set<ScalarId> coarse_, in_gates_;
  std::map<ScalarId, ScalarId> gates_;
};

}  // namespace heddle::jit::cuda
