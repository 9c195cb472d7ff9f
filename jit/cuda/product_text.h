// CUDA C++ text of nests in product form (jit/nest.h): a kernel for each way to multiply, whose text is the place of
// a tile, a call of the prelude's multiply() and the nest's own expressions on each sum. Where more blocks are launched than
// there are tiles, each tile's multiply a part of the depth, and the last of them to come has the total.
#pragma once

#include <optional>
#include <vector>

#include "jit/cuda/emit.h"
#include "jit/cuda/product_tile.h"

namespace heddle::jit::cuda {

/// The parts of a nest in product form. Points into the nest.
struct ProductParts {
  const Nest* nest = nullptr;
  std::vector<const Stmt*> before;  ///< scalars at block level
  const ContractStmt* contract = nullptr;
  const ForStmt* rows = nullptr;
  std::vector<const Stmt*> of_row;  ///< scalars in the loop over rows
  const ForStmt* columns = nullptr;

  DType left_dtype() const { return nest->buffers[contract->a.buffer].dtype; }
  DType right_dtype() const { return nest->buffers[contract->b.buffer].dtype; }
  /// Of the numbers that are multiplied: what bytes of the right matrix may stand for.
  DType right_factor() const {
    return contract->b.dequantised ? contract->b.dequantised->dtype : right_dtype();
  }
  /// Of the right matrix, where words hold numbers of so many bits; 0: they do not.
  std::int64_t right_bits() const;
  /// ProductShape's.
  std::int64_t stored_bits() const;
  Along left() const;
  Along right() const;
  /// Whether neighbours in memory of the elements of the result are those of a column, as channels of windows are.
  bool is_turned() const;
  /// ProductShape's.
  std::int64_t window_overlap() const;
};

/// The parts, if `nest` is in product form with operands of f16, bf16 or f32 of one dtype, or of bytes. Bytes, and numbers of 2 or
/// 4 bits in words, that stand for numbers are operands of these.
std::optional<ProductParts> product_parts(const Nest& nest);

CudaSource emit_product(const ProductParts& parts, const ProductTile& tile,
                        const CudaOptions& options);

}  // namespace heddle::jit::cuda
