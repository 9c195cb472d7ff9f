// A nest as one LLVM function.
//
// A vector loop is emitted as a main loop over `width` elements at a time, each scalar of its body one
// IR vector of that many lanes (several machine vectors in flight), and a tail of `base_lanes` under a
// mask. Values that are the same for all lanes stay scalars until an operation mixes them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "jit/cpu/llvm/byte_table.h"
#include "jit/cpu/llvm/codegen.h"
#include "jit/cpu/llvm/row_fetch.h"
#include "jit/cpu/llvm/row_maximum.h"
#include "jit/cpu/llvm/row_strips.h"
#include "jit/cpu/llvm/scalar_emitter.h"
#include "jit/nest.h"

namespace llvm {
class BasicBlock;
class Function;
}  // namespace llvm

namespace heddle::jit::cpu {

inline constexpr const char* kEntryName = "heddle_kernel";

/// Of what nests load: weights are read where they lie in a model's file, which may be at any address.
inline constexpr std::uint64_t kReadAlignment = 1;

/// What makes the code generator use the target's instructions and widest vectors.
void set_target_attributes(llvm::Function& function, const CodegenTarget& target);

class NestEmitter {
 public:
  NestEmitter(const Nest& nest, const CodegenTarget& target, llvm::IRBuilderBase& builder,
              llvm::Module& module);
  void emit();

  void operator()(const ConstStmt& s);
  void operator()(const GivenStmt& s);
  void operator()(const ApplyStmt& s);
  void operator()(const ConvertStmt& s);
  void operator()(const BitsStmt& s);
  void operator()(const IndexStmt& s);
  void operator()(const BindStmt& s);
  void operator()(const LoadStmt& s);
  void operator()(const StoreStmt& s);
  void operator()(const ForStmt& s);
  void operator()(const IfStmt& s);
  void operator()(const ContractStmt& s);

 private:
  using Values = std::vector<llvm::Value*>;

  /// How the lanes of a vector loop address a buffer.
  struct Access {
    enum class Kind : std::uint8_t {
      Uniform,
      Contiguous,
      Reversed,
      Bounded,
      Strided,
      Repeated,
      General,
    } kind;
    /// A vector for General, else a scalar: of lane 0 where lanes differ.
    llvm::Value* index;
    llvm::Value* bound = nullptr;  ///< Bounded: contiguous up to here, this element beyond
    std::int64_t step = 0;  ///< Strided: elements from one lane to the next; Repeated: lanes of one
    std::int64_t unit = 1;  ///< Repeated: elements from one that lanes read to the next
    llvm::Value* base = nullptr;  ///< General: a scalar that is added to each lane's index
  };

  // nest_emitter.cpp: the function around the body, statements.
  void emit_prologue();
  void emit_locals();
  void block(std::span<const Stmt> statements);
  llvm::Value* value(ScalarId id) const;
  void define(ScalarId id, llvm::Value* v) { values_[id] = v; }
  QuantisedByte quantised(const ConvertStmt& s);
  QuantisedByte quantised_if_fits(llvm::Value* x, llvm::Value* scale, llvm::Value* zero, DType to);
  llvm::Value* number_of_byte(const ConvertStmt& s);
  llvm::BasicBlock* block_before(llvm::Value* a, llvm::Value* b) const;
  std::optional<GivenStmt::Range> range_of(llvm::Value* value) const;
  ByteScale byte_scale_before(llvm::Value* scale, llvm::Value* zero, DType to);
  bool is_scale(llvm::Value* value) const;
  bool is_zero_point(llvm::Value* value, double least) const;
  llvm::Value* clamped(const ConvertStmt& s);
  /// The other operand of `op` where one is a number, which is put there.
  std::optional<ScalarId> beside_number(ScalarId id, ir::ScalarOp op, double& number) const;
  /// The same beside what all lanes share.
  std::optional<ScalarId> beside_uniform(ScalarId id, ir::ScalarOp op, llvm::Value*& uniform);
  llvm::Value* compare_lane_index(ir::ScalarOp op, ScalarId index, ScalarId uniform);
  void report(llvm::Value* bad, std::int32_t code, llvm::Value* index, llvm::Value* last);
  /// The operand as wide as the current vector loop's lanes, if `lanes` is not 0.
  llvm::Value* widened(llvm::Value* v, unsigned lanes);

