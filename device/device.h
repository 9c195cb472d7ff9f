// One interface to what runs kernels: memory, streams, events, modules, launches. The CPU and CUDA
// implement it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace heddle::device {

struct Properties {
  std::string name;
  std::string arch;  ///< "sm_90a"; what a module is compiled for. Empty: takes no modules.
  int index = 0;
  int multiprocessors = 1;
  std::int64_t memory_bytes = 0;
  std::int64_t max_shared_bytes = 0;  ///< of one block
  std::int64_t cache_bytes = 0;       ///< of the second-level cache
  int driver_version = 0;             ///< 13000 for CUDA 13.0; 0: none
};

enum class CopyKind : std::uint8_t { HostToDevice, DeviceToHost, DeviceToDevice };

class Event;

/// Work in order. Work on two streams is unordered but for events.
class Stream {
 public:
  virtual ~Stream() = default;
  /// Waits on the host until all work given so far is done.
  virtual void synchronize() = 0;
  /// Work given from now on begins after what `event` recorded last.
  virtual void wait(const Event& event) = 0;
  virtual void record(Event& event) = 0;
  /// The platform's handle (CUstream), null where there is none.
  virtual void* native() const = 0;
  /// Whether work given now is noted for later, again and again perhaps, and not done.
  virtual bool is_captured() const { return false; }
};

/// A point in a stream.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool done() const = 0;
  virtual void synchronize() const = 0;
  /// Time between two recorded events that are done; both made with timing.
  virtual double milliseconds_since(const Event& earlier) const = 0;
};

/// A kernel of a module; valid as long as the module lives.
struct Kernel {
  void* handle = nullptr;
  int registers = 0;  ///< of a thread; 0: the device does not tell
  /// Dynamic shared memory of a block that launches may ask for at once; more has to be allowed at each launch.
  std::uint32_t dynamic_shared_bytes = 0;
};

/// Compiled kernels, loaded.
class Module {
 public:
  virtual ~Module() = default;
  /// @param dynamic_shared_bytes  of a block of its launches, at most
  /// @throws DeviceError naming the kernel if the module has none of that name, or is none.
  virtual Kernel kernel(const std::string& name, std::uint32_t dynamic_shared_bytes = 0) const = 0;
};

struct LaunchShape {
  std::uint32_t blocks = 1;
  std::uint32_t threads = 1;
  std::uint32_t dynamic_shared_bytes = 0;
};

/// Launches and copies that one call queues, each after those that it depends on. Made node by node, then made
/// ready, then launched any number of times; launches follow one another, whatever their streams.
///
/// Threads: one at a time.
class Graph {
 public:
  using Node = std::uint32_t;  ///< nodes are numbered from 0 on as they are added
  virtual ~Graph() = default;

  virtual Node add_launch(Kernel kernel, const LaunchShape& shape, std::span<void* const> arguments,
                          std::span<const Node> after) = 0;
  /// @param bytes  > 0; the host's memory is pinned
  virtual Node add_copy(void* to, const void* from, std::size_t bytes, CopyKind kind,
                        std::span<const Node> after) = 0;
  /// What `queue` gives to the stream that it gets, as one node: launches, copies and fills, or nothing.
  using Queue = std::function<void(Stream&)>;
  virtual Node add_queued(const Queue& queue, std::span<const Node> after) = 0;
  /// Ends the adding of nodes.
  virtual void instantiate() = 0;

  // What later launches do; those that are queued stay as they are.
  virtual void set_launch(Node node, Kernel kernel, const LaunchShape& shape,
                          std::span<void* const> arguments) = 0;
  virtual void set_copy(Node node, void* to, const void* from, std::size_t bytes,
                        CopyKind kind) = 0;
  /// @return false: what is queued has another form than what was, and the graph has to be made anew.
  virtual bool set_queued(Node node, const Queue& queue) = 0;
  /// A launch that is not enabled does nothing, between the same others.
  virtual void set_enabled(Node node, bool enabled) = 0;

