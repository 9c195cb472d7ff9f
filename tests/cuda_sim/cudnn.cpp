// The cuDNN functions that the engine uses: a kernel that adds up one element of a convolution at a time, behind the checks that
// the library's documentation asks for. Heuristics offer engines first that nobody may take who wants plain sums, and one that
// cannot be had; results of these would be wrong. Deep sums take a workspace and two operations, so that what is captured
// has more than one form.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "tests/cuda_sim/entry.h"
#include "tests/cuda_sim/host_compiler.h"
#include "tests/cuda_sim/inject.h"
#include "tests/cuda_sim/library_text.h"
#include "tests/cuda_sim/module.h"

extern "C" int cuModuleLoadData(void** module, const void* image);
extern "C" int cuModuleUnload(void* module);
extern "C" int cuModuleGetFunction(void** function, void* module, const char* name);
extern "C" int cuMemsetD8Async(void* to, unsigned char value, std::size_t bytes, void* stream);
extern "C" int cuLaunchKernel(void* function, unsigned int grid_x, unsigned int grid_y,
                              unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                              unsigned int block_z, unsigned int shared_bytes, void* stream,
                              void** arguments, void** extra);

namespace {

enum Status : int {
  kOk = 0,
  kNotInitialized = 1001,
  kBadParam = 2000,
  kNotFinalized = 2004,
  kNotSupported = 3000,
  kInternal = 4000,
  kExecutionFailed = 5000,
};

enum Kind : int {
  kConvolution = 1,
  kEngine = 2,
  kConfig = 3,
  kHeuristics = 4,
  kPlan = 5,
  kForward = 10,
  kGraph = 15,
  kPack = 16,
  kTensor = 17,
};

enum Type : int {
  kOfHandle = 0,
  kOfDataType = 1,
  kOfInt64 = 3,
  kOfFloat = 4,
  kOfPointer = 6,
  kOfConvolutionMode = 7,
  kOfHeuristicMode = 8,
  kOfNote = 11,
  kOfDescriptor = 15,
};

constexpr int kF32 = 0;
constexpr int kF16 = 2;
constexpr int kBf16 = 9;
constexpr int kModeA = 3;
constexpr int kModeFallback = 2;
constexpr std::int64_t kDeep = 128;  ///< from here on a sum takes a workspace
constexpr std::int64_t kWorkspaceBytes = 4096;

/// An engine: what is said of its numbers, and whether a plan can be had of it.
struct Engine {
  std::vector<int> notes;
  bool works = true;
  int spoils = 0;  ///< 1: sums, 2: the last bits of operands
};
const std::vector<Engine>& engines() {
  static const std::vector<Engine> all = {
      {{0, 1}, true, 1}, {{0, 4}, true, 1}, {{5, 6}, true, 1}, {{2}, true, 1},
      {{0}, true, 2},    {{9}, false},      {{9}, true},
  };
  return all;
}
/// That takes all there is to take.
constexpr std::size_t kPlainEngine = 6;

/// A type and the attributes that have it, with how many values.
struct Schema {
  int type;
  std::int64_t least, most;
};
const std::map<int, std::map<int, Schema>>& schemas() {
  static const Schema descriptor{kOfDescriptor, 1, 1};
  static const Schema list{kOfInt64, 2, 5};
  static const Schema directions{kOfInt64, 2, 3};
  static const std::map<int, std::map<int, Schema>> all = {
      {kTensor,
       {{900, {kOfInt64, 1, 1}},
        {901, {kOfDataType, 1, 1}},
        {902, list},
        {903, list},
        {906, {kOfInt64, 1, 1}}}},
      {kConvolution,
       {{100, {kOfDataType, 1, 1}},
        {101, {kOfConvolutionMode, 1, 1}},
        {102, directions},
        {103, directions},
        {104, directions},
        {105, directions},
        {106, {kOfInt64, 1, 1}}}},
      {kForward,
       {{700, {kOfFloat, 1, 1}},
        {701, {kOfFloat, 1, 1}},
        {702, descriptor},
        {703, descriptor},
        {704, descriptor},
        {705, descriptor}}},
      {kGraph, {{800, {kOfHandle, 1, 1}}, {801, descriptor}}},
      {kHeuristics, {{200, {kOfHeuristicMode, 1, 1}}, {201, descriptor}}},
      {kPlan, {{400, {kOfHandle, 1, 1}}, {401, descriptor}}},
      {kPack, {{1000, {kOfInt64, 3, 3}}, {1001, {kOfPointer, 3, 3}}, {1003, {kOfPointer, 1, 1}}}},
      {kConfig, {}},
      {kEngine, {}},
  };
  return all;
}

std::size_t size_of(int type) {
  return type == kOfInt64 || type == kOfPointer || type == kOfHandle || type == kOfDescriptor ? 8
                                                                                              : 4;
}

struct Descriptor {
  int kind;
  bool is_final = false;
  std::map<int, std::vector<char>> values{};
  /// Of an engine's configuration, and of what is made of it.
  std::size_t engine = 0;
  Descriptor* graph = nullptr;

