#include "ir/evaluate.h"

#include <cstring>
#include <fmt/format.h>
#include <unordered_map>

#include "base/check.h"
#include "base/solve.h"
#include "heddle/error.h"
#include "ir/analysis/unbacked.h"
#include "ir/op.h"

namespace heddle::ir {

namespace {

void bind_size(const SymExpr& size, std::int64_t value, base::SymbolValues& sizes) {
  if (size.is_symbol()) sizes.emplace(size.symbol(), value);
}

/// A size of the form c*s+d gives s a value when nothing else did.
void solve_size(const SymExpr& size, std::int64_t value, base::SymbolValues& sizes) {
  if (const auto solved = base::solve(size, value, sizes)) sizes.insert(*solved);
}

void check_argument(const Graph& graph, std::size_t k, const Literal& argument,
                    const base::SymbolValues& sizes) {
  const TensorMeta& meta = graph.inputs()[k].meta();
  bool fits = argument.dtype() == meta.dtype && argument.sizes().size() == meta.sizes.size();
  for (std::size_t d = 0; fits && d < meta.sizes.size(); ++d) {
    std::vector<base::Symbol> symbols;
    meta.sizes[d].collect_symbols(symbols);
    for (const base::Symbol& symbol : symbols) fits = fits && sizes.contains(symbol);
    fits = fits && meta.sizes[d].evaluate(sizes) == argument.sizes()[d];
  }
  if (fits) return;
  Dims got(argument.sizes().begin(), argument.sizes().end());
  throw ShapeError({.what = "evaluate: input " + graph.inputs()[k].name(),
                    .where = {},
                    .expected = meta.to_string(),
                    .got = TensorMeta::of(argument.dtype(), std::move(got)).to_string()});
}

}  // namespace

base::SymbolValues bind_sizes(const Graph& graph, std::span<const Literal> arguments,
                              const base::SymbolValues& known) {
  base::SymbolValues sizes = known;
  for (const auto bind : {bind_size, solve_size}) {
    for (std::size_t k = 0; k < arguments.size(); ++k) {
      const TensorMeta& meta = graph.inputs()[k].meta();
      for (std::size_t d = 0; d < meta.sizes.size() && d < arguments[k].sizes().size(); ++d)
        bind(meta.sizes[d], arguments[k].sizes()[d], sizes);
      for (std::size_t d = 0; d < meta.strides.size() && d < arguments[k].strides().size(); ++d)
        bind(meta.strides[d], arguments[k].strides()[d], sizes);
    }
  }
  for (std::size_t k = 0; k < arguments.size(); ++k) check_argument(graph, k, arguments[k], sizes);
  return sizes;
}

namespace {

/// Puts what a call computed into the operands that it overwrites.
void overwrite_operands(const Node& node, std::span<Literal> operands, std::span<Literal> results) {
  for (std::uint32_t k = 0; k < results.size(); ++k) {
    const Alias alias = alias_of(node, k);
    if (alias.kind != Alias::Kind::Mutates) continue;
    Literal& target = operands[alias.operand];
    if (results[k].data() == target.data()) continue;
    const Literal source = results[k].contiguous();
    const auto width = static_cast<std::int64_t>(size_of(target.dtype()));
    for (std::int64_t p = 0; p < target.count(); ++p)
      std::memcpy(target.data_as<char>() + target.offset_of(p) * width,
                  source.data_as<char>() + p * width, size_of(target.dtype()));
    results[k] = target;
  }
}

/// Puts what the results tell of sizes that the node defines into `sizes`.
void note_late_sizes(const Node& node, std::span<const Literal> results,
                     base::SymbolValues& sizes) {
  const std::vector<base::Symbol> symbols = unbacked_defined(node);
  if (symbols.empty()) return;
  std::vector<Dims> wanted;
  std::vector<Sizes> got;
  for (std::uint32_t k = 0; k < results.size(); ++k) {
    wanted.push_back(node.output(k).sizes);
    got.push_back(results[k].sizes());
  }
  sizes = solve_sizes(wanted, got, symbols, std::move(sizes),
                      std::string(node.op_name()) + ": sizes of the results",
                      node.location().to_string());
}

}  // namespace

std::vector<Literal> evaluate(const Graph& graph, std::span<const Literal> arguments,
                              std::span<const Literal> parameters,
                              const base::SymbolValues& known) {
  std::size_t wanted = 0;
  for (const Value& input : graph.inputs()) wanted += input.node->op_name() == "input" ? 1 : 0;
  if (wanted != arguments.size())
    throw ArgumentError({.what = "evaluate: number of inputs",
                         .where = {},
                         .expected = std::to_string(wanted),
                         .got = std::to_string(arguments.size())});
  base::SymbolValues sizes = bind_sizes(graph, arguments, known);
  std::unordered_map<const Node*, std::vector<Literal>> values;
  std::size_t next_argument = 0;
  std::size_t next_parameter = 0;
  for (const Value& input : graph.inputs()) {
    if (input.node->op_name() == "input") {
      values[input.node] = {arguments[next_argument++]};
    } else if (const Literal* literal = graph.parameter(input.node)) {
      values[input.node] = {*literal};
    } else {
      if (next_parameter == parameters.size())
        throw ArgumentError({.what = "evaluate: parameter " + input.name(),
                             .where = {},
                             .expected = "a value",
                             .got = "none"});
      values[input.node] = {parameters[next_parameter++]};
    }
  }
  for (const NodePtr& node : graph.nodes()) {
    if (values.contains(node.get())) continue;
    std::vector<Literal> operands;
    for (const Value& operand : node->inputs())
      operands.push_back(operand ? values.at(operand.node)[operand.index] : Literal());
    for (const LateCheck& check : late_checks(*node))
      if (const auto why = refusal(check, sizes)) throw ShapeError(*why);
    std::vector<Literal> results = node->op().evaluate(EvalContext(*node, operands, sizes));
    HD_CHECK(results.size() == node->outputs().size(), node->name());
    overwrite_operands(*node, operands, results);
    note_late_sizes(*node, results, sizes);
    values[node.get()] = std::move(results);
  }
  std::vector<Literal> results;
  for (const Value& output : graph.outputs())
    results.push_back(values.at(output.node)[output.index]);
  for (const Graph::WriteBack& write : graph.write_backs())
    results.push_back(values.at(write.source.node)[write.source.index]);
  return results;
}

}  // namespace heddle::ir
