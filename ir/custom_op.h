// Ops that users register. In a graph their calls are in value semantics: a written operand is read, and
// its new value is a result.
//
//   %r0, %r1, %counts2 = moe::route(%x, %counts, none) {k = 2}
//
// Results come first, then one new value for each written base, in the order of the schema. An op that has
// neither gives a token, u8[0], so that order edges can name it. An op whose only result is its written
// first argument gives the new value alone. Beside the schema's own attributes:
//
//   _aliases   operands that are not written may lie in written bases and see the writes, as in the program
//   _lists     length of each list argument, in order
//   _bases     for each written operand given: which base it lies in; empty: each is a base of its own
//   _views     for each written operand given: -1 when it is the whole base, else its rank, offset, sizes
//              and strides in elements of the base; empty: all are whole
//   in_place   operands that are bases and are overwritten instead of copied first (after reinplace)
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "heddle/kernel_call.h"
#include "ir/op.h"
#include "ir/op_schema.h"

namespace heddle::ir {

/// What a shape function sees: operands as their kernel does (views of bases, not the bases).
struct CustomShapes {
  const InferContext& context;
  std::span<const TensorMeta> tensors;  ///< those of absent arguments are empty
  std::span<const std::uint32_t>
      starts;  ///< first of `tensors` by tensor argument, and their number
};

/// A kernel of CUDA C++.
struct KernelText {
  std::string text;
  std::string kernel;  ///< its name
  base::Hash128 key;   ///< of both
};

struct CustomOp {
  using Kernel = std::function<void(const KernelCall&)>;
  using Number = std::function<std::int64_t(const KernelCall&)>;

  OpSchema schema;
  std::function<std::vector<TensorMeta>(const CustomShapes&)> shape;
  Kernel cpu;
  Kernel reference;                                           ///< null: `cpu` serves the evaluator
  std::function<void(const KernelCall&, void* stream)> cuda;  ///< null: not on CUDA
  std::vector<std::shared_ptr<const KernelText>>
      cuda_texts;  ///< what that launches, as far as known
  Number workspace_bytes;
  Number extent;
  /// Sizes of the results of a call whose sizes depend on values.
  std::function<std::vector<Sizes>(const KernelCall&)> sizes;
  std::function<void(const KernelCall&, std::int64_t* told, void* stream)> cuda_sizes;
  bool pure = true;
  bool capturable = true;
  bool collective = false;
  bool is_given = false;  ///< its functions are the embedder's

  OpDef def;  ///< as the rest of the compiler sees it
};

/// Adds `op` to the table, for as long as the process lives. Fills op->def.
/// @throws ArgumentError when the name is taken or a required function is missing.
const CustomOp& register_custom_op(std::unique_ptr<CustomOp> op);
const CustomOp* find_custom_op(std::string_view name);
std::vector<std::string_view> custom_op_names();

/// Where the elements of a written operand lie in its base.
struct BaseView {
  bool whole = true;
  SymExpr offset = 0;
  Dims sizes, strides;
};

/// A written operand that the call gives.
struct WrittenOperand {
  std::size_t operand = 0;
  std::size_t base = 0;
  BaseView view;
};

/// How the operands and results of a call are to be read.
struct CustomLayout {
  std::vector<std::uint32_t> starts;  ///< first operand by tensor argument, and their number
  std::vector<WrittenOperand> written;
  std::vector<std::size_t> bases;  ///< by base: the first operand that is or lies in it

  const WrittenOperand* written_at(std::size_t operand) const;
};

/// @throws ArgumentError when the attributes contradict each other.
CustomLayout layout_of(const CustomOp& op, std::span<const Value> inputs, const Attrs& attrs);
inline CustomLayout layout_of(const Node& node) {
  return layout_of(*node.op().custom, node.inputs(), node.attrs());
}

/// `view` as the attribute _views has it, appended to `encoded`.
void encode_view(const BaseView& view, Dims& encoded);

/// Number of results before the new values of bases: those of the schema, or the token.
std::size_t result_count(const Node& node);
/// The operand that result `output` is a view of; nothing: it has bytes of its own.
std::optional<std::size_t> viewed_operand(const Node& node, std::uint32_t output);

/// The schema's attributes of a call as its kernel sees them.
KernelAttrs kernel_attrs(const CustomOp& op, const Attrs& attrs, const base::SymbolValues& sizes);

}  // namespace heddle::ir
