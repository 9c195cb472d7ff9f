#include "device/cuda/cudnn.h"

#include <algorithm>
#include <array>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "device/cuda/dynamic_library.h"
#include "heddle/error.h"

namespace heddle::device::cuda {
namespace {

// Numbers of cudnn_graph.h.
constexpr std::size_t kLeastVersion = 90000;
constexpr int kNotSupported = 3000;  ///< and the 999 after it
constexpr int kF32 = 0;
constexpr int kF16 = 2;
constexpr int kBf16 = 9;
constexpr int kCrossCorrelation = 1;
constexpr int kTensorCores = 0;  ///< what is said of an engine's numbers
constexpr int kStrictNan = 9;
constexpr std::size_t kMostNotes = 32;

enum class Kind : int {
  Convolution = 1,
  Engine = 2,
  EngineConfig = 3,
  Heuristics = 4,
  Plan = 5,
  ConvolutionForward = 10,
  Graph = 15,
  VariantPack = 16,
  Tensor = 17,
};

enum class Type : int {
  Handle = 0,
  DataType = 1,
  Int64 = 3,
  Float = 4,
  Pointer = 6,
  ConvolutionMode = 7,
  HeuristicMode = 8,
  NumericalNote = 11,
  Descriptor = 15,
};

enum Attribute : int {
  kConvolutionCompute = 100,
  kConvolutionMode = 101,
  kConvolutionDilations = 102,
  kConvolutionStrides = 103,
  kConvolutionPadsAfter = 104,
  kConvolutionPadsBefore = 105,
  kConvolutionDirections = 106,
  kHeuristicsMode = 200,
  kHeuristicsGraph = 201,
  kHeuristicsResults = 202,
  kConfigEngine = 300,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspace = 402,
  kForwardAlpha = 700,
  kForwardBeta = 701,
  kForwardConvolution = 702,
  kForwardWeights = 703,
  kForwardImages = 704,
  kForwardResult = 705,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorDataType = 901,
  kTensorSizes = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kPackIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineNotes = 1303,
};

/// By trees of decisions, by a model of the hardware, and what works at all.
constexpr std::array kHeuristics = {3, 1, 2};
constexpr std::int64_t kMostConfigs = 64;
/// Of one list of heuristics, since each may compile.
constexpr int kMostTries = 6;

constexpr std::int64_t kWeightsId = 1;
constexpr std::int64_t kImagesId = 2;
constexpr std::int64_t kResultId = 3;

int number_of(DType dtype) {
  return dtype == DType::F16 ? kF16 : dtype == DType::BF16 ? kBf16 : kF32;
}

/// What the library has no way to do.
struct NotSupported : DeviceError {
  using DeviceError::DeviceError;
};

/// Functions by their names without the prefix cudnn; a result of 0 is success.
struct Api {
  explicit Api(const std::vector<std::string>& paths) : library("cuDNN", paths) {
    library.load(version, "cudnnGetVersion");
    if (version() < kLeastVersion)
      throw DeviceError({.what = "cuDNN is too old",
                         .where = library.path(),
                         .expected = "version 9",
                         .got = std::to_string(version())});
    library.load(create, "cudnnCreate");
    library.load(destroy, "cudnnDestroy");
    library.load(set_stream, "cudnnSetStream");
    library.load(status_name, "cudnnGetErrorString");
    library.load(last_error, "cudnnGetLastErrorString");
    library.load(make, "cudnnBackendCreateDescriptor");
    library.load(drop, "cudnnBackendDestroyDescriptor");
    library.load(set, "cudnnBackendSetAttribute");
    library.load(get, "cudnnBackendGetAttribute");
    library.load(finalize, "cudnnBackendFinalize");
    library.load(execute, "cudnnBackendExecute");
  }

  void check(int status, const char* function) const {
    if (status == 0) return;
    std::array<char, 512> text{};
    last_error(text.data(), text.size());
    const Error::Parts info{.what = std::string(function) + " failed",
                            .where = library.path(),
                            .expected = {},
                            .got = std::string(status_name(status)) +
                                   (text[0] == 0 ? "" : std::string(": ") + text.data())};
    if (status / 1000 * 1000 == kNotSupported) throw NotSupported(info);
    throw DeviceError(info);
  }

