// The loop-nest IR: one kernel as loops over symbolic extents. Lowering makes it, both emitters (LLVM IR
// for the CPU, CUDA C++ text) translate it, the same nest for both.
//
// The machine it describes:
//   - One parallel axis at the top. Its iterations are independent: threads on the CPU, blocks on CUDA.
//   - Inside, a block of statements. `Vector` loops have independent iterations too (up to their
//     reductions): SIMD lanes on the CPU, the threads of the block on CUDA. Vector loops do not nest.
//   - Everything outside vector loops is uniform: computed once on the CPU, by every thread alike on
//     CUDA (where stores and atomics at this level are done by one thread).
//   - `Local` buffers belong to one parallel iteration: stack or scratch on the CPU, shared memory on CUDA.
//     What one statement at block level writes, later ones see (emitters put the barriers).
//
// Scalars are SSA: each has an id, unique in the nest, defined by exactly one statement that precedes
// its uses in an enclosing block.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/boxed.h"
#include "base/hash.h"
#include "base/symexpr.h"
#include "ir/scalar.h"

namespace heddle::jit {

using base::Symbol;
using base::SymExpr;
using ScalarId = std::uint32_t;
using NestBufferId = std::uint32_t;
inline constexpr std::uint32_t kNoScalar = 0xffffffffu;

/// Memory a nest touches. Global buffers are kernel parameters, in order, before all Local ones.
struct NestBuffer {
  enum class Scope : std::uint8_t { Global, Local };
  std::string name;  ///< "b0", "l0"
  DType dtype = DType::F32;
  Scope scope = Scope::Global;
  bool read = false;
  bool written = false;
  SymExpr count;  ///< elements; of a Local one it may depend on size parameters
  std::int64_t max_count =
      0;  ///< Local: constant bound if known (then on the stack), else 0: scratch
};

struct Stmt;
using Block = std::vector<Stmt>;

/// result = constant
struct ConstStmt {
  ScalarId result;
  DType dtype;
  double number = 0;         ///< for floating dtypes
  std::int64_t integer = 0;  ///< for integers and bool
};

/// result = a number that each call is given, in place of a constant: of f32 its bits are the low half of the parameter, an i32 is the
/// parameter. It lies within `range`. Only on the CPU.
struct GivenStmt {
  enum class Range : std::uint8_t {
    Any,       ///< finite
    Unsigned,  ///< whole, 0 to 255: a zero point of u8
    Signed,    ///< whole, -128 to 127: a zero point of i8
    Scale,     ///< 2^-60 to 2^60, so that its reciprocal is a normal number
  };
  ScalarId result;
  DType dtype;
  std::uint32_t parameter;  ///< of size_count
  Range range = Range::Any;
};

/// result = op(operands)
struct ApplyStmt {
  ScalarId result;
  ir::ScalarOp op;
  DType dtype;  ///< of the result
  std::vector<ScalarId> operands;
  /// Of Exp: the operand is known to be 0 or less, or NaN, and a subnormal result may be 0.
  bool up_to_zero = false;
};

/// result = convert(operand); rules of ir::ElementBuilder::convert
struct ConvertStmt {
  ScalarId result;
  DType dtype;
  ScalarId operand;
};

/// result = the bits of operand, f32 or f64, as an integer as wide. Only on the CPU.
struct BitsStmt {
  ScalarId result;
  DType dtype;
  ScalarId operand;
};

/// result = index, as i64
struct IndexStmt {
  ScalarId result;
  SymExpr index;
};

/// Binds `symbol` (a temp) to an i64 or i32 scalar, clamped into [low, high]. When `check` is not 0 and the value
/// lies outside, the kernel's status word becomes `check` (first one wins), if `mask` holds.
struct BindStmt {
  Symbol symbol;
  ScalarId operand;
  SymExpr low;
  SymExpr high;
  std::int32_t check = 0;
  ScalarId mask = kNoScalar;
};

/// result = buffer[index], element index from the buffer's start. With a mask: read only where it is true,
/// zero elsewhere.
struct LoadStmt {
  ScalarId result;
  DType dtype;
  NestBufferId buffer;
  SymExpr index;
  ScalarId mask = kNoScalar;
};

/// buffer[index] = operand (where mask holds). Iterations write distinct elements unless `combine` says
/// how equal ones join (scatter with reduction; atomic on CUDA, plain on the CPU, where such nests have
/// a serial axis or one parallel iteration).
struct StoreStmt {
  NestBufferId buffer;
  SymExpr index;
  ScalarId operand;
  ScalarId mask = kNoScalar;
  std::optional<ir::ReduceOp> combine;
  bool streaming =
      false;  ///< larger than the caches and not read soon: non-temporal stores allowed
};

/// A reduction carried by a loop: order free within the loop's fixed combination tree.
/// `contributions` are defined in the body; `results` exist after the loop. Both have width_of(op) entries,
/// but for contributions of ArgMax/ArgMin: value and i64 index; of Welford: one, the value.
/// dtype is the accumulator's (of the first component).
struct LoopReduction {
  ir::ReduceOp op;
  DType dtype;
  std::vector<ScalarId> contributions;
  std::vector<ScalarId> results;
  ScalarId mask = kNoScalar;  ///< contributes only where true
};

/// A value carried from one iteration to the next (Serial loops only): scans, online softmax.
struct LoopCarried {
  DType dtype;
  ScalarId initial;  ///< defined before the loop
  ScalarId current;  ///< its value inside the body
  ScalarId next;     ///< defined in the body
  ScalarId result;   ///< after the loop (initial when there is no iteration)
};

/// for axis in [0, extent)
struct ForStmt {
  enum class Kind : std::uint8_t {
    Serial,
    Vector,  ///< independent iterations; see the machine above
    Unroll,  ///< Serial with a small constant extent, to be unrolled
    Scan,  ///< Serial, but all that is carried is one sum, to which an iteration adds what does not depend on it: CUDA's
           ///< threads share the loop, and add in an order of their own
  };
  Symbol axis;
  SymExpr extent;
  Kind kind = Kind::Serial;
  std::vector<LoopReduction> reductions;
  std::vector<LoopCarried> carried;
  std::shared_ptr<Block> body;
};

/// if (condition) body. Uniform (outside vector loops) only.
struct IfStmt {
  ScalarId condition;
  std::shared_ptr<Block> body;
};

/// A direction in which windows move over images.
struct WindowAxis {
  std::int64_t taps;      ///< elements of a window
  std::int64_t stride;    ///< from one window to the next
  std::int64_t pad;       ///< elements of padding before an image
  std::int64_t dilation;  ///< from one tap to the next
  SymExpr windows;        ///< of an image
  SymExpr size;           ///< of an image
  SymExpr memory_stride;  ///< elements of the buffer
};

/// Windows that move over images, as the columns of a matrix: see TileOperand.
struct Windows {
  /// An element of a buffer of the images' dtype.
  struct Element {
    NestBufferId buffer;
    SymExpr index;
  };
  SymExpr first;                     ///< number of the window that is column 0
  std::vector<WindowAxis> axes;      ///< outermost first; images are numbered outside of these
  std::int64_t channels = 0;         ///< not 0: so many neighbouring rows are the channels of a tap
  std::optional<Element> outside{};  ///< what lies outside of images; none: 0
};

/// Bytes that stand for numbers: element (row, column) of an operand for (byte - zero) * scale, multiplied in f32 and rounded
/// to `dtype`, where zero and scale are elements (row / group, column) of matrices of their own.
///
/// With `bits`, element (row, column) of the buffer, which are words of i32, holds 32 / bits rows of its column instead, as
/// bit_panels says (ir/ops/bit_panels.cpp). They may be multiplied by the scale after they were added up within a group, and
/// need not be rounded. The contraction accumulates, or is that of a product.
/// Words, scales and zero points of all of the tile's columns are there to be read. The left operand may then be `fixed`.
struct Dequantised {
  /// Element (row, column) is buffer[base + row*row_stride + column*column_stride].
  struct Part {
    NestBufferId buffer;
    SymExpr base;
    SymExpr row_stride;
    SymExpr column_stride;
  };
  /// Rows of the left operand, of i8, as fixed-point numbers: number k of a row is scale(row, k / block) times the sum over d
  /// of digit d times 256^d, where digit d is element (row, k) moved by d * digit_stride. What a block adds is computed in
  /// integers.
  struct FixedRows {
    std::int64_t digits;  ///< 1 to 3
    std::int64_t block;   ///< whole words of rows; 128 at most
    SymExpr digit_stride;
    Part scale;  ///< f32, of (row, block)
    Part sums;   ///< i32, of (row, block): of digit 0; others are moved by d * sum_stride
    SymExpr sum_stride;
  };
  DType dtype;               ///< f16, bf16 or f32
  Part scale;                ///< f16, bf16 or f32
  std::optional<Part> zero;  ///< bytes or i32; none: 0
  std::int64_t group = 0;    ///< rows that share a row of those; 0: all
  std::int64_t bits = 0;     ///< 2, 4 or 8: of a number in a word; 0: bytes
  std::optional<FixedRows> fixed{};
};

/// Calls `visit` with each part of a Dequantised, const or not: what is read beside the operands.
void for_each_part(auto& dequantised, auto&& visit) {
  visit(dequantised.scale);
  if (dequantised.zero) visit(*dequantised.zero);
  if (!dequantised.fixed) return;
  visit(dequantised.fixed->scale);
  visit(dequantised.fixed->sums);
}

/// One operand of a contraction: element (row, column) is buffer[base + row*row_stride + column*column_stride].
///
/// With windows, column c is window number first + c of all images and row r is tap r mod (taps of all axes) of channel
/// r / (taps of all axes), both row-major: the element lies row_stride channels, column_stride images and memory_stride
/// positions from `base`, where a position along an axis is window*stride + tap*dilation - pad. It is 0, or
/// what `outside` says, where a position lies outside of the image, which is not read.
struct TileOperand {
  NestBufferId buffer;
  SymExpr base;
  SymExpr row_stride;
  SymExpr column_stride;
  base::Boxed<Windows> windows{};
  base::Boxed<Dequantised> dequantised{};
};

/// acc[m, n] = (accumulate ? acc[m, n] : 0) + sum over k of a(m, k) * b(k, n), for m < rows, n < columns.
/// An element of a and b may stand for `group` neighbouring ones of the buffers, multiplied pair by pair and added up;
/// strides count the buffers' elements all the same.
/// acc is a Local row-major buffer of tile_rows x tile_columns of `dtype` (the accumulator: f32, f64, i32,
/// i64). Rows and columns beyond (rows, columns) are neither read from a and b nor meaningful in acc.
/// Block level only.
struct ContractStmt {
  /// What comes `count` times for each k: each time a and b are read so many elements further on.
  struct Run {
    SymExpr count;
    SymExpr a_stride;
    SymExpr b_stride;
  };
  NestBufferId acc;
  DType dtype;
  std::int64_t tile_rows;
  std::int64_t tile_columns;
  SymExpr rows;     ///< <= tile_rows
  SymExpr columns;  ///< <= tile_columns
  SymExpr depth;
  TileOperand a;  ///< rows x depth; neither windows nor dequantised
  TileOperand b;  ///< depth x columns
  bool accumulate = false;
  /// 4: of u8 in a, or i16 that hold such numbers, and of i8 in b, for an accumulator of i32; 2: of bf16 in both, for one of f32.
  std::int64_t group = 1;
  /// Of groups of u8 and i8: any u8 times each two neighbours in b, first and second or third and fourth of a group, add up to
  /// an i16.
  bool pairs_fit = false;
  bool tf32 = false;  ///< elements of f32 may be rounded to tf32
  /// Of groups of bf16 whose neighbours in b are not side by side: those are f32, or bf16, of which rows or columns lie side by
  /// side, and are rounded and put together first. The depth counts elements of the buffers; an odd one more of each row of a is
  /// read, and is finite.
  bool gathers = false;
  /// The sum is over these too, outermost first; nothing accumulates then. Either groups are multiplied, or both operands lie along the
  /// depth, whose neighbours are the lanes of a sum, and have the accumulator's dtype, and columns are few and known. No
  /// runs: as one that comes once.
  std::vector<Run> runs{};
  /// Of groups in runs: columns of b lie in panels of so many, 16 or 32, whose first elements are `panel_stride` apart; 0: all in one.
  std::int64_t panel_columns = 0;
  SymExpr panel_stride = 0;
  /// Elements of b that are read next, so many from here on, which matrix registers fetch meanwhile; they may be none of b's.
  SymExpr ahead = 0;
  std::int64_t ahead_count = 0;
};

struct Stmt {
  std::variant<ConstStmt, GivenStmt, ApplyStmt, ConvertStmt, BitsStmt, IndexStmt, BindStmt,
               LoadStmt, StoreStmt, ForStmt, IfStmt, ContractStmt>
      node;
};

/// Whether it gives a number that is the same wherever it stands.
inline bool is_number(const Stmt& statement) {
  return std::holds_alternative<ConstStmt>(statement.node) ||
         std::holds_alternative<GivenStmt>(statement.node);
}

/// Says of a product that its rows lie in groups, each of which is multiplied by a matrix of its own: row r by the first
/// matrix g with ends[g] > r, or by none.
struct ProductGroups {
  NestBufferId ends;  ///< i64; any values
  SymExpr offset;     ///< elements, of the first end
  SymExpr stride;
  SymExpr count;    ///< of groups
  SymExpr depth;    ///< of each matrix
  Symbol row_end;   ///< where the rows of a tile of the body end
  Symbol products;  ///< of each of its sums: depth, or 0 where they belong to no matrix

