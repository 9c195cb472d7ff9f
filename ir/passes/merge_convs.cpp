#include "ir/passes/merge_convs.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "ir/analysis/users.h"
#include "ir/literal.h"
#include "ir/op.h"
#include "ir/passes/form_regions.h"

namespace heddle::ir {

namespace {

using Values = std::vector<Value>;

/// Of one spatial dimension: taps from -before to after of the place that a window is for.
struct Reach {
  std::int64_t before = 0;
  std::int64_t after = 0;
  std::int64_t taps() const { return before + after + 1; }
};

/// One of the values that a sum adds.
struct Term {
  Value value;
  const Node* conv = nullptr;  ///< null: the tensor `x` itself, or what is no convolution
  Value x;                     ///< null: it is left as it is
  Value scale;                 ///< null: 1
};

/// Terms that may be one convolution.
struct Family {
  std::vector<const Term*> convs;
  std::vector<const Term*> copies;  ///< of x
  std::vector<Reach> reach;         ///< of all of them
};

class Merger {
 public:
  explicit Merger(const Graph& graph) : users_(users_of(graph)) {
    for (const Value& input : graph.inputs())
      if (input.node->op_name() == "param") fixed_.insert(input.node);
    for (const NodePtr& node : graph.nodes())
      if (is_fixed_step(*node)) fixed_.insert(node.get());
  }

  std::optional<Values> visit(Rewriter& rewriter, const Node& node) {
    if (!is_sum(node) || is_part_of_sum(node)) return {};
    std::vector<Term> terms;
    collect(node.value(), node, terms);
    std::vector<Family> families = families_of(terms);
    std::erase_if(families, [](const Family& family) { return !pays(family); });
    if (families.empty()) return {};
    return Values{merged(rewriter, terms, families)};
  }

 private:
  bool is_fixed_step(const Node& node) const {
    return node.op().pure && node.after().empty() && node.op().custom == nullptr &&
           !node.op().lowering.region && std::ranges::all_of(node.inputs(), [&](const Value& v) {
             return !v || fixed_.contains(v.node);
           });
  }

  static bool is_sum(const Node& node) {
    const DType dtype = node.output().dtype;
    return node.op_name() == "add" && (dtype == DType::F32 || dtype == DType::F64) &&
           node.after().empty() && node.output().rank() >= 3 && !wants_fallback(node);
  }

  bool is_read_once(Value value) const {
    return users_.of(value).size() == 1 && !users_.escapes(value);
  }

  /// Whether another sum of the same sizes adds all that this one does.
  bool is_part_of_sum(const Node& node) const {
    if (!is_read_once(node.value())) return false;
    const Node& user = *users_.of(node.value())[0].node;
    return is_sum(user) && user.output().sizes == node.output().sizes &&
           user.annotations() == node.annotations();
  }

  void collect(Value value, const Node& root, std::vector<Term>& terms) const {
    const Node& node = *value.node;
    if (&node == &root ||
        (is_sum(node) && is_part_of_sum(node) && node.annotations() == root.annotations())) {
      for (const Value& operand : node.inputs()) collect(operand, root, terms);
      return;
    }
    terms.push_back(term_of(value, root));
  }

  Term term_of(Value value, const Node& root) const {
    Term term{.value = value};
    if (fixed_.contains(value.node) || value.meta().dtype != root.output().dtype) return term;
    Value inside = value;
    if (value.node->op_name() == "mul" && is_read_once(value) && value.node->after().empty())
      for (const std::uint32_t k : {0U, 1U})
        if (is_of_channels(value.node->input(k), root) &&
            value.node->input(1 - k).meta().sizes == root.output().sizes) {
          term.scale = value.node->input(k);
          inside = value.node->input(1 - k);
        }
    if (inside.meta().sizes != root.output().sizes) return {.value = value};
    if (is_read_once(inside) && is_mergeable(*inside.node, root)) {
      term.conv = inside.node;
      term.x = inside.node->input(0);
    } else {
      term.x = inside;
    }
    return term;
  }

  /// Whether a value is a number for each channel, made of parameters.
  bool is_of_channels(Value value, const Node& root) const {
    if (!fixed_.contains(value.node) || value.meta().dtype != root.output().dtype) return false;
    const Dims& sizes = value.meta().sizes;
    const std::size_t missing = root.output().sizes.size() - sizes.size();
    for (std::size_t d = 0; d < sizes.size(); ++d)
      if (d + missing != 1 && !sizes[d].is_constant(1)) return false;
    return missing <= 1 &&
           (sizes[1 - missing].is_constant(1) || sizes[1 - missing] == root.output().sizes[1]);
  }

