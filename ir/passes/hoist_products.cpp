#include "ir/passes/hoist_products.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "ir/analysis/regions.h"
#include "ir/literal.h"
#include "ir/op.h"
#include "ir/passes/form_regions.h"

namespace heddle::ir {

namespace {

using Values = std::vector<Value>;

/// Of matrices with fewer rows a product reads more than it computes.
constexpr std::int64_t kLeastDepth = 16;

bool is_constant(Value value, double number) {
  if (value.node->op_name() != "const") return false;
  const Literal& literal = value.node->literal("value");
  return literal.count() == 1 && literal.at(0) == number;
}

/// A scan, the products of its body that come before it, and what is left of the body.
class Loop {
 public:
  explicit Loop(const Node& scan)
      : scan_(scan),
        body_(scan.graph("body")),
        carried_(static_cast<std::size_t>(scan.integer("carried"))),
        scanned_(static_cast<std::size_t>(scan.integer("scanned"))) {
    if (scan.flag("counted")) return;
    for (const NodePtr& node : body_.nodes())
      if (node->op_name() == "matmul" && is_hoistable(*node)) products_.push_back(node.get());
    if (!products_.empty()) find_dropped();
  }

  bool has_products() const { return !products_.empty(); }

  Values hoist(Rewriter& rewriter) {
    const Values operands = rewriter.map(scan_.inputs());
    Values hoisted;
    for (const Node* product : products_) {
      const Value sequence = operands[*sequence_of(product->input(0))];
      const Value matrix = operands[*input_of(product->input(1))];
      hoisted.push_back(rewriter.builder()
                            .call(product->op(), Values{sequence, matrix}, product->attrs())
                            ->value());
    }
    Attrs attrs = scan_.attrs();
    std::get<GraphRef>(attrs.at("body")).graph = std::make_shared<const Graph>(rest_of_body());
    const auto is_dropped = [&](std::size_t k) { return dropped_.contains(k); };
    Values given;
    std::size_t scanned = hoisted.size();
    for (std::size_t k = 0; k <= operands.size(); ++k) {
      if (k == carried_ + scanned_) given.insert(given.end(), hoisted.begin(), hoisted.end());
      if (k == operands.size() || is_dropped(k)) continue;
      if (k >= carried_ && k < carried_ + scanned_) ++scanned;
      given.push_back(operands[k]);
    }
    attrs.insert_or_assign("scanned", static_cast<std::int64_t>(scanned));
    const Node* made = rewriter.builder().call(scan_.op(), given, std::move(attrs));
    Values results;
    for (std::uint32_t k = 0; k < made->outputs().size(); ++k) results.push_back(made->value(k));
    return results;
  }

 private:
  std::optional<std::size_t> input_of(Value value) const {
    const auto inputs = body_.inputs();
    const auto at = std::ranges::find(inputs, value);
    if (at == inputs.end()) return std::nullopt;
    return static_cast<std::size_t>(at - inputs.begin());
  }

  bool is_captured(std::size_t k) const { return k >= carried_ + scanned_; }

  /// Whether a value of the body is the number of the iteration.
  bool counts(Value value) const {
    const auto k = input_of(value);
    if (!k || *k >= carried_ || scan_.flag("reverse") || !is_constant(scan_.input(*k), 0))
      return false;
    const Node& next = *body_.outputs()[*k].node;
    return next.op_name() == "add" && ((next.input(0) == value && is_constant(next.input(1), 1)) ||
                                       (next.input(1) == value && is_constant(next.input(0), 1)));
  }

  /// The operand of the scan of which the body's value is a slice.
  std::optional<std::size_t> sequence_of(Value value) const {
    if (const auto k = input_of(value))
      return *k >= carried_ && !is_captured(*k) ? k : std::nullopt;
    const Node& gather = *value.node;
    if (gather.op_name() != "gather" || !gather.after().empty() || gather.integer("axis") != 0 ||
        gather.input(1).meta().rank() != 0 || !counts(gather.input(1)))
      return std::nullopt;
    const auto k = input_of(gather.input(0));
    const auto length = scan_.attrs().find("length");
    const bool fits = k && is_captured(*k) && length != scan_.attrs().end() &&
                      scan_.input(*k).meta().sizes[0] == std::get<SymExpr>(length->second);
    return fits ? k : std::nullopt;
  }

