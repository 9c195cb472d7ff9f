// Hyperbolic functions of f32 and f64 and their inverses, by expm1 and log1p, which lose nothing near 0. Bounds are
// in units in the last place over all floats; a test measures them.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>
#include <numbers>

#include "jit/cpu/llvm/scalar_emitter.h"

namespace heddle::jit::cpu {
namespace {

using llvm::Value;

/// Beyond it, 1 added to x makes no difference to the logarithm of x; its square is finite.
constexpr double kFar = 0x1p60;

}  // namespace

/// 2.3 ulp. With h = (e^|x| - 1) / 2, (e^|x| - e^-|x|) / 2 = h + h / (2 h + 1), which overflows nowhere too early.
Value* VectorMath::sinh(Value* x) {
  Value* h = b_.CreateFMul(quarter_expm1(absolute(x)), real(2, x));
  Value* sum = b_.CreateFAdd(h, b_.CreateFDiv(h, fma(h, real(2, x), real(1, x))));
  // An infinite h leaves no number of the quotient.
  sum = b_.CreateSelect(b_.CreateFCmpOEQ(h, llvm::ConstantFP::getInfinity(x->getType())), h, sum);
  Value* tiny = b_.CreateFCmpOLT(absolute(x), real(0x1p-60, x));
  return b_.CreateSelect(tiny, x, copy_sign(sum, x));
}

/// 1.6 ulp.
Value* VectorMath::cosh(Value* x) {
  Value* h = b_.CreateFMul(quarter_expm1(absolute(x)), real(2, x));
  Value* inverse = b_.CreateFDiv(real(0.5, x), fma(h, real(2, x), real(1, x)));
  return b_.CreateFAdd(b_.CreateFAdd(h, real(0.5, x)), inverse);
}

/// log1p(near) where far is at most kFar, elsewhere log(2 far), whose argument may overflow.
Value* VectorMath::log1p_of_far(Value* near, Value* far) {
  Value* beyond = b_.CreateFCmpOGT(far, real(kFar, far));
  Value* logarithm = log1p(b_.CreateSelect(beyond, far, near));
  Value* more = b_.CreateFAdd(logarithm, real(std::numbers::ln2, far));
  return b_.CreateSelect(beyond, more, logarithm);
}

/// 2.4 ulp. log(a + sqrt(a^2 + 1)) = log1p(a + a^2 / (1 + sqrt(a^2 + 1))) for a = |x|.
Value* VectorMath::asinh(Value* x) {
  Value* magnitude = absolute(x);
  Value* a = at_most(magnitude, kFar);
  Value* square = b_.CreateFMul(a, a);
  Value* root = b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, b_.CreateFAdd(square, real(1, x)));
  Value* near = b_.CreateFAdd(a, b_.CreateFDiv(square, b_.CreateFAdd(root, real(1, x))));
  return copy_sign(log1p_of_far(near, magnitude), x);
}

/// 2.7 ulp. log(x + sqrt(x^2 - 1)) = log1p(t + sqrt(t (t + 2))) for t = x - 1.
Value* VectorMath::acosh(Value* x) {
  Value* t = b_.CreateFSub(at_most(x, kFar), real(1, x));
  Value* product = b_.CreateFMul(t, b_.CreateFAdd(t, real(2, x)));
  Value* root = b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, product);
  Value* result = log1p_of_far(b_.CreateFAdd(t, root), x);
  Value* undefined = b_.CreateFCmpULT(x, real(1, x));
  return b_.CreateSelect(undefined, llvm::ConstantFP::getNaN(x->getType()), result);
}

/// 2.4 ulp. log((1 + a) / (1 - a)) / 2 = log1p(2 a / (1 - a)) / 2 for a = |x|; below 1/2, where 1 - a is rounded, by 2 a + 2 a^2 / (1 - a).
Value* VectorMath::atanh(Value* x) {
  Value* a = absolute(x);
  Value* twice = b_.CreateFAdd(a, a);
  Value* ratio = b_.CreateFDiv(twice, b_.CreateFSub(real(1, x), a));
  Value* below = b_.CreateFCmpOLT(a, real(0.5, x));
  Value* logarithm = log1p(b_.CreateSelect(below, fma(ratio, a, twice), ratio));
  return copy_sign(b_.CreateFMul(logarithm, real(0.5, x)), x);
}

}  // namespace heddle::jit::cpu
