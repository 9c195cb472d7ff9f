#include "jit/cpu/llvm/math_library.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "base/check.h"
#include "jit/cpu/llvm/codegen.h"
#include "jit/cpu/llvm/nest_emitter.h"
#include "jit/cpu/llvm/scalar_emitter.h"

namespace heddle::jit::cpu {
namespace {

using ir::ScalarOp;

constexpr std::string_view kPrefix = "heddle_math_";
constexpr ScalarOp kFunctions[] = {
    ScalarOp::Exp,   ScalarOp::Exp2, ScalarOp::Expm1, ScalarOp::Log,  ScalarOp::Log2,
    ScalarOp::Log1p, ScalarOp::Sin,  ScalarOp::Cos,   ScalarOp::Tanh, ScalarOp::Sigmoid,
    ScalarOp::Erf,   ScalarOp::Asin, ScalarOp::Acos,  ScalarOp::Atan, ScalarOp::Pow,
    ScalarOp::Atan2, ScalarOp::Tan,  ScalarOp::Sinh,  ScalarOp::Cosh, ScalarOp::Asinh,
    ScalarOp::Acosh, ScalarOp::Atanh};

bool takes_two(ScalarOp op) { return op == ScalarOp::Pow || op == ScalarOp::Atan2; }

}  // namespace

std::string MathFunction::symbol() const {
  return std::string(kPrefix) + std::string(name_of(dtype)) + "_" + std::string(ir::name_of(op)) +
         "_" + std::to_string(vectors) + "x" + std::to_string(vector_bytes);
}

std::optional<MathFunction> MathFunction::of_symbol(std::string_view symbol) {
  if (!symbol.starts_with(kPrefix)) return std::nullopt;
  for (ScalarOp op : kFunctions) {
    for (DType dtype : {DType::F32, DType::F64}) {
      for (unsigned vectors = 1; vectors <= kMostMathVectors; vectors *= 2) {
        for (unsigned bytes : {32u, 64u}) {
          const MathFunction function{op, dtype, vectors, bytes};
          if (function.symbol() == symbol) return function;
        }
      }
    }
  }
  return std::nullopt;
}

llvm::Function* declare_math(llvm::Module& module, const MathFunction& function) {
  const std::string name = function.symbol();
  if (llvm::Function* known = module.getFunction(name)) return known;
  llvm::LLVMContext& context = module.getContext();
  llvm::Type* element = function.dtype == DType::F64 ? llvm::Type::getDoubleTy(context)
                                                     : llvm::Type::getFloatTy(context);
  const auto size = static_cast<unsigned>(size_of(function.dtype));
  llvm::Type* vector =
      llvm::FixedVectorType::get(element, function.vectors * function.vector_bytes / size);
  const llvm::SmallVector<llvm::Type*, 2> operands(takes_two(function.op) ? 2 : 1, vector);
  auto* declared = llvm::Function::Create(llvm::FunctionType::get(vector, operands, false),
                                          llvm::GlobalValue::ExternalLinkage, name, module);
  declared->setCallingConv(llvm::CallingConv::X86_RegCall);
  // Called directly: calls through the global offset table, which this convention has otherwise, JITLink of LLVM 19 relaxes
  // wrongly where functions lie in the lowest 4 GiB (llvm/llvm-project#190968).
  declared->setDSOLocal(true);
  declared->setDoesNotThrow();
  declared->setDoesNotAccessMemory();
  declared->setWillReturn();
  return declared;
}

void define_math(llvm::Module& module, llvm::IRBuilderBase& builder, const CodegenTarget& target,
                 const MathFunction& function) {
  llvm::Function* code = declare_math(module, function);
  set_target_attributes(*code, target);
  builder.SetInsertPoint(llvm::BasicBlock::Create(module.getContext(), "entry", code));
  ScalarEmitter scalars(builder, module, target.vector_bytes, false, false);
  llvm::Value* result = takes_two(function.op)
                            ? scalars.inline_math(function.op, code->getArg(0), code->getArg(1))
                            : scalars.inline_math(function.op, code->getArg(0));
  HD_CHECK(result != nullptr, "no vector code for " + std::string(ir::name_of(function.op)));
  builder.CreateRet(result);
}

}  // namespace heddle::jit::cpu
