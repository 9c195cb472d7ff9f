#include "device/cuda/cuda_device.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>
#include <vector>

#include "device/cuda/context.h"
#include "device/cuda/driver.h"
#include "heddle/error.h"

namespace heddle::device::cuda {
namespace {

// Numbers of the Driver API.
constexpr int kAttributeMultiprocessors = 16;
constexpr int kAttributeCacheBytes = 38;
constexpr int kAttributeMajor = 75;
constexpr int kAttributeMinor = 76;
constexpr int kAttributeMaxSharedOptin = 97;
constexpr int kFunctionRegisters = 4;
constexpr int kFunctionMaxDynamicShared = 8;
constexpr unsigned int kStreamNonBlocking = 1;
constexpr unsigned int kEventDisableTiming = 2;
constexpr int kNotReady = 600;
constexpr int kNotSupported = 801;
/// Of the legacy stream while another that it waits for is captured.
constexpr int kCaptureImplicit = 906;
constexpr std::uint32_t kDefaultShared = 48 * 1024;

class CudaEvent : public Event {
 public:
  CudaEvent(ContextPtr context, bool timing) : context_(std::move(context)) {
    context_->call("cuEventCreate", [&] {
      return context_->driver.event_create(&handle, timing ? 0 : kEventDisableTiming);
    });
  }
  ~CudaEvent() override {
    context_->release([&] { return context_->driver.event_destroy(handle); });
  }
  bool done() const override {
    const int result = context_->call_quietly([&] {
      const Apart apart(context_->driver);
      return context_->driver.event_query(handle);
    });
    if (result == kNotReady) return false;
    context_->check(result, "cuEventQuery");
    return true;
  }
  void synchronize() const override {
    context_->call_apart("cuEventSynchronize",
                         [&] { return context_->driver.event_synchronize(handle); });
  }
  double milliseconds_since(const Event& earlier) const override {
    float result = 0;
    void* begin = static_cast<const CudaEvent&>(earlier).handle;
    context_->call("cuEventElapsedTime",
                   [&] { return context_->driver.event_elapsed(&result, begin, handle); });
    return result;
  }

  void* handle = nullptr;

 private:
  ContextPtr context_;
};

class CudaStream : public Stream {
 public:
  explicit CudaStream(ContextPtr context) : context_(std::move(context)) {
    context_->call("cuStreamCreate",
                   [&] { return context_->driver.stream_create(&handle_, kStreamNonBlocking); });
  }
  /// One of the caller's.
  CudaStream(ContextPtr context, void* handle)
      : context_(std::move(context)), handle_(handle), is_ours_(false) {}
  ~CudaStream() override {
    if (is_ours_) context_->release([&] { return context_->driver.stream_destroy(handle_); });
  }
  void synchronize() override {
    context_->call_apart("cuStreamSynchronize",
                         [&] { return context_->driver.stream_synchronize(handle_); });
  }
  void wait(const Event& event) override {
    void* other = static_cast<const CudaEvent&>(event).handle;
    context_->call("cuStreamWaitEvent",
                   [&] { return context_->driver.stream_wait(handle_, other, 0); });
  }
  void record(Event& event) override {
    void* other = static_cast<CudaEvent&>(event).handle;
    context_->call("cuEventRecord", [&] { return context_->driver.event_record(other, handle_); });
  }
  void* native() const override { return handle_; }
  bool is_captured() const override {
    int status = 0;
    const int result = context_->call_quietly(
        [&] { return context_->driver.stream_is_captured(handle_, &status); });
    if (result == kCaptureImplicit) return true;
    context_->check(result, "cuStreamIsCapturing");
    return status != 0;
  }

