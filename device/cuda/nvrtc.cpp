#include "device/cuda/nvrtc.h"

#include <algorithm>
#include <cstddef>
#include <dlfcn.h>
#include <filesystem>

#include "device/cuda/driver.h"
#include "device/cuda/dynamic_library.h"
#include "heddle/error.h"

namespace heddle::device::cuda {
namespace {

using Program = struct ProgramTag*;
using Result = int;
constexpr Result kInvalidOption = 5;
constexpr Result kBuiltinFailure = 7;

/// A library by its path, or those that a folder may hold.
std::vector<std::string> libraries_at(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return {path};
  return {path + "/libnvrtc.so.13", path + "/libnvrtc.so.12"};
}

}  // namespace

std::vector<std::string> nvrtc_paths(const std::string& explicit_path) {
  if (!explicit_path.empty()) return libraries_at(explicit_path);
  if (const std::string path = environment("HEDDLE_NVRTC_PATH"); !path.empty())
    return libraries_at(path);
  return toolkit_paths({"libnvrtc.so.13", "libnvrtc.so.12"});
}

/// The part of the ABI that is used.
struct Nvrtc::Api {
  explicit Api(const std::vector<std::string>& paths) : library("NVRTC", paths) {
    library.load(get_error_string, "nvrtcGetErrorString");
    library.load(get_version, "nvrtcVersion");
    library.load(get_arch_count, "nvrtcGetNumSupportedArchs");
    library.load(get_archs, "nvrtcGetSupportedArchs");
    library.load(create, "nvrtcCreateProgram");
    library.load(destroy, "nvrtcDestroyProgram");
    library.load(compile, "nvrtcCompileProgram");
    library.load(get_log_size, "nvrtcGetProgramLogSize");
    library.load(get_log, "nvrtcGetProgramLog");
    library.load(get_cubin_size, "nvrtcGetCUBINSize");
    library.load(get_cubin, "nvrtcGetCUBIN");
    check(get_version(&major, &minor), "nvrtcVersion");
    load_builtins();
    int count = 0;
    check(get_arch_count(&count), "nvrtcGetNumSupportedArchs");
    archs.resize(static_cast<std::size_t>(count));
    if (count > 0) check(get_archs(archs.data()), "nvrtcGetSupportedArchs");
  }

