#include "ir/analysis/unbacked.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

#include "base/solve.h"
#include "heddle/error.h"
#include "ir/analysis/late_sizes.h"
#include "ir/op.h"
#include "ir/scope_name.h"

namespace heddle::ir {

std::vector<base::Symbol> unbacked_defined(const Node& node) {
  std::vector<base::Symbol> symbols;
  if (node.is_argument()) return symbols;
  for (const TensorMeta& meta : node.outputs())
    for (const SymExpr& size : meta.sizes)
      if (is_unbacked(size)) size.collect_symbols(symbols);
  if (symbols.empty()) return symbols;
  std::erase_if(symbols,
                [](const base::Symbol& s) { return s.kind != base::Symbol::Kind::Unbacked; });
  std::vector<base::Symbol> known;
  for (const Value& input : node.inputs())
    if (input)
      for (const SymExpr& size : input.meta().sizes) size.collect_symbols(known);
  for (const auto& [name, attr] : node.attrs()) {
    if (const auto* size = std::get_if<SymExpr>(&attr)) size->collect_symbols(known);
    if (const auto* sizes = std::get_if<Dims>(&attr))
      for (const SymExpr& size : *sizes) size.collect_symbols(known);
  }
  std::erase_if(symbols,
                [&](const base::Symbol& s) { return std::ranges::binary_search(known, s); });
  return symbols;
}

SameNumbers::SameNumbers(const Node& node, ShapeEnv& env) : env_(env), next_(env.next_unbacked_) {
  if (next_ == 0) return;
  const std::vector<base::Symbol> defined = unbacked_defined(node);
  if (!defined.empty()) env.next_unbacked_ = defined.front().id;
}

std::vector<base::Symbol> unbacked_in(const SymExpr& size) {
  std::vector<base::Symbol> symbols;
  if (is_unbacked(size)) size.collect_symbols(symbols);
  std::erase_if(symbols,
                [](const base::Symbol& s) { return s.kind != base::Symbol::Kind::Unbacked; });
  return symbols;
}

bool is_unbacked(const SymExpr& size) { return size.mentions(base::Symbol::Kind::Unbacked); }

namespace {

bool all_known(const SymExpr& size, const base::SymbolValues& known) {
  std::vector<base::Symbol> symbols;
  size.collect_symbols(symbols);
  return std::ranges::all_of(symbols, [&](const base::Symbol& s) { return known.contains(s); });
}

std::string to_text(const Dims& sizes) {
  std::vector<std::string> texts;
  for (const SymExpr& size : sizes) texts.push_back(size.to_string());
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

}  // namespace

base::SymbolValues solve_sizes(std::span<const Dims> results, std::span<const Sizes> got,
                               std::span<const base::Symbol> symbols, base::SymbolValues known,
                               const std::string& what, const std::string& where) {
  const auto fail = [&](std::string expected, std::string was) {
    throw ShapeError(
        {.what = what, .where = where, .expected = std::move(expected), .got = std::move(was)});
  };
  for (const base::Symbol& symbol : symbols) known.erase(symbol);
  if (got.size() != results.size())
    fail(fmt::format("those of {} results", results.size()), fmt::format("{}", got.size()));
  for (std::size_t k = 0; k < results.size(); ++k)
    for (std::size_t d = 0; d < results[k].size() && got[k].size() == results[k].size(); ++d)
      if (const auto solved = base::solve(results[k][d], got[k][d], known)) known.insert(*solved);
  for (std::size_t k = 0; k < results.size(); ++k) {
    bool fits = got[k].size() == results[k].size();
    for (std::size_t d = 0; fits && d < results[k].size(); ++d)
      fits = got[k][d] >= 0 && all_known(results[k][d], known) &&
             results[k][d].evaluate(known) == got[k][d];
    if (!fits)
      fail(fmt::format("{} of result {}", to_text(results[k]), k),
           fmt::format("[{}]", fmt::join(got[k], ", ")));
  }
  return known;
}

std::vector<LateCheck> late_checks(const Node& node) {
  std::vector<LateCheck> checks;
  for (const Assumption& required : node.late_requirements())
    checks.push_back({required.predicate, fmt::format("{} (%{})", required.reason, node.name()),
                      required.location.to_string()});
  const auto add = [&](const SymExpr& size, const char* what) {
    if (size.is_symbol() || !is_unbacked(size)) return;
    const base::Predicate holds{base::Predicate::Op::Le, 0, size};
    if (holds.decide(base::Facts()).value_or(false)) return;
    checks.push_back({holds, spoken_op(node) + what, node.location().to_string()});
  };
  const std::vector<base::Symbol> own = unbacked_defined(node);
  const auto is_own = [&](const base::Symbol& symbol) {
    return std::ranges::find(own, symbol) != own.end();
  };
  for (const TensorMeta& meta : node.outputs())
    for (const SymExpr& size : meta.sizes)
      if (std::ranges::none_of(unbacked_in(size), is_own)) add(size, ": sizes of the result");
  if (node.has("length"))
    if (const auto* length = std::get_if<SymExpr>(&node.attr("length")))
      add(*length, ": number of iterations");
  return checks;
}

std::vector<LateCheck> late_checks(const Graph& graph) {
  std::vector<LateCheck> all;
  for (const NodePtr& node : graph.nodes()) {
    if (node->is_argument()) continue;
    for (LateCheck& check : late_checks(*node))
      if (std::ranges::find(all, check.holds, &LateCheck::holds) == all.end())
        all.push_back(std::move(check));
  }
  return all;
}

std::optional<Error::Parts> refusal(const LateCheck& check, const base::SymbolValues& known) {
  const auto& [op, left, right] = check.holds;
  if (!all_known(left, known) || !all_known(right, known) || check.holds.evaluate(known))
    return std::nullopt;
  std::vector<std::string> values;
  for (const SymExpr* size : {&left, &right})
    if (!size->is_constant())
      values.push_back(fmt::format("{} = {}", size->to_string(), size->evaluate(known)));
  const bool is_size = op == base::Predicate::Op::Le && left.is_constant(0);
  return Error::Parts{.what = check.what,
                      .where = check.where,
                      .expected = is_size ? "sizes of at least 0" : check.holds.to_string(),
                      .got = fmt::format("{}", fmt::join(values, ", "))};
}

namespace {

void add_sizes(const Dims& sizes, std::set<base::Symbol>& symbols) {
  for (const SymExpr& size : sizes)
    for (const base::Symbol& symbol : unbacked_in(size)) symbols.insert(symbol);
}

/// What `node` mentions and does not define.
std::set<base::Symbol> symbols_used(const Node& node) {
  std::set<base::Symbol> symbols;
  for (const TensorMeta& meta : node.outputs()) add_sizes(meta.sizes, symbols);
  for (const base::Symbol& symbol : unbacked_defined(node)) symbols.erase(symbol);
  for (const auto& [name, attr] : node.attrs()) {
    if (const auto* size = std::get_if<SymExpr>(&attr)) add_sizes({*size}, symbols);
    if (const auto* sizes = std::get_if<Dims>(&attr)) add_sizes(*sizes, symbols);
    const auto* nested = std::get_if<GraphRef>(&attr);
    if (nested == nullptr) continue;
    std::set<base::Symbol> inside;
    for (const NodePtr& inner : nested->graph->nodes()) inside.merge(symbols_used(*inner));
    for (const NodePtr& inner : nested->graph->nodes())
      for (const base::Symbol& symbol : unbacked_defined(*inner)) inside.erase(symbol);
    for (const Value& input : nested->graph->inputs())
      for (const SymExpr& size : input.meta().sizes)
        for (const base::Symbol& symbol : unbacked_in(size)) inside.erase(symbol);
    symbols.merge(inside);
  }
  return symbols;
}

}  // namespace

SizeMakers::SizeMakers(const Graph& graph) {
  for (const NodePtr& node : graph.nodes())
    for (const base::Symbol& symbol : unbacked_defined(*node)) makers_.emplace(symbol, node.get());
}

std::vector<const Node*> SizeMakers::used_by(const Node& node) const {
  std::vector<const Node*> makers;
  if (makers_.empty()) return makers;
  for (const base::Symbol& symbol : symbols_used(node)) {
    const auto maker = makers_.find(symbol);
    if (maker != makers_.end() && std::ranges::find(makers, maker->second) == makers.end())
      makers.push_back(maker->second);
  }
  return makers;
}

std::vector<Value> SizeMakers::values_used_by(const Node& node) const {
  std::vector<Value> values;
  for (const Node* maker : used_by(node))
    for (std::uint32_t k = 0; k < maker->outputs().size(); ++k)
      if (std::ranges::any_of(maker->output(k).sizes, is_unbacked))
        values.push_back(maker->value(k));
  return values;
}

namespace {

/// @param found  the sizes known before the graph runs.
void check_late_sizes(const Graph& graph, std::set<base::Symbol> found) {
  for (const Value& input : graph.inputs()) add_sizes(input.meta().sizes, found);
  for (const NodePtr& node : graph.nodes()) {
    for (const auto& [name, attr] : node->attrs())
      if (const auto* nested = std::get_if<GraphRef>(&attr))
        check_late_sizes(*nested->graph, found);
    for (const base::Symbol& symbol : symbols_used(*node))
      if (!found.contains(symbol))
        throw TraceError(
            {.what = fmt::format("{}: a size that is known only at run time", node->op_name()),
             .where = node->location().to_string(),
             .expected = "a size of a tensor that is computed before, in this body or "
                         "around it",
             .got = symbol.to_string()});
    for (const base::Symbol& symbol : unbacked_defined(*node)) found.insert(symbol);
  }
}

}  // namespace

void check_late_sizes(const Graph& graph) {
  for (const Assumption& assumption : graph.assumptions()) {
    const base::Predicate& predicate = assumption.predicate;
    if (is_unbacked(predicate.left) || is_unbacked(predicate.right))
      throw TraceError({.what = assumption.reason,
                        .where = assumption.location.to_string(),
                        .expected = "sizes that are known before the run",
                        .got = predicate.to_string()});
  }
  if (graph.next_unbacked_symbol() != 0) check_late_sizes(graph, {});
}

}  // namespace heddle::ir
