// Kernels of custom ops that are given as text, on one device.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <shared_mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "device/device.h"
#include "ir/custom_op.h"

namespace heddle::engine {

/// Each text is compiled once, equal ones together. One that failed is tried again when it is next asked for.
///
/// Threads: any. While a text is compiled those who ask for it wait, and nobody else does.
class CudaTexts {
 public:
  using Compile = std::function<std::unique_ptr<device::Module>(const ir::KernelText&)>;
  /// @param compile  loads what it compiles; called on threads that are made for compilers, for several texts at once
  explicit CudaTexts(Compile compile) : compile_(std::move(compile)) {}

  /// For launches: a look-up, or a compile where the text is new.
  /// @throws what the compile does; DeviceError when there is no kernel of that name in it.
  device::Kernel kernel(const ir::KernelText& text);
  /// For compiles: all of them at once. @return when each is compiled, or has failed, which its future tells.
  std::vector<std::shared_future<device::Kernel>> compile_all(
      std::span<const ir::KernelText* const> texts);

 private:
  struct Entry {
    std::unique_ptr<device::Module> module;
    std::shared_future<device::Kernel> kernel;
  };
  struct Job;
  void run(Job& job);

  Compile compile_;
  std::shared_mutex mutex_;
  struct HashOfKey {
    std::size_t operator()(const base::Hash128& key) const { return key.low; }
  };
  std::unordered_map<base::Hash128, Entry, HashOfKey> entries_;  ///< under `mutex_`
};

}  // namespace heddle::engine