  // row_emitter.cpp: the body for each iteration of the parallel axis.
  void emit_rows();
  void emit_strips();
  void emit_merged();
  struct RowPart;
  RowPart row_part(const RowPhase& phase, llvm::Value* row, llvm::Value* place);
  void enter(const RowPart& part);
  void emit_phase(const RowPart& part);
  void emit_phases(std::span<const RowPart> parts);
  void keep(const RowPart& part);
  llvm::Value* row_slot(const RowPhase::Scalar& scalar, llvm::Value* place);

  // memory_emitter.cpp: index expressions, loads and stores.
  struct Bound;
  const Bound* fixed_index(const SymExpr& expr) const;
  /// Of a divisor, before a loop; null: nothing.
  const Bound* fixed_inverse(const SymExpr& divisor) const;
  llvm::Value* index_value(const SymExpr& expr);
  llvm::Value* index_here(const SymExpr& expr);
  unsigned depth_of(const SymExpr& expr) const;
  void set_symbol(Symbol symbol, llvm::Value* v);
  llvm::Value* scalar_index(const SymExpr& expr);
  bool varies(const SymExpr& expr) const;
  llvm::Value* from_vector_base(const SymExpr& rest);
  Access classify(const SymExpr& index);
  std::optional<Access> classify_bounded(const SymExpr& index);
  std::optional<Access> classify_repeated(const SymExpr& index);
  llvm::Value* lane_numbers();
  /// 0, step, 2 * step, … as i64.
  llvm::Value* lane_offsets(std::int64_t step);
  llvm::Value* lane_distance(llvm::Value* first, llvm::Value* to);
  llvm::Value* load_bounded(const LoadStmt& s, const Access& access);
  llvm::Value* element_address(NestBufferId buffer, llvm::Value* index);
  /// Of each lane for Strided and General, else of lane 0.
  llvm::Value* access_address(NestBufferId buffer, const Access& access);
  /// Lanes of the current loop that are within its extent and where `mask` holds; null: all of them.
  llvm::Value* lane_mask(ScalarId mask);
  /// Whether first, first + step, … are below a limit of i32. A mask that is turned around or spread instead takes instructions
  /// for every lane.
  llvm::Value* lanes_below(llvm::Value* limit, std::int64_t first, std::int64_t step,
                           unsigned count);
  llvm::Value* load_scalar(const NestBuffer& buffer, llvm::Value* address, llvm::Value* mask);
  llvm::Value* load_lanes(const LoadStmt& s, const Access& access);
  /// Asks for all lines of the lanes at `index` of a buffer, in the first-level cache.
  void fetch_lanes(NestBufferId buffer, llvm::Value* index);
  /// Asks for the line at `address`, in the cache of a level.
  void fetch(llvm::Value* address, unsigned level);
  void store_scalar(const StoreStmt& s);
  void store_lanes(const StoreStmt& s, const Access& access);
  void write_lanes(const NestBuffer& buffer, const Access& access, llvm::Value* address,
                   llvm::Value* stored, llvm::Value* mask);
  llvm::Value* read_lanes(const NestBuffer& buffer, const Access& access, llvm::Value* address,
                          llvm::Value* mask);
  llvm::Value* reversed_mask(llvm::Value* mask);

  // rest_emitter.cpp: the end of a row where vectors have no masks of their own.
  /// Whether `mask` is of the lanes that are left over, fewer than all, which go by pieces.
  bool goes_by_pieces(llvm::Value* mask) const;
  void write_rest(llvm::Value* stored, llvm::Value* address, llvm::Align alignment);
  llvm::Value* read_rest(llvm::Type* type, llvm::Value* address, llvm::Align alignment);

