#include "jit/lower/order_scatters.h"

#include <span>
#include <string>

#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "ir/scope_name.h"
#include "jit/nests/nests.h"

namespace heddle::jit {
namespace {

using base::SymExpr;
using ir::Node;
using ir::Value;

/// As few updates go one after the other: sorting them takes as long.
constexpr std::int64_t kFewUpdates = 16;
/// Parts in which updates go one after the other: where there are as many, the device is busy.
constexpr std::int64_t kManyParts = 256;

/// Elements of x from which on the CPU copies it by a kernel of its own.
constexpr std::int64_t kLeastCopied = 1 << 14;

Value i64_of(ir::GraphBuilder& b, std::int64_t number) {
  return b.constant(ir::Literal::scalar_int(DType::I64, number));
}

/// Sizes that all of `values` broadcast to.
ir::Dims broadcast_of(std::span<const Value> values) {
  ir::Dims result;
  for (const Value& value : values) {
    const ir::Dims& sizes = value.meta().sizes;
    if (sizes.size() > result.size())
      result.insert(result.begin(), sizes.size() - result.size(), SymExpr(1));
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      SymExpr& size = result[result.size() - sizes.size() + d];
      if (size.is_constant(1)) size = sizes[d];
    }
  }
  return result;
}

/// What the three scatters have in common.
class Scatter {
 public:
  Scatter(const Node& node, std::vector<Value> inputs)
      : node_(node),
        inputs_(std::move(inputs)),
        elements_(node.op_name() == "scatter_elements"),
        put_(node.op_name() == "index_put") {
    if (put_) {
      batch_ = broadcast_of(std::span(inputs_).subspan(2));
      coordinates_ = inputs_.size() - 2;
      return;
    }
    batch_ = inputs_[1].meta().sizes;
    coordinates_ = batch_.size();
    if (elements_) return;
    coordinates_ = static_cast<std::size_t>(batch_.back().constant());
    batch_.pop_back();
  }

  /// Whether the updates of a part go one after the other for so long that sorting them pays.
  bool pays() const {
    if (coordinates_ == 0 || has_many_parts()) return false;
    const SymExpr updates = elements_ ? batch_[axis()] : base::product(batch_);
    if (reduction() == "none" && !updates.is_constant()) return false;
    return !updates.is_constant() || updates.constant() > kFewUpdates;
  }
  /// Whether its independent parts are as many as the device has use for.
  bool has_many_parts() const {
    const SymExpr count = parts();
    return count.is_constant() && count.constant() >= kManyParts;
  }

  /// Whether its parts are pieces of rows: a copy of x in each of them goes through memory with gaps, and x is large.
  bool has_pieces() const {
    const SymExpr columns =
        base::product(std::span(x()).subspan(elements_ ? axis() + 1 : coordinates_));
    const SymExpr count = base::product(x());
    return columns.is_constant() && columns.constant() > kScatterColumns &&
           !(count.is_constant() && count.constant() < kLeastCopied);
  }

  Value ordered(ir::GraphBuilder& b, Value x) const {
    const SymExpr count = base::product(batch_);
    const Value to = reshape(b, expand(b, destinations(b), batch_), {count});
    const Node* sorted = b.call("sort", {to}, {{"axis", std::int64_t{0}}});
    const ir::Dims sizes = with_slice({count});
    return b.emit("ordered_scatter",
                  {x, sorted->value(0), sorted->value(1), reshape(b, updates(b), sizes)},
                  {{"coordinates", static_cast<std::int64_t>(coordinates_)},
                   {"reduction", reduction()},
                   {"what", ir::spoken_op(node_)},
                   {"in_place", std::vector<std::int64_t>{0}}});
  }

  Value in_place(ir::GraphBuilder& b, Value x) const {
    std::vector<Value> operands = inputs_;
    operands[0] = x;
    ir::Attrs attrs = node_.attrs();
    attrs["in_place"] = std::vector<std::int64_t>{0};
    return b.call(node_.op(), operands, std::move(attrs))->value();
  }

 private:
  std::string reduction() const {
    if (put_) return node_.flag("accumulate") ? "add" : "none";
    return node_.string("reduction");
  }
  std::size_t axis() const {
    const std::int64_t axis = node_.integer("axis");
    return static_cast<std::size_t>(axis < 0 ? axis + inputs_[0].meta().rank() : axis);
  }
  const ir::Dims& x() const { return inputs_[0].meta().sizes; }
  /// Dimensions of x that an update has all of.
  ir::Dims slice() const {
    return {x().begin() + static_cast<std::ptrdiff_t>(coordinates_), x().end()};
  }
  /// `sizes`, then those of a slice.
  ir::Dims with_slice(ir::Dims sizes) const {
    const ir::Dims last = slice();
    sizes.insert(sizes.end(), last.begin(), last.end());
    return sizes;
  }

