// The NVRTC functions that the engine uses, over the host's compiler.
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <vector>

#include "tests/cuda_sim/entry.h"
#include "tests/cuda_sim/host_compiler.h"
#include "tests/cuda_sim/inject.h"
#include "tests/cuda_sim/module.h"

namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidInput = 3;
constexpr int kCompilation = 6;
constexpr int kBuiltinFailure = 7;
constexpr int kInternal = 11;

struct Program {
  std::string text;
  std::string log;
  std::vector<char> image;
};

/// Counts the call. Whether it is to fail.
bool fails(const char* function) { return heddle::sim::Injector::instance().enter(function) != 0; }

}  // namespace

EXPORT const char* nvrtcGetErrorString(int result) {
  return result == kSuccess          ? "NVRTC_SUCCESS"
         : result == kInternal       ? "NVRTC_ERROR_INTERNAL_ERROR"
         : result == kCompilation    ? "NVRTC_ERROR_COMPILATION"
         : result == kBuiltinFailure ? "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE"
                                     : "NVRTC_ERROR_INVALID_INPUT";
}

/// 12.9 of a copy under the name of NVRTC 12.
EXPORT int nvrtcVersion(int* major, int* minor) {
  if (fails("nvrtcVersion")) return kInternal;
  Dl_info info{};
  const bool is_old = ::dladdr(reinterpret_cast<const void*>(&nvrtcVersion), &info) != 0 &&
                      std::string(info.dli_fname).ends_with("libnvrtc.so.12");
  *major = is_old ? 12 : 13;
  *minor = is_old ? 9 : 0;
  return kSuccess;
}

EXPORT int nvrtcGetNumSupportedArchs(int* count) {
  if (fails("nvrtcGetNumSupportedArchs")) return kInternal;
  *count = 3;
  return kSuccess;
}

EXPORT int nvrtcGetSupportedArchs(int* archs) {
  if (fails("nvrtcGetSupportedArchs")) return kInternal;
  const int supported[] = {80, 90, 100};
  std::memcpy(archs, supported, sizeof supported);
  return kSuccess;
}

EXPORT int nvrtcCreateProgram(Program** program, const char* text, const char*, int headers,
                              const char* const*, const char* const*) {
  if (fails("nvrtcCreateProgram")) return kInternal;
  if (headers != 0) return kInvalidInput;
  *program = new Program{text, {}, {}};
  ++heddle::sim::objects();
  return kSuccess;
}

EXPORT int nvrtcDestroyProgram(Program** program) {
  delete *program;
  --heddle::sim::objects();
  *program = nullptr;
  return fails("nvrtcDestroyProgram") ? kInternal : kSuccess;
}

EXPORT int nvrtcCompileProgram(Program* program, int, const char* const*) {
  const int told = heddle::sim::Injector::instance().enter("nvrtcCompileProgram");
  if (told == kBuiltinFailure) program->log = "nvrtc: error: failed to open the built-ins";
  if (told != 0) return told == kBuiltinFailure ? told : kInternal;
  heddle::sim::HostImage image = heddle::sim::compile_for_host(program->text);
  program->log = image.log;
  if (image.bytes.empty()) return kCompilation;
  program->image = heddle::sim::wrap_image(image.bytes);
  return kSuccess;
}

EXPORT int nvrtcGetProgramLogSize(Program* program, std::size_t* size) {
  if (fails("nvrtcGetProgramLogSize")) return kInternal;
  *size = program->log.size() + 1;
  return kSuccess;
}

EXPORT int nvrtcGetProgramLog(Program* program, char* log) {
  if (fails("nvrtcGetProgramLog")) return kInternal;
  std::memcpy(log, program->log.c_str(), program->log.size() + 1);
  return kSuccess;
}

EXPORT int nvrtcGetCUBINSize(Program* program, std::size_t* size) {
  if (fails("nvrtcGetCUBINSize")) return kInternal;
  *size = program->image.size();
  return kSuccess;
}

EXPORT int nvrtcGetCUBIN(Program* program, char* image) {
  if (fails("nvrtcGetCUBIN")) return kInternal;
  if (program->image.empty()) return kInvalidInput;
  std::memcpy(image, program->image.data(), program->image.size());
  return kSuccess;
}
