#include "jit/lower/bf16_convs.h"

#include <map>
#include <string>
#include <utility>

#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "jit/lower/conv_windows.h"
#include "jit/lower/decompose.h"
#include "jit/lower/fixed_values.h"
#include "jit/lower/group_panels.h"
#include "jit/nests/panel_conv.h"

namespace heddle::jit {
namespace {

using ir::Node;
using ir::Value;

constexpr std::int64_t kPair = 2;
/// Channels of either side below which the registers are mostly empty.
constexpr std::int64_t kLeastChannels = 16;

class ConvNarrower {
 public:
  explicit ConvNarrower(const LowerOptions& options) : options_(options), fixed_(options) {}

  std::optional<std::vector<Value>> visit(ir::Rewriter& rewriter, const Node& node) {
    if (!pays(node)) return std::nullopt;
    ir::GraphBuilder& builder = rewriter.builder();
    const std::string region = region_of(node);
    Value& x = narrowed_[{node.input(0), region}];
    if (!x) x = as_bf16(builder, rewriter.map(node.input(0)));
    const std::int64_t align = options_.amx ? patch_alignment(node, 1, DType::BF16) : 1;
    Value& panels = panels_[{{node.input(1), region}, align}];
    ir::Attrs attrs = panel_conv_attrs(node);
    attrs["align"] = align;
    if (!panels) {
      const Value filters = filters_of(builder, rewriter.map(node.input(1)));
      const std::int64_t columns = node.input(1).meta().sizes[0].constant();
      panels = emit_group_panels(builder, as_bf16(builder, filters), kPair,
                                 align == 1 ? kPanelColumns : patch_panel_columns(columns));
    }
    Value result = builder.emit("packed_bf16_conv", {x, panels}, std::move(attrs));
    if (node.inputs().size() > 2 && node.input(2))
      result = builder.emit("add", {result, rewriter.map(node.input(2))});
    return std::vector<Value>{result};
  }

 private:
  bool pays(const Node& node) {
    if (node.op_name() != "conv" || !node.flag("bf16") || !node.flag("channels_last") ||
        node.output().dtype != DType::F32 || node.integer("groups") != 1)
      return false;
    const ir::Dims& weights = node.input(1).meta().sizes;
    const SymExpr taps = base::product(std::span(weights).subspan(2));
    const auto fills = [](const SymExpr& channels) {
      return channels.is_constant() && channels.constant() >= kLeastChannels;
    };
    return taps.is_constant() && (!taps.is_constant(1) || has_padding(node)) && fills(weights[0]) &&
           fills(weights[1]) && unit_of(node, options_).fuse && !ir::wants_fallback(node) &&
           fixed_.contains(node.input(1).node) && (options_.amx || !is_tiled(node, options_));
  }

  const LowerOptions& options_;
  FixedValues fixed_;
  /// A tensor and the unit that reads it: units share no kernel.
  using InUnit = std::pair<Value, std::string>;
  std::map<InUnit, Value> narrowed_;
  std::map<std::pair<InUnit, std::int64_t>, Value> panels_;  ///< and where runs of taps begin
};

}  // namespace

ir::Graph bf16_convs(const ir::Graph& graph, const LowerOptions& options) {
  if (options.target != LowerOptions::Target::Cpu || !narrows_convs(options)) return graph;
  ConvNarrower narrower(options);
  return ir::rewrite(graph, [&](ir::Rewriter& rewriter, const ir::NodePtr& node) {
    return narrower.visit(rewriter, *node);
  });
}

}  // namespace heddle::jit
