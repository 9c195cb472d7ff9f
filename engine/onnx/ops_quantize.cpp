// Quantised tensors and arithmetic on them.

#include <algorithm>

#include "engine/onnx/converters.h"
#include "engine/onnx/float8.h"
#include "engine/onnx/quantised.h"
#include "engine/onnx/window.h"

namespace heddle::onnx {

namespace {

/// Scales or zero points beside x: a vector runs along `axis`.
Tensor beside(const Node& node, const Tensor& vector, const Tensor& x, std::int64_t axis) {
  if (vector.rank() == 0) return vector;
  if (vector.rank() != 1)
    node.malformed("scale and zero point", "a number or a vector, or a block_size",
                   std::to_string(vector.rank()) + " dimensions");
  if (!vector.size(0).is_symbolic() && vector.size(0).value() == 1) return reshape(vector, {});
  return unsqueeze_all(vector, range_of(1, x.rank() - node.axis(axis, x.rank())));
}

/// What lies beside x: a number, a vector along an axis, or, of blocks, a tensor with one for each `block_size` along the axis.
/// Whole blocks of x are taken apart, so that what is beside them is broadcast.
class Beside {
 public:
  Beside(const Node& node, const Tensor& x)
      : node_(node), x_(x), block_(node.integer("block_size", 0)) {
    if (block_ < 0) node.malformed("block_size", "0 or more", std::to_string(block_));
    if (block_ == 0) return;
    axis_ = node.axis(node.integer("axis", 1), x.rank());
    const SymInt& size = x.size(axis_);
    whole_ = !size.is_symbolic() && size.value() % block_ == 0;
  }

  /// `x`, or what has its sizes, as it is computed.
  Tensor taken_apart(const Tensor& x) const { return block_ != 0 && whole_ ? in_blocks(x) : x; }
  Tensor joined(const Tensor& result) const {
    return block_ != 0 && whole_ ? reshape(result, x_.shape()) : result;
  }
  /// A scale or a zero point.
  Tensor operator()(const Tensor& part) const {
    if (block_ == 0) return beside(node_, part, x_, node_.integer("axis", 1));
    check(part);
    SymInts sizes = part.shape();
    const auto at = sizes.begin() + axis_ + 1;
    if (whole_) {
      sizes.insert(at, 1);
      return reshape(part, sizes);
    }
    SymInts spread = sizes;
    sizes.insert(at, 1);
    SymInts wide = sizes;
    wide[static_cast<std::size_t>(axis_) + 1] = block_;
    spread[static_cast<std::size_t>(axis_)] = part.size(axis_) * block_;
    return slice(reshape(expand(reshape(part, sizes), wide), spread), axis_, 0, x_.size(axis_));
  }

 private:
  Tensor in_blocks(const Tensor& x) const {
    SymInts sizes = x.shape();
    sizes[static_cast<std::size_t>(axis_)] = x.size(axis_).value() / block_;
    sizes.insert(sizes.begin() + axis_ + 1, block_);
    return reshape(x, sizes);
  }

  /// Sizes that are numbers, those along other axes by the ops that follow too.
  void check(const Tensor& part) const {
    bool fits = part.rank() == x_.rank();
    for (std::int64_t d = 0; fits && d < x_.rank(); ++d) {
      const SymInt wanted = d == axis_ ? (x_.size(d) + (block_ - 1)) / block_ : x_.size(d);
      if (!wanted.is_symbolic() && !part.size(d).is_symbolic())
        fits = wanted.value() == part.size(d).value();
    }
    if (fits) return;
    node_.malformed("scale and zero point",
                    "the sizes of x, and one for each block of " + std::to_string(block_) +
                        " along axis " + std::to_string(axis_) + " of " + listed(x_.shape()),
                    listed(part.shape()));
  }

