// Tests of one op: a graph of one node, its evaluation, its decomposition, and tensors to feed it.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/literal.h"

namespace heddle::testing {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// A call of one op. An operand that is a default Literal is left out.
struct OneOp {
  std::string_view op;
  std::vector<ir::Literal> operands;
  ir::Attrs attrs = {};
};

/// Operands as inputs of their own sizes and strides, the node, all its outputs.
ir::Graph graph_of(const OneOp& call);
/// What the op's definition gives. The metadata that was inferred must fit: dtypes and sizes are
/// checked.
std::vector<ir::Literal> evaluate(const OneOp& call);
/// The first output.
ir::Literal value_of(const OneOp& call);
/// The op of each node, in order.
std::vector<std::string> ops_of(const ir::Graph& graph);
/// The inferred sizes and dtype of the first output of a call on operands of these types, as text.
std::string type_of(std::string_view op, const std::vector<ir::TensorMeta>& operands,
                    ir::Attrs attrs = {});
/// what() of the heddle::Error that inference throws for operands of these types.
std::string error_of(std::string_view op, const std::vector<ir::TensorMeta>& operands,
                     ir::Attrs attrs = {});
/// what() of the heddle::Error that `f` throws.
std::string error_of(const std::function<void()>& f);

/// The graph with its node decomposed, and what that gave decomposed in turn where decomposing
/// comes first. Fails the test if nothing changed.
ir::Graph decomposed(const OneOp& call);
ir::Graph decomposed(const ir::Graph& graph);
/// Whether its decompose function has anything to do for this call.
bool can_decompose(const OneOp& call);
/// Evaluates the op and its decomposition and expects the same numbers within `tolerance`.
void expect_decomposition_agrees(const OneOp& call, double tolerance);

/// |got - want| <= r * |want| + r * max|want|, element by element; NaN equals NaN and infinities
/// themselves. Sizes and dtypes must be equal.
void expect_close(const ir::Literal& got, const ir::Literal& want, double r);
/// Every element equal; NaN equals NaN.
inline void expect_same(const ir::Literal& got, const ir::Literal& want) {
  expect_close(got, want, 0.0);
}
/// A tolerance that fits a short computation in `dtype`: 0 for integers.
double tolerance_of(DType dtype);

/// Numbers that look random, the same in every run: floats within (-2, 2), integers from -3 to 3 (0
/// to 6 unsigned), bools.
ir::Literal noise(DType dtype, const ir::Sizes& sizes, std::uint32_t seed = 1);
/// The same of u8 or i8 over their whole range.
ir::Literal any_bytes(DType dtype, const ir::Sizes& sizes, std::uint32_t seed = 1);
/// The same sizes and values, elements spread out in memory: dimensions in opposite order, every
/// second element used.
ir::Literal spread_out(const ir::Literal& tensor);
/// `tensor` with one element put to NaN.
ir::Literal with_nan(const ir::Literal& tensor, std::int64_t position);
ir::Literal doubles(DType dtype, ir::Sizes sizes, const std::vector<double>& values);
ir::Literal ints(DType dtype, ir::Sizes sizes, const std::vector<std::int64_t>& values);
ir::TensorMeta meta(DType dtype, ir::Dims sizes);

inline constexpr DType kFloats[] = {f32, f64, f16, bf16};
inline constexpr DType kNumbers[] = {f32, f64, f16, bf16, i8, u8, i16, u16, i32, u32, i64, u64};

}  // namespace heddle::testing
