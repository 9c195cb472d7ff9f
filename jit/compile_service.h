// Compiles nests for the CPU: each structure once, in this process and, through the disk cache, on this
// machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>

#include "jit/nest.h"

namespace heddle::jit {

/// Machine code of one nest. The code lives as long as this does.
struct CpuKernel {
  /// Where end < begin, it runs iterations [end, begin), the last of them first if that is possible.
  CpuEntry entry = nullptr;
  /// Bytes of scratch that one thread needs, in the nest's size parameters.
  SymExpr scratch_bytes;
  std::shared_ptr<const void> code;
};
using CpuKernelPtr = std::shared_ptr<const CpuKernel>;

struct CompileCounters {
  std::uint64_t compiled = 0;  ///< nests that went through the compiler
  std::uint64_t memory_hits =
      0;  ///< answered by this process, waiting for a running compile included
  std::uint64_t disk_hits = 0;             ///< loaded from the disk cache
  std::uint64_t compile_microseconds = 0;  ///< summed over `compiled`
};

struct CompileOptions {
  /// Folder of the disk cache; empty: $HEDDLE_CACHE_DIR, $XDG_CACHE_HOME/heddle or ~/.cache/heddle.
  std::string cache_folder;
  bool disk_cache = true;
  /// The disk cache drops its oldest files beyond this.
  std::uint64_t max_cache_bytes = std::uint64_t{1} << 30;
  /// Kernels in memory that no engine uses any more: those used longest ago are dropped beyond this.
  std::size_t max_idle_kernels = 2048;
  /// Whether constants are kept there too, and how many bytes of them.
  bool keep_constants = true;
  std::uint64_t max_constant_bytes = std::uint64_t{4} << 30;
  /// Threads that execute submit(); 0: one for each processor, four at most.
  unsigned threads = 0;
  /// The processor that code is made for, by LLVM's name; empty: $HEDDLE_CPU, or the host.
  std::string cpu;
  /// Bytes of the vectors that code is made for; 0: that processor's.
  std::int64_t vector_bytes = 0;
  /// Whether code may take AMX's registers, where the processor has them and the system lets the process; $HEDDLE_AMX=0: it may not.
  bool amx = true;
  /// Folder for texts of every nest and its code; empty: $HEDDLE_DUMP_DIR, or none. Assembly is
  /// written too when $HEDDLE_DUMP_ASM is set.
  std::string dump_folder;
};

class ConstantCache;
class KernelCache;
class LibraryVerdicts;

class CompileService {
 public:
  explicit CompileService(CompileOptions options = {});
  ~CompileService();
  CompileService(const CompileService&) = delete;
  CompileService& operator=(const CompileService&) = delete;

  /// The process's own, with options from the environment.
  static CompileService& shared();

  /// The kernel of `nest`; compiles at most once for each structure. A second caller waits for the
  /// first one's compile.
  /// @throws CompileError when code generation fails, UnsupportedError when built without LLVM.
  /// Threads: any. Needs stack; callers on small stacks use submit().
  CpuKernelPtr compile(const Nest& nest);
  /// The same on a compile thread with a stack of its own.
  std::shared_future<CpuKernelPtr> submit(std::shared_ptr<const Nest> nest);

  /// Calls `work` with each number below `count`, here and on compile threads that have nothing else to do: what others
  /// have these compile is not waited for. The first of its exceptions, by number, is thrown when all calls have returned.
  ///
  /// @param may_be_short  other threads are asked for help only when calls have taken longer here than it takes to wake them
  void for_each(std::size_t count, const std::function<void(std::size_t)>& work,
                bool may_be_short = false);

  /// False in a build without LLVM, where compile() always throws.
  bool can_compile() const;

  CompileCounters counters() const;
  /// The disk cache; null: it is off. Other compilers keep their code there too.
  KernelCache* disk_cache();
  /// Prepared constants, in a folder in that of the disk cache; null: they are not kept.
  ConstantCache* constants();
  /// What the code of a nest depends on besides the nest: how it is made, and for which processor.
  const std::string& code_key() const;
  /// What was measured of library calls, kept in the disk cache.
  LibraryVerdicts& library_verdicts();
  /// Bytes of the vectors that this service makes code for: 64 with AVX-512, else 32 or 16.
  std::int64_t vector_bytes() const;
  /// Whether that code multiplies pairs of bf16 by one instruction (AVX512_BF16).
  bool has_bf16_dot() const;
  /// Whether it does so as often as it multiplies and adds f32.
  bool has_fast_bf16_dot() const;
  /// Whether that code multiplies groups of four bytes by one instruction (AVX512_VNNI, AVX_VNNI).
  bool has_byte_dot() const;
  /// Whether that code multiplies matrices of bytes and of bf16 (AMX).
  bool has_amx() const;
  /// Whether its vectors look bytes up in tables that registers hold.
  bool has_byte_tables() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace heddle::jit
