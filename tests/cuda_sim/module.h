// A loaded image of kernels.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda_sim/block.h"

namespace heddle::sim {

/// An image is this word, the compiler's stamp, eight bytes with the number of those that follow, and a shared
/// library.
inline constexpr char kImageMagic[8] = {'H', 'D', 'C', 'U', 'S', 'I', 'M', '2'};
inline constexpr std::size_t kStampBytes = 32;
std::vector<char> wrap_image(const std::vector<char>& library);

class Module;

struct Kernel {
  Module* module = nullptr;
  std::string name;
  void (*entry)(void** arguments) = nullptr;
  std::string kinds;  ///< of its parameters: 'p' pointer, '1', '2', '4', '8' bytes of a value
  heddle_sim_state* state = nullptr;
  std::size_t max_dynamic_shared = 48 * 1024;
  unsigned char* shared_begin = nullptr;  ///< its static shared memory
  unsigned char* shared_end = nullptr;
};

class Module {
 public:
  /// Null if the image is none of ours or does not load.
  static std::unique_ptr<Module> load(const void* image);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Null if there is no such kernel. Lives as long as the module.
  Kernel* find(const std::string& name);

 private:
  Module(int file, void* library) : file_(file), library_(library) {}

  int file_;
  void* library_;
  heddle_sim_state* state_ = nullptr;
  std::map<std::string, Kernel> kernels_;
};

}  // namespace heddle::sim
