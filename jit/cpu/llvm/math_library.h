// Vector math as functions of their own, shared by all kernels: compiled when the first kernel that calls one is
// loaded, instead of into every kernel several times over.
//
// A function takes and returns one vector of f32 or f64, a power of two of machine vectors, in registers
// (LLVM's x86_regcallcc).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ir/scalar.h"

namespace llvm {
class Function;
class IRBuilderBase;
class Module;
class Value;
}  // namespace llvm

namespace heddle::jit::cpu {

struct CodegenTarget;

/// Most machine vectors that one call takes: as many as keep both multiply-add units busy.
inline constexpr unsigned kMostMathVectors = 8;

/// What a symbol of the library computes.
struct MathFunction {
  ir::ScalarOp op;
  DType dtype;  ///< f32 or f64
  unsigned vectors;
  unsigned vector_bytes;

  std::string symbol() const;
  /// Nothing for names of other things.
  static std::optional<MathFunction> of_symbol(std::string_view symbol);
};

/// The function as an external symbol of `module`.
llvm::Function* declare_math(llvm::Module& module, const MathFunction& function);
/// Its code into `module`.
void define_math(llvm::Module& module, llvm::IRBuilderBase& builder, const CodegenTarget& target,
                 const MathFunction& function);

}  // namespace heddle::jit::cpu
