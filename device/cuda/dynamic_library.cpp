#include "device/cuda/dynamic_library.h"

#include <cstdlib>
#include <dlfcn.h>
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

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace heddle::device::cuda
