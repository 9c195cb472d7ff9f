// Operations on tensors: traced inside a callable, run at once outside.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "heddle/tensor.h"

namespace heddle {

/// A tensor or a number, with the line it stands on. A number takes the dtype of the other operand
/// (f32 if that is an integer and the number is not), which must hold it if both are integers: otherwise the operation
/// throws an ArgumentError.
class HEDDLE_API Arg {
 public:
  Arg(const Tensor& t, std::source_location l = std::source_location::current())  // NOLINT
      : tensor(t), is_tensor(true), where(l) {}
  template <std::floating_point T>
  Arg(T v, std::source_location l = std::source_location::current())  // NOLINT
      : number(static_cast<double>(v)), where(l) {}
  template <std::integral T>
  Arg(T v, std::source_location l = std::source_location::current())  // NOLINT
      : number(static_cast<double>(v)),
        integer(static_cast<std::int64_t>(v)),
        integral(true),
        too_large(v > T{} && static_cast<std::int64_t>(v) < 0),
        where(l) {}

  Tensor tensor;  ///< undefined when a number
  bool is_tensor = false;
  double number = 0;
  std::int64_t integer = 0;  ///< the number, exactly, if it is integral
  bool integral = false;
  bool too_large = false;  ///< beyond 2^63 - 1
  std::source_location where;
};

using At = std::source_location;

/// Arithmetic with broadcasting and dtype promotion.
HEDDLE_API Tensor operator+(const Arg& a, const Arg& b);
HEDDLE_API Tensor operator-(const Arg& a, const Arg& b);
HEDDLE_API Tensor operator*(const Arg& a, const Arg& b);
HEDDLE_API Tensor operator/(const Arg& a, const Arg& b);
HEDDLE_API Tensor operator-(const Tensor& a);
HEDDLE_API Tensor add(const Arg& a, const Arg& b);
HEDDLE_API Tensor sub(const Arg& a, const Arg& b);
HEDDLE_API Tensor mul(const Arg& a, const Arg& b);
HEDDLE_API Tensor div(const Arg& a, const Arg& b);
HEDDLE_API Tensor mod(const Arg& a, const Arg& b);  ///< sign of the divisor
HEDDLE_API Tensor rem(const Arg& a, const Arg& b);  ///< sign of the dividend
HEDDLE_API Tensor pow(const Arg& a, const Arg& b);
HEDDLE_API Tensor maximum(const Arg& a, const Arg& b);  ///< NaN wins
HEDDLE_API Tensor minimum(const Arg& a, const Arg& b);
HEDDLE_API Tensor atan2(const Arg& a, const Arg& b);
HEDDLE_API Tensor logical_and(const Arg& a, const Arg& b);
HEDDLE_API Tensor logical_or(const Arg& a, const Arg& b);
HEDDLE_API Tensor logical_xor(const Arg& a, const Arg& b);
HEDDLE_API Tensor equal(const Arg& a, const Arg& b);
HEDDLE_API Tensor not_equal(const Arg& a, const Arg& b);
HEDDLE_API Tensor less(const Arg& a, const Arg& b);
HEDDLE_API Tensor less_equal(const Arg& a, const Arg& b);
HEDDLE_API Tensor greater(const Arg& a, const Arg& b);
HEDDLE_API Tensor greater_equal(const Arg& a, const Arg& b);
/// a where `condition` (bool), else b.
HEDDLE_API Tensor where(const Arg& condition, const Arg& a, const Arg& b);
HEDDLE_API Tensor clamp(const Tensor& x, const Arg& low, const Arg& high);

/// Unary functions, element by element. Floating dtypes, but for neg, abs, sign and logical_not.
HEDDLE_API Tensor neg(const Tensor& x, At where = At::current());
HEDDLE_API Tensor abs(const Tensor& x, At where = At::current());
HEDDLE_API Tensor sign(const Tensor& x, At where = At::current());
HEDDLE_API Tensor ceil(const Tensor& x, At where = At::current());
HEDDLE_API Tensor floor(const Tensor& x, At where = At::current());
HEDDLE_API Tensor round(const Tensor& x, At where = At::current());  ///< half to even
HEDDLE_API Tensor trunc(const Tensor& x, At where = At::current());
HEDDLE_API Tensor sqrt(const Tensor& x, At where = At::current());
HEDDLE_API Tensor rsqrt(const Tensor& x, At where = At::current());
HEDDLE_API Tensor reciprocal(const Tensor& x, At where = At::current());
HEDDLE_API Tensor exp(const Tensor& x, At where = At::current());
HEDDLE_API Tensor expm1(const Tensor& x, At where = At::current());
HEDDLE_API Tensor log(const Tensor& x, At where = At::current());
HEDDLE_API Tensor log1p(const Tensor& x, At where = At::current());
HEDDLE_API Tensor sin(const Tensor& x, At where = At::current());
HEDDLE_API Tensor cos(const Tensor& x, At where = At::current());
HEDDLE_API Tensor tan(const Tensor& x, At where = At::current());
HEDDLE_API Tensor tanh(const Tensor& x, At where = At::current());
HEDDLE_API Tensor erf(const Tensor& x, At where = At::current());
HEDDLE_API Tensor sigmoid(const Tensor& x, At where = At::current());
HEDDLE_API Tensor logical_not(const Tensor& x, At where = At::current());
HEDDLE_API Tensor is_nan(const Tensor& x, At where = At::current());
HEDDLE_API Tensor relu(const Tensor& x, At where = At::current());
HEDDLE_API Tensor silu(const Tensor& x, At where = At::current());
HEDDLE_API Tensor softplus(const Tensor& x, At where = At::current());
/// 0.5 x (1 + erf(x / sqrt 2)); `tanh_form`: the tanh approximation.
HEDDLE_API Tensor gelu(const Tensor& x, bool tanh_form = false, At where = At::current());
HEDDLE_API Tensor cast(const Tensor& x, DType dtype, At where = At::current());
/// Numbers of 2 or 4 `bits` that lie side by side in the bytes of `packed`, u8 [..., b], the first in the lowest bits:
/// [..., count] of u8, or of i8 where they are in two's complement. On the CPU a product by constants
/// `(cast(unpack_bits(w, 4, k), f32) - zero) * scale` reads the bytes as they are packed.
HEDDLE_API Tensor unpack_bits(const Tensor& packed, std::int64_t bits, std::int64_t count,
                              bool is_signed = false, At where = At::current());

/// Reductions over `axes` (negative from the end; empty: all).
HEDDLE_API Tensor sum(const Tensor& x, std::vector<std::int64_t> axes = {}, bool keepdims = false,
                      At where = At::current());
HEDDLE_API Tensor mean(const Tensor& x, std::vector<std::int64_t> axes = {}, bool keepdims = false,
                       At where = At::current());
HEDDLE_API Tensor amax(const Tensor& x, std::vector<std::int64_t> axes = {}, bool keepdims = false,
                       At where = At::current());
HEDDLE_API Tensor amin(const Tensor& x, std::vector<std::int64_t> axes = {}, bool keepdims = false,
                       At where = At::current());
HEDDLE_API Tensor prod(const Tensor& x, std::vector<std::int64_t> axes = {}, bool keepdims = false,
                       At where = At::current());
HEDDLE_API Tensor all(const Tensor& x, std::vector<std::int64_t> axes = {}, bool keepdims = false,
                      At where = At::current());
HEDDLE_API Tensor any(const Tensor& x, std::vector<std::int64_t> axes = {}, bool keepdims = false,
                      At where = At::current());
HEDDLE_API Tensor variance(const Tensor& x, std::vector<std::int64_t> axes = {},
                           bool keepdims = false, std::int64_t correction = 0,
                           At where = At::current());
HEDDLE_API Tensor argmax(const Tensor& x, std::int64_t axis, bool keepdims = false,
                         At where = At::current());
HEDDLE_API Tensor argmin(const Tensor& x, std::int64_t axis, bool keepdims = false,
                         At where = At::current());
HEDDLE_API Tensor cumsum(const Tensor& x, std::int64_t axis, At where = At::current());

/// NumPy's matmul: batch dimensions broadcast, 1-D operands are rows or columns.
HEDDLE_API Tensor matmul(const Tensor& a, const Tensor& b, At where = At::current());
/// x [n, k], w [groups, k, m], ends [groups] of i64 or i32 -> [n, m]: the rows of x lie in groups, each of which is
/// multiplied by a matrix of its own. Row r belongs to the first group g with ends[g] > r; of none it gives zeros.
HEDDLE_API Tensor grouped_matmul(const Tensor& x, const Tensor& w, const Tensor& ends,
                                 At where = At::current());
HEDDLE_API Tensor softmax(const Tensor& x, std::int64_t axis = -1, At where = At::current());
HEDDLE_API Tensor log_softmax(const Tensor& x, std::int64_t axis = -1, At where = At::current());
/// Normalises over the dimensions from `axis` on. `scale` and `bias` may be undefined.
HEDDLE_API Tensor layer_norm(const Tensor& x, const Tensor& scale, const Tensor& bias,
                             std::int64_t axis = -1, double epsilon = 1e-5,
                             At where = At::current());
HEDDLE_API Tensor rms_norm(const Tensor& x, const Tensor& scale, std::int64_t axis = -1,
                           double epsilon = 1e-5, At where = At::current());
/// q [B,H,Lq,D], k [B,Hk,Lk,D], v [B,Hk,Lk,Dv]; mask bool or additive, may be undefined. scale 0: 1/sqrt(D). softcap c, where
/// it is not 0: scores s become c * tanh(s / c) before the mask.
HEDDLE_API Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                            const Tensor& mask = {}, bool causal = false, double scale = 0,
                            double softcap = 0, At where = At::current());

