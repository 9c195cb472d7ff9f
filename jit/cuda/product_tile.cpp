#include "jit/cuda/product_tile.h"

#include <algorithm>
#include <cmath>

#include "jit/cuda/rates.h"

namespace heddle::jit::cuda {
namespace {

// Rates of one multiprocessor, in a cycle.
constexpr double kTensorBytes =
    2048;  ///< of factors, by mma.sync: half as many products of 16 bits
constexpr double kPlainProducts = 128;  ///< by fused multiply-adds
constexpr double kPlainIntegers = 64;   ///< the same of integers
constexpr double kWidened = 64;         ///< elements from 8 or 16 bits to 32
constexpr double kGathered = 16;        ///< elements of windows, at 8 instructions each
constexpr double kDequantised = 28;     ///< bytes made numbers, at 4.5 instructions each
constexpr double kUnpacked = 48;        ///< the same of words and without scales, at 2.6
// Cycles that nothing hides.
constexpr double kStepLatency =
    500;  ///< of a step of tiles: on an H100 600 to 1500 where nothing else keeps it
/// Of what a thread of Rows has under way at a time: twice that of memory that nobody else reads.
constexpr double kPiecesLatency = 1600;
/// Steps of a part, at least.
constexpr std::int64_t kLeastPartSteps = 2;
constexpr std::int64_t kMostParts = 64;
// Of a multiprocessor: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", 8.0 to 10.0.
constexpr std::int64_t kResidentWarps = 64;
constexpr std::int64_t kResidentBlocks = 32;
constexpr std::int64_t kRegisters = 65536;
constexpr std::int64_t kRegisterUnit = 256;  ///< that a warp gets of them
/// Shared memory of a multiprocessor beyond what one block may have.
constexpr std::int64_t kReservedBytes = 1024;

std::int64_t ceil_of(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Of an element of the right operand in memory.
double stored_bytes(const ProductShape& shape) {
  return shape.stored_bits == 0 ? static_cast<double>(shape.element_bytes)
                                : static_cast<double>(shape.stored_bits) / 8;
}

/// Cycles of a multiprocessor that a block's arithmetic, shared memory and reads take: the most of them.
double busy_cycles(const ProductTile& tile, const ProductShape& shape, double depth) {
  const auto size = static_cast<double>(shape.element_bytes);
  const double rows = tile.rows;
  const double columns = tile.columns;
  const bool gathers = shape.window_overlap != 0 && !shape.in_pieces;
  const double gathered = gathers ? columns * depth / kGathered : 0;
  const double overlap = static_cast<double>(std::max<std::int64_t>(1, shape.window_overlap));
  const double stored = stored_bytes(shape);
  const double made = shape.stored_bits == 0 ? 0 : columns * depth / kDequantised;
  const double cache =
      std::max(gathered, (rows * size + columns / overlap * stored) * depth / kCacheBytes);
  const double plain = shape.element_bytes == 1 ? kPlainIntegers : kPlainProducts;
  switch (tile.kind) {
    case ProductTile::Kind::Rows: {
      // Threads beyond the last row and column do nothing.
      const double used = std::min(rows, static_cast<double>(shape.rows));
      const double used_columns = std::min(columns, static_cast<double>(shape.columns));
      const double rate = shape.stored_bits == 0  ? kWidened
                          : shape.stored_bits < 8 ? kUnpacked
                                                  : kDequantised;
      return std::max((used / plain + 1 / rate) * used_columns * depth,
                      (used * size + used_columns * stored) * depth / kCacheBytes);
    }
    case ProductTile::Kind::Plain:
      // A thread reads as many floats from shared memory for its 4 x 4 sums as it has rows and columns.
      return std::max(rows * columns * depth / plain * 2 + made, cache);
    case ProductTile::Kind::Tensor:
      break;
  }
  if (tile.warpgroups) {
    const double lines = 2 * rows + columns * (1 + rows / 64);
    return std::max({rows * columns * depth * size / (2 * kTensorBytes),
                     lines * depth * size / kSharedBytes, made, cache});
  }
  // Each warp reads its rows and columns, after they were written once.
  const double lines = rows * (tile.warp_columns + 1) + columns * (tile.warp_rows + 1);
  return std::max({rows * columns * depth * size / kTensorBytes,
                   lines * depth * size / kSharedBytes, made, cache});
}

}  // namespace

int ProductTile::line() const {
  return columns + (kind == Kind::Tensor ? 8 : kind == Kind::Plain ? 1 : 0);
}

std::int64_t ProductTile::shared_bytes(std::int64_t element_bytes) const {
  const std::int64_t sums = std::int64_t{rows} * line() * 4;
  if (kind == Kind::Rows) return sums * (1 + threads() / 32);
  if (kind == Kind::Plain) return std::max(sums, std::int64_t{depth} * (rows + columns + 2) * 4);
  return std::max(sums, std::int64_t{stages} * (rows + columns) * depth * element_bytes);
}

int ProductTile::part_depth() const { return kind == Kind::Rows ? 128 : depth; }

std::string ProductTile::name() const {
  static constexpr const char* kKinds[] = {"rows_", "tensor_", "plain_"};
  const std::string tile = std::to_string(rows) + "x" + std::to_string(columns);
  return (warpgroups ? "wgmma_" : kKinds[static_cast<int>(kind)]) + tile +
         (kind == Kind::Rows ? "" : "x" + std::to_string(depth));
}

std::vector<ProductTile> product_tiles(DType dtype, Along left, Along right,
                                       const ProductDevice& device, bool tf32, bool dequantised) {
  using Kind = ProductTile::Kind;
  const auto bytes = static_cast<std::int64_t>(size_of(dtype));
  std::vector<ProductTile> tiles;
  if (right == Along::Rows || right == Along::Columns) {
    // Segments of 256 bytes, or 128 of bytes; but a thread's sums, and what it has under way, stay in registers.
    const int width = right == Along::Columns ? 16 : dequantised ? 64 : 128;
    const int rows = right == Along::Rows && bytes != 4 && !dequantised ? 4 : 8;
    tiles.push_back({Kind::Rows, 1, width, 0, 1, 8, 0});
    tiles.push_back({Kind::Rows, rows, width, 0, 1, 8, 0});
  }
  const bool tensor = device.tensor_cores && left != Along::Neither && right != Along::Neither;
  if (tensor && bytes == 2) {
    tiles.push_back({Kind::Tensor, 16, 64, 64, 1, 4, 4});
    tiles.push_back({Kind::Tensor, 64, 64, 64, 2, 2, 3});
    tiles.push_back({Kind::Tensor, 128, 128, 32, 2, 4, 4});
  }
  if (tensor && device.warpgroups && bytes == 2 && right != Along::Windows) {
    tiles.push_back({Kind::Tensor, 64, 128, 64, 4, 1, 4, 128, true});
    tiles.push_back({Kind::Tensor, 128, 128, 64, 8, 1, 3, 128, true});
    tiles.push_back({Kind::Tensor, 128, 256, 64, 8, 1, 4, 200, true});
  }
  if (tensor && tf32 && bytes == 4) {
    tiles.push_back({Kind::Tensor, 16, 64, 32, 1, 4, 4});
    tiles.push_back({Kind::Tensor, 64, 64, 32, 2, 2, 3});
    tiles.push_back({Kind::Tensor, 128, 128, 16, 2, 4, 4});
  }
  const bool windows = right == Along::Windows || right == Along::Channels;
  if (tensor && bytes == 1 && left == Along::Rows && windows) {
    tiles.push_back({Kind::Tensor, 16, 128, 64, 1, 4, 4});
    tiles.push_back({Kind::Tensor, 64, 64, 64, 2, 2, 4});
    tiles.push_back({Kind::Tensor, 128, 128, 64, 2, 4, 4});
  } else if (tensor && bytes == 1 && left == Along::Rows) {
    tiles.push_back({Kind::Tensor, 16, 128, 128, 1, 4, 3});
    tiles.push_back({Kind::Tensor, 64, 64, 128, 2, 2, 3});
    tiles.push_back({Kind::Tensor, 128, 128, 64, 2, 4, 4});
  }
  std::erase_if(tiles, [&](const ProductTile& tile) {
    return tile.shared_bytes(bytes) > device.max_shared_bytes;
  });
  const bool any =
      std::ranges::any_of(tiles, [](const ProductTile& tile) { return tile.kind == Kind::Tensor; });
  if (!any) tiles.push_back({Kind::Plain, 64, 64, 16, 1, 8, 0});
  return tiles;
}

std::int64_t resident_blocks(int threads, int registers, std::int64_t shared_bytes,
                             const ProductDevice& device) {
  const std::int64_t warps = ceil_of(threads, 32);
  const std::int64_t of_warp = ceil_of(std::int64_t{registers} * 32, kRegisterUnit) * kRegisterUnit;
  return std::max<std::int64_t>(
      1, std::min({kResidentBlocks, kResidentWarps / warps, kRegisters / of_warp / warps,
                   device.max_shared_bytes / (shared_bytes + kReservedBytes)}));
}

double wave_cycles(std::int64_t blocks, std::int64_t resident, double busy, double alone,
                   const ProductDevice& device) {
  const std::int64_t at_once = resident * device.multiprocessors;
  const std::int64_t full = blocks / at_once;
  double waves = static_cast<double>(full) * std::max(static_cast<double>(resident) * busy, alone);
  if (const std::int64_t rest = blocks % at_once; rest != 0)
    waves += std::max(static_cast<double>(ceil_of(rest, device.multiprocessors)) * busy, alone);
  return waves;
}

std::int64_t cheapest_parts(std::int64_t tiles, std::int64_t most, std::int64_t resident,
                            const ProductDevice& device,
                            const std::function<double(std::int64_t)>& cycles) {
  std::int64_t best = 1;
  double least = cycles(1);
  for (std::int64_t each = 1; each <= resident; each *= 2) {
    const std::int64_t parts = std::min(most, each * device.multiprocessors / tiles);
    if (parts <= 1) continue;
    if (const double taken = cycles(parts); taken < least) {
      least = taken;
      best = parts;
    }
    if (parts == most) break;
  }
  return best;
}

std::int64_t tiles_of(const ProductTile& tile, const ProductShape& shape) {
  return shape.batches * ceil_of(shape.rows, tile.rows) * ceil_of(shape.columns, tile.columns);
}

namespace {

std::int64_t resident_blocks(const ProductTile& tile, const ProductShape& shape,
                             const ProductDevice& device) {
  return resident_blocks(tile.threads(), tile.registers, tile.shared_bytes(shape.element_bytes),
                         device);
}

/// What a block goes through of the depth where `parts` share it: whole steps.
std::int64_t part_of_depth(const ProductTile& tile, const ProductShape& shape, std::int64_t parts) {
  const std::int64_t whole = tile.depth != 0 ? tile.depth : 1;
  const std::int64_t step = parts == 1 ? whole : tile.part_depth();
  return ceil_of(ceil_of(shape.depth, step), parts) * step;
}

}  // namespace

double product_cycles(const ProductTile& tile, const ProductShape& shape,
                      const ProductDevice& device, std::int64_t parts) {
  const double overlap = static_cast<double>(std::max<std::int64_t>(1, shape.window_overlap));
  const double stored = stored_bytes(shape);
  const double bytes =
      static_cast<double>(shape.batches) *
      (static_cast<double>(shape.element_bytes) * static_cast<double>(shape.rows) *
           static_cast<double>(shape.depth + shape.columns) +
       stored * static_cast<double>(shape.columns) * static_cast<double>(shape.depth) / overlap);
  const double memory = bytes / (device.multiprocessors * kMemoryBytes);
  const std::int64_t blocks = tiles_of(tile, shape) * parts;
  const auto depth = static_cast<double>(part_of_depth(tile, shape, parts));
  const double area = static_cast<double>(tile.rows) * tile.columns;
  const double pieces = depth * tile.columns * stored / (16.0 * tile.threads());
  const double chain = tile.depth != 0
                           ? depth / tile.depth * kStepLatency
                           : std::ceil(pieces / (tile.rows == 1 ? 8 : 4)) * kPiecesLatency;
  double busy = busy_cycles(tile, shape, depth);
  double alone = kMemoryLatency + chain + area / tile.threads() * kElementLatency;
  double joined = 0;
  if (parts != 1) {
    const double rows = static_cast<double>(std::min<std::int64_t>(tile.rows, shape.rows));
    const double share = rows * tile.columns * 4 / kCacheBytes;
    busy += share;
    alone += share;
    joined = kJoinLatency + share * static_cast<double>(parts);
  }
  const double waves =
      wave_cycles(blocks, resident_blocks(tile, shape, device), busy, alone, device);
  return std::max(memory, waves) + joined;
}

std::int64_t cheapest_parts(const ProductTile& tile, const ProductShape& shape,
                            const ProductDevice& device) {
  const std::int64_t count = tiles_of(tile, shape);
  // What is read straight from memory is so by as many blocks as fit.
  const std::int64_t enough =
      device.multiprocessors *
      (tile.kind == ProductTile::Kind::Rows ? resident_blocks(tile, shape, device) : 1);
  if (shape.is_grouped || count == 0 || count >= enough || count > kMostSharedTiles) return 1;
  const std::int64_t most =
      std::min(kMostParts, ceil_of(shape.depth, tile.part_depth()) / kLeastPartSteps);
  return cheapest_parts(
      count, most, resident_blocks(tile, shape, device), device,
      [&](std::int64_t parts) { return product_cycles(tile, shape, device, parts); });
}

TileChoice cheapest_tile(std::span<const ProductTile> tiles, const ProductShape& shape,
                         const ProductDevice& device) {
  TileChoice best;
  double least = 0;
  for (std::size_t k = 0; k < tiles.size(); ++k) {
    const std::int64_t parts = cheapest_parts(tiles[k], shape, device);
    const double cycles = product_cycles(tiles[k], shape, device, parts);
    if (k != 0 && cycles >= least) continue;
    least = cycles;
    best = {k, parts};
  }
  return best;
}

}  // namespace heddle::jit::cuda
