#include "ir/ops/regions.h"

#include <algorithm>
#include <fmt/format.h>

#include "ir/analysis/regions.h"
#include "ir/analysis/unbacked.h"
#include "ir/evaluate.h"
#include "ir/known_sizes.h"

namespace heddle::ir::ops {

const Graph& region(const InferContext& context, std::string_view name) {
  return *std::get<GraphRef>(context.attrs.find(name)->second).graph;
}

base::SymbolExprs check_region(const InferContext& context, const Graph& graph,
                               std::span<const TensorMeta> arguments, const std::string& label) {
  if (graph.inputs().size() != arguments.size())
    context.fail_shape(label + " takes the operands", fmt::format("{} inputs", arguments.size()),
                       std::to_string(graph.inputs().size()));
  for (std::size_t k = 0; k < arguments.size(); ++k) {
    const Value input = graph.inputs()[k];
    const bool fits = input.node->op_name() == "input" &&
                      input.meta().dtype == arguments[k].dtype &&
                      input.meta().rank() == arguments[k].rank();
    if (!fits)
      context.fail_shape(label + " takes the operands", seen(context.env, arguments[k]).to_string(),
                         input.meta().to_string());
  }
  const base::SymbolExprs sizes = region_sizes(graph, arguments);
  for (std::size_t k = 0; k < arguments.size(); ++k)
    for (std::size_t d = 0; d < arguments[k].sizes.size(); ++d)
      context.require_equal(graph.inputs()[k].meta().sizes[d].substitute(sizes),
                            arguments[k].sizes[d], label + " takes the operands");
  if (!graph.write_backs().empty())
    context.fail_shape(label + " writes nothing back", "no write-back",
                       graph.write_backs()[0].target.name());
  return sizes;
}

TensorMeta region_result(const Graph& graph, std::size_t k, const base::SymbolExprs& sizes) {
  const TensorMeta& meta = graph.outputs()[k].meta();
  Dims dims;
  for (const SymExpr& dim : meta.sizes) dims.push_back(dim.substitute(sizes));
  return TensorMeta::of(meta.dtype, std::move(dims));
}

std::set<base::Symbol> late_sizes(const InferContext& context, const Graph& graph) {
  std::set<base::Symbol> late;
  for (const Value& output : graph.outputs())
    for (const SymExpr& size : output.meta().sizes)
      for (const base::Symbol& symbol : unbacked_in(size)) late.insert(symbol);
  if (late.empty()) return late;
  std::set<base::Symbol> told;
  const auto tell = [&](const Value& value) {
    if (!value) return;
    for (const SymExpr& size : value.meta().sizes)
      for (const base::Symbol& symbol : unbacked_in(size)) told.insert(symbol);
  };
  for (const Value& operand : context.inputs) tell(operand);
  for (const Value& input : graph.inputs()) tell(input);
  for (const NodePtr& node : graph.nodes())
    for (const base::Symbol& symbol : unbacked_defined(*node)) told.erase(symbol);
  std::erase_if(late, [&](const base::Symbol& symbol) { return told.contains(symbol); });
  return late;
}

bool mentions(const SymExpr& size, const std::set<base::Symbol>& late) {
  if (late.empty()) return false;
  std::vector<base::Symbol> symbols;
  size.collect_symbols(symbols);
  return std::ranges::any_of(symbols, [&](const base::Symbol& s) { return late.contains(s); });
}

void check_same_each_time(const InferContext& context, const Graph& body, std::size_t k,
                          const std::string& label) {
  const TensorMeta& meta = body.outputs()[k].meta();
  const std::set<base::Symbol> late = late_sizes(context, body);
  for (const SymExpr& size : meta.sizes)
    if (mentions(size, late))
      context.fail_shape(fmt::format("{} {}", label, k), "the same sizes in each iteration",
                         meta.to_string());
}

namespace {

[[noreturn]] void fail_carried(const InferContext& context, const TensorMeta& start,
                               const TensorMeta& result, std::size_t k, const std::string& label) {
  context.fail_shape(fmt::format("{} {}", label, k), seen(context.env, start).to_string(),
                     seen(context.env, result).to_string());
}

}  // namespace

void check_carried_type(const InferContext& context, const TensorMeta& start,
                        const TensorMeta& result, std::size_t k, const std::string& label) {
  if (start.dtype != result.dtype || start.rank() != result.rank())
    fail_carried(context, start, result, k, label);
}

void check_carried_size(const InferContext& context, const TensorMeta& start,
                        const TensorMeta& result, std::size_t k, std::size_t d,
                        const std::string& label) {
  if (start.sizes[d] == result.sizes[d]) return;
  const base::Predicate same{base::Predicate::Op::Eq, start.sizes[d], result.sizes[d]};
  if (!context.env.expect(same).value_or(false) ||
      !context.env.require(same, fmt::format("{}: {} {}", context.op.name, label, k),
                           context.location))
    fail_carried(context, start, result, k, label);
}

void check_carried(const InferContext& context, const TensorMeta& start, const TensorMeta& result,
                   std::size_t k, const std::string& label) {
  check_carried_type(context, start, result, k, label);
  for (std::size_t d = 0; d < start.sizes.size(); ++d)
    check_carried_size(context, start, result, k, d, label);
}

std::vector<TensorMeta> plain_arguments(std::span<const Value> inputs, std::size_t first) {
  std::vector<TensorMeta> arguments;
  for (std::size_t k = first; k < inputs.size(); ++k)
    arguments.push_back(TensorMeta::of(inputs[k].meta().dtype, inputs[k].meta().sizes));
  return arguments;
}

std::vector<Literal> or_token(const EvalContext& context, std::vector<Literal> results) {
  if (results.empty()) results.push_back(context.make(0));
  return results;
}

std::vector<Literal> evaluate_region(const EvalContext& context, std::string_view name,
                                     std::span<const Literal> arguments) {
  const Graph& graph = context.node.graph(name);
  base::SymbolValues around = context.sizes;
  for (const Value& input : graph.inputs())
    for (const SymExpr& size : input.meta().sizes)
      if (size.is_symbol()) around.erase(size.symbol());
  return evaluate(graph, arguments, {}, around);
}

}  // namespace heddle::ir::ops
