#include "tests/support/op_samples.h"

#include <algorithm>

#include "ir/op.h"
#include "ir/scalar.h"

namespace heddle::testing {
namespace {

using ir::Attrs;
using ir::Dims;
using ir::Literal;
using ir::Sizes;
using Ints = std::vector<std::int64_t>;
using Samples = std::vector<OneOp>;

void add_unary(Samples& samples, const ir::OpDef& op) {
  for (const DType dtype : kAllDTypes) {
    if (!ir::defined_on(*op.scalar, dtype)) continue;
    for (const Sizes& sizes : {Sizes{3, 4}, Sizes{}, Sizes{0, 2}, Sizes{1}}) {
      samples.push_back({op.name, {noise(dtype, sizes)}});
    }
  }
}

/// Shift counts and exponents that stay in the range where the result is not all zeros.
Literal second_operand(const ir::OpDef& op, DType dtype, const Sizes& sizes) {
  Literal result = noise(dtype, sizes, 2);
  const bool small = op.scalar == ir::ScalarOp::Shl || op.scalar == ir::ScalarOp::Shr;
  for (std::int64_t k = 0; small && k < result.count(); ++k) {
    result.set_int(k, (result.at_int(k) + 4) % 8);
  }
  return result;
}

void add_binary(Samples& samples, const ir::OpDef& op) {
  const std::vector<std::pair<Sizes, Sizes>> shapes = {
      {{3, 4}, {3, 4}}, {{3, 4}, {4}}, {{3, 1}, {1, 4}},    {{}, {2}},
      {{2, 0}, {1}},    {{1}, {1}},    {{2, 3, 2}, {3, 1}},
  };
  for (const DType dtype : kAllDTypes) {
    if (!ir::defined_on(*op.scalar, dtype)) continue;
    for (const auto& [a, b] : shapes) {
      samples.push_back({op.name, {noise(dtype, a), second_operand(op, dtype, b)}});
    }
  }
  for (const auto& [a, b] :
       {std::pair{i32, f32}, std::pair{u8, i8}, std::pair{f16, bf16}, std::pair{boolean, i16}}) {
    if (!ir::defined_on(*op.scalar, promote(a, b))) continue;
    samples.push_back({op.name, {noise(a, {2, 3}), second_operand(op, b, {3})}});
  }
}

void add_scalar_ops(Samples& samples) {
  for (const ir::OpDef* op : ir::all_ops()) {
    if (!op->scalar) continue;
    if (ir::arity_of(*op->scalar) == 1) add_unary(samples, *op);
    if (ir::arity_of(*op->scalar) == 2) add_binary(samples, *op);
  }
}

void add_where(Samples& samples) {
  const Literal condition = noise(boolean, {3, 4}, 3);
  for (const DType dtype : kAllDTypes) {
    samples.push_back({"where", {condition, noise(dtype, {3, 4}), noise(dtype, {4}, 2)}});
  }
  samples.push_back({"where", {noise(boolean, {3, 1}), noise(i8, {4}), noise(f32, {}, 2)}});
  samples.push_back({"where", {noise(boolean, {1}), noise(i8, {0}), noise(i64, {1}, 2)}});
}

void add_bits(Samples& samples) {
  for (const std::int64_t bits : {2, 4})
    samples.push_back({"unpack_bits",
                       {any_bytes(u8, {3, 4})},
                       {{"bits", bits}, {"count", 32 / bits - 1}, {"signed", bits == 2}}});
  for (const DType dtype : {u8, i8})
    samples.push_back({"bit_panels",
                       {any_bytes(dtype, {9, 5})},
                       {{"bits", std::int64_t{4}}, {"width", std::int64_t{4}}}});
  samples.push_back({"byte_digits", {noise(i32, {2, 3})}, {{"count", std::int64_t{3}}}});
}

void add_converts(Samples& samples) {
  for (const DType from : kAllDTypes) {
    for (const DType to : kAllDTypes) {
      samples.push_back({"convert", {noise(from, {2, 3})}, {{"dtype", to}}});
    }
  }
}

void add_composites(Samples& samples) {
  for (const DType dtype : kNumbers) {
    samples.push_back({"relu", {noise(dtype, {3, 4})}});
    const Literal x = noise(dtype, {3, 4});
    const Literal low = ints(dtype, {}, {0});
    const Literal high = ints(dtype, {4}, {2, 1, 0, 3});
    samples.push_back({"clamp", {x, low, high}});
    samples.push_back({"clamp", {x, Literal(), high}});
    samples.push_back({"clamp", {x, low, Literal()}});
    samples.push_back({"clamp", {x, Literal(), Literal()}});
  }
  for (const DType dtype : kFloats) {
    for (const std::string_view op : {"gelu", "silu", "softplus"}) {
      samples.push_back({op, {noise(dtype, {3, 4})}});
      samples.push_back({op, {noise(dtype, {0})}});
    }
    samples.push_back({"gelu", {noise(dtype, {7})}, {{"approximate", std::string("tanh")}}});
  }
}

void add_reshapes(Samples& samples) {
  const auto add = [&](const Sizes& from, const Dims& to) {
    samples.push_back({"reshape", {noise(f32, from)}, {{"sizes", to}}});
  };
  add({4, 6}, {24});
  add({4, 6}, {8, 3});
  add({4, 6, 5}, {24, 5});
  add({4, 6, 5}, {4, 30});
  add({4, 6, 5}, {2, 2, 6, 5});
  add({2, 3, 4}, {4, 3, 2});
  add({2, 1, 3}, {1, 2, 1, 3, 1});
  add({1, 1}, {});
  add({}, {1, 1});
  add({0, 3}, {5, 0});
  add({6, 4, 9}, {4, 6, 3, 3});
}

void add_views(Samples& samples) {
  add_reshapes(samples);
  const Literal x = noise(i32, {2, 3, 4});
  samples.push_back({"permute", {x}, {{"perm", Ints{2, 0, 1}}}});
  samples.push_back({"permute", {x}, {{"perm", Ints{-2, 0, -1}}}});
  samples.push_back({"permute", {noise(f16, {})}, {{"perm", Ints{}}}});
  samples.push_back({"expand", {noise(f32, {3, 1})}, {{"sizes", Dims{2, 3, 4}}}});
  samples.push_back({"expand", {noise(f32, {})}, {{"sizes", Dims{2, 0}}}});
  samples.push_back({"expand", {noise(u8, {1, 1})}, {{"sizes", Dims{1, 5}}}});
  const auto windows = [](std::int64_t axis, std::int64_t size, std::int64_t step) {
    return ir::Attrs{{"axis", axis}, {"size", size}, {"step", step}};
  };
  samples.push_back({"unfold", {x}, windows(-1, 3, 1)});
  samples.push_back({"unfold", {x}, windows(0, 1, 4)});
  samples.push_back({"unfold", {noise(f32, {9, 2})}, windows(0, 4, 2)});
  samples.push_back(
      {"slice",
       {x},
       {{"start", Dims{0, 1, 0}}, {"limit", Dims{2, 3, 4}}, {"stride", Dims{1, 2, 3}}}});
  samples.push_back(
      {"slice", {noise(f32, {5})}, {{"start", Dims{2}}, {"limit", Dims{2}}, {"stride", Dims{1}}}});
  samples.push_back({"reverse", {x}, {{"axes", Ints{0, -1}}}});
  samples.push_back({"reverse", {x}, {{"axes", Ints{}}}});
  samples.push_back({"reverse", {noise(f32, {0, 2})}, {{"axes", Ints{0, 1}}}});
  for (const DType dtype : kAllDTypes) {
    samples.push_back({"clone", {noise(dtype, {2, 3})}});
    samples.push_back({"alias", {noise(dtype, {2, 3})}});
  }
}

void add_iotas(Samples& samples) {
  for (const DType dtype : kNumbers) {
    samples.push_back(
        {"iota", {}, {{"sizes", Dims{3, 4}}, {"axis", std::int64_t{1}}, {"dtype", dtype}}});
  }
  samples.push_back({"iota", {}, {{"sizes", Dims{300}}, {"dtype", i8}}});
  samples.push_back({"iota", {}, {{"sizes", Dims{2, 3, 1}}, {"axis", std::int64_t{-2}}}});
  samples.push_back({"iota", {}, {{"sizes", Dims{0}}}});
  samples.push_back({"symint", {}, {{"value", ir::SymExpr(7)}}});
  samples.push_back({"symint", {}, {{"value", ir::SymExpr(-3)}, {"dtype", i32}}});
}

void add_pads(Samples& samples) {
  const auto add = [&](Literal x, Literal value, Dims low, Dims high, std::string mode) {
    samples.push_back(
        {"pad", {std::move(x), std::move(value)}, {{"low", low}, {"high", high}, {"mode", mode}}});
  };
  for (const DType dtype : kAllDTypes) {
    add(noise(dtype, {2, 3}), Literal(), {1, 0}, {0, 2}, "constant");
    add(noise(dtype, {2, 3}), Literal::scalar(f64, 2.0), {1, 2}, {3, 0}, "constant");
  }
  add(noise(f32, {4, 5}), Literal::scalar(f32, 9.0), {-1, 2}, {3, -2}, "constant");
  add(noise(f32, {4}), Literal(), {-4}, {0}, "constant");
  add(noise(f32, {0}), Literal::scalar(f32, 9.0), {2}, {1}, "constant");
  add(noise(f32, {}), Literal(), {}, {}, "edge");
  for (const std::string mode : {"edge", "reflect", "wrap"}) {
    add(noise(f32, {4, 5}), Literal(), {3, 0}, {1, 4}, mode);
    add(noise(i8, {3}), Literal(), {2}, {2}, mode);
  }
  add(noise(f32, {2, 3}), Literal(), {5, 0}, {7, 9}, "edge");
  add(noise(f32, {2, 3}), Literal(), {5, 0}, {7, 9}, "wrap");
}

void add_concats(Samples& samples) {
  for (const DType dtype : kAllDTypes) {
    samples.push_back({"concat",
                       {noise(dtype, {2, 3}), noise(dtype, {2, 1}, 2), noise(dtype, {2, 4}, 3)},
                       {{"axis", std::int64_t{1}}}});
  }
  samples.push_back({"concat", {noise(i32, {3})}, {{"axis", std::int64_t{-1}}}});
  samples.push_back(
      {"concat", {noise(i32, {0, 2}), noise(f32, {3, 2}, 2)}, {{"axis", std::int64_t{0}}}});
  samples.push_back({"concat", {noise(f32, {0}), noise(f32, {0}, 2)}, {{"axis", std::int64_t{0}}}});
}

void add_gathers(Samples& samples) {
  const Literal x = noise(f32, {4, 3, 5});
  for (const DType dtype : {i8, u8, i16, u16, i32, u32, i64, u64}) {
    const bool negative = is_signed(dtype);
    const Literal picked = ints(dtype, {2, 2}, {2, negative ? -1 : 1, 0, negative ? -3 : 2});
    for (const std::int64_t axis : {0, 1, -1}) {
      samples.push_back({"gather", {x, picked}, {{"axis", axis}}});
    }
    const Literal places = ints(dtype, {2, 2, 1}, {0, 1, negative ? -3 : 2, 2});
    samples.push_back({"gather_elements", {x, places}, {{"axis", std::int64_t{1}}}});
  }
  samples.push_back({"gather", {x, Literal::scalar_int(i64, 2)}});
  samples.push_back({"gather", {x, ints(i64, {0}, {})}});
  samples.push_back({"gather_elements", {noise(i8, {3}), ints(i64, {0}, {})}});
  const Literal pairs = ints(i64, {3, 2}, {0, 1, -1, 2, 3, -3});
  samples.push_back({"gather_nd", {x, pairs}});
  samples.push_back({"gather_nd", {x, ints(i32, {1, 3}, {1, 2, -5})}});
  samples.push_back({"gather_nd", {x, ints(i32, {2, 0}, {})}});
  samples.push_back({"gather_nd",
                     {noise(f32, {2, 3, 4}), ints(i64, {2, 1}, {-1, 1})},
                     {{"batch_dims", std::int64_t{1}}}});
}

void add_splits(Samples& samples) {
  const auto add = [&](const Sizes& from, std::int64_t axis, const Dims& sizes) {
    samples.push_back({"split", {noise(f32, from)}, {{"axis", axis}, {"sizes", sizes}}});
  };
  add({2, 6}, 1, {1, 3, 2});
  add({4}, -1, {4});
  add({3, 2}, 0, {0, 3});
}

void add_reductions(Samples& samples) {
  const auto add = [&](std::string_view op, const Literal& x) {
    const std::int64_t last = x.rank() - 1;
    for (const Ints& axes : {Ints{}, Ints{last}, Ints{0, -1}}) {
      if (x.rank() == 1 && axes.size() > 1) continue;
      for (const bool keepdims : {false, true}) {
        samples.push_back({op, {x}, {{"axes", axes}, {"keepdims", keepdims}}});
      }
    }
  };
  for (const DType dtype : kNumbers) {
    for (const std::string_view op : {"reduce_sum", "reduce_prod", "reduce_max", "reduce_min"}) {
      add(op, noise(dtype, {2, 3, 4}));
      add(op, noise(dtype, {0, 2}));
    }
    for (const std::string_view op : {"argmax", "argmin"}) {
      for (const bool last : {false, true}) {
        samples.push_back(
            {op, {noise(dtype, {4, 9})}, {{"axis", std::int64_t{-1}}, {"last", last}}});
        samples.push_back({op,
                           {noise(dtype, {4, 3})},
                           {{"axis", std::int64_t{0}}, {"keepdims", true}, {"last", last}}});
      }
    }
  }
  for (const DType dtype : kFloats) {
    for (const std::string_view op : {"reduce_mean", "variance"}) add(op, noise(dtype, {2, 3, 4}));
    const Attrs sample_variance = {{"axes", Ints{1}}, {"correction", std::int64_t{1}}};
    samples.push_back({"variance", {noise(dtype, {2, 5})}, sample_variance});
    samples.push_back({"variance", {noise(dtype, {2, 1})}, sample_variance});
  }
  for (const std::string_view op : {"reduce_and", "reduce_or"}) {
    add(op, noise(boolean, {2, 3, 2}));
    add(op, noise(boolean, {0, 2}));
  }
}

void add_resizes_and_random(Samples& samples) {
  for (const std::string mode : {"nearest", "linear", "cubic"}) {
    samples.push_back(
        {"resize", {noise(f32, {1, 2, 3, 4})}, {{"sizes", Dims{1, 2, 5, 6}}, {"mode", mode}}});
  }
  const Literal key = ints(i64, {2}, {7, 3});
  samples.push_back({"random_uniform", {key}, {{"sizes", Dims{3, 5}}}});
  samples.push_back({"random_normal", {key}, {{"sizes", Dims{3, 5}}}});
}

}  // namespace

std::vector<OneOp> op_samples() {
  Samples samples;
  add_scalar_ops(samples);
  add_where(samples);
  add_bits(samples);
  add_converts(samples);
  add_composites(samples);
  add_views(samples);
  add_iotas(samples);
  add_pads(samples);
  add_concats(samples);
  add_gathers(samples);
  add_splits(samples);
  add_reductions(samples);
  add_resizes_and_random(samples);
  return samples;
}

std::string describe(const OneOp& call) {
  std::string text = std::string(call.op) + "(";
  for (const Literal& operand : call.operands) {
    if (text.back() != '(') text += ", ";
    text += std::string(name_of(operand.dtype())) + "[";
    for (const std::int64_t size : operand.sizes()) text += std::to_string(size) + " ";
    text += "]";
  }
  for (const auto& [name, value] : call.attrs) text += " " + name;
  return text + ")";
}

}  // namespace heddle::testing
