#include "jit/nests/support.h"

#include <bit>
#include <limits>
#include <string>

#include "ir/ops/bit_ops.h"
#include "ir/scope_name.h"
#include "jit/lower/pack_weights.h"

namespace heddle::jit {

using base::Predicate;
using ir::ScalarOp;

Scalar compare(NestBuilder& b, ScalarOp op, const SymExpr& left, const SymExpr& right) {
  const Scalar a = b.from_index(left);
  return b.apply(op, {a, b.from_index(right)});
}

Mask both(NestBuilder& b, const Mask& first, const Mask& second) {
  if (!first) return second;
  if (!second) return first;
  return b.apply(ScalarOp::And, {*first, *second});
}

Mask where_less(NestBuilder& b, const Mask& mask, const SymExpr& left, const SymExpr& right) {
  const Predicate less{Predicate::Op::Lt, left, right};
  if (less.decide(b.facts()).value_or(false)) return mask;
  return both(b, mask, compare(b, ScalarOp::Lt, left, right));
}

Scalar select(NestBuilder& b, const Mask& mask, Scalar value, Scalar otherwise) {
  return mask ? b.apply(ScalarOp::Select, {*mask, value, otherwise}) : value;
}

Scalar zero(NestBuilder& b, DType dtype) { return b.constant_int(dtype, 0); }

Scalar comes_before(NestBuilder& b, Scalar x, Scalar y, bool descending) {
  const Scalar less = b.apply(descending ? ScalarOp::Gt : ScalarOp::Lt, {x, y});
  if (!is_floating(x.dtype)) return less;
  const Scalar number_x = b.apply(ScalarOp::Not, {b.apply(ScalarOp::IsNan, {x})});
  const Scalar nan_y = b.apply(ScalarOp::IsNan, {y});
  return b.apply(ScalarOp::Or, {less, b.apply(ScalarOp::And, {number_x, nan_y})});
}

std::int64_t halvings(std::int64_t count) {
  return std::bit_width(static_cast<std::uint64_t>(count));
}

Scalar first_that_does_not(NestBuilder& b, Scalar low, Scalar high, const SymExpr& steps,
                           const Precedes& precedes) {
  b.begin_for(steps, ForStmt::Kind::Serial);
  const Scalar from = b.carry(low);
  const Scalar to = b.carry(high);
  const Scalar open = b.apply(ScalarOp::Lt, from, to);
  const Scalar middle = b.apply(ScalarOp::Shr, b.apply(ScalarOp::Add, from, to), b.i64(1));
  const Scalar does = precedes(middle, open);
  const Scalar right = b.apply(ScalarOp::And, open, does);
  const Scalar left = b.apply(ScalarOp::And, open, b.apply(ScalarOp::Not, {does}));
  const Scalar next = b.apply(ScalarOp::Add, middle, b.i64(1));
  const Scalar result = b.set_next(from, select(b, right, next, from));
  b.set_next(to, select(b, left, middle, to));
  b.end_for();
  return result;
}

std::optional<ScalarOp> join_of(std::string_view reduction) {
  if (reduction == "add") return ScalarOp::Add;
  if (reduction == "mul") return ScalarOp::Mul;
  if (reduction == "max") return ScalarOp::Max;
  if (reduction == "min") return ScalarOp::Min;
  return std::nullopt;
}

Scalar lowest(NestBuilder& b, DType dtype) {
  if (is_floating(dtype)) return b.constant(dtype, -std::numeric_limits<double>::infinity());
  if (!is_signed(dtype)) return b.constant_int(dtype, 0);
  const auto bits = static_cast<int>(8 * size_of(dtype));
  return b.constant_int(dtype, std::numeric_limits<std::int64_t>::min() >> (64 - bits));
}

SymExpr wrapped_index(NestContext& ctx, Scalar value, const SymExpr& size, const Mask& mask) {
  NestBuilder& b = ctx.builder();
  Scalar index = b.convert(value, DType::I64);
  if (is_signed(value.dtype)) {
    const Scalar negative = b.apply(ScalarOp::Lt, {index, zero(b, DType::I64)});
    const Scalar from_end = b.apply(ScalarOp::Add, {index, b.from_index(size)});
    index = b.apply(ScalarOp::Select, {negative, from_end, index});
  }
  const std::string what = ir::spoken_op(ctx.node()) + ": index out of range";
  return b.bind(index, 0, size - 1, ctx.check(what), id_of(mask));
}

namespace {

Mask tap_mask(NestBuilder& b, const TapLoop& loop, const SymExpr& axis, const SymExpr& tap,
              const SymExpr& position, Mask mask) {
  if (loop.check_tap) mask = where_less(b, mask, tap, loop.kernel);
  if (loop.divisor != 1) {
    const SymExpr rest = mod(loop.position + SymExpr(loop.position_step) * axis, loop.divisor);
    mask = both(b, mask, compare(b, ScalarOp::Eq, rest, 0));
  }
  if (loop.check_low) mask = where_less(b, mask, -1, position);
  if (loop.check_high) mask = where_less(b, mask, position, loop.size);
  return mask;
}

class TapNest {
 public:
  TapNest(NestBuilder& b, std::span<const TapLoop> loops, const TapBody& body)
      : b_(b), loops_(loops), body_(body) {}

