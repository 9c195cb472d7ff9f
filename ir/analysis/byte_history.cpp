#include "ir/analysis/byte_history.h"

#include <algorithm>
#include <iterator>

namespace heddle::ir {

void ByteHistory::cut(std::int64_t at) {
  auto next = pieces_.upper_bound(at);
  if (next == pieces_.begin()) return;
  const auto piece = std::prev(next);
  if (piece->first == at || piece->second.end <= at) return;
  pieces_.emplace_hint(next, at, piece->second);
  piece->second.end = at;
}

void ByteHistory::cover(std::int64_t begin, std::int64_t end) {
  cut(begin);
  cut(end);
  auto it = pieces_.lower_bound(begin);
  for (std::int64_t at = begin; at < end; it = std::next(it)) {
    const bool missing = it == pieces_.end() || it->first > at;
    if (missing) {
      const std::int64_t until = it == pieces_.end() ? end : std::min(end, it->first);
      it = pieces_.emplace_hint(it, at, Piece{until, {}, {}});
    }
    at = it->second.end;
  }
}

void ByteHistory::write(std::int64_t begin, std::int64_t end, Write write) {
  if (begin == end) return;
  cut(begin);
  cut(end);
  pieces_.erase(pieces_.lower_bound(begin), pieces_.lower_bound(end));
  pieces_.emplace(begin, Piece{end, write, {}});
}

}  // namespace heddle::ir
