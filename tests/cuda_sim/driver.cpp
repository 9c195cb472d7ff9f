// The Driver API functions that the engine uses, over the host. See README.md.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "tests/cuda_sim/entry.h"
#include "tests/cuda_sim/graph.h"
#include "tests/cuda_sim/memory.h"
#include "tests/cuda_sim/record.h"

using namespace heddle::sim;

namespace {

const std::map<int, std::pair<const char*, const char*>> kErrors = {
    {kSuccess, {"CUDA_SUCCESS", "no error"}},
    {kInvalidValue, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
    {kOutOfMemory, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
    {kInvalidDevice, {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"}},
    {kInvalidImage, {"CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"}},
    {kInvalidContext, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
    {kInvalidHandle, {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"}},
    {kNotFound, {"CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
    {kNotReady, {"CUDA_ERROR_NOT_READY", "device not ready"}},
    {kNotSupported, {"CUDA_ERROR_NOT_SUPPORTED", "operation not supported"}},
    {kIllegalAddress, {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"}},
    {kLaunchFailed, {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}},
    {kUnknown, {"CUDA_ERROR_UNKNOWN", "unknown error"}},
};

int primary_context;

unsigned long live() {
  return Memory::instance().live() + Machine::instance().live() + Graphs::instance().live() +
         context_state().modules.size();
}

/// The end of a context: all that was made in it goes.
void tear_down() {
  if (context_state().lost == kSuccess && Machine::instance().problem().empty()) {
    Machine::instance().finish_all();
    context_state().leaked += live();
  }
  Graphs::instance().reset();
  Machine::instance().reset();
  for (Module* module : context_state().modules) delete module;
  context_state().modules.clear();
  Memory::instance().reset();
  context_state().lost = kSuccess;
}

int give_copy(void* to, const void* from, std::size_t bytes, void* handle, bool to_device,
              bool from_device) {
  const Memory& memory = Memory::instance();
  Stream* stream = stream_of(handle);
  if (stream == nullptr) return kInvalidHandle;
  if (bytes == 0) return kSuccess;
  if ((to_device && !memory.holds(to, bytes)) || (from_device && !memory.holds(from, bytes)))
    return kInvalidValue;
  Operation operation;
  operation.kind = Operation::Kind::Copy;
  operation.to = to;
  operation.from = from;
  operation.bytes = bytes;
  operation.to_device = to_device;
  operation.from_device = from_device;
  const bool pageable = (!to_device && !memory.holds_pinned(to, bytes)) ||
                        (!from_device && !memory.holds_pinned(from, bytes));
  // From pageable memory: the driver has read it when the call returns; to it: it has been written.
  if (pageable && to_device) {
    const auto* begin = static_cast<const unsigned char*>(from);
    operation.taken.assign(begin, begin + bytes);
  }
  Machine::instance().give(stream, std::move(operation));
  if (pageable && from_device) return waited(Machine::instance().finish(stream));
  return kSuccess;
}

int load_image(void** handle, const void* image) {
  std::unique_ptr<Module> loaded = Module::load(image);
  if (loaded == nullptr) return kInvalidImage;
  context_state().modules.insert(loaded.get());
  *handle = loaded.release();
  return kSuccess;
}

int unload_image(const Entry& entry, void* handle) {
  auto* module = static_cast<Module*>(handle);
  if (!context_state().modules.contains(module)) return kInvalidHandle;
  if (Machine::instance().uses(module))
    return lose(kLaunchFailed, "a module is unloaded that queued work uses");
  context_state().modules.erase(module);
  delete module;
  return entry.after(kSuccess);
}

int find_kernel(void** kernel, void* handle, const char* name) {
  auto* module = static_cast<Module*>(handle);
  if (!context_state().modules.contains(module)) return kInvalidHandle;
  *kernel = module->find(name);
  return *kernel == nullptr ? kNotFound : kSuccess;
}

int release(void* pointer, bool pinned) {
  Memory& memory = Memory::instance();
  if (pointer == nullptr) return kSuccess;
  const std::size_t bytes = memory.size_of(pointer);
  if (context_state().lost == kSuccess && Machine::instance().uses(pointer, bytes))
    return lose(kIllegalAddress, "memory is freed that queued work uses");
  const bool known = pinned ? memory.release_pinned(pointer) : memory.release(pointer);
  return known ? kSuccess : kInvalidValue;
}

}  // namespace

EXPORT int cuInit(unsigned int) { return Entry("cuInit").after(kSuccess); }

EXPORT int cuDriverGetVersion(int* version) {
  *version = 13000;
  return Entry("cuDriverGetVersion").after(kSuccess);
}

EXPORT int cuGetErrorName(int error, const char** text) {
  const auto found = kErrors.find(error);
  *text = found == kErrors.end() ? nullptr : found->second.first;
  return found == kErrors.end() ? kInvalidValue : kSuccess;
}

EXPORT int cuGetErrorString(int error, const char** text) {
  const auto found = kErrors.find(error);
  *text = found == kErrors.end() ? nullptr : found->second.second;
  return found == kErrors.end() ? kInvalidValue : kSuccess;
}

EXPORT int cuDeviceGetCount(int* count) {
  *count = 1;
  return Entry("cuDeviceGetCount").after(kSuccess);
}

EXPORT int cuDeviceGet(int* device, int index) {
  *device = index;
  return Entry("cuDeviceGet").after(index == 0 ? kSuccess : kInvalidDevice);
}

EXPORT int cuDeviceGetName(char* name, int size, int) {
  std::snprintf(name, static_cast<std::size_t>(size), "heddle simulated device");
  return Entry("cuDeviceGetName").after(kSuccess);
}

EXPORT int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  *bytes = Memory::kCapacity;
  return Entry("cuDeviceTotalMem").after(kSuccess);
}

namespace {

constexpr int kMultiprocessors = 2;
std::atomic<int> multiprocessors = kMultiprocessors;
std::atomic<int> registers = 0;  ///< of a thread, of every kernel
std::atomic<bool> takes_libraries = true;

}  // namespace

EXPORT int cuDeviceGetAttribute(int* value, int attribute, int) {
  const std::map<int, int> values = {{1, 1024},
                                     {8, 49152},
                                     {10, 32},
                                     {11, static_cast<int>(kMaxPitch)},
                                     {16, multiprocessors},
                                     {38, 4096},
                                     {75, 9},
                                     {76, 0},
                                     {97, 227 * 1024}};
  const auto found = values.find(attribute);
  if (found != values.end()) *value = found->second;
  return Entry("cuDeviceGetAttribute").after(found == values.end() ? kInvalidValue : kSuccess);
}

EXPORT int cuDevicePrimaryCtxRetain(void** context, int) {
  const Entry entry("cuDevicePrimaryCtxRetain");
  if (const int error = entry.after(kSuccess); error != kSuccess) return error;
  *context = &primary_context;
  if (++context_state().holders == 1 && context_state().contexts.empty())
    context_state().why_lost.clear();
  return kSuccess;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int) {
  const Entry entry("cuDevicePrimaryCtxRelease");
  if (context_state().holders == 0) return kInvalidContext;
  if (--context_state().holders == 0 && context_state().contexts.empty()) tear_down();
  return entry.after(kSuccess);
}

EXPORT int cuDevicePrimaryCtxReset_v2(int) {
  const Entry entry("cuDevicePrimaryCtxReset");
  if (const int error = entry.after(kSuccess); error != kSuccess) return error;
  context_state().lost = context_state().lost == kSuccess
                             ? kUnknown
                             : context_state().lost;  // not a leak: who resets means it
  tear_down();
  return kSuccess;
}

EXPORT int cuCtxCreate_v2(void** context, unsigned int, int device) {
  const Entry entry("cuCtxCreate");
  if (const int error = entry.after(kSuccess); error != kSuccess) return error;
  if (device != 0) return kInvalidDevice;
  *context = *context_state().contexts.insert(new int(0)).first;
  if (context_state().holders == 0) context_state().why_lost.clear();
  context_stack().push_back(*context);
  return kSuccess;
}

/// What was made in the context has to be gone.
EXPORT int cuCtxDestroy_v2(void* context) {
  const Entry entry("cuCtxDestroy");
  if (context_state().contexts.erase(context) == 0) return kInvalidContext;
  std::erase(context_stack(), context);
  delete static_cast<int*>(context);
  if (context_state().holders == 0 && context_state().contexts.empty()) tear_down();
  return entry.after(kSuccess);
}

EXPORT int cuCtxGetDevice(int* device) {
  const Entry entry("cuCtxGetDevice");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  *device = 0;
  return kSuccess;
}

EXPORT int cuCtxPushCurrent_v2(void* context) {
  const Entry entry("cuCtxPushCurrent");
  if (const int error = entry.after(kSuccess); error != kSuccess) return error;
  const bool primary = context == &primary_context && context_state().holders > 0;
  if (!primary && !context_state().contexts.contains(context)) return kInvalidContext;
  context_stack().push_back(context);
  return kSuccess;
}

EXPORT int cuCtxPopCurrent_v2(void**) {
  const Entry entry("cuCtxPopCurrent");
  if (context_stack().empty()) return kInvalidContext;
  context_stack().pop_back();
  return entry.after(kSuccess);
}

EXPORT int cuCtxSynchronize() {
  const Entry entry("cuCtxSynchronize");
  if (const int error = entry.in_context_apart(); error != kSuccess) return error;
  Record::instance().synchronize_all();
  return waited(Machine::instance().finish_all());
}

EXPORT int cuMemAlloc_v2(void** pointer, std::size_t bytes) {
  const Entry entry("cuMemAlloc");
  if (const int error = entry.in_context_apart(); error != kSuccess) return error;
  if (bytes == 0) return kInvalidValue;
  *pointer = Memory::instance().allocate(bytes);
  return *pointer == nullptr ? kOutOfMemory : kSuccess;
}

EXPORT int cuMemFree_v2(void* pointer) {
  const Entry entry("cuMemFree");
  if (const int error = apart_from_captures(); error != kSuccess) return error;
  return entry.after(release(pointer, false));
}

EXPORT int cuMemHostAlloc(void** pointer, std::size_t bytes, unsigned int) {
  const Entry entry("cuMemHostAlloc");
  if (const int error = entry.in_context_apart(); error != kSuccess) return error;
  if (bytes == 0) return kInvalidValue;
  *pointer = Memory::instance().allocate_pinned(bytes);
  return *pointer == nullptr ? kOutOfMemory : kSuccess;
}

EXPORT int cuMemFreeHost(void* pointer) {
  const Entry entry("cuMemFreeHost");
  if (const int error = apart_from_captures(); error != kSuccess) return error;
  return entry.after(release(pointer, true));
}

EXPORT int cuMemcpyHtoDAsync_v2(void* to, const void* from, std::size_t bytes, void* stream) {
  const Entry entry("cuMemcpyHtoDAsync");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  return give_copy(to, from, bytes, stream, true, false);
}

EXPORT int cuMemcpyDtoHAsync_v2(void* to, const void* from, std::size_t bytes, void* stream) {
  const Entry entry("cuMemcpyDtoHAsync");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  return give_copy(to, from, bytes, stream, false, true);
}

EXPORT int cuMemcpyDtoDAsync_v2(void* to, const void* from, std::size_t bytes, void* stream) {
  const Entry entry("cuMemcpyDtoDAsync");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  return give_copy(to, from, bytes, stream, true, true);
}

EXPORT int cuMemsetD8Async(void* to, unsigned char value, std::size_t bytes, void* handle) {
  const Entry entry("cuMemsetD8Async");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  Stream* stream = stream_of(handle);
  if (stream == nullptr) return kInvalidHandle;
  if (!Memory::instance().holds(to, bytes)) return kInvalidValue;
  Operation operation;
  operation.kind = Operation::Kind::Fill;
  operation.to = to;
  operation.bytes = bytes;
  operation.to_device = true;
  operation.value = value;
  Machine::instance().give(stream, std::move(operation));
  return kSuccess;
}

EXPORT int cuStreamCreate(void** stream, unsigned int) {
  const Entry entry("cuStreamCreate");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  *stream = Machine::instance().make_stream(context_stack().back());
  return kSuccess;
}

EXPORT int cuStreamDestroy_v2(void* handle) {
  const Entry entry("cuStreamDestroy");
  Stream* stream = stream_of(handle);
  if (stream == nullptr) return kInvalidHandle;
  Machine::instance().destroy(stream);
  return entry.after(kSuccess);
}

EXPORT int cuStreamSynchronize(void* handle) {
  const Entry entry("cuStreamSynchronize");
  if (const int error = entry.in_context_apart(); error != kSuccess) return error;
  Stream* stream = stream_of(handle);
  if (stream == nullptr) return kInvalidHandle;
  if (const int error = not_captured(*stream); error != kSuccess) return error;
  Record::instance().synchronize(stream);
  return waited(Machine::instance().finish(stream));
}

EXPORT int cuStreamWaitEvent(void* stream_handle, void* event_handle, unsigned int) {
  const Entry entry("cuStreamWaitEvent");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  Stream* stream = stream_of(stream_handle);
  const Event* event = event_of(event_handle);
  if (stream == nullptr || event == nullptr) return kInvalidHandle;
  if (const int error = not_captured(*stream); error != kSuccess) return error;
  if (event->latest == nullptr) return kSuccess;
  Operation operation;
  operation.kind = Operation::Kind::Wait;
  operation.firing = event->latest;
  Machine::instance().give(stream, std::move(operation));
  return kSuccess;
}

EXPORT int cuEventCreate(void** event, unsigned int) {
  const Entry entry("cuEventCreate");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  *event = Machine::instance().make_event(context_stack().back());
  return kSuccess;
}

EXPORT int cuEventDestroy_v2(void* handle) {
  const Entry entry("cuEventDestroy");
  Event* event = event_of(handle);
  if (event == nullptr) return kInvalidHandle;
  Machine::instance().destroy(event);
  return entry.after(kSuccess);
}

EXPORT int cuEventRecord(void* event_handle, void* stream_handle) {
  const Entry entry("cuEventRecord");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  Stream* stream = stream_of(stream_handle);
  Event* event = event_of(event_handle);
  if (stream == nullptr || event == nullptr) return kInvalidHandle;
  if (const int error = not_captured(*stream); error != kSuccess) return error;
  Operation operation;
  operation.kind = Operation::Kind::Record;
  operation.firing = event->latest = std::make_shared<Firing>();
  Machine::instance().give(stream, std::move(operation));
  return kSuccess;
}

EXPORT int cuEventSynchronize(void* handle) {
  const Entry entry("cuEventSynchronize");
  if (const int error = entry.in_context_apart(); error != kSuccess) return error;
  const Event* event = event_of(handle);
  if (event == nullptr) return kInvalidHandle;
  Record::instance().synchronize(event->latest.get());
  return waited(Machine::instance().finish(event->latest));
}

EXPORT int cuEventQuery(void* handle) {
  const Entry entry("cuEventQuery");
  if (const int error = entry.in_context_apart(); error != kSuccess) return error;
  const Event* event = event_of(handle);
  if (event == nullptr) return kInvalidHandle;
  // Who asks again and again gets there in the end.
  if (event->latest != nullptr && !event->latest->fired) Machine::instance().run_one();
  if (const int state = usable(); state != kSuccess) return state;
  if (event->latest != nullptr && !event->latest->fired) return kNotReady;
  Machine::instance().finish(event->latest);
  return kSuccess;
}

EXPORT int cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  const Entry entry("cuEventElapsedTime");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  const Event* first = event_of(begin);
  const Event* second = event_of(end);
  if (first == nullptr || second == nullptr || first->latest == nullptr ||
      second->latest == nullptr)
    return kInvalidHandle;
  if (!first->latest->fired || !second->latest->fired) return kNotReady;
  const auto time = second->latest->when - first->latest->when;
  *milliseconds = std::chrono::duration<float, std::milli>(time).count();
  return kSuccess;
}

EXPORT int cuModuleLoadData(void** module, const void* image) {
  const Entry entry("cuModuleLoadData");
  if (const int error = entry.in_context_apart(); error != kSuccess) return error;
  return load_image(module, image);
}

EXPORT int cuModuleUnload(void* handle) {
  const Entry entry("cuModuleUnload");
  return unload_image(entry, handle);
}

// Libraries are modules here: there is one device, and kernels are functions.
EXPORT int cuLibraryLoadData(void** library, const void* image, int*, void**,
                             unsigned int jit_count, int*, void**, unsigned int count) {
  const Entry entry("cuLibraryLoadData");
  if (const int error = entry.in_context_apart(); error != kSuccess) return error;
  if (jit_count != 0 || count != 0) return kInvalidValue;
  if (!takes_libraries) return kNotSupported;
  return load_image(library, image);
}

EXPORT int cuLibraryUnload(void* handle) {
  const Entry entry("cuLibraryUnload");
  return unload_image(entry, handle);
}

EXPORT int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  const Entry entry("cuLibraryGetKernel");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  return find_kernel(kernel, library, name);
}

EXPORT int cuKernelGetFunction(void** function, void* kernel) {
  const Entry entry("cuKernelGetFunction");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  if (kernel == nullptr) return kInvalidHandle;
  *function = kernel;
  return kSuccess;
}

EXPORT int cuFuncLoad(void* function) {
  const Entry entry("cuFuncLoad");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  return function == nullptr ? kInvalidHandle : kSuccess;
}

EXPORT int cuModuleGetFunction(void** function, void* module, const char* name) {
  const Entry entry("cuModuleGetFunction");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  return find_kernel(function, module, name);
}

EXPORT int cuFuncGetAttribute(int* value, int attribute, void* function) {
  constexpr int kRegisters = 4;
  const Entry entry("cuFuncGetAttribute");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  if (function == nullptr || attribute != kRegisters) return kInvalidValue;
  *value = registers;
  return kSuccess;
}

EXPORT int cuFuncSetAttribute(void* function, int attribute, int value) {
  constexpr int kMaxDynamicShared = 8;
  const Entry entry("cuFuncSetAttribute");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  if (attribute != kMaxDynamicShared || value < 0) return kInvalidValue;
  static_cast<Kernel*>(function)->max_dynamic_shared = static_cast<std::size_t>(value);
  return kSuccess;
}

EXPORT int cuLaunchKernel(void* function, unsigned int grid_x, unsigned int grid_y,
                          unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                          unsigned int block_z, unsigned int shared_bytes, void* handle,
                          void** arguments, void**) {
  const Entry entry("cuLaunchKernel");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  Stream* stream = stream_of(handle);
  if (stream == nullptr) return kInvalidHandle;
  auto& kernel = *static_cast<Kernel*>(function);
  Operation operation;
  if (const int error = set_launch(operation, kernel, {grid_x, grid_y, grid_z},
                                   {block_x, block_y, block_z}, shared_bytes, arguments);
      error != kSuccess)
    return error;
  if (const int wild = wild_argument(kernel, operation.arguments); wild >= 0)
    return lose(kIllegalAddress,
                kernel.name + ": argument " + std::to_string(wild) + " points to no allocation");
  Machine::instance().give(stream, std::move(operation));
  return kSuccess;
}

EXPORT void heddle_cuda_sim_multiprocessors(unsigned int count) {
  multiprocessors = count == 0 ? kMultiprocessors : static_cast<int>(count);
}
EXPORT void heddle_cuda_sim_registers(unsigned int count) { registers = static_cast<int>(count); }
EXPORT void heddle_cuda_sim_libraries(int there) { takes_libraries = there != 0; }
EXPORT unsigned long heddle_cuda_sim_live() {
  const std::lock_guard lock(mutex());
  return live() + objects();
}
