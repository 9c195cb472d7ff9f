#include "jit/lower/decompose.h"

#include "base/check.h"
#include "heddle/error.h"
#include "ir/analysis/stream_pin.h"
#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "jit/lower/nest_context.h"

namespace heddle::jit {
namespace {

bool is_source(const ir::Node& node) { return node.is_argument() || node.op_name() == "const"; }

bool library_serves(const ir::Node& node, const LowerOptions& options) {
  const std::string_view name = node.op().lowering.library;
  if (name.empty() || options.library_available == nullptr) return false;
  return options.library_available(name, node);
}

[[noreturn]] void fail(const ir::Node& node, const char* what) {
  throw UnsupportedError(
      {.what = std::string(node.op_name()) + ": " + what, .where = node.location().to_string()});
}

/// Whether the op's decomposition is asked before its kernel: it may bring the call into the form that the
/// kernel takes.
bool asks_decompose(const ir::Node& node, const LowerOptions& options) {
  const ir::Lowering& ways = node.op().lowering;
  if (ways.decompose == nullptr) return false;
  const NodeClass kind = classify(node, options);
  if (kind == NodeClass::Composite) return true;
  return (kind == NodeClass::Nest || kind == NodeClass::Library) && !ways.decompose_last;
}

ir::Graph decompose_once(const ir::Graph& graph, const LowerOptions& options) {
  using Values = std::vector<ir::Value>;
  return ir::rewrite(
      graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) -> std::optional<Values> {
        if (!asks_decompose(*node, options)) return std::nullopt;
        ir::DecomposeContext context(rewriter.builder(), node, rewriter.map(node->inputs()));
        Values values = node->op().lowering.decompose(context);
        if (values.empty()) return std::nullopt;
        return values;
      });
}

}  // namespace

std::string region_of(const ir::Node& node) {
  const auto found = node.annotations().find(ir::kRegionAnnotation);
  if (found == node.annotations().end()) return {};
  const auto* text = std::get_if<std::string>(&found->second.value);
  return text == nullptr ? std::string() : *text;
}

const UnitOptions& unit_of(const ir::Node& node, const LowerOptions& options) {
  if (options.units.empty()) return options.rest;
  const auto unit = options.units.find(region_of(node));
  return unit == options.units.end() ? options.rest : unit->second;
}

bool same_unit(const ir::Node& a, const ir::Node& b, const LowerOptions& options) {
  const bool streams = options.target == LowerOptions::Target::Cuda;
  return region_of(a) == region_of(b) && (!streams || ir::pinned_stream(a) == ir::pinned_stream(b));
}

NodeClass classify(const ir::Node& node, const LowerOptions& options) {
  if (is_source(node)) return NodeClass::Source;
  if (node.op().custom != nullptr) return NodeClass::Library;
  const ir::Lowering& ways = node.op().lowering;
  if (ways.region) return NodeClass::Region;
  const bool fallback = ir::wants_fallback(node);
  if ((fallback || unit_of(node, options).library) && library_serves(node, options))
    return NodeClass::Library;
  if (ways.view != nullptr) return NodeClass::View;
  if (ways.element != nullptr) return NodeClass::Element;
  if (ways.reduce) return NodeClass::Reduce;
  if (!ways.nest.empty() && find_recipe(ways.nest) != nullptr) return NodeClass::Nest;
  if (ways.decompose != nullptr && !fallback) return NodeClass::Composite;
  if (fallback) fail(node, "should_fallback is set, but there is no kernel for it alone");
  fail(node, "there is no kernel for this operation");
}

ir::Graph decompose_all(const ir::Graph& graph, const LowerOptions& options) {
  // A chain of decompositions is short; a longer one is an op that decomposes into itself.
  constexpr int kMaxRounds = 16;
  ir::Graph current = graph;
  for (int round = 0;; ++round) {
    HD_CHECK(round < kMaxRounds, "decompositions do not end");
    ir::Graph next = decompose_once(current, options);
    if (next.identical(current)) break;
    current = std::move(next);
  }
  for (const ir::NodePtr& node : current.nodes())
    if (classify(*node, options) == NodeClass::Composite)
      fail(*node, "there is no kernel for this operation");
  return current;
}

}  // namespace heddle::jit