  bool is_mergeable(const Node& node, const Node& root) const {
    if (node.op_name() != "conv" || wants_fallback(node) || !node.after().empty()) return false;
    if (node.flag("channels_last") || node.output().dtype != root.output().dtype) return false;
    if (node.annotations() != root.annotations()) return false;
    for (std::size_t k = 0; k < node.inputs().size(); ++k)
      if (const Value operand = node.input(k);
          operand && operand.meta().dtype != node.output().dtype)
        return false;
    const Dims& weights = node.input(1).meta().sizes;
    const bool is_known =
        std::ranges::all_of(weights, [](const SymExpr& s) { return s.is_constant(); });
    if (!is_known || !fixed_.contains(node.input(1).node)) return false;
    if (node.inputs().size() > 2 && node.input(2) && !fixed_.contains(node.input(2).node))
      return false;
    const auto dilations = node.ints("dilations");
    for (std::size_t d = 0; d < dilations.size(); ++d)
      if (dilations[d] != 1 && !weights[d + 2].is_constant(1)) return false;
    return true;
  }

  static std::vector<Reach> reach_of(const Node& conv) {
    std::vector<Reach> reach;
    const Dims& weights = conv.input(1).meta().sizes;
    for (std::size_t d = 0; d + 2 < weights.size(); ++d) {
      const std::int64_t low = conv.ints("pads_low")[d];
      reach.push_back({low, weights[d + 2].constant() - 1 - low});
    }
    return reach;
  }

  static bool are_alike(const Node& a, const Node& b) {
    return a.integer("groups") == b.integer("groups") && a.flag("tf32") == b.flag("tf32") &&
           a.flag("bf16") == b.flag("bf16") &&
           std::ranges::equal(a.ints("strides"), b.ints("strides"));
  }

  /// Whether a convolution may add its own operand to its result.
  static bool may_copy(const Node& conv) {
    const bool strides = std::ranges::any_of(conv.ints("strides"), [](auto s) { return s != 1; });
    const Dims& weights = conv.input(1).meta().sizes;
    const bool by_channel = weights[1].is_constant(1) && weights[0] == conv.integer("groups");
    return !strides && (conv.integer("groups") == 1 || by_channel);
  }

  static std::vector<Family> families_of(std::span<const Term> terms) {
    std::vector<Family> families;
    for (const Term& term : terms) {
      if (term.conv == nullptr) continue;
      auto family = std::ranges::find_if(families, [&](const Family& known) {
        return known.convs[0]->x == term.x && are_alike(*known.convs[0]->conv, *term.conv);
      });
      if (family == families.end()) family = families.insert(family, Family());
      family->convs.push_back(&term);
      const std::vector<Reach> reach = reach_of(*term.conv);
      if (family->reach.empty()) family->reach = reach;
      for (std::size_t d = 0; d < reach.size(); ++d) {
        family->reach[d].before = std::max(family->reach[d].before, reach[d].before);
        family->reach[d].after = std::max(family->reach[d].after, reach[d].after);
      }
    }
    for (Family& family : families)
      for (const Term& term : terms)
        if (term.conv == nullptr && term.x == family.convs[0]->x &&
            may_copy(*family.convs[0]->conv) && covers_its_place(family))
          family.copies.push_back(&term);
    return families;
  }

  static bool covers_its_place(const Family& family) {
    return std::ranges::all_of(family.reach,
                               [](const Reach& r) { return r.before >= 0 && r.after >= 0; });
  }

  static bool pays(const Family& family) {
    const auto taps = [](std::span<const Reach> reach) {
      std::int64_t product = 1;
      for (const Reach& r : reach) product *= r.taps();
      return product;
    };
    std::int64_t before = 0;
    for (const Term* term : family.convs) before += taps(reach_of(*term->conv));
    return family.convs.size() + family.copies.size() >= 2 && taps(family.reach) <= before;
  }

  Value merged(Rewriter& rewriter, std::span<const Term> terms, std::span<const Family> families) {
    GraphBuilder& builder = rewriter.builder();
    std::set<const Term*> taken;
    Values parts;
    for (const Family& family : families) {
      parts.push_back(conv_of(rewriter, family));
      taken.insert(family.convs.begin(), family.convs.end());
      taken.insert(family.copies.begin(), family.copies.end());
    }
    for (const Term& term : terms)
      if (!taken.contains(&term)) parts.push_back(rewriter.map(term.value));
    Value sum = parts[0];
    for (std::size_t k = 1; k < parts.size(); ++k) sum = builder.emit("add", {sum, parts[k]});
    return sum;
  }

