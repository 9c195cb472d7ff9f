#include "jit/cuda/attention_tile.h"

#include <algorithm>

#include "jit/nest.h"

namespace heddle::jit::cuda {
namespace {

constexpr auto kKeys = static_cast<int>(AttentionForm::kKeys);

// Rates of one multiprocessor, in a cycle.
constexpr double kTensorProducts = 1024;  ///< of 16 bits, by mma.sync
constexpr double kSharedBytes = 128;
constexpr double kExponentials = 16;
constexpr double kScalars = 128;  ///< other operations
/// On a score: scaled, compared, shifted, added up, rounded.
constexpr double kScoreScalars = 6;
// Cycles that nothing hides.
constexpr double kMemoryLatency = 800;  ///< from a block's start to its first scores
constexpr double kStepLatency =
    400;  ///< of a tile's barrier, its two chains of products and its largest scores
constexpr double kElementLatency = 20;  ///< of a thread's element on its way out

std::int64_t ceil_of(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
int padded(std::int64_t size) { return static_cast<int>(ceil_of(size, 16) * 16); }

/// Tiles of keys that a block meets, of all blocks on average.
double steps_of(const AttentionTile& tile, const AttentionShape& shape) {
  const auto keys = static_cast<double>(shape.keys);
  double seen = keys;
  // Of the rows' last keys the block goes to that of its last row.
  if (shape.causal)
    seen = std::min(keys, keys - static_cast<double>(shape.queries) / 2 + tile.rows() / 2.0);
  return std::max(0.0, seen) / kKeys + (shape.keys % kKeys != 0 || shape.causal ? 0.5 : 0.0);
}

/// Cycles of a multiprocessor that a tile of keys takes: the most of its units'.
double busy_cycles(const AttentionTile& tile) {
  const double rows = tile.rows();
  const double scores = rows * kKeys;
  const double products =
      scores * (tile.depth + tile.columns) / (tile.plain ? kScalars : kTensorProducts);
  // Each warp row reads all keys and values, after they were written once.
  const double lines = kKeys * (tile.depth + tile.columns) * (tile.plain ? 4.0 : 2.0);
  const double shared = lines * (tile.warp_rows + 1) / kSharedBytes;
  const double scalars = (scores * kScoreScalars + rows * tile.columns) / kScalars;
  // What a plain tile multiplies goes the way of other operations.
  const double arithmetic = tile.plain ? products + scalars : std::max(products, scalars);
  return std::max({arithmetic, shared, scores / kExponentials});
}

}  // namespace

std::int64_t AttentionTile::shared_bytes() const {
  if (plain) {
    const std::int64_t stages = 2 * kKeys * (depth / 4 + 1 + columns / 4 + 1);
    return 16 * (stages + std::int64_t{rows()} * (depth / 4 + 1 + kKeys / 4 + 1));
  }
  const std::int64_t key_line = depth / 8 + 1;
  const std::int64_t value_line = columns / 8 + 1;
  const std::int64_t stage = kKeys * (key_line + value_line);
  const std::int64_t lines = stage + std::max(stage, rows() * key_line);
  const std::int64_t sums = std::int64_t{warp_keys} * rows() * (columns + 8 + 1);
  return std::max(16 * lines, 4 * sums);
}

std::string AttentionTile::name() const {
  return (plain ? "plain_" : "flash_") + std::to_string(rows()) + "x" + std::to_string(kKeys);
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
  }
  std::erase_if(tiles, [&](const AttentionTile& tile) {
    return tile.shared_bytes() > device.max_shared_bytes;
  });
  return tiles;
}

double attention_cycles(const AttentionTile& tile, const AttentionShape& shape,
                        const ProductDevice& device) {
  const std::int64_t blocks = shape.heads * ceil_of(shape.queries, tile.rows());
  const std::int64_t resident =
      resident_blocks(tile.threads(), tile.registers, tile.shared_bytes(), device);
  const double steps = steps_of(tile, shape);
  const double busy = steps * busy_cycles(tile);
  const double elements = static_cast<double>(tile.rows()) * tile.columns / tile.threads();
  const double alone = kMemoryLatency + steps * kStepLatency + elements * kElementLatency;
  const std::int64_t at_once = resident * device.multiprocessors;
  const std::int64_t full = blocks / at_once;
  double waves = static_cast<double>(full) * std::max(static_cast<double>(resident) * busy, alone);
  if (const std::int64_t rest = blocks % at_once; rest != 0)
    waves += std::max(static_cast<double>(ceil_of(rest, device.multiprocessors)) * busy, alone);
  return waves;
}

std::size_t cheapest_tile(std::span<const AttentionTile> tiles, const AttentionShape& shape,
                          const ProductDevice& device) {
  std::size_t best = 0;
  for (std::size_t k = 1; k < tiles.size(); ++k)
    if (attention_cycles(tiles[k], shape, device) < attention_cycles(tiles[best], shape, device))
      best = k;
  return best;
}

}  // namespace heddle::jit::cuda
