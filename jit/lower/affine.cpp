#include "jit/lower/affine.h"

#include "ir/op.h"

namespace heddle::jit {
namespace {

/// Splits `position` into offset and strides over `axes`; nothing when it is not affine in them.
std::optional<AffineView> split(Value base, SymExpr position, const Index& axes) {
  AffineView view;
  view.base = base;
  for (const SymExpr& axis : axes) {
    if (!axis.is_symbol()) {
      view.strides.push_back(0);
      continue;
    }
    auto linear = position.linear_in(axis.symbol());
    if (!linear) return std::nullopt;
    for (const SymExpr& other : axes)
      if (other.is_symbol() && linear->coefficient.mentions(other.symbol())) return std::nullopt;
    view.strides.push_back(linear->coefficient);
    position = linear->rest;
  }
  view.offset = position;
  return view;
}

}  // namespace

std::optional<AffineView> affine_view(const LiveGraph& graph, Value value) {
  // A symbol for every dimension, those of size 1 too: a caller may index them as it likes.
  constexpr std::uint32_t kFirstAxis = 1u << 20;
  base::Facts facts;
  facts.sizes_positive = true;
  Index axes;
  const ir::Dims& sizes = value.meta().sizes;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    const Symbol axis{Symbol::Kind::Axis, kFirstAxis + static_cast<std::uint32_t>(d)};
    facts.set_range(axis, 0, sizes[d] - 1);
    axes.push_back(axis);
  }
  Index index = axes;
  while (graph.class_of(value.node) == NodeClass::View) {
    index = value.node->op().lowering.view(*value.node, index);
    for (SymExpr& expr : index) expr = expr.simplify(facts);
    value = value.node->input(0);
  }
  const ir::TensorMeta& meta = value.meta();
  const SymExpr position =
      meta.is_row_major() ? linear_index(index, meta.sizes) : strided_index(index, meta.strides);
  return split(value, position.simplify(facts), axes);
}

std::optional<Value> affine_base(const LiveGraph& graph, Value value) {
  const auto view = affine_view(graph, value);
  if (!view) return std::nullopt;
  return view->base;
}

}  // namespace heddle::jit
