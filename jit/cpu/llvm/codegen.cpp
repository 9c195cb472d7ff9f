#include "jit/cpu/llvm/codegen.h"

#include <algorithm>
#include <llvm/Analysis/AssumptionCache.h>
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/Analysis/TargetTransformInfo.h>
#include <llvm/CodeGen/Passes.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/PassInstrumentation.h>
#include <llvm/IR/PassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/Transforms/Scalar/DCE.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>
#include <llvm/Transforms/Utils/Cloning.h>
#include <map>
#include <mutex>

#include "heddle/error.h"
#include "jit/cpu/llvm/math_library.h"
#include "jit/cpu/llvm/nest_emitter.h"

namespace heddle::jit::cpu {

/// A hash of this folder's sources, written when they are compiled (jit/CMakeLists.txt).
extern const char* const kEmitterSources;

namespace {

[[noreturn]] void fail(const std::string& name, const std::string& what) {
  throw CompileError({.what = "LLVM: " + what, .where = name, .expected = {}, .got = {}});
}

void initialize_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    // Passes whose time shows and whose effect on this code does not, or is harmful: addresses are
    // simple already, the order of instructions is left to the processor, and integer sums of several steps that are
    // added up first for a shorter chain have no registers. LLVM is our own copy, so its options are nobody else's.
    constexpr const char* kOptions[] = {"heddle", "-disable-lsr", "-enable-misched=false",
                                        "-post-RA-scheduler=false", "-x86-machine-combiner=false"};
    llvm::cl::ParseCommandLineOptions(std::size(kOptions), kOptions, {}, &llvm::nulls());
  });
}

std::unique_ptr<llvm::TargetMachine> make_machine(const CodegenTarget& target) {
  const std::string triple = llvm::sys::getProcessTriple();
  std::string error;
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget(triple, error);
  if (found == nullptr) fail(triple, error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard;
  return std::unique_ptr<llvm::TargetMachine>(
      found->createTargetMachine(triple, target.cpu, target.features, options, llvm::Reloc::PIC_,
                                 llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default));
}

/// Target machines that nobody uses now. One takes the best part of a millisecond to make, as it parses
/// the features, and again for the first function; it serves one compile at a time.
class MachinePool {
 public:
  using Machine = std::unique_ptr<llvm::TargetMachine>;

  /// Never destroyed: kernels may be compiled until the process ends.
  static MachinePool& shared() {
    static MachinePool* const pool = new MachinePool;
    return *pool;
  }
  Machine take(const CodegenTarget& target) {
    {
      const std::lock_guard lock(mutex_);
      auto& idle = idle_[target.key()];
      if (!idle.empty()) {
        Machine machine = std::move(idle.back());
        idle.pop_back();
        return machine;
      }
    }
    return make_machine(target);
  }
  void give_back(const CodegenTarget& target, Machine machine) {
    const std::lock_guard lock(mutex_);
    idle_[target.key()].push_back(std::move(machine));
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<Machine>> idle_;
};

/// A gather's address and the extension of its index, in the block of the gather: LLVM selects instructions block by block, and
/// has some with indices of 32 bits, of which there are twice as many in a vector.
void bring_beside(llvm::CallBase& gather) {
  auto* address = llvm::dyn_cast<llvm::GetElementPtrInst>(gather.getArgOperand(0));
  if (address == nullptr || address->getNumIndices() != 1) return;
  auto* index = llvm::dyn_cast<llvm::SExtInst>(address->getOperand(1));
  if (index == nullptr) return;
  if (address->getParent() == gather.getParent() && index->getParent() == gather.getParent())
    return;
  llvm::Instruction* own_index = index->clone();
  own_index->insertBefore(&gather);
  llvm::Instruction* own_address = address->clone();
  own_address->setOperand(1, own_index);
  own_address->insertBefore(&gather);
  gather.setArgOperand(0, own_address);
}

void bring_indices_beside_gathers(llvm::Function& function) {
  for (llvm::Instruction& instruction : llvm::instructions(function))
    if (auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction);
        call != nullptr && call->getIntrinsicID() == llvm::Intrinsic::masked_gather)
      bring_beside(*call);
}

/// What the emitter leaves to clean up; the rest of an O2 pipeline costs several times as long and
/// finds nothing. Loops are vectorised already, and values are not hoisted: splats held across a loop
/// would occupy registers.
void optimize(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::FunctionAnalysisManager analyses;
  analyses.registerPass([] { return llvm::PassInstrumentationAnalysis(); });
  analyses.registerPass([] { return llvm::TargetLibraryAnalysis(); });
  analyses.registerPass([&] { return machine.getTargetIRAnalysis(); });
  analyses.registerPass([] { return llvm::AssumptionAnalysis(); });
  analyses.registerPass([] { return llvm::DominatorTreeAnalysis(); });
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::EarlyCSEPass());
  passes.addPass(llvm::DCEPass());
  passes.addPass(llvm::SimplifyCFGPass());
  for (llvm::Function& function : module) {
    if (function.isDeclaration()) continue;
    passes.run(function, analyses);
    bring_indices_beside_gathers(function);
  }
}