  template <typename T>
  T one(int attribute) const {
    T value{};
    std::memcpy(&value, values.at(attribute).data(), sizeof value);
    return value;
  }
  std::vector<std::int64_t> list(int attribute) const {
    const std::vector<char>& bytes = values.at(attribute);
    std::vector<std::int64_t> numbers(bytes.size() / sizeof(std::int64_t));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
  }
};

std::mutex& mutex() {
  static std::mutex one;
  return one;
}
/// Those that there are. Under mutex().
std::set<Descriptor*>& descriptors() {
  static std::set<Descriptor*> all;
  return all;
}
std::string& last_error() {
  thread_local std::string text;
  return text;
}
int refuse(int status, const char* why) {
  last_error() = why;
  return status;
}

/// Null where the descriptor is not there, is of another kind or not final.
Descriptor* part(const Descriptor& of, int attribute, int kind) {
  auto* found = of.one<Descriptor*>(attribute);
  const std::scoped_lock lock(mutex());
  return descriptors().contains(found) && found->kind == kind && found->is_final ? found : nullptr;
}

struct Handle {
  void* module = nullptr;
  void* kernel = nullptr;
  void* stream = nullptr;
};

using heddle::sim::objects;

/// Whether the call is to fail.
bool fails(const char* function) {
  if (heddle::sim::Injector::instance().enter(function) == 0) return false;
  last_error() = "a test wants it";
  return true;
}

struct Operation {
  Descriptor *window = nullptr, *weights = nullptr, *images = nullptr, *result = nullptr;
  bool is_whole() const {
    return window != nullptr && weights != nullptr && images != nullptr && result != nullptr;
  }
};
Operation operation_of(const Descriptor& forward) {
  return {part(forward, 702, kConvolution), part(forward, 703, kTensor),
          part(forward, 704, kTensor), part(forward, 705, kTensor)};
}

int finalize_tensor(const Descriptor& tensor) {
  const auto sizes = tensor.list(902);
  const auto strides = tensor.list(903);
  if (sizes.size() != strides.size() || sizes.size() < 4)
    return refuse(kBadParam, "four sizes and as many strides or more");
  for (const auto* list : {&sizes, &strides})
    if (std::ranges::any_of(*list, [](std::int64_t n) { return n < 1; }))
      return refuse(kBadParam, "sizes and strides are positive");
  const int type = tensor.one<int>(901);
  return type == kF32 || type == kF16 || type == kBf16 ? kOk : refuse(kNotSupported, "data type");
}

int finalize_window(const Descriptor& window) {
  const auto directions = static_cast<std::size_t>(window.one<std::int64_t>(106));
  for (int attribute = 102; attribute <= 105; ++attribute) {
    const auto list = window.list(attribute);
    const std::int64_t least = attribute <= 103 ? 1 : 0;
    if (list.size() != directions ||
        std::ranges::any_of(list, [&](std::int64_t n) { return n < least; }))
      return refuse(kBadParam, "a number for each direction");
  }
  return window.one<int>(100) == kF32 && window.one<int>(101) == 1
             ? kOk
             : refuse(kNotSupported, "correlations with sums in f32");
}

int finalize_forward(const Descriptor& forward) {
  const Operation all = operation_of(forward);
  if (!all.is_whole()) return refuse(kNotFinalized, "parts are final");
  if (forward.one<float>(700) != 1 || forward.one<float>(701) != 0)
    return refuse(kNotSupported, "alpha and beta");
  const auto x = all.images->list(902);
  const auto w = all.weights->list(902);
  const auto y = all.result->list(902);
  const auto directions = static_cast<std::size_t>(all.window->one<std::int64_t>(106));
  if (x.size() != directions + 2 || w.size() != x.size() || y.size() != x.size() || y[0] != x[0] ||
      y[1] != w[0] || x[1] % w[1] != 0 || w[0] % (x[1] / w[1]) != 0)
    return refuse(kBadParam, "sizes of a convolution");
  for (std::size_t d = 0; d < directions; ++d) {
    const std::int64_t window = (w[d + 2] - 1) * all.window->list(102)[d] + 1;
    const std::int64_t room =
        x[d + 2] + all.window->list(105)[d] + all.window->list(104)[d] - window;
    if (room < 0 || y[d + 2] != room / all.window->list(103)[d] + 1)
      return refuse(kBadParam, "sizes of the result");
  }
  const int type = all.images->one<int>(901);
  const int to = all.result->one<int>(901);
  return all.weights->one<int>(901) == type && (to == type || to == kF32)
             ? kOk
             : refuse(kNotSupported, "types");
}

Operation operation_of_graph(const Descriptor& graph) {
  const Descriptor* forward = part(graph, 801, kForward);
  return forward == nullptr ? Operation{} : operation_of(*forward);
}

std::int64_t depth_of(const Operation& operation) {
  const auto w = operation.weights->list(902);
  return std::accumulate(w.begin() + 1, w.end(), std::int64_t{1}, std::multiplies<>());
}

/// What heuristics offer: all engines, of which only one can have another type of the result, as a last resort.
std::vector<std::size_t> offers(const Descriptor& heuristics) {
  const Descriptor* graph = part(heuristics, 201, kGraph);
  if (graph == nullptr) return {};
  const Operation operation = operation_of_graph(*graph);
  if (!operation.is_whole()) return {};
  const bool converts = operation.images->one<int>(901) != operation.result->one<int>(901);
  if (heuristics.one<int>(200) == kModeFallback) return {kPlainEngine};
  if (converts) return {};
  std::vector<std::size_t> all(engines().size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

int finalize_as(Descriptor& one) {
  switch (one.kind) {
    case kTensor:
      return finalize_tensor(one);
    case kConvolution:
      return finalize_window(one);
    case kForward:
      return finalize_forward(one);
    case kGraph:
      return part(one, 801, kForward) != nullptr ? kOk : refuse(kNotFinalized, "operations");
    case kHeuristics: {
      const int mode = one.one<int>(200);
      if (part(one, 201, kGraph) == nullptr) return refuse(kNotFinalized, "the graph");
      return mode == kModeA || mode == kModeFallback ? kOk : refuse(kNotSupported, "mode");
    }
    case kPlan: {
      const Descriptor* config = part(one, 401, kConfig);
      if (config == nullptr) return refuse(kNotFinalized, "the configuration");
      one.engine = config->engine;
      one.graph = config->graph;
      return engines()[one.engine].works ? kOk : refuse(kNotSupported, "engine");
    }
    case kPack:
      return kOk;
    default:
      return refuse(kBadParam, "what nobody fills");
  }
}

/// x, w, y: pointers; p: sizes and strides.
constexpr const char* kText = R"(
static __device__ __forceinline__ float operand(const void* from, int type, long long at, int spoils) {
  float value = element(from, type, at);
  if (spoils != 2) return value;
  unsigned int bits;
  __builtin_memcpy(&bits, &value, 4);
  bits &= 0xffffe000u;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}
extern "C" __global__ void heddle_sim_cudnn(const void* w, const void* x, void* y, const void* workspace,
                                            PARAMETERS, int type, int y_type, int spoils) {
  const long long p[] = {NAMES};
  const long long *xs = p, *xm = p + 5, *ws = p + 10, *wm = p + 15, *ys = p + 20, *ym = p + 25;
  const long long *stride = p + 30, *dilation = p + 33, *pad = p + 36;
  const long long groups = xs[1] / ws[1], rows = ys[1] / groups;
  const long long all = ys[0] * ys[1] * ys[2] * ys[3] * ys[4];
  for (long long e = blockIdx.x * 32ll + threadIdx.x; e < all; e += gridDim.x * 32ll) {
    long long at[5], rest = e;
    for (int d = 4; d >= 0; --d) {
      at[d] = rest % ys[d];
      rest /= ys[d];
    }
    float sum = workspace != 0 ? ((const float*)workspace)[e % 1024] : 0.0f;
    const long long taps = ws[2] * ws[3] * ws[4];
    for (long long k = 0; k < ws[1] * taps; ++k) {
      const long long channel = k / taps;
      const long long tap[3] = {k / (ws[3] * ws[4]) % ws[2], k / ws[4] % ws[3], k % ws[4]};
      long long from = at[0] * xm[0] + (at[1] / rows * ws[1] + channel) * xm[1];
      long long of = at[1] * wm[0] + channel * wm[1];
      bool inside = true;
      for (int d = 0; d < 3; ++d) {
        const long long place = at[d + 2] * stride[d] + tap[d] * dilation[d] - pad[d];
        inside = inside && place >= 0 && place < xs[d + 2];
        from += place * xm[d + 2];
        of += tap[d] * wm[d + 2];
      }
      if (inside) sum += operand(x, type, from, spoils) * operand(w, type, of, spoils);
    }
    if (spoils == 1) sum += 1000.0f;
    long long to = 0;
    for (int d = 0; d < 5; ++d) to += at[d] * ym[d];
    if (y_type == 0) ((float*)y)[to] = sum;
    if (y_type == 2) ((unsigned short*)y)[to] = hd_cvt_f16_f32(sum);
    if (y_type == 9) ((unsigned short*)y)[to] = to_bf16(sum);
  }
}
)";
constexpr std::size_t kParameters = 39;

std::string kernel_text() {
  std::string text = kText;
  std::string parameters;
  std::string names;
  for (std::size_t k = 0; k < kParameters; ++k) {
    const std::string name = "p" + std::to_string(k);
    parameters += (k == 0 ? "long long " : ", long long ") + name;
    names += (k == 0 ? "" : ", ") + name;
  }
  text.replace(text.find("PARAMETERS"), 10, parameters);
  text.replace(text.find("NAMES"), 5, names);
  return std::string(heddle::sim::kLibraryText) + text;
}

/// Five of them: directions that there are not come first.
void add(std::vector<std::int64_t>& to, std::vector<std::int64_t> list, std::size_t leading,
         std::size_t most, std::int64_t none) {
  list.insert(list.begin() + static_cast<std::ptrdiff_t>(leading), most - list.size(), none);
  to.insert(to.end(), list.begin(), list.end());
}

std::vector<std::int64_t> parameters_of(const Operation& operation) {
  std::vector<std::int64_t> all;
  for (const Descriptor* tensor : {operation.images, operation.weights, operation.result}) {
    add(all, tensor->list(902), 2, 5, 1);
    add(all, tensor->list(903), 2, 5, 0);
  }
  add(all, operation.window->list(103), 0, 3, 1);
  add(all, operation.window->list(102), 0, 3, 1);
  add(all, operation.window->list(105), 0, 3, 0);
  return all;
}

}  // namespace

EXPORT std::size_t cudnnGetVersion() {
  const char* wanted = std::getenv("HEDDLE_CUDA_SIM_CUDNN_VERSION");
  return wanted == nullptr ? 92801 : std::strtoull(wanted, nullptr, 10);
}

EXPORT const char* cudnnGetErrorString(int status) {
  return status == kNotInitialized    ? "CUDNN_STATUS_NOT_INITIALIZED"
         : status == kBadParam        ? "CUDNN_STATUS_BAD_PARAM"
         : status == kNotFinalized    ? "CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED"
         : status == kNotSupported    ? "CUDNN_STATUS_NOT_SUPPORTED"
         : status == kExecutionFailed ? "CUDNN_STATUS_EXECUTION_FAILED"
                                      : "CUDNN_STATUS_INTERNAL_ERROR";
}

EXPORT void cudnnGetLastErrorString(char* text, std::size_t bytes) {
  std::strncpy(text, last_error().c_str(), bytes - 1);
  text[bytes - 1] = 0;
  last_error().clear();
}

EXPORT int cudnnCreate(void** handle) {
  if (fails("cudnnCreate")) return kNotInitialized;
  const heddle::sim::HostImage image = heddle::sim::compile_for_host(kernel_text());
  if (image.bytes.empty()) return refuse(kInternal, image.log.c_str());
  Handle made;
  if (cuModuleLoadData(&made.module, heddle::sim::wrap_image(image.bytes).data()) != 0)
    return kNotInitialized;
  if (cuModuleGetFunction(&made.kernel, made.module, "heddle_sim_cudnn") != 0) {
    cuModuleUnload(made.module);
    return kInternal;
  }
  *handle = new Handle(made);
  ++objects();
  return kOk;
}

EXPORT int cudnnDestroy(void* handle) {
  const auto* made = static_cast<Handle*>(handle);
  const int unloaded = cuModuleUnload(made->module);
  delete made;
  --objects();
  return fails("cudnnDestroy") || unloaded != 0 ? kInternal : kOk;
}

EXPORT int cudnnSetStream(void* handle, void* stream) {
  if (fails("cudnnSetStream")) return kInternal;
  static_cast<Handle*>(handle)->stream = stream;
  return kOk;
}

EXPORT int cudnnBackendCreateDescriptor(int kind, void** descriptor) {
  if (fails("cudnnBackendCreateDescriptor")) return kInternal;
  if (!schemas().contains(kind)) return refuse(kNotSupported, "kind");
  auto* made = new Descriptor{.kind = kind};
  const std::scoped_lock lock(mutex());
  descriptors().insert(made);
  ++objects();
  *descriptor = made;
  return kOk;
}

EXPORT int cudnnBackendDestroyDescriptor(void* descriptor) {
  auto* made = static_cast<Descriptor*>(descriptor);
  const std::scoped_lock lock(mutex());
  if (descriptors().erase(made) == 0) return kBadParam;
  delete made;
  --objects();
  return fails("cudnnBackendDestroyDescriptor") ? kInternal : kOk;
}

EXPORT int cudnnBackendSetAttribute(void* descriptor, int attribute, int type, std::int64_t count,
                                    const void* values) {
  if (fails("cudnnBackendSetAttribute")) return kInternal;
  auto& made = *static_cast<Descriptor*>(descriptor);
  const auto& known = schemas().at(made.kind);
  const auto schema = known.find(attribute);
  if (made.is_final || schema == known.end()) return refuse(kBadParam, "attribute");
  if (type != schema->second.type || count < schema->second.least || count > schema->second.most)
    return refuse(kBadParam, "type or count");
  const auto* bytes = static_cast<const char*>(values);
  made.values[attribute].assign(bytes, bytes + static_cast<std::size_t>(count) * size_of(type));
  return kOk;
}

EXPORT int cudnnBackendFinalize(void* descriptor) {
  if (fails("cudnnBackendFinalize")) return kInternal;
  auto& made = *static_cast<Descriptor*>(descriptor);
  if (made.is_final) return refuse(kBadParam, "it is final");
  for (const auto& [attribute, schema] : schemas().at(made.kind))
    if (!made.values.contains(attribute)) return refuse(kBadParam, "an attribute is missing");
  const int status = finalize_as(made);
  made.is_final = status == kOk;
  return status;
}

namespace {

int get_offers(const Descriptor& heuristics, std::int64_t most, std::int64_t* count, void* values) {
  const std::vector<std::size_t> all = offers(heuristics);
  if (most == 0) {
    *count = std::ssize(engines());  // of which not all need be for this graph
    return kOk;
  }
  *count = std::min<std::int64_t>(most, std::ssize(all));
  for (std::size_t k = 0; k < static_cast<std::size_t>(*count); ++k) {
    auto* config = static_cast<Descriptor**>(values)[k];
    if (config->kind != kConfig) return refuse(kBadParam, "a configuration");
    config->engine = all[k];
    config->graph = part(heuristics, 201, kGraph);
    config->is_final = true;
  }
  return kOk;
}

}  // namespace

EXPORT int cudnnBackendGetAttribute(void* descriptor, int attribute, int type, std::int64_t most,
                                    std::int64_t* count, void* values) {
  if (fails("cudnnBackendGetAttribute")) return kInternal;
  auto& from = *static_cast<Descriptor*>(descriptor);
  if (!from.is_final) return refuse(kNotFinalized, "what is asked");
  if (from.kind == kHeuristics && attribute == 202 && type == kOfDescriptor)
    return get_offers(from, most, count, values);
  if (from.kind == kConfig && attribute == 300 && type == kOfDescriptor && most == 1) {
    auto* engine = *static_cast<Descriptor**>(values);
    if (engine->kind != kEngine) return refuse(kBadParam, "an engine");
    engine->engine = from.engine;
    engine->is_final = true;
    *count = 1;
    return kOk;
  }
  if (from.kind == kEngine && attribute == 1303 && type == kOfNote) {
    const std::vector<int>& notes = engines()[from.engine].notes;
    *count = std::ssize(notes);
    std::copy_n(notes.begin(), std::min(most, *count), static_cast<int*>(values));
    return kOk;
  }
  if (from.kind == kPlan && attribute == 402 && type == kOfInt64 && most == 1) {
    const Operation operation = operation_of_graph(*from.graph);
    if (!operation.is_whole()) return refuse(kBadParam, "what it was made of is gone");
    *static_cast<std::int64_t*>(values) = depth_of(operation) < kDeep ? 0 : kWorkspaceBytes;
    *count = 1;
    return kOk;
  }
  return refuse(kBadParam, "attribute");
}

EXPORT int cudnnBackendExecute(void* handle, void* plan, void* pack) {
  if (fails("cudnnBackendExecute")) return kExecutionFailed;
  const auto& made = *static_cast<Descriptor*>(plan);
  const auto& places = *static_cast<Descriptor*>(pack);
  if (!made.is_final || !places.is_final) return refuse(kNotFinalized, "plan or pack");
  const Operation operation = operation_of_graph(*made.graph);
  if (!operation.is_whole()) return refuse(kBadParam, "what it was made of is gone");
  const auto address = [&](const Descriptor& tensor) -> void* {
    const auto ids = places.list(1000);
    const auto pointers = places.list(1001);
    const auto found = std::ranges::find(ids, tensor.one<std::int64_t>(906));
    if (found == ids.end()) return nullptr;
    return reinterpret_cast<void*>(pointers[static_cast<std::size_t>(found - ids.begin())]);
  };
  void* w = address(*operation.weights);
  void* x = address(*operation.images);
  void* y = address(*operation.result);
  for (const auto& [place, tensor] :
       {std::pair{w, operation.weights}, {x, operation.images}, {y, operation.result}})
    if (place == nullptr ||
        reinterpret_cast<std::int64_t>(place) % tensor->one<std::int64_t>(900) != 0)
      return refuse(kBadParam, "addresses");
  const auto& at = *static_cast<Handle*>(handle);
  void* workspace = nullptr;
  if (depth_of(operation) >= kDeep) {
    workspace = places.one<void*>(1003);
    if (workspace == nullptr) return refuse(kBadParam, "workspace");
    if (cuMemsetD8Async(workspace, 0, kWorkspaceBytes, at.stream) != 0) return kExecutionFailed;
  }
  std::vector<std::int64_t> parameters = parameters_of(operation);
  std::vector<void*> arguments = {&w, &x, &y, &workspace};
  for (std::int64_t& one : parameters) arguments.push_back(&one);
  int type = operation.images->one<int>(901);
  int y_type = operation.result->one<int>(901);
  int spoils = engines()[made.engine].spoils;
  if (spoils == 2 && type != kF32) spoils = 0;
  for (int* one : {&type, &y_type, &spoils}) arguments.push_back(one);
  const int launched =
      cuLaunchKernel(at.kernel, 2, 1, 1, 32, 1, 1, 0, at.stream, arguments.data(), nullptr);
  return launched == 0 ? kOk : kExecutionFailed;
}
