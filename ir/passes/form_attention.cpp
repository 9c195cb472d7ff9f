#include "ir/passes/form_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "ir/op.h"
#include "ir/passes/form_regions.h"

namespace heddle::ir {

namespace {

/// Columns of v that one tile of the kernel holds.
constexpr std::int64_t kMostColumns = 128;

/// Of matrices of four dimensions.
constexpr std::array<std::int64_t, 4> kTransposed{0, 1, 3, 2};

/// A constant of one element.
std::optional<double> known_scalar(const Value& value) {
  if (!value || value.node->op_name() != "const") return std::nullopt;
  const Literal& literal = value.node->literal("value");
  if (literal.count() != 1 || !is_floating(literal.dtype())) return std::nullopt;
  return literal.at(0);
}

std::span<const SymExpr> leading(const Value& value) {
  const Dims& sizes = value.meta().sizes;
  return std::span(sizes).first(sizes.size() - 2);
}

bool same_sizes(const Value& a, const Value& b) { return a.meta().sizes == b.meta().sizes; }

/// Whether a reshape from `a` to `b` groups leading dimensions only.
bool same_matrices(const Value& a, const Value& b) {
  const Dims& from = a.meta().sizes;
  const Dims& to = b.meta().sizes;
  return from.size() >= 2 && to.size() >= 2 &&
         std::equal(from.end() - 2, from.end(), to.end() - 2) &&
         base::product(leading(a)) == base::product(leading(b));
}

struct Mask {
  Value value;
  bool adds = false;   ///< to the scores; else it chooses
  bool hides = false;  ///< chooses: where it is true, not where it is false
  double hidden = 0;   ///< chooses: the score that takes the place of a hidden one
};

struct Match {
  const Node* softmax = nullptr;
  const Node* scores = nullptr;  ///< the product of q and the transposed k
  double scale = 1;
  double softcap = 0;
  std::optional<Mask> mask;
  /// Added to the scores before `mask`, which then is of five dimensions, [batch, windows, heads, rows, columns], of scores [batch *
  /// windows, heads, rows, columns]; null: there is one mask at most.
  Value first_mask;
  Dims windowed;  ///< those sizes
};

class AttentionFormer {
 public:
  explicit AttentionFormer(const Graph& graph) {
    for (const NodePtr& node : graph.nodes()) {
      for (const Value& input : node->inputs())
        if (input) ++uses_[input.node];
      for (const Value& before : node->after()) ordered_.insert(before.node);
    }
    for (const Value& output : graph.outputs()) ++uses_[output.node];
    for (const Graph::WriteBack& write : graph.write_backs()) ++uses_[write.source.node];
  }

  std::optional<std::vector<Value>> visit(Rewriter& rewriter, const NodePtr& node) {
    const std::optional<Match> match = matched(*node);
    if (!match) return std::nullopt;
    return std::vector<Value>{replaced(rewriter, *node, *match)};
  }

 private:
  std::optional<Match> matched(const Node& product) {
    if (product.op_name() != "matmul" || wants_fallback(product)) return std::nullopt;
    last_ = &product;
    const Value weights = without_reshapes(product.input(0));
    if (!weights || !is_inner(weights, "softmax")) return std::nullopt;
    Match match;
    match.softmax = weights.node;
    const std::int64_t rank = weights.meta().rank();
    const std::int64_t axis = weights.node->integer("axis");
    if (rank < 3 || rank > 4 || (axis != -1 && axis != rank - 1)) return std::nullopt;
    const bool found = find_mask(weights.node->input(0), match);
    if (!found || !sizes_fit(product, match)) return std::nullopt;
    return match;
  }

  /// Whether `value` is a result of `op` that nobody but the pattern sees.
  bool is_inner(const Value& value, std::string_view op) const {
    const Node* node = value.node;
    return node->op_name() == op && uses_.at(node) == 1 && node->after().empty() &&
           !ordered_.contains(node) && node->annotations() == last_->annotations();
  }

