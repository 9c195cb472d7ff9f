// How a block of threads attends, and which way is taken: plain numbers and a cost model.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "jit/cuda/product_tile.h"

namespace heddle::jit::cuda {

/// A way to attend with hd_attention_tile: the queries that one block has, and how its warps share them; or its warpgroups, in
/// hd_warpgroup_attention_tile. A plain one is hd_plain_attention_tile, of f32, in which two warps have 16 queries.
struct AttentionTile {
  int depth = 0;      ///< of queries and keys, a multiple of 16
  int columns = 0;    ///< of values, a multiple of 16
  int row_tiles = 1;  ///< of 16 queries, a warp
  int warp_rows = 4;
  int warp_keys = 1;        ///< warps that share queries and part the keys of a tile
  int registers = 64;       ///< of a thread: a guess, until the compiler reports them
  bool plain = false;       ///< without tensor cores
  bool warpgroups = false;  ///< by wgmma: each four warps have 64 queries

  /// Where blocks part the keys of a tile of queries, each but the last takes a multiple of so many tiles of them.
  static constexpr int kPartTiles = 2;
  /// Keys that a tile of queries meets at a time.
  int keys() const { return warpgroups && depth + columns > 128 ? 128 : 64; }
  /// Whether blocks may part keys: with two tiles of rows a warp has no register left for it.
  bool parts_keys() const { return row_tiles == 1; }

  int rows() const { return 16 * row_tiles * warp_rows; }
  int threads() const { return 32 * warp_rows * warp_keys; }
  std::int64_t shared_bytes() const;
  /// What one block that has a part of the keys leaves for the others: sums, totals and largest scores.
  std::int64_t part_bytes() const { return std::int64_t{rows()} * (columns + 2) * 4; }
  /// "flash_64x64", "wgmma_128x128", "plain_64x64": queries and keys of a tile
  std::string name() const;

  friend bool operator==(const AttentionTile&, const AttentionTile&) = default;
};

/// The sizes of attention.
struct AttentionShape {
  std::int64_t heads = 1;  ///< of queries, of all batches
  std::int64_t queries = 1;
  std::int64_t keys = 1;
  bool causal = false;
  std::int64_t key_heads = 1;  ///< of all batches: how often keys lie in memory
  std::int64_t group = 1;      ///< heads whose queries are rows of the same tiles

  /// Rows that tiles are of.
  std::int64_t rows() const { return queries * group; }
};

/// The ways there are for head sizes `depth` of queries and keys and `columns` of values, each from 1 to 128; none
/// with too little shared memory, or, but for f32, on a device without tensor cores.
/// @param dtype   of queries, keys and values: f16, bf16 or f32
/// @param masked  whether there is a mask, whose expressions take registers
std::vector<AttentionTile> attention_tiles(DType dtype, std::int64_t depth, std::int64_t columns,
                                           bool masked, const ProductDevice& device);

/// Cycles that attention is expected to take: the most of two,
///   - all keys and values at the device's memory bandwidth;
///   - the blocks in waves, as many at a time as fit on the multiprocessors. In a wave, those that share a multiprocessor
///     take as long as its tensor cores, its reads of shared memory or its exponentials last, but no block is faster
///     than its chain of steps allows. Keys that causality hides from a whole block take no time.
///
/// Where `parts` blocks part the keys of a tile of queries, all bring what they found to memory, and the last one joins it.
///
/// The rates are those of product_cycles().
double attention_cycles(const AttentionTile& tile, const AttentionShape& shape,
                        const ProductDevice& device, std::int64_t parts = 1);

/// Among how many blocks the keys of each tile of queries are best parted, by attention_cycles(): no more than are on the
/// multiprocessors at a time.
std::int64_t cheapest_parts(const AttentionTile& tile, const AttentionShape& shape,
                            const ProductDevice& device);

/// The cheapest of `tiles` (not empty) by attention_cycles(), the first of equals.
TileChoice cheapest_tile(std::span<const AttentionTile> tiles, const AttentionShape& shape,
                         const ProductDevice& device);

}  // namespace heddle::jit::cuda
