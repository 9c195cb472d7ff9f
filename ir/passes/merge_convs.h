// Convolutions of one tensor that are added, as one convolution.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Adds the weights of convolutions instead of their results, as of blocks with branches side by side (RepVGG, MobileOne) that were
/// exported as they were trained.
///
///   %3 = add(add(conv(%x, %k: f32[8, 8, 3, 3]), mul(conv(%x, %p: f32[8, 8, 1, 1]), %s: f32[8, 1, 1])), %x)
///     ==>
///   %w = add(add(%k, pad(mul(%p, %s))), one in the middle tap of each channel)
///   %3 = conv(%x, %w)
///
/// The kernels are padded with zeros to cover each other, and only where they then have no more taps than they had. What is added may be
/// multiplied by a number for each channel; %x itself, so multiplied or not, is a convolution of one tap. Weights and such numbers
/// follow from parameters and constants: they are added once, each rounded once more.
///
/// Needs:   any verified graph.
/// Leaves:  no sum with several such convolutions of f32 or f64 of the same tensor, strides and groups, that nothing else reads.
/// Order:   after decompose, canonicalise and wide-convs, which make such sums of others; before channels-last and byte-convs.
/// Cost:    linear in nodes and in the terms of sums.
Graph merge_convs(const Graph& graph);

}  // namespace heddle::ir