std::string text_of(const llvm::Module& module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream, nullptr);
  return text;
}

std::string emit_file(llvm::Module& module, llvm::TargetMachine& machine,
                      llvm::CodeGenFileType type) {
  llvm::SmallString<0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, type))
    fail(module.getName().str(), "this target emits no such file");
  passes.run(module);
  return std::string(bytes.str());
}

}  // namespace

std::string codegen_version() {
  return std::string("llvm ") + LLVM_VERSION_STRING + " emitter " + kEmitterSources;
}

namespace {

/// A module for one object, filled by the caller, and what it takes to compile it.
class ModuleCompile {
 public:
  ModuleCompile(const std::string& name, const CodegenTarget& target, CodegenTexts* texts)
      : target_(target),
        texts_(texts),
        machine_(MachinePool::shared().take(target)),
        module_(name, context_),
        builder_(context_) {
    context_.setDiscardValueNames(texts == nullptr);
    module_.setTargetTriple(machine_->getTargetTriple().str());
    module_.setDataLayout(machine_->createDataLayout());
    llvm::FastMathFlags flags;
    flags.setAllowContract();
    builder_.setFastMathFlags(flags);
  }

  llvm::Module& module() { return module_; }
  llvm::IRBuilderBase& builder() { return builder_; }

  /// Verifies, optimises and compiles what was emitted.
  std::string object() {
    if (texts_ != nullptr) texts_->ir = text_of(module_);
    std::string problem;
    llvm::raw_string_ostream stream(problem);
    if (llvm::verifyModule(module_, &stream))
      fail(module_.getName().str(), problem + "\n" + text_of(module_));
    optimize(module_, *machine_);
    if (texts_ != nullptr) {
      texts_->optimized = text_of(module_);
      if (texts_->want_assembly) {
        const auto copy = llvm::CloneModule(module_);
        texts_->assembly = emit(*copy, llvm::CodeGenFileType::AssemblyFile);
      }
    }
    std::string object = emit(module_, llvm::CodeGenFileType::ObjectFile);
    MachinePool::shared().give_back(target_, std::move(machine_));
    return object;
  }

 private:
  std::string emit(llvm::Module& module, llvm::CodeGenFileType type) {
    return emit_file(module, *machine_, type);
  }

  const CodegenTarget& target_;
  CodegenTexts* texts_;
  MachinePool::Machine machine_;
  llvm::LLVMContext context_;
  llvm::Module module_;
  llvm::IRBuilder<> builder_;
};

}  // namespace

std::string compile_object(const Nest& nest, const CodegenTarget& target, CodegenTexts* texts) {
  initialize_once();
  ModuleCompile compile(nest.name, target, texts);
  NestEmitter(nest, target, compile.builder(), compile.module()).emit();
  return compile.object();
}

std::string compile_math_object(const std::string& symbol, const CodegenTarget& target) {
  initialize_once();
  const auto function = MathFunction::of_symbol(symbol);
  if (!function) fail(symbol, "there is no such function of vector math");
  ModuleCompile compile(symbol, target, nullptr);
  define_math(compile.module(), compile.builder(), target, *function);
  return compile.object();
}

}  // namespace heddle::jit::cpu
