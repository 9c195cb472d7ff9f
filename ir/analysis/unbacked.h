// Sizes known only at run time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/error.h"
#include "ir/graph.h"
#include "ir/literal.h"

namespace heddle::ir {

/// Unbacked symbols in the results of `node` that none of its operands mentions: the ones it defines;
/// none for inputs. Sorted.
std::vector<base::Symbol> unbacked_defined(const Node& node);

/// The values of `symbols` in the sizes of a node's results, and `known`, which has those of the others.
///
/// @param results  sizes of the results by their types.
/// @param got      sizes that they have now.
/// @param what     begins the error: "moe::route: sizes of the results".
/// @throws ShapeError when no values give these sizes: another count or rank, another known size, a negative
///         one, or a symbol that stands in no result as c*u+d.
base::SymbolValues solve_sizes(std::span<const Dims> results, std::span<const Sizes> got,
                               std::span<const base::Symbol> symbols, base::SymbolValues known,
                               const std::string& what, const std::string& where);

/// The sizes known only at run time that `size` mentions. Sorted.
std::vector<base::Symbol> unbacked_in(const SymExpr& size);
/// Whether `size` mentions sizes known only at run time.
bool is_unbacked(const SymExpr& size);

/// What must hold of sizes known only at run time for a node to run.
struct LateCheck {
  base::Predicate holds;
  std::string what;   ///< "iota: sizes of the result", "reshape: C2 element count (%add.reshape)"
  std::string where;  ///< location of the node
};

/// What inference required of such sizes; and that sizes of results of `node`, and the length of a loop, which are computed
/// from such that it does not define, are no less than 0.
std::vector<LateCheck> late_checks(const Node& node);
/// Those of all nodes of `graph`, each once. Nested graphs have their own.
std::vector<LateCheck> late_checks(const Graph& graph);
/// What a ShapeError says if `check` fails; nothing if it holds, or if `known` does not tell.
std::optional<Error::Parts> refusal(const LateCheck& check, const base::SymbolValues& known);

/// While it lives, what is inferred in `env` in place of `node` numbers the sizes that only the run tells as `node` did, so
/// that what speaks of them further down still does: attributes, and nested graphs.
class SameNumbers {
 public:
  SameNumbers(const Node& node, ShapeEnv& env);
  ~SameNumbers() { env_.next_unbacked_ = std::max(next_, env_.next_unbacked_); }
  SameNumbers(const SameNumbers&) = delete;
  SameNumbers& operator=(const SameNumbers&) = delete;

 private:
  ShapeEnv& env_;
  std::uint32_t next_;  ///< that nothing has yet
};

/// Which nodes of a graph find the sizes known only at run time.
class SizeMakers {
 public:
  explicit SizeMakers(const Graph& graph);

  bool empty() const { return makers_.empty(); }
  /// The nodes that find sizes which `node` uses without defining them: in its types, its attributes and the
  /// graphs nested in it. Each once.
  std::vector<const Node*> used_by(const Node& node) const;
  /// Their results whose types mention such sizes.
  std::vector<Value> values_used_by(const Node& node) const;

 private:
  std::map<base::Symbol, const Node*> makers_;
};

}  // namespace heddle::ir
