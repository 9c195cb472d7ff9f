// What several recipes build with: masks, numbers from indices, windows.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "jit/lower/index.h"
#include "jit/lower/nest_context.h"

namespace heddle::jit {

/// A bool scalar; none holds everywhere.
using Mask = std::optional<Scalar>;
inline ScalarId id_of(const Mask& mask) { return mask ? mask->id : kNoScalar; }

/// `left op right` of indices.
Scalar compare(NestBuilder& b, ir::ScalarOp op, const SymExpr& left, const SymExpr& right);
/// Where both hold.
Mask both(NestBuilder& b, const Mask& first, const Mask& second);
/// `mask` and left < right, without the comparison where it is known to hold.
Mask where_less(NestBuilder& b, const Mask& mask, const SymExpr& left, const SymExpr& right);
/// `value` where the mask holds, `otherwise` elsewhere.
Scalar select(NestBuilder& b, const Mask& mask, Scalar value, Scalar otherwise);
Scalar zero(NestBuilder& b, DType dtype);
/// Whether `x` comes strictly before `y` in the order of sort: NaN after all others.
Scalar comes_before(NestBuilder& b, Scalar x, Scalar y, bool descending);
/// Steps in which halving finds a place among 0 .. count.
std::int64_t halvings(std::int64_t count);
/// Whether what is at a position counted in i64 precedes; `open` holds where there is such a position.
using Precedes = std::function<Scalar(Scalar position, Scalar open)>;
/// The first of the positions from `low` up to `high` that does not precede, or `high`, found by halving in `steps`; those
/// that precede come first.
Scalar first_that_does_not(NestBuilder& b, Scalar low, Scalar high, const SymExpr& steps,
                           const Precedes& precedes);
/// What joins an update to what is there: none where it replaces that.
std::optional<ir::ScalarOp> join_of(std::string_view reduction);
/// The smallest number of `dtype`: -inf for floats.
Scalar lowest(NestBuilder& b, DType dtype);
/// A value of a tensor as a position in a dimension of `size`: negative ones count from the end, others
/// are reported as errors where `mask` holds.
SymExpr wrapped_index(NestContext& ctx, Scalar value, const SymExpr& size, const Mask& mask);

/// The taps along one dimension of a window, for one position of the result. Tap number a of `extent` is
/// kernel element tap + tap_step * a and reads floor((position + position_step * a) / divisor).
struct TapLoop {
  SymExpr extent;
  SymExpr tap;
  std::int64_t tap_step = 1;
  SymExpr position;
  std::int64_t position_step = 1;
  std::int64_t divisor = 1;  ///< a tap that it does not divide reads nothing
  SymExpr kernel;            ///< taps from here on do not exist; checked if check_tap
  SymExpr size;              ///< of the input
  bool check_tap = false;
  bool check_low = false;
  bool check_high = false;
};

/// What a tap does: the input position, the kernel element, where it exists, the values so far. Gives
/// the next values.
using TapBody = std::function<std::vector<Scalar>(const Index& position, const Index& tap,
                                                  const Mask& mask, std::span<const Scalar> now)>;

/// Serial loops over the taps in row-major order, `values` carried through them.
std::vector<Scalar> for_each_tap(NestBuilder& b, std::span<const TapLoop> loops,
                                 std::vector<Scalar> values, const TapBody& body);

/// The attributes of a window that slides over an input of spatial sizes `input`.
struct WindowShape {
  explicit WindowShape(const ir::Node& node);

  std::vector<std::int64_t> strides, pads_low, pads_high, dilations;
  Index kernel;
  Index input;
  bool rounds_up = false;  ///< the last window may reach past the padded end

