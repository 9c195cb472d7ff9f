// Convolutions of bytes whose sums f32 holds exactly.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Adds up few products of bytes, as depthwise and first layers do, in f32, for which there are fast kernels.
///
///   %1 = sub(convert(%x: u8[1, c, h, w]), %zero)
///   %2 = conv(%1, convert(%w: i8[c, 1, 3, 3]), none)       i32
///     ==>
///   %2 = conv(convert(%1) {dtype = f32}, convert(...) {dtype = f32}, none)
///   %3 = convert(round(%2)) {dtype = i32}
///
/// Bytes less zero points that are bytes are at most 255 in size: up to 258 products add up to less than 2^24. A kernel that
/// transforms its operands may be off by less than a half.
///
/// Needs:   any verified graph.
/// Leaves:  convolutions of one group, many channels and many weights, whose bytes are multiplied as bytes, and those with
///          should_fallback.
/// Order:   before channels-last.
/// Cost:    linear in nodes.
Graph byte_convs(const Graph& graph);

}  // namespace heddle::ir
