// Loops of a block over columns, each of which a thread reduces for itself: threads take several neighbours where elements are
// smaller than a word, as else a load of all threads would move less than memory can.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "jit/nest.h"

namespace heddle::jit::cuda {

/// How a thread takes `width` iterations of such a loop that begin at a multiple of `width`.
struct ColumnLanes {
  const ForStmt* inner =
      nullptr;  ///< reduces; the statements before it are the same in all iterations
  std::int64_t width = 1;
  std::vector<const LoadStmt*> loads;  ///< of the inner loop: `width` neighbours in memory each
};

/// Nothing where it would not pay: elements are words, or iterations too few for the threads.
/// @param is_there  whether an index always has an element
std::optional<ColumnLanes> column_lanes(const Nest& nest, const ForStmt& loop,
                                        std::uint32_t threads,
                                        const std::function<bool(const SymExpr&)>& is_there);

}  // namespace heddle::jit::cuda