  std::vector<Scalar> run(std::size_t d, const Mask& mask, std::vector<Scalar> values) {
    if (d == loops_.size()) return body_(position_, tap_, mask, values);
    const TapLoop& loop = loops_[d];
    if (loop.extent.is_constant(1)) {
      const Mask inside = enter(loop, 0, mask);
      values = run(d + 1, inside, std::move(values));
      leave();
      return values;
    }
    const Symbol axis = b_.begin_for(loop.extent, ForStmt::Kind::Serial);
    std::vector<Scalar> now;
    for (const Scalar& value : values) now.push_back(b_.carry(value));
    const Mask inside = enter(loop, axis, mask);
    const std::vector<Scalar> next = run(d + 1, inside, now);
    leave();
    for (std::size_t k = 0; k < now.size(); ++k) values[k] = b_.set_next(now[k], next[k]);
    b_.end_for();
    return values;
  }

 private:
  Mask enter(const TapLoop& loop, const SymExpr& axis, const Mask& mask) {
    tap_.push_back(loop.tap + SymExpr(loop.tap_step) * axis);
    position_.push_back(floordiv(loop.position + SymExpr(loop.position_step) * axis, loop.divisor));
    return tap_mask(b_, loop, axis, tap_.back(), position_.back(), mask);
  }
  void leave() {
    tap_.pop_back();
    position_.pop_back();
  }

