// A CUDA device as engines and tensors share it: driver, compiler, memory.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "device/device.h"
#include "engine/completion.h"
#include "engine/cuda_texts.h"
#include "heddle/device.h"
#include "ir/literal.h"
#include "jit/cuda/compile.h"
#include "memory/device_pool.h"

namespace heddle::engine {

class CudaRuntime;
using CudaRuntimePtr = std::shared_ptr<CudaRuntime>;

/// Memory of a tensor or parameter on the device.
struct DeviceBytes {
  CudaRuntimePtr runtime;
  /// Null: the memory is the caller's. Calls under way keep it without the tensor.
  std::shared_ptr<const memory::PoolBlock> block{};
  PendingUses uses{};

  char* address() const { return block == nullptr ? nullptr : block->get(); }
};

class CudaRuntime : public std::enable_shared_from_this<CudaRuntime> {
 public:
  /// The one of `device` and `context`, opened at first use, and anew after its context was lost.
  /// @param context  the caller's own CUcontext; null: the primary one
  /// @throws DeviceError saying what was looked for and where.
  static CudaRuntimePtr get(const Device& device, void* context = nullptr);

  CudaRuntime(const Device& device, bool reset, void* context);

  const Device& name() const { return name_; }
  device::Device& device() { return *device_; }
  jit::cuda::CudaCompiler& compiler() { return compiler_; }
  CudaTexts& texts() { return texts_; }
  memory::DevicePool& pool() { return pool_; }
  memory::DevicePool& pinned() { return pinned_; }
  /// Held while kernels are timed: one at a time.
  std::mutex& measuring() { return measuring_; }

  std::shared_ptr<DeviceBytes> allocate(std::size_t bytes);
  /// The bytes of a row-major literal on the device: one copy for all who ask while it is in use and the literal's own
  /// are there, which need not be there for it.
  std::shared_ptr<DeviceBytes> upload(const ir::Literal& literal);
  /// Those that are there already; null: none.
  std::shared_ptr<DeviceBytes> find(const ir::Literal& literal);
  /// Where upload() will find the bytes of a literal that work of the device makes: memory that holds anything yet.
  std::shared_ptr<DeviceBytes> place_for(const ir::Literal& literal);
  /// Copies that the host waits for.
  void copy_in(void* to, const void* from, std::size_t bytes);
  void copy_out(void* to, const void* from, std::size_t bytes);
  void copy_within(void* to, const void* from, std::size_t bytes);
  /// Where rows of bytes lie, one each `pitch` bytes.
  template <typename T>
  struct Rows {
    T* begin;
    std::size_t pitch;
  };
  /// Copies `count` rows to the device, from there or from the host.
  void copy_rows(Rows<char> to, Rows<const char> from, std::size_t bytes, std::size_t count,
                 bool from_device);

 private:
  /// A literal's bytes on the device.
  struct Upload {
    std::weak_ptr<DeviceBytes> bytes;
    std::weak_ptr<const void> source;  ///< expired: the address, its key, is another's
    std::size_t count = 0;
  };

  void note(const ir::Literal& literal, const std::shared_ptr<DeviceBytes>& bytes);
  void copy(void* to, const void* from, std::size_t bytes, device::CopyKind kind);

  Device name_;
  std::unique_ptr<device::Device> device_;
  jit::cuda::CudaCompiler compiler_;
  CudaTexts texts_;
  memory::DevicePool pool_;
  memory::DevicePool pinned_;
  std::mutex mutex_;
  std::unique_ptr<device::Stream> stream_;  ///< of copies; under `mutex_`
  std::map<const void*, Upload> uploads_;   ///< by Literal::identity(); under `mutex_`
  std::mutex measuring_;
};

/// Where the simulated driver is: $HEDDLE_CUDA_SIM_PATH, else libheddle_cuda_sim.so beside this library or
/// in ../lib.
/// @throws DeviceError naming the places.
std::string cuda_sim_path();

}  // namespace heddle::engine
