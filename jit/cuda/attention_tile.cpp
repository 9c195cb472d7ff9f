#include "jit/cuda/attention_tile.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "jit/cuda/rates.h"
#include "jit/nest.h"

namespace heddle::jit::cuda {
namespace {

constexpr auto kTileKeys = static_cast<int>(AttentionForm::kKeys);

// Rates of one multiprocessor, in a cycle.
constexpr double kTensorProducts = 1024;  ///< of 16 bits, by mma.sync
constexpr double kExponentials = 16;
constexpr double kScalars = 128;  ///< other operations
/// On a score: scaled, compared, shifted, added up, rounded.
constexpr double kScoreScalars = 6;
// Cycles that nothing hides.
constexpr double kStepLatency =
    400;  ///< of a tile's barrier, its two chains of products and its largest scores
constexpr double kPartLatency = 35;  ///< of one part of an element that is joined of many
constexpr std::int64_t kMostParts = 128;

std::int64_t ceil_of(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
int padded(std::int64_t size) { return static_cast<int>(ceil_of(size, 16) * 16); }

std::int64_t places_of(const AttentionTile& tile, const AttentionShape& shape) {
  return shape.heads / shape.group * ceil_of(shape.rows(), tile.rows());
}

/// Tiles of keys that a block meets, of all blocks on average.
double steps_of(const AttentionTile& tile, const AttentionShape& shape, std::int64_t parts) {
  const auto keys = static_cast<double>(shape.keys);
  double seen = keys;
  // Of the rows' last keys the block goes to that of its last row.
  if (shape.causal)
    seen = std::min(keys, keys - static_cast<double>(shape.queries) / 2 +
                              tile.rows() / 2.0 / static_cast<double>(shape.group));
  const double steps =
      std::max(0.0, seen) / kTileKeys + (shape.keys % kTileKeys != 0 || shape.causal ? 0.5 : 0.0);
  if (parts == 1) return steps;
  // The first parts, of which there are the most, have whole steps.
  const double each = AttentionTile::kPartTiles;
  return std::ceil(std::ceil(steps / each) / static_cast<double>(parts)) * each;
}

/// Cycles in which the device's memory gives all keys and values once.
double memory_cycles(const AttentionTile& tile, const AttentionShape& shape,
                     const ProductDevice& device) {
  const double bytes = static_cast<double>(shape.key_heads) * static_cast<double>(shape.keys) *
                       (tile.depth + tile.columns) * (tile.plain ? 4.0 : 2.0);
  return bytes / (device.multiprocessors * kMemoryBytes);
}

std::int64_t resident_blocks(const AttentionTile& tile, const ProductDevice& device) {
  return resident_blocks(tile.threads(), tile.registers, tile.shared_bytes(), device);
}

/// Cycles of a multiprocessor that a tile of keys takes: the most of its units'.
double busy_cycles(const AttentionTile& tile) {
  const double rows = tile.rows();
  const double scores = rows * kTileKeys;
  const double products = scores * (tile.depth + tile.columns) /
                          (tile.plain        ? kScalars
                           : tile.warpgroups ? 2 * kTensorProducts
                                             : kTensorProducts);
  // Each warp row reads all keys and values, after they were written once.
  const double lines = kTileKeys * (tile.depth + tile.columns) * (tile.plain ? 4.0 : 2.0);
  const double readers = tile.warpgroups ? tile.warp_rows / 4.0 : tile.warp_rows;
  const double shared = lines * (readers + 1) / kSharedBytes;
  const double scalars = (scores * kScoreScalars + rows * tile.columns) / kScalars;
  const double exponentials = scores / kExponentials;
  // What a plain tile multiplies goes the way of other operations.
  if (tile.plain) return std::max({products + scalars, shared, exponentials});
  // Of what takes longest and what comes next to it, half of the latter is hidden (by warpgroups on an H100: 1200 to 1700 cycles were
  // measured).
  std::array<double, 3> parts = {products, scalars + exponentials, shared};
  std::ranges::sort(parts);
  return parts[2] + parts[1] / 2;
}

}  // namespace

std::int64_t AttentionTile::shared_bytes() const {
  if (plain) {
    const std::int64_t stages = 2 * kTileKeys * (depth / 4 + 1 + columns / 4 + 1);
    return 16 * (stages + std::int64_t{rows()} * (depth / 4 + 1 + kTileKeys / 4 + 1));
  }
  constexpr std::int64_t kStages = 3;  // of warpgroups, each with two mbarriers
  if (warpgroups)
    return 16 * (kStages * keys() * (depth / 8 + columns / 8) + std::int64_t{rows()} * (depth / 8) +
                 kStages);
  const std::int64_t key_line = depth / 8 + 1;
  const std::int64_t value_line = columns / 8 + 1;
  const std::int64_t stage = keys() * (key_line + value_line);
  const std::int64_t lines = stage + std::max(stage, rows() * key_line);
  const std::int64_t sums = std::int64_t{rows()} * (warp_keys * (columns + 8 + 1) + 1);
  return std::max(16 * lines, 4 * sums);
}

std::string AttentionTile::name() const {
  return (plain        ? "plain_"
          : warpgroups ? "wgmma_"
                       : "flash_") +
         std::to_string(rows()) + "x" + std::to_string(keys());
}

std::vector<AttentionTile> attention_tiles(DType dtype, std::int64_t depth, std::int64_t columns,
                                           bool masked, const ProductDevice& device) {
  std::vector<AttentionTile> tiles;
  const bool plain = dtype == DType::F32;
  if (!plain && !device.tensor_cores) return tiles;
  const int d = padded(depth);
  const int c = padded(columns);
  if (plain) {
    for (const int warp_rows : {1, 2, 4}) tiles.push_back({d, c, 1, warp_rows, 2, 96, true});
  } else {
    tiles.push_back({d, c, 1, 1, 4});
    tiles.push_back({d, c, 1, 4, 1});
    // Two tiles of rows share each fragment of keys and values where registers hold both.
    const bool both = d + c <= 128 && !masked;
    tiles.push_back(both ? AttentionTile{d, c, 2, 4, 1} : AttentionTile{d, c, 1, 8, 1});
    const auto is_whole = [](int size) { return size == 64 || size == 128; };
    if (device.warpgroups && is_whole(d) && is_whole(c))
      tiles.push_back({d, c, 1, 8, 1, d + c <= 128 ? 128 : 248, false, true});
  }
  std::erase_if(tiles, [&](const AttentionTile& tile) {
    return tile.shared_bytes() > device.max_shared_bytes;
  });
  return tiles;
}

double attention_cycles(const AttentionTile& tile, const AttentionShape& shape,
                        const ProductDevice& device, std::int64_t parts) {
  const double steps = steps_of(tile, shape, parts);
  double busy = steps * busy_cycles(tile);
  const double elements = static_cast<double>(tile.rows()) * tile.columns / tile.threads();
  // What one tile of queries meets comes from memory, not from the second-level cache.
  const double step = shape.rows() <= tile.rows() ? kMemoryLatency : kStepLatency;
  double alone = kMemoryLatency + steps * step + elements * kElementLatency;
  double joined = 0;
  if (parts != 1) {
    const double rows = static_cast<double>(std::min<std::int64_t>(tile.rows(), shape.rows()));
    const double share = rows * (tile.columns + 2) * 4 / kCacheBytes;
    busy += share;
    alone += share;
    joined = kJoinLatency + std::max(share, kPartLatency) * static_cast<double>(parts);
  }
  const double waves = wave_cycles(places_of(tile, shape) * parts, resident_blocks(tile, device),
                                   busy, alone, device);
  return std::max(memory_cycles(tile, shape, device), waves) + joined;
}

std::int64_t cheapest_parts(const AttentionTile& tile, const AttentionShape& shape,
                            const ProductDevice& device) {
  const std::int64_t places = places_of(tile, shape);
  if (!tile.parts_keys() || places == 0 || places > kMostSharedTiles) return 1;
  const std::int64_t most =
      std::min(kMostParts, ceil_of(shape.keys, kTileKeys * AttentionTile::kPartTiles));
  return cheapest_parts(
      places, most, resident_blocks(tile, device), device,
      [&](std::int64_t parts) { return attention_cycles(tile, shape, device, parts); });
}

TileChoice cheapest_tile(std::span<const AttentionTile> tiles, const AttentionShape& shape,
                         const ProductDevice& device) {
  TileChoice best;
  double least = 0;
  for (std::size_t k = 0; k < tiles.size(); ++k) {
    const std::int64_t parts = cheapest_parts(tiles[k], shape, device);
    const double cycles = attention_cycles(tiles[k], shape, device, parts);
    if (k != 0 && cycles >= least) continue;
    least = cycles;
    best = {k, parts};
  }
  return best;
}

}  // namespace heddle::jit::cuda