  // column_emitter.cpp: lanes along rows of a few elements.
  void find_columns(const ForStmt& loop);
  std::size_t find_row(const Block& body, std::size_t begin, Symbol axis);
  llvm::Value* pick_lanes(const LoadStmt& s, const Access& access);
  llvm::Value* repeat_lanes(NestBufferId buffer, const Access& access, llvm::Value* wanted);
  llvm::Value* repeat_apart(NestBufferId buffer, const Access& access, llvm::Value* wanted);
  bool store_column(const StoreStmt& s);
  void write_rows(NestBufferId buffer);

  // near_emitter.cpp: lanes that read near each other.
  struct NearLoop;
  std::optional<NearLoop> near_loop(const ForStmt& s) const;
  llvm::Value* reach_of(const NearLoop& near, const ForStmt& s);
  bool emit_near(const ForStmt& s, const std::function<void(unsigned)>& otherwise, unsigned width);
  llvm::Value* load_near(const LoadStmt& s);

  /// Of a table of 256 bytes the ones that the lanes of a byte name, where registers can hold it; null: elsewhere.
  llvm::Value* load_of_table(const LoadStmt& s);

  // loop_emitter.cpp: loops and reductions.
  /// for (i = from; i < limit; i += step): `body` gets i and the carried values, gives the next ones.
  Values loop(llvm::Value* from, llvm::Value* limit, std::int64_t step, const Values& initials,
              const std::function<Values(llvm::Value*, const Values&)>& body);
  void when(llvm::Value* condition, const std::function<void()>& body, bool unlikely);
  void serial_loop(const ForStmt& s);
  void vector_loop(const ForStmt& s);
  std::vector<Values> vector_loops(std::span<const ForStmt* const> loops, unsigned width,
                                   const std::function<void(std::size_t)>& enter);
  llvm::Value* set_lanes(llvm::Value* first, unsigned lanes, llvm::Value* left);
  void hoist_uniform(const ForStmt& s);
  void emit_loop(const ForStmt& s);
  Values run_body(const ForStmt& s, llvm::Value* axis, const Values& state);
  /// @param step  from the axis's value in one lane to that in the next
  Values initial_state(const ForStmt& s, unsigned lanes, std::int64_t step);
  Values identity(const LoopReduction& r, unsigned lanes);
  Values accumulate(const LoopReduction& r, const Values& state, llvm::Value* mask);
  /// What `state` becomes by an element that comes after those it is of.
  Values later_extreme(const LoopReduction& r, const Values& state, llvm::Value* mask);
  Values combine(const LoopReduction& r, const Values& a, const Values& b);
  Values welford_step(const Values& state, llvm::Value* x, llvm::Value* mask);
  Values narrow(const LoopReduction& r, Values state, unsigned lanes);
  /// Every reduction of `s` narrowed to `lanes`; 0: to a scalar.
  Values narrow_state(const ForStmt& s, const Values& state, unsigned lanes);
  void define_results(const ForStmt& s, const Values& state);

  // transpose_emitter.cpp: loops that turn a matrix around.
  struct Turned;
  std::optional<Turned> turned(const ForStmt& outer);
  void turn_square(const Turned& t, llvm::Value* row, llvm::Value* column, bool partial);
  /// Emits `s` if it is such a loop.
  bool turning_loop(const ForStmt& s);

