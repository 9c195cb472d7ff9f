// How a block of threads multiplies matrices, and which way is taken: plain numbers and a cost model.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "heddle/dtype.h"

namespace heddle::jit::cuda {

/// A way to compute a product: the sums that one block keeps, and how it gets at them.
struct ProductTile {
  enum class Kind : std::uint8_t {
    Rows,    ///< hd_row_tile: a few rows, the right matrix straight from memory
    Tensor,  ///< hd_tensor_tile: tensor cores (mma.sync), operands through shared memory
    Plain,   ///< hd_plain_tile: without tensor cores, operands through shared memory
  };
  Kind kind = Kind::Tensor;
  int rows = 0;
  int columns = 0;
  int depth = 0;  ///< Tensor, Plain: products of a sum at a time; of Tensor a multiple of 32 bytes
  int warp_rows = 1;
  int warp_columns = 8;     ///< Rows: warps
  int stages = 0;           ///< Tensor: buffers of operands, filled ahead
  int registers = 40;       ///< of a thread: a guess, until the compiler reports them
  bool warpgroups = false;  ///< Tensor: by wgmma; each four warps have 64 rows and all columns

  int threads() const { return 32 * warp_rows * warp_columns; }
  /// Elements of a row of sums in shared memory, at most.
  int line() const;
  std::int64_t shared_bytes(std::int64_t element_bytes) const;
  /// Where blocks share a tile, each takes a multiple of this of its depth.
  int part_depth() const;
  /// Of the sums of one block that shares a tile.
  std::int64_t part_bytes() const { return std::int64_t{rows} * columns * 4; }
  /// "tensor_128x128x32", "wgmma_128x256x64", "rows_8x16"
  std::string name() const;

  friend bool operator==(const ProductTile&, const ProductTile&) = default;
};

/// The sizes of a product.
struct ProductShape {
  std::int64_t batches = 1;
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::int64_t depth = 1;
  std::int64_t element_bytes = 2;  ///< of an operand; 1: integers
  /// Of windows: taps for each element that they move by, so that an element of the images is in so many of them. 0: none.
  std::int64_t window_overlap = 0;
  /// Batches are groups that are taken to be of `rows` rows each; a kernel does not share their tiles.
  bool is_grouped = false;
  /// Of an element of the right one in memory, where it stands for a number of element_bytes; 0: that lies there itself.
  std::int64_t stored_bits = 0;
  /// Windows are read 16 bytes at a time, as what lies in memory is; else element by element.
  bool in_pieces = false;
};

/// What the cost model knows of a device.
struct ProductDevice {
  int multiprocessors = 132;
  std::int64_t max_shared_bytes = 99 * 1024;  ///< of one block
  bool tensor_cores = true;                   ///< sm_80 or later
  bool warpgroups = false;                    ///< sm_90a
};

/// How an operand lies in memory.
enum class Along : std::uint8_t {
  Rows,     ///< the elements of a row are neighbours
  Columns,  ///< those of a column are
  Neither,
  Windows,  ///< of the right matrix, in no memory: columns are windows, neighbours of which lie near each other
  Channels,  ///< the same, but that those of 16 bytes of a window are neighbours: channels of one tap
};

/// The ways there are for operands of this dtype, or of this and another of bytes, on such a device; at least one.
/// f32 is multiplied exactly, by none of the ways that use tensor cores, unless it may be rounded to tf32. Nor does any of
/// bytes use them whose left matrix has columns of neighbours. None reads windows straight from memory.
/// @param dequantised  the right matrix is of bytes, or of words of a few bits, that stand for numbers of this dtype
std::vector<ProductTile> product_tiles(DType dtype, Along left, Along right,
                                       const ProductDevice& device, bool tf32 = false,
                                       bool dequantised = false);

/// Tiles that blocks may share, at most: each has a counter.
inline constexpr std::int64_t kMostSharedTiles = 1024;

/// A way, and how many blocks share a tile: each takes a part of the depth, or of the keys of attention.
struct TileChoice {
  std::size_t tile = 0;
  std::int64_t parts = 1;
  friend bool operator==(const TileChoice&, const TileChoice&) = default;
};

/// Blocks that a multiprocessor of sm_80 or later runs at a time, by their threads, registers and shared memory; at least
/// one. @param registers  of a thread
std::int64_t resident_blocks(int threads, int registers, std::int64_t shared_bytes,
                             const ProductDevice& device);

/// Cycles of `blocks` of which `resident` are on a multiprocessor at a time: in waves, each as long as a multiprocessor is
/// `busy` with one of its blocks, for all of them, or as one block takes `alone`.
double wave_cycles(std::int64_t blocks, std::int64_t resident, double busy, double alone,
                   const ProductDevice& device);

/// Into how many parts, at most `most`, each of `tiles` tiles (not 0) is best split, of 1 and as many as fill the
/// multiprocessors once, twice, …
/// @param cycles  what so many parts are expected to take
std::int64_t cheapest_parts(std::int64_t tiles, std::int64_t most, std::int64_t resident,
                            const ProductDevice& device,
                            const std::function<double(std::int64_t)>& cycles);

/// Tiles of all matrices.
std::int64_t tiles_of(const ProductTile& tile, const ProductShape& shape);

/// Cycles that the product is expected to take: the most of two,
///   - all bytes of the operands and the result at the device's memory bandwidth;
///   - the blocks in waves, as many at a time as fit on the multiprocessors. In a wave, those that share a
///     multiprocessor take as long as its arithmetic or its reads of the second-level cache last, but no block
///     is faster than its chain of steps allows. Elements of windows that are read one by one take a thread's time each, and so do bytes and
///     numbers of a few bits that stand for numbers, each time that they are read.
///
/// Where blocks share a tile, each has its part of the depth to go through, all bring their sums to memory, and the last
/// one reads those of its tile.
///
/// The rates are those of datasheets for A100 and H100, taken alike for both; latencies are near what an H100 took.
double product_cycles(const ProductTile& tile, const ProductShape& shape,
                      const ProductDevice& device, std::int64_t parts = 1);

/// Into how many parts the tile is best split, by product_cycles().
std::int64_t cheapest_parts(const ProductTile& tile, const ProductShape& shape,
                            const ProductDevice& device);

/// The cheapest of `tiles` (not empty) by product_cycles(), the first of equals. Blocks share tiles only where there are
/// fewer of these than multiprocessors, and each part is a few steps long.
TileChoice cheapest_tile(std::span<const ProductTile> tiles, const ProductShape& shape,
                         const ProductDevice& device);

}  // namespace heddle::jit::cuda
