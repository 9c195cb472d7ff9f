// The CUDA Driver API: opened while running, the part of its ABI that is used declared here.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda/dynamic_library.h"

namespace heddle::device::cuda {

/// The oldest driver whose cubins and functions are what this code expects: CUDA 12.0 (Linux driver
/// 525.60).
inline constexpr int kMinimumDriver = 12000;

/// Where libcuda is looked for: `explicit_path` alone if given; else $HEDDLE_CUDA_DRIVER_PATH alone if
/// set; else libcuda.so.1 by soname.
std::vector<std::string> driver_paths(const std::string& explicit_path = {});

/// CUDA_KERNEL_NODE_PARAMS_v2.
struct KernelNodeParameters {
  void* function = nullptr;
  unsigned int grid_x = 1, grid_y = 1, grid_z = 1;
  unsigned int block_x = 1, block_y = 1, block_z = 1;
  unsigned int shared_bytes = 0;
  void** arguments = nullptr;
  void** extra = nullptr;
  void* kernel = nullptr;
  void* context = nullptr;  ///< that of the function
};

/// CUDA_MEMCPY3D_v2.
struct CopyParameters {
  enum : int { kHost = 1, kDevice = 2 };
  struct Side {
    std::size_t x_bytes = 0, y = 0, z = 0, level = 0;
    int type = kDevice;
    const void* host = nullptr;
    const void* device = nullptr;
    void* array = nullptr;
    void* reserved = nullptr;
    std::size_t pitch = 0, height = 0;
  };
  Side from, to;
  std::size_t width_bytes = 0, height = 1, depth = 1;
};
static_assert(sizeof(KernelNodeParameters) == 72 && sizeof(CopyParameters) == 200);

/// "13.0" for 13000, as the driver gives its version.
std::string version_text(int version);

/// Functions by their names without the prefix cu and the version; a result of 0 is success.
/// Handles are pointers; device addresses, 64-bit integers in the ABI, are passed as such.
class Driver {
 public:
  /// @throws DeviceError naming what was looked for and where, when no library loads, one lacks a
  /// function, does not start, or is older than kMinimumDriver.
  explicit Driver(const std::string& explicit_path = {});

  const std::string& path() const { return library_.path(); }
  int version() const { return version_; }  ///< 13000 for CUDA 13.0

  /// Throws what `result` means, nothing for 0.
  /// @throws OutOfMemory, DeviceLost, DeviceError.
  void check(int result, const char* function) const;
  /// Whether code can be loaded as a library (library_load and so on).
  bool has_libraries() const;
  /// Whether a context does not survive this error.
  static bool is_fatal(int result);
  std::string describe(int result) const;

  int (*device_get)(int* device, int index) = nullptr;
  int (*device_count)(int* count) = nullptr;
  int (*device_name)(char* name, int size, int device) = nullptr;
  int (*device_total_memory)(std::size_t* bytes, int device) = nullptr;
  int (*device_attribute)(int* value, int attribute, int device) = nullptr;
  int (*primary_context_retain)(void** context, int device) = nullptr;
  int (*primary_context_release)(int device) = nullptr;
  int (*primary_context_reset)(int device) = nullptr;
  int (*context_push)(void* context) = nullptr;
  int (*context_pop)(void** context) = nullptr;
  int (*context_device)(int* device) = nullptr;
  int (*context_synchronize)() = nullptr;
  int (*allocate)(void** memory, std::size_t bytes) = nullptr;
  int (*release)(void* memory) = nullptr;
  int (*allocate_pinned)(void** memory, std::size_t bytes, unsigned int flags) = nullptr;
  int (*release_pinned)(void* memory) = nullptr;
  int (*copy_to_device)(void* to, const void* from, std::size_t bytes, void* stream) = nullptr;
  int (*copy_to_host)(void* to, const void* from, std::size_t bytes, void* stream) = nullptr;
  int (*copy_on_device)(void* to, const void* from, std::size_t bytes, void* stream) = nullptr;
  int (*fill)(void* to, unsigned char value, std::size_t bytes, void* stream) = nullptr;
  int (*stream_create)(void** stream, unsigned int flags) = nullptr;
  int (*stream_destroy)(void* stream) = nullptr;
  int (*stream_synchronize)(void* stream) = nullptr;
  int (*stream_wait)(void* stream, void* event, unsigned int flags) = nullptr;
  int (*stream_begin_capture)(void* stream, int mode) = nullptr;
  int (*stream_end_capture)(void* stream, void** graph) = nullptr;
  int (*stream_is_captured)(void* stream, int* status) = nullptr;  ///< 0: it is not
  /// Of the calling thread; gets the mode that it had.
  int (*exchange_capture_mode)(int* mode) = nullptr;
  int (*event_create)(void** event, unsigned int flags) = nullptr;
  int (*event_destroy)(void* event) = nullptr;
  int (*event_record)(void* event, void* stream) = nullptr;
  int (*event_synchronize)(void* event) = nullptr;
  int (*event_query)(void* event) = nullptr;
  int (*event_elapsed)(float* milliseconds, void* begin, void* end) = nullptr;
  int (*module_load)(void** module, const void* image) = nullptr;
  int (*module_unload)(void* module) = nullptr;
  int (*module_function)(void** function, void* module, const char* name) = nullptr;
  int (*function_get)(int* value, int attribute, void* function) = nullptr;
  int (*function_set)(void* function, int attribute, int value) = nullptr;

