// A shared library opened while running.
#pragma once

#include <string>
#include <vector>

namespace heddle::device::cuda {

/// Opens the first of several libraries that loads. It stays loaded: such libraries keep threads and
/// hooks of their own in the process.
class DynamicLibrary {
 public:
  /// @param what   what the library is, for messages: "the CUDA driver"
  /// @param paths  file names or sonames, tried in order
  /// @throws DeviceError naming every path and why it did not load.
  DynamicLibrary(std::string what, const std::vector<std::string>& paths);
  DynamicLibrary(const DynamicLibrary&) = delete;
  DynamicLibrary& operator=(const DynamicLibrary&) = delete;

  const std::string& path() const { return path_; }
  /// Null if the library has no such symbol.
  void* find(const char* symbol) const;
  /// @throws DeviceError naming the symbol and the library.
  void* get(const char* symbol) const;

  template <typename Function>
  void load(Function*& function, const char* symbol) const {
    function = reinterpret_cast<Function*>(get(symbol));
  }

 private:
  std::string what_;
  std::string path_;
  void* handle_ = nullptr;
};

/// Where a library of the CUDA toolkit may be: by its sonames, in the toolkit's folder, in Python packages of
/// $VIRTUAL_ENV and $CONDA_PREFIX.
std::vector<std::string> toolkit_paths(const std::vector<std::string>& sonames);

/// The value of an environment variable, or an empty string.
std::string environment(const char* name);

}  // namespace heddle::device::cuda