 private:
  ContextPtr context_;
  void* handle_ = nullptr;
  bool is_ours_ = true;
};

/// Lets a function use more shared memory than every block may.
int allow_shared(const Driver& driver, Kernel kernel, std::uint32_t bytes) {
  return driver.function_set(kernel.handle, kFunctionMaxDynamicShared, static_cast<int>(bytes));
}
int allow_shared(const Driver& driver, Kernel kernel, const LaunchShape& shape) {
  if (shape.dynamic_shared_bytes <= std::max(kDefaultShared, kernel.dynamic_shared_bytes)) return 0;
  return allow_shared(driver, kernel, shape.dynamic_shared_bytes);
}

/// A library where the driver has them, which no context but ours has to know of; else a module of the context.
class CudaModule : public Module {
 public:
  CudaModule(ContextPtr context, const void* image) : context_(std::move(context)) {
    const Driver& driver = context_->driver;
    is_library_ = driver.has_libraries() && load_library(image);
    if (!is_library_)
      context_->call_apart("cuModuleLoadData", [&] { return driver.module_load(&handle_, image); });
  }
  ~CudaModule() override {
    context_->release([&] {
      const Driver& driver = context_->driver;
      return is_library_ ? driver.library_unload(handle_) : driver.module_unload(handle_);
    });
  }
  /// The code is loaded when this returns: a function that loads at its first launch would stop every other thread of the
  /// context there.
  Kernel kernel(const std::string& name, std::uint32_t dynamic_shared_bytes) const override {
    const Driver& driver = context_->driver;
    Kernel result;
    void* kernel = nullptr;
    const auto call = [&](const char* function, auto body) {
      context_->call_apart((function + (" of " + name)).c_str(), body);
    };
    if (is_library_) {
      call("cuLibraryGetKernel",
           [&] { return driver.library_kernel(&kernel, handle_, name.c_str()); });
      call("cuKernelGetFunction", [&] { return driver.kernel_function(&result.handle, kernel); });
    } else {
      call("cuModuleGetFunction",
           [&] { return driver.module_function(&result.handle, handle_, name.c_str()); });
    }
    if (driver.function_load != nullptr)
      call("cuFuncLoad", [&] { return driver.function_load(result.handle); });
    call("cuFuncGetAttribute",
         [&] { return driver.function_get(&result.registers, kFunctionRegisters, result.handle); });
    result.dynamic_shared_bytes = std::max(kDefaultShared, dynamic_shared_bytes);
    if (dynamic_shared_bytes > kDefaultShared)
      call("cuFuncSetAttribute",
           [&] { return allow_shared(driver, result, dynamic_shared_bytes); });
    return result;
  }

 private:
  /// @return false where the driver has the functions but not for this device.
  bool load_library(const void* image) {
    const int result = context_->call_quietly([&] {
      const Apart apart(context_->driver);
      return context_->driver.library_load(&handle_, image, nullptr, nullptr, 0, nullptr, nullptr,
                                           0);
    });
    if (result == kNotSupported) return false;
    context_->check(result, "cuLibraryLoadData");
    return true;
  }

  ContextPtr context_;
  void* handle_ = nullptr;
  bool is_library_ = false;
};

class CudaGraph : public Graph {
 public:
  explicit CudaGraph(ContextPtr context) : context_(std::move(context)) {
    call("cuGraphCreate", [&] { return driver().graph_create(&graph_, 0); });
  }
  ~CudaGraph() override {
    if (exec_ != nullptr) context_->release([&] { return driver().graph_exec_destroy(exec_); });
    context_->release([&] { return driver().graph_destroy(graph_); });
  }

  Node add_launch(Kernel kernel, const LaunchShape& shape, std::span<void* const> arguments,
                  std::span<const Node> after) override {
    const KernelNodeParameters parameters = parameters_of(kernel, shape, arguments);
    return add(after, "cuGraphAddKernelNode", [&](void** node, void* const* before) {
      if (const int result = allow_shared(driver(), kernel, shape); result != 0) return result;
      return driver().graph_add_kernel(node, graph_, before, after.size(), &parameters);
    });
  }
  Node add_copy(void* to, const void* from, std::size_t bytes, CopyKind kind,
                std::span<const Node> after) override {
    const CopyParameters parameters = parameters_of(to, from, bytes, kind);
    return add(after, "cuGraphAddMemcpyNode", [&](void** node, void* const* before) {
      return driver().graph_add_copy(node, graph_, before, after.size(), &parameters,
                                     context_->handle());
    });
  }
  Node add_queued(const Queue& queue, std::span<const Node> after) override {
    const Captured child(*this, queue);
    if (child.is_empty()) {
      const Node made = add(after, "cuGraphAddEmptyNode", [&](void** node, void* const* before) {
        return driver().graph_add_empty(node, graph_, before, after.size());
      });
      empty_.insert(made);
      return made;
    }
    return add(after, "cuGraphAddChildGraphNode", [&](void** node, void* const* before) {
      return driver().graph_add_child(node, graph_, before, after.size(), child.graph);
    });
  }
  void instantiate() override {
    context_->call_apart("cuGraphInstantiate",
                         [&] { return driver().graph_instantiate(&exec_, graph_, 0); });
  }
  void set_launch(Node node, Kernel kernel, const LaunchShape& shape,
                  std::span<void* const> arguments) override {
    const KernelNodeParameters parameters = parameters_of(kernel, shape, arguments);
    call("cuGraphExecKernelNodeSetParams", [&] {
      if (const int result = allow_shared(driver(), kernel, shape); result != 0) return result;
      return driver().graph_set_kernel(exec_, nodes_[node], &parameters);
    });
  }
  void set_copy(Node node, void* to, const void* from, std::size_t bytes, CopyKind kind) override {
    const CopyParameters parameters = parameters_of(to, from, bytes, kind);
    call("cuGraphExecMemcpyNodeSetParams", [&] {
      return driver().graph_set_copy(exec_, nodes_[node], &parameters, context_->handle());
    });
  }
  bool set_queued(Node node, const Queue& queue) override {
    const Captured child(*this, queue);
    if (child.is_empty() || empty_.contains(node)) return child.is_empty() && empty_.contains(node);
    const int result = context_->call_quietly(
        [&] { return driver().graph_set_child(exec_, nodes_[node], child.graph); });
    if (Driver::is_fatal(result)) context_->check(result, "cuGraphExecChildGraphNodeSetParams");
    return result == 0;
  }
  void set_enabled(Node node, bool enabled) override {
    call("cuGraphNodeSetEnabled",
         [&] { return driver().graph_set_enabled(exec_, nodes_[node], enabled ? 1 : 0); });
  }
  void launch(Stream& stream) override {
    call("cuGraphLaunch", [&] { return driver().graph_launch(exec_, stream.native()); });
  }