  Value conv_of(Rewriter& rewriter, const Family& family) {
    GraphBuilder& builder = rewriter.builder();
    const Node& first = *family.convs[0]->conv;
    Value weights;
    Value bias;
    const auto add = [&](Value& sum, Value part) {
      sum = sum ? builder.emit("add", {sum, part}) : part;
    };
    for (const Term* term : family.convs) {
      add(weights, padded(builder, scaled(rewriter, *term, rewriter.map(term->conv->input(1))),
                          reach_of(*term->conv), family.reach));
      if (term->conv->inputs().size() > 2 && term->conv->input(2))
        add(bias, scaled(rewriter, *term, rewriter.map(term->conv->input(2))));
    }
    const std::vector<Reach> place(family.reach.size());
    for (const Term* term : family.copies)
      add(weights,
          padded(builder, scaled(rewriter, *term, middle_of(builder, first)), place, family.reach));
    Attrs attrs = first.attrs();
    std::vector<std::int64_t> low;
    std::vector<std::int64_t> high;
    for (std::size_t d = 0; d < family.reach.size(); ++d) {
      const Reach own = reach_of(first)[d];
      low.push_back(family.reach[d].before);
      high.push_back(first.ints("pads_high")[d] + family.reach[d].after - own.after);
    }
    attrs["pads_low"] = low;
    attrs["pads_high"] = high;
    attrs["dilations"] = std::vector<std::int64_t>(low.size(), 1);
    Values operands{rewriter.map(first.input(0)), weights};
    if (bias) operands.push_back(bias);
    return builder.call(first.op(), operands, std::move(attrs))->value();
  }

  /// What has a channel of the result in its first dimension, multiplied by the numbers of a term.
  static Value scaled(Rewriter& rewriter, const Term& term, Value value) {
    if (!term.scale) return value;
    GraphBuilder& builder = rewriter.builder();
    const Value scale = rewriter.map(term.scale);
    Dims sizes(value.meta().sizes.size(), 1);
    sizes[0] = product(scale.meta().sizes);
    return builder.emit("mul", {value, builder.emit("reshape", {scale}, {{"sizes", sizes}})});
  }

  /// Weights with zeros around, for taps that reach farther.
  static Value padded(GraphBuilder& builder, Value weights, std::span<const Reach> own,
                      std::span<const Reach> wanted) {
    Dims low(2, 0);
    Dims high(2, 0);
    bool is_there = true;
    for (std::size_t d = 0; d < own.size(); ++d) {
      low.emplace_back(wanted[d].before - own[d].before);
      high.emplace_back(wanted[d].after - own[d].after);
      is_there = is_there && wanted[d].taps() == own[d].taps();
    }
    if (is_there) return weights;
    return builder.emit("pad", {weights}, {{"low", low}, {"high", high}});
  }

  /// The weights of one tap that copy x: [M, C / groups, 1...].
  static Value middle_of(GraphBuilder& builder, const Node& conv) {
    const Dims& weights = conv.input(1).meta().sizes;
    const DType dtype = conv.output().dtype;
    Dims sizes(weights.size(), 1);
    sizes[0] = weights[0];
    sizes[1] = weights[1];
    const auto places = [&](std::int64_t axis) {
      return builder.emit("iota", {}, {{"sizes", sizes}, {"axis", axis}});
    };
    if (conv.integer("groups") != 1)
      return builder.emit("expand", {builder.constant(Literal::scalar(dtype, 1))},
                          {{"sizes", sizes}});
    return builder.emit("convert", {builder.emit("eq", {places(0), places(1)})},
                        {{"dtype", dtype}});
  }

  Users users_;
  std::set<const Node*> fixed_;  ///< parameters, constants and what is made of them
};

}  // namespace

Graph merge_convs(const Graph& graph) {
  const bool has_convs = std::ranges::any_of(
      graph.nodes(), [](const NodePtr& node) { return node->op_name() == "conv"; });
  if (!has_convs) return graph;
  Merger merger(graph);
  return rewrite(graph, [&](Rewriter& rewriter, const NodePtr& node) {
    return merger.visit(rewriter, *node);
  });
}

}  // namespace heddle::ir