  DynamicLibrary library;
  std::size_t (*version)() = nullptr;
  int (*create)(void** handle) = nullptr;
  int (*destroy)(void* handle) = nullptr;
  int (*set_stream)(void* handle, void* stream) = nullptr;
  const char* (*status_name)(int status) = nullptr;
  void (*last_error)(char* text, std::size_t bytes) = nullptr;
  int (*make)(Kind kind, void** descriptor) = nullptr;
  int (*drop)(void* descriptor) = nullptr;
  int (*set)(void* descriptor, int attribute, Type type, std::int64_t count,
             const void* values) = nullptr;
  int (*get)(void* descriptor, int attribute, Type type, std::int64_t most, std::int64_t* count,
             void* values) = nullptr;
  int (*finalize)(void* descriptor) = nullptr;
  int (*execute)(void* handle, void* plan, void* pack) = nullptr;
  /// The library opens the cuBLASLt of its own CUDA, and ends the process where it finds none: found in 9.28 for CUDA 12.
  void load_cublaslt() const {
    std::size_t (*cuda)() = nullptr;
    cuda = reinterpret_cast<decltype(cuda)>(library.find("cudnnGetCudartVersion"));
    if (cuda == nullptr) return;
    DynamicLibrary("cuBLASLt, which cuDNN needs,",
                   toolkit_paths({"libcublasLt.so." + std::to_string(cuda() / 1000)}));
  }
};

/// A descriptor of the library's, filled and then final.
class Descriptor {
 public:
  Descriptor(const Api& api, Kind kind) : api_(&api) {
    api.check(api.make(kind, &handle_), "cudnnBackendCreateDescriptor");
  }
  Descriptor(Descriptor&& other) noexcept
      : api_(other.api_), handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(api_, other.api_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (handle_ != nullptr) api_->drop(handle_);
  }

  void* get() const { return handle_; }
  template <typename T>
  void set(Attribute attribute, Type type, const T& value) {
    set_all(attribute, type, std::span(&value, 1));
  }
  template <typename T, std::size_t N>
  void set_all(Attribute attribute, Type type, std::span<T, N> values) {
    api_->check(api_->set(handle_, attribute, type, static_cast<std::int64_t>(values.size()),
                          values.data()),
                "cudnnBackendSetAttribute");
  }
  void set(Attribute attribute, const Descriptor& other) {
    set(attribute, Type::Descriptor, other.handle_);
  }
  /// @return how many there are, of which as many as fit come into `values`.
  template <typename T, std::size_t N>
  std::int64_t get_all(Attribute attribute, Type type, std::span<T, N> values) const {
    std::int64_t count = 0;
    api_->check(api_->get(handle_, attribute, type, static_cast<std::int64_t>(values.size()),
                          &count, values.data()),
                "cudnnBackendGetAttribute");
    return count;
  }
  Descriptor&& finalized() && {
    api_->check(api_->finalize(handle_), "cudnnBackendFinalize");
    return std::move(*this);
  }

