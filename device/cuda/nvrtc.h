// NVRTC, the CUDA C++ compiler as a library: opened while running, its ABI declared here.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace heddle::device::cuda {

/// Where libnvrtc is looked for: `explicit_path`, a file or its folder, alone if given; else
/// $HEDDLE_NVRTC_PATH alone if set, likewise; else the loader's path by soname (13, then 12), /usr/local/cuda, and
/// PyPI's nvidia wheels next to the Python interpreters of $VIRTUAL_ENV and $CONDA_PREFIX.
std::vector<std::string> nvrtc_paths(const std::string& explicit_path = {});

struct CompiledText {
  std::vector<char> image;  ///< cubin
  std::string log;          ///< warnings; may be empty
};

/// Its built-ins (libnvrtc-builtins.so.13.0 for version 13.0), without which nothing compiles, are looked for in its
/// own folder, and then by the loader.
///
/// Threads: any; compiles run in parallel as far as NVRTC lets them.
class Nvrtc {
 public:
  /// The first of nvrtc_paths() that loads; of several the first whose major version is not beyond the driver's, which
  /// takes no code of a later one's.
  ///
  /// @param driver  the driver's version, 12040 for CUDA 12.4; 0: any
  /// @throws DeviceError when no library loads or it lacks a function.
  explicit Nvrtc(const std::string& explicit_path = {}, int driver = 0);
  ~Nvrtc();
  Nvrtc(const Nvrtc&) = delete;
  Nvrtc& operator=(const Nvrtc&) = delete;

  const std::string& path() const;
  int major() const;
  int minor() const;
  /// "nvrtc 13.0": part of the key of compiled kernels.
  std::string version() const;
  /// What compile_cubin() tells NVRTC besides the architecture: part of the same key.
  static std::string fixed_options();
  /// Whether `arch` (80, 90, 100) is among the architectures this NVRTC makes code for.
  bool supports(int arch) const;

  /// @param name  for messages
  /// @param arch  "sm_80", "sm_90a"
  /// @throws CompileError with NVRTC's log; DeviceError when its built-ins are not found, saying where they were looked
  ///         for.
  CompiledText compile_cubin(const std::string& text, const std::string& name,
                             const std::string& arch,
                             const std::vector<std::string>& options = {}) const;

 private:
  struct Api;
  static std::unique_ptr<Api> open(const std::vector<std::string>& paths, int driver);
  /// "nvrtc 13.0, driver 12.4": of two that do not fit, either may be the one to change.
  std::string versions() const;
  std::unique_ptr<Api> api_;
  int driver_;
};

}  // namespace heddle::device::cuda
