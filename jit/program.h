// A lowered graph: kernels as nests or library calls, and how each step calls them.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/analysis/unbacked.h"
#include "ir/graph.h"
#include "ir/op.h"
#include "ir/schedule.h"
#include "jit/nest.h"

namespace heddle::jit {

struct CustomCall;

/// An operation on each element v of a library call's result, done while the result is at hand.
struct EpilogueOp {
  enum class Kind : std::uint8_t {
    Scale,   ///< v * operand[channel]
    Shift,   ///< v + operand[channel]
    Add,     ///< v + operand[v's index]; the result may lie in the operand's bytes
    Linear,  ///< v * a + b
    Clamp,   ///< min(max(v, low), high), NaN stays
    Gate,    ///< v * min(max(v * a + b, low), high)
  };
  Kind kind = Kind::Linear;
  std::uint32_t operand = ir::kNone;  ///< of Scale, Shift and Add: position among the call's inputs
  float a = 1;
  float b = 0;
  float low = -std::numeric_limits<float>::infinity();
  float high = std::numeric_limits<float>::infinity();
  friend bool operator==(const EpilogueOp&, const EpilogueOp&) = default;
};

/// Operations of one epilogue, at most.
inline constexpr std::size_t kMaxEpilogue = 12;

/// A call of a library kernel (oneDNN, cuBLASLt, …).
struct LibraryCall {
  std::string name;                    ///< "matmul", "conv"
  ir::Attrs attrs;                     ///< what the factory needs
  std::vector<ir::TensorMeta> inputs;  ///< of the node, then of the epilogue
  std::vector<ir::TensorMeta> outputs;
  std::uint32_t node_inputs = 0;  ///< of the inputs, those of the node
  std::vector<EpilogueOp> epilogue{};
  bool winograd = true;  ///< convolutions may be computed by Winograd's algorithm
};

struct Program;

/// A step that runs nested graphs, each lowered to a program of its own. Their inputs are the step's
/// operands (of a scan a slice of those it scans), their outputs its results.
///
/// Buffers of the launch: of a cond the predicate; the operands; the results; the workspace, which holds
/// the programs' arenas, a second copy of what a loop carries and its condition.
struct NestedCall {
  struct Region {
    std::string name;  ///< of the graph, for its caller
    /// Of the node; for those who show plans. Null in a program that was read from bytes.
    std::shared_ptr<const ir::Graph> graph;
    std::vector<ir::TensorMeta> inputs;  ///< the graph's
    std::shared_ptr<const Program> program;
    base::SymbolExprs sizes;  ///< the program's size symbols in those around it
  };
  ir::RegionKind kind = ir::RegionKind::Once;
  std::vector<Region> regions;  ///< Cond: then, else; While: condition, body; otherwise the body
  std::uint32_t operands = 0;   ///< without the predicate
  std::uint32_t carried = 0;    ///< of the operands and of the results, the first
  std::uint32_t scanned = 0;    ///< of the operands, the next
  std::uint32_t results = 0;
  SymExpr length;        ///< Scan: iterations
  bool reverse = false;  ///< Scan: from the last slice to the first
  bool counted = false;  ///< Scan: the first captured operand says how many slices are run
  /// While: sizes of carried values that change between iterations, of each region the symbol that it has for one. Empty: the sizes
  /// stay.
  struct ChangingSize {
    std::uint32_t carried = 0;    ///< value that has it
    std::uint32_t dimension = 0;  ///< of that value
    std::vector<Symbol> symbols;  ///< by region; the condition, then the body
  };
  std::vector<ChangingSize> changing;
  /// Of loops, by result: which output of the body's program it is; kNone: none, since the body overwrites the carried value that it is
  /// given with the next one.
  std::vector<std::uint32_t> outputs;
  /// While: one of these that is appended to along a dimension, of which its memory has room for more than there is.
  struct Appended {
    std::uint32_t carried = 0;
    std::uint32_t dimension = 0;
    Symbol room;   ///< its size in the body's program, at least `next`
    SymExpr next;  ///< how much there is after an iteration, in the symbols of the body
  };
  std::vector<Appended> appended;
  Symbol workspace;  ///< bytes of the workspace: known when the programs are planned

