#include "ir/passes/hoist_products.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/analysis/regions.h"
#include "ir/analysis/unbacked.h"
#include "ir/literal.h"
#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "ir/passes/loop_graphs.h"

namespace heddle::ir {

namespace {

using Values = std::vector<Value>;

/// A product of slices by a matrix with fewer rows reads more than it computes, and one of so many times as many columns takes too
/// much memory for all slices.
constexpr std::int64_t kLeastDepth = 16;
constexpr std::int64_t kMostWidening = 8;
/// What is worth being computed before a loop, with what is made of it; the rest is done as fast as it is read.
constexpr std::array<std::string_view, 7> kProducts = {
    "attention", "conv",        "conv_transpose", "dequantised_matmul",
    "int8_conv", "int8_matmul", "matmul"};

bool is_product(const Node& node) {
  return std::ranges::find(kProducts, node.op_name()) != kProducts.end();
}

bool is_constant(Value value, double number) {
  if (value.node->op_name() != "const") return false;
  const Literal& literal = value.node->literal("value");
  return literal.count() == 1 && literal.at(0) == number;
}

/// Whether a node may be computed though the loop may not come to it: it has no effect and reports no error.
bool is_harmless(const Node& node) {
  const OpDef& op = node.op();
  const std::string_view name = node.op_name();
  const bool makes_values = name == "const" || name == "symint" || name == "iota" ||
                            name == "convert" || name == "where" || is_product(node);
  return op.pure && op.custom == nullptr && !op.lowering.region && node.after().empty() &&
         node.late_requirements().empty() && node.outputs().size() == 1 && !wants_fallback(node) &&
         (makes_values || op.scalar || op.lowering.view != nullptr || op.lowering.reduce);
}

/// A loop, the products of its body that come before it, and what is left of the body.
class Loop {
 public:
  explicit Loop(const Node& call)
      : call_(call),
        body_(call.graph("body")),
        is_scan_(call.op_name() == "scan"),
        carried_(static_cast<std::size_t>(call.integer("carried"))),
        captured_(first_captured(call)),
        same_sizes_(has_same_sizes()) {
    for (std::size_t k = 0; k < body_.inputs().size(); ++k) inputs_[body_.inputs()[k].node] = k;
    for (const NodePtr& node : body_.nodes()) {
      const std::vector<base::Symbol> told = unbacked_defined(*node);
      late_.insert(late_.end(), told.begin(), told.end());
      is_invariant(node->value());
      is_from_product(node.get());
    }
    for (const NodePtr& node : body_.nodes()) {
      if (!is_product(*node) || is_invariant(node->value())) continue;
      if (is_of_slices(*node))
        of_slices_.push_back(node.get());
      else
        find_matrices(*node);
    }
    find_live();
  }

  bool changes() const { return !of_slices_.empty() || !invariants_.empty(); }

  Values hoist(Rewriter& rewriter) {
    const Values operands = rewriter.map(call_.inputs());
    Values slices;
    for (const Node* product : of_slices_) {
      const Values factors{operands[*sequence_of(product->input(0))],
                           outside(rewriter.builder(), operands, product->input(1))};
      slices.push_back(made_as(rewriter.builder(), *product, factors)->value());
    }
    Values given = operands;
    given.insert(given.begin() + static_cast<std::ptrdiff_t>(captured_), slices.begin(),
                 slices.end());
    for (const Node* node : invariants_)
      given.push_back(outside(rewriter.builder(), operands, node->value()));
    Attrs attrs = call_.attrs();
    const std::size_t scanned = captured_ - carried_ + slices.size();
    if (is_scan_) attrs.insert_or_assign("scanned", static_cast<std::int64_t>(scanned));
    for (auto& [name, attr] : attrs) {
      auto* ref = std::get_if<GraphRef>(&attr);
      if (ref == nullptr) continue;
      const auto add = [&](GraphBuilder& builder) { add_inputs(builder); };
      ref->graph = std::make_shared<const Graph>(name == "body" ? rest_of_body()
                                                                : with_inputs(*ref->graph, add));
    }
    const Node* made = rewriter.builder().call(call_.op(), given, std::move(attrs));
    Values results;
    for (std::uint32_t k = 0; k < made->outputs().size(); ++k) results.push_back(made->value(k));
    return results;
  }