  // contract_emitter.cpp
  struct Tile;
  /// The first column of a block.
  struct BlockColumn {
    llvm::Value* number;
    llvm::Value* first_of_b;  ///< see first_of_b()
  };
  /// Of a tile those that are whole blocks, those that are left over, or both.
  enum class Columns : std::uint8_t { All, Whole, Rest };
  unsigned rows_of_rest(const Tile& tile) const;
  void contract_rows(Tile& tile);
  void contract_rows(Tile& tile, unsigned rows, Columns part);
  llvm::Value* fetched_ahead(const Tile& tile, llvm::Value* row);
  void contract_packed(Tile& tile);
  /// Rows [begin, begin + depth) of b into `panel`, every lane of a vector defined.
  void pack_panel(const Tile& tile, llvm::Value* panel, llvm::Value* begin);
  void contract_columns(const Tile& tile, llvm::Value* row, unsigned rows, Columns part);
  // pair_gather_emitter.cpp: the same of pairs of bf16, the second of which is 0 where there is none.
  void pack_pairs(const Tile& tile, llvm::Value* panel, llvm::Value* begin);
  void pack_pairs_along(const Tile& tile, llvm::Value* panel, llvm::Value* begin);
  void pack_pairs_across(const Tile& tile, llvm::Value* panel, llvm::Value* begin);
  /// As many elements of b as there are lanes from index `at` on, as bf16; 0 where `mask` says.
  llvm::Value* narrow_of_b(const Tile& tile, llvm::Value* at, llvm::Value* mask);
  /// `rows` by `vectors` accumulators over the whole depth; `mask`: columns within the count, if not all.
  void contract_block(const Tile& tile, llvm::Value* row, unsigned rows, llvm::Value* column,
                      unsigned vectors, llvm::Value* mask);
  llvm::Value* steps_of(llvm::Value* k, unsigned n, llvm::Value* stride);
  Values elements_of_a(const Tile& tile, llvm::Value* k, unsigned n, llvm::Value* first_row,
                       unsigned rows);
  /// The n-th step of the depth from step `k` on.
  /// @param first_row  address of the first element of a in the block's first row
  Values contract_step(const Tile& tile, llvm::Value* k, unsigned n, llvm::Value* first_row,
                       unsigned rows, const BlockColumn& column, const Values& sums,
                       llvm::Value* mask);
  /// sum + left * right, lane by lane; of groups the sum of their products.
  llvm::Value* contract_add(const ContractStmt& s, llvm::Value* sum, llvm::Value* left,
                            llvm::Value* right);
  llvm::Value* first_of_b(const Tile& tile, llvm::Value* column);
  llvm::Value* contract_load_b(const Tile& tile, llvm::Value* row, const BlockColumn& column,
                               unsigned vector, llvm::Value* mask);

  // few_rows_emitter.cpp
  bool fits_few_rows(const Tile& tile) const;
  /// Few rows so, more by `many`.
  void contract_few_or(const Tile& tile, const std::function<void()>& many);
  void contract_few(const Tile& tile);
  void few_rows_block(const Tile& tile, llvm::Value* row, unsigned rows, llvm::Value* column,
                      bool partial);

  // run_contract_emitter.cpp: sums whose terms lie side by side in both operands.
  void contract_runs(const Tile& tile);
  void run_block(const Tile& tile, llvm::Value* row, unsigned rows, llvm::Value* column,
                 unsigned columns);
  /// Rows by columns of sums, and where the first ones' terms begin in a and b.
  struct RunBlock {
    unsigned rows;
    unsigned columns;
    llvm::Value* a;
    llvm::Value* b;
  };
  /// What runs from number `run` on add.
  Values add_runs(const Tile& tile, const RunBlock& block, std::size_t run, Values sums);
  Values run_step(const Tile& tile, const RunBlock& block, llvm::Value* k, llvm::Value* mask,
                  const Values& sums);
  void store_sums(const Tile& tile, llvm::Value* row, llvm::Value* column, unsigned columns,
                  Values sums);

  // group_run_emitter.cpp: sums of groups of bytes in runs.
  void contract_group_runs(const Tile& tile);
  void group_run_columns(const Tile& tile, llvm::Value* row, unsigned rows);
  void group_run_block(const Tile& tile, llvm::Value* row, unsigned rows, llvm::Value* column,
                       unsigned vectors, llvm::Value* mask);
  /// Where the first ones' groups begin in a and b, and which lanes of the last vector are columns of the tile.
  struct GroupRunBlock {
    unsigned rows;
    llvm::Value* first_row;
    BlockColumn column;
    llvm::Value* mask;
  };
  /// What runs from number `run` on add.
  Values add_group_runs(const Tile& tile, const GroupRunBlock& block, std::size_t run, Values sums);

