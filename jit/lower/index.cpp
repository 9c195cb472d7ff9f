#include "jit/lower/index.h"

#include <algorithm>

#include "base/check.h"

namespace heddle::jit {

SymExpr linear_index(std::span<const SymExpr> index, std::span<const SymExpr> sizes) {
  HD_CHECK(index.size() == sizes.size());
  SymExpr position = 0;
  SymExpr stride = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    position += index[d] * stride;
    stride *= sizes[d];
  }
  return position;
}

SymExpr strided_index(std::span<const SymExpr> index, std::span<const SymExpr> strides) {
  HD_CHECK(index.size() == strides.size());
  SymExpr position = 0;
  for (std::size_t d = 0; d < index.size(); ++d) position += index[d] * strides[d];
  return position;
}

Index delinearize(const SymExpr& position, std::span<const SymExpr> sizes,
                  const base::Facts& facts) {
  Index index(sizes.size(), SymExpr(0));
  // Nothing lies in a domain with an empty axis, and nothing may be divided by its extent.
  for (const SymExpr& size : sizes)
    if (size.is_constant(0)) return index;
  SymExpr inner = 1;
  std::size_t outermost = 0;
  while (outermost < sizes.size() && sizes[outermost].is_constant(1)) ++outermost;
  for (std::size_t d = sizes.size(); d-- > outermost;) {
    if (sizes[d].is_constant(1)) continue;
    const SymExpr quotient = inner.is_constant(1) ? position : floordiv(position, inner);
    index[d] = (d == outermost ? quotient : mod(quotient, sizes[d])).simplify(facts);
    inner *= sizes[d];
  }
  return index;
}

Index domain_axes(std::span<const SymExpr> sizes, std::uint32_t first, base::Facts& facts) {
  Index axes;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d].is_constant(1)) {
      axes.push_back(0);
      continue;
    }
    const Symbol axis{Symbol::Kind::Axis, first + static_cast<std::uint32_t>(d)};
    facts.set_range(axis, 0, sizes[d] - 1);
    axes.push_back(axis);
  }
  return axes;
}

namespace {

void assume_at_least(const SymExpr& expr, std::int64_t least, base::Facts& facts);

/// Of a sum or a product of one term and a number.
void assume_of_term(const SymExpr& expr, std::int64_t least, base::Facts& facts) {
  const bool is_sum = expr.kind() == SymExpr::Kind::Sum;
  std::int64_t number = is_sum ? 0 : 1;
  std::vector<SymExpr> terms;
  for (const SymExpr& operand : expr.operands()) {
    if (operand.is_constant())
      number = operand.constant();
    else
      terms.push_back(operand);
  }
  if (is_sum && terms.size() == 1) {
    assume_at_least(terms[0], least - number, facts);
  } else if (!is_sum && least > 0 && number > 0) {
    const std::int64_t of_one = terms.size() == 1 ? (least + number - 1) / number : 1;
    for (const SymExpr& factor : terms) assume_at_least(factor, of_one, facts);
  }
}

/// What follows of symbols.
void assume_at_least(const SymExpr& expr, std::int64_t least, base::Facts& facts) {
  using Kind = SymExpr::Kind;
  switch (expr.kind()) {
    case Kind::Symbol: {
      const auto known = facts.ranges().find(expr.symbol());
      const bool is_known =
          known != facts.ranges().end() && known->second.low &&
          (!known->second.low->is_constant() || known->second.low->constant() >= least);
      if (!is_known) facts.set_low(expr.symbol(), least);
      return;
    }
    case Kind::Sum:
    case Kind::Product:
      return assume_of_term(expr, least, facts);
    case Kind::FloorDiv: {
      const std::vector<SymExpr> sides = expr.operands();
      if (sides[1].is_constant() && sides[1].constant() > 0)
        assume_at_least(sides[0], least * sides[1].constant(), facts);
      return;
    }
    case Kind::Min:
      for (const SymExpr& side : expr.operands()) assume_at_least(side, least, facts);
      return;
    default:
      return;
  }
}

}  // namespace

void assume_elements(std::span<const SymExpr> sizes, base::Facts& facts) {
  for (const SymExpr& size : sizes) assume_at_least(size, 1, facts);
}

bool same(const SymExpr& a, const SymExpr& b, const base::Facts& facts) {
  return a == b || (a - b).simplify(facts).is_constant(0);
}

bool same_dims(std::span<const SymExpr> a, std::span<const SymExpr> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

ir::Dims without_ones(std::span<const SymExpr> sizes) {
  ir::Dims kept;
  for (const SymExpr& size : sizes)
    if (!size.is_constant(1)) kept.push_back(size);
  return kept;
}

namespace {

ir::Dims dims_where(std::span<const SymExpr> sizes, std::span<const std::int64_t> axes, bool in) {
  ir::Dims chosen;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    const bool listed =
        std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(d)) != axes.end();
    if (listed == in) chosen.push_back(sizes[d]);
  }
  return chosen;
}

}  // namespace

ir::Dims dims_at(std::span<const SymExpr> sizes, std::span<const std::int64_t> axes) {
  return dims_where(sizes, axes, true);
}

ir::Dims dims_but(std::span<const SymExpr> sizes, std::span<const std::int64_t> axes) {
  return dims_where(sizes, axes, false);
}

}  // namespace heddle::jit
