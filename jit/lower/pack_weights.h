// Constant weights in the order in which kernels read them.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Columns of a panel of packed_matmul: of the tiles that its kernel computes. A matrix of fewer has one panel of as many lines of the
/// caches as hold a row.
inline constexpr std::int64_t kPanelColumns = 64;
/// Elements of the smallest matrix that is packed. Smaller ones stay in the caches in any order, and kernels of so few
/// elements may also be joined with others, which do not run once.
inline constexpr std::int64_t kLeastPackedCount = 4097;
/// The same of bytes on the CPU, which multiply four at a time only in panels: a 64 x 64 product of f32 takes 3 times as long. And of pairs of
/// bf16 where AMX multiplies them.
inline constexpr std::int64_t kLeastPackedBytes = 256;

/// Panels of `width` columns of a matrix, or of each of several: [..., k, n] as [..., p, k, width], zeros behind the last column.
ir::Value emit_panels(ir::GraphBuilder& builder, ir::Value matrix, std::int64_t width);

/// Packs matrices on the right of products that are the same in each run into panels of columns, for the CPU.
///
///   %y = matmul(%x, %w: param f32[768, 100])
///     ==>
///   %p = clone(permute(reshape(pad(%w, 0.0) {high = [0, 28]}) {sizes = [768, 2, 64]}) {perm = [1, 0, 2]})
///   %y = packed_matmul(%x, %p) {columns = 100}
///
/// What computes the panels reads parameters and constants only, so it runs once, when a unit is built. A row
/// of a tile then continues the one before, where in a row-major matrix each lies in a page of its own. Matrices that
/// the body of a loop reads in each iteration are packed before it, and leave its operands. So are those of groups, each by itself.
///
/// Where the CPU multiplies pairs of bf16, products that allow it become those of packed pairs, with sums of f32:
///
///   %y = matmul(%x: f32[m, 768], %w) {bf16 = true}
///     ==>
///   %p = panels [2, 384, 64, 2] of convert(%w) {dtype = bf16}
///   %y = packed_bf16_matmul(convert(%x) {dtype = bf16}, %p) {columns = 100}
///
/// Products of bytes, as of quantised tensors, become products of packed bytes (byte_products.h), smaller ones too.
///
/// Needs:  decomposed ops, known sizes put in.
/// Leaves: small matrices, products of nodes that must not be fused, and all of CUDA's as they are.
ir::Graph pack_weights(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
