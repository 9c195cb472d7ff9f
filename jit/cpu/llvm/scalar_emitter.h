// Scalar instructions as LLVM IR, on single values and on vectors of any width alike.
//
// A value of dtype D is computed with as: f32, f16, bf16, 8-bit floats: float; f64: double; integers: their width;
// bool: i1. In memory a bool is an i8 of 0 or 1, f16 and bf16 are i16, 8-bit floats i8.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/scalar.h"

namespace llvm {
class Constant;
class Function;
class IRBuilderBase;
class Module;
class Type;
class Value;
}  // namespace llvm

namespace heddle::base {
struct Float8Format;
}

namespace heddle::jit::cpu {

/// Lanes of a type or value: 0 for a scalar.
unsigned lanes_of(llvm::Value* value);
/// `value` in each lane of what has the type of `like`.
llvm::Constant* integers_like(llvm::Value* like, std::int64_t value);
/// first, first + 1, …: a shuffle's mask.
std::vector<int> lane_range(unsigned first, unsigned count);
/// A vector of so many elements; 0: one element by itself.
llvm::Type* with_lanes(llvm::Type* element, unsigned lanes);

/// Bytes of the vectors of the least target with multiply-add units.
inline constexpr std::int64_t kBytesWithFma = 32;
/// Whether `op` on floats is vector math, not a call of the runtime table for each lane.
bool has_vector_math(ir::ScalarOp op, DType dtype, std::int64_t vector_bytes);

/// Whether x^exponent is a product, a root or a reciprocal of these.
bool is_simple_power(double exponent);

/// A scale and a zero point as reals become bytes by them: one number each.
struct ByteScale {
  llvm::Value* negative = nullptr;  ///< -scale
  llvm::Value* inverse = nullptr;
  llvm::Value* least = nullptr;  ///< of the least byte, and of the largest
  llvm::Value* most = nullptr;
  llvm::Value* zero = nullptr;    ///< an i32
  llvm::Value* origin = nullptr;  ///< what is taken from a rounded sum to have the byte's number
};

/// A byte, and the same number as f32: what goes on with numbers needs no bytes.
struct QuantisedByte {
  llvm::Value* byte = nullptr;
  llvm::Value* number = nullptr;
  /// What the number is the difference of, an integer and a uniform one; null: of none.
  llvm::Value *rounded = nullptr, *origin = nullptr;
};

/// Constants that a function has in registers, or whole in memory where there are too few of these, from its entry on. LLVM knows no
/// values of them: what it knows it reads and spreads among the lanes again wherever registers are short, which takes
/// as many instructions as the arithmetic.
using HeldConstants =
    std::map<std::pair<const llvm::Function*, const llvm::Constant*>, llvm::Value*>;

class ScalarEmitter {
 public:
  /// @param narrows_to_bf16  whether the target has VCVTNEPS2BF16 and VFPCLASSPS of whole vectors of 64 bytes
  /// @param permutes_bytes  whether it has VPERMI2B of such
  ScalarEmitter(llvm::IRBuilderBase& builder, llvm::Module& module, std::int64_t vector_bytes,
                bool narrows_to_bf16, bool permutes_bytes);

  llvm::Type* compute_type(DType dtype, unsigned lanes);
  llvm::Type* storage_type(DType dtype, unsigned lanes);
  /// What was read from memory as a value, and back: what it was read as, where the value is just that.
  llvm::Value* from_storage(DType dtype, llvm::Value* stored);
  llvm::Value* to_storage(DType dtype, llvm::Value* value);

