// Random graphs over every op family, with what is needed to run them and to judge the results.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/literal.h"

namespace heddle::fuzz {

/// What is known of a value besides its type: how far two right computations of it may be apart.
struct Quality {
  double bound = 0;       ///< largest magnitude of its finite elements
  double error = 0;       ///< absolute; 0: every right computation gives these very numbers
  bool integral = false;  ///< whole numbers (or NaN, infinities)
  bool special = false;   ///< may hold NaN and infinities
};

/// How the elements of an input are laid out in memory.
enum class Layout : std::uint8_t { RowMajor, Transposed, Sliced, Expanded };

/// What an input is filled with.
struct Fill {
  enum class Kind : std::uint8_t { Noise, Whole, Index, Special } kind = Kind::Noise;
  double low = -2;  ///< Noise, Whole: the interval
  double high = 2;
  ir::SymExpr limit{1};  ///< Index: numbers from 0 (or -limit) to limit - 1
  Layout layout = Layout::RowMajor;
};

/// One call of the engine.
struct Call {
  base::SymbolValues sizes;
  bool into = false;          ///< run_into in place of run
  bool other_layout = false;  ///< inputs that were strided are row-major in this call
};

struct Case {
  std::uint32_t seed = 0;
  ir::Graph graph;
  std::vector<Fill> fills;         ///< one for each argument
  std::vector<Quality> qualities;  ///< one for each output, then for each write-back
  std::vector<Call> calls;
  /// Arguments by call, where they are not made from `fills`.
  std::vector<std::vector<ir::Literal>> given;
};

/// The same case for the same seed.
Case random_case(std::uint32_t seed);

/// Arguments for call number `call`, in memory of their own; the same every time.
std::vector<ir::Literal> arguments_of(const Case& subject, std::size_t call);

/// Numbers up to this magnitude are exact in `dtype`, and so are sums of whole numbers that stay within.
double exact_limit(DType dtype);

}  // namespace heddle::fuzz
