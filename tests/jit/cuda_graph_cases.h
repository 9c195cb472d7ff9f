// Graphs in IR text that are run on CUDA: kernel by kernel, and by the engine.
#pragma once

#include <cstdint>
#include <vector>

namespace heddle::tests {

struct GraphCase {
  const char* text;
  std::vector<std::vector<std::int64_t>> sizes;  ///< values of s0, s1, … to run at
  double tolerance = 1e-5;
};

/// Graphs over all kinds of kernels.
inline const std::vector<GraphCase>& cuda_graph_cases() {
  static const std::vector<GraphCase> cases = {
      {R"(graph @pointwise(%x: f32[s0, s1], %y: f32[s1], %z: f32[s0, 1]) {
            %a = mul(%x, %y)
            %b = tanh(%a)
            %c = add(%b, %z)
            %d = lt(%c, %x)
            %e = where(%d, %c, %x)
            %f = permute(%e) {perm = [1, 0]}
            return %e, %f
          })",
       {{5, 37}, {1, 1}, {0, 3}}},
      {R"(graph @mlp(%x: f32[s0, 24], %w: f32[24, 70], %bias: f32[70]) {
            %m = matmul(%x, %w)
            %a = add(%m, %bias)
            %g = gelu(%a)
            return %g
          })",
       {{40}, {1}, {33}}},
      {R"(graph @mlp_half(%x: f16[s0, 24], %w: f16[24, 40], %bias: f16[40]) {
            %m = matmul(%x, %w)
            %a = add(%m, %bias)
            %g = gelu(%a) {approximate = "tanh"}
            return %g
          })",
       {{9}},
       4e-3},
      {R"(graph @mlp_bytes(%x: u8[s0, 48], %zero: i32[], %w: i8[48, 40], %scale: f32[40]) {
            %a = convert(%x) {dtype = i32}
            %b = sub(%a, %zero)
            %c = convert(%w) {dtype = i32}
            %m = matmul(%b, %c)
            %f = convert(%m) {dtype = f32}
            %s = mul(%f, %scale)
            %r = relu(%s)
            return %r
          })",
       {{9}, {70}}},
      {R"(graph @attention(%q: f32[s0, 2, s1, 8], %k: f32[s0, 2, s2, 8], %v: f32[s0, 2, s2, 8]) {
            %o = attention(%q, %k, %v)
            return %o
          })",
       {{2, 5, 11}, {1, 1, 1}, {1, 33, 70}}},
      {R"(graph @causal(%q: f32[1, 4, s0, 16], %k: f32[1, 2, s0, 16], %v: f32[1, 2, s0, 16]) {
            %o = attention(%q, %k, %v) {causal = true}
            return %o
          })",
       {{7}, {40}}},
      {R"(graph @flash(%q: f16[s0, 4, s1, 16], %k: f16[s0, 2, s2, 16], %v: f16[s0, 2, s2, 16], %m: bool[s0, 1, 1, s2], %r: f16[s0, 4, s1, 16]) {
            %o = attention(%q, %k, %v, %m) {nan_rows = true}
            %y = add(%o, %r)
            return %y
          })",
       {{2, 5, 70}, {1, 1, 1}, {1, 130, 9}},
       4e-3},
      {R"(graph @flash_causal(%q: bf16[s0, 2, s1, 40], %k: bf16[s0, 2, s1, 40], %v: bf16[s0, 2, s1, 40]) {
            %o = attention(%q, %k, %v) {causal = true}
            return %o
          })",
       {{2, 5}, {1, 67}},
       1.6e-2},
      {R"(graph @norms(%x: f32[s0, s1], %w: f32[s1], %b: f32[s1]) {
            %a = layer_norm(%x, %w, %b)
            %c = softmax(%a)
            %d = log_softmax(%x) {axis = 0}
            %e = rms_norm(%x, %w)
            return %a, %c, %d, %e
          })",
       {{3, 100}, {2, 1}, {1, 300}}},
      {R"(graph @reductions(%x: f32[s0, s1, 6]) {
            %a = reduce_sum(%x) {axes = [1]}
            %b = reduce_max(%x) {axes = [0, 2]}
            %c = variance(%x) {axes = [2]}
            %d = argmax(%x) {axis = 1}
            %e = reduce_mean(%x) {axes = [0, 1, 2]}
            %f = reduce_prod(%x) {axes = [2], keepdims = true}
            return %a, %b, %c, %d, %e, %f
          })",
       {{4, 9}, {1, 1}}},
      {R"(graph @moves(%x: f32[s0, 6], %i: i64[s1]) {
            %n = neg(%x)
            %a = concat(%x, %n) {axis = 0}
            %b = slice(%a) {start = [0, 1], limit = [2*s0, 6], stride = [1, 2]}
            %p = pad(%b) {low = [1, 0], high = [0, 2]}
            %r = reverse(%p) {axes = [1]}
            return %a, %r
          })",
       {{3, 4}, {1, 1}}},
      {R"(graph @integers(%x: i32[s0, s1], %y: i64[s1], %z: bool[s0, s1]) {
            %a = add(%x, %y)
            %b = mod(%a, 3: i64)
            %c = reduce_sum(%b) {axes = [1]}
            %d = convert(%x) {dtype = i8}
            %e = where(%z, %d, 7: i8)
            %f = reduce_and(%z) {axes = [0]}
            return %b, %c, %e, %f
          })",
       {{5, 9}, {1, 2}}},
      {R"(graph @lookup(%table: f16[9, s0], %i: i64[s1]) {
            %j = abs(%i)
            %g = gather(%table, %j)
            %s = exp(%g)
            return %s
          })",
       {{5, 6}, {300, 2}},
       4e-3},
      {R"(graph @conv(%x: f32[s0, 4, s1, 9], %w: f32[6, 2, 3, 3], %bias: f32[6]) {
            %c = conv(%x, %w, %bias) {strides = [1, 2], pads_low = [1, 1], pads_high = [1, 0], dilations = [1, 1], groups = 2}
            %r = relu(%c)
            return %r
          })",
       {{2, 7}, {1, 3}}},
      {R"(graph @conv_product(%x: f16[s0, 4, s1, 9], %w: f16[32, 2, 3, 3], %bias: f16[32], %k: f16[24, 32, 1, 1], %r: f16[s0, 24, s1, 4]) {
            %c = conv(%x, %w, %bias) {strides = [1, 2], pads_low = [1, 0], pads_high = [1, 0], dilations = [1, 1], groups = 2}
            %a = relu(%c)
            %d = conv(%a, %k) {strides = [1, 1], pads_low = [0, 0], pads_high = [0, 0], dilations = [1, 1]}
            %e = add(%d, %r)
            return %e
          })",
       {{2, 7}, {1, 1}, {0, 3}},
       4e-3},
      {R"(graph @conv_depthwise(%x: f16[s0, s1, 9, 20], %w: f16[20, 1, 3, 2], %bias: f16[20], %y: f32[s0, s1, 3, 17]) {
            %c = conv(%x, %w, %bias) {strides = [1, 2], pads_low = [1, 0], pads_high = [1, 2], dilations = [1, 2], groups = 20, channels_last = true}
            %r = relu(%c)
            %ones = const [0.5, -2.0]: f32
            %v = expand(%ones) {sizes = [17, 1, 1, 2]}
            %d = conv(%y, %v) {strides = [1, 1], pads_low = [0, 1], pads_high = [0, 0], dilations = [1, 1], groups = 17, channels_last = true}
            return %r, %d
          })",
       {{2, 7}, {1, 1}, {0, 3}},
       4e-3},
      {R"(graph @conv_transpose(%x: f32[s0, 4, 5], %w: f32[4, 3, 3]) {
            %c = conv_transpose(%x, %w) {strides = [2], pads_low = [1], pads_high = [1], dilations = [1], output_padding = [1], groups = 1}
            return %c
          })",
       {{2}}},
      {R"(graph @pools(%x: f32[s0, 3, 8, 9]) {
            %m = max_pool(%x) {kernel = [3, 2], strides = [2, 2], pads_low = [1, 0], pads_high = [1, 1], dilations = [1, 1]}
            %i = max_pool_indices(%x) {kernel = [2, 2], strides = [2, 2], pads_low = [0, 0], pads_high = [0, 0], dilations = [1, 1]}
            %a = avg_pool(%x) {kernel = [2, 2], strides = [1, 2], pads_low = [0, 1], pads_high = [1, 0], dilations = [1, 1]}
            return %m, %i, %a
          })",
       {{2}, {1}}},
      {R"(graph @nothing(%x: f32[s0]) {
            %i = iota() {sizes = [0], axis = 0, dtype = f16}
            %c = clamp(%i, 0.0: f16, 2.0: f16)
            %s = softmax(%c) {axis = 0}
            %r = reduce_sum(%c) {axes = [0]}
            %e = relu(%x)
            return %r, %s, %e
          })",
       {{3}}},
      {R"(graph @scans(%x: f32[s0, s1], %y: i32[s0, s1]) {
            %a = cumsum(%x) {axis = 1}
            %b = cumsum(%y) {axis = 0, exclusive = true, reverse = true}
            return %a, %b
          })",
       {{4, 33}, {1, 1}}},
      {R"(graph @scans_by_blocks(%x: f32[s0, 5000], %y: bf16[s0, 40], %z: i32[20, s0, 3]) {
            %a = cumsum(%x) {axis = 1}
            %r = relu(%a)
            %b = cumsum(%y) {axis = 1, reverse = true}
            %c = cumsum(%z) {axis = 0, exclusive = true}
            return %r, %b, %c
          })",
       {{3}, {0}},
       4e-3},
      {R"(graph @scans_in_parts(%x: f32[s0, 33001], %y: f32[1024, 5], %z: i64[2, 300]) {
            %a = cumsum(%x) {axis = 1, exclusive = true}
            %b = cumsum(%y) {axis = 0, reverse = true}
            %c = cumsum(%z) {axis = 0}
            return %a, %b, %c
          })",
       {{2}},
       4e-3},
      {R"(graph @scatters(%x: f32[s0, 300], %i: i64[s1, 1], %u: f32[s1, 300], %e: i32[s1, 9], %f: f32[s1, 9]) {
            %a = scatter_nd(%x, %i, %u) {reduction = "add"}
            %b = slice(%x) {start = [0, 0], limit = [s0, 9], stride = [1, 1]}
            %c = scatter_elements(%b, %e, %f) {axis = 0, reduction = "max"}
            %d = scatter_elements(%b, %e, %f) {axis = 1}
            return %a, %c, %d
          })",
       {{5, 5}}},
      {R"(graph @sorts(%x: f32[s0, s1], %y: i32[s0, 40]) {
            %v, %i = sort(%x) {axis = 1, descending = true}
            %w, %j = sort(%x) {axis = 0}
            %t, %k = topk(%y) {k = 7}
            %z = expand(%x) {sizes = [200, s0, s1]}
            %q = reshape(%z) {sizes = [200, s0*s1]}
            %b, %n = topk(%q) {k = 3, axis = 0, largest = false}
            return %v, %i, %w, %j, %t, %k, %b, %n
          })",
       {{3, 150}, {1, 1}}},
      {R"(graph @long_sorts(%x: f32[2, 1100], %y: bf16[s0, 9000]) {
            %v, %i = sort(%x) {axis = 1}
            %t, %k = topk(%y) {k = 20}
            return %v, %i, %t, %k
          })",
       {{1}}},
      {R"(graph @ordered_scatters(%x: f32[7, 70], %i: i64[40, 1], %u: f32[40, 70], %e: i32[40, 9], %f: f16[40, 9]) {
            %a = scatter_nd(%x, %i, %u) {reduction = "add"}
            %b = exp(%x)
            %j = reshape(%i) {sizes = [40]}
            %c = index_put(%b, %u, %j) {accumulate = false}
            %z = convert(%f) {dtype = f16}
            %g = slice(%z) {start = [0, 0], limit = [8, 9], stride = [1, 1]}
            %d = scatter_elements(%g, %e, %f) {axis = 0, reduction = "mul"}
            return %a, %c, %d
          })",
       {{}},
       4e-3},
      {R"(graph @rows_in_registers(%x: f16[s0, 512], %y: f32[s0, 260], %w: f16[512]) {
            %a = softmax(%x) {axis = 1}
            %b = mul(%a, %w)
            %m = reduce_mean(%y) {axes = [1], keepdims = true}
            %c = sub(%y, %m)
            %t = permute(%x) {perm = [1, 0]}
            return %b, %c, %t
          })",
       {{1}, {64}},
       4e-3},
      {R"(graph @long_rows(%x: f32[2, 40000], %y: f16[s0, 40009]) {
            %a = softmax(%x)
            %b = argmax(%y) {axis = 1}
            %c = reduce_mean(%y) {axes = [1]}
            return %a, %b, %c
          })",
       {{1}, {3}},
       4e-3},
  };
  return cases;
}

}  // namespace heddle::tests