  // pair_contract_emitter.cpp
  bool sums_by_pairs(const ContractStmt& s) const;
  Values pair_step(const Tile& tile, llvm::Value* k, unsigned n, llvm::Value* first_row,
                   unsigned rows, llvm::Value* column, const Values& sums, llvm::Value* mask);
  Values pair_groups(const Tile& tile, llvm::Value* k, unsigned n, llvm::Value* column,
                     llvm::Value* mask);
  llvm::Value* pair_sum(llvm::Value* low, llvm::Value* high);

  // amx_emitter.cpp: blocks of a contraction of groups by AMX.
  struct AmxBlock;
  bool takes_amx(const ContractStmt& s) const;
  /// At the end of `entry`, if the kernel takes them; it gives them back where it returns.
  void configure_amx(llvm::BasicBlock* entry);
  void keep_amx_awake(const ForStmt& s, llvm::Value* iteration);
  void contract_by_amx(Tile& tile);
  void amx_rows(Tile& tile);
  void amx_copy(const Tile& tile, AmxBlock& block);
  void amx_columns(const Tile& tile, AmxBlock& block);
  void amx_block(const Tile& tile, const AmxBlock& block);
  void amx_runs(const Tile& tile, const AmxBlock& block, std::size_t run, llvm::Value* first_a,
                llvm::Value* first_b);
  void amx_sums(const Tile& tile, const AmxBlock& block, bool stores);
  void amx_fetch(const Tile& tile, const AmxBlock& block, llvm::Value* k);
  void amx_step(const Tile& tile, const AmxBlock& block, llvm::Value* first_a, llvm::Value* first_b,
                llvm::Value* k);

  // bits_emitter.cpp: products by numbers of a few bits.
  struct BitsTile;
  void contract_bits(const ContractStmt& s);
  void bits_block(const BitsTile& tile, llvm::Value* row, unsigned rows, llvm::Value* column);
  /// Addresses of a block's accumulators, and the index of element (row, 0) of a of each of its rows.
  std::pair<Values, Values> bits_rows(const BitsTile& tile, llvm::Value* row, unsigned rows,
                                      llvm::Value* column);
  Values bits_words(const BitsTile& tile, llvm::Value* word, const Values& a_rows,
                    llvm::Value* column, const Values& zeros, const Values& sums);
  Values words_of(const BitsTile& tile, llvm::Value* word, llvm::Value* column);
  /// A row of words, scales or zero points from `column` on, as they are stored.
  Values bits_row(const BitsTile& tile, const Dequantised::Part& part, llvm::Value* row,
                  llvm::Value* column);
  /// One of scales or zero points, as `to`.
  Values bits_beside(const BitsTile& tile, const Dequantised::Part& part, llvm::Value* group,
                     llvm::Value* column, DType to);
  /// Number `k` of each word, in the accumulator's dtype.
  llvm::Value* bits_number(const BitsTile& tile, llvm::Value* words, unsigned k);
  /// Adds left times right to an accumulator.
  void bits_add(const BitsTile& tile, llvm::Value* memory, llvm::Value* left, llvm::Value* right);
  // fixed_bits_emitter.cpp: the same of rows in fixed point.
  void fixed_block(const BitsTile& tile, llvm::Value* row, unsigned rows, llvm::Value* column);
  /// Element (row, block) of a row's scales or sums, `moved` on where that is given.
  llvm::Value* fixed_part(const Dequantised::Part& part, llvm::Value* row, llvm::Value* block,
                          llvm::Value* moved);
  /// What the sums of a block begin with, by row, digit and vector of columns, from the sums of digits.
  Values fixed_begin(const BitsTile& tile, const Values& row_sums, llvm::Value* group,
                     llvm::Value* column);
  Values fixed_words(const BitsTile& tile, llvm::Value* word, const Values& a_rows,
                     llvm::Value* column, const Values& sums);
  /// Digits k to k + 3 behind `first`, as the bytes of an i32.
  llvm::Value* four_digits(const BitsTile& tile, llvm::Value* first, llvm::Value* k);
  void fixed_end(const BitsTile& tile, const Values& memory, const Values& sums,
                 const Values& row_scales, const Values& row_sums, llvm::Value* group,
                 llvm::Value* column);

