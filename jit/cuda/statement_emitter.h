// The statements of a nest as lines of CUDA C++.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "jit/cuda/coarse_values.h"
#include "jit/cuda/column_lanes.h"
#include "jit/cuda/row_registers.h"
#include "jit/cuda/scan_loop.h"
#include "jit/cuda/text_writer.h"
#include "jit/cuda/wide_loop.h"
#include "jit/nest.h"

namespace heddle::jit::cuda {

/// Threads share a parallel iteration (Block), each runs its own (Flat: nests without vector loops and contractions), or
/// groups of them do (Rows: see row_lanes.h).
enum class Mapping : std::uint8_t { Block, Flat, Rows };

/// Of a reduction: for one value of 24 bytes from each of 32 warps.
inline constexpr std::int64_t kReduceScratchBytes = 768;

class StatementEmitter : private TextWriter {
 public:
  /// @param threads  of a parallel iteration, where they may take several iterations of a vector loop at once; 0: they may
  ///                 not
  StatementEmitter(const Nest& nest, Mapping mapping, std::set<const Stmt*> barriers,
                   std::uint32_t threads = 0);

  /// Loads from `buffer` give the lvalue `place` from now on, whatever their index.
  void replace_loads(NestBufferId buffer, std::string place) {
    replaced_[buffer] = std::move(place);
  }
  /// That LoadStmt or StoreStmt touches the lvalue `place` from now on, until accesses are restored.
  void replace_access(const void* statement, std::string place) {
    lanes_[statement] = std::move(place);
  }
  void restore_accesses() { lanes_.clear(); }
  /// Vector loops keep these rows in registers from now on; the block has `rows.threads` threads.
  void keep_rows(const RowRegisters& rows) { kept_ = &rows; }
  /// Memory is touched outside of vector loops only where the bool `name` holds; elsewhere these have no iterations.
  void only_where(std::string name) { where_ = std::move(name); }
  /// The lines of `block`, indented by `depth` steps.
  std::string emit(const Block& block, int depth);
  /// Whether what was emitted uses the reduction scratch `reduce_scratch`.
  bool uses_reduce_scratch() const { return uses_reduce_scratch_; }

  void operator()(const ConstStmt& s);
  void operator()(const ApplyStmt& s);
  void operator()(const ConvertStmt& s);
  void operator()(const GivenStmt& s);
  void operator()(const BitsStmt& s);
  void operator()(const IndexStmt& s);
  void operator()(const BindStmt& s);
  void operator()(const LoadStmt& s);
  void operator()(const StoreStmt& s);
  void operator()(const ForStmt& s);
  void operator()(const IfStmt& s);
  void operator()(const ContractStmt& s);

 private:
  void statements(const Block& block);
  void one(const Stmt& statement);
  void define(ScalarId id, DType dtype, const std::string& value);

  std::string name(ScalarId id) const { return "v" + std::to_string(id); }
  std::string buffer(NestBufferId id) const;
  std::string index(const SymExpr& expr) const;
  std::string element(NestBufferId id, const SymExpr& expr) const;
  std::string guard(ScalarId mask) const;
  std::string condition(ScalarId mask, const SymExpr& place) const;
  std::string here_and(const std::string& condition) const;
  bool one_thread() const { return mapping_ != Mapping::Flat && !in_vector_; }
  /// The thread's number among those of its parallel iteration, and how many these are.
  std::string thread() const { return mapping_ == Mapping::Rows ? "row_lane" : "threadIdx.x"; }
  std::string threads() const {
    return mapping_ == Mapping::Rows ? number(threads_) : "blockDim.x";
  }

  std::string combined_store(const StoreStmt& s) const;
  void declare_reduction(const LoopReduction& r);
  void accumulate(const LoopReduction& r);
  void finish_reduction(const LoopReduction& r);
  std::string partial(const LoopReduction& r) const;
  void carry_on(const ForStmt& s);
  void window_element(const TileOperand& o);
  std::string part_text(const Dequantised::Part& p, const std::string& row,
                        const std::string& column);
  void dequantised_element(const ContractStmt& s);
  void fixed_element(const ContractStmt& s);
  std::string whole_part(const ForStmt& s, const WideLoop& wide);
  void neighbours(const ForStmt& s, const WideLoop& wide);
  void lane(const ForStmt& s, const WideLoop& wide);
  std::string columns(const ForStmt& s, const ColumnLanes& lanes);
  void unroll_reads(const ForStmt& s);
  void row_loop(const ForStmt& s);
  void fetch_rows(std::size_t loop);
  void row_chunk(const ForStmt& s);
  std::string chunk_type(NestBufferId id) const;
  void end_reductions(const ForStmt& s);
  void scan(const ForStmt& s);
  void scan_chunk(const ForStmt& s, const ScanLoop& scan, const std::string& start, bool stores);

  const Nest& nest_;
  Mapping mapping_;
  std::set<const Stmt*> barriers_;
  std::uint32_t threads_;
  const CoarseValues coarse_;
  std::map<ScalarId, DType> dtypes_;
  std::map<ScalarId, ScalarId> rounded_;  ///< by what is rounded to 16 bits: what it was before
  bool in_vector_ = false;
  std::string where_;  ///< empty: everywhere
  bool uses_reduce_scratch_ = false;
  const RowRegisters* kept_ = nullptr;
  bool without_stores_ = false;
  std::size_t totals_ = 0;                        ///< reductions of such loops so far
  std::map<NestBufferId, std::string> replaced_;  ///< lvalues by buffer
  /// The same by LoadStmt and StoreStmt, inside of what a thread does with several iterations at once.
  std::map<const void*, std::string> lanes_;
  /// A loop whose threads take several iterations at once, where its indices divide its number.
  struct Tile {
    const ForStmt* loop = nullptr;
    std::int64_t period = 0;
  };
  Tile tile_;
  /// By bound index that may have no valid value at all, as one into a dimension of size 0: when it has one.
  std::map<base::Symbol, std::string> exists_;
};

/// The name of a buffer in the text, by its place: b0, b1, … then l0, l1, …
std::string buffer_name(const Nest& nest, NestBufferId id);

}  // namespace heddle::jit::cuda