  NestBuilder& b_;
  std::span<const TapLoop> loops_;
  const TapBody& body_;
  Index tap_, position_;
};

}  // namespace

std::vector<Scalar> for_each_tap(NestBuilder& b, std::span<const TapLoop> loops,
                                 std::vector<Scalar> values, const TapBody& body) {
  return TapNest(b, loops, body).run(0, std::nullopt, std::move(values));
}

WindowShape::WindowShape(const ir::Node& node)
    : strides(node.ints("strides")),
      pads_low(node.ints("pads_low")),
      pads_high(node.ints("pads_high")),
      dilations(node.ints("dilations")) {
  const ir::Dims& x = node.input(0).meta().sizes;
  input.assign(x.begin() + 2, x.end());
}

SymExpr WindowShape::first_tap(std::size_t d, const SymExpr& at) const {
  if (pads_low[d] == 0) return 0;
  return max(0, ceildiv(SymExpr(pads_low[d]) - at * strides[d], dilations[d]));
}

SymExpr WindowShape::end_tap(std::size_t d, const SymExpr& at) const {
  if (pads_high[d] == 0 && !rounds_up) return kernel[d];
  return min(kernel[d], ceildiv(input[d] + pads_low[d] - at * strides[d], dilations[d]));
}

WindowShape channels_last_window(NestContext& ctx) {
  WindowShape window(ctx.node());
  const std::vector<SymExpr> x = ctx.operand_sizes(0);
  const std::vector<SymExpr> w = ctx.operand_sizes(1);
  window.kernel.assign(w.begin() + 2, w.end());
  window.input.assign(x.begin() + 1, x.end() - 1);
  return window;
}

TapLoop WindowShape::taps(std::size_t d, const SymExpr& at, bool uniform) const {
  TapLoop loop;
  const SymExpr first = uniform ? first_tap(d, at) : SymExpr(0);
  loop.extent = uniform ? end_tap(d, at) - first : kernel[d];
  if (uniform && (pads_low[d] > 0 || pads_high[d] > 0 || rounds_up))
    loop.extent = max(0, loop.extent);
  loop.tap = first;
  loop.position = at * strides[d] - pads_low[d] + first * dilations[d];
  loop.position_step = dilations[d];
  loop.kernel = kernel[d];
  loop.size = input[d];
  loop.check_low = !uniform && pads_low[d] > 0;
  loop.check_high = !uniform && (pads_high[d] > 0 || rounds_up);
  return loop;
}

TapLoop WindowShape::transposed_taps(std::size_t d, const SymExpr& at) const {
  TapLoop loop;
  loop.kernel = kernel[d];
  loop.size = input[d];
  loop.check_low = loop.check_high = true;
  const SymExpr shifted = at + pads_low[d];
  if (dilations[d] == 1) {
    // Only every stride-th tap falls on an element.
    loop.extent = ceildiv(kernel[d], strides[d]);
    loop.tap = mod(shifted, strides[d]);
    loop.tap_step = strides[d];
    loop.position = floordiv(shifted, strides[d]);
    loop.position_step = -1;
    loop.check_tap = true;
    return loop;
  }
  loop.extent = kernel[d];
  loop.position = shifted;
  loop.position_step = -dilations[d];
  loop.divisor = strides[d];
  return loop;
}

TileOperand copied_part(NestBuilder& b, const TileOperand& part, const SymExpr& depth,
                        const SymExpr& columns, DType dtype) {
  constexpr std::int64_t kCount = kPanelDepth * kPanelColumns;
  const NestBufferId copy = b.add_local(dtype, kCount, kCount);
  const Symbol row = b.begin_for(depth, ForStmt::Kind::Serial);
  const Symbol column = b.begin_for(columns, ForStmt::Kind::Vector);
  const SymExpr from =
      part.base + SymExpr(row) * part.row_stride + SymExpr(column) * part.column_stride;
  b.store(copy, SymExpr(row) * kPanelColumns + SymExpr(column),
          b.convert(b.load(part.buffer, from), dtype));
  b.end_for();
  b.end_for();
  return {copy, 0, kPanelColumns, 1};
}

TileOperand copied_rows(NestBuilder& b, const TileOperand& part, std::int64_t tile_rows,
                        const SymExpr& rows, const SymExpr& depth, DType dtype) {
  const std::int64_t count = tile_rows * kPanelDepth;
  const NestBufferId copy = b.add_local(dtype, count, count);
  const Symbol row = b.begin_for(rows, ForStmt::Kind::Serial);
  const Symbol k = b.begin_for(depth, ForStmt::Kind::Vector);
  const SymExpr from = part.base + SymExpr(row) * part.row_stride + SymExpr(k) * part.column_stride;
  b.store(copy, SymExpr(row) * kPanelDepth + SymExpr(k),
          b.convert(b.load(part.buffer, from), dtype));
  b.end_for();
  b.end_for();
  return {copy, 0, kPanelDepth, 1};
}

TileOperand copied_groups(NestBuilder& b, const TileOperand& from, const GroupedRows& part) {
  const std::int64_t pitch = kGroupDepth * part.group;
  const NestBufferId copy = b.add_local(part.dtype, part.tile_rows * pitch, part.tile_rows * pitch);
  const Symbol row = b.begin_for(part.rows, ForStmt::Kind::Serial);
  const Symbol column = b.begin_for(part.groups * part.group, ForStmt::Kind::Vector);
  const Mask inside = where_less(b, {}, part.first + SymExpr(column), part.depth);
  const SymExpr at =
      from.base + SymExpr(row) * from.row_stride + SymExpr(column) * from.column_stride;
  b.store(copy, SymExpr(row) * pitch + SymExpr(column), b.load(from.buffer, at, id_of(inside)));
  b.end_for();
  b.end_for();
  return {copy, 0, pitch, part.group};
}

TileOperand turned_groups(NestBuilder& b, const TileOperand& from, const GroupedRows& part) {
  const std::int64_t pitch = part.tile_rows * part.group;
  const NestBufferId copy = b.add_local(part.dtype, pitch * kGroupDepth, pitch * kGroupDepth);
  const Symbol group = b.begin_for(part.groups, ForStmt::Kind::Serial);
  const Symbol row = b.begin_for(part.rows, ForStmt::Kind::Vector);
  std::vector<Scalar> elements;
  for (std::int64_t k = 0; k < part.group; ++k) {
    const SymExpr column = SymExpr(group) * part.group + k;
    const Mask inside = where_less(b, {}, part.first + column, part.depth);
    const SymExpr at = from.base + SymExpr(row) + column * from.column_stride;
    elements.push_back(b.load(from.buffer, at, id_of(inside)));
  }
  for (std::int64_t k = 0; k < part.group; ++k)
    b.store(copy, SymExpr(group) * pitch + SymExpr(row) * part.group + k,
            elements[static_cast<std::size_t>(k)]);
  b.end_for();
  b.end_for();
  return {copy, 0, part.group, pitch};
}

TileOperand copied_numbers(NestBuilder& b, const TileOperand& whole, const SymExpr& first,
                           const SymExpr& depth) {
  constexpr std::int64_t kCount = kPanelDepth * kPanelColumns;
  constexpr std::int64_t kWordBits = 32;
  const Dequantised& d = *whole.dequantised;
  const std::int64_t rows = kWordBits / d.bits;
  const NestBufferId copy = b.add_local(DType::F32, kCount, kCount);
  const Symbol word = b.begin_for(floordiv(depth, rows), ForStmt::Kind::Serial);
  const SymExpr row = first + SymExpr(word) * rows;
  const SymExpr group = d.group == 0 ? SymExpr(0) : floordiv(row, d.group);
  const Symbol column = b.begin_for(kPanelColumns, ForStmt::Kind::Vector);
  const auto beside = [&](const Dequantised::Part& part) {
    const SymExpr at = part.base + group * part.row_stride + SymExpr(column) * part.column_stride;
    return b.convert(b.load(part.buffer, at), DType::F32);
  };
  const Scalar scale = beside(d.scale);
  const SymExpr at = whole.base + floordiv(row, rows) * whole.row_stride + SymExpr(column);
  const Scalar bits = b.load(whole.buffer, at);
  for (std::int64_t r = 0; r < rows; ++r) {
    const Scalar up =
        b.constant_int(DType::I32, kWordBits - d.bits - ir::ops::bit_of_row(r, d.bits));
    const Scalar down = b.constant_int(DType::I32, kWordBits - d.bits);
    const Scalar top = b.apply(ScalarOp::Shl, bits, up);
    Scalar number = b.convert(b.apply(ScalarOp::Shr, top, down), DType::F32);
    if (d.zero) number = b.apply(ScalarOp::Sub, number, beside(*d.zero));
    b.store(copy, (SymExpr(word) * rows + r) * kPanelColumns + SymExpr(column),
            b.apply(ScalarOp::Mul, number, scale));
  }
  b.end_for();
  b.end_for();
  return {copy, 0, kPanelColumns, 1};
}

TileOperand group_panel(NestBuilder& b, const AffineOperand& panels, DType dtype,
                        const SymExpr& first, const SymExpr& groups, const SymExpr& columns) {
  const std::int64_t group = is_floating(dtype) ? kBf16Group : kByteGroup;
  const std::int64_t pitch = kPanelColumns * group;
  const std::vector<SymExpr>& strides = panels.strides;
  if (strides[3].is_constant(1)) return {panels.buffer, first, strides[1], strides[2]};
  const NestBufferId copy = b.add_local(dtype, kGroupDepth * pitch, kGroupDepth * pitch);
  const Symbol row = b.begin_for(groups, ForStmt::Kind::Serial);
  const SymExpr width = columns * group;
  const Symbol element = b.begin_for(width, ForStmt::Kind::Vector);
  const SymExpr at = first + SymExpr(row) * strides[1] + floordiv(element, group) * strides[2] +
                     mod(element, group) * strides[3];
  b.store(copy, SymExpr(row) * pitch + SymExpr(element), b.load(panels.buffer, at));
  b.end_for();
  b.end_for();
  return {copy, 0, pitch, group};
}

namespace {

/// The left operand of a contraction of groups of bytes in i16.
TileOperand widened_groups(NestBuilder& b, const ContractStmt& s) {
  const std::int64_t pitch = kGroupDepth * kByteGroup;
  const NestBufferId copy = b.add_local(DType::I16, s.tile_rows * pitch, s.tile_rows * pitch);
  const Symbol row = b.begin_for(s.rows, ForStmt::Kind::Serial);
  const SymExpr width = s.depth * kByteGroup;
  const Symbol element = b.begin_for(width, ForStmt::Kind::Vector);
  const SymExpr within =
      s.a.column_stride.is_constant(kByteGroup)
          ? SymExpr(element)
          : floordiv(element, kByteGroup) * s.a.column_stride + mod(element, kByteGroup);
  const Scalar byte = b.load(s.a.buffer, s.a.base + SymExpr(row) * s.a.row_stride + within);
  b.store(copy, SymExpr(row) * pitch + SymExpr(element), b.convert(byte, DType::I16));
  b.end_for();
  b.end_for();
  return {copy, 0, pitch, kByteGroup};
}

}  // namespace

void contract_bytes(NestBuilder& b, const LowerOptions& options, ContractStmt contraction,
                    const Mask& pairs_fit) {
  if (!multiplies_pairs(options)) return b.contract(std::move(contraction));
  if (pairs_fit) {
    ContractStmt narrow = contraction;
    narrow.pairs_fit = true;
    b.begin_if(*pairs_fit);
    b.contract(std::move(narrow));
    b.end_if();
    b.begin_if(b.apply(ScalarOp::Not, {*pairs_fit}));
  }
  contraction.a = widened_groups(b, contraction);
  b.contract(std::move(contraction));
  if (pairs_fit) b.end_if();
}

std::optional<SymExpr> even_row_stride(const NestBuilder& b, const AffineOperand& left,
                                       std::span<const SymExpr> out) {
  std::optional<SymExpr> rows;
  SymExpr whole;
  for (std::size_t d = left.strides.size() - 1; d-- > 0;) {
    if (out[d].is_constant(1)) continue;
    if (!rows)
      rows = left.strides[d];
    else if (!b.simplify(left.strides[d] - whole).is_constant(0))
      return std::nullopt;
    whole = left.strides[d] * out[d];
  }
  return rows ? rows : left.strides[left.strides.size() - 2];
}

void split_into_tiles(NestBuilder& b, std::span<const SymExpr> out, std::int64_t tile_rows,
                      std::int64_t tile_columns, ProductForm& form) {
  const SymExpr rows = ceildiv(form.rows, tile_rows);
  const SymExpr columns = ceildiv(form.columns, tile_columns);
  const SymExpr extent = form.batches * columns * rows;
  const Symbol p = b.new_axis(extent);
  b.set_parallel(p, extent);
  assume_elements(out, b.facts());
  const auto place = [&b](const SymExpr& at, const SymExpr& size) {
    return b.bind(b.from_index(at), 0, size - 1, 0).symbol();
  };
  const SymExpr rest = floordiv(p, rows);
  form.batch = place(floordiv(rest, columns), form.batches);
  form.row_begin = place(mod(p, rows) * tile_rows, form.rows);
  form.column_begin = place(mod(rest, columns) * tile_columns, form.columns);
}

}  // namespace heddle::jit
