// Reductions, products, normalisations and windows.
#include <algorithm>

#include "tests/support/bits_products.h"
#include "tests/sweep/op_table.h"

namespace heddle::testing {

using ir::Attrs;
using ir::Literal;
using Ints = std::vector<std::int64_t>;

namespace {

/// Windows that are as wide in each dimension.
Attrs window(std::size_t spatial, std::int64_t stride, std::int64_t pad, std::int64_t dilation) {
  return {{"strides", Ints(spatial, stride)},
          {"pads_low", Ints(spatial, pad)},
          {"pads_high", Ints(spatial, pad)},
          {"dilations", Ints(spatial, dilation)}};
}

Attrs with(Attrs attrs, const char* name, ir::Attr value) {
  attrs[name] = std::move(value);
  return attrs;
}

void add_reduction(std::vector<OpRow>& rows, std::string_view op,
                   const std::vector<DType>& dtypes) {
  const auto add = [&](const char* variant, const Ints& axes, bool keepdims) {
    rows.push_back({op, variant, dtypes, [op, axes, keepdims](DType t, Extent e) {
                      return OneOp{op,
                                   {noise(t, {e.first(5), e.other(2), e.last(37)})},
                                   {{"axes", axes}, {"keepdims", keepdims}}};
                    }});
  };
  add("last", {-1}, false);
  add("first", {0}, true);
  add("all", {0, 1, 2}, false);
}

}  // namespace

void add_reduction_rows(std::vector<OpRow>& rows) {
  for (const std::string_view op : {"reduce_sum", "reduce_prod", "reduce_max", "reduce_min"})
    add_reduction(rows, op, numbers());
  for (const std::string_view op : {"reduce_mean", "variance"}) add_reduction(rows, op, floats());
  for (const std::string_view op : {"reduce_and", "reduce_or"}) add_reduction(rows, op, bools());
  for (const std::string_view op : {"argmax", "argmin"})
    for (const bool last : {false, true})
      rows.push_back({op, last ? "last" : "first", numbers(), [op, last](DType t, Extent e) {
                        return OneOp{op,
                                     {noise(t, {e.first(5), e.other(37)})},
                                     {{"axis", std::int64_t{-1}}, {"last", last}}};
                      }});
  rows.push_back({"cumsum", "", numbers(), [](DType t, Extent e) {
                    return OneOp{"cumsum",
                                 {noise(t, {e.first(5), e.last(37)})},
                                 {{"axis", std::int64_t{-1}}, {"exclusive", true}}};
                  }});
  rows.push_back({"cumsum", "reverse", numbers(), [](DType t, Extent e) {
                    return OneOp{"cumsum",
                                 {noise(t, {e.last(5), e.first(7)})},
                                 {{"axis", std::int64_t{0}}, {"reverse", true}}};
                  }});
}

void add_dense_rows(std::vector<OpRow>& rows) {
  rows.push_back(
      {"matmul", "", numbers(), [](DType t, Extent e) {
         return OneOp{"matmul",
                      {noise(t, {e.first(5), e.last(23)}), noise(t, {e.last(23), e.other(19)}, 2)}};
       }});
  rows.push_back({"matmul", "batched", numbers(), [](DType t, Extent e) {
                    return OneOp{"matmul",
                                 {noise(t, {e.first(2), 1, e.other(4), e.last(9)}),
                                  noise(t, {3, e.last(9), e.other(5)}, 2)}};
                  }});
  rows.push_back({"matmul", "vector", numbers(), [](DType t, Extent e) {
                    return OneOp{"matmul",
                                 {noise(t, {e.first(5), e.last(23)}), noise(t, {e.last(23)}, 2)}};
                  }});
  rows.push_back({"grouped_matmul", "", numbers(), [](DType t, Extent e) {
                    const std::int64_t depth = e.last(101);
                    return OneOp{
                        "grouped_matmul",
                        {noise(t, {e.first(50), depth}), noise(t, {3, depth, e.other(70)}, 2),
                         ints(i64, {3}, {7 * e.factor, 7 * e.factor, 45 * e.factor})}};
                  }});
  rows.push_back({"packed_grouped_matmul", "", numbers(), [](DType t, Extent e) {
                    const std::int64_t depth = e.last(101);
                    return OneOp{"packed_grouped_matmul",
                                 {noise(t, {e.first(50), depth}), noise(t, {3, 2, depth, 64}, 2),
                                  ints(i64, {3}, {7 * e.factor, 7 * e.factor, 45 * e.factor})},
                                 {{"columns", std::int64_t{70}}}};
                  }});
  rows.push_back({"packed_matmul", "", numbers(), [](DType t, Extent e) {
                    return OneOp{
                        "packed_matmul",
                        {noise(t, {e.first(5), e.last(101)}), noise(t, {2, e.last(101), 64}, 2)},
                        {{"columns", std::int64_t{70}}}};
                  }});
  for (const auto& [parts, width] : {std::pair<std::int64_t, std::int64_t>{3, 16}, {4, 32}})
    rows.push_back(
        {"packed_split_matmul", std::to_string(parts), {f32, f64}, [=](DType t, Extent e) {
           const std::int64_t depth = e.last(101);
           return OneOp{"packed_split_matmul",
                        {noise(t, {e.first(5), depth}), noise(t, {2, depth, parts * width}, 2)},
                        {{"parts", parts}, {"width", width}}};
         }});
  rows.push_back(
      {"packed_bf16_matmul", "", {bf16}, [](DType t, Extent e) {
         const std::int64_t depth = e.last(101);
         return OneOp{"packed_bf16_matmul",
                      {noise(t, {e.first(5), depth}), noise(bf16, {2, (depth + 1) / 2, 64, 2}, 2)},
                      {{"columns", std::int64_t{70}}}};
       }});
  rows.push_back({"packed_int8_matmul", "", {u8}, [](DType t, Extent e) {
                    const std::int64_t depth = e.last(101);
                    const ir::Sizes sizes{e.first(5), depth};
                    return OneOp{"packed_int8_matmul",
                                 {t == u8 ? any_bytes(t, sizes) : noise(t, sizes),
                                  any_bytes(i8, {2, (depth + 3) / 4, 64, 4}, 2)},
                                 {{"columns", std::int64_t{70}}}};
                  }});
  rows.push_back({"byte_panels", "", {u8, i8}, [](DType t, Extent e) {
                    return OneOp{"byte_panels",
                                 {any_bytes(t, {e.first(2), e.other(9), e.last(70)})},
                                 {{"width", std::int64_t{64}}}};
                  }});
  rows.push_back({"split_byte_pairs", "", {i8}, [](DType t, Extent e) {
                    const ir::Sizes sizes{2, e.last(19), 5, 4};
                    return OneOp{"split_byte_pairs",
                                 {t == i8 ? any_bytes(t, sizes) : noise(t, sizes)},
                                 {{"most", std::int64_t{3}}}};
                  }});
  rows.push_back({"packed_int8_conv", "", {u8}, [](DType t, Extent e) {
                    const std::int64_t channels = e.last(7);
                    const ir::Sizes sizes{e.first(2), e.other(6), 5, channels};
                    const Literal x = t == u8 ? any_bytes(t, sizes) : noise(t, sizes);
                    ir::Attrs attrs = window(2, 1, 1, 1);
                    attrs["kernel"] = Ints{3, 3};
                    attrs["columns"] = std::int64_t{70};
                    return OneOp{"packed_int8_conv",
                                 {x, any_bytes(i8, {2, (9 * channels + 3) / 4, 64, 4}, 2),
                                  Literal::scalar_int(u8, 9)},
                                 attrs};
                  }});
  rows.push_back({"packed_int8_conv", "aligned", {u8}, [](DType t, Extent e) {
                    const std::int64_t channels = e.last(7);
                    const std::int64_t run = (3 * channels + 63) / 64 * 64;
                    const ir::Sizes sizes{e.first(2), e.other(6), 5, channels};
                    const Literal x = t == u8 ? any_bytes(t, sizes) : noise(t, sizes);
                    ir::Attrs attrs = window(2, 1, 1, 1);
                    attrs["kernel"] = Ints{3, 3};
                    attrs["columns"] = std::int64_t{70};
                    attrs["align"] = std::int64_t{64};
                    return OneOp{
                        "packed_int8_conv",
                        {x, any_bytes(i8, {3, 3 * run / 4, 32, 4}, 2), Literal::scalar_int(u8, 9)},
                        attrs};
                  }});
  rows.push_back({"packed_bf16_conv", "", {bf16}, [](DType t, Extent e) {
                    const std::int64_t channels = e.last(7);
                    ir::Attrs attrs = window(2, 1, 1, 1);
                    attrs["kernel"] = Ints{3, 3};
                    attrs["columns"] = std::int64_t{70};
                    return OneOp{"packed_bf16_conv",
                                 {noise(t, {e.first(2), e.other(6), 5, channels}),
                                  noise(bf16, {2, (9 * channels + 1) / 2, 64, 2}, 2)},
                                 attrs};
                  }});
  rows.push_back({"int8_matmul", "", {u8, i8}, [](DType t, Extent e) {
                    const std::int64_t depth = e.last(101);
                    return OneOp{"int8_matmul",
                                 {any_bytes(t, {2, e.first(5), depth}),
                                  any_bytes(t == u8 ? i8 : u8, {depth, e.other(70)}, 2)}};
                  }});
  rows.push_back({"int8_conv", "", {u8, i8}, [](DType t, Extent e) {
                    const std::int64_t channels = e.last(7);
                    return OneOp{
                        "int8_conv",
                        {any_bytes(t, {e.first(2), channels, e.other(6), 5}),
                         any_bytes(i8, {e.other(9), channels, 3, 3}, 2), Literal::scalar_int(t, 9)},
                        window(2, 1, 1, 1)};
                  }});
  // Sums of a group are multiplied by its scale: an infinity there is not multiplied by each 0.
  constexpr std::size_t kScalesAreFinite = 1;
  rows.push_back({"packed_bits_matmul",
                  "",
                  {f16, bf16, f32},
                  [](DType t, Extent e) {
                    const BitsMatrixNoise matrix{.depth = 8 * e.last(13),
                                                 .columns = 70,
                                                 .bits = t == f16 ? 8 : 4,
                                                 .zero = t == f32 ? i8 : DType::Bool,
                                                 .scale = t};
                    return packed_bits_product(noise(t, {2, e.first(5), matrix.depth}), matrix);
                  },
                  kScalesAreFinite});
  rows.push_back({"fixed_bits_matmul",
                  "",
                  {i8},
                  [](DType t, Extent e) {
                    const BitsMatrixNoise matrix{
                        .depth = 32 * e.last(5), .columns = 70, .group = 32, .zero = i8};
                    const FixedNoise left(e.first(5), matrix.depth, 2, 32);
                    OneOp call = fixed_bits_product(left, 32, matrix);
                    if (t != i8) call.operands[0] = noise(t, left.digits.sizes());
                    return call;
                  },
                  kScalesAreFinite});
  rows.push_back({"dequantised_matmul", "", {f16, bf16, f32}, [](DType t, Extent e) {
                    const std::int64_t depth = e.last(101);
                    return OneOp{
                        "dequantised_matmul",
                        {noise(t, {2, e.first(5), depth}), any_bytes(i8, {depth, e.other(70)}, 2),
                         noise(t, {1, e.other(70)}, 3), any_bytes(i8, {1, e.other(70)}, 4)}};
                  }});
  for (const std::string_view op : {"softmax", "log_softmax"})
    for (const std::int64_t axis : {-1, 0})
      rows.push_back({op, axis == 0 ? "first" : "last", floats(), [op, axis](DType t, Extent e) {
                        return OneOp{op, {noise(t, {e.first(5), e.last(37)})}, {{"axis", axis}}};
                      }});
  rows.push_back({"layer_norm", "", floats(), [](DType t, Extent e) {
                    return OneOp{"layer_norm",
                                 {noise(t, {e.first(5), e.last(37)}), noise(t, {e.last(37)}, 2),
                                  noise(t, {e.last(37)}, 3)}};
                  }});
  rows.push_back({"rms_norm", "", floats(), [](DType t, Extent e) {
                    return OneOp{"rms_norm",
                                 {noise(t, {e.first(5), e.last(37)}), noise(t, {e.last(37)}, 2)}};
                  }});
  rows.push_back({"group_norm", "", floats(), [](DType t, Extent e) {
                    const std::int64_t channels = 2 * e.other(3);
                    return OneOp{"group_norm",
                                 {noise(t, {e.first(2), channels, e.last(7)}),
                                  noise(t, {channels}, 2), noise(t, {channels}, 3)},
                                 {{"groups", std::int64_t{2}}}};
                  }});
  rows.push_back({"batch_norm", "", floats(), [](DType t, Extent e) {
                    const std::int64_t channels = e.other(3);
                    Literal variance = noise(t, {channels}, 5);
                    for (std::int64_t k = 0; k < channels; ++k)
                      variance.set(k, variance.at(k) * variance.at(k));
                    return OneOp{
                        "batch_norm",
                        {noise(t, {e.first(2), channels, e.last(7)}), noise(t, {channels}, 2),
                         noise(t, {channels}, 3), noise(t, {channels}, 4), variance}};
                  }});
  const auto attention = [&](const char* variant, bool causal, bool masked, bool nan_rows = false,
                             double softcap = 0) {
    rows.push_back({"attention", variant, floats(), [=](DType t, Extent e) {
                      const std::int64_t batch = e.first(2);
                      const std::int64_t keys = e.last(11);
                      OneOp call{
                          "attention",
                          {noise(t, {batch, 4, e.other(5), 8}), noise(t, {batch, 2, keys, 8}, 2),
                           noise(t, {batch, 2, keys, e.other(6)}, 3)},
                          {{"causal", causal}, {"nan_rows", nan_rows}, {"softcap", softcap}}};
                      if (masked)
                        call.operands.push_back(noise(boolean, {1, 1, e.other(5), keys}, 4));
                      return call;
                    }});
  };
  attention("", false, false);
  attention("causal", true, false);
  attention("masked", false, true);
  attention("nan_rows", false, true, true);
  attention("softcap", true, true, false, 0.5);
  for (const bool masked : {false, true})
    rows.push_back({"attention_parts", masked ? "masked" : "", floats(), [=](DType t, Extent e) {
                      const std::int64_t keys = e.last(11);
                      OneOp call{"attention_parts",
                                 {noise(t, {e.first(2), 4, e.other(3), 8}),
                                  noise(t, {e.first(2), 2, keys, 8}, 2),
                                  noise(t, {e.first(2), 2, keys, e.other(6)}, 3)},
                                 {{"part", ir::SymExpr(4)}}};
                      if (masked) call.operands.push_back(noise(boolean, {e.other(3), keys}, 4));
                      return call;
                    }});
  for (const bool nan_rows : {false, true})
    rows.push_back({"join_attention", nan_rows ? "nan_rows" : "", floats(), [=](DType t, Extent e) {
                      const ir::Sizes parts{e.first(2), 4, e.other(3), e.other(5)};
                      ir::Sizes sums = parts;
                      sums.push_back(e.last(11));
                      return OneOp{"join_attention",
                                   {noise(t, sums), noise(t, parts, 2), noise(t, parts, 3)},
                                   {{"nan_rows", nan_rows}}};
                    }});
}

void add_window_rows(std::vector<OpRow>& rows) {
  const auto conv = [&](std::string variant, std::size_t spatial, std::int64_t groups,
                        std::int64_t stride, std::int64_t dilation, bool channels_last = false) {
    rows.push_back({"conv", std::move(variant), numbers(), [=](DType t, Extent e) {
                      ir::Sizes x{e.first(2), 4};
                      ir::Sizes w{e.other(3) * groups, 4 / groups};
                      for (std::size_t d = 0; d < spatial; ++d) {
                        x.push_back(e.other(7));
                        w.push_back(e.few(3));
                      }
                      if (channels_last) std::rotate(x.begin() + 1, x.begin() + 2, x.end());
                      return OneOp{
                          "conv",
                          {noise(t, x), noise(t, w, 2), noise(t, {w[0]}, 3)},
                          with(with(window(spatial, stride, 1, dilation), "groups", groups),
                               "channels_last", channels_last)};
                    }});
    // A NaN or an infinity of w may show where its tap lies in the padding.
    rows.back().specials = 1;
  };
  conv("1d", 1, 1, 1, 2);
  conv("2d", 2, 1, 2, 1);
  conv("2d_groups", 2, 2, 1, 1);
  conv("3d", 3, 1, 1, 1);
  conv("channels_last_1d", 1, 2, 1, 1, true);
  conv("channels_last_2d", 2, 1, 2, 1, true);
  for (const std::int64_t groups : {1, 2})
    rows.push_back(
        {"conv_transpose", groups == 1 ? "" : "groups", numbers(), [groups](DType t, Extent e) {
           return OneOp{
               "conv_transpose",
               {noise(t, {e.first(2), 4, e.other(5), e.other(4)}),
                noise(t, {4, e.other(3), 3, 3}, 2)},
               with(with(window(2, 2, 1, 1), "output_padding", Ints{1, 0}), "groups", groups)};
         }});
  for (const std::string_view op : {"max_pool", "max_pool_indices", "avg_pool"})
    rows.push_back({op, "", op == "avg_pool" ? floats() : numbers(), [op](DType t, Extent e) {
                      return OneOp{op,
                                   {noise(t, {e.first(2), 3, e.other(9), e.other(8)})},
                                   with(window(2, 2, 1, 1), "kernel", Ints{3, 2})};
                    }});
  for (const std::string_view op : {"max_pool", "avg_pool"})
    rows.push_back(
        {op, "channels_last", op == "avg_pool" ? floats() : numbers(), [op](DType t, Extent e) {
           return OneOp{op,
                        {noise(t, {e.first(2), e.other(9), 8, e.other(20)})},
                        with(with(window(2, 2, 1, 1), "kernel", Ints{3, 2}), "axes", Ints{1, 2})};
         }});
  const auto resize = [&](const std::string& mode, const std::vector<DType>& dtypes) {
    rows.push_back({"resize", mode, dtypes, [mode](DType t, Extent e) {
                      return OneOp{"resize",
                                   {noise(t, {e.first(2), 2, e.other(5), e.other(4)})},
                                   {{"sizes", ir::Dims{e.first(2), 2, 7 * e.factor, 6 * e.factor}},
                                    {"mode", mode}}};
                    }});
    // Which elements weigh 0 in cubic depends on rounding, and so whose NaN shows.
    if (mode == "cubic") rows.back().specials = 0;
  };
  resize("nearest", {std::begin(kArithmeticDTypes), std::end(kArithmeticDTypes)});
  resize("linear", floats());
  resize("cubic", floats());
}

}  // namespace heddle::testing