 private:
  /// Whether each size of the nested graphs is called what it is called around the loop.
  bool has_same_sizes() const {
    const std::vector<TensorMeta> arguments = region_arguments(call_);
    for (const GraphRef* ref : regions_of(call_))
      for (const auto& [symbol, size] : region_sizes(*ref->graph, arguments))
        if (!(size == SymExpr(symbol))) return false;
    return true;
  }

  /// Whether a node has to do with sizes that only a run of the body tells.
  bool is_late(const Node& node) const {
    const auto mentions = [&](const SymExpr& size) {
      return std::ranges::any_of(late_, [&](const base::Symbol& s) { return size.mentions(s); });
    };
    if (std::ranges::any_of(node.output().sizes, mentions)) return true;
    return std::ranges::any_of(node.attrs(), [&](const auto& entry) {
      const auto* size = std::get_if<SymExpr>(&entry.second);
      const auto* sizes = std::get_if<Dims>(&entry.second);
      return (size != nullptr && mentions(*size)) ||
             (sizes != nullptr && std::ranges::any_of(*sizes, mentions));
    });
  }

  std::optional<std::size_t> input_of(Value value) const {
    const auto found = inputs_.find(value.node);
    return found == inputs_.end() ? std::nullopt : std::optional(found->second);
  }

  bool is_captured(std::size_t k) const { return k >= captured_; }

  /// Whether a value of the body is the same in each iteration, and may be computed before the loop.
  bool is_invariant(Value value) {
    if (const auto k = input_of(value))
      return is_captured(*k) || (*k < carried_ && body_.outputs()[*k] == value);
    const auto known = invariant_.find(value.node);
    if (known != invariant_.end()) return known->second;
    bool result = same_sizes_ && is_harmless(*value.node) && !is_late(*value.node);
    for (const Value& input : value.node->inputs())
      result = result && (!input || is_invariant(input));
    return invariant_[value.node] = result;
  }

  /// Notes the right operand of a product that is a view of what never changes: before the loop it is packed.
  void find_matrices(const Node& product) {
    const Value matrix = product.input(1);
    if (product.op_name() == "matmul" && !matrix.node->is_argument() && is_invariant(matrix) &&
        is_fixed(matrix))
      matrices_.insert(matrix.node);
  }
  bool is_fixed(Value value) const {
    if (const auto k = input_of(value)) {
      const std::string_view op = call_.input(*k).node->op_name();
      return op == "param" || op == "const";
    }
    return std::ranges::all_of(value.node->inputs(),
                               [&](const Value& input) { return input && is_fixed(input); });
  }

  /// Whether a value of the body is the number of the iteration.
  bool counts(Value value) const {
    const auto k = input_of(value);
    const DType dtype = value.meta().dtype;
    if (!k || *k >= carried_ || (dtype != DType::I64 && dtype != DType::I32) ||
        call_.flag("reverse") || !is_constant(call_.input(*k), 0))
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
    const auto length = call_.attrs().find("length");
    const bool fits = k && is_captured(*k) && length != call_.attrs().end() &&
                      call_.input(*k).meta().sizes[0] == std::get<SymExpr>(length->second);
    return fits ? k : std::nullopt;
  }

  bool is_of_slices(const Node& product) {
    if (!is_scan_ || call_.flag("counted") || product.op_name() != "matmul") return false;
    const TensorMeta& left = product.input(0).meta();
    if (product.input(1).meta().rank() != 2 || left.rank() < 2 || !product.after().empty() ||
        !product.late_requirements().empty() || wants_fallback(product) ||
        !is_invariant(product.input(1)))
      return false;
    const SymExpr& depth = left.sizes.back();
    const SymExpr& columns = product.output().sizes.back();
    if (depth.is_constant() && depth.constant() < kLeastDepth) return false;
    if (depth.is_constant() && columns.is_constant() &&
        columns.constant() > kMostWidening * depth.constant())
      return false;
    return sequence_of(product.input(0)).has_value();
  }

  /// Whether a node is computed from a product, or is one.
  bool is_from_product(const Node* node) {
    const auto known = from_product_.find(node);
    if (known != from_product_.end()) return known->second;
    bool result = is_product(*node);
    for (const Value& input : node->inputs())
      result = result || (input && is_from_product(input.node));
    return from_product_[node] = result;
  }

