// Nests to loaded kernels of one CUDA device: each structure once in this process and, through the disk cache, on this
// machine.
#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/cuda/nvrtc.h"
#include "device/device.h"
#include "jit/cuda/emit.h"
#include "jit/cuda/libraries.h"
#include "jit/kernel_cache.h"
#include "jit/recent_kernels.h"
#include "jit/verdicts.h"

namespace heddle::jit::cuda {

/// A kernel ready to launch, in all its variants. Its code lives as long as this does.
class CudaKernel {
 public:
  using ModulePtr = std::shared_ptr<const device::Module>;
  /// @param modules      of each variant of `code`
  /// @param verdict_key  what the verdicts are kept under on disk
  /// @param libraries    for the code's library variant; may be null where it has none
  CudaKernel(CudaCode code, std::vector<ModulePtr> modules, std::string verdict_key = {},
             Libraries* libraries = nullptr);

  /// How it is launched at these sizes, as the cost model expects it to be the fastest.
  CudaChoice expected(std::span<const std::int64_t> sizes) const { return code_.choose(sizes); }
  /// The same of one variant. Nothing where that is the library's and the library has no way, or is not open.
  std::optional<CudaChoice> choice_of(std::uint32_t variant,
                                      std::span<const std::int64_t> sizes) const;
  /// Whether the variant is one that can be launched: not the library's while that is not open.
  bool is_ready(std::uint32_t variant) const;
  /// Whether choice_of() gives at once what it gives: a library may have to think, for which prepare() is.
  bool is_prepared(std::uint32_t variant, std::span<const std::int64_t> sizes) const;
  void prepare(std::uint32_t variant, std::span<const std::int64_t> sizes) const;
  /// The library of the kernel's library variant; null: it has none.
  device::cuda::OptionalLibrary* library() const;
  /// The variants that are expected to take at most `factor` times as long as that one, and the library's if that is open.
  std::vector<std::uint32_t> plausible(std::span<const std::int64_t> sizes, double factor) const;
  std::uint32_t variants() const { return static_cast<std::uint32_t>(handles_.size()); }
  std::span<const CudaBuffer> buffers() const { return code_.buffers; }

  /// What was measured of the variants; shared by all who use the kernel.
  const Verdicts& verdicts() const { return *verdicts_; }
  void add_verdict(std::span<const std::int64_t> sizes,
                   std::vector<Verdicts::Timing> timings) const {
    verdicts_->set(sizes, std::move(timings));
  }
  /// Takes the verdicts that are on disk, or puts those there that there are.
  void load_verdicts(KernelCache& cache) const;
  void store_verdicts(KernelCache& cache) const;

  const CudaSource& source(std::uint32_t variant = 0) const { return code_.variants[variant]; }
  device::Kernel handle(std::uint32_t variant = 0) const { return handles_[variant]; }

  /// Queues one launch; none when there is nothing to do. @throws DeviceError, that of a library too; DeviceLost.
  /// @param choice    for these sizes
  /// @param buffers   device addresses, in the nest's order
  /// @param scratch   as many bytes on the device as the choice says, 256-aligned; null for 0
  /// @param counters  kMostSharedTiles on the device, all 0, where the kernel takes counters
  /// @param status    an int32 on the device
  void launch(device::Device& device, const CudaChoice& choice, std::span<void* const> buffers,
              std::span<const std::int64_t> sizes, void* scratch, void* counters, void* status,
              device::Stream& stream) const;
  /// The same of a variant with `arguments` made ready: addresses of the kernel's parameters in order. Where a library does not
  /// take the addresses, fails, or failed before, a variant of ours is launched.
  /// @param library  CudaChoice::library
  void launch(device::Device& device, std::uint32_t variant, std::uint32_t blocks,
              const LibraryCall* library, std::span<void* const> arguments,
              device::Stream& stream) const;

 private:
  /// Parameters of a product's kernel after its sizes: scratch, counters, status.
  static constexpr std::size_t kAfterSizes = 3;
  static void* scratch_of(std::span<void* const> arguments);
  /// False: it does not take the addresses, or failed, now or before.
  bool run_library(const LibraryCall& call, std::span<void* const> arguments,
                   device::Stream& stream) const;
  void launch_ours(device::Device& device, std::uint32_t variant, std::uint32_t blocks,
                   std::span<void* const> arguments, device::Stream& stream) const;
  void launch_instead(device::Device& device, std::span<void* const> arguments,
                      device::Stream& stream) const;

