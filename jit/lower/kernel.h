// One kernel being built: what every kind of group shares.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "jit/lower/element_emitter.h"
#include "jit/lower/groups.h"

namespace heddle::jit {

struct SharedLowering;

/// What groups are lowered with.
struct LoweringState {
  const ReadAnalysis& reads;
  const Grouping& grouping;
  const Placement& placement;
  SharedLowering& shared;

  const LiveGraph& graph() const { return reads.graph(); }
  const LowerOptions& options() const { return reads.graph().options(); }
};

/// A finished kernel and what its parameters are.
struct BuiltKernel {
  std::shared_ptr<const Nest> nest;
  std::vector<Value> buffers;      ///< the value in each global buffer
  std::vector<SymExpr> sizes;      ///< nest parameter k in the graph's symbols
  std::vector<const Node*> nodes;  ///< that it computes, those inlined into it last
  /// (loaded value, stored value): each element is stored after the last read of the one in its place.
  std::vector<std::pair<Value, Value>> in_place;
};

/// A nest tidied, numbered and checked.
struct FinishedNest {
  std::shared_ptr<const Nest> nest;
  std::vector<NestBufferId>
      globals;  ///< the builder's ids of the global buffers, in their new order
  std::vector<SymExpr> sizes;
  std::vector<std::pair<NestBufferId, NestBufferId>> in_place;  ///< positions in `globals`
};
/// `sizes_first`: see renumber(). `loops_run`: no loop of the nest ever has zero iterations.
FinishedNest finish_nest(NestBuilder& builder, const std::vector<SymExpr>& sizes_first,
                         bool loops_run, const LowerOptions& options);

class Kernel {
 public:
  Kernel(const LoweringState& state, std::uint32_t group);

  const LoweringState& state;
  const Group& group;
  NestBuilder builder;
  KernelMemory memory;
  ElementEmitter emitter;

  /// Values that this kernel stores, in graph order.
  std::vector<Value> stored;

  /// Stores `scalar` as element `index` of `storage`.
  void store(Value storage, const Index& index, Scalar scalar);
  /// Takes the statements emitted so far.
  Block take_body() { return std::exchange(builder.nest().body, Block{}); }
  /// Whether no result has an element, whatever the sizes.
  bool is_empty() const;
  /// No iterations, in each of which the results would be stored: what is_empty() asks for, since bodies
  /// divide by sizes of results and read before their loops.
  BuiltKernel finish_empty();
  /// finish_nest() and what its parameters are.
  BuiltKernel finish(bool loops_run);

 private:
  void collect_stored();
};

/// "add_gelu_mul": the ops of `nodes`, at most four.
std::string kernel_name(const std::vector<const Node*>& nodes);

BuiltKernel build_pointwise(const LoweringState& state, std::uint32_t group);
BuiltKernel build_row(const LoweringState& state, std::uint32_t group);
BuiltKernel build_recipe(const LoweringState& state, std::uint32_t group);
/// Copies memory laid out as `source` into memory laid out as `target`: global buffers 0 and 1.
FinishedNest build_copy(const ir::TensorMeta& source, const ir::TensorMeta& target,
                        const LowerOptions& options);

}  // namespace heddle::jit
