// The files that define ops, one function each. registry.cpp lists them.
#pragma once

#include <span>

#include "ir/op.h"

namespace heddle::ir {

std::span<const OpDef> special_ops();    // input, param, const, symint
std::span<const OpDef> control_ops();    // cond, while_loop, scan, map, invoke
std::span<const OpDef> region_ops();     // region
std::span<const OpDef> unary_ops();      // neg, exp, tanh, …
std::span<const OpDef> binary_ops();     // add, pow, lt, …
std::span<const OpDef> select_ops();     // where
std::span<const OpDef> convert_ops();    // convert, unpack_bits, bit_panels, byte_digits
std::span<const OpDef> composite_ops();  // relu, gelu, clamp, …
std::span<const OpDef> view_ops();       // reshape, permute, expand, slice, reverse, clone, alias
std::span<const OpDef> creation_ops();   // iota
std::span<const OpDef> pad_ops();
std::span<const OpDef> concat_ops();  // concat, split
std::span<const OpDef> gather_ops();
std::span<const OpDef> reduce_ops();     // reduce_sum, …, variance
std::span<const OpDef> argreduce_ops();  // argmax, argmin
std::span<const OpDef> matmul_ops();
std::span<const OpDef> conv_ops();
std::span<const OpDef> pool_ops();
std::span<const OpDef> norm_ops();     // softmax, layer_norm, …
std::span<const OpDef> scatter_ops();  // scatter_elements, scatter_nd, index_put, slice_scatter, …
std::span<const OpDef> scan_ops();     // cumsum
std::span<const OpDef> sort_ops();     // sort, topk, merge_runs
std::span<const OpDef> resize_ops();
std::span<const OpDef> attention_ops();
std::span<const OpDef> random_ops();

}  // namespace heddle::ir