  /// Of the nest "scatter".
  SymExpr parts() const {
    if (!elements_) return ceildiv(base::product(slice()), kScatterColumns);
    const std::span<const SymExpr> sizes(x());
    return base::product(sizes.first(axis())) *
           ceildiv(base::product(sizes.subspan(axis() + 1)), kScatterColumns);
  }

  static Value reshape(ir::GraphBuilder& b, Value value, ir::Dims sizes) {
    return b.emit("reshape", {value}, {{"sizes", std::move(sizes)}});
  }
  static Value expand(ir::GraphBuilder& b, Value value, const ir::Dims& sizes) {
    return b.emit("expand", {value}, {{"sizes", sizes}});
  }

  Value updates(ir::GraphBuilder& b) const {
    if (!put_) return inputs_[2];
    return expand(b, inputs_[1], with_slice(batch_));
  }

  /// Coordinate `d` of each update, which broadcasts to the batch.
  Value coordinate(ir::GraphBuilder& b, std::size_t d) const {
    if (elements_) return inputs_[1];
    if (put_) return inputs_[2 + d];
    ir::Dims start(batch_.size() + 1, SymExpr(0));
    const ir::Dims stride(batch_.size() + 1, SymExpr(1));
    ir::Dims limit = inputs_[1].meta().sizes;
    start.back() = static_cast<std::int64_t>(d);
    limit.back() = static_cast<std::int64_t>(d + 1);
    const Value column =
        b.emit("slice", {inputs_[1]}, {{"start", start}, {"limit", limit}, {"stride", stride}});
    return reshape(b, column, batch_);
  }

  /// The number of the slice that each update goes to, -1 where there is none.
  Value destinations(ir::GraphBuilder& b) const {
    Value place, exists;
    for (std::size_t d = 0; d < coordinates_; ++d) {
      const Value size = b.emit("symint", {}, {{"value", x()[d]}});
      const bool given = !elements_ || d == axis();
      Value at =
          given ? wrapped(b, coordinate(b, d), size)
                : b.emit("iota", {}, {{"sizes", batch_}, {"axis", static_cast<std::int64_t>(d)}});
      if (given) {
        const Value inside =
            b.emit("and", {b.emit("ge", {at, i64_of(b, 0)}), b.emit("lt", {at, size})});
        exists = exists ? b.emit("and", {exists, inside}) : inside;
      }
      place = place ? b.emit("add", {b.emit("mul", {place, size}), at}) : at;
    }
    return b.emit("where", {exists, place, i64_of(b, -1)});
  }

  static Value wrapped(ir::GraphBuilder& b, Value index, Value size) {
    if (index.meta().dtype != DType::I64)
      index = b.emit("convert", {index}, {{"dtype", DType::I64}});
    return b.emit("where",
                  {b.emit("lt", {index, i64_of(b, 0)}), b.emit("add", {index, size}), index});
  }

  const Node& node_;
  std::vector<Value> inputs_;
  const bool elements_, put_;
  ir::Dims batch_;               ///< of the updates
  std::size_t coordinates_ = 0;  ///< of a slice
};

}  // namespace

ir::Graph order_scatters(const ir::Graph& graph, const LowerOptions& options) {
  const bool cuda = options.target == LowerOptions::Target::Cuda;
  return ir::rewrite(
      graph,
      [&](ir::Rewriter& rewriter, const ir::NodePtr& node) -> std::optional<std::vector<Value>> {
        if (node->op().lowering.nest != "scatter" || ir::wants_fallback(*node)) return std::nullopt;
        const Scatter scatter(*node, rewriter.map(node->inputs()));
        const bool overwrites = ir::overwrites(*node, 0);
        if (!cuda) {
          if (overwrites || !scatter.has_pieces()) return std::nullopt;
          const Value copy = rewriter.builder().emit("clone", {rewriter.map(node->input(0))});
          return std::vector<Value>{scatter.in_place(rewriter.builder(), copy)};
        }
        if (!scatter.pays() && (overwrites || scatter.has_many_parts())) return std::nullopt;
        ir::GraphBuilder& builder = rewriter.builder();
        Value x = rewriter.map(node->input(0));
        if (!overwrites) x = builder.emit("clone", {x});
        return std::vector<Value>{scatter.pays() ? scatter.ordered(builder, x)
                                                 : scatter.in_place(builder, x)};
      });
}

}  // namespace heddle::jit