  /// What is still computed in the body, and what it reads that comes before the loop: all that stays the same and begins with a
  /// product, but for views of that, and matrices of products that are made of operands alone.
  void find_live() {
    std::unordered_set<const Node*> known(of_slices_.begin(), of_slices_.end());
    for (const NodePtr& node : body_.nodes())
      if (!node->is_argument() && is_before(*node)) known.insert(node.get());
    live_ = live_nodes(body_, known);
    for (const NodePtr& node : body_.nodes())
      if (live_.contains(node.get()) && known.contains(node.get()) && !is_slice_product(node.get()))
        invariants_.push_back(node.get());
    std::erase_if(of_slices_, [&](const Node* product) { return !live_.contains(product); });
  }

  bool is_slice_product(const Node* node) const {
    return std::ranges::find(of_slices_, node) != of_slices_.end();
  }

  /// Whether a node is computed before the loop and given to it, if the body needs it.
  bool is_before(const Node& node) {
    if (!is_invariant(node.value())) return false;
    return is_from_product(&node) ? node.op().lowering.view == nullptr : matrices_.contains(&node);
  }

  /// What stays the same in the body, computed around the loop.
  Value outside(GraphBuilder& builder, const Values& operands, Value value) {
    if (const auto k = input_of(value)) return operands[*k];
    const auto made = outside_.find(value.node);
    if (made != outside_.end()) return made->second->value(value.index);
    Values inputs;
    for (const Value& input : value.node->inputs())
      inputs.push_back(input ? outside(builder, operands, input) : Value());
    const Node* node = made_as(builder, *value.node, inputs);
    outside_[value.node] = node;
    return node->value(value.index);
  }

  /// A call like `node`, with storage of its own.
  static const Node* made_as(GraphBuilder& builder, const Node& node, const Values& inputs) {
    const GraphBuilder::Context before = builder.context;
    builder.context.annotations = node.annotations();
    builder.context.location = node.location();
    builder.context.name = node.name();
    builder.context.names.clear();
    const Node* made = builder.call(node.op(), inputs, node.attrs());
    builder.context = before;
    return made;
  }

  /// Puts what comes before the loop among the inputs of a nested graph. @return what stands for it there.
  std::map<const Node*, Value> add_inputs(GraphBuilder& builder) const {
    Values inputs(builder.inputs().begin(), builder.inputs().end());
    std::map<const Node*, Value> given;
    const auto add = [&](const Node* node) {
      const TensorMeta& meta = node->output();
      return given[node] = builder.input(TensorMeta::of(meta.dtype, meta.sizes));
    };
    Values slices;
    for (const Node* product : of_slices_) slices.push_back(add(product));
    inputs.insert(inputs.begin() + static_cast<std::ptrdiff_t>(captured_), slices.begin(),
                  slices.end());
    for (const Node* node : invariants_) inputs.push_back(add(node));
    builder.order_inputs(inputs);
    return given;
  }

  Graph rest_of_body() const {
    std::optional<std::map<const Node*, Value>> given;
    return rewrite(body_, [&](Rewriter& rewriter, const NodePtr& node) -> std::optional<Values> {
      if (!given) given = add_inputs(rewriter.builder());
      if (const auto found = given->find(node.get()); found != given->end())
        return Values{found->second};
      return live_.contains(node.get()) ? std::optional<Values>() : Values{};
    });
  }

  const Node& call_;
  const Graph& body_;
  const bool is_scan_;
  const std::size_t carried_,
      captured_;  ///< captured_: the first operand that is the same in each iteration
  const bool same_sizes_;
  std::unordered_map<const Node*, std::size_t> inputs_;  ///< of the body
  std::vector<base::Symbol> late_;                       ///< sizes that the body tells
  std::unordered_map<const Node*, bool> invariant_;
  std::unordered_map<const Node*, bool> from_product_;
  std::unordered_set<const Node*> matrices_;  ///< of products, made of what never changes
  std::vector<const Node*> of_slices_;        ///< products
  std::vector<const Node*> invariants_;       ///< in the body's order
  std::unordered_set<const Node*>
      live_;  ///< what the rest of the body needs, with what it is given
  std::unordered_map<const Node*, const Node*> outside_;
};

}  // namespace

Graph hoist_products(const Graph& graph) {
  return rewrite(graph, [&](Rewriter& rewriter, const NodePtr& node) -> std::optional<Values> {
    if (!is_loop(*node)) return {};
    Loop loop(*node);
    if (!loop.changes()) return {};
    return loop.hoist(rewriter);
  });
}

}  // namespace heddle::ir
