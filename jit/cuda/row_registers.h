// Rows that stay in the registers of a block's threads while a kernel goes over them more than once.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "jit/nest.h"

namespace heddle::jit::cuda {

/// How the threads of a block share each vector loop of a parallel iteration: thread t has, for chunks k = 0, 1, …, the `width` iterations
/// from (k * threads + t) * width on. What one loop reads or keeps, another finds with the same thread, so it is in registers.
struct RowRegisters {
  /// An array of registers with `chunks` times `width` elements.
  struct Row {
    NestBufferId buffer = 0;
    SymExpr first;         ///< where in the buffer the element of iteration 0 lies
    bool local = false;    ///< the nest's own, and nowhere in memory
    std::size_t loop = 0;  ///< number of the first loop that touches it
  };
  std::int64_t extent = 0;  ///< of all vector loops
  int width = 1;
  int chunks = 1;
  std::uint32_t threads = 0;
  std::vector<Row> rows;
  /// By LoadStmt and StoreStmt: which row it touches.
  std::map<const void*, std::size_t> row_of;
  std::vector<const ForStmt*> loops;  ///< in order
  /// What is moved by chunks: a buffer of memory, and where in it the element of iteration 0 lies.
  std::vector<std::pair<NestBufferId, SymExpr>> moved;
  std::int64_t bytes = 0;      ///< of a chunk of the largest elements
  std::size_t reductions = 0;  ///< of all loops

  /// Whether each thread has a full chunk each time.
  bool is_exact() const { return extent == std::int64_t{width} * chunks * threads; }
};

/// Nothing where loops differ in length or are not all of one parallel iteration's own, where rows are too long or nothing of them is
/// read twice, or where threads would touch what others do.
std::optional<RowRegisters> row_registers(const Nest& nest);

}  // namespace heddle::jit::cuda