 private:
  const Api* api_;
  void* handle_ = nullptr;
};

/// What the library's functions are called with; of one thread at a time.
class Handle {
 public:
  Handle(const Api& api, Device& device) : api_(api), device_(device) {
    device.with_context([&] { api.check(api.create(&handle_), "cudnnCreate"); });
  }
  ~Handle() {
    device_.release_with_context([&] { api_.destroy(handle_); });
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  void* get() const { return handle_; }

  void execute(void* stream, const Descriptor& plan, const Descriptor& pack) {
    const std::scoped_lock lock(mutex_);
    api_.check(api_.set_stream(handle_, stream), "cudnnSetStream");
    api_.check(api_.execute(handle_, plan.get(), pack.get()), "cudnnBackendExecute");
  }

 private:
  const Api& api_;
  Device& device_;
  void* handle_ = nullptr;
  std::mutex mutex_;
};

/// One direction would be none to the library: a second one of size 1 comes before it.
LibraryConvolution with_two_directions(LibraryConvolution convolution) {
  if (convolution.axes.size() != 1) return convolution;
  for (LibraryTensor* tensor : {&convolution.images, &convolution.weights, &convolution.result}) {
    const std::int64_t stride = tensor->sizes[2] * tensor->strides[2];
    tensor->sizes.insert(tensor->sizes.begin() + 2, 1);
    tensor->strides.insert(tensor->strides.begin() + 2, stride);
  }
  convolution.axes.insert(convolution.axes.begin(), LibraryConvolution::Axis{});
  return convolution;
}

Descriptor make_tensor(const Api& api, std::int64_t id, DType dtype, const LibraryTensor& tensor) {
  Descriptor made(api, Kind::Tensor);
  made.set(kTensorDataType, Type::DataType, number_of(dtype));
  made.set_all(kTensorSizes, Type::Int64, std::span(tensor.sizes));
  made.set_all(kTensorStrides, Type::Int64, std::span(tensor.strides));
  made.set(kTensorId, Type::Int64, id);
  made.set(kTensorAlignment, Type::Int64, std::int64_t{OptionalLibrary::kAlignment});
  return std::move(made).finalized();
}

Descriptor make_convolution(const Api& api, std::span<const LibraryConvolution::Axis> axes) {
  using Axis = LibraryConvolution::Axis;
  Descriptor made(api, Kind::Convolution);
  made.set(kConvolutionCompute, Type::DataType, kF32);
  made.set(kConvolutionMode, Type::ConvolutionMode, kCrossCorrelation);
  made.set(kConvolutionDirections, Type::Int64, static_cast<std::int64_t>(axes.size()));
  const auto set = [&](Attribute attribute, std::int64_t Axis::* member) {
    std::vector<std::int64_t> values;
    for (const Axis& axis : axes) values.push_back(axis.*member);
    made.set_all(attribute, Type::Int64, std::span(values));
  };
  set(kConvolutionDilations, &Axis::dilation);
  set(kConvolutionStrides, &Axis::stride);
  set(kConvolutionPadsBefore, &Axis::pad_before);
  set(kConvolutionPadsAfter, &Axis::pad_after);
  return std::move(made).finalized();
}

Descriptor make_forward(const Api& api, const Descriptor& window, const Descriptor& weights,
                        const Descriptor& images, const Descriptor& result) {
  Descriptor made(api, Kind::ConvolutionForward);
  made.set(kForwardAlpha, Type::Float, 1.0F);
  made.set(kForwardBeta, Type::Float, 0.0F);
  made.set(kForwardConvolution, window);
  made.set(kForwardWeights, weights);
  made.set(kForwardImages, images);
  made.set(kForwardResult, result);
  return std::move(made).finalized();
}

Descriptor make_graph(const Api& api, void* handle, const Descriptor& operation) {
  Descriptor made(api, Kind::Graph);
  made.set(kGraphHandle, Type::Handle, handle);
  made.set(kGraphOperations, operation);
  return std::move(made).finalized();
}

/// A graph of one operation, and what it is made of.
struct Operation {
  Operation(const Api& api, void* handle, const LibraryConvolution& one)
      : images(make_tensor(api, kImagesId, one.dtype, one.images)),
        weights(make_tensor(api, kWeightsId, one.dtype, one.weights)),
        result(make_tensor(api, kResultId, one.result_dtype, one.result)),
        window(make_convolution(api, one.axes)),
        forward(make_forward(api, window, weights, images, result)),
        graph(make_graph(api, handle, forward)) {}

