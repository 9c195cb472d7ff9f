// random_uniform, random_normal: numbers that depend on the key and the position only.
//
//   key       i64[2]: seed and offset
//   sizes     symint[n] of the result
//   dtype     floating, of the result
//   low, high       (uniform) numbers lie in [low, high) before they are rounded to dtype
//   mean, stddev    (normal)
//   result    dtype[sizes]
//
// Element p (its row-major position) is made from Philox 4x32-10 with the counter (lo32(c),
// hi32(c), 0, 0), c = offset + p modulo 2^64, and the key (lo32(seed), hi32(seed)), which gives
// words w0 … w3. So calls that draw n numbers and then move the offset on by n never repeat one,
// and every backend draws the same.
//
//   f32, f16, bf16   u = floor(w0 / 2^8) * 2^-24
//   f64              u = (floor(w0 / 2^5) * 2^26 + floor(w1 / 2^6)) * 2^-53
//   uniform          low + u * (high - low)
//   normal           mean + stddev * sqrt(-2 ln(1 - u)) * cos(2 pi u'), u' as u from w1, for f64
//                    from w2 and w3
//
// Computed in f32, f64 for f64, and rounded once. random_uniform with low 0 and high 1 is exact.
//
// Constraints. infer() checks them in this order; tests are named random_c1 ...
//   C1  key is i64[2]
//   C2  dtype is floating
//   C3  low is at most high; stddev is at least 0
//   C4  sizes are at least 0
//
// Memory: the result is fresh.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011; Box and Muller, 1958.
#include <array>
#include <cmath>
#include <numbers>

#include "ir/ops/common.h"
#include "ir/ops/dense.h"
#include "ir/ops/families.h"
#include "ir/ops/philox.h"