  CudaCode code_;
  std::vector<ModulePtr> modules_;
  std::vector<device::Kernel> handles_;
  std::string verdict_key_;
  std::vector<std::string> names_;  ///< of the variants
  std::unique_ptr<Verdicts> verdicts_;
  Libraries* libraries_;
};
using CudaKernelPtr = std::shared_ptr<const CudaKernel>;

struct CudaCompileOptions {
  std::string nvrtc_path;  ///< empty: where nvrtc_paths() says
  LibraryPaths libraries{};
  std::string
      dump_folder;  ///< the text of every kernel goes there before it is compiled; empty: $HEDDLE_DUMP_DIR, or none
  std::string
      target;  ///< of compiled kernels on disk: tells drivers apart that take each other's images for theirs
  int threads = 0;  ///< that compile at once; 0: one a processor
};

/// Threads: any. Two callers with the same nest share one compile.
///
/// On disk a kernel's text (its name apart), the prelude, and what compiles them are the key; the entry says which
/// image holds the variant, since several lie in one, and by what name. Images have entries of their own, by their
/// bytes. What the driver refuses is compiled anew.
class CudaCompiler {
 public:
  /// @throws DeviceError when NVRTC does not load.
  explicit CudaCompiler(device::Device& device, CudaCompileOptions options = {});

  /// @throws CompileError with NVRTC's log.
  CudaKernelPtr compile(const Nest& nest);
  /// All of them. The variants that are not on disk share as many programs as there are threads that compile, so that the
  /// prelude is read once by each and no processor waits for the largest kernel alone. One that fails does not keep the
  /// others from being compiled: its future says why.
  /// @param cache  compiled kernels on disk; null: none are looked for or kept
  std::vector<std::shared_future<CudaKernelPtr>> compile_all(std::span<const Nest* const> nests,
                                                             KernelCache* cache = nullptr);
  /// A program of the caller's own. @throws CompileError, DeviceError.
  std::unique_ptr<device::Module> compile_text(const std::string& text,
                                               const std::string& name) const;
  /// Nests that went through NVRTC.
  std::uint64_t compiled() const { return compiled_.load(); }
  /// Programs that NVRTC took.
  std::uint64_t programs() const { return programs_.load(); }
  /// Nests whose kernels were on disk.
  std::uint64_t disk_hits() const { return disk_hits_.load(); }
  /// "nvrtc 13.0"
  std::string version() const { return nvrtc_.version(); }
  /// What the code of a nest depends on besides the nest: how it is made, and for which device.
  std::string code_key() const;

 private:
  struct Job;
  struct Unit;
  using ModulePtr = CudaKernel::ModulePtr;
  void emit(Job& job) const;
  std::vector<Unit> prepare(Job& job, KernelCache* cache);
  static std::vector<std::vector<Unit>> programs_of(std::vector<Unit> units, std::size_t compilers);
  void run(std::span<const Unit> units, KernelCache* cache);
  void build(std::span<const Unit> units, KernelCache* cache);
  void finish(Job& job, KernelCache* cache);
  void fail(Job& job);
  void forget(Job& job);
  std::string key_of(const CudaSource& source) const;
  std::string verdict_key_of(const CudaCode& code) const;
  /// Null: the kernel is not on disk, or not in a form that the driver takes.
  CudaKernelPtr find(const Job& job, KernelCache& cache);
  /// An image that is on disk, loaded once.
  ModulePtr load(const std::string& image_key, KernelCache& cache);

  device::Device& device_;
  CudaCompileOptions options_;
  device::cuda::Nvrtc nvrtc_;
  Libraries libraries_;
  std::atomic<std::uint64_t> compiled_{0};
  std::atomic<std::uint64_t> programs_{0};
  std::atomic<std::uint64_t> disk_hits_{0};
  std::mutex modules_mutex_;
  std::map<std::string, std::weak_ptr<const device::Module>> modules_;  ///< by key of their image
  RecentKernels<CudaKernel> kernels_;                                   ///< by structural key
};

}  // namespace heddle::jit::cuda
