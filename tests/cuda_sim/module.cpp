#include "tests/cuda_sim/module.h"

#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

namespace heddle::sim {
namespace {

template <typename Function>
Function* function(void* library, const std::string& name) {
  return reinterpret_cast<Function*>(::dlsym(library, name.c_str()));
}

/// Loads a library from memory.
void* open_bytes(const char* bytes, std::size_t size) {
  const int file = ::memfd_create("heddle-cuda-sim", MFD_CLOEXEC);
  if (file < 0) return nullptr;
  std::size_t written = 0;
  while (written < size) {
    const ssize_t n = ::write(file, bytes + written, size - written);
    if (n <= 0) break;
    written += static_cast<std::size_t>(n);
  }
  // The loader knows libraries by path, so each gets one of its own.
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  void* library = written == size ? ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  ::close(file);
  return library;
}

}  // namespace

std::vector<char> wrap_image(const std::vector<char>& library) {
  const std::uint64_t size = library.size();
  std::vector<char> image(16);
  std::memcpy(image.data(), kImageMagic, 8);
  std::memcpy(image.data() + 8, &size, 8);
  image.insert(image.end(), library.begin(), library.end());
  return image;
}

std::unique_ptr<Module> Module::load(const void* image) {
  const char* bytes = static_cast<const char*>(image);
  if (std::memcmp(bytes, kImageMagic, 8) != 0) return nullptr;
  std::uint64_t size = 0;
  std::memcpy(&size, bytes + 8, 8);
  void* library = open_bytes(bytes + 16, size);
  if (library == nullptr) return nullptr;
  auto* state = static_cast<heddle_sim_state**>(::dlsym(library, "heddle_sim"));
  if (state == nullptr) {
    ::dlclose(library);
    return nullptr;
  }
  *state = &BlockRunner::instance().state();
  return std::unique_ptr<Module>(new Module(library));
}

Module::~Module() { ::dlclose(library_); }

Kernel* Module::find(const std::string& name) {
  if (const auto found = kernels_.find(name); found != kernels_.end()) return &found->second;
  auto* entry = function<void(void**)>(library_, "heddle_sim_call_" + name);
  auto* kinds = function<const char*()>(library_, "heddle_sim_kinds_" + name);
  if (entry == nullptr || kinds == nullptr) return nullptr;
  Kernel kernel{this, name, entry, kinds()};
  return &kernels_.emplace(name, std::move(kernel)).first->second;
}

void Module::fill(Call& call) const {
  if (auto* shared =
          function<void(unsigned char**, unsigned char**)>(library_, "heddle_sim_shared"))
    shared(&call.shared_begin, &call.shared_end);
}

}  // namespace heddle::sim
