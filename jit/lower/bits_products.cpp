#include "jit/lower/bits_products.h"

#include "jit/lower/group_panels.h"
#include "jit/lower/pack_weights.h"

namespace heddle::jit {
namespace {

using ir::Value;

constexpr std::int64_t kWordBits = 32;
/// Bytes of a matrix of f32 that leaves room for other things in a second-level cache.
constexpr std::int64_t kCachedBytes = 1 << 20;

const ir::Node* behind_views(Value value) {
  const ir::Node* node = value.node;
  while (node->op_name() == "reshape" || node->op_name() == "permute") node = node->input(0).node;
  return node;
}

bool is_packed(Value numbers) { return behind_views(numbers)->op_name() == "unpack_bits"; }

/// `beside` [g or 1, n or 1] in panels [p, groups, width].
Value panels(ir::GraphBuilder& b, Value beside, const SymExpr& groups, const SymExpr& columns,
             std::int64_t width) {
  const ir::Dims whole{groups, columns};
  if (beside.meta().sizes != whole) beside = b.emit("expand", {beside}, {{"sizes", whole}});
  const Value made = emit_group_panels(b, beside, 1, width);
  ir::Dims sizes = made.meta().sizes;
  sizes.pop_back();
  return b.emit("reshape", {made}, {{"sizes", sizes}});
}

/// `zero` less the middle, in the fewest bytes that hold it.
Value moved_zero(ir::GraphBuilder& b, const BitsProduct& product) {
  const bool is_real = is_floating(product.zero.meta().dtype);
  const DType wide = is_real ? DType::F32 : DType::I16;
  const bool fits_byte = product.bits == 8 || is_packed(product.zero);
  Value zero = product.zero;
  if (zero.meta().dtype != wide) zero = b.emit("convert", {zero}, {{"dtype", wide}});
  if (const std::int64_t middle = middle_of(product.numbers); middle != 0) {
    const ir::Literal literal = is_real ? ir::Literal::scalar(wide, static_cast<double>(middle))
                                        : ir::Literal::scalar_int(wide, middle);
    zero = b.emit("sub", {zero, b.constant(literal)}, {});
  }
  if (is_real || !fits_byte) return zero;
  return b.emit("convert", {zero}, {{"dtype", DType::I8}});
}

}  // namespace

std::int64_t bits_of(Value numbers) {
  return is_packed(numbers) ? behind_views(numbers)->integer("bits") : 8;
}

std::int64_t middle_of(Value numbers) {
  return numbers.meta().dtype == DType::U8 ? std::int64_t{1} << (bits_of(numbers) - 1) : 0;
}

bool takes_bits_product(Value numbers, Value matrix) {
  const SymExpr count = matrix.meta().count();
  if (matrix.meta().rank() != 2 || !count.is_constant()) return false;
  const auto f32_bytes = static_cast<std::int64_t>(sizeof(float)) * count.constant();
  return is_packed(numbers) ? count.constant() >= kLeastPackedCount : f32_bytes > kCachedBytes;
}

bool fits_words(const BitsProduct& product) {
  const ir::Dims& sizes = product.numbers.meta().sizes;
  const std::int64_t rows = kWordBits / product.bits;
  return sizes.size() == 2 && sizes[0].is_constant() && sizes[1].is_constant() &&
         sizes[0].constant() % rows == 0 && product.group % rows == 0;
}

std::int64_t block_of(const BitsProduct& product) {
  constexpr std::int64_t kMost = 128;
  constexpr std::int64_t kLeast = 16;
  const std::int64_t whole =
      product.group == 0 ? product.numbers.meta().sizes[0].constant() : product.group;
  for (std::int64_t block = kMost; block >= kLeast; block /= 2)
    if (whole % block == 0 && block % (kWordBits / product.bits) == 0) return block;
  return 0;
}

FixedRows emit_fixed_rows(ir::GraphBuilder& b, Value left, std::int64_t digits,
                          std::int64_t block) {
  // Largest number of one, two and three digits of 127.
  static constexpr double kLargest[] = {127, 127 * 257, 127 * 65793};
  // Smaller blocks keep fewer bits, so that scales do not underflow.
  constexpr double kLeast = 1e-30;
  const auto number = [&](double value) {
    return b.constant(ir::Literal::scalar(DType::F32, value));
  };
  const SymExpr depth = left.meta().sizes.back();
  const SymExpr blocks = floordiv(depth, block);
  const SymExpr rows = base::product(std::span(left.meta().sizes).first(left.meta().rank() - 1));
  if (left.meta().dtype != DType::F32) left = b.emit("convert", {left}, {{"dtype", DType::F32}});
  const Value x = b.emit("reshape", {left}, {{"sizes", ir::Dims{rows, blocks, block}}});
  const Value top = b.emit("reduce_max", {b.emit("abs", {x})},
                           {{"axes", std::vector<std::int64_t>{2}}, {"keepdims", true}});
  const Value scale =
      b.emit("mul", {b.emit("max", {top, number(kLeast)}), number(1 / kLargest[digits - 1])});
  const Value whole =
      b.emit("convert", {b.emit("round", {b.emit("div", {x, scale})})}, {{"dtype", DType::I32}});
  const Value flat = b.emit("reshape", {whole}, {{"sizes", ir::Dims{rows, depth}}});
  const Value bytes = b.emit("byte_digits", {flat}, {{"count", digits}});
  const Value by_block = b.emit("reshape", {b.emit("convert", {bytes}, {{"dtype", DType::I32}})},
                                {{"sizes", ir::Dims{rows, digits, blocks, block}}});
  const Value sums = b.emit("reduce_sum", {by_block}, {{"axes", std::vector<std::int64_t>{3}}});
  return {bytes, b.emit("reshape", {scale}, {{"sizes", ir::Dims{rows, blocks}}}), sums, block};
}

std::int64_t whole_width(Value numbers) {
  constexpr std::int64_t kWords = 4;
  return (numbers.meta().sizes[1].constant() + kWords - 1) / kWords * kWords;
}

Value emit_bits_product(ir::GraphBuilder& b, const BitsProduct& product, std::int64_t width,
                        const FixedRows* rows) {
  const SymExpr depth = product.numbers.meta().sizes[0];
  const SymExpr columns = product.numbers.meta().sizes[1];
  const SymExpr groups = product.group == 0 ? SymExpr(1) : floordiv(depth, product.group);
  const Value words =
      b.emit("bit_panels", {product.numbers}, {{"bits", product.bits}, {"width", width}});
  std::vector<Value> operands{product.left, words,
                              panels(b, product.scale, groups, columns, width)};
  ir::Attrs attrs{
      {"bits", product.bits}, {"columns", columns.constant()}, {"group", product.group}};
  if (rows != nullptr) {
    operands[0] = rows->digits;
    operands.insert(operands.end(), {rows->scale, rows->sums});
    attrs.insert_or_assign("block", rows->block);
    attrs.insert_or_assign("digits", rows->digits.meta().sizes[1].constant());
  }
  if (product.zero) operands.push_back(panels(b, moved_zero(b, product), groups, columns, width));
  if (product.tf32) attrs.insert_or_assign("tf32", true);
  if (rows == nullptr) return b.call("packed_bits_matmul", operands, std::move(attrs))->value();
  Value y = b.call("fixed_bits_matmul", operands, std::move(attrs))->value();
  ir::Dims sizes = product.left.meta().sizes;
  sizes.back() = columns;
  y = b.emit("reshape", {y}, {{"sizes", sizes}});
  const DType dtype = product.left.meta().dtype;
  return dtype == DType::F32 ? y : b.emit("convert", {y}, {{"dtype", dtype}});
}

}  // namespace heddle::jit