  /// Tiles of `tile_rows` rows that the groups and the rows of none may come to, each ending in one of its own.
  static SymExpr slots(const SymExpr& rows, const SymExpr& groups, std::int64_t tile_rows);
};

/// Says of a nest that it is one matrix product, so that an emitter may choose tiles of its own. The body then is, at
/// block level: scalars; binds of the three symbols to where a tile of the body begins; one contraction, not
/// accumulating; a serial loop over its rows and in it a vector loop over its columns, which read the sum of their
/// element and do all the rest. All but the binds speak of the place by the symbols only, not by the parallel axis.
///
/// Of groups, a serial loop comes before the binds, which finds the place, and there are two more symbols to bind.
struct ProductForm {
  Symbol batch;         ///< number of the matrix; of groups, some number where there is none
  Symbol row_begin;     ///< first row of the tile
  Symbol column_begin;  ///< first column
  SymExpr batches;      ///< in size parameters, as are the others
  SymExpr rows;
  SymExpr columns;
  std::optional<ProductGroups> groups{};  ///< there is one batch

  /// Tiles of a matrix's rows, at most.
  SymExpr row_tiles(std::int64_t tile_rows) const;
};

/// Says of a nest that it is attention, so that an emitter may choose tiles of its own. The body then is, at block
/// level: scalars; binds of the three symbols to where a tile of the body begins; vector loops that fill local
/// buffers; a serial loop over tiles of kKeys keys; and a serial loop over the tile's rows and in it a vector loop over
/// columns, which read the sum of their element and the total of their row and do all the rest. In the loop over
/// keys: scalars; a contraction that makes scores, rows x keys; a serial loop over rows and in it a vector loop over
/// keys, which reads each score, scales and hides it, and stores it; loops that turn scores into weights; and a
/// contraction that adds weights times values to the sums.
/// All but the binds speak of the place by the symbols only, not by the parallel axis.
struct AttentionForm {
  static constexpr std::int64_t kKeys = 64;
  Symbol batch;
  Symbol head;
  Symbol row_begin;     ///< first query of the tile
  SymExpr batches;      ///< in size parameters, as are the others
  SymExpr heads;        ///< of queries
  SymExpr key_heads;    ///< of keys and values
  SymExpr queries;      ///< of a head
  SymExpr keys;         ///< of a head
  NestBufferId totals;  ///< of the weights of each row
  double scale;         ///< what scores are multiplied by
  bool causal;          ///< query i sees no key beyond i + keys - queries
  bool masked;          ///< there is more to a score than scale and causal
};

/// One kernel.
struct Nest {
  std::string name;  ///< stable and readable: "add_gelu", "softmax"; not part of the key
  std::vector<NestBuffer> buffers;
  std::uint32_t size_count = 0;  ///< runtime parameters s0 … s(size_count-1), i64
  Symbol parallel_axis{Symbol::Kind::Axis, 0};
  SymExpr parallel_extent = 1;  ///< in size parameters
  Block body;
  SymExpr work;       ///< scalar operations of the whole nest, estimated
  base::Facts facts;  ///< ranges of the axes, for emitters that simplify
  std::optional<ProductForm> product{};
  std::optional<AttentionForm> attention{};

  std::uint32_t global_count() const;
};

/// The nest as text: readable, stable, and (without the name) the structural key of the kernel cache.
std::string print(const Nest& nest);
/// print() without the name: equal texts, equal code.
std::string structural_text(const Nest& nest);
base::Hash128 structural_key(const Nest& nest);
/// Every scalar defined once and before use, buffers in range, vector loops not nested, … (N1 …).
/// HD_CHECK failures: a broken nest is our own mistake.
void check(const Nest& nest);

/// The entry point of a compiled CPU kernel: iterations [begin, end) of the parallel axis. `scratch` is
/// this thread's own, of scratch_bytes(nest, sizes) bytes, 64-aligned. `status` receives a BindStmt's check.
using CpuEntry = void (*)(void* const* buffers, const std::int64_t* sizes, std::int64_t begin,
                          std::int64_t end, void* scratch, std::int32_t* status);

/// Bytes of scratch that Local buffers without a constant bound need, for these size parameters.
SymExpr scratch_bytes(const Nest& nest);
/// Local buffers in scratch lie at these offsets, each 64-aligned (kNoOffset-free: one per local buffer without a bound).
std::vector<SymExpr> scratch_offsets(const Nest& nest);

}  // namespace heddle::jit