/// Shape operations; sizes may be symbolic. One entry of reshape may be -1.
HEDDLE_API Tensor reshape(const Tensor& x, std::vector<SymInt> sizes, At where = At::current());
HEDDLE_API Tensor permute(const Tensor& x, std::vector<std::int64_t> perm,
                          At where = At::current());
HEDDLE_API Tensor transpose(const Tensor& x, std::int64_t a, std::int64_t b,
                            At where = At::current());
HEDDLE_API Tensor expand(const Tensor& x, std::vector<SymInt> sizes, At where = At::current());
HEDDLE_API Tensor unsqueeze(const Tensor& x, std::int64_t axis, At where = At::current());
HEDDLE_API Tensor squeeze(const Tensor& x, std::int64_t axis, At where = At::current());
/// Elements start, start+stride, … below limit of one axis.
HEDDLE_API Tensor slice(const Tensor& x, std::int64_t axis, SymInt start, SymInt limit,
                        SymInt stride = 1, At where = At::current());
/// `x` with those from `start` on along one axis replaced by `update`, of the same sizes but along it. A state that is assigned this
/// (assign) is written there alone.
HEDDLE_API Tensor slice_scatter(const Tensor& x, const Tensor& update, std::int64_t axis,
                                SymInt start, At where = At::current());
