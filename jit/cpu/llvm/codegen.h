// Nests to machine code of the host, through LLVM. No LLVM header is needed to call this.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

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
/// @param amx  whether to take its matrix registers, which the process asks the system for, at the first such call, and then has until it
///             ends
CodegenTarget host_target(std::int64_t vector_bytes = 0, bool amx = true);

/// A processor that LLVM calls `name` (x86-64-v3, znver4, …), whose instructions the host has: the same code on all hosts that have them. What
/// virtual machines hide and code for tensors never has is left out.
/// @throws OptionError: LLVM knows none of that name, or the host lacks an instruction set of it
CodegenTarget named_target(const std::string& name, std::int64_t vector_bytes = 0, bool amx = true);

/// Whether the target has an instruction set of LLVM's name `feature`.
bool has_feature(const CodegenTarget& target, std::string_view feature);
/// Whether one instruction of the target's vectors multiplies pairs of bf16.
bool has_bf16_dot(const CodegenTarget& target);
/// Whether it does so as often as another multiplies and adds f32: AMD's processors. Intel's do half as often.
bool has_fast_bf16_dot(const CodegenTarget& target);
/// Whether one multiplies groups of four bytes.
bool has_byte_dot(const CodegenTarget& target);

/// Whether it has registers that hold matrices of bytes and of bf16 (AMX), and the process may use them.
bool has_amx(const CodegenTarget& target);

/// Whether its registers hold tables of 256 bytes that one vector looks up in.
bool has_byte_tables(const CodegenTarget& target);

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

/// An object that defines the function `symbol` of the vector math library (math_library.h).
std::string compile_math_object(const std::string& symbol, const CodegenTarget& target);

/// Loaded machine code: valid while `code` lives.
struct LoadedObject {
  CpuEntry entry = nullptr;
  std::shared_ptr<const void> code;
};

/// Where the objects of math functions are kept between processes.
class ObjectStore {
 public:
  virtual ~ObjectStore() = default;
  virtual std::optional<std::string> find(const std::string& key) = 0;
  virtual void store(const std::string& key, const std::string& object) = 0;
  /// Tells its objects' place from that of other stores.
  virtual std::string place() const = 0;
};

/// Links an object from compile_object() for `target` into the process, and before it those functions of the vector
/// math library that it is the first to call of those for that target: found in `store` if there is one, else compiled. All that it calls are
/// in `store` then.
/// @throws CompileError when it does not link.
LoadedObject load_object(const std::string& object, const CodegenTarget& target,
                         ObjectStore* store = nullptr);

}  // namespace heddle::jit::cpu
