// Long sorts in steps, so that more than one block of threads has work, and sorts of columns as sorts of rows.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Elements that one block of threads puts in order.
inline constexpr std::int64_t kSortedRun = 512;

/// Replaces a long sort by sorts of runs and merges of many runs at once, for CUDA.
///
///   %v, %i = sort(%x: f32[100000])
///     ==>
///   %v0, %i0 = sort(reshape(pad(%x, NaN)) {sizes = [196, 512]})
///   %v1, %i1 = merge_runs(reshape(%v0), reshape(%i0 + iota * 512)) {run = 512, count = 16}
///   %v2, %i2 = merge_runs(%v1, %i1) {run = 8192, count = 13}
///   %v = slice(%v2) {limit = [100000]}; %i = slice(%i2) {limit = [100000]}
///
/// and a topk of few elements by one of the first elements of each run.
///
///   %v, %i = topk(%x: f32[100000]) {k = 50}
///     ==>
///   %v0, %i0 = topk(reshape(pad(%x, NaN)) {sizes = [196, 512]}) {k = 50}
///   %v, %p = topk(reshape(%v0) {sizes = [9800]}) {k = 50}
///   %i = gather_elements(reshape(%i0 + iota * 512), %p)
///
/// Of n elements a merge does n * 16 * log2(run) comparisons, and its steps are log16(n / 512): a sort is O(n log^2 n), in
/// as many parallel iterations as there are blocks of elements. Sizes that are not known have merges for any.
///
/// On the CPU a sort or topk of rows that lie across memory becomes one of rows that were brought side by side.
///
///   %v, %i = sort(%x: f32[500, 100]) {axis = 0}
///     ==>
///   %v0, %i0 = sort(clone(permute(%x) {perm = [1, 0]})) {axis = 1}
///   %v = permute(%v0) {perm = [1, 0]}; %i = permute(%i0) {perm = [1, 0]}
///
/// and a topk whose rows go along lanes (best_in_lanes.h) one of a matrix.
///
///   %v, %i = topk(%x: f32[4, 500, 64]) {k = 2}
///     ==>
///   %v0, %i0 = topk(reshape(%x) {sizes = [2000, 64]}) {k = 2}
///   %v = reshape(%v0) {sizes = [4, 500, 2]}; %i = reshape(%i0) {sizes = [4, 500, 2]}
///
/// Needs:  decomposed ops, known sizes put in.
/// Leaves: rows of at most 1024 elements, on the CPU of fewer than 32, and nodes that must not be fused as they are.
ir::Graph split_sorts(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
