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

/// Several loop nests as one kernel: each takes its share of the parallel iterations. Or all take all of them, where they are of one
/// shape and `may_merge`: what two of them read, as halves that are turned against each other do, is then read once.
///
///   parallel p < 8: vector i < 64: store y[128p+i] = f(x[128p+i], x[128p+i+64])
///   parallel p < 8: vector i < 64: store y[128p+i+64] = g(x[128p+i], x[128p+i+64])
///     ==>
///   parallel p < 8: vector i < 64: store y[128p+i] = f(…); store y[128p+i+64] = g(…)
///
/// Or all are under way at a time, where what they write lies side by side in rows: a thread's share is rows then, as it is of what makes
/// and what reads them. The longest piece sets the pace.
///
///   parallel p < 8: vector i < 64: store y[192p+i] = x[64p+i]
///   parallel p < 16: vector i < 64: store y[64p+64*floor(p/2)+i+64] = z[64p+i]
///     ==>
///   parallel p < 32: if mod(p,2) == 0 and floor(floor(p/2)*8/16) < floor((floor(p/2)+1)*8/16): … floor(floor(p/2)*8/16) for p
///                    if mod(p,2) == 1: … floor(p/2) for p
///
/// Or all go through the same rows, where each writes parts of lines of them, as few channels that are concatenated do: a line then
/// comes into a cache once.
///
///   parallel p < 8: serial i < 64: vector j < 24: store y[3072p+48i+j] = x[…]
///   parallel p < 8: serial i < 64: vector j < 24: store y[3072p+48i+j+24] = z[…]
///     ==>
///   parallel p < 8: serial i < 64: vector j < 24: store y[3072p+48i+j] = x[…]
///                                  vector j < 24: store y[3072p+48i+j+24] = z[…]
class PieceJoiner {
 public:
  /// @param in_turns  whether all are under way at a time
  PieceJoiner(NestBuilder& builder, bool may_merge, bool in_turns)
      : builder_(builder), may_merge_(may_merge), in_turns_(in_turns) {}

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
  bool merge();
  bool merge_rows();
  void join_in_order();
  void join_in_turns();
  /// Puts a piece into the builder's body, at index `at` of its axis.
  void add(Piece& piece, const SymExpr& at, Scalar condition);

  NestBuilder& builder_;
  const bool may_merge_;
  const bool in_turns_;
  std::vector<Piece> pieces_;
};

}  // namespace heddle::jit
