// Vector loops whose threads take several neighbouring iterations at once, and with them more than one element of memory
// a read.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "jit/nest.h"

namespace heddle::jit::cuda {

/// How a thread takes `width` iterations of a loop that begin at a multiple of `width`: each of these loads and stores then
/// is one of `width` neighbours in memory, and the others are of one element, the same in all iterations.
struct WideLoop {
  int width = 1;
  int bytes = 16;  ///< of the widest access: all are aligned to as many
  std::vector<const LoadStmt*>
      loads;  ///< without masks, of buffers that the loop does not store to
  std::vector<const StoreStmt*>
      stores;  ///< without masks, one to a buffer, which the loop does not load from
};

/// Whether a statement holds no others.
bool is_scalar(const Stmt& statement);

/// Where an element lies that iteration 0 touches, if iteration k touches the k-th after it and what binds symbols in the
/// body has no say in it.
std::optional<SymExpr> first_of_neighbours(const ForStmt& loop, const SymExpr& index);

/// Nothing where it would not pay: not all lies side by side, the body is long, or iterations are too few for the threads.
/// @param threads   that share the loop
/// @param is_there  whether an index always has an element, as one into a dimension of size 0 has not
std::optional<WideLoop> wide_loop(const Nest& nest, const ForStmt& loop, std::uint32_t threads,
                                  const std::function<bool(const SymExpr&)>& is_there);

}  // namespace heddle::jit::cuda
