// ONNX Runtime through its C API, from any libonnxruntime.so of version 1.12 or later (wheels carry one).
//
// The C API is a table of functions whose slots never move, so the few that are used are declared here by their place
// in it and no header is needed. Options: library (path); every other one is a session configuration entry.
// Source: onnxruntime_c_api.h, struct OrtApi, version 12.

#include <cstdint>
#include <dlfcn.h>
#include <stdexcept>

#include "bench/peers/protocol.h"

using heddle::bench::peers::Arguments;
using heddle::bench::peers::Array;

namespace {

enum Slot : std::size_t {
  kGetErrorMessage = 2,
  kCreateEnv = 3,
  kCreateSession = 7,
  kRun = 9,
  kCreateSessionOptions = 10,
  kSetIntraOpNumThreads = 24,
  kSetInterOpNumThreads = 25,
  kGetOutputCount = 31,
  kGetOutputName = 37,
  kCreateTensorWithData = 49,
  kGetTensorMutableData = 51,
  kGetElementType = 60,
  kGetDimensionsCount = 61,
  kGetDimensions = 62,
  kGetTensorTypeAndShape = 65,
  kCreateCpuMemoryInfo = 69,
  kGetDefaultAllocator = 78,
  kReleaseSession = 95,
  kReleaseValue = 96,
  kReleaseShapeInfo = 99,
  kAddSessionConfigEntry = 130,
};
constexpr std::uint32_t kApiVersion = 12;

struct DTypeRow {
  const char* name;
  int number;  ///< ONNXTensorElementDataType
};
constexpr DTypeRow kDTypes[] = {{"float32", 1}, {"uint8", 2}, {"int8", 3},     {"int32", 6},
                                {"int64", 7},   {"bool", 9},  {"float16", 10}, {"float64", 11}};

int dtype_number(const std::string& name) {
  for (const DTypeRow& row : kDTypes)
    if (name == row.name) return row.number;
  throw std::runtime_error("unknown dtype " + name);
}

std::string dtype_name(int number) {
  for (const DTypeRow& row : kDTypes)
    if (number == row.number) return row.name;
  throw std::runtime_error("unknown element type " + std::to_string(number));
}

/// The library's table of functions. Handles are opaque: void* stands for all of them.
class Api {
 public:
  explicit Api(const std::string& library) {
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw std::runtime_error(dlerror());
    const auto base = reinterpret_cast<const Base* (*)()>(dlsym(handle, "OrtGetApiBase"));
    if (base == nullptr) throw std::runtime_error(library + " has no OrtGetApiBase");
    version_ = base()->version();
    table_ = base()->api(kApiVersion);
    if (table_ == nullptr) throw std::runtime_error(library + " is older than 1.12");
  }

  /// Calls a function that returns a status. @throws std::runtime_error with its message.
  template <typename... A>
  void call(Slot slot, A... arguments) const {
    void* const status = reinterpret_cast<void* (*)(A...)>(table_[slot])(arguments...);
    if (status == nullptr) return;
    throw std::runtime_error(
        reinterpret_cast<const char* (*)(const void*)>(table_[kGetErrorMessage])(status));
  }
  void release(Slot slot, void* handle) const {
    reinterpret_cast<void (*)(void*)>(table_[slot])(handle);
  }
  const std::string& version() const { return version_; }

 private:
  struct Base {
    void* const* (*api)(std::uint32_t);
    const char* (*version)();
  };
  void* const* table_ = nullptr;
  std::string version_;
};

class OnnxRuntimePeer final : public heddle::bench::peers::Peer {
 public:
  ~OnnxRuntimePeer() override {
    if (session_ == nullptr) return;
    release_values();
    api_->release(kReleaseSession, session_);
  }