 private:
  const Driver& driver() const { return context_->driver; }
  template <typename Function>
  void call(const char* name, Function function) {
    context_->call(name, function);
  }

  /// What is queued, as a graph; on a stream of its own, so that it is no part of anybody else's work.
  struct Captured {
    Captured(CudaGraph& owner, const Queue& queue) : context(owner.context_) {
      if (owner.capture_ == nullptr) owner.capture_ = std::make_unique<CudaStream>(context);
      void* stream = owner.capture_->native();
      const Driver& driver = context->driver;
      context->call("cuStreamBeginCapture",
                    [&] { return driver.stream_begin_capture(stream, kCaptureRelaxed); });
      try {
        queue(*owner.capture_);
      } catch (...) {
        end(stream);
        destroy();
        throw;
      }
      context->check(end(stream), "cuStreamEndCapture");
    }
    ~Captured() { destroy(); }
    Captured(const Captured&) = delete;
    Captured& operator=(const Captured&) = delete;

    bool is_empty() const {
      std::size_t count = 0;
      context->call("cuGraphGetNodes",
                    [&] { return context->driver.graph_nodes(graph, nullptr, &count); });
      return count == 0;
    }

    ContextPtr context;
    void* graph = nullptr;

   private:
    int end(void* stream) {
      return context->release([&] { return context->driver.stream_end_capture(stream, &graph); });
    }
    void destroy() {
      if (graph != nullptr) context->release([&] { return context->driver.graph_destroy(graph); });
    }
  };

  template <typename Function>
  Node add(std::span<const Node> after, const char* name, Function function) {
    std::vector<void*> before;
    for (const Node node : after) before.push_back(nodes_[node]);
    void* node = nullptr;
    call(name, [&] { return function(&node, before.data()); });
    nodes_.push_back(node);
    return static_cast<Node>(nodes_.size() - 1);
  }

  static KernelNodeParameters parameters_of(Kernel kernel, const LaunchShape& shape,
                                            std::span<void* const> arguments) {
    KernelNodeParameters parameters;
    parameters.function = kernel.handle;
    parameters.grid_x = shape.blocks;
    parameters.block_x = shape.threads;
    parameters.shared_bytes = shape.dynamic_shared_bytes;
    parameters.arguments = const_cast<void**>(arguments.data());
    return parameters;
  }

  /// One row. Pitches have a limit of 2 GiB that rows have not: none are given.
  static CopyParameters parameters_of(void* to, const void* from, std::size_t bytes,
                                      CopyKind kind) {
    const auto side = [&](const void* address, bool host) {
      CopyParameters::Side result;
      result.type = host ? CopyParameters::kHost : CopyParameters::kDevice;
      (host ? result.host : result.device) = address;
      return result;
    };
    CopyParameters parameters;
    parameters.from = side(from, kind == CopyKind::HostToDevice);
    parameters.to = side(to, kind == CopyKind::DeviceToHost);
    parameters.width_bytes = bytes;
    return parameters;
  }

