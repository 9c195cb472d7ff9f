// Products that are read in equal parts, as the gates of an LSTM are.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Finds products whose columns are read in equal parts of which elements are combined, and puts results of
/// packed_split_matmul in the place of the parts.
///
///   %1 = matmul(%x: f32[1, 256], %w: f32[256, 1024])
///   %2 = add(%1, %b: f32[1024])
///   %i = slice(%2) {start = [0, 0], limit = [1, 256]}, %f = slice(%2) {start = [0, 256], …} …
///     ==>
///   %p0, %p1, %p2, %p3 = packed_split_matmul(%x, %panels) {parts = 4}
///   %i = add(%p0, slice(%b) {start = [0], limit = [256]}), …
///
/// A panel has columns of all parts: what combines their elements is done with the product, by the thread that has made it, and
/// the sums of no gate go through memory.
///
/// Of one graph, which outlives it.
class SplitProducts {
 public:
  /// Columns of a panel that belong to one part of so many columns; 0: a part has no whole number of them. Two vectors of f32, where that
  /// is possible, so that what is done with sums waits less for itself: an LSTM of 256 takes 4 % longer with one, 3 % with four.
  static std::int64_t unit_columns(std::int64_t columns) {
    return columns % 32 == 0 ? 32 : columns % 16 == 0 ? 16 : 0;
  }

  explicit SplitProducts(const ir::Graph& graph, const LowerOptions& options);

  /// Parts of the columns of a product of f32 or f64, which packed_split_matmul takes; 0: it is not read in parts.
  std::int64_t parts_of(const ir::Node& product) const;
  /// The results of the product, which stand in for it from now on; gives what replaces the product itself, which nothing reads.
  std::vector<ir::Value> replace(ir::Rewriter& rewriter, const ir::Node& product,
                                 std::vector<ir::Value> results);
  /// What replaces a slice of a product that was replaced.
  std::optional<std::vector<ir::Value>> part(ir::Rewriter& rewriter, const ir::Node& slice);

 private:
  /// A product and what is computed of it element by element before it is sliced.
  struct Chain {
    std::vector<const ir::Node*> nodes;  ///< the product first
    std::int64_t parts = 0;
    std::int64_t columns = 0;  ///< of a part
    std::vector<ir::Value> results{};
    std::map<std::pair<const ir::Node*, std::int64_t>, ir::Value> made{};
  };
  struct Slice {
    const ir::Node* product;
    std::int64_t part;
  };

  void find(const ir::Node& product);
  /// Whether an element of the result takes no elements of operands but those at its own place.
  bool is_pointwise(const ir::Node& node) const;
  /// Which part of the last dimension a slice reads, of how many; nothing where it reads anything else.
  static std::optional<std::pair<std::int64_t, std::int64_t>> part_read(const ir::Node& slice);
  bool are_combined(const std::vector<const ir::Node*>& slices) const;
  ir::Value part_of(ir::Rewriter& rewriter, Chain& chain, ir::Value value, std::int64_t part);

  const LowerOptions& options_;
  std::unordered_map<const ir::Node*, std::vector<const ir::Node*>> readers_;
  std::set<const ir::Node*> kept_;  ///< read by more than nodes of the graph
  std::map<const ir::Node*, Chain> chains_;
  std::unordered_map<const ir::Node*, Slice> slices_;
};

}  // namespace heddle::jit