  Descriptor images, weights, result, window, forward, graph;
};

std::vector<Descriptor> configs_of(const Api& api, const Descriptor& graph, int mode) {
  Descriptor made(api, Kind::Heuristics);
  made.set(kHeuristicsGraph, graph);
  made.set(kHeuristicsMode, Type::HeuristicMode, mode);
  const Descriptor heuristics = std::move(made).finalized();
  const std::int64_t offered =
      heuristics.get_all(kHeuristicsResults, Type::Descriptor, std::span<void*>());
  std::vector<Descriptor> configs;
  std::vector<void*> handles;
  for (std::int64_t k = 0; k < std::min(offered, kMostConfigs); ++k) {
    configs.emplace_back(api, Kind::EngineConfig);
    handles.push_back(configs.back().get());
  }
  // Fewer than were offered may work on the device.
  const std::int64_t count =
      heuristics.get_all(kHeuristicsResults, Type::Descriptor, std::span(handles));
  while (std::ssize(configs) > count) configs.pop_back();
  return configs;
}

/// Whether nothing but the order of sums, and tf32 where it is allowed, tells its results from those of a convolution.
bool is_plain(const Api& api, const Descriptor& config, const LibraryConvolution& convolution) {
  const Descriptor engine(api, Kind::Engine);
  void* handle = engine.get();
  config.get_all(kConfigEngine, Type::Descriptor, std::span(&handle, 1));
  std::array<int, kMostNotes> notes{};
  const std::int64_t count = engine.get_all(kEngineNotes, Type::NumericalNote, std::span(notes));
  const bool tensor_cores = convolution.dtype != DType::F32 || convolution.tf32;
  return count <= std::ssize(notes) &&
         std::all_of(notes.begin(), notes.begin() + count,
                     [&](int n) { return n == kStrictNan || (n == kTensorCores && tensor_cores); });
}

/// A plan, and what it was made of.
struct Made {
  std::unique_ptr<const Operation> operation;
  Descriptor config;
  Descriptor plan;
  std::size_t workspace_bytes;
};

Descriptor make_plan(const Api& api, void* handle, const Descriptor& config) {
  Descriptor made(api, Kind::Plan);
  made.set(kPlanHandle, Type::Handle, handle);
  made.set(kPlanConfig, config);
  return std::move(made).finalized();
}

std::size_t workspace_of(const Descriptor& plan) {
  std::int64_t bytes = 0;
  plan.get_all(kPlanWorkspace, Type::Int64, std::span(&bytes, 1));
  return static_cast<std::size_t>(bytes);
}

/// Tries what heuristics offer in their order. @throws the first error, if none works and one says more than that the
/// library has no way.
class Search {
 public:
  Search(const Api& api, void* handle, const LibraryConvolution& convolution)
      : api_(api), handle_(handle), convolution_(convolution) {}

  std::optional<Made> run() {
    operation_ = std::make_unique<const Operation>(api_, handle_, convolution_);
    for (const int mode : kHeuristics)
      if (std::optional<Made> made = attempt([&] { return first_of(mode); })) return made;
    if (error_) std::rethrow_exception(error_);
    return std::nullopt;
  }

 private:
  std::optional<Made> first_of(int mode) {
    int tries = 0;
    for (Descriptor& config : configs_of(api_, operation_->graph, mode)) {
      if (tries == kMostTries) break;
      std::optional<Made> made = attempt([&]() -> std::optional<Made> {
        if (!is_plain(api_, config, convolution_)) return std::nullopt;
        ++tries;
        Descriptor plan = make_plan(api_, handle_, config);
        const std::size_t bytes = workspace_of(plan);
        if (bytes > Cudnn::kMostWorkspace) return std::nullopt;
        return Made{std::move(operation_), std::move(config), std::move(plan), bytes};
      });
      if (made) return made;
    }
    return std::nullopt;
  }

  template <typename F>
  std::optional<Made> attempt(F&& work) {
    try {
      return work();
    } catch (const DeviceLost&) {
      throw;
    } catch (const NotSupported&) {  // another one may do
    } catch (const DeviceError&) {
      if (!error_) error_ = std::current_exception();
    }
    return std::nullopt;
  }

  const Api& api_;
  void* handle_;
  const LibraryConvolution& convolution_;
  std::unique_ptr<const Operation> operation_;
  std::exception_ptr error_;
};

class ConvolutionPlan final : public LibraryPlan {
 public:
  ConvolutionPlan(const Api& api, Device& device, Handle& handle, Made made)
      : api_(api), device_(device), handle_(handle), bytes_(made.workspace_bytes) {
    made_.emplace(std::move(made));
  }

  std::size_t workspace_bytes() const override { return bytes_; }

  void run(const void* left, const void* right, void* result, void* workspace,
           void* stream) const override {
    device_.with_context([&] {
      Descriptor made(api_, Kind::VariantPack);
      const std::array ids = {kWeightsId, kImagesId, kResultId};
      const std::array pointers = {const_cast<void*>(left), const_cast<void*>(right), result};
      made.set_all(kPackIds, Type::Int64, std::span(ids));
      made.set_all(kPackPointers, Type::Pointer, std::span(pointers));
      made.set(kPackWorkspace, Type::Pointer, workspace);
      handle_.execute(stream, made_->plan, std::move(made).finalized());
    });
  }

