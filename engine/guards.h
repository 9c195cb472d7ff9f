// Guards: when an executable may serve a call.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/symexpr.h"
#include "heddle/engine.h"
#include "ir/graph.h"

namespace heddle::engine {

/// What one input must look like. Sizes and strides are constants, or symbols and expressions that the
/// call's numbers give values to.
struct InputGuard {
  std::string name;
  DType dtype = DType::F32;
  bool row_major = true;
  ir::Dims sizes;
  ir::Dims strides;      ///< only when not row-major
  Device device = {};    ///< where its data lies; inputs on the host are staged there
  bool written = false;  ///< the graph writes to it, so it overlaps no other input and not itself
  bool donated =
      false;  ///< its memory is the engine's: it overlaps no other input and no parameter

  bool is_overwritten() const { return written || donated; }  ///< perhaps
};

/// What input k is called: as the model says, else "input<k>".
std::string input_name(const Signature& signature, std::size_t k);

/// A half-open range of addresses.
using MemoryRange = std::pair<std::uintptr_t, std::uintptr_t>;

/// Bytes from the first to the last element of `tensor`.
MemoryRange extent_of(const Tensor::Impl& tensor);
/// Whether two ranges share a byte.
inline bool overlap(const MemoryRange& a, const MemoryRange& b) {
  return a.first < b.second && b.first < a.second;
}

/// The predicate on a call's inputs under which an executable computes what its callable would.
struct Guards {
  std::vector<InputGuard> inputs;
  std::vector<ir::Assumption> assumptions;

  /// Values of the size symbols for `inputs`, or the first guard that fails, in words.
  struct Outcome {
    bool holds = false;
    base::SymbolValues sizes;
    std::string failed;
  };
  Outcome match(std::span<const Tensor> inputs) const;
  /// Whether any input is donated.
  bool donates() const { return std::ranges::any_of(inputs, &InputGuard::donated); }
  /// Records which inputs `graph` writes to.
  void note_writes(const ir::Graph& graph);
  /// Keeps donated inputs apart from memory that outlives a call: those of parameters.
  void note_fixed(std::vector<MemoryRange> ranges);
  /// The guard that depends on addresses, so it is checked at each call; free where nothing is written or donated.
  /// @throws AliasingError when an input that is written to overlaps another one, or itself, and when one that is donated
  ///         overlaps another one or a parameter.
  void check_overlap(std::span<const Tensor> inputs) const;
  /// Every guard with its reason, one line each.
  std::vector<std::string> describe() const;

 private:
  bool exclusive_ = false;          ///< an input is written to or donated
  std::vector<MemoryRange> fixed_;  ///< sorted; none overlap
};

/// Guards for a first trace with `inputs`: a symbol for every size that the signature leaves open, and
/// for every stride of an input that is not row-major.
/// @throws ArgumentError (count), DTypeError, ShapeError (rank, fixed size) naming the input.
Guards guards_for(std::span<const Tensor> inputs, const Signature& signature);

}  // namespace heddle::engine
