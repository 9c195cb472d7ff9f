// Bodies of loops that write what the loop carries where it lies.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

struct BodyInPlace {
  ir::Graph graph;
  std::vector<bool> updated;  ///< by carried value: it is overwritten, and no output
  std::vector<NestedCall::Appended> appended;
};

/// `body` with the next values of what it carries written back to its inputs, in place of results, where that writes a part of them alone:
/// where they are overwritten in part,
///
///   graph @body(%x: f32[9, 4], %row, %k) {
///     %next = scatter_nd(%x, %k, %row)
///     return %next
///     ==>
///     %next = scatter_nd(%x, %k, %row) {in_place = [0]}
///     return
///
/// and where they are appended to, which then have more room than they use:
///
///   graph @body(%x: f32[u0, 4], %row) {
///     %next = concat(%x, %row) {axis = 0}
///     return %next
///     ==>
///   graph @body(%x: f32[u1, 4], %row) {
///     %past = slice(%x) {start = [0, 0], limit = [u0, 4], stride = [1, 1]}
///     %all = slice_scatter(%x, %row) {axis = 0, start = u0, in_place = [0]}
///     %next = slice(%all) {start = [0, 0], limit = [u0+1, 4], stride = [1, 1]}
///     return
///
/// The same body where there is no such.
/// @param condition  of a while loop, which must not read what is appended to; null: of a scan, where sizes stay
BodyInPlace body_in_place(const ir::Graph& body, const ir::Graph* condition, std::uint32_t carried);

}  // namespace heddle::jit
