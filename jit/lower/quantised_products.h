// Products and convolutions of dequantised tensors, as products of their bytes.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Multiplies the bytes behind dequantised tensors, sums them exactly and scales the sums. Weights must be the same in each
/// run.
///
///   %a = mul(convert(sub(convert(%x: u8[m, k]), %p)), %s)        what DequantizeLinear is
///   %b = mul(convert(convert(%w: param i8[k, n])), %t)
///   %y = matmul(%a, %b)
///     ==>
///   %i = matmul(sub(convert(%x), %p), convert(%w))               i32, which pack_weights, or byte_products on CUDA, makes
///                                                         a product of bytes
///   %y = mul(convert(%i), mul(%s, %t))
///
/// On the CPU a convolution, of dequantised tensors or of integers, is such a product with the bytes of each window behind each
/// other on the left. Where the kernel is one element those are x itself; else packed_int8_conv puts them there tile by
/// tile. Padding is the zero point. On CUDA it is int8_conv, or a product of bytes where the kernel is one element.
///
/// The definition rounds each product and each sum; this rounds the exact sum, the product of the scales and the
/// result. Infinite scales give infinities where the definition, for bytes at the zero point, has NaN.
///
/// Needs:  decomposed ops, known sizes put in; pack_weights and byte_products after it.
/// Leaves: products of few weights, of scales and zero points that differ along the depth, and of depths whose sums may
///         exceed i32; convolutions in groups, of windows of fewer than 16 bytes, of many channels and large kernels, and on CUDA of
///         few channels, by weights with zero points or to few channels; nodes that must not be fused.
ir::Graph quantised_products(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
