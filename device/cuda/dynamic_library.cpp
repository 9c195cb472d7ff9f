#include "device/cuda/dynamic_library.h"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <utility>

#include "heddle/error.h"

namespace heddle::device::cuda {

DynamicLibrary::DynamicLibrary(std::string what, const std::vector<std::string>& paths)
    : what_(std::move(what)) {
  std::string tried;
  for (const std::string& path : paths) {
    handle_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      path_ = path;
      return;
    }
    const char* reason = ::dlerror();
    tried += (tried.empty() ? "" : "; ") + std::string(reason != nullptr ? reason : path);
  }
  std::string expected;
  for (const std::string& path : paths) expected += (expected.empty() ? "" : ", ") + path;
  throw DeviceError({.what = what_ + " cannot be loaded",
                     .where = {},
                     .expected = "one of " + expected,
                     .got = tried});
}

void* DynamicLibrary::find(const char* symbol) const { return ::dlsym(handle_, symbol); }

void* DynamicLibrary::get(const char* symbol) const {
  void* address = find(symbol);
  if (address == nullptr)
    throw DeviceError({.what = what_ + " is too old",
                       .where = path_,
                       .expected = std::string("the function ") + symbol,
                       .got = "none"});
  return address;
}

namespace {

/// <prefix>/lib/python*/site-packages/nvidia/*/lib/<soname>
void add_packages(const std::string& prefix, const std::vector<std::string>& sonames,
                  std::vector<std::string>& paths) {
  if (prefix.empty()) return;
  std::error_code error;
  std::vector<std::string> found;
  for (const auto& python : std::filesystem::directory_iterator(prefix + "/lib", error)) {
    const auto packages = python.path() / "site-packages/nvidia";
    for (const auto& package : std::filesystem::directory_iterator(packages, error))
      for (const std::string& name : sonames)
        if (const auto file = package.path() / "lib" / name; std::filesystem::exists(file, error))
          found.push_back(file.string());
  }
  std::ranges::sort(found);
  paths.insert(paths.end(), found.begin(), found.end());
}

}  // namespace

std::vector<std::string> toolkit_paths(const std::vector<std::string>& sonames) {
  std::vector<std::string> paths = sonames;
  for (const std::string& name : sonames) paths.push_back("/usr/local/cuda/lib64/" + name);
  add_packages(environment("VIRTUAL_ENV"), sonames, paths);
  add_packages(environment("CONDA_PREFIX"), sonames, paths);
  return paths;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace heddle::device::cuda