  /// NVRTC opens its built-ins by name at the first compile, which finds what is loaded already: those beside it,
  /// wherever the loader looks. Without a file there it is left to the loader.
  void load_builtins() {
    Dl_info info{};
    std::error_code error;
    if (::dladdr(reinterpret_cast<const void*>(get_version), &info) != 0)
      builtins = std::filesystem::canonical(info.dli_fname, error).parent_path() /
                 ("libnvrtc-builtins.so." + std::to_string(major) + "." + std::to_string(minor));
    if (std::filesystem::exists(builtins, error)) ::dlopen(builtins.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  [[noreturn]] void fail_builtins(const std::string& log) const {
    throw DeviceError({.what = "NVRTC cannot load its built-ins",
                       .where = library.path(),
                       .expected = builtins.string() + ", or " + builtins.filename().string() +
                                   " where the loader looks",
                       .got = log});
  }

  void check(Result result, const char* function) const {
    if (result == 0) return;
    throw CompileError({.what = std::string(function) + " failed",
                        .where = library.path(),
                        .expected = {},
                        .got = get_error_string(result)});
  }
  std::string log_of(Program program) const {
    std::size_t size = 0;
    check(get_log_size(program, &size), "nvrtcGetProgramLogSize");
    std::string log(size, '\0');
    check(get_log(program, log.data()), "nvrtcGetProgramLog");
    while (!log.empty() && (log.back() == '\0' || log.back() == '\n')) log.pop_back();
    return log;
  }

  DynamicLibrary library;
  std::filesystem::path builtins;  ///< where they are looked for first
  int major = 0;
  int minor = 0;
  std::vector<int> archs;
  const char* (*get_error_string)(Result) = nullptr;
  Result (*get_version)(int*, int*) = nullptr;
  Result (*get_arch_count)(int*) = nullptr;
  Result (*get_archs)(int*) = nullptr;
  Result (*create)(Program*, const char*, const char*, int, const char* const*,
                   const char* const*) = nullptr;
  Result (*destroy)(Program*) = nullptr;
  Result (*compile)(Program, int, const char* const*) = nullptr;
  Result (*get_log_size)(Program, std::size_t*) = nullptr;
  Result (*get_log)(Program, char*) = nullptr;
  Result (*get_cubin_size)(Program, std::size_t*) = nullptr;
  Result (*get_cubin)(Program, char*) = nullptr;
};

Nvrtc::Nvrtc(const std::string& explicit_path, int driver)
    : api_(open(nvrtc_paths(explicit_path), driver)), driver_(driver) {}
Nvrtc::~Nvrtc() = default;

std::unique_ptr<Nvrtc::Api> Nvrtc::open(const std::vector<std::string>& paths, int driver) {
  std::unique_ptr<Api> later;
  for (const std::string& path : paths) {
    std::unique_ptr<Api> api;
    try {
      api = std::make_unique<Api>(std::vector{path});
    } catch (const DeviceError&) {
      continue;
    }
    if (driver == 0 || api->major <= driver / 1000) return api;
    if (later == nullptr) later = std::move(api);
  }
  // None loads: the error tells of all.
  return later != nullptr ? std::move(later) : std::make_unique<Api>(paths);
}

const std::string& Nvrtc::path() const { return api_->library.path(); }
int Nvrtc::major() const { return api_->major; }
int Nvrtc::minor() const { return api_->minor; }

std::string Nvrtc::version() const {
  return "nvrtc " + std::to_string(major()) + "." + std::to_string(minor());
}

std::string Nvrtc::versions() const {
  return version() + (driver_ == 0 ? std::string() : ", driver " + version_text(driver_));
}

bool Nvrtc::supports(int arch) const {
  return std::find(api_->archs.begin(), api_->archs.end(), arch) != api_->archs.end();
}

namespace {

// Generated text defines values that nothing uses (177) and compares unsigned ones with 0 (186).
constexpr const char* kFixedOptions[] = {"--std=c++17", "--modify-stack-limit=false",
                                         "--diag-suppress=177,186"};

}  // namespace

std::string Nvrtc::fixed_options() {
  std::string text;
  for (const char* option : kFixedOptions) text += std::string(option) + " ";
  return text;
}

CompiledText Nvrtc::compile_cubin(const std::string& text, const std::string& name,
                                  const std::string& arch,
                                  const std::vector<std::string>& options) const {
  const Api& api = *api_;
  Program program = nullptr;
  api.check(api.create(&program, text.c_str(), (name + ".cu").c_str(), 0, nullptr, nullptr),
            "nvrtcCreateProgram");
  const auto destroy = [&api](Program* p) { api.destroy(p); };
  const std::unique_ptr<Program, decltype(destroy)> owner(&program, destroy);

  const std::string target = "-arch=" + arch;
  std::vector<const char*> given = {target.c_str()};
  given.insert(given.end(), std::begin(kFixedOptions), std::end(kFixedOptions));
  for (const std::string& option : options) given.push_back(option.c_str());
  // The built-in headers are not needed, and the cache of NVRTC 12.9 and later is not ours. NVRTC
  // without these options refuses them before it looks at the text.
  std::vector<const char*> wished = given;
  wished.insert(wished.end(), {"--minimal", "--no-cache"});
  const auto run = [&](const std::vector<const char*>& list) {
    return api.compile(program, static_cast<int>(list.size()), list.data());
  };
  Result result = run(wished);
  if (result == kInvalidOption) result = run(given);

  CompiledText compiled;
  compiled.log = api.log_of(program);
  if (result == kBuiltinFailure) api.fail_builtins(compiled.log);
  if (result != 0)
    throw CompileError({.what = "CUDA text of " + name + " does not compile for " + arch,
                        .where = versions(),
                        .expected = {},
                        .got = api.get_error_string(result) + std::string("\n") + compiled.log});
  std::size_t size = 0;
  api.check(api.get_cubin_size(program, &size), "nvrtcGetCUBINSize");
  compiled.image.resize(size);
  api.check(api.get_cubin(program, compiled.image.data()), "nvrtcGetCUBIN");
  return compiled;
}

}  // namespace heddle::device::cuda
