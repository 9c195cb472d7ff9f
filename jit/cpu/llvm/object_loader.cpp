// Links objects into the process with ORC and JITLink.
#include <atomic>
#include <llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h>
#include <llvm/ExecutionEngine/Orc/Core.h>
#include <llvm/ExecutionEngine/Orc/ExecutorProcessControl.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/ExecutionEngine/Orc/TaskDispatch.h>
#include <llvm/Object/ObjectFile.h>
#include <llvm/Support/MemoryBuffer.h>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "heddle/error.h"
#include "jit/cpu/llvm/codegen.h"
#include "jit/cpu/llvm/math_library.h"
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

/// The functions of the math library that an object calls.
std::vector<std::string> math_symbols(const std::string& object) {
  const auto file =
      value_of(llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(object, "kernel")));
  std::vector<std::string> symbols;
  for (const llvm::object::SymbolRef& symbol : file->symbols()) {
    const llvm::StringRef name = value_of(symbol.getName());
    const bool undefined =
        (value_of(symbol.getFlags()) & llvm::object::SymbolRef::SF_Undefined) != 0;
    if (undefined && MathFunction::of_symbol(name)) symbols.push_back(name.str());
  }
  return symbols;
}

/// The process's one linking session. It is never destroyed: kernels may outlive any static.
class Linker {
 public:
  static Linker& shared() {
    static Linker* const linker = new Linker;
    return *linker;
  }

  LoadedObject load(const std::string& object, const CodegenTarget& target, ObjectStore* store) {
    Math& math = math_for(target);
    for (const std::string& symbol : math_symbols(object))
      require_math(math, symbol, target, store);
    orc::JITDylib& library =
        session_.createBareJITDylib("kernel" + std::to_string(next_.fetch_add(1)));
    std::shared_ptr<const void> code(&library, [this](const void* p) {
      auto* dylib = static_cast<orc::JITDylib*>(const_cast<void*>(p));
      llvm::consumeError(session_.removeJITDylib(*dylib));
    });
    library.addToLinkOrder(*runtime_);
    library.addToLinkOrder(*math.library);
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

  /// A function of the math library that is there.
  struct MathCode {
    std::string object;
    std::set<std::string> places;  ///< stores that have it
    bool runs = false;             ///< it can be run already
  };
  /// The functions for one target: others of the same names may pass vectors in other registers.
  struct Math {
    orc::JITDylib* library;
    std::map<std::string, MathCode> functions;
  };

  Math& math_for(const CodegenTarget& target) {
    const std::lock_guard lock(math_mutex_);
    const auto [math, is_new] = math_.try_emplace(target.key());
    if (is_new) {
      math->second.library =
          &session_.createBareJITDylib("math" + std::to_string(next_.fetch_add(1)));
      math->second.library->addToLinkOrder(*runtime_);
    }
    return math->second;
  }

  /// Returns when a function of the math library can be run by all kernels. ORC alone does not wait for one that another thread is
  /// linking: it may call a kernel ready that knows the function's address, but whose code is not in place.
  void require_math(Math& math, const std::string& symbol, const CodegenTarget& target,
                    ObjectStore* store) {
    if (add_math(math, symbol, target, store)) return;
    value_of(
        session_.lookup(orc::makeJITDylibSearchOrder({math.library}), session_.intern(symbol)));
    const std::lock_guard lock(math_mutex_);
    math.functions.at(symbol).runs = true;
  }

  /// Others that need one meanwhile wait. @return whether it can be run already
  bool add_math(Math& math, const std::string& symbol, const CodegenTarget& target,
                ObjectStore* store) {
    const std::lock_guard lock(math_mutex_);
    const auto known = math.functions.find(symbol);
    const bool is_known = known != math.functions.end();
    if (is_known && (store == nullptr || known->second.places.contains(store->place())))
      return known->second.runs;
    const std::string key =
        "heddle math\n" + codegen_version() + "\n" + target.key() + "\n" + symbol + "\n";
    if (is_known) {
      // What engines with a folder of their own need is there for the processes that come after.
      if (!store->find(key)) store->store(key, known->second.object);
      known->second.places.insert(store->place());
      return known->second.runs;
    }
    MathCode code;
    std::optional<std::string> object;
    if (store != nullptr) object = store->find(key);
    code.object = object ? *object : compile_math_object(symbol, target);
    if (store != nullptr && !object) store->store(key, code.object);
    if (store != nullptr) code.places.insert(store->place());
    auto bytes = llvm::MemoryBuffer::getMemBufferCopy(code.object, symbol);
    if (auto error = layer_.add(*math.library, std::move(bytes))) fail(std::move(error));
    math.functions.emplace(symbol, std::move(code));
    return false;
  }

  orc::ExecutionSession session_;
  orc::ObjectLinkingLayer layer_;
  orc::JITDylib* runtime_;
  std::atomic<unsigned> next_{0};
  std::mutex math_mutex_;
  std::map<std::string, Math> math_;  ///< by the target's key
};

}  // namespace

LoadedObject load_object(const std::string& object, const CodegenTarget& target,
                         ObjectStore* store) {
  return Linker::shared().load(object, target, store);
}

}  // namespace heddle::jit::cpu
