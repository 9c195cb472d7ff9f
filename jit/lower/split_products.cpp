#include "jit/lower/split_products.h"

#include <algorithm>

#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "jit/lower/decompose.h"
#include "jit/lower/index.h"

namespace heddle::jit {
namespace {

using ir::Node;
using ir::Value;

constexpr std::int64_t kMostProductParts = 4;
/// What reads the parts is followed so far.
constexpr int kMostSteps = 4;

const ir::Dims& bounds(const Node& slice, std::string_view name) {
  return std::get<ir::Dims>(slice.attr(name));
}

}  // namespace

SplitProducts::SplitProducts(const ir::Graph& graph, const LowerOptions& options)
    : options_(options) {
  if (options.target != LowerOptions::Target::Cpu) return;
  const auto is_product = [](const ir::NodePtr& node) { return node->op_name() == "matmul"; };
  if (std::ranges::none_of(graph.nodes(), is_product)) return;
  for (const ir::NodePtr& node : graph.nodes()) {
    for (const Value& input : node->inputs())
      if (input) readers_[input.node].push_back(node.get());
    for (const Value& before : node->after()) kept_.insert(before.node);
  }
  for (const Value& output : graph.outputs()) kept_.insert(output.node);
  for (const auto& write_back : graph.write_backs()) kept_.insert(write_back.source.node);
  for (const ir::NodePtr& node : graph.nodes())
    if (is_product(node)) find(*node);
}

bool SplitProducts::is_pointwise(const Node& node) const {
  const std::string_view name = node.op_name();
  const bool at_its_own_element =
      node.op().scalar || name == "convert" || name == "where" || name == "clone";
  return at_its_own_element && node.after().empty() && unit_of(node, options_).fuse &&
         !ir::wants_fallback(node);
}

std::optional<std::pair<std::int64_t, std::int64_t>> SplitProducts::part_read(const Node& slice) {
  if (slice.op_name() != "slice") return std::nullopt;
  const ir::Dims& from = slice.input(0).meta().sizes;
  const ir::Dims& to = slice.output().sizes;
  for (std::size_t d = 0; d < from.size(); ++d) {
    if (!bounds(slice, "stride")[d].is_constant(1)) return std::nullopt;
    if (d + 1 < from.size() && !(from[d] == to[d])) return std::nullopt;
  }
  if (from.empty() || !from.back().is_constant() || !to.back().is_constant()) return std::nullopt;
  const std::int64_t columns = to.back().constant();
  const SymExpr& start = bounds(slice, "start").back();
  if (columns == 0 || from.back().constant() % columns != 0 || !start.is_constant() ||
      start.constant() < 0 || start.constant() % columns != 0)
    return std::nullopt;
  return std::pair(start.constant() / columns, from.back().constant() / columns);
}

void SplitProducts::find(const Node& product) {
  const DType dtype = product.output().dtype;
  if (dtype != DType::F32 && dtype != DType::F64) return;
  if (product.input(0).meta().dtype != dtype || product.input(1).meta().dtype != dtype) return;
  Chain chain{.nodes = {&product}};
  const std::vector<const Node*>* readers = nullptr;
  for (const Node* node = &product;; node = chain.nodes.back()) {
    if (kept_.contains(node)) return;
    const auto found = readers_.find(node);
    if (found == readers_.end()) return;
    readers = &found->second;
    const Node* only = readers->front();
    if (readers->size() != 1 || only->op_name() == "slice") break;
    if (!is_pointwise(*only) || only->outputs().size() != 1 ||
        !same_dims(only->output().sizes, product.output().sizes))
      return;
    chain.nodes.push_back(only);
  }
  std::set<std::int64_t> seen;
  for (const Node* reader : *readers) {
    const auto part = part_read(*reader);
    if (!part || !reader->after().empty() || (chain.parts != 0 && part->second != chain.parts))
      return;
    chain.parts = part->second;
    seen.insert(part->first);
  }
  chain.columns = product.output().sizes.back().constant() / chain.parts;
  const bool fits =
      chain.parts >= 2 && chain.parts <= kMostProductParts && unit_columns(chain.columns) != 0;
  if (!fits || static_cast<std::int64_t>(seen.size()) != chain.parts || !are_combined(*readers))
    return;
  for (const Node* reader : *readers) slices_[reader] = {&product, part_read(*reader)->first};
  chains_.emplace(&product, std::move(chain));
}

bool SplitProducts::are_combined(const std::vector<const Node*>& slices) const {
  std::unordered_map<const Node*, std::set<std::int64_t>> parts;
  std::vector<const Node*> front = slices;
  for (const Node* slice : slices) parts[slice] = {part_read(*slice)->first};
  for (int step = 0; step < kMostSteps; ++step) {
    std::vector<const Node*> next;
    for (const Node* node : front) {
      const auto readers = readers_.find(node);
      if (readers == readers_.end()) continue;
      for (const Node* reader : readers->second) {
        if (!is_pointwise(*reader)) continue;
        std::set<std::int64_t>& of = parts[reader];
        of.insert(parts[node].begin(), parts[node].end());
        if (of.size() > 1) return true;
        next.push_back(reader);
      }
    }
    front = std::move(next);
  }
  return false;
}

std::int64_t SplitProducts::parts_of(const Node& product) const {
  const auto found = chains_.find(&product);
  return found == chains_.end() ? 0 : found->second.parts;
}

std::vector<Value> SplitProducts::replace(ir::Rewriter& rewriter, const Node& product,
                                          std::vector<Value> results) {
  Chain& chain = chains_.at(&product);
  chain.results = std::move(results);
  return {rewriter.builder().call("concat", chain.results, {{"axis", std::int64_t{-1}}})->value()};
}

std::optional<std::vector<Value>> SplitProducts::part(ir::Rewriter& rewriter, const Node& slice) {
  const auto found = slices_.find(&slice);
  if (found == slices_.end()) return std::nullopt;
  Chain& chain = chains_.at(found->second.product);
  if (chain.results.empty()) return std::nullopt;
  return std::vector<Value>{part_of(rewriter, chain, slice.input(0), found->second.part)};
}

Value SplitProducts::part_of(ir::Rewriter& rewriter, Chain& chain, Value value, std::int64_t part) {
  const Node* node = value.node;
  if (node == chain.nodes[0]) return chain.results[static_cast<std::size_t>(part)];
  if (std::ranges::find(chain.nodes, node) == chain.nodes.end()) {
    const Value whole = rewriter.map(value);
    const ir::Dims& sizes = whole.meta().sizes;
    if (sizes.empty() || sizes.back().is_constant(1)) return whole;
    ir::Dims start(sizes.size(), 0);
    ir::Dims limit = sizes;
    start.back() = part * chain.columns;
    limit.back() = (part + 1) * chain.columns;
    return rewriter.builder().emit(
        "slice", {whole},
        {{"start", start}, {"limit", limit}, {"stride", ir::Dims(sizes.size(), 1)}});
  }
  Value& made = chain.made[{node, part}];
  if (made) return made;
  std::vector<Value> operands;
  for (const Value& input : node->inputs())
    operands.push_back(input ? part_of(rewriter, chain, input, part) : Value());
  return made = rewriter.builder().call(node->op(), operands, node->attrs())->value();
}

}  // namespace heddle::jit
