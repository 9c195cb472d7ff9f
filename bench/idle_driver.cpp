// The simulated CUDA driver, with functions that queue and wait which can be told to do nothing at once: what a call costs then is
// the host's work alone. Found by a program that opens it in the simulator's place ($HEDDLE_CUDA_SIM_PATH).
#include <array>
#include <cstdio>
#include <dlfcn.h>
#include <string>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

bool idle = false;

struct Function {
  const char* name = nullptr;  ///< without the version; null: not called yet
  unsigned long calls = 0;
};
std::array<Function, 32> functions;

Function& function_of(const char* name) {
  for (Function& function : functions) {
    if (function.name == nullptr) function.name = name;
    if (function.name == name) return function;
  }
  return functions.back();
}

/// Counts a call while the driver is idle, else makes it.
template <typename... Arguments>
int call(const char* symbol, unsigned long& calls, Arguments... arguments) {
  if (idle) {
    ++calls;
    return 0;
  }
  return reinterpret_cast<int (*)(Arguments...)>(::dlsym(RTLD_NEXT, symbol))(arguments...);
}

unsigned long& calls_of(const char* name) { return function_of(name).calls; }

}  // namespace

EXPORT int cuCtxPushCurrent_v2(void* context) {
  static unsigned long& calls = calls_of("cuCtxPushCurrent");
  return call("cuCtxPushCurrent_v2", calls, context);
}
EXPORT int cuCtxPopCurrent_v2(void** context) {
  static unsigned long& calls = calls_of("cuCtxPopCurrent");
  return call("cuCtxPopCurrent_v2", calls, context);
}
EXPORT int cuThreadExchangeStreamCaptureMode(int* mode) {
  static unsigned long& calls = calls_of("cuThreadExchangeStreamCaptureMode");
  return call("cuThreadExchangeStreamCaptureMode", calls, mode);
}
EXPORT int cuStreamIsCapturing(void* stream, int* status) {
  static unsigned long& calls = calls_of("cuStreamIsCapturing");
  return call("cuStreamIsCapturing", calls, stream, status);
}
EXPORT int cuStreamSynchronize(void* stream) {
  static unsigned long& calls = calls_of("cuStreamSynchronize");
  return call("cuStreamSynchronize", calls, stream);
}
EXPORT int cuStreamWaitEvent(void* stream, void* event, unsigned int flags) {
  static unsigned long& calls = calls_of("cuStreamWaitEvent");
  return call("cuStreamWaitEvent", calls, stream, event, flags);
}
EXPORT int cuEventRecord(void* event, void* stream) {
  static unsigned long& calls = calls_of("cuEventRecord");
  return call("cuEventRecord", calls, event, stream);
}
EXPORT int cuEventQuery(void* event) {
  static unsigned long& calls = calls_of("cuEventQuery");
  return call("cuEventQuery", calls, event);
}
EXPORT int cuEventSynchronize(void* event) {
  static unsigned long& calls = calls_of("cuEventSynchronize");
  return call("cuEventSynchronize", calls, event);
}
EXPORT int cuGraphLaunch(void* graph, void* stream) {
  static unsigned long& calls = calls_of("cuGraphLaunch");
  return call("cuGraphLaunch", calls, graph, stream);
}
EXPORT int cuGraphExecKernelNodeSetParams_v2(void* graph, void* node, const void* parameters) {
  static unsigned long& calls = calls_of("cuGraphExecKernelNodeSetParams");
  return call("cuGraphExecKernelNodeSetParams_v2", calls, graph, node, parameters);
}
EXPORT int cuGraphExecMemcpyNodeSetParams(void* graph, void* node, const void* parameters,
                                          void* context) {
  static unsigned long& calls = calls_of("cuGraphExecMemcpyNodeSetParams");
  return call("cuGraphExecMemcpyNodeSetParams", calls, graph, node, parameters, context);
}

/// Whether the functions above do nothing, and succeed, from now on; they are counted anew.
EXPORT void heddle_idle_driver(int on) {
  idle = on != 0;
  for (Function& function : functions) function.calls = 0;
}

/// Those that were called since: lines of a name and a number.
EXPORT const char* heddle_idle_driver_called() {
  static std::string text;
  text.clear();
  for (const Function& function : functions)
    if (function.calls != 0)
      text += std::string(function.name) + " " + std::to_string(function.calls) + "\n";
  return text.c_str();
}
