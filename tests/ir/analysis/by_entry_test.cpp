#include "ir/analysis/by_entry.h"

#include <gtest/gtest.h>

#include "ir/text.h"

namespace heddle::testing {
namespace {

const base::Symbol kBatch{base::Symbol::Kind::Size, 0};

/// Whether the last node of a graph treats the entries of s0 apart.
bool holds(const std::string& inputs, const std::string& node) {
  const ir::Graph graph =
      ir::parse("graph @main(" + inputs + ") {\n  %result = " + node + "\n  return %result\n}\n");
  return ir::ByEntry(kBatch).holds(*graph.outputs()[0].node);
}

TEST(ByEntry, OfElements) {
  EXPECT_TRUE(holds("%x: f32[s0, 4]", "exp(%x)"));
  EXPECT_TRUE(holds("%x: f32[s0, 4], %y: f32[4]", "add(%x, %y)"));
  EXPECT_TRUE(holds("%x: f32[s0, 1], %y: f32[s0, 4]", "add(%x, %y)"));
  EXPECT_TRUE(holds("%x: f32[3, s0, 4], %y: f32[s0, 1]", "add(%x, %y)"));
  EXPECT_TRUE(holds("%x: f32[s0, 4, 4]", "pad(%x) {low = [0, 1, 1], high = [0, 1, 1]}"));
  EXPECT_TRUE(holds("%x: f32[9, 4], %i: i64[s0, 5]", "gather(%x, %i) {axis = 0}"));
  EXPECT_TRUE(holds("%x: f32[s0, 4], %y: f32[s0, 3]", "concat(%x, %y) {axis = 1}"));
  // Elements of other entries, their number, or which one it is.
  EXPECT_FALSE(holds("%x: f32[s0, 4]", "pad(%x) {low = [1, 0], high = [0, 0]}"));
  EXPECT_FALSE(holds("%x: f32[s0, 4], %i: i64[5]", "gather(%x, %i) {axis = 0}"));
  EXPECT_FALSE(holds("%x: f32[s0, 4], %i: i64[s0]", "gather(%x, %i) {axis = 0}"));
  EXPECT_FALSE(holds("%x: f32[s0, 4]", "concat(%x, %x) {axis = 0}"));
  EXPECT_FALSE(holds("%x: f32[s0, s0]", "exp(%x)"));
}

TEST(ByEntry, OfViews) {
  EXPECT_TRUE(holds("%x: f32[s0, 4, 6]", "permute(%x) {perm = [2, 0, 1]}"));
  EXPECT_TRUE(holds("%x: f32[s0, 4, 6]", "reshape(%x) {sizes = [s0*4, 6]}"));
  EXPECT_TRUE(holds("%x: f32[s0, 8, 8, 3]", "reshape(%x) {sizes = [s0, 2, 4, 2, 4, 3]}"));
  EXPECT_TRUE(holds("%x: f32[64*s0, 49, 3]", "reshape(%x) {sizes = [s0, 8, 8, 7, 7, 3]}"));
  EXPECT_TRUE(holds("%x: f32[s0*s1, 6]", "reshape(%x) {sizes = [s0, s1, 6]}"));
  EXPECT_TRUE(
      holds("%x: f32[s0, 4]", "slice(%x) {start = [0, 1], limit = [s0, 4], stride = [1, 1]}"));
  EXPECT_TRUE(holds("%x: f32[4]", "expand(%x) {sizes = [s0, 4]}"));
  EXPECT_FALSE(
      holds("%x: f32[s0, 4]", "slice(%x) {start = [0, 0], limit = [2, 4], stride = [1, 1]}"));
  EXPECT_FALSE(
      holds("%x: f32[s0, 4]", "slice(%x) {start = [0, 0], limit = [s0, 4], stride = [2, 1]}"));
  EXPECT_FALSE(holds("%x: f32[s0, 4]", "reverse(%x) {axes = [0]}"));
  // Rows of an entry lie apart.
  EXPECT_FALSE(holds("%x: f32[4, s0, 6]", "reshape(%x) {sizes = [s0, 4, 6]}"));
}

TEST(ByEntry, OfReductions) {
  EXPECT_TRUE(holds("%x: f32[s0, 4]", "reduce_sum(%x) {axes = [1], keepdims = false}"));
  EXPECT_TRUE(holds("%x: f32[4, s0]", "argmax(%x) {axis = 0, keepdims = false}"));
  EXPECT_FALSE(holds("%x: f32[s0, 4]", "reduce_sum(%x) {axes = [0], keepdims = false}"));
  EXPECT_FALSE(holds("%x: f32[s0, 4]", "argmax(%x) {axis = 0, keepdims = true}"));
}

TEST(ByEntry, OfProductsAndWindows) {
  EXPECT_TRUE(holds("%x: f32[s0, 4], %w: f32[4, 5]", "matmul(%x, %w)"));
  EXPECT_TRUE(holds("%x: f32[s0, 3, 4], %w: f32[s0, 4, 5]", "matmul(%x, %w)"));
  EXPECT_TRUE(holds("%x: f32[7, 4], %w: f32[s0, 4, 5]", "matmul(%x, %w)"));
  EXPECT_FALSE(holds("%x: f32[7, 4], %w: f32[4, s0]", "matmul(%x, %w)"));
  EXPECT_FALSE(holds("%x: f32[7, s0], %w: f32[s0, 5]", "matmul(%x, %w)"));
  EXPECT_FALSE(holds("%x: f32[s0, 4], %w: f32[s0, 4, 5]", "matmul(%x, %w)"));
  const std::string windows =
      " {strides = [1, 1], pads_low = [1, 1], pads_high = [1, 1], dilations = [1, 1]}";
  EXPECT_TRUE(holds("%x: f32[s0, 4, 8, 8], %w: f32[5, 4, 3, 3]", "conv(%x, %w)" + windows));
  EXPECT_FALSE(holds("%x: f32[1, 4, 8, 8], %w: f32[s0, 4, 3, 3]", "conv(%x, %w)" + windows));
  EXPECT_FALSE(holds("%x: f32[1, 4, s0, 8], %w: f32[5, 4, 3, 3]", "conv(%x, %w)" + windows));
  const std::string attention = " {causal = true}";
  EXPECT_TRUE(holds("%q: f32[s0, 2, 5, 8], %k: f32[s0, 2, 7, 8], %m: f32[s0, 1, 1, 7]",
                    "attention(%q, %k, %k, %m)" + attention));
  EXPECT_TRUE(holds("%q: f32[s0, 2, 5, 8], %k: f32[s0, 2, 7, 8], %m: f32[5, 7]",
                    "attention(%q, %k, %k, %m)" + attention));
  EXPECT_FALSE(
      holds("%q: f32[1, s0, 5, 8], %k: f32[1, s0, 7, 8]", "attention(%q, %k, %k)" + attention));
}

}  // namespace
}  // namespace heddle::testing
