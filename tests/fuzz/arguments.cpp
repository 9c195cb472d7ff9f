// Inputs, weights, indices: what they are and what they are filled with.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/fuzz/grower.h"

namespace heddle::fuzz {

using ir::Dims;
using ir::Literal;
using ir::Sizes;
using ir::SymExpr;

namespace {

double special_value(DType dtype, std::mt19937& random) {
  const double subnormal = dtype == f16    ? 3e-7
                           : dtype == f64  ? 3e-310
                           : dtype == bf16 ? 3e-39
                                           : 1e-41;
  switch (random() % 5) {
    case 0:
      return std::numeric_limits<double>::quiet_NaN();
    case 1:
      return std::numeric_limits<double>::infinity();
    case 2:
      return -std::numeric_limits<double>::infinity();
    case 3:
      return -0.0;
    default:
      return subnormal;
  }
}

void fill(Literal& literal, const Fill& how, const base::SymbolValues& sizes,
          std::mt19937& random) {
  const std::int64_t limit = how.kind == Fill::Kind::Index ? how.limit.evaluate(sizes) : 1;
  const auto fraction = [&] { return static_cast<double>(random()) / 4294967296.0; };
  for (std::int64_t k = 0; k < literal.count(); ++k) {
    if (how.kind == Fill::Kind::Index) {
      const std::int64_t span = how.low < 0 ? 2 * limit : limit;
      literal.set_int(k,
                      static_cast<std::int64_t>(
                          random() % static_cast<std::uint32_t>(std::max<std::int64_t>(span, 1))) -
                          (span - limit));
    } else if (literal.dtype() == boolean) {
      literal.set_int(k, random() % 2);
    } else if (how.kind == Fill::Kind::Special && random() % 4 == 0) {
      literal.set(k, special_value(literal.dtype(), random));
    } else {
      const double value = how.low + fraction() * (how.high - how.low);
      literal.set(k, how.kind == Fill::Kind::Noise ? value : std::round(value));
    }
  }
}

/// Elements of `sizes` in memory as `layout` says; none of the layouts repeats an element but Expanded.
Literal laid_out(DType dtype, const Sizes& sizes, Layout layout) {
  const std::size_t rank = sizes.size();
  const auto of = [&](std::size_t d) { return std::max<std::int64_t>(sizes[d], 1); };
  if (rank == 0 || layout == Layout::RowMajor) return Literal(dtype, sizes);
  Sizes strides(rank);
  std::int64_t step = 1;
  if (layout == Layout::Transposed) {
    for (std::size_t d = 0; d < rank; ++d) {
      strides[d] = step;
      step *= of(d);
    }
    return Literal(dtype, {step}).view(sizes, strides, 0);
  }
  for (std::size_t k = rank; k-- > 0;) {
    if (layout == Layout::Sliced && k == rank - 1) step = 2;
    strides[k] = layout == Layout::Expanded && k == 0 ? 0 : step;
    step *= of(k) + (layout == Layout::Sliced ? 1 : 0);
  }
  return Literal(dtype, {step + 1}).view(sizes, strides, 0);
}

}  // namespace

namespace {

/// The same sizes, strides and elements in other memory.
Literal copy_of(const Literal& literal) {
  std::int64_t elements = 1;
  for (std::size_t d = 0; d < literal.sizes().size(); ++d)
    elements += std::max<std::int64_t>(literal.sizes()[d] - 1, 0) * literal.strides()[d];
  Literal copy = Literal(literal.dtype(), {elements}).view(literal.sizes(), literal.strides(), 0);
  for (std::int64_t k = 0; k < literal.count(); ++k) {
    if (is_floating(literal.dtype()))
      copy.set(k, literal.at(k));
    else
      copy.set_int(k, literal.at_int(k));
  }
  return copy;
}

}  // namespace

std::vector<Literal> arguments_of(const Case& subject, std::size_t call) {
  const Call& chosen = subject.calls[call];
  std::vector<Literal> arguments;
  if (!subject.given.empty()) {
    for (const Literal& literal : subject.given[call]) arguments.push_back(copy_of(literal));
    return arguments;
  }
  std::size_t next = 0;
  for (const ir::Value input : subject.graph.inputs()) {
    if (subject.graph.parameter(input.node) != nullptr) continue;
    const Fill& how = subject.fills[next];
    std::mt19937 random(subject.seed * 977u + static_cast<std::uint32_t>(call * 31 + next));
    ++next;
    Sizes sizes;
    for (const SymExpr& size : input.meta().sizes) sizes.push_back(size.evaluate(chosen.sizes));
    arguments.push_back(
        laid_out(input.meta().dtype, sizes, chosen.other_layout ? Layout::RowMajor : how.layout));
    fill(arguments.back(), how, chosen.sizes, random);
  }
  return arguments;
}

Item Grower::input(DType dtype, Dims sizes, std::optional<Fill> wanted, bool may_be_special) {
  static const Layout kLayouts[] = {Layout::Transposed, Layout::Sliced, Layout::Expanded};
  Fill how;
  if (wanted) {
    how = *wanted;
  } else if (!is_floating(dtype)) {
    how = {Fill::Kind::Whole, is_signed(dtype) ? -5.0 : 0.0, 5, 1};
  } else if (specials_ && may_be_special && chance(50)) {
    how.kind = Fill::Kind::Special;
  } else if (chance(40)) {
    how = {Fill::Kind::Whole, -3, 3, 1};
  }
  if (strided_ && chance(60)) how.layout = one_of(kLayouts);
  Item item{builder_.input(ir::TensorMeta::of(dtype, std::move(sizes))), {}};
  item.quality = {std::max(std::abs(how.low), std::abs(how.high)), 0,
                  how.kind == Fill::Kind::Whole || !is_floating(dtype),
                  how.kind == Fill::Kind::Special};
  if (how.kind == Fill::Kind::Index) item.quality.bound = static_cast<double>(most(how.limit));
  case_.fills.push_back(how);
  items_.push_back(item);
  return item;
}

Item Grower::weight(DType dtype, Dims sizes) {
  Sizes fixed;
  for (const SymExpr& size : sizes) {
    if (!size.is_constant()) return input(dtype, sizes);
    fixed.push_back(size.constant());
  }
  const std::int64_t count = ir::element_count(fixed);
  const bool constant = count <= 16 && chance(40);
  if (!constant && !(parameters_ && chance(70)))
    return input(dtype, sizes, std::nullopt, /*may_be_special=*/false);
  Fill how;
  if (!is_floating(dtype) || chance(50))
    how = {Fill::Kind::Whole, is_signed(dtype) ? -3.0 : 0.0, 3, 1};
  Literal literal(dtype, fixed);
  fill(literal, how, {}, random_);
  const Quality quality{std::max(std::abs(how.low), how.high), 0, how.kind == Fill::Kind::Whole,
                        false};
  const ir::Value value = constant ? builder_.constant(literal)
                                   : builder_.parameter(ir::TensorMeta::of(dtype, sizes),
                                                        std::make_shared<const Literal>(literal));
  items_.push_back({value, quality});
  return items_.back();
}

Item Grower::indices(Dims sizes, const SymExpr& limit, bool negative) {
  static const DType kIndexTypes[] = {i64, i64, i32, i8, i16};
  DType dtype = one_of(kIndexTypes);
  if (dtype == i8 && most(limit) > 100) dtype = i64;
  return input(dtype, std::move(sizes),
               Fill{Fill::Kind::Index, negative && chance(50) ? -1.0 : 0.0, 0, limit});
}

}  // namespace heddle::fuzz