/// Windows of `size` elements along `axis`, which begin `step` elements after each other and may overlap: that dimension becomes
/// the number of windows, and a last one of `size` is added. A view. @throws ShapeError.
HEDDLE_API Tensor unfold(const Tensor& x, std::int64_t axis, std::int64_t size, std::int64_t step,
                         At where = At::current());
HEDDLE_API Tensor concat(const std::vector<Tensor>& parts, std::int64_t axis,
                         At where = At::current());
HEDDLE_API std::vector<Tensor> split(const Tensor& x, std::vector<SymInt> sizes, std::int64_t axis,
                                     At where = At::current());
/// Rows of `x` along `axis` picked by integer `indices`; negative ones count from the end.
HEDDLE_API Tensor gather(const Tensor& x, const Tensor& indices, std::int64_t axis = 0,
                         At where = At::current());
/// Values and i64 positions of the k largest along `axis`, descending.
HEDDLE_API std::pair<Tensor, Tensor> topk(const Tensor& x, SymInt k, std::int64_t axis = -1,
                                          bool largest = true, At where = At::current());
/// The values along `axis` in order, equal ones as they came and NaN last, and their i64 positions.
HEDDLE_API std::pair<Tensor, Tensor> sort(const Tensor& x, std::int64_t axis = -1,
                                          bool descending = false, At where = At::current());
