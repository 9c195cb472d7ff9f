// How the threads of a block share a loop that carries a sum.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "jit/nest.h"

namespace heddle::jit::cuda {

/// A tile of the loop has `chunks` parts with `width` iterations for each thread, side by side.
struct ScanLoop {
  std::uint32_t threads = 0;
  int width = 1;
  int chunks = 1;
  bool exact = false;  ///< the loop's iterations are whole tiles
  /// Without masks, of memory that the loop's other accesses do not touch: iteration k has the k-th element.
  std::vector<const LoadStmt*> loads;
  std::vector<const StoreStmt*> stores;

  std::int64_t tile() const { return std::int64_t{threads} * width * chunks; }
};

ScanLoop scan_loop(const Nest& nest, const ForStmt& loop);

/// The nest's first loop that is a scan, which stands at block level; null: there is none.
const ForStmt* find_scan(const Block& block);

}  // namespace heddle::jit::cuda