  const Nest& nest_;
  const CodegenTarget& target_;
  llvm::IRBuilderBase& b_;
  llvm::Module& module_;
  ScalarEmitter scalars_;
  llvm::Function* function_ = nullptr;
  bool configures_amx_ = false;  ///< the kernel takes registers of AMX
  llvm::Value* status_ = nullptr;
  llvm::Value* scratch_ = nullptr;
  llvm::Value* begin_ = nullptr;  ///< of the parallel iterations
  llvm::Value* end_ = nullptr;
  llvm::Value* zeros_ = nullptr;  ///< readable zeros, for loads whose mask is false
  Values buffers_;
  std::unordered_map<ScalarId, llvm::Value*> values_;
  std::unordered_map<ScalarId, DType> dtypes_;
  std::unordered_map<ScalarId, const ApplyStmt*> applied_;
  std::unordered_map<ScalarId, double> numbers_;  ///< constants of f32
  struct Given {
    std::uint32_t parameter;
    DType dtype;
    GivenStmt::Range range;
    llvm::Value* value;
  };
  std::vector<Given> given_;
  /// With how many loops there are around where it is defined.
  struct Bound {
    llvm::Value* value = nullptr;
    unsigned depth = 0;
  };
  std::map<Symbol, Bound> symbols_;
  std::unordered_map<ScalarId, QuantisedByte> byte_numbers_;  ///< of a byte that was quantised
  std::unordered_map<ScalarId, ScalarId> widened_bytes_;      ///< such bytes, of an i32
  std::unordered_map<ScalarId, llvm::Value*>
      from_bytes_;                               ///< the u8 that an i32 was converted from
  std::map<Symbol, llvm::Value*> byte_symbols_;  ///< the same of symbols bound to such
  /// A loop around what is emitted now.
  struct Level {
    llvm::Instruction* before;                            ///< that goes into it
    std::vector<std::pair<SymExpr, llvm::Value*>> known;  ///< indices that were computed there
    std::map<NestBufferId, ByteTable> tables;             ///< that were read there
  };
  std::vector<Level> levels_;
  unsigned depth_ = 0;  ///< loops around the place where indices are computed
  /// Scalars of the vector loop that are this plus the lane's number.
  std::unordered_map<ScalarId, llvm::Value*> lane_index_;
  unsigned base_lanes_;  ///< of 32-bit elements in one machine vector
  unsigned lanes_ = 0;   ///< of the vector loop being emitted; 0 outside
  Symbol vector_axis_{};
  llvm::Value* vector_base_ = nullptr;  ///< the axis's value in lane 0
  llvm::Value* active_ = nullptr;       ///< of the tail: lanes within the extent
  llvm::Value* left_ = nullptr;         ///< of the tail: how many those are, or more, as i32
  std::vector<const Stmt*> hoisted_;    ///< emitted before the current vector loop
  /// Parts of indices that were computed before the loops around what is emitted now.
  std::vector<std::pair<SymExpr, Bound>> fixed_indices_;
  std::vector<std::pair<SymExpr, Bound>> fixed_inverses_;  ///< by divisor
  /// Of a load of which all neighbours up to a row are loaded too: its place in the row.
  std::unordered_map<const LoadStmt*, std::int64_t> loaded_columns_;
  /// Of a store that is one of a whole row: its place, and the row's elements.
  std::unordered_map<const StoreStmt*, std::pair<unsigned, unsigned>> stored_columns_;
  Values row_values_;                 ///< of the row being stored
  llvm::Value* row_index_ = nullptr;  ///< of its first element
  const NearLoop* near_ = nullptr;    ///< the loop being emitted, if its lanes read near each other
  const RowMaxima maxima_;
  const RowStrips strips_;
  Values row_locals_;  ///< local buffers of the first row that is held
  std::unordered_map<ScalarId, llvm::Value*> row_slots_;  ///< memory of scalars kept between phases
  const std::unordered_map<const LoadStmt*, SymExpr> row_fetches_;
};

}  // namespace heddle::jit::cpu