  bool is_updated(std::uint32_t result) const {
    return !outputs.empty() && outputs[result] == ir::kNone;
  }
  std::uint32_t output_of(std::uint32_t result) const {
    return outputs.empty() ? result : outputs[result];
  }
  /// Where the operands begin among the buffers of the launch.
  std::uint32_t first_operand() const { return kind == ir::RegionKind::Cond ? 1 : 0; }
  /// The first operand that is the same in each run; so are all that follow.
  std::uint32_t first_captured() const { return carried + scanned; }
};

struct ProgramKernel {
  std::shared_ptr<const Nest> nest;            ///< Jit, Copy
  std::shared_ptr<const LibraryCall> library;  ///< Library
  std::shared_ptr<const CustomCall> custom{};  ///< Custom
  std::shared_ptr<const NestedCall> nested{};  ///< Nested
};

/// How one step calls its kernel.
struct Launch {
  std::vector<ir::BufferId>
      buffers;  ///< one for each global buffer of the nest / operand of the library call
  std::vector<SymExpr> sizes;  ///< nest parameter k in the graph's symbols
  /// Sizes that are known when everything before the step has run, and what it is found from; both are
  /// empty for most steps. Steps that use these sizes come after.
  std::vector<Symbol> late_sizes{};
  std::vector<ir::Dims> late_results{};  ///< of the node's results, in order
};

/// What a BindStmt's check code means: the message of the IndexError.
struct RuntimeCheck {
  std::string what;   ///< "gather: index out of range"
  std::string where;  ///< location of the node
};

struct Program {
  ir::Graph graph;  ///< what the steps compute: the one given, decomposed; kernels name its nodes
  ir::ScheduleRecord record;
  std::vector<ProgramKernel> kernels;        ///< parallel to record.kernels
  std::vector<Launch> launches;              ///< parallel to record.steps
  std::vector<ir::LiteralPtr> constants;     ///< PlanBuffer::position of Role::Constant
  std::vector<RuntimeCheck> checks;          ///< BindStmt::check - 1
  std::vector<ir::LateCheck> late_checks{};  ///< the graph's
  /// Graph outputs, in order: the buffer that holds it.
  std::vector<ir::BufferId> outputs;
  /// Write-backs, in order: the (input, source) buffers copied after everything; the record has the steps.
  std::vector<std::pair<ir::BufferId, ir::BufferId>> write_backs;
  std::size_t in_place = 0;  ///< operands that steps overwrite with a result
  /// Arguments that could have been overwritten and were copied, each as the bytes of its tensors (a list has several):
  /// the old value is needed, or it is a part of other memory and was copied from there.
  std::vector<std::vector<SymExpr>> copied_arguments;
};

/// How the nodes of one compile unit become kernels.
struct UnitOptions {
  bool fuse = true;             ///< false: one kernel a node
  bool library = true;          ///< library kernels may be used where an op has one and they win
  bool winograd = true;         ///< library convolutions may be computed by Winograd's algorithm
  std::size_t max_nodes = 256;  ///< of one kernel: larger ones compile slowly and spill
};

/// What lowering is for.
struct LowerOptions {
  enum class Target : std::uint8_t { Cpu, Cuda } target = Target::Cpu;
  UnitOptions rest;  ///< nodes outside of all units
  /// By the text of a node's annotation "region". Nodes of different units never share a kernel.
  std::map<std::string, UnitOptions, std::less<>> units{};
  /// Whether the library kernel called `name` can and should do `node`; null: there are none.
  bool (*library_available)(std::string_view name, const ir::Node& node) = nullptr;
  std::int64_t vector_bytes = 64;  ///< of the CPU's vectors
  bool bf16_dot = false;           ///< the CPU multiplies pairs of bf16
  bool fast_bf16_dot = false;      ///< and as often as it multiplies f32
  bool byte_dot = false;           ///< the CPU multiplies groups of four bytes
  bool amx = false;                ///< the CPU multiplies matrices of bytes and of bf16
  bool byte_tables = false;        ///< the CPU looks bytes up in tables that registers hold
  int threads = 1;                 ///< of the CPU that share a kernel's iterations
  bool build_all =
      false;  ///< prove kernels that are built once for several groups by building them for each
  /// Calls what it is given with each number below a count, on several threads at once, and returns when all calls have; empty:
  /// the calling thread does all. What comes out is the same.
  std::function<void(std::size_t, const std::function<void(std::size_t)>&)> for_each{};
};

/// Whether so many threads share a kernel that it is cut finer for them, though each iteration of more, smaller ones begins anew.
inline bool has_many_threads(const LowerOptions& options) {
  constexpr int kFewThreads = 4;
  return options.target == LowerOptions::Target::Cpu && options.threads > kFewThreads;
}

/// Whether the CPU multiplies bytes by pairs of 16 bits, best of all ways it has: AVX2.
inline bool multiplies_pairs(const LowerOptions& options) {
  return options.target == LowerOptions::Target::Cpu && options.vector_bytes == 32 &&
         !options.byte_dot;
}

/// Whether it multiplies groups of bytes in vectors as they lie: neither by pairs nor in matrix registers.
inline bool multiplies_groups(const LowerOptions& options) {
  return options.target == LowerOptions::Target::Cpu && !options.amx && !multiplies_pairs(options);
}

/// Lowers a graph after its passes into kernels and steps, in a valid order.
/// @throws UnsupportedError naming the op that has no way to become code.
Program lower(const ir::Graph& graph, const LowerOptions& options);

/// The unit that a node belongs to; empty: none.
std::string region_of(const ir::Node& node);
const UnitOptions& unit_of(const ir::Node& node, const LowerOptions& options);

}  // namespace heddle::jit
