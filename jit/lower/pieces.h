// Where a domain falls into pieces: concatenations and paddings compare an axis with bounds, and between two
// bounds every comparison is known.
#pragma once

#include <vector>

#include "jit/lower/domain.h"

namespace heddle::jit {

/// An axis of a domain cut at `bounds`: 0 < bounds[0] <= bounds[1] … <= extent.
struct Cut {
  std::size_t axis = 0;  ///< position among the axes
  std::vector<SymExpr> bounds;
};

/// The cut at which the comparisons of indices in `body` change: along the outermost axis where cuts along all axes give no more than
/// `most` pieces, which then can be cut again, else along the one with most of them. Nothing
/// when there is none, when the order of the bounds is unknown, or when pieces would be too short to pay.
std::optional<Cut> find_cut(const Block& body, const std::vector<AxisRun>& axes,
                            const base::Facts& facts, std::size_t most);

/// Several loop nests as one kernel: each takes its share of the parallel iterations.
class PieceJoiner {
 public:
  explicit PieceJoiner(NestBuilder& builder) : builder_(builder) {}

  /// Takes the builder's body, which runs over its parallel axis, as the next piece.
  void take();
  /// Makes all pieces the builder's body.
  void join();

 private:
  struct Piece {
    Block body;
    Symbol axis;
    SymExpr extent;
  };
  NestBuilder& builder_;
  std::vector<Piece> pieces_;
};

}  // namespace heddle::jit
