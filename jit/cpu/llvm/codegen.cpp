#include "jit/cpu/llvm/codegen.h"

#include <algorithm>
#include <llvm/Analysis/AssumptionCache.h>
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/Analysis/TargetTransformInfo.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/IRBuilder.h>
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
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>
#include <llvm/Transforms/Utils/Cloning.h>
#include <map>
#include <mutex>

#include "heddle/error.h"
#include "jit/cpu/llvm/nest_emitter.h"

namespace heddle::jit::cpu {
namespace {

/// Raised whenever the code generated for a nest changes.
constexpr int kEmitterVersion = 6;

[[noreturn]] void fail(const std::string& name, const std::string& what) {
  throw CompileError({.what = "LLVM: " + what, .where = name, .expected = {}, .got = {}});
}

void initialize_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    // Passes whose time shows and whose effect on this code does not, or is harmful: addresses are
    // simple already, and the order of instructions is left to the processor. LLVM is our own copy, so
    // its options are nobody else's.
    constexpr const char* kOptions[] = {"heddle", "-disable-lsr", "-enable-misched=false",
                                        "-post-RA-scheduler=false", "-regalloc=basic"};
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
  passes.addPass(llvm::SimplifyCFGPass());
  for (llvm::Function& function : module)
    if (!function.isDeclaration()) passes.run(function, analyses);
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

std::string CodegenTarget::key() const {
  return cpu + " " + features + " " + std::to_string(vector_bytes);
}

CodegenTarget host_target(std::int64_t vector_bytes) {
  CodegenTarget target;
  target.cpu = llvm::sys::getHostCPUName().str();
  std::vector<std::string> features;
  const auto host = llvm::sys::getHostCPUFeatures();
  for (const auto& feature : host)
    features.push_back((feature.second ? "+" : "-") + feature.first().str());
  std::sort(features.begin(), features.end());
  for (const std::string& feature : features)
    target.features += (target.features.empty() ? "" : ",") + feature;
  const auto has = [&](const char* name) { return host.lookup(name); };
  std::int64_t widest = 16;
  if (has("avx2") && has("fma")) widest = 32;
  if (has("avx512f") && has("avx512vl") && has("avx512bw") && has("avx512dq")) widest = 64;
  target.vector_bytes = vector_bytes == 0 ? widest : std::min(widest, vector_bytes);
  return target;
}

std::string codegen_version() {
  return std::string("llvm ") + LLVM_VERSION_STRING + " emitter " + std::to_string(kEmitterVersion);
}

std::string compile_object(const Nest& nest, const CodegenTarget& target, CodegenTexts* texts) {
  initialize_once();
  auto machine = MachinePool::shared().take(target);
  llvm::LLVMContext context;
  context.setDiscardValueNames(texts == nullptr);
  llvm::Module module(nest.name, context);
  module.setTargetTriple(machine->getTargetTriple().str());
  module.setDataLayout(machine->createDataLayout());
  llvm::IRBuilder<> builder(context);
  llvm::FastMathFlags flags;
  flags.setAllowContract();
  builder.setFastMathFlags(flags);
  NestEmitter(nest, target, builder, module).emit();
  if (texts != nullptr) texts->ir = text_of(module);
  std::string problem;
  llvm::raw_string_ostream stream(problem);
  if (llvm::verifyModule(module, &stream)) fail(nest.name, problem + "\n" + text_of(module));
  optimize(module, *machine);
  if (texts != nullptr) {
    texts->optimized = text_of(module);
    if (texts->want_assembly) {
      const auto copy = llvm::CloneModule(module);
      texts->assembly = emit_file(*copy, *machine, llvm::CodeGenFileType::AssemblyFile);
    }
  }
  std::string object = emit_file(module, *machine, llvm::CodeGenFileType::ObjectFile);
  MachinePool::shared().give_back(target, std::move(machine));
  return object;
}

}  // namespace heddle::jit::cpu
