#include "tests/support/bits_products.h"

#include "ir/ops/bit_ops.h"

namespace heddle::testing {

using ir::Literal;

namespace {

std::int64_t panels_of(std::int64_t columns, std::int64_t width) {
  return (columns + width - 1) / width;
}

}  // namespace

Literal BitsMatrixNoise::numbers() const {
  Literal all = any_bytes(i8, {depth, columns}, 5);
  for (std::int64_t k = 0; k < all.count(); ++k)
    all.set_int(k, ir::ops::signed_bits(all.at_int(k), bits));
  return all;
}

Literal BitsMatrixNoise::words() const {
  return value_of({"bit_panels", {numbers()}, {{"bits", bits}, {"width", width}}});
}

Literal BitsMatrixNoise::plain_scales() const { return noise(scale, {groups(), columns}, 6); }

Literal BitsMatrixNoise::plain_zeros() const { return noise(zero, {groups(), columns}, 7); }

Literal BitsMatrixNoise::in_panels(const Literal& plain) const {
  const std::int64_t panels = panels_of(columns, width);
  Literal all = noise(plain.dtype(), {panels, groups(), width}, 8);
  for (std::int64_t p = 0; p < panels; ++p)
    for (std::int64_t g = 0; g < groups(); ++g)
      for (std::int64_t w = 0; w < width && p * width + w < columns; ++w)
        all.set((p * groups() + g) * width + w, plain.at(g * columns + p * width + w));
  return all;
}

Literal BitsMatrixNoise::scales() const { return in_panels(plain_scales()); }

Literal BitsMatrixNoise::zeros() const {
  return zero == DType::Bool ? Literal() : in_panels(plain_zeros());
}

ir::Attrs BitsMatrixNoise::attrs() const {
  return {{"bits", bits}, {"columns", columns}, {"group", group}};
}

Literal BitsMatrixNoise::reals() const {
  const Literal all = numbers();
  const Literal by = plain_scales();
  const Literal less = zero == DType::Bool ? Literal() : plain_zeros();
  std::vector<double> values;
  for (std::int64_t k = 0; k < depth; ++k)
    for (std::int64_t j = 0; j < columns; ++j) {
      const std::int64_t beside = (group == 0 ? 0 : k / group) * columns + j;
      const double number = static_cast<double>(all.at_int(k * columns + j));
      values.push_back((number - (zero == DType::Bool ? 0 : less.at(beside))) * by.at(beside));
    }
  return doubles(f32, {depth, columns}, values);
}

FixedNoise::FixedNoise(std::int64_t rows, std::int64_t depth, std::int64_t count,
                       std::int64_t block)
    : digits(i8, {rows, count, depth}), scale(noise(f32, {rows, depth / block}, 10)) {
  const std::int64_t blocks = depth / block;
  const Literal first = any_bytes(i8, {count, depth}, 9);
  for (std::int64_t k = 0; k < digits.count(); ++k) {
    const std::int64_t at = k % (count * depth);
    const std::int64_t turned = (at % block + k / (count * depth)) % block;
    digits.set_int(k, first.at_int(at / block * block + turned));
  }
  std::vector<std::int64_t> all_sums(static_cast<std::size_t>(rows * count * blocks));
  std::vector<double> values;
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t k = 0; k < depth; ++k) {
      double number = 0;
      for (std::int64_t d = count; d-- > 0;) {
        const std::int64_t digit = digits.at_int((m * count + d) * depth + k);
        all_sums[static_cast<std::size_t>((m * count + d) * blocks + k / block)] += digit;
        number = number * 256 + static_cast<double>(digit);
      }
      values.push_back(number * scale.at(m * blocks + k / block));
    }
  sums = ints(i32, {rows, count, blocks}, all_sums);
  reals = doubles(f32, {rows, depth}, values);
}

OneOp packed_bits_product(const Literal& a, const BitsMatrixNoise& matrix) {
  return {
      "packed_bits_matmul", {a, matrix.words(), matrix.scales(), matrix.zeros()}, matrix.attrs()};
}

OneOp fixed_bits_product(const FixedNoise& rows, std::int64_t block,
                         const BitsMatrixNoise& matrix) {
  ir::Attrs attrs = matrix.attrs();
  attrs["block"] = block;
  attrs["digits"] = rows.digits.sizes()[1];
  return {"fixed_bits_matmul",
          {rows.digits, matrix.words(), matrix.scales(), rows.scale, rows.sums, matrix.zeros()},
          attrs};
}

namespace {

/// Makes the parts of a FewBitsWeights.
struct FewBitsMaker {
  ir::GraphBuilder& b;
  const FewBitsWeights& w;
  std::int64_t groups = w.depth / w.group;

  ir::Value convert(ir::Value x, DType to) const { return b.emit("convert", {x}, {{"dtype", to}}); }
  ir::Value reshape(ir::Value x, const ir::Dims& sizes) const {
    return b.emit("reshape", {x}, {{"sizes", sizes}});
  }
  /// Noise, the last dimension of which is packed.
  ir::Value numbers(const ir::Sizes& sizes, unsigned seed) const {
    ir::Sizes packed = sizes;
    packed.back() = (sizes.back() * w.bits + 7) / 8;
    const ir::Value bytes = b.constant(any_bytes(u8, packed, seed));
    if (w.bits == 8) return bytes;
    return b.emit("unpack_bits", {bytes}, {{"bits", w.bits}, {"count", sizes.back()}});
  }
  ir::Sizes beside() const {
    return w.by_row ? ir::Sizes{groups, 1, w.columns} : ir::Sizes{w.columns, groups, 1};
  }
  ir::Value packed_zeros() const {
    const ir::Sizes sizes = beside();
    if (w.by_row) return numbers(sizes, 4);
    return reshape(numbers({w.columns, groups}, 4), {sizes.begin(), sizes.end()});
  }
  ir::Value centred(ir::Value all) const {
    if (w.zero == f32)
      return b.emit("sub",
                    {convert(all, w.dtype), convert(b.constant(noise(f32, beside(), 4)), w.dtype)});
    const ir::Value zero =
        w.zero == u8 ? convert(packed_zeros(), i32)
                     : b.constant(Literal::scalar_int(i32, std::int64_t{1} << (w.bits - 1)));
    return convert(b.emit("sub", {convert(all, i32), zero}), w.dtype);
  }
};

}  // namespace

ir::Value few_bits_matrix(ir::GraphBuilder& b, const FewBitsWeights& w) {
  const FewBitsMaker maker{b, w};
  const ir::Value all = w.by_row ? maker.numbers({maker.groups, w.group, w.columns}, 2)
                                 : maker.numbers({w.columns, maker.groups, w.group}, 2);
  const ir::Value scale = b.constant(noise(w.dtype, maker.beside(), 3));
  const ir::Value made = b.emit("mul", {maker.centred(all), scale});
  if (w.by_row) return maker.reshape(made, {w.depth, w.columns});
  const ir::Value columns = maker.reshape(made, {w.columns, w.depth});
  return b.emit("permute", {columns}, {{"perm", std::vector<std::int64_t>{1, 0}}});
}

}  // namespace heddle::testing
