// Links objects into the process with ORC and JITLink.
#include <atomic>
#include <llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h>
#include <llvm/ExecutionEngine/Orc/Core.h>
#include <llvm/ExecutionEngine/Orc/ExecutorProcessControl.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/ExecutionEngine/Orc/TaskDispatch.h>
#include <llvm/Support/MemoryBuffer.h>

#include "heddle/error.h"
#include "jit/cpu/llvm/codegen.h"
#include "jit/cpu/llvm/nest_emitter.h"
#include "jit/cpu/llvm/runtime_symbols.h"

namespace heddle::jit::cpu {
namespace {

namespace orc = llvm::orc;

[[noreturn]] void fail(llvm::Error error) {
  throw CompileError({.what = "LLVM cannot link a kernel: " + llvm::toString(std::move(error)),
                      .where = {},
                      .expected = {},
                      .got = {}});
}

template <typename T>
T value_of(llvm::Expected<T> expected) {
  if (!expected) fail(expected.takeError());
  return std::move(*expected);
}

/// The process's one linking session. It is never destroyed: kernels may outlive any static.
class Linker {
 public:
  static Linker& shared() {
    static Linker* const linker = new Linker;
    return *linker;
  }

  LoadedObject load(const std::string& object) {
    orc::JITDylib& library =
        session_.createBareJITDylib("kernel" + std::to_string(next_.fetch_add(1)));
    std::shared_ptr<const void> code(&library, [this](const void* p) {
      auto* dylib = static_cast<orc::JITDylib*>(const_cast<void*>(p));
      llvm::consumeError(session_.removeJITDylib(*dylib));
    });
    library.addToLinkOrder(*runtime_);
    auto bytes = llvm::MemoryBuffer::getMemBufferCopy(object, library.getName());
    if (auto error = layer_.add(library, std::move(bytes))) fail(std::move(error));
    const auto symbol = value_of(
        session_.lookup(orc::makeJITDylibSearchOrder({&library}), session_.intern(kEntryName)));
    return {symbol.getAddress().toPtr<CpuEntry>(), std::move(code)};
  }

 private:
  Linker()
      : session_(value_of(orc::SelfExecutorProcessControl::Create(
            nullptr, std::make_unique<orc::InPlaceTaskDispatcher>()))),
        layer_(session_),
        runtime_(&session_.createBareJITDylib("runtime")) {
    orc::SymbolMap symbols;
    for (const RuntimeSymbol& symbol : runtime_symbols())
      symbols[session_.intern(symbol.name)] = {orc::ExecutorAddr::fromPtr(symbol.address),
                                               llvm::JITSymbolFlags::Exported};
    llvm::cantFail(runtime_->define(orc::absoluteSymbols(std::move(symbols))));
  }

  orc::ExecutionSession session_;
  orc::ObjectLinkingLayer layer_;
  orc::JITDylib* runtime_;
  std::atomic<unsigned> next_{0};
};

}  // namespace

LoadedObject load_object(const std::string& object) { return Linker::shared().load(object); }

}  // namespace heddle::jit::cpu