  const Node& node_;
  const Tensor& x_;
  std::int64_t block_;
  std::int64_t axis_ = 0;
  bool whole_ = false;
};

/// Whether the node has a zero point `k` that is not known to be 0: that of symmetric weights is a vector of zeros. It
/// is read while tracing and cannot be updated.
bool has_zero_point(const Node& node, std::size_t k) {
  if (!node.has(k)) return false;
  const auto known = node.value(k).concrete();
  if (!known || !known->is_row_major()) return true;
  const auto* first = static_cast<const char*>(known->data());
  const auto bytes = known->count() * static_cast<std::int64_t>(heddle::size_of(known->dtype()));
  return !std::all_of(first, first + bytes, [](char byte) { return byte == 0; });
}

}  // namespace

Tensor quantised(const Tensor& scaled, const Tensor& zero, std::int64_t bits) {
  const Tensor moved = round(scaled) + cast(zero, scaled.dtype());
  const std::int64_t width =
      bits != 0 ? bits : 8 * static_cast<std::int64_t>(heddle::size_of(zero.dtype()));
  const auto values = static_cast<double>(std::int64_t{1} << width);
  const double least = is_signed(zero.dtype()) ? -values / 2 : 0;
  return cast(clamp(moved, least, least + values - 1), zero.dtype());
}

Tensor zero_point(const Node& node, std::size_t k, DType otherwise) {
  const Tensor zero = node.has(k) ? node.tensor(k) : Tensor::scalar_int(otherwise, 0);
  if (!is_integer(zero.dtype()) || size_of(zero.dtype()) > 2)
    node.unsupported("a zero point of this dtype");
  return zero;
}

namespace {

/// `real` in 8-bit floats; a zero point, which is 0 for these, counts for FLOAT4E2M1 alone.
Value quantised_to_float8(const Node& node, const Beside& beside_x, const Tensor& scaled) {
  const bool has_zero = node.has(2);
  const DType dtype = has_zero ? node.value(2).dtype() : node.dtype("output_dtype", f8e4m3fn);
  const std::int64_t bits = has_zero ? node.value(2).bits() : node.bits("output_dtype");
  const Tensor moved =
      has_zero && bits != 0 ? scaled + cast(beside_x(node.tensor(2)), scaled.dtype()) : scaled;
  return Value(beside_x.joined(as_float8(node, moved, dtype, bits))).with_bits(bits);
}

Outputs quantize_linear(const Node& node) {
  const Tensor x = node.tensor(0);
  const Beside beside_x(node, x);
  const Tensor scale = beside_x(widened(node.tensor(1)));
  if (is_float8(node.has(2) ? node.value(2).dtype() : node.dtype("output_dtype", u8)))
    return {
        quantised_to_float8(node, beside_x, beside_x.taken_apart(cast(x, scale.dtype())) / scale)};
  const Tensor zero = zero_point(node, 2, node.dtype("output_dtype", u8));
  const std::int64_t bits = node.has(2) ? node.value(2).bits() : node.bits("output_dtype");
  const Tensor real = is_floating(x.dtype()) ? x : cast(x, scale.dtype());
  const Tensor at = node.has(2) ? beside_x(zero) : zero;
  const Tensor numbers = quantised(beside_x.taken_apart(real) / scale, at, bits);
  return {Value(beside_x.joined(numbers)).with_bits(bits)};
}

Outputs dequantize_linear(const Node& node) {
  const Tensor x = node.tensor(0);
  const Beside beside_x(node, x);
  const Tensor scale = beside_x(widened(node.tensor(1)));
  const DType between = is_float8(x.dtype()) ? f32 : i32;
  Tensor wide = beside_x.taken_apart(cast(x, between));
  if (has_zero_point(node, 2)) wide = wide - cast(beside_x(node.tensor(2)), between);
  return {beside_x.joined(cast(wide, scale.dtype()) * scale)};
}

}  // namespace

Quantised dynamically_quantised(const Tensor& x) {
  const Tensor high = maximum(amax(x), 0.0);
  const Tensor low = minimum(amin(x), 0.0);
  // Nothing but zeros has no range to divide.
  const Tensor range = (high - low) / 255.0;
  const Tensor scale = where(equal(range, 0.0), 1.0, range);
  const Tensor zero = cast(clamp(round(-low / scale), 0.0, 255.0), u8);
  return {quantised(x / scale, zero), scale, zero};
}

Tensor centred(const Node& node, std::size_t operand, std::size_t zero, bool rows) {
  const Tensor wide = cast(node.tensor(operand), i32);
  if (!has_zero_point(node, zero)) return wide;
  Tensor point = cast(node.tensor(zero), i32);
  if (point.rank() == 1 && !(point.size(0) == 1) && rows) point = unsqueeze(point, 1);
  return wide - point;
}

namespace {

Outputs dynamic_quantize_linear(const Node& node) {
  const Quantised result = dynamically_quantised(node.tensor(0));
  return {result.numbers, result.scale, result.zero};
}

Outputs matmul_integer(const Node& node) {
  return {matmul(centred(node, 0, 2, true), centred(node, 1, 3, false))};
}

Outputs qlinear_matmul(const Node& node) {
  const Tensor product = matmul(centred(node, 0, 2, true), centred(node, 3, 5, false));
  const Tensor a_scale = node.tensor(1);
  Tensor rows = a_scale;
  if (a_scale.rank() == 1 && !(a_scale.size(0) == 1)) rows = unsqueeze(a_scale, 1);
  const Tensor real = cast(product, f32) * (rows * node.tensor(4));
  return {quantised(real / node.tensor(6), zero_point(node, 7, u8))};
}

/// Zero points of weights run along the output channels, the first dimension.
Tensor centred_weights(const Node& node, std::size_t operand, std::size_t zero) {
  const Tensor w = cast(node.tensor(operand), i32);
  if (!has_zero_point(node, zero)) return w;
  const Tensor point = cast(node.tensor(zero), i32);
  return w - beside(node, point, w, 0);
}

Outputs conv_integer(const Node& node) {
  return {convolve(node, centred(node, 0, 2, false), centred_weights(node, 1, 3), {})};
}

Outputs qlinear_conv(const Node& node) {
  const Tensor w = centred_weights(node, 3, 5);
  const Tensor product = convolve(node, centred(node, 0, 2, false), w, node.optional(8));
  const Tensor scale = beside(node, node.tensor(4), product, 1);
  const Tensor real = cast(product, f32) * (reshape(node.tensor(1), {}) * scale);
  return {quantised(real / reshape(node.tensor(6), {}), zero_point(node, 7, u8))};
}

}  // namespace

std::span<const Converter> quantize_converters() {
  static constexpr Converter kConverters[] = {
      {"ConvInteger", conv_integer},
      {"DequantizeLinear", dequantize_linear},
      {"DynamicQuantizeLinear", dynamic_quantize_linear},
      {"MatMulInteger", matmul_integer},
      {"QLinearConv", qlinear_conv},
      {"QLinearMatMul", qlinear_matmul},
      {"QuantizeLinear", quantize_linear},
  };
  return kConverters;
}

}  // namespace heddle::onnx
