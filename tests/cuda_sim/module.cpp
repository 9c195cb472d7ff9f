#include "tests/cuda_sim/module.h"

#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/cuda_sim/host_compiler.h"

namespace heddle::sim {
namespace {

constexpr std::size_t kHeaderBytes = 8 + kStampBytes + 8;

template <typename Function>
Function* function(void* library, const std::string& name) {
  return reinterpret_cast<Function*>(::dlsym(library, name.c_str()));
}

/// A file without a name that holds `bytes`; -1 if the system refuses.
int file_of(const char* bytes, std::size_t size) {
  const int file = ::memfd_create("heddle-cuda-sim", MFD_CLOEXEC);
  std::size_t written = 0;
  while (file >= 0 && written < size) {
    const ssize_t n = ::write(file, bytes + written, size - written);
    if (n <= 0) {
      ::close(file);
      return -1;
    }
    written += static_cast<std::size_t>(n);
  }
  return file;
}

}  // namespace

std::vector<char> wrap_image(const std::vector<char>& library) {
  const std::uint64_t size = library.size();
  std::vector<char> image(kHeaderBytes);
  std::memcpy(image.data(), kImageMagic, 8);
  std::memcpy(image.data() + 8, compiler_stamp().data(), kStampBytes);
  std::memcpy(image.data() + 8 + kStampBytes, &size, 8);
  image.insert(image.end(), library.begin(), library.end());
  return image;
}

std::unique_ptr<Module> Module::load(const void* image) {
  const char* bytes = static_cast<const char*>(image);
  if (std::memcmp(bytes, kImageMagic, 8) != 0) return nullptr;
  if (std::memcmp(bytes + 8, compiler_stamp().data(), kStampBytes) != 0) return nullptr;
  std::uint64_t size = 0;
  std::memcpy(&size, bytes + 8 + kStampBytes, 8);
  // The loader takes two libraries of one path for the same, so the file, whose number is in its
  // path, stays open as long as the library.
  const int file = file_of(bytes + kHeaderBytes, size);
  if (file < 0) return nullptr;
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  std::unique_ptr<Module> module(new Module(file, ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)));
  if (module->library_ == nullptr) return nullptr;
  auto* state = function<heddle_sim_state*()>(module->library_, "heddle_sim_state_of_image");
  if (state == nullptr) return nullptr;
  module->state_ = state();
  return module;
}

Module::~Module() {
  if (library_ != nullptr) ::dlclose(library_);
  ::close(file_);
}

Kernel* Module::find(const std::string& name) {
  if (const auto found = kernels_.find(name); found != kernels_.end()) return &found->second;
  auto* entry = function<void(void**)>(library_, "heddle_sim_call_" + name);
  auto* kinds = function<const char*()>(library_, "heddle_sim_kinds_" + name);
  if (entry == nullptr || kinds == nullptr) return nullptr;
  Kernel kernel{this, name, entry, kinds(), state_};
  if (auto* shared =
          function<void(unsigned char**, unsigned char**)>(library_, "heddle_sim_shared_" + name))
    shared(&kernel.shared_begin, &kernel.shared_end);
  return &kernels_.emplace(name, std::move(kernel)).first->second;
}

}  // namespace heddle::sim
