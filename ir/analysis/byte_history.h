// Who wrote the bytes of a piece of memory last, and who has read them since.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "ir/schedule.h"

namespace heddle::ir {

class ByteHistory {
 public:
  /// A write: of which buffer, by which step. Step kNone: bytes that are there from the start; buffer
  /// kNone: bytes that hold nothing.
  struct Write {
    StepId step = kNone;
    BufferId buffer = kNone;
    friend bool operator==(const Write&, const Write&) = default;
  };
  struct Piece {
    std::int64_t end = 0;
    Write last;
    std::vector<StepId> readers;
  };

  /// The pieces of [begin, end), cut at both; calls `visit(begin, piece)` for each in order.
  template <typename F>
  void visit(std::int64_t begin, std::int64_t end, F&& visit) {
    cover(begin, end);
    for (auto it = pieces_.find(begin); it != pieces_.end() && it->first < end; ++it)
      visit(it->first, it->second);
  }
  /// [begin, end) was written.
  void write(std::int64_t begin, std::int64_t end, Write write);

 private:
  /// Makes pieces begin at `begin` and `end`, with none missing in between.
  void cover(std::int64_t begin, std::int64_t end);
  void cut(std::int64_t at);

  std::map<std::int64_t, Piece> pieces_;  ///< by begin
};

}  // namespace heddle::ir