/// 0, 1, … along `axis` of a tensor of `sizes`.
HEDDLE_API Tensor iota(std::vector<SymInt> sizes, std::int64_t axis = 0, DType dtype = i64,
                       At where = At::current());
/// A scalar tensor that holds a size.
HEDDLE_API Tensor size_tensor(const SymInt& size, At where = At::current());
/// The size that a scalar i64 tensor holds: one that only the run tells, where the tensor is traced. Comparing it while
/// tracing is a TraceError. @throws ShapeError, when the graph runs, where the number is below 0.
HEDDLE_API SymInt as_size(const Tensor& number, At where = At::current());
/// Indices of the elements that are not 0, in row-major order: i64[rank, n] with an n that only the run tells.
HEDDLE_API Tensor nonzero(const Tensor& x, At where = At::current());
/// The slices of `x` along `axis` for which the vector `condition` is not 0: a size that only the run tells.
HEDDLE_API Tensor compress(const Tensor& x, const Tensor& condition, std::int64_t axis = 0,
                           At where = At::current());
/// `x` with `value` in every element of `sizes` beyond it: low and high count per dimension.
HEDDLE_API Tensor pad(const Tensor& x, std::vector<SymInt> low, std::vector<SymInt> high,
                      const Arg& value = 0.0, At where = At::current());
/// x [N,C,spatial…], w [M,C/groups,k…], bias [M] or undefined.
HEDDLE_API Tensor conv(const Tensor& x, const Tensor& w, const Tensor& bias,
                       std::vector<std::int64_t> strides, std::vector<std::int64_t> pads_low,
                       std::vector<std::int64_t> pads_high, std::int64_t groups = 1,
                       At where = At::current());

/// Gives `state` the elements of `value`.
///
/// While tracing, `state` is an input of the callable: it holds `value` when a call has returned, in the
/// caller's own memory (a KV cache), and every later use of the handle, or of a view of it, reads `value`.
/// The elements are copied there when everything else has run, or written there by the op that makes them where
/// nothing reads the old ones any more; a call that throws may leave some of each. An engine that writes an input
/// takes no other input that overlaps it (AliasingError), and calls that share a state must not run at once. Outside
/// of a trace the elements are copied at once.
///
/// @param state  an input of the traced callable, or a concrete row-major tensor.
/// @param value  the same dtype and sizes.
/// @throws TraceError when `state` is no input of the trace; DTypeError, ShapeError.
HEDDLE_API void assign(const Tensor& state, const Tensor& value, At where = At::current());

/// An attribute of apply().
using OpAttr =
    std::variant<bool, std::int64_t, double, std::string, DType, std::vector<std::int64_t>,
                 std::vector<double>, SymInt, std::vector<SymInt>, Tensor>;
using OpAttrs = std::map<std::string, OpAttr, std::less<>>;

/// Any op of the engine by its IR name, with operands in schema order (an undefined tensor is an absent
/// optional one) and attributes by name. Everything above is written with it.
/// @throws UnsupportedError for an unknown op; ShapeError, DTypeError, ArgumentError labelled by the op.
HEDDLE_API std::vector<Tensor> apply(std::string_view op, std::span<const Tensor> operands,
                                     OpAttrs attrs = {}, At where = At::current());

}  // namespace heddle