  /// First and last + 1 tap that lies inside the input, for the window at `at`.
  SymExpr first_tap(std::size_t d, const SymExpr& at) const;
  SymExpr end_tap(std::size_t d, const SymExpr& at) const;
  /// The taps of the window at `at`. `uniform`: `at` is the same for a whole vector loop, so that the loop
  /// can run over the taps inside only.
  TapLoop taps(std::size_t d, const SymExpr& at, bool uniform) const;
  /// The taps through which the window, sliding over the result instead, reaches `at`.
  TapLoop transposed_taps(std::size_t d, const SymExpr& at) const;
};

/// That of a convolution by weights [m, c, k…] of x [n, in…, c].
WindowShape channels_last_window(NestContext& ctx);

/// Elements of a group of panels, 4 bytes: of packed_int8_matmul's and of packed_bf16_matmul's; and the groups of a part of a
/// panel that stays in the first-level cache while the rows of a tile pass over it: 24 KiB.
inline constexpr std::int64_t kByteGroup = 4;
inline constexpr std::int64_t kBf16Group = 2;
inline constexpr std::int64_t kGroupDepth = 96;

/// Depth of the part of a matrix's columns that stays in the first-level cache while all rows of a tile pass over it, a few
/// at a time: 32 KiB of f32. 96 takes 1 % longer.
inline constexpr std::int64_t kPanelDepth = 128;

/// A copy, in `dtype`, of a part of at most kPanelDepth rows and kPanelColumns columns.
TileOperand copied_part(NestBuilder& b, const TileOperand& part, const SymExpr& depth,
                        const SymExpr& columns, DType dtype);

/// A copy, in `dtype`, of a part of a tile's rows, kPanelDepth deep at most.
TileOperand copied_rows(NestBuilder& b, const TileOperand& part, std::int64_t tile_rows,
                        const SymExpr& rows, const SymExpr& depth, DType dtype);

/// As copied_part(), of a part of numbers of a few bits (Dequantised::bits): rows [first, first + depth), whole words, dequantised in
/// f32, in all columns of a panel.
TileOperand copied_numbers(NestBuilder& b, const TileOperand& whole, const SymExpr& first,
                           const SymExpr& depth);

/// Rows of a tile of a left operand, of which groups of neighbours along the depth are multiplied at a time.
struct GroupedRows {
  DType dtype;
  std::int64_t group;      ///< elements
  std::int64_t tile_rows;  ///< at most
  SymExpr rows;
  SymExpr groups;        ///< kGroupDepth at most
  SymExpr first, depth;  ///< the column that they begin with, of so many
};
/// A copy of them with each group in one piece, and zeros beyond the last column. `from`: element (0, first).
TileOperand copied_groups(NestBuilder& b, const TileOperand& from, const GroupedRows& part);
/// The same where rows are neighbours in memory: groups of neighbouring rows lie side by side in the copy, which vectors of rows are put
/// together to.
TileOperand turned_groups(NestBuilder& b, const TileOperand& from, const GroupedRows& part);

/// `groups` rows, kGroupDepth at most, of a panel [q, w, group] from element `first` on, as they lie or, where the elements of
/// a group do not lie side by side, in a copy where they do.
/// @param panels  [p, q, w, group] of `dtype`
TileOperand group_panel(NestBuilder& b, const AffineOperand& panels, DType dtype,
                        const SymExpr& first, const SymExpr& groups, const SymExpr& columns);

/// A contraction of groups of bytes, kGroupDepth of them at most, by all rows of a tile. Where the target multiplies them by pairs of
/// 16 bits (multiplies_pairs), a copy of the left operand in i16 is what is multiplied, unless the sums of pairs fit.
/// @param pairs_fit  whether they do, where that is known as the kernel runs: a bool
void contract_bytes(NestBuilder& b, const LowerOptions& options, ContractStmt contraction,
                    const Mask& pairs_fit);

/// How far apart the rows of all matrices of `left` are, if equally, so that a product of sizes `out` reads them as those
/// of one: with dimensions of size 1 passed over, each dimension begins where the one inside it ends.
std::optional<SymExpr> even_row_stride(const NestBuilder& b, const AffineOperand& left,
                                       std::span<const SymExpr> out);

/// Makes each tile of `tile_rows` x `tile_columns` of the form's matrices, which together are the elements of `out`, an
/// iteration of the parallel axis, and names in `form` where it begins.
void split_into_tiles(NestBuilder& b, std::span<const SymExpr> out, std::int64_t tile_rows,
                      std::int64_t tile_columns, ProductForm& form);

}  // namespace heddle::jit
