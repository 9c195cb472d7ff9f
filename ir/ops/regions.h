// What the definitions of ops with nested graphs share.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/op.h"

namespace heddle::ir::ops {

OpDef cond_op();
OpDef while_loop_op();
OpDef scan_op();
OpDef map_op();
OpDef invoke_op();

/// The nested graph in attribute `name`.
const Graph& region(const InferContext& context, std::string_view name);

/// Checks that `graph` takes `arguments`, has no parameters and writes nothing back; fails with `label`
/// ("C2 then"). @return what its size symbols are in the surrounding graph.
base::SymbolExprs check_region(const InferContext& context, const Graph& graph,
                               std::span<const TensorMeta> arguments, const std::string& label);

/// The metadata of output k of `graph` in the surrounding graph's sizes, row-major.
TensorMeta region_result(const Graph& graph, std::size_t k, const base::SymbolExprs& sizes);

/// Sizes of outputs of `graph` that the call's operands do not tell: its nodes find them at run time.
std::set<base::Symbol> late_sizes(const InferContext& context, const Graph& graph);
/// Whether `size` mentions one of `late`.
bool mentions(const SymExpr& size, const std::set<base::Symbol>& late);
/// Fails with `label` when output k of a loop's body may have another size in each iteration.
void check_same_each_time(const InferContext& context, const Graph& body, std::size_t k,
                          const std::string& label);

/// Checks that result k of a loop's body has the dtype and rank that the loop starts with.
void check_carried_type(const InferContext& context, const TensorMeta& start,
                        const TensorMeta& result, std::size_t k, const std::string& label);
/// Checks that it has the size in dimension d, too.
void check_carried_size(const InferContext& context, const TensorMeta& start,
                        const TensorMeta& result, std::size_t k, std::size_t d,
                        const std::string& label);
/// Checks both.
void check_carried(const InferContext& context, const TensorMeta& start, const TensorMeta& result,
                   std::size_t k, const std::string& label);

/// Operands `first` and on, as row-major arguments.
std::vector<TensorMeta> plain_arguments(std::span<const Value> inputs, std::size_t first);

/// `results` of a node, or the token that it gives.
std::vector<Literal> or_token(const EvalContext& context, std::vector<Literal> results);

std::vector<Literal> evaluate_region(const EvalContext& context, std::string_view name,
                                     std::span<const Literal> arguments);

}  // namespace heddle::ir::ops