  /// Nobody runs it any more.
  void release() { made_.reset(); }

 private:
  const Api& api_;
  Device& device_;
  Handle& handle_;
  std::optional<Made> made_;
  const std::size_t bytes_;
};

}  // namespace

std::vector<std::string> cudnn_paths() {
  return optional_paths("HEDDLE_CUDNN_PATH", {"libcudnn.so.9"});
}

/// The functions, once they were asked for.
struct Cudnn::Loaded {
  /// @throws DeviceError.
  std::shared_ptr<const Api> get(const std::vector<std::string>& paths);

  std::mutex mutex;
  std::shared_ptr<const Api> api;  ///< under `mutex`
};

/// Plans keep what their kernels are loaded from, so that they are held until the device goes.
struct Cudnn::Opened {
  Opened(Device& on, std::shared_ptr<const Api> shared)
      : shared_api(std::move(shared)), device(on), planner(api, on), runner(api, on) {}
  ~Opened() {
    device.release_with_context([&] { release(); });
    release();  // of a lost context: memory of the host
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  /// Nothing: a plan is to be made. Null: there is none.
  std::optional<std::shared_ptr<ConvolutionPlan>> find(const LibraryConvolution& convolution) {
    const std::scoped_lock lock(mutex);
    const auto found = plans.find(convolution);
    if (found != plans.end()) return found->second;
    if (plans.size() >= kMostPlans) return nullptr;
    return std::nullopt;
  }

  void release() {
    for (const auto& [convolution, plan] : plans)
      if (plan != nullptr) plan->release();
  }

  const std::shared_ptr<const Api> shared_api;
  const Api& api = *shared_api;
  Device& device;
  std::mutex making;  ///< `planner` is of one thread at a time
  Handle planner;
  Handle runner;
  std::mutex mutex;
  /// Under `mutex`; null: there is no way.
  std::map<LibraryConvolution, std::shared_ptr<ConvolutionPlan>> plans;
};

Cudnn::Cudnn(Device& device, std::vector<std::string> paths)
    : OptionalLibrary("cuDNN", device, std::move(paths)), loaded_(std::make_unique<Loaded>()) {}
Cudnn::~Cudnn() = default;

std::shared_ptr<const Api> Cudnn::Loaded::get(const std::vector<std::string>& paths) {
  const std::scoped_lock lock(mutex);
  if (api == nullptr) api = std::make_shared<const Api>(paths);
  return api;
}

std::string Cudnn::version() const {
  if (!is_wanted()) return {};
  try {
    return std::to_string(loaded_->get(paths_)->version());
  } catch (const DeviceError&) {  // open() says why
    return {};
  }
}

void Cudnn::load() {
  std::shared_ptr<const Api> api = loaded_->get(paths_);
  api->load_cublaslt();
  opened_ = std::make_unique<Opened>(device_, std::move(api));
}

bool Cudnn::knows(const LibraryConvolution& convolution) const {
  return opened_->find(convolution).has_value();
}

std::shared_ptr<const LibraryPlan> Cudnn::plan(const LibraryConvolution& convolution) const {
  Opened& opened = *opened_;
  if (const auto known = opened.find(convolution)) return *known;
  const std::scoped_lock one_at_a_time(opened.making);
  if (const auto known = opened.find(convolution)) return *known;
  const auto keep = [&](std::shared_ptr<ConvolutionPlan> plan) {
    const std::scoped_lock lock(opened.mutex);
    return opened.plans.emplace(convolution, std::move(plan)).first->second;
  };
  std::optional<Made> made;
  try {
    device_.with_context([&] {
      const LibraryConvolution usual = with_two_directions(convolution);
      made = Search(opened.api, opened.planner.get(), usual).run();
    });
  } catch (const DeviceLost&) {
    throw;
  } catch (const NotSupported&) {
  } catch (const DeviceError&) {
    keep(nullptr);
    throw;
  }
  if (!made) return keep(nullptr);
  return keep(
      std::make_shared<ConvolutionPlan>(opened.api, device_, opened.runner, *std::move(made)));
}

}  // namespace heddle::device::cuda