  void load(const Arguments& arguments) override {
    api_ = std::make_unique<Api>(arguments.option("library", "libonnxruntime.so.1"));
    void* environment = nullptr;
    void* options = nullptr;
    constexpr int kErrorsOnly = 3;
    api_->call(kCreateEnv, kErrorsOnly, "peers", &environment);
    api_->call(kCreateSessionOptions, &options);
    api_->call(kSetIntraOpNumThreads, options, arguments.threads);
    api_->call(kSetInterOpNumThreads, options, 1);
    for (const auto& [key, value] : arguments.options)
      if (key != "library") api_->call(kAddSessionConfigEntry, options, key.c_str(), value.c_str());
    api_->call(kCreateSession, environment, arguments.model.c_str(), options, &session_);
    api_->call(kCreateCpuMemoryInfo, 0, 0, &memory_info_);
    name_outputs();
  }

  void first_call(std::vector<Array>& inputs) override {
    release_values();
    for (Array& input : inputs) {
      void* value = nullptr;
      api_->call(kCreateTensorWithData, memory_info_, input.data.get(), input.bytes,
                 input.sizes.data(), input.sizes.size(), dtype_number(input.dtype), &value);
      inputs_.push_back(value);
      input_names_.push_back(input.name.c_str());
    }
    outputs_.assign(output_names_.size(), nullptr);
    call();
  }

  /// The outputs of the first call are given to later ones, which then allocate none.
  void call() override { run_into(outputs_); }

  std::function<void()> caller() override {
    const auto outputs = std::make_shared<Values>(*api_, output_names_.size());
    return [this, outputs] { run_into(outputs->values); };
  }

  std::vector<Array> outputs() override {
    std::vector<Array> arrays;
    for (std::size_t k = 0; k < outputs_.size(); ++k) arrays.push_back(output(k));
    return arrays;
  }

  nlohmann::json facts() override { return {{"version", api_->version()}}; }

 private:
  /// Outputs of a caller: made by the library at its first call, written again by later ones.
  struct Values {
    Values(const Api& owner, std::size_t count) : api(owner), values(count, nullptr) {}
    ~Values() {
      for (void* value : values) api.release(kReleaseValue, value);
    }
    const Api& api;
    std::vector<void*> values;
  };

  void run_into(std::vector<void*>& outputs) const {
    api_->call(kRun, session_, static_cast<void*>(nullptr), input_names_.data(), inputs_.data(),
               inputs_.size(), output_names_.data(), output_names_.size(), outputs.data());
  }

  void release_values() {
    for (void* value : inputs_) api_->release(kReleaseValue, value);
    for (void* value : outputs_) api_->release(kReleaseValue, value);
    inputs_.clear();
    outputs_.clear();
    input_names_.clear();
  }

  void name_outputs() {
    void* allocator = nullptr;
    std::size_t count = 0;
    api_->call(kGetDefaultAllocator, &allocator);
    api_->call(kGetOutputCount, session_, &count);
    for (std::size_t k = 0; k < count; ++k) {
      char* name = nullptr;  // the allocator's; needed until the end
      api_->call(kGetOutputName, session_, k, allocator, &name);
      output_names_.push_back(name);
    }
  }

  Array output(std::size_t k) {
    void* info = nullptr;
    int type = 0;
    std::size_t rank = 0;
    void* data = nullptr;
    api_->call(kGetTensorTypeAndShape, outputs_[k], &info);
    api_->call(kGetElementType, info, &type);
    api_->call(kGetDimensionsCount, info, &rank);
    std::vector<std::int64_t> sizes(rank);
    api_->call(kGetDimensions, info, sizes.data(), rank);
    api_->release(kReleaseShapeInfo, info);
    api_->call(kGetTensorMutableData, outputs_[k], &data);
    return heddle::bench::peers::copied(output_names_[k], dtype_name(type), sizes, data);
  }

  std::unique_ptr<Api> api_;
  void* session_ = nullptr;
  void* memory_info_ = nullptr;
  std::vector<const char*> input_names_;
  std::vector<const char*> output_names_;
  std::vector<void*> inputs_;
  std::vector<void*> outputs_;
};

}  // namespace

int main(int argc, char** argv) {
  OnnxRuntimePeer peer;
  return heddle::bench::peers::serve(argc, argv, peer);
}