  virtual void launch(Stream& stream) = 0;
};

/// A device. Threads: any, at once.
///
/// Every function throws DeviceError when the platform fails, DeviceLost when its context did not
/// survive (and from then on always), OutOfMemory when memory is short.
class Device {
 public:
  virtual ~Device() = default;

  virtual const Properties& properties() const = 0;

  /// At least 64-aligned (256 on CUDA); null for 0 bytes.
  virtual void* allocate(std::size_t bytes) = 0;
  /// No work may still use the memory.
  virtual void release(void* memory) noexcept = 0;
  /// Memory of the host that the device copies from and to without the host's help.
  virtual void* allocate_pinned(std::size_t bytes) = 0;
  virtual void release_pinned(void* memory) noexcept = 0;

  virtual std::unique_ptr<Stream> make_stream() = 0;
  /// The caller's own stream, by the platform's handle; it outlives the result.
  virtual std::unique_ptr<Stream> wrap_stream(void* native) = 0;
  virtual std::unique_ptr<Event> make_event(bool timing = false) = 0;

  /// Queued; the memory of both sides has to stay until it ran.
  virtual void copy(void* to, const void* from, std::size_t bytes, CopyKind kind,
                    Stream& stream) = 0;
  virtual void fill(void* to, unsigned char value, std::size_t bytes, Stream& stream) = 0;

  /// What is no image may be refused here, or when a kernel of it is asked for.
  /// @throws UnsupportedError on a device that takes no modules.
  virtual std::unique_ptr<Module> load(std::span<const char> image) = 0;
  /// Queued. `arguments` point to the parameters, which are copied at once.
  void launch(Kernel kernel, const LaunchShape& shape, std::span<void* const> arguments,
              Stream& stream) {
    launch_on(kernel, shape, arguments, stream.native());
  }
  /// The same on a stream of the platform's, by its handle.
  virtual void launch_on(Kernel kernel, const LaunchShape& shape, std::span<void* const> arguments,
                         void* stream) = 0;
  /// @throws UnsupportedError on a device that has none.
  virtual std::unique_ptr<Graph> make_graph() = 0;
  /// Makes the device's context current on this thread until leave(): functions of the device need not do it, each for
  /// itself, meanwhile. Not for spans in which code of others runs but by with_context().
  /// @return false: it was so before, or cannot be; leave() is not to be called
  virtual bool enter() noexcept { return false; }
  virtual void leave() noexcept {}
  /// Calls `work` with the device's context current on this thread.
  virtual void with_context(const std::function<void()>& work) { work(); }
  /// The same for work that gives something back and throws nothing. A lost context is left alone: what it held is gone.
  virtual void release_with_context(const std::function<void()>& work) noexcept { work(); }
  /// Waits for all streams.
  virtual void synchronize() = 0;
  /// Whether an error was met that the context did not survive.
  virtual bool lost() const { return false; }
};

/// Memory of a device, released with its owner.
class Allocation {
 public:
  Allocation() = default;
  Allocation(Device& device, std::size_t bytes)
      : device_(&device), memory_(device.allocate(bytes)), bytes_(bytes) {}
  ~Allocation() {
    if (device_ != nullptr) device_->release(memory_);
  }
  Allocation(Allocation&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)),
        memory_(std::exchange(other.memory_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  Allocation& operator=(Allocation&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  void* get() const { return memory_; }
  std::size_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Device::enter() and leave().
class EnteredDevice {
 public:
  explicit EnteredDevice(Device& device) : device_(device), has_entered_(device.enter()) {}
  ~EnteredDevice() {
    if (has_entered_) device_.leave();
  }
  EnteredDevice(const EnteredDevice&) = delete;
  EnteredDevice& operator=(const EnteredDevice&) = delete;

 private:
  Device& device_;
  const bool has_entered_;
};

}  // namespace heddle::device