  /// Null when there is a reshape that others see or that takes matrices apart.
  Value without_reshapes(Value value) const {
    while (value.node->op_name() == "reshape") {
      if (!is_inner(value, "reshape") || !same_matrices(value.node->input(0), value)) return {};
      value = value.node->input(0);
    }
    return value;
  }

  /// Masks of which the second is added to all windows of a batch.
  bool find_two_masks(const Value& scores, Match& match) const {
    const Value sum = without_reshapes(scores);
    if (!sum || !is_inner(sum, "add") || sum.meta().rank() != 5) return false;
    const Dims& sizes = sum.meta().sizes;
    const auto is_known = [](const SymExpr& size) {
      return size.is_constant() && size.constant() >= 1;
    };
    if (!is_known(sizes[1]) || !is_known(sizes[2])) return false;
    for (std::size_t k : {0u, 1u}) {
      match.mask = Mask{.value = sum.node->input(1 - k), .adds = true};
      if (!same_sizes(sum.node->input(k), sum) || !mask_fits(sum, *match.mask)) continue;
      const Value inner = without_reshapes(sum.node->input(k));
      if (!inner || !is_inner(inner, "add") || !same_sizes(inner, scores) ||
          inner.meta().rank() != 4 || inner.meta().sizes[1] != sizes[2])
        continue;
      for (std::size_t j : {0u, 1u}) {
        const Mask first{.value = inner.node->input(1 - j), .adds = true};
        const Dims& of_first = first.value.meta().sizes;
        const bool is_for_all = of_first.size() < 4 || of_first[0].is_constant(1);
        if (!same_sizes(inner.node->input(j), inner) || !mask_fits(inner, first) || !is_for_all ||
            !find_product(inner.node->input(j), match))
          continue;
        match.first_mask = first.value;
        match.windowed = sizes;
        return true;
      }
    }
    match.mask.reset();
    return false;
  }

  bool find_mask(const Value& scores, Match& match) const {
    if (find_two_masks(scores, match)) return true;
    const Node& node = *scores.node;
    if (is_inner(scores, "add")) {
      for (std::size_t k : {0u, 1u}) {
        match.mask = Mask{.value = node.input(1 - k), .adds = true};
        if (same_sizes(node.input(k), scores) && mask_fits(scores, *match.mask) &&
            find_product(node.input(k), match))
          return true;
      }
      return false;
    }
    if (is_inner(scores, "where")) {
      for (std::size_t k : {1u, 2u}) {
        const std::optional<double> hidden = known_scalar(node.input(3 - k));
        if (!hidden || !same_sizes(node.input(k), scores)) continue;
        match.mask = Mask{.value = node.input(0), .hides = k == 2, .hidden = *hidden};
        return mask_fits(scores, *match.mask) && find_product(node.input(k), match);
      }
      return false;
    }
    return find_product(scores, match);
  }

  /// Whether the mask's sizes say that it broadcasts to those of the scores.
  static bool mask_fits(const Value& scores, const Mask& mask) {
    const Dims& wide = scores.meta().sizes;
    const Dims& sizes = mask.value.meta().sizes;
    const DType dtype = mask.value.meta().dtype;
    if (mask.adds ? dtype != scores.meta().dtype : dtype != DType::Bool) return false;
    if (sizes.size() > wide.size()) return false;
    return std::equal(sizes.rbegin(), sizes.rend(), wide.rbegin(),
                      [](const SymExpr& size, const SymExpr& whole) {
                        return size.is_constant(1) || size == whole;
                      });
  }

  bool find_product(Value value, Match& match) const {
    match.scale = 1;
    match.softcap = 0;
    for (;;) {
      value = without_reshapes(value);
      if (!value) return false;
      if (is_inner(value, "matmul")) break;
      // c * tanh(s * f) caps s * f * c at c.
      if (is_inner(value, "tanh") && match.softcap == 0 && match.scale > 0) {
        match.softcap = match.scale;
        value = value.node->input(0);
        continue;
      }
      const bool divides = is_inner(value, "div");
      if (!divides && !is_inner(value, "mul")) return false;
      std::size_t scores = 0;
      std::optional<double> factor = known_scalar(value.node->input(1));
      if (!factor && !divides) {
        scores = 1;
        factor = known_scalar(value.node->input(0));
      }
      if (!factor || !same_sizes(value.node->input(scores), value)) return false;
      if (value.node->input(scores).meta().dtype != value.meta().dtype) return false;
      match.scale = divides ? match.scale / *factor : match.scale * *factor;
      value = value.node->input(scores);
    }
    match.scores = value.node;
    // An attribute of 0 has another meaning.
    return match.scale != 0 && std::isfinite(match.scale) && std::isfinite(match.softcap);
  }

