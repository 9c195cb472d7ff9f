// The Driver API functions that the engine uses, over the host. Streams do their work when it is
// given to them.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tests/cuda_sim/memory.h"
#include "tests/cuda_sim/module.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

using heddle::sim::BlockRunner;
using heddle::sim::Call;
using heddle::sim::Kernel;
using heddle::sim::Memory;
using heddle::sim::Module;

namespace {

enum Result : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNotFound = 500,
  kIllegalAddress = 700,
  kLaunchFailed = 719,
};

const std::map<int, std::pair<const char*, const char*>> kErrors = {
    {kSuccess, {"CUDA_SUCCESS", "no error"}},
    {kInvalidValue, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
    {kOutOfMemory, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
    {kInvalidDevice, {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"}},
    {kInvalidImage, {"CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"}},
    {kInvalidContext, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
    {kNotFound, {"CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
    {kIllegalAddress, {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"}},
    {kLaunchFailed, {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}},
};

struct Event {
  std::chrono::steady_clock::time_point when;
};

/// Everything below runs under this.
std::mutex& mutex() {
  static std::mutex one;
  return one;
}

/// An error that the context does not survive, as on the device: every later call gives it again.
int lost = kSuccess;

thread_local int contexts_pushed = 0;

int usable() {
  if (lost != kSuccess) return lost;
  return contexts_pushed > 0 ? kSuccess : kInvalidContext;
}

int lose(int error, const std::string& why) {
  std::fprintf(stderr, "cuda-sim: %s\n", why.c_str());
  return lost = error;
}

int copy(void* to, const void* from, std::size_t bytes, bool to_device, bool from_device) {
  const std::lock_guard lock(mutex());
  if (const int state = usable(); state != kSuccess) return state;
  const Memory& memory = Memory::instance();
  if (bytes == 0) return kSuccess;
  if ((to_device && !memory.holds(to, bytes)) || (from_device && !memory.holds(from, bytes)))
    return kInvalidValue;
  std::memcpy(to, from, bytes);
  return kSuccess;
}

/// The first pointer argument that points to no live allocation, or -1.
int wild_argument(const Kernel& kernel, void** arguments) {
  for (std::size_t k = 0; k < kernel.kinds.size(); ++k) {
    if (kernel.kinds[k] != 'p') continue;
    const void* pointer = *static_cast<void**>(arguments[k]);
    if (pointer != nullptr && !Memory::instance().holds(pointer, 0)) return static_cast<int>(k);
  }
  return -1;
}

}  // namespace

EXPORT int cuInit(unsigned int) { return kSuccess; }

EXPORT int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
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
  return kSuccess;
}

EXPORT int cuDeviceGet(int* device, int index) {
  *device = index;
  return index == 0 ? kSuccess : kInvalidDevice;
}

EXPORT int cuDeviceGetName(char* name, int size, int) {
  std::snprintf(name, static_cast<std::size_t>(size), "heddle simulated device");
  return kSuccess;
}

EXPORT int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  *bytes = Memory::kCapacity;
  return kSuccess;
}

EXPORT int cuDeviceGetAttribute(int* value, int attribute, int) {
  static const std::map<int, int> kValues = {{1, 1024}, {8, 49152}, {10, 32},       {16, 2},
                                             {75, 9},   {76, 0},    {97, 99 * 1024}};
  const auto found = kValues.find(attribute);
  if (found == kValues.end()) return kInvalidValue;
  *value = found->second;
  return kSuccess;
}

EXPORT int cuDevicePrimaryCtxRetain(void** context, int) {
  static int primary;
  *context = &primary;
  return kSuccess;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int) {
  // The context of a fresh device: errors do not outlive it.
  const std::lock_guard lock(mutex());
  lost = kSuccess;
  return kSuccess;
}

EXPORT int cuCtxPushCurrent_v2(void*) {
  ++contexts_pushed;
  return kSuccess;
}

EXPORT int cuCtxPopCurrent_v2(void**) {
  if (contexts_pushed == 0) return kInvalidContext;
  --contexts_pushed;
  return kSuccess;
}

EXPORT int cuCtxSynchronize() {
  const std::lock_guard lock(mutex());
  return usable();
}

EXPORT int cuMemAlloc_v2(void** pointer, std::size_t bytes) {
  const std::lock_guard lock(mutex());
  if (const int state = usable(); state != kSuccess) return state;
  if (bytes == 0) return kInvalidValue;
  *pointer = Memory::instance().allocate(bytes);
  return *pointer == nullptr ? kOutOfMemory : kSuccess;
}

EXPORT int cuMemFree_v2(void* pointer) {
  const std::lock_guard lock(mutex());
  return Memory::instance().release(pointer) ? kSuccess : kInvalidValue;
}

EXPORT int cuMemcpyHtoDAsync_v2(void* to, const void* from, std::size_t bytes, void*) {
  return copy(to, from, bytes, true, false);
}

EXPORT int cuMemcpyDtoHAsync_v2(void* to, const void* from, std::size_t bytes, void*) {
  return copy(to, from, bytes, false, true);
}

EXPORT int cuMemcpyDtoDAsync_v2(void* to, const void* from, std::size_t bytes, void*) {
  return copy(to, from, bytes, true, true);
}

EXPORT int cuMemsetD8Async(void* to, unsigned char value, std::size_t bytes, void*) {
  const std::lock_guard lock(mutex());
  if (const int state = usable(); state != kSuccess) return state;
  if (!Memory::instance().holds(to, bytes)) return kInvalidValue;
  std::memset(to, value, bytes);
  return kSuccess;
}

EXPORT int cuStreamCreate(void** stream, unsigned int) {
  *stream = new char;
  return usable();
}

EXPORT int cuStreamDestroy_v2(void* stream) {
  delete static_cast<char*>(stream);
  return kSuccess;
}

EXPORT int cuStreamSynchronize(void*) {
  const std::lock_guard lock(mutex());
  return usable();
}

EXPORT int cuStreamWaitEvent(void*, void*, unsigned int) { return usable(); }

EXPORT int cuEventCreate(void** event, unsigned int) {
  *event = new Event{};
  return usable();
}

EXPORT int cuEventDestroy_v2(void* event) {
  delete static_cast<Event*>(event);
  return kSuccess;
}

EXPORT int cuEventRecord(void* event, void*) {
  static_cast<Event*>(event)->when = std::chrono::steady_clock::now();
  return usable();
}

EXPORT int cuEventSynchronize(void*) { return usable(); }

EXPORT int cuEventQuery(void*) { return usable(); }

EXPORT int cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  const auto time = static_cast<Event*>(end)->when - static_cast<Event*>(begin)->when;
  *milliseconds = std::chrono::duration<float, std::milli>(time).count();
  return usable();
}

EXPORT int cuModuleLoadData(void** module, const void* image) {
  const std::lock_guard lock(mutex());
  if (const int state = usable(); state != kSuccess) return state;
  std::unique_ptr<Module> loaded = Module::load(image);
  if (loaded == nullptr) return kInvalidImage;
  *module = loaded.release();
  return kSuccess;
}

EXPORT int cuModuleUnload(void* module) {
  const std::lock_guard lock(mutex());
  delete static_cast<Module*>(module);
  return kSuccess;
}

EXPORT int cuModuleGetFunction(void** function, void* module, const char* name) {
  const std::lock_guard lock(mutex());
  *function = static_cast<Module*>(module)->find(name);
  return *function == nullptr ? kNotFound : kSuccess;
}

EXPORT int cuFuncSetAttribute(void* function, int attribute, int value) {
  constexpr int kMaxDynamicShared = 8;
  if (attribute != kMaxDynamicShared || value < 0) return kInvalidValue;
  static_cast<Kernel*>(function)->max_dynamic_shared = static_cast<std::size_t>(value);
  return kSuccess;
}

EXPORT int cuLaunchKernel(void* function, unsigned int grid_x, unsigned int grid_y,
                          unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                          unsigned int block_z, unsigned int shared_bytes, void*, void** arguments,
                          void**) {
  const std::lock_guard lock(mutex());
  if (const int state = usable(); state != kSuccess) return state;
  const Kernel& kernel = *static_cast<Kernel*>(function);
  if (grid_x == 0 || block_x == 0 || block_x > 1024 || shared_bytes > kernel.max_dynamic_shared)
    return kInvalidValue;
  if (const int wild = wild_argument(kernel, arguments); wild >= 0)
    return lose(kIllegalAddress,
                kernel.name + ": argument " + std::to_string(wild) + " points to no allocation");
  Call call;
  call.kernel = kernel.entry;
  call.arguments = arguments;
  call.grid = {grid_x, grid_y, grid_z};
  call.block = {block_x, block_y, block_z};
  call.dynamic_shared_bytes = shared_bytes;
  kernel.module->fill(call);
  if (const std::string problem = BlockRunner::instance().run(call); !problem.empty())
    return lose(kLaunchFailed, kernel.name + ": " + problem);
  if (const std::string damage = Memory::instance().damage(); !damage.empty())
    return lose(kIllegalAddress, kernel.name + ": " + damage);
  return kSuccess;
}