  ContextPtr context_;
  void* graph_ = nullptr;
  void* exec_ = nullptr;
  std::vector<void*> nodes_;
  std::set<Node> empty_;                 ///< nodes of which nothing was queued
  std::unique_ptr<CudaStream> capture_;  ///< where what is queued is captured
};

class CudaDevice : public Device {
 public:
  CudaDevice(int index, const std::string& driver_path, bool reset, void* context)
      : context_(std::make_shared<Context>(index, driver_path, reset, context)) {
    Driver& driver = context_->driver;
    std::array<char, 256> name{};
    driver.check(driver.device_name(name.data(), static_cast<int>(name.size()), context_->device()),
                 "cuDeviceGetName");
    std::size_t bytes = 0;
    driver.check(driver.device_total_memory(&bytes, context_->device()), "cuDeviceTotalMem");
    const int arch =
        10 * context_->attribute(kAttributeMajor) + context_->attribute(kAttributeMinor);
    // From 9.0 on, instructions of one architecture alone are worth having.
    properties_ = {.name = name.data(),
                   .arch = "sm_" + std::to_string(arch) + (arch >= 90 ? "a" : ""),
                   .index = index,
                   .multiprocessors = context_->attribute(kAttributeMultiprocessors),
                   .memory_bytes = static_cast<std::int64_t>(bytes),
                   .max_shared_bytes = context_->attribute(kAttributeMaxSharedOptin),
                   .cache_bytes = context_->attribute(kAttributeCacheBytes),
                   .driver_version = driver.version()};
  }

  const Properties& properties() const override { return properties_; }

  void* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    if (bytes != 0)
      context_->call_apart("cuMemAlloc", [&] { return context_->driver.allocate(&memory, bytes); });
    return memory;
  }
  void release(void* memory) noexcept override {
    if (memory != nullptr) context_->release([&] { return context_->driver.release(memory); });
  }

  void* allocate_pinned(std::size_t bytes) override {
    void* memory = nullptr;
    if (bytes != 0)
      context_->call_apart("cuMemHostAlloc",
                           [&] { return context_->driver.allocate_pinned(&memory, bytes, 0); });
    return memory;
  }
  void release_pinned(void* memory) noexcept override {
    if (memory != nullptr)
      context_->release([&] { return context_->driver.release_pinned(memory); });
  }

  std::unique_ptr<Stream> make_stream() override { return std::make_unique<CudaStream>(context_); }
  std::unique_ptr<Stream> wrap_stream(void* native) override {
    return std::make_unique<CudaStream>(context_, native);
  }
  std::unique_ptr<Event> make_event(bool timing) override {
    return std::make_unique<CudaEvent>(context_, timing);
  }

  void copy(void* to, const void* from, std::size_t bytes, CopyKind kind, Stream& stream) override {
    if (bytes == 0) return;
    const Driver& driver = context_->driver;
    const auto function = kind == CopyKind::HostToDevice   ? driver.copy_to_device
                          : kind == CopyKind::DeviceToHost ? driver.copy_to_host
                                                           : driver.copy_on_device;
    context_->call("cuMemcpyAsync", [&] { return function(to, from, bytes, stream.native()); });
  }
  void fill(void* to, unsigned char value, std::size_t bytes, Stream& stream) override {
    if (bytes == 0) return;
    context_->call("cuMemsetD8Async",
                   [&] { return context_->driver.fill(to, value, bytes, stream.native()); });
  }

  std::unique_ptr<Module> load(std::span<const char> image) override {
    return std::make_unique<CudaModule>(context_, image.data());
  }
  void launch_on(Kernel kernel, const LaunchShape& shape, std::span<void* const> arguments,
                 void* stream) override {
    context_->call("cuLaunchKernel", [&] {
      const Driver& driver = context_->driver;
      if (const int result = allow_shared(driver, kernel, shape); result != 0) return result;
      return driver.launch(kernel.handle, shape.blocks, 1, 1, shape.threads, 1, 1,
                           shape.dynamic_shared_bytes, stream, const_cast<void**>(arguments.data()),
                           nullptr);
    });
  }
  std::unique_ptr<Graph> make_graph() override { return std::make_unique<CudaGraph>(context_); }
  bool enter() noexcept override { return context_->enter(); }
  void leave() noexcept override { context_->leave(); }
  void with_context(const std::function<void()>& work) override { context_->enter(work); }
  void release_with_context(const std::function<void()>& work) noexcept override {
    context_->release([&] {
      work();
      return 0;
    });
  }
  void synchronize() override {
    context_->call_apart("cuCtxSynchronize",
                         [&] { return context_->driver.context_synchronize(); });
  }
  bool lost() const override { return context_->lost(); }

 private:
  ContextPtr context_;
  Properties properties_;
};

}  // namespace

std::unique_ptr<Device> open_cuda(int index, const std::string& driver_path, bool reset,
                                  void* context) {
  return std::make_unique<CudaDevice>(index, driver_path, reset, context);
}

bool cuda_available() {
  try {
    const Context context(0, {}, false, nullptr);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace heddle::device::cuda