  // Code that is loaded once for all contexts; null where the driver has none of that.
  int (*library_load)(void** library, const void* image, int* jit_options, void** jit_values,
                      unsigned int jit_count, int* options, void** values,
                      unsigned int count) = nullptr;
  int (*library_unload)(void* library) = nullptr;
  int (*library_kernel)(void** kernel, void* library, const char* name) = nullptr;
  int (*kernel_function)(void** function, void* kernel) = nullptr;
  /// Loads a function's code now; null before CUDA 12.4, where asking for the function has done so.
  int (*function_load)(void* function) = nullptr;

  int (*launch)(void* function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                unsigned int block_x, unsigned int block_y, unsigned int block_z,
                unsigned int shared_bytes, void* stream, void** arguments, void** extra) = nullptr;

  // Graphs. Structures of parameters are CUDA_KERNEL_NODE_PARAMS_v2 and CUDA_MEMCPY3D_v2.
  int (*graph_create)(void** graph, unsigned int flags) = nullptr;
  int (*graph_destroy)(void* graph) = nullptr;
  int (*graph_add_kernel)(void** node, void* graph, void* const* after, std::size_t count,
                          const KernelNodeParameters* parameters) = nullptr;
  int (*graph_add_copy)(void** node, void* graph, void* const* after, std::size_t count,
                        const CopyParameters* parameters, void* context) = nullptr;
  int (*graph_add_child)(void** node, void* graph, void* const* after, std::size_t count,
                         void* child) = nullptr;
  int (*graph_add_empty)(void** node, void* graph, void* const* after, std::size_t count) = nullptr;
  int (*graph_nodes)(void* graph, void** nodes, std::size_t* count) = nullptr;
  int (*graph_instantiate)(void** exec, void* graph, unsigned long long flags) = nullptr;
  int (*graph_exec_destroy)(void* exec) = nullptr;
  int (*graph_set_kernel)(void* exec, void* node, const KernelNodeParameters* parameters) = nullptr;
  int (*graph_set_copy)(void* exec, void* node, const CopyParameters* parameters,
                        void* context) = nullptr;
  int (*graph_set_child)(void* exec, void* node, void* child) = nullptr;
  int (*graph_set_enabled)(void* exec, void* node, unsigned int enabled) = nullptr;
  int (*graph_launch)(void* exec, void* stream) = nullptr;

 private:
  void load_functions();
  /// A function that not every driver has.
  template <typename Function>
  void find(Function*& function, const char* symbol) {
    function = reinterpret_cast<Function*>(library_.find(symbol));
  }

  DynamicLibrary library_;
  int version_ = 0;
  int (*init_)(unsigned int flags) = nullptr;
  int (*get_version_)(int* version) = nullptr;
  int (*error_name_)(int error, const char** text) = nullptr;
  int (*error_string_)(int error, const char** text) = nullptr;
};

}  // namespace heddle::device::cuda
