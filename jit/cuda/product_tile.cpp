#include "jit/cuda/product_tile.h"

#include <algorithm>

namespace heddle::jit::cuda {
namespace {

// Rates of one multiprocessor, in a cycle.
constexpr double kTensorBytes =
    2048;  ///< of factors, by mma.sync: half as many products of 16 bits
constexpr double kPlainProducts = 128;  ///< by fused multiply-adds
constexpr double kPlainIntegers = 64;   ///< the same of integers
constexpr double kWidened = 64;         ///< elements from 8 or 16 bits to 32
constexpr double kSharedBytes = 128;    ///< from and to shared memory
constexpr double kCacheBytes = 64;      ///< from the second-level cache
constexpr double kMemoryBytes = 20;     ///< its share of the device's memory
// Cycles that nothing hides.
constexpr double kMemoryLatency = 800;  ///< from a block's start to its first products
constexpr double kStepLatency = 60;     ///< of a step's barrier and first fragments
constexpr double kElementLatency = 20;  ///< of a thread's element on its way out
constexpr std::int64_t kResidentThreads = 1536;
/// Shared memory of a multiprocessor beyond what one block may have.
constexpr std::int64_t kReservedBytes = 1024;

std::int64_t ceil_of(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Cycles of a multiprocessor that a block's arithmetic, shared memory and reads take: the most of them.
double busy_cycles(const ProductTile& tile, const ProductShape& shape, double depth) {
  const auto size = static_cast<double>(shape.element_bytes);
  const double rows = tile.rows;
  const double columns = tile.columns;
  const double cache = (rows + columns) * depth * size / kCacheBytes;
  const double plain = shape.element_bytes == 1 ? kPlainIntegers : kPlainProducts;
  switch (tile.kind) {
    case ProductTile::Kind::Rows: {
      const double used = std::min(rows, static_cast<double>(shape.rows));
      return std::max((used / plain + 1 / kWidened) * columns * depth, cache);
    }
    case ProductTile::Kind::Plain:
      // A thread reads as many floats from shared memory for its 4 x 4 sums as it has rows and columns.
      return std::max(rows * columns * depth / plain * 2, cache);
    case ProductTile::Kind::Tensor:
      break;
  }
  // Each warp reads its rows and columns, after they were written once.
  const double lines = rows * (tile.warp_columns + 1) + columns * (tile.warp_rows + 1);
  return std::max(
      {rows * columns * depth * size / kTensorBytes, lines * depth * size / kSharedBytes, cache});
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

std::string ProductTile::name() const {
  static constexpr const char* kKinds[] = {"rows_", "tensor_", "plain_"};
  const std::string tile = std::to_string(rows) + "x" + std::to_string(columns);
  return kKinds[static_cast<int>(kind)] + tile +
         (kind == Kind::Rows ? "" : "x" + std::to_string(depth));
}

std::vector<ProductTile> product_tiles(DType dtype, Along left, Along right,
                                       const ProductDevice& device) {
  using Kind = ProductTile::Kind;
  const auto bytes = static_cast<std::int64_t>(size_of(dtype));
  std::vector<ProductTile> tiles;
  if (right != Along::Neither) {
    // Segments of 64 bytes, but that a thread's sums stay in registers.
    const int width = right == Along::Columns ? 16 : bytes == 1 ? 64 : 32;
    const int rows = right == Along::Rows && bytes == 1 ? 4 : 8;
    tiles.push_back({Kind::Rows, 1, width, 0, 1, 8, 0});
    tiles.push_back({Kind::Rows, rows, width, 0, 1, 8, 0});
  }
  const bool tensor = device.tensor_cores && left != Along::Neither && right != Along::Neither;
  if (tensor && bytes == 2) {
    tiles.push_back({Kind::Tensor, 16, 64, 64, 1, 4, 4});
    tiles.push_back({Kind::Tensor, 64, 64, 64, 2, 2, 3});
    tiles.push_back({Kind::Tensor, 128, 128, 32, 2, 4, 4});
  }
  if (tensor && bytes == 1 && left == Along::Rows) {
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

double product_cycles(const ProductTile& tile, const ProductShape& shape,
                      const ProductDevice& device) {
  const double bytes =
      static_cast<double>(shape.batches) * static_cast<double>(shape.element_bytes) *
      (static_cast<double>(shape.rows) * static_cast<double>(shape.depth) +
       static_cast<double>(shape.columns) * static_cast<double>(shape.depth + shape.rows));
  const double memory = bytes / (device.multiprocessors * kMemoryBytes);
  const std::int64_t blocks =
      shape.batches * ceil_of(shape.rows, tile.rows) * ceil_of(shape.columns, tile.columns);
  const std::int64_t resident = std::max<std::int64_t>(
      1, std::min(
             kResidentThreads / tile.threads(),
             device.max_shared_bytes / (tile.shared_bytes(shape.element_bytes) + kReservedBytes)));
  const double depth = tile.depth != 0
                           ? static_cast<double>(ceil_of(shape.depth, tile.depth) * tile.depth)
                           : static_cast<double>(shape.depth);
  const double area = static_cast<double>(tile.rows) * tile.columns;
  const double steps = tile.depth != 0
                           ? depth / tile.depth
                           : depth * tile.columns * static_cast<double>(shape.element_bytes) /
                                 (16.0 * tile.threads());
  const double busy = busy_cycles(tile, shape, depth);
  const double alone =
      kMemoryLatency + steps * kStepLatency + area / tile.threads() * kElementLatency;
  double waves = 0;
  const std::int64_t at_once = resident * device.multiprocessors;
  if (blocks >= at_once)
    waves = static_cast<double>(blocks / at_once) *
            std::max(static_cast<double>(resident) * busy, alone);
  if (const std::int64_t rest = blocks % at_once; rest != 0)
    waves += std::max(static_cast<double>(ceil_of(rest, device.multiprocessors)) * busy, alone);
  return std::max(memory, waves);
}

std::size_t cheapest_tile(std::span<const ProductTile> tiles, const ProductShape& shape,
                          const ProductDevice& device) {
  std::size_t best = 0;
  double least = product_cycles(tiles[0], shape, device);
  for (std::size_t k = 1; k < tiles.size(); ++k) {
    const double cycles = product_cycles(tiles[k], shape, device);
    if (cycles < least) {
      least = cycles;
      best = k;
    }
  }
  return best;
}

}  // namespace heddle::jit::cuda