  static bool sizes_fit(const Node& product, const Match& match) {
    const Value q = match.scores->input(0);
    const Value k = match.scores->input(1);
    const Value v = product.input(1);
    const DType dtype = product.output().dtype;
    if (dtype != DType::F32 && dtype != DType::F64) return false;
    for (const Value& operand : {q, k, v}) {
      if (operand.meta().dtype != dtype || operand.meta().rank() < 3) return false;
    }
    const SymExpr& columns = v.meta().sizes.back();
    if (!columns.is_constant() || columns.constant() > kMostColumns) return false;
    const SymExpr& depth = q.meta().sizes.back();
    const SymExpr& keys = k.meta().sizes.back();
    const Dims& v_sizes = v.meta().sizes;
    if (k.meta().sizes[k.meta().sizes.size() - 2] != depth || v_sizes[v_sizes.size() - 2] != keys)
      return false;
    const SymExpr batch = base::product(leading(match.softmax->value()));
    const bool plain = std::ranges::all_of(std::array{q, k, v}, [&](const Value& operand) {
      return base::product(leading(operand)) == batch;
    });
    // A number of heads that may be 0 would be assumed not to be.
    const auto heads = leading(match.softmax->value());
    if (heads.size() == 2 && !(heads[1].is_constant() && heads[1].constant() >= 1)) return false;
    // Batches of one kind each: none is broadcast.
    return plain && std::ranges::equal(leading(q), leading(k)) &&
           std::ranges::equal(leading(product.input(0)), leading(v)) &&
           match.softmax->output().dtype == dtype;
  }

  static Value replaced(Rewriter& rewriter, const Node& product, const Match& match) {
    GraphBuilder& builder = rewriter.builder();
    Dims batch(leading(match.softmax->value()).begin(), leading(match.softmax->value()).end());
    if (match.first_mask && !is_one_image(match))
      batch = {match.windowed[0], match.windowed[1] * match.windowed[2]};
    const auto heads = [&](const Value& old) {
      Dims sizes = batch;
      sizes.resize(2, SymExpr(1));
      sizes.insert(sizes.end(), old.meta().sizes.end() - 2, old.meta().sizes.end());
      return reshaped(builder, rewriter.map(old), sizes);
    };
    std::vector<Value> operands{heads(match.scores->input(0))};
    const Value k = repeated_heads(untransposed(match.scores->input(1)));
    const Value v = repeated_heads(product.input(1));
    if (!match.first_mask && k && v && k.meta().sizes[1] == v.meta().sizes[1]) {
      for (const Value& shared : {k, v}) operands.push_back(without_one(builder, rewriter, shared));
    } else {
      operands.push_back(builder.emit(
          "permute", {heads(match.scores->input(1))},
          {{"perm", std::vector<std::int64_t>(kTransposed.begin(), kTransposed.end())}}));
      operands.push_back(heads(product.input(1)));
    }
    Attrs attrs{{"scale", match.scale}, {"softcap", match.softcap}, {"nan_rows", true}};
    if (match.mask) {
      Value mask = match.first_mask ? both_masks(rewriter, match) : rewriter.map(match.mask->value);
      if (batch.size() == 1 && mask.meta().rank() == 3) {
        Dims sizes = mask.meta().sizes;
        sizes.insert(sizes.begin() + 1, SymExpr(1));
        mask = reshaped(builder, mask, sizes);
      }
      if (match.mask->hides) mask = builder.emit("not", {mask});
      operands.push_back(mask);
      if (!match.mask->adds && match.mask->hidden != -std::numeric_limits<double>::infinity())
        attrs["hidden"] = match.mask->hidden;
    }
    const Value made = builder.call(*find_op("attention"), operands, std::move(attrs))->value();
    return reshaped(builder, made, product.output().sizes);
  }

