#include "jit/cpu/llvm/join_lanes.h"

#include <algorithm>
#include <llvm/IR/IRBuilder.h>

namespace heddle::jit::cpu {
namespace {

using llvm::Value;
using Values = std::vector<Value*>;

/// What shuffles within a vector do not cross.
constexpr unsigned kPieceBytes = 16;

/// Halves of groups of `width` elements, which follow one another within pieces of `piece`: in each piece first those of x, then
/// those of y, and their sums.
Value* join_pair(llvm::IRBuilderBase& b, Value* x, Value* y, unsigned lanes, unsigned piece,
                 unsigned width) {
  std::vector<int> low;
  for (unsigned first = 0; first < lanes; first += piece)
    for (unsigned from = first; from < first + lanes + piece; from += lanes)
      for (unsigned group = 0; group < piece; group += width)
        for (unsigned k = 0; k < width / 2; ++k) low.push_back(static_cast<int>(from + group + k));
  std::vector<int> high;
  for (const int lane : low) high.push_back(lane + static_cast<int>(width / 2));
  return b.CreateFAdd(b.CreateShuffleVector(x, y, low), b.CreateShuffleVector(x, y, high));
}

}  // namespace

Value* join_lanes(llvm::IRBuilderBase& b, const Values& sums, unsigned element_bytes) {
  const auto lanes = static_cast<unsigned>(sums.size());
  const unsigned piece = std::min(lanes, kPieceBytes / element_bytes);
  const unsigned pieces = lanes / piece;
  // Pieces come together first, then what they hold: vector k of each `pieces` ends in piece k of the joined one.
  Values now;
  for (unsigned k = 0; k < lanes; ++k) now.push_back(sums[k % pieces * piece + k / pieces]);
  const auto halve = [&](unsigned within, unsigned width) {
    Values next;
    for (std::size_t k = 0; k < now.size(); k += 2)
      next.push_back(join_pair(b, now[k], now[k + 1], lanes, within, width));
    now = std::move(next);
  };
  for (unsigned width = lanes; width > piece; width /= 2) halve(lanes, width);
  for (unsigned width = piece; width > 1; width /= 2) halve(piece, width);
  return now.front();
}

}  // namespace heddle::jit::cpu
