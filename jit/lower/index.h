// Index arithmetic that lowering shares.
#pragma once

#include <span>
#include <vector>

#include "ir/meta.h"
#include "jit/nest.h"

namespace heddle::jit {

using Index = std::vector<SymExpr>;

/// Row-major position of `index` in a tensor of `sizes`.
SymExpr linear_index(std::span<const SymExpr> index, std::span<const SymExpr> sizes);
/// sum of index[d] * strides[d]
SymExpr strided_index(std::span<const SymExpr> index, std::span<const SymExpr> strides);
/// The index in a tensor of `sizes` of row-major `position`, simplified.
Index delinearize(const SymExpr& position, std::span<const SymExpr> sizes,
                  const base::Facts& facts);

/// Symbols for the dimensions of a domain, axis(first), axis(first + 1), …, with their ranges in `facts`.
/// A dimension of size 1 gets 0 instead of a symbol.
Index domain_axes(std::span<const SymExpr> sizes, std::uint32_t first, base::Facts& facts);

/// What follows from a tensor of `sizes` having elements: symbols that are dimensions, or factors of one, are
/// at least 1, and those of which one is the half, rounded down, at least 2.
void assume_elements(std::span<const SymExpr> sizes, base::Facts& facts);

/// Whether the two are equal after simplification.
bool same(const SymExpr& a, const SymExpr& b, const base::Facts& facts);
bool same_dims(std::span<const SymExpr> a, std::span<const SymExpr> b);
/// The dimensions that are not 1.
ir::Dims without_ones(std::span<const SymExpr> sizes);

/// The dimensions of `sizes` at `axes`, or at all others.
ir::Dims dims_at(std::span<const SymExpr> sizes, std::span<const std::int64_t> axes);
ir::Dims dims_but(std::span<const SymExpr> sizes, std::span<const std::int64_t> axes);

}  // namespace heddle::jit