  /// Whether windows are the batch: those of one image need not be put together with the heads, for which operands in another order
  /// would be copied.
  static bool is_one_image(const Match& match) { return match.windowed[0].is_constant(1); }

  /// The sum of two masks, [batch or 1, windows * heads, rows or 1, columns or 1], or of one image [windows, heads, ...], each or 1.
  static Value both_masks(Rewriter& rewriter, const Match& match) {
    GraphBuilder& builder = rewriter.builder();
    const auto of_rank = [&](const Value& old, std::size_t rank) {
      Dims sizes = old.meta().sizes;
      sizes.insert(sizes.begin(), rank - sizes.size(), SymExpr(1));
      return reshaped(builder, rewriter.map(old), sizes);
    };
    Value sum = builder.emit("add", {of_rank(match.first_mask, 5), of_rank(match.mask->value, 5)});
    Dims sizes = sum.meta().sizes;
    if (is_one_image(match))
      return reshaped(builder, sum, {sizes[1], sizes[2], sizes[3], sizes[4]});
    for (std::size_t d : {1u, 2u}) sizes[d] = match.windowed[d];
    if (sum.meta().sizes != sizes) sum = builder.emit("expand", {sum}, {{"sizes", sizes}});
    return reshaped(builder, sum, {sizes[0], sizes[1] * sizes[2], sizes[3], sizes[4]});
  }

  /// What `value` is a transpose of; null where it is none.
  static Value untransposed(const Value& value) {
    const Node& node = *value.node;
    if (node.op_name() != "permute" || !std::ranges::equal(node.ints("perm"), kTransposed))
      return {};
    return node.input(0);
  }

  /// [B, Hk, 1, L, D], where `value` is [B, H, L, D] with each head of that repeated, as models write it for heads that share
  /// keys; else null.
  static Value repeated_heads(const Value& value) {
    if (!value || value.node->op_name() != "reshape") return {};
    const Value expanded = value.node->input(0);
    if (expanded.node->op_name() != "expand") return {};
    const Value shared = expanded.node->input(0);
    const Dims& sizes = value.meta().sizes;
    const Dims& wide = expanded.meta().sizes;
    const Dims& narrow = shared.meta().sizes;
    if (sizes.size() != 4 || wide.size() != 5 || narrow.size() != 5 || !narrow[2].is_constant(1))
      return {};
    const bool repeats = narrow[1].is_constant() && wide[2].is_constant() &&
                         sizes[1] == narrow[1] * wide[2] && narrow[0] == sizes[0];
    const auto same = [&](std::size_t d) {
      return narrow[d] == wide[d] && wide[d] == sizes[d - 1];
    };
    return repeats && narrow[1] == wide[1] && narrow[0] == wide[0] && same(3) && same(4) ? shared
                                                                                         : Value{};
  }

  /// [B, Hk, L, D] of [B, Hk, 1, L, D].
  static Value without_one(GraphBuilder& builder, Rewriter& rewriter, const Value& shared) {
    const Dims& sizes = shared.meta().sizes;
    return reshaped(builder, rewriter.map(shared), {sizes[0], sizes[1], sizes[3], sizes[4]});
  }

  static Value reshaped(GraphBuilder& builder, const Value& value, const Dims& sizes) {
    if (value.meta().sizes == sizes) return value;
    return builder.emit("reshape", {value}, {{"sizes", sizes}});
  }

  std::unordered_map<const Node*, std::size_t> uses_;
  std::unordered_set<const Node*> ordered_;  ///< what some node comes after
  const Node* last_ = nullptr;               ///< the product with v that is looked at
};

}  // namespace

Graph form_attention(const Graph& graph) {
  AttentionFormer former(graph);
  return rewrite(
      graph, [&](Rewriter& rewriter, const NodePtr& node) { return former.visit(rewriter, node); });
}

}  // namespace heddle::ir