  bool is_hoistable(const Node& product) const {
    const auto matrix = input_of(product.input(1));
    const ir::TensorMeta& left = product.input(0).meta();
    if (!matrix || !is_captured(*matrix) || product.input(1).meta().rank() != 2 ||
        left.rank() < 2 || !product.after().empty() || wants_fallback(product))
      return false;
    const SymExpr& depth = left.sizes.back();
    if (depth.is_constant() && depth.constant() < kLeastDepth) return false;
    return sequence_of(product.input(0)).has_value();
  }

  /// Operands that nothing reads any more. Sizes in the body mean the same without them.
  void find_dropped() {
    std::set<const Node*> gone(products_.begin(), products_.end());
    const auto is_read = [&](const Node* node) {
      const auto reads = [&](const Value& value) { return value.node == node; };
      return std::ranges::any_of(body_.outputs(), reads) ||
             std::ranges::any_of(body_.nodes(), [&](const NodePtr& reader) {
               return !gone.contains(reader.get()) &&
                      (std::ranges::any_of(reader->inputs(), reads) ||
                       std::ranges::any_of(reader->after(), reads));
             });
    };
    for (const Node* product : products_) {
      const Node* left = product->input(0).node;
      if (left->op_name() == "gather" && !is_read(left)) gone.insert(left);
    }
    dead_ = gone;
    const std::vector<TensorMeta> arguments = region_arguments(scan_);
    const base::SymbolExprs sizes = region_sizes(body_, arguments);
    for (std::size_t k = carried_; k < body_.inputs().size(); ++k) {
      const Value input = body_.inputs()[k];
      const bool plain = std::ranges::all_of(
          input.meta().sizes, [&](const SymExpr& size) { return size.substitute(sizes) == size; });
      if (plain && !is_read(input.node)) dropped_.insert(k);
    }
  }

  Graph rest_of_body() const {
    bool begun = false;
    std::map<const Node*, Value> slices;
    const auto begin = [&](GraphBuilder& b) {
      Values inputs(b.inputs().begin(), b.inputs().end());
      const auto behind = inputs.begin() + static_cast<std::ptrdiff_t>(carried_ + scanned_);
      Values made;
      for (const Node* product : products_) {
        const TensorMeta& meta = product->output();
        made.push_back(b.input(TensorMeta::of(meta.dtype, meta.sizes)));
        slices[product] = made.back();
      }
      Values dropped;
      for (const std::size_t k : dropped_) dropped.push_back(inputs[k]);
      inputs.insert(behind, made.begin(), made.end());
      b.order_inputs(inputs);
      b.drop_inputs(dropped);
    };
    return rewrite(body_, [&](Rewriter& rewriter, const NodePtr& node) -> std::optional<Values> {
      if (!std::exchange(begun, true)) begin(rewriter.builder());
      if (const auto slice = slices.find(node.get()); slice != slices.end())
        return Values{slice->second};
      if (dead_.contains(node.get())) return Values{};
      return {};
    });
  }

  const Node& scan_;
  const Graph& body_;
  const std::size_t carried_, scanned_;
  std::vector<const Node*> products_;
  std::set<const Node*> dead_;     ///< the products, and gathers that only they read
  std::set<std::size_t> dropped_;  ///< operands
};

}  // namespace

Graph hoist_products(const Graph& graph) {
  return rewrite(graph, [&](Rewriter& rewriter, const NodePtr& node) -> std::optional<Values> {
    if (node->op_name() != "scan") return {};
    Loop loop(*node);
    if (!loop.has_products()) return {};
    return loop.hoist(rewriter);
  });
}

}  // namespace heddle::ir
