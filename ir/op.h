// Op definitions: everything the engine knows about an op, in one place.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/element.h"
#include "ir/graph.h"
#include "ir/literal.h"
#include "ir/scalar.h"

namespace heddle::ir {

/// One operand of a schema.
struct OperandSpec {
  enum class Arity : std::uint8_t { One, Optional, Variadic };
  std::string_view name;
  Arity arity = Arity::One;
};

/// One attribute of a schema: required when it has no default.
struct AttrSpec {
  std::string_view name;
  AttrKind kind = AttrKind::Int;
  std::optional<Attr> default_value;
};

/// What infer() sees.
class InferContext {
 public:
  InferContext(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs, ShapeEnv& env,
               const base::Location& location)
      : op(op), inputs(inputs), attrs(attrs), env(env), location(location) {}

  const OpDef& op;
  std::span<const Value> inputs;
  const Attrs& attrs;
  ShapeEnv& env;
  const base::Location& location;

  const TensorMeta& meta(std::size_t k) const { return inputs[k].meta(); }
  bool has(std::size_t k) const { return k < inputs.size() && inputs[k]; }
  bool flag(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  const std::string& string(std::string_view name) const;
  DType dtype(std::string_view name) const;
  const std::vector<std::int64_t>& ints(std::string_view name) const;
  const Dims& symints(std::string_view name) const;
  const Literal& literal(std::string_view name) const;

  /// Sizes of `a` and `b` broadcast together (NumPy), deciding ones through the environment.
  Dims broadcast(const Dims& a, const Dims& b, std::string_view label) const;
  /// Axis in [0, rank) from one in [-rank, rank). Throws ShapeError labelled `label`.
  std::int64_t axis(std::int64_t axis, std::int64_t rank, std::string_view label) const;
  /// Throws ShapeError "<op>: <label> …" unless the two sizes are, or can be assumed, equal.
  void require_equal(const SymExpr& a, const SymExpr& b, std::string_view label) const;
  /// Throws DTypeError for an operand of 8-bit floats where the op takes none. Before every other constraint.
  void check_float8() const;
  [[noreturn]] void fail_shape(std::string_view label, std::string expected, std::string got) const;
  [[noreturn]] void fail_dtype(std::string_view label, std::string expected, std::string got) const;
};

/// How one output relates to the operands' storage.
struct Alias {
  enum class Kind : std::uint8_t {
    Fresh,     ///< bytes of its own
    MayReuse,  ///< fresh, but may take the dying operand's bytes: element k is written after read
    View,      ///< same storage as the operand
    SharesResult,  ///< same storage as the result `operand`, an earlier one
    Mutates,       ///< the operand's storage, overwritten (only in the stage after reinplace)
  };
  Kind kind = Kind::Fresh;
  std::size_t operand = 0;
};

/// What evaluate() sees: operands as concrete tensors, symbolic attributes put to numbers.
class EvalContext {
 public:
  EvalContext(const Node& node, std::span<const Literal> inputs, const base::SymbolValues& sizes)
      : node(node), inputs(inputs), sizes(sizes) {}

  const Node& node;
  std::span<const Literal> inputs;  ///< an absent optional operand is a default Literal
  const base::SymbolValues& sizes;

  bool has(std::size_t k) const { return k < node.inputs().size() && node.input(k); }
  Sizes concrete(std::span<const SymExpr> dims) const;
  Sizes concrete_attr(std::string_view symints) const;
  /// Concrete sizes of output k, as inferred. HD_CHECKs that no unbacked size is among them.
  Sizes output_sizes(std::size_t k = 0) const;
  /// A zeroed result for output k.
  Literal make(std::size_t k = 0) const;
};

/// What decompose() builds with.
class DecomposeContext {
 public:
  DecomposeContext(GraphBuilder& builder, const NodePtr& node, std::vector<Value> inputs)
      : builder(builder), node(*node), inputs(std::move(inputs)) {}

  GraphBuilder& builder;
  const Node& node;           ///< the node being replaced (attributes, output metas)
  std::vector<Value> inputs;  ///< its operands in the new graph

