// Nests to machine code of the host, through LLVM. No LLVM header is needed to call this.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "jit/nest.h"

namespace heddle::jit::cpu {

/// What code is generated for. `key` goes into the kernel cache's keys.
struct CodegenTarget {
  std::string cpu;
  std::string features;
  std::int64_t vector_bytes = 16;

  std::string key() const;
};

/// The host, with vectors of at most `vector_bytes` (16, 32, 64; 0: its widest).
CodegenTarget host_target(std::int64_t vector_bytes = 0);

/// Version of the compiler and of this emitter; part of every cache key.
std::string codegen_version();

/// Texts made on the way, each only when its flag is set.
struct CodegenTexts {
  bool want_assembly = false;
  std::string ir;         ///< as emitted
  std::string optimized;  ///< after the passes
  std::string assembly;
};

/// A relocatable object that defines the nest's entry point.
/// @throws CompileError when LLVM rejects what was emitted (its text is in the message).
/// Threads: any number at a time.
std::string compile_object(const Nest& nest, const CodegenTarget& target,
                           CodegenTexts* texts = nullptr);

/// Loaded machine code: valid while `code` lives.
struct LoadedObject {
  CpuEntry entry = nullptr;
  std::shared_ptr<const void> code;
};

/// Links an object from compile_object() into the process.
/// @throws CompileError when it does not link.
LoadedObject load_object(const std::string& object);

}  // namespace heddle::jit::cpu
