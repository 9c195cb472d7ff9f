#include "device/cuda/driver.h"

#include "heddle/error.h"

namespace heddle::device::cuda {
namespace {

constexpr int kOutOfMemory = 2;

}  // namespace

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::vector<std::string> driver_paths(const std::string& explicit_path) {
  if (!explicit_path.empty()) return {explicit_path};
  if (const std::string path = environment("HEDDLE_CUDA_DRIVER_PATH"); !path.empty()) return {path};
  return {"libcuda.so.1"};
}

Driver::Driver(const std::string& explicit_path)
    : library_("the CUDA driver", driver_paths(explicit_path)) {
  load_functions();
  check(init_(0), "cuInit");
  check(get_version_(&version_), "cuDriverGetVersion");
  if (version_ < kMinimumDriver)
    throw DeviceError({.what = "the CUDA driver is too old",
                       .where = path(),
                       .expected = "CUDA " + version_text(kMinimumDriver) + " or later",
                       .got = "CUDA " + version_text(version_)});
}

void Driver::load_functions() {
  library_.load(init_, "cuInit");
  library_.load(get_version_, "cuDriverGetVersion");
  library_.load(error_name_, "cuGetErrorName");
  library_.load(error_string_, "cuGetErrorString");
  library_.load(device_get, "cuDeviceGet");
  library_.load(device_count, "cuDeviceGetCount");
  library_.load(device_name, "cuDeviceGetName");
  library_.load(device_total_memory, "cuDeviceTotalMem_v2");
  library_.load(device_attribute, "cuDeviceGetAttribute");
  library_.load(primary_context_retain, "cuDevicePrimaryCtxRetain");
  library_.load(primary_context_release, "cuDevicePrimaryCtxRelease_v2");
  library_.load(primary_context_reset, "cuDevicePrimaryCtxReset_v2");
  library_.load(context_push, "cuCtxPushCurrent_v2");
  library_.load(context_pop, "cuCtxPopCurrent_v2");
  library_.load(context_device, "cuCtxGetDevice");
  library_.load(context_synchronize, "cuCtxSynchronize");
  library_.load(allocate, "cuMemAlloc_v2");
  library_.load(release, "cuMemFree_v2");
  library_.load(allocate_pinned, "cuMemHostAlloc");
  library_.load(release_pinned, "cuMemFreeHost");
  library_.load(copy_to_device, "cuMemcpyHtoDAsync_v2");
  library_.load(copy_to_host, "cuMemcpyDtoHAsync_v2");
  library_.load(copy_on_device, "cuMemcpyDtoDAsync_v2");
  library_.load(fill, "cuMemsetD8Async");
  library_.load(stream_create, "cuStreamCreate");
  library_.load(stream_destroy, "cuStreamDestroy_v2");
  library_.load(stream_synchronize, "cuStreamSynchronize");
  library_.load(stream_wait, "cuStreamWaitEvent");
  library_.load(stream_begin_capture, "cuStreamBeginCapture_v2");
  library_.load(stream_end_capture, "cuStreamEndCapture");
  library_.load(stream_is_captured, "cuStreamIsCapturing");
  library_.load(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  library_.load(event_create, "cuEventCreate");
  library_.load(event_destroy, "cuEventDestroy_v2");
  library_.load(event_record, "cuEventRecord");
  library_.load(event_synchronize, "cuEventSynchronize");
  library_.load(event_query, "cuEventQuery");
  library_.load(event_elapsed, "cuEventElapsedTime");
  library_.load(module_load, "cuModuleLoadData");
  library_.load(module_unload, "cuModuleUnload");
  library_.load(module_function, "cuModuleGetFunction");
  library_.load(function_get, "cuFuncGetAttribute");
  library_.load(function_set, "cuFuncSetAttribute");
  library_.load(launch, "cuLaunchKernel");
  find(library_load, "cuLibraryLoadData");
  find(library_unload, "cuLibraryUnload");
  find(library_kernel, "cuLibraryGetKernel");
  find(kernel_function, "cuKernelGetFunction");
  find(function_load, "cuFuncLoad");
  library_.load(graph_create, "cuGraphCreate");
  library_.load(graph_destroy, "cuGraphDestroy");
  library_.load(graph_add_kernel, "cuGraphAddKernelNode_v2");
  library_.load(graph_add_copy, "cuGraphAddMemcpyNode");
  library_.load(graph_add_child, "cuGraphAddChildGraphNode");
  library_.load(graph_add_empty, "cuGraphAddEmptyNode");
  library_.load(graph_nodes, "cuGraphGetNodes");
  library_.load(graph_instantiate, "cuGraphInstantiateWithFlags");
  library_.load(graph_exec_destroy, "cuGraphExecDestroy");
  library_.load(graph_set_kernel, "cuGraphExecKernelNodeSetParams_v2");
  library_.load(graph_set_copy, "cuGraphExecMemcpyNodeSetParams");
  library_.load(graph_set_child, "cuGraphExecChildGraphNodeSetParams");
  library_.load(graph_set_enabled, "cuGraphNodeSetEnabled");
  library_.load(graph_launch, "cuGraphLaunch");
}

bool Driver::has_libraries() const {
  return library_load != nullptr && library_unload != nullptr && library_kernel != nullptr &&
         kernel_function != nullptr;
}

bool Driver::is_fatal(int result) {
  // Illegal address and instruction, launch timeout and failure, hardware faults, a broken context; those of which cuda.h
  // says that the process has to be started anew.
  return result == 700 || result == 702 || result == 710 || (result >= 714 && result <= 719) ||
         result == 721 || result == 214 || result == 220 || result == 226 || result == 709 ||
         result == 810 || result == 911;
}

std::string Driver::describe(int result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (error_name_(result, &name) != 0 || name == nullptr) return "error " + std::to_string(result);
  if (error_string_(result, &text) != 0 || text == nullptr) return name;
  return std::string(name) + " (" + text + ")";
}

void Driver::check(int result, const char* function) const {
  if (result == 0) return;
  Error::Parts parts{.what = std::string(function) + " failed",
                     .where = path(),
                     .expected = {},
                     .got = describe(result)};
  if (result == kOutOfMemory) throw OutOfMemory(parts);
  if (is_fatal(result)) throw DeviceLost(parts);
  throw DeviceError(parts);
}

}  // namespace heddle::device::cuda