  Value emit(std::string_view op, std::initializer_list<Value> operands, Attrs attrs = {}) {
    return builder.emit(op, operands, std::move(attrs));
  }
  Value scalar(DType dtype, double value) { return builder.scalar(dtype, value); }
};

/// A view's index map: for output element `index`, the operand's element index.
using ViewFn = std::vector<SymExpr> (*)(const Node&, std::span<const SymExpr> index);
/// One element of output `output` at `index`.
using ElementFn = Scalar (*)(ElementBuilder&, const Node&, std::uint32_t output,
                             std::span<const SymExpr> index);
using InferFn = std::vector<TensorMeta> (*)(const InferContext&);
using AliasFn = Alias (*)(const Node&, std::uint32_t output);
using EvaluateFn = std::vector<Literal> (*)(const EvalContext&);
/// The values that replace the node's outputs. Nothing: the node stays, since this call is already in the
/// form that the op's nest takes (matmul of two matrices of one dtype).
using DecomposeFn = std::vector<Value> (*)(DecomposeContext&);

/// How often the nested graphs of an op run: one of the two, once, over and over while a condition holds, once
/// a slice.
enum class RegionKind : std::uint8_t { Cond, Once, While, Scan };
/// Metadata of what each nested graph of a call takes.
using RegionArgumentsFn = std::vector<TensorMeta> (*)(std::span<const Value> inputs, const Attrs&);

/// The ways an op can become code, in the order the compiler tries them: the first that is set and
/// applies, or the user's choice.
struct Lowering {
  ViewFn view = nullptr;        ///< a relabelling of one operand (operand 0)
  ElementFn element = nullptr;  ///< one element as scalars; pointwise, pad, concat, gather, iota
  std::optional<ReduceOp>
      reduce;  ///< over attribute "axes" (keepdims in "keepdims"); argmax: "axis"
  DecomposeFn decompose = nullptr;   ///< into other ops
  std::string_view nest;             ///< name of a loop nest builder in jit ("matmul", "conv")
  std::string_view library;          ///< name of a library kernel ("matmul", "conv")
  std::optional<RegionKind> region;  ///< runs nested graphs, each a plan of its own
  bool decompose_last = false;       ///< decompose is a fallback: only where no nest can be built
};

struct CustomOp;

/// A call with the dimensions of its operands in another order.
struct Reordered {
  Attrs attrs;  ///< of the call that does the same on reordered operands
  std::vector<std::int64_t>
      result;  ///< dimension k of its result is dimension result[k] of the old
};
/// The call when dimension k of every operand of the largest rank is what was dimension perm[k]. Operands of
/// a smaller rank broadcast against trailing dimensions, and are given the missing ones before they are
/// reordered. Nothing where there is no such call.
using ReorderFn = std::optional<Reordered> (*)(const Node&, std::span<const std::int64_t> perm);

/// An operand whose bytes a call may overwrite with one of its results. The op then has the attribute
/// in_place_attr(): the operands that this call does overwrite, none but after the pass reinplace.
struct InPlace {
  std::size_t operand = 0;
  std::uint32_t output = 0;
};
AttrSpec in_place_attr();
/// Whether `node` overwrites operand `operand`; any operand.
bool overwrites(const Node& node, std::size_t operand);
bool overwrites_any(const Node& node);

/// Dimensions along which a call treats its operands apart, of an op that is neither a view nor elements nor a reduction: all but the
/// inner ones, which are the last. What comes before them lies side by side from the last dimension on, and element n of the results
/// along such a dimension follows from elements n of the operands that have it, as of the matrices of a batch, or rows of a product.
struct Apart {
  static constexpr int kAllButFirst = -1;
  static constexpr int kWhole = -2;  ///< the operand is read as a whole for each
  int result = 0;                    ///< inner dimensions of each result
  std::vector<int> operands;         ///< and of the operands; those beyond are read as a whole
};

struct OpDef {
  std::string_view name;
  /// Gives elements of its operands as they are, or converts them: operands may be 8-bit floats, which have no arithmetic.
  bool takes_float8 = false;
  std::vector<OperandSpec> operands;
  std::vector<AttrSpec> attrs;
  int outputs = 1;  ///< -1: as many as infer returns
  InferFn infer = nullptr;
  AliasFn alias = nullptr;  ///< null: fresh
  EvaluateFn evaluate = nullptr;
  RegionArgumentsFn region_arguments = nullptr;  ///< of ops with nested graphs
  Lowering lowering;
  bool pure = true;        ///< may be merged with an equal node and removed when unused
  bool expensive = false;  ///< element lowering costs much: do not compute twice to save a store
  /// For scalar ops: the instruction, so that tests and passes can read it.
  std::optional<ScalarOp> scalar;
  const CustomOp* custom = nullptr;  ///< not null: registered by the user (ir/custom_op.h)
  ReorderFn reorder = nullptr;       ///< null: the order of dimensions is fixed
  std::vector<InPlace> in_place;     ///< operands that reinplace may let it overwrite
  std::vector<Apart> apart{};        ///< ways to see it; empty: none is known
};

/// The op called `name`. @throws UnsupportedError naming it and the closest known name.
const OpDef& op_named(std::string_view name);
const OpDef* find_op(std::string_view name);
/// All built-in ops, sorted by name.
std::span<const OpDef* const> all_ops();

/// Alias of output k of `node` (Fresh when the op has no alias function).
Alias alias_of(const Node& node, std::uint32_t output);

}  // namespace heddle::ir