namespace heddle::ir {
namespace ops {
namespace {

std::vector<TensorMeta> infer_random(const InferContext& ctx) {
  constexpr std::string_view kC1 = "C1 key is i64[2]";
  const TensorMeta& key = ctx.meta(0);
  if (key.dtype != DType::I64) ctx.fail_dtype(kC1, "i64", text_of(key.dtype));
  if (key.rank() != 1) ctx.fail_shape(kC1, "[2]", text_of(seen(ctx.env, key.sizes)));
  ctx.require_equal(2, key.sizes[0], kC1);
  const DType dtype = ctx.dtype("dtype");
  if (!is_floating(dtype) || is_float8(dtype)) {
    ctx.fail_dtype("C2 dtype is floating", "a floating dtype", text_of(dtype));
  }
  const bool uniform = ctx.op.name == "random_uniform";
  const double least = uniform ? ctx.number("low") : 0.0;
  const double most = ctx.number(uniform ? "high" : "stddev");
  if (!(least <= most)) {
    fail_argument(ctx, "C3 low is at most high; stddev is at least 0",
                  "at least " + std::to_string(least), std::to_string(most));
  }
  const Dims& sizes = ctx.symints("sizes");
  for (const SymExpr& size : sizes) {
    require_le(ctx, 0, size, "C4 sizes are at least 0", "0 or more",
               seen(ctx.env, size).to_string());
  }
  return one(fresh(ctx, dtype, sizes));
}

// The definition on the host.

PhiloxWords words_at(const Literal& key, std::int64_t position) {
  const auto seed = static_cast<std::uint64_t>(key.at_int(0));
  const std::uint64_t counter =
      static_cast<std::uint64_t>(key.at_int(1)) + static_cast<std::uint64_t>(position);
  return philox(
      {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0},
      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
}

double narrow_unit(std::uint32_t word) { return std::ldexp(static_cast<double>(word >> 8), -24); }

double wide_unit(std::uint32_t high, std::uint32_t low) {
  return std::ldexp(std::ldexp(static_cast<double>(high >> 5), 26) + (low >> 6), -53);
}

double uniform_of(const PhiloxWords& w, bool wide, const Node& node) {
  const double unit = wide ? wide_unit(w[0], w[1]) : narrow_unit(w[0]);
  return node.number("low") + unit * (node.number("high") - node.number("low"));
}

double normal_of(const PhiloxWords& w, bool wide, const Node& node) {
  const double length = wide ? wide_unit(w[0], w[1]) : narrow_unit(w[0]);
  const double turn = wide ? wide_unit(w[2], w[3]) : narrow_unit(w[1]);
  const double radius = std::sqrt(-2.0 * std::log(1.0 - length));
  return node.number("mean") +
         node.number("stddev") * radius * std::cos(2.0 * std::numbers::pi * turn);
}

std::vector<Literal> fill(const EvalContext& ctx,
                          double (*number)(const PhiloxWords&, bool, const Node&)) {
  Literal result = ctx.make();
  const bool wide = result.dtype() == DType::F64;
  for (std::int64_t p = 0; p < result.count(); ++p) {
    result.set(p, number(words_at(ctx.inputs[0], p), wide, ctx.node));
  }
  return {result};
}

std::vector<Literal> evaluate_uniform(const EvalContext& ctx) { return fill(ctx, uniform_of); }
std::vector<Literal> evaluate_normal(const EvalContext& ctx) { return fill(ctx, normal_of); }

// The lowering. A 32-bit word is an i64 scalar between 0 and 2^32 - 1.

struct Generator {
  ElementBuilder& builder;

  using Words = std::array<Scalar, 4>;

  Scalar integer(std::int64_t value) { return builder.constant_int(DType::I64, value); }
  Scalar low_word(Scalar value) {
    return builder.apply2(ScalarOp::And, value, integer(0xffffffff));
  }
  /// Bits 32 … 63: the mask drops the copies of the sign that an arithmetic shift brings in.
  Scalar high_word(Scalar value) {
    return low_word(builder.apply2(ScalarOp::Shr, value, integer(32)));
  }
  Scalar exclusive_or(Scalar a, Scalar b, Scalar c) {
    return builder.apply2(ScalarOp::Xor, builder.apply2(ScalarOp::Xor, a, b), c);
  }
  /// The product of two words fills 64 bits: as i64 it wraps to the same bits.
  Scalar product(Scalar word, std::int64_t factor) {
    return builder.apply2(ScalarOp::Mul, word, integer(factor));
  }
  Scalar advanced(Scalar key, std::int64_t step) {
    return low_word(builder.apply2(ScalarOp::Add, key, integer(step)));
  }

  Words words(Scalar seed, Scalar counter) {
    Words c = {low_word(counter), high_word(counter), integer(0), integer(0)};
    Scalar key0 = low_word(seed);
    Scalar key1 = high_word(seed);
    for (int round = 0; round < 10; ++round) {
      const Scalar a = product(c[0], 0xD2511F53);
      const Scalar b = product(c[2], 0xCD9E8D57);
      c = {exclusive_or(high_word(b), c[1], key0), low_word(b),
           exclusive_or(high_word(a), c[3], key1), low_word(a)};
      key0 = advanced(key0, 0x9E3779B9);
      key1 = advanced(key1, 0xBB67AE85);
    }
    return c;
  }

  /// The top 32 - dropped bits of a word as a number.
  Scalar top_bits(Scalar word, std::int64_t dropped, DType dtype) {
    return builder.convert(builder.apply2(ScalarOp::Shr, word, integer(dropped)), dtype);
  }
  Scalar scaled(Scalar value, double factor) {
    return builder.apply2(ScalarOp::Mul, value, builder.constant(value.dtype, factor));
  }
  Scalar shifted(Scalar value, double addend) {
    return builder.apply2(ScalarOp::Add, value, builder.constant(value.dtype, addend));
  }
  /// In [0, 1), from one word for f32 and two for f64.
  Scalar unit(Scalar first, Scalar second, DType dtype) {
    if (dtype == DType::F32) return scaled(top_bits(first, 8, dtype), 0x1p-24);
    const Scalar high = scaled(top_bits(first, 5, dtype), 0x1p26);
    return scaled(builder.apply2(ScalarOp::Add, high, top_bits(second, 6, dtype)), 0x1p-53);
  }
};

Generator::Words words_of(Generator& generator, const Node& node, std::span<const SymExpr> index) {
  const SymExpr zero = 0;
  const SymExpr first = 1;
  SymExpr position = 0;
  for (std::size_t d = 0; d < index.size(); ++d) {
    position = position * node.output().sizes[d] + index[d];
  }
  ElementBuilder& builder = generator.builder;
  const Scalar seed = builder.operand(0, {&zero, 1});
  const Scalar offset = builder.operand(0, {&first, 1});
  return generator.words(seed, builder.apply2(ScalarOp::Add, offset, builder.from_index(position)));
}

DType computed_in(const Node& node) { return accumulator_of(node.output().dtype); }

Scalar element_uniform(ElementBuilder& builder, const Node& node, std::uint32_t,
                       std::span<const SymExpr> index) {
  Generator generator{builder};
  const Generator::Words w = words_of(generator, node, index);
  Scalar value = generator.unit(w[0], w[1], computed_in(node));
  const double low = node.number("low");
  const double range = node.number("high") - low;
  if (range != 1.0) value = generator.scaled(value, range);
  if (low != 0.0) value = generator.shifted(value, low);
  return builder.convert(value, node.output().dtype);
}

Scalar element_normal(ElementBuilder& builder, const Node& node, std::uint32_t,
                      std::span<const SymExpr> index) {
  Generator generator{builder};
  const Generator::Words w = words_of(generator, node, index);
  const DType dtype = computed_in(node);
  const bool wide = dtype == DType::F64;
  const Scalar length = generator.unit(w[0], w[1], dtype);
  const Scalar turn = generator.unit(w[wide ? 2 : 1], w[3], dtype);
  const Scalar rest = builder.apply2(ScalarOp::Sub, builder.constant(dtype, 1.0), length);
  const Scalar squared = generator.scaled(builder.apply1(ScalarOp::Log, rest), -2.0);
  const Scalar radius = builder.apply1(ScalarOp::Sqrt, squared);
  const Scalar cosine =
      builder.apply1(ScalarOp::Cos, generator.scaled(turn, 2.0 * std::numbers::pi));
  Scalar value = builder.apply2(ScalarOp::Mul, radius, cosine);
  if (node.number("stddev") != 1.0) value = generator.scaled(value, node.number("stddev"));
  if (node.number("mean") != 0.0) value = generator.shifted(value, node.number("mean"));
  return builder.convert(value, node.output().dtype);
}

OpDef random_op(std::string_view name, AttrSpec first, AttrSpec second, EvaluateFn evaluate,
                ElementFn element) {
  return {.name = name,
          .operands = {{"key"}},
          .attrs = {{"sizes", AttrKind::SymInts, {}},
                    {"dtype", AttrKind::DType, DType::F32},
                    std::move(first),
                    std::move(second)},
          .infer = infer_random,
          .evaluate = evaluate,
          .lowering = {.element = element},
          .expensive = true};
}

}  // namespace
}  // namespace ops

std::span<const OpDef> random_ops() {
  static const OpDef defs[] = {
      ops::random_op("random_uniform", {"low", AttrKind::Float, 0.0},
                     {"high", AttrKind::Float, 1.0}, ops::evaluate_uniform, ops::element_uniform),
      ops::random_op("random_normal", {"mean", AttrKind::Float, 0.0},
                     {"stddev", AttrKind::Float, 1.0}, ops::evaluate_normal, ops::element_normal)};
  return defs;
}

}  // namespace heddle::ir