  llvm::Constant* constant(DType dtype, double number, std::int64_t integer, unsigned lanes = 0);
  llvm::Value* splat(llvm::Value* value, unsigned lanes);
  llvm::Value* convert(llvm::Value* value, DType from, DType to);
  /// What quantise() takes, of
  /// @param scale  one f32, in [2^-60, 2^60]
  /// @param zero   one f32, an integer that `to` holds
  ByteScale byte_scale(llvm::Value* scale, llvm::Value* zero, DType to);
  /// The u8 or i8 that convert(clamp(round(value / scale) + zero, least, largest)) of f32 gives, bit for bit: bounded before
  /// it is divided, nothing needs to be told apart.
  QuantisedByte quantise(llvm::Value* value, const ByteScale& scale, DType to);
  /// `operand`: dtype of the operands (of the second one for Select).
  llvm::Value* apply(ir::ScalarOp op, DType operand, std::span<llvm::Value* const> operands);
  llvm::Value* maximum(DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* minimum(DType dtype, llvm::Value* a, llvm::Value* b);
  /// Of an f32 in [2^-60, 2^60] by which lanes are divided, what 1 / divisor is.
  void note_divisor(llvm::Value* divisor, llvm::Value* inverse) { inverses_[divisor] = inverse; }
  /// floor(a / b) on i64 indices; b = 0 gives an unspecified value. `simple`: a >= 0 and b > 0 are known.
  llvm::Value* index_floordiv(llvm::Value* a, llvm::Value* b, bool simple);
  /// The same of an a >= 0 below 2^51 and what index_inverse() made of b > 0.
  llvm::Value* index_times_inverse(llvm::Value* a, llvm::Value* inverse);
  llvm::Value* index_inverse(llvm::Value* divisor);
  /// Code of a VectorMath function on floats. Null when there is none.
  llvm::Value* inline_math(ir::ScalarOp op, llvm::Value* a);
  llvm::Value* inline_math(ir::ScalarOp op, llvm::Value* a, llvm::Value* b);
  /// Exp of an f32 of 0 or less, or NaN; a subnormal result may be 0 unless they are kept. Null where that saves nothing.
  llvm::Value* exp_up_to_zero(llvm::Value* a, bool keeps_subnormals);
  /// One of a and b that the other does not exceed; any if one is NaN.
  llvm::Value* any_larger(llvm::Value* a, llvm::Value* b);
  /// What one of two functions emits, whichever `condition` says: mostly the first.
  llvm::Value* either(llvm::Value* condition, const std::function<llvm::Value*()>& yes,
                      const std::function<llvm::Value*()>& no);
  /// Whether vector math is emitted in place from here on, not called.
  void inline_all_math(bool yes) { inline_all_math_ = yes; }
  /// Vectors of f32 as they are stored in bf16, where subnormal numbers may count as 0.
  llvm::Value* flushed_to_bf16(llvm::Value* value);

 private:
  /// The f32 that each code of an 8-bit float stands for, and the code next to an f32.
  llvm::Value* float8_value(DType dtype, llvm::Value* code);
  llvm::Value* float8_code(DType dtype, llvm::Value* value);
  llvm::Value* value_by_f16(llvm::Value* code, const base::Float8Format& format,
                            llvm::Type* single);
  /// The bf16 next to each f32, ties to even: by integers, and by an instruction that takes subnormal numbers for 0, of vectors without.
  llvm::Value* rounded_to_bf16(llvm::Value* value);
  llvm::Value* narrowed_to_bf16(llvm::Value* value);
  /// Reals as integers: cut off, saturated; 0 of NaN.
  llvm::Value* cut_off(llvm::Value* value, DType from, DType to);
  /// Reals below 2^63 in magnitude, cut off, where vectors have no instruction for that: halves of 32 bits, added to a number
  /// large enough to hold integers.
  llvm::Value* i64_of(llvm::Value* value);
  llvm::Value* unary(ir::ScalarOp op, DType dtype, llvm::Value* a);
  llvm::Value* unary_float(ir::ScalarOp op, DType dtype, llvm::Value* a);
  /// A call of the math library (math_library.h), or of several; null for ops and widths that are not in it.
  llvm::Value* call_math(ir::ScalarOp op, std::span<llvm::Value* const> operands);
  llvm::Value* binary_math(ir::ScalarOp op, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* unary_integer(ir::ScalarOp op, DType dtype, llvm::Value* a);
  llvm::Value* binary_float(ir::ScalarOp op, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* binary_integer(ir::ScalarOp op, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* binary_bool(ir::ScalarOp op, llvm::Value* a, llvm::Value* b);
  llvm::Value* compare(ir::ScalarOp op, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* divide_integer(ir::ScalarOp op, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* shift(ir::ScalarOp op, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* divide_float(llvm::Value* a, llvm::Value* b);
  llvm::Value* divide_by_uniform(llvm::Value* a, llvm::Value* b, llvm::Value* divisor);
  llvm::Value* in_parts(llvm::Value* a, unsigned machine_vectors,
                        const std::function<llvm::Value*(llvm::Value*)>& compute);
  llvm::Value* multiply_by_reciprocal(llvm::Value* a, llvm::Value* b, llvm::Value* inverse);
  llvm::Value* float_modulo(DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* simple_power(llvm::Value* a, double exponent);
  llvm::Value* float_power(DType dtype, llvm::Value* a, llvm::Value* b);
  /// Calls `name` of the runtime table for every lane, one after the other.
  llvm::Value* call_lanes(const std::string& name, std::span<llvm::Value* const> operands);

  llvm::IRBuilderBase& b_;
  llvm::Module& module_;
  std::int64_t vector_bytes_;
  bool narrows_to_bf16_;
  bool permutes_bytes_;
  bool inline_all_math_ = false;
  std::unordered_map<llvm::Value*, llvm::Value*> inverses_;  ///< see note_divisor()
  HeldConstants held_;
  /// Values that were rounded to bf16, with what they were before.
  std::map<const llvm::Value*, llvm::Value*> rounded_;
  /// Values that from_storage() widened, by dtype, with what they were made of: nothing rounds these again.
  std::map<std::pair<DType, const llvm::Value*>, llvm::Value*> widened_;
};

struct EvenTable;
struct PiecewiseTable;

/// Vectors of equal width side by side; their count is a power of two.
llvm::Value* concatenate(llvm::IRBuilderBase& builder, std::vector<llvm::Value*> parts);

/// Vector math: polynomials with stated error bounds, in units in the last place over all floats, of f32 and f64.
/// Null when `op` has none (the runtime table's function is called for each lane then).
class VectorMath {
 public:
  /// @param held  not null: constants are taken from there, and kept there
  VectorMath(llvm::IRBuilderBase& builder, std::int64_t vector_bytes, HeldConstants* held = nullptr)
      : b_(builder), avx512_(vector_bytes == 64), has_avx2_(vector_bytes >= 32), held_(held) {}

  /// `slow(x)` computes lanes outside the range of a fast path.
  llvm::Value* apply(ir::ScalarOp op, llvm::Value* x,
                     const std::function<llvm::Value*(llvm::Value*)>& slow);
  /// The same for functions of two numbers.
  llvm::Value* apply(ir::ScalarOp op, llvm::Value* x, llvm::Value* y);
  /// Exp of an x of 0 or less, or NaN, with AVX2 at least.
  llvm::Value* exp_up_to_zero(llvm::Value* x, bool keeps_subnormals);

 private:
  static bool is_wide(llvm::Value* x);  ///< whether it is f64
  llvm::Value* real(double value, llvm::Value* like);
  static llvm::Value* held(llvm::Function& function, llvm::Constant* constant);
  llvm::Value* integer(std::int64_t value, llvm::Value* like);
  llvm::Value* fma(llvm::Value* a, llvm::Value* b, llvm::Value* c);
  llvm::Value* polynomial_by_pairs(std::span<const double> coefficients, llvm::Value* x,
                                   llvm::Value* square);
  llvm::Value* polynomial(std::span<const double> coefficients, llvm::Value* x);
  llvm::Value* absolute(llvm::Value* x);
  llvm::Value* to_bits(llvm::Value* x);
  llvm::Value* from_bits(llvm::Value* x);
  llvm::Value* copy_sign(llvm::Value* magnitude, llvm::Value* sign);
  /// Whether x is some vectors of AVX-512: what has tables in registers and instructions that take floats apart.
  bool takes_avx512(llvm::Value* x) const;
  std::vector<llvm::Value*> machine_vectors(llvm::Value* x);
  /// For instructions that exist on machine vectors only.
  llvm::Value* each_machine_vector(llvm::Value* x,
                                   const std::function<llvm::Value*(llvm::Value*)>& compute);
  llvm::Value* each_machine_vector(
      llvm::Value* x, llvm::Value* y,
      const std::function<llvm::Value*(llvm::Value*, llvm::Value*)>& compute);
  llvm::Constant* table(std::span<const float> values);
  llvm::Value* look_up(std::span<const float> values, llvm::Value* index);
  llvm::Value* scale(llvm::Value* x, llvm::Value* exponent);
  llvm::Value* scale_kept(llvm::Value* kept, llvm::Value* x, llvm::Value* exponent);
  llvm::Value* reciprocal(llvm::Value* x);
  llvm::Value* clamp(llvm::Value* x, double low, double high);
  llvm::Value* at_least(llvm::Value* x, double low);
  llvm::Value* at_most(llvm::Value* x, double high);
  llvm::Value* look_up_of_eight(llvm::Constant* row, llvm::Value* index);
  struct TableLog;
  TableLog reduce_log_by_table(llvm::Value* x);
  llvm::Value* log_by_table(llvm::Value* x, llvm::Value* beside = nullptr);
  llvm::Value* log2_by_table(llvm::Value* x);
  struct Reduced;
  Reduced reduce_log(llvm::Value* x);
  llvm::Value* log_limits(llvm::Value* x, llvm::Value* finite);
  llvm::Value* log(llvm::Value* x);
  llvm::Value* log2(llvm::Value* x);
  llvm::Value* log1p(llvm::Value* x);
  // vector_exponentials.cpp
  struct Split {
    llvm::Value* n;
    llvm::Value* r;
    llvm::Value* index;
  };
  Split split_by_sixteenths(llvm::Value* x);
  llvm::Value* vanishing(llvm::Value* x, double low,
                         const std::function<llvm::Value*(llvm::Value*)>& compute);
  llvm::Value* power_of_sum(llvm::Value* sum);
  llvm::Value* scaled_root(const std::function<double(int)>& root, int shift, llvm::Value* sum);
  llvm::Value* exp_by_table(llvm::Value* x);
  llvm::Value* exp_of_bounded(llvm::Value* bounded, double low);
  llvm::Value* exp_between(llvm::Value* x);
  llvm::Value* sigmoid_by_table(llvm::Value* x);
  llvm::Value* piecewise(const PiecewiseTable& table, llvm::Value* x);
  llvm::Value* piecewise(const EvenTable& table, llvm::Value* x);
  llvm::Value* exp(llvm::Value* x);
  llvm::Value* exp2(llvm::Value* x);
  llvm::Value* quarter_expm1(llvm::Value* x);
  llvm::Value* expm1(llvm::Value* x);
  llvm::Value* tanh(llvm::Value* x);
  llvm::Value* sigmoid(llvm::Value* x);
  llvm::Value* erf(llvm::Value* x);
  // vector_doubles.cpp
  llvm::Value* power_of_two(llvm::Value* shifted);
  llvm::Value* scale_wide(llvm::Value* x, llvm::Value* exponent);
  llvm::Value* wide_exp_near_zero(llvm::Value* x, llvm::Value* n);
  llvm::Value* wide_exp(llvm::Value* x);
  llvm::Value* wide_exp2(llvm::Value* x);
  llvm::Value* wide_quarter_expm1(llvm::Value* x);
  struct WideParts;
  WideParts wide_parts(llvm::Value* x);
  struct WideReduced;
  WideReduced wide_reduce_log(llvm::Value* x);
  llvm::Value* wide_log(llvm::Value* x);
  llvm::Value* wide_log2(llvm::Value* x);
  llvm::Value* wide_log1p(llvm::Value* x);
  llvm::Value* wide_erf(llvm::Value* x);
  /// Two numbers, of which the second is as small as what is left of the first by rounding.
  struct WideSum {
    llvm::Value* high;
    llvm::Value* low;
  };
  WideSum wide_sum(llvm::Value* large, llvm::Value* small);
  WideSum wide_product(llvm::Value* a, llvm::Value* b);
  WideSum wide_log2_in_two(llvm::Value* x);
  llvm::Value* wide_power(llvm::Value* x, llvm::Value* y);
  // vector_hyperbolics.cpp
  llvm::Value* sinh(llvm::Value* x);
  llvm::Value* cosh(llvm::Value* x);
  llvm::Value* asinh(llvm::Value* x);
  llvm::Value* acosh(llvm::Value* x);
  llvm::Value* atanh(llvm::Value* x);
  llvm::Value* log1p_of_far(llvm::Value* near, llvm::Value* far);
  // vector_angles.cpp
  struct Turned;
  Turned turned(llvm::Value* x);
  llvm::Value* sine(llvm::Value* x, bool cosine,
                    const std::function<llvm::Value*(llvm::Value*)>& slow);
  llvm::Value* tangent(llvm::Value* x, const std::function<llvm::Value*(llvm::Value*)>& slow);
  llvm::Value* sign_of(llvm::Value* x);
  llvm::Value* unless_far(llvm::Value* x, llvm::Value* magnitude, llvm::Value* fast,
                          const std::function<llvm::Value*(llvm::Value*)>& slow);
  llvm::Value* from_half_pi(double high, llvm::Value* x);
  llvm::Value* arc_of_ratio(llvm::Value* low, llvm::Value* high);
  llvm::Value* atan(llvm::Value* x);
  llvm::Value* atan2(llvm::Value* y, llvm::Value* x);
  struct HalfArc {
    llvm::Value* large;  ///< whether |x| is more than 1/2
    llvm::Value* arc;
  };
  HalfArc half_arc(llvm::Value* x);
  llvm::Value* asin(llvm::Value* x);
  llvm::Value* acos(llvm::Value* x);
  // vector_power.cpp
  llvm::Value* rough_log2(llvm::Value* x);
  llvm::Value* narrow_exp2(llvm::Value* x);
  llvm::Value* power_limits(llvm::Value* x, llvm::Value* y, llvm::Value* result);
  llvm::Value* power(llvm::Value* x, llvm::Value* y);

  llvm::IRBuilderBase& b_;
  bool avx512_;
  bool has_avx2_;  ///< and fused multiply-add
  HeldConstants* held_;
};

}  // namespace heddle::jit::cpu
