// Host tensors as plain row-major vectors, in which evaluate functions that mix many elements
// compute.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/literal.h"
#include "ir/op.h"

namespace heddle::ir::ops {

/// `tensor` with its elements converted to `dtype`.
Literal converted(const Literal& tensor, DType dtype);

inline float widened(base::Half value) { return static_cast<float>(value); }
inline float widened(base::BFloat16 value) { return static_cast<float>(value); }
template <DType kDType>
float widened(base::Float8<kDType> value) {
  return static_cast<float>(value);
}
template <typename S>
S widened(S value) {
  return value;
}

/// The elements in row-major order. T is double or std::int64_t; a bool is 0 or 1.
template <typename T>
std::vector<T> dense(const Literal& tensor) {
  const Literal packed = tensor.contiguous();
  std::vector<T> values(static_cast<std::size_t>(packed.count()));
  dispatch(packed.dtype(), [&]<typename S>() {
    const S* source = packed.data_as<S>();
    for (std::size_t k = 0; k < values.size(); ++k) values[k] = static_cast<T>(widened(source[k]));
  });
  return values;
}

/// A tensor of the values in row-major order, rounded or wrapped to `dtype`.
Literal literal_of(DType dtype, const Sizes& sizes, const std::vector<double>& values);
Literal literal_of(DType dtype, const Sizes& sizes, const std::vector<std::int64_t>& values);
Literal literal_of(DType dtype, const Sizes& sizes, const std::vector<std::uint64_t>& values);

/// Calls f.template operator()<T>() with the type to compute `dtype` in: double for floats,
/// std::uint64_t for u64 and std::int64_t for the rest. Sums and products of integers wrap modulo 2^64, so modulo their own
/// width too.
template <typename F>
decltype(auto) with_number(DType dtype, F&& f) {
  if (is_floating(dtype)) return f.template operator()<double>();
  if (dtype == DType::U64) return f.template operator()<std::uint64_t>();
  return f.template operator()<std::int64_t>();
}

inline double plus(double a, double b) { return a + b; }
inline double times(double a, double b) { return a * b; }
inline std::int64_t plus(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
inline std::int64_t times(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}
inline std::uint64_t plus(std::uint64_t a, std::uint64_t b) { return a + b; }
inline std::uint64_t times(std::uint64_t a, std::uint64_t b) { return a * b; }
inline bool is_nan(double value) { return value != value; }
inline bool is_nan(std::int64_t) { return false; }
inline bool is_nan(std::uint64_t) { return false; }

/// A row-major tensor cut at one axis: element (o, k, i) lies at (o * length + k) * inner + i.
struct AxisCut {
  std::int64_t outer = 1;
  std::int64_t length = 1;
  std::int64_t inner = 1;

  std::size_t at(std::int64_t o, std::int64_t k, std::int64_t i) const {
    return static_cast<std::size_t>((o * length + k) * inner + i);
  }
};
/// `axis` counts from the front.
AxisCut cut_at(const Sizes& sizes, std::int64_t axis);

/// Steps `index` through `sizes` in row-major order; false after the last one. Start with all
/// zeros, and only where no size is 0.
bool next_index(Sizes& index, const Sizes& sizes);

/// Fails unless operand `k` has a number dtype: any but bool and 8-bit floats.
void require_number(const InferContext& ctx, std::size_t k, std::string_view label);
/// Fails unless operand `k` has a floating dtype.
void require_floating(const InferContext& ctx, std::size_t k, std::string_view label);
/// Requires `value` to be a multiple of `divisor`.
void require_multiple(const InferContext& ctx, const SymExpr& value, std::int64_t divisor,
                      std::string_view label);
/// Fails unless `part` broadcasts to `whole` without growing it: trailing sizes equal, or 1.
void require_broadcast_to(const InferContext& ctx, const Dims& part, const Dims& whole,
                          std::string_view label);
/// Throws ArgumentError "<op>: <label>": an attribute's value that the op does not take.
[[noreturn]] void fail_argument(const InferContext& ctx, std::string_view label,
                                std::string expected, std::string got);
/// An output that may take the dying operand 0's bytes: it starts as a copy of it.
Alias reuse_first(const Node& node, std::uint32_t output);

/// `value` as `dtype`: itself when it is already.
Value emit_convert(DecomposeContext& ctx, Value value, DType dtype);
/// `value` with other sizes, in the same row-major order.
Value emit_reshape(DecomposeContext& ctx, Value value, Dims sizes);
/// `value` broadcast to `sizes`.
Value emit_expand(DecomposeContext& ctx, Value value, Dims sizes);

}  // namespace heddle::ir::ops
