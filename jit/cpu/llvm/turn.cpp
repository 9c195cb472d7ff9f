#include "jit/cpu/llvm/turn.h"

#include <algorithm>
#include <initializer_list>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <span>

namespace heddle::jit::cpu {
namespace {

using llvm::Value;
using Values = std::vector<Value*>;

constexpr unsigned kPieceBytes = 16;  ///< what shuffles within a vector do not cross

/// Of `count` rows of pieces: piece p of row r becomes piece r of row p.
void turn_pieces(llvm::IRBuilderBase& b, std::span<Value*> rows, unsigned piece) {
  const auto pick = [&](Value* first, Value* second, std::initializer_list<unsigned> pieces) {
    std::vector<int> lanes;
    for (const unsigned p : pieces)
      for (unsigned k = 0; k < piece; ++k) lanes.push_back(static_cast<int>(p * piece + k));
    return b.CreateShuffleVector(first, second, lanes);
  };
  if (rows.size() == 2) {
    Value* first = rows[0];
    rows[0] = pick(first, rows[1], {0, 2});
    rows[1] = pick(first, rows[1], {1, 3});
  } else if (rows.size() == 4) {
    // Halves first: what one instruction does.
    Value* a = pick(rows[0], rows[1], {0, 1, 4, 5});
    Value* c = pick(rows[2], rows[3], {0, 1, 4, 5});
    Value* d = pick(rows[0], rows[1], {2, 3, 6, 7});
    Value* e = pick(rows[2], rows[3], {2, 3, 6, 7});
    rows[0] = pick(a, c, {0, 2, 4, 6});
    rows[1] = pick(a, c, {1, 3, 5, 7});
    rows[2] = pick(d, e, {0, 2, 4, 6});
    rows[3] = pick(d, e, {1, 3, 5, 7});
  }
}

/// Within each piece of `rows`, as many as a piece has elements: element k of row r becomes element r of row k.
void turn_within_pieces(llvm::IRBuilderBase& b, std::span<Value*> rows, unsigned lanes) {
  const auto piece = static_cast<unsigned>(rows.size());
  std::vector<int> low;
  std::vector<int> high;
  for (unsigned k = 0; k < lanes; ++k) {
    const unsigned from = k / piece * piece + k % piece / 2 + k % 2 * lanes;
    low.push_back(static_cast<int>(from));
    high.push_back(static_cast<int>(from + piece / 2));
  }
  for (unsigned step = 1; step < piece; step *= 2) {
    const Values before(rows.begin(), rows.end());
    for (unsigned k = 0; k < piece / 2; ++k) {
      rows[2 * k] = b.CreateShuffleVector(before[k], before[k + piece / 2], low);
      rows[2 * k + 1] = b.CreateShuffleVector(before[k], before[k + piece / 2], high);
    }
  }
}

}  // namespace

void turn(llvm::IRBuilderBase& b, Values& rows) {
  const auto lanes = static_cast<unsigned>(rows.size());
  const unsigned bytes = rows[0]->getType()->getScalarSizeInBits() / 8;
  const unsigned piece = std::min(kPieceBytes / bytes, lanes);
  const unsigned pieces = lanes / piece;
  for (unsigned p = 0; p < pieces; ++p)
    turn_within_pieces(b, std::span(rows).subspan(std::size_t{p} * piece, piece), lanes);
  // Row p * piece + k now has element k of all pieces of the rows p * piece and on.
  Values turned(lanes);
  for (unsigned k = 0; k < piece; ++k) {
    Values same;
    for (unsigned p = 0; p < pieces; ++p) same.push_back(rows[p * piece + k]);
    turn_pieces(b, same, piece);
    for (unsigned p = 0; p < pieces; ++p) turned[p * piece + k] = same[p];
  }
  rows = std::move(turned);
}

}  // namespace heddle::jit::cpu
