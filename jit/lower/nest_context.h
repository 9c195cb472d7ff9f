// What the builder of an op's own nest (matmul, conv, sort, …) works with: operands and results as
// callbacks, so that producers and consumers fuse into it.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "jit/nest_builder.h"
#include "jit/program.h"

namespace heddle::jit {

/// An operand that lies in memory as an affine function of its index:
/// element index = offset + sum of strides[d] * index[d].
struct AffineOperand {
  NestBufferId buffer;
  SymExpr offset;
  std::vector<SymExpr> strides;
};

class NestContext {
 public:
  virtual ~NestContext() = default;

  virtual const ir::Node& node() const = 0;
  virtual const LowerOptions& options() const = 0;
  virtual NestBuilder& builder() = 0;

  /// Sizes of operand k / output k in the nest's own size parameters (sN renumbered).
  virtual std::vector<SymExpr> operand_sizes(std::size_t k) = 0;
  virtual std::vector<SymExpr> output_sizes(std::size_t k = 0) = 0;
  virtual SymExpr translate(const SymExpr& graph_expr) = 0;

  /// Element of operand k, converted by nothing: inlined producer or load. `mask`: read only where true.
  virtual Scalar operand(std::size_t k, std::span<const SymExpr> index,
                         ScalarId mask = kNoScalar) = 0;
  /// Operand k as memory, if it is a buffer seen through affine views (always true for an operand that
  /// wants_memory() named).
  virtual std::optional<AffineOperand> affine(std::size_t k) = 0;
  /// Result element: runs the fused consumers' epilogue and stores. Call exactly once for each element of
  /// output k, in any order; inside a vector loop or not.
  virtual void result(std::size_t k, std::span<const SymExpr> index, Scalar value) = 0;
  /// The element at `index` of each output, which all have the same sizes: the epilogue may combine them. Then result() is not used.
  virtual void results(std::span<const SymExpr> index, std::span<const Scalar> values) = 0;
  /// Output k as memory, when the builder must write and re-read it (scatter, sort): no epilogue is fused
  /// then; buffer is row-major. Use either this or result() for an output.
  virtual NestBufferId output_memory(std::size_t k = 0) = 0;
  /// Code of a RuntimeCheck for BindStmt::check.
  virtual std::int32_t check(std::string_view what) = 0;
};

/// How an op named in Lowering::nest becomes a nest.
struct NestRecipe {
  std::string_view name;  ///< "matmul"
  /// Operands that must be plain memory (bit k): others may be inlined producers.
  std::uint32_t memory_operands = 0;
  /// Whether result() is used for output 0, or results() (pointwise consumers of the same sizes may fuse).
  bool epilogue = false;
  /// Whether it gives all outputs at once, by results(): consumers of any of them may fuse.
  bool of_all_results = false;
  void (*build)(NestContext&) = nullptr;
};

/// Null when there is none.
const NestRecipe* find_recipe(std::string_view name);

}  // namespace heddle::jit
