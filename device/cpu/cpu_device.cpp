#include "device/cpu/cpu_device.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <unistd.h>

#include "heddle/error.h"

namespace heddle::device::cpu {
namespace {

constexpr std::size_t kAlignment = 64;

class CpuEvent : public Event {
 public:
  bool done() const override { return true; }
  void synchronize() const override {}
  double milliseconds_since(const Event& earlier) const override {
    const auto& other = static_cast<const CpuEvent&>(earlier);
    return std::chrono::duration<double, std::milli>(when - other.when).count();
  }

  std::chrono::steady_clock::time_point when;
};

class CpuStream : public Stream {
 public:
  void synchronize() override {}
  void wait(const Event&) override {}
  void record(Event& event) override {
    static_cast<CpuEvent&>(event).when = std::chrono::steady_clock::now();
  }
  void* native() const override { return nullptr; }
};

[[noreturn]] void refuse(const char* what) {
  throw UnsupportedError({.what = what,
                          .where = "cpu",
                          .expected = "a device that takes modules",
                          .got = "the CPU, whose kernels are functions"});
}

class CpuDevice : public Device {
 public:
  CpuDevice() {
    properties_.name = "cpu";
    properties_.multiprocessors = static_cast<int>(std::thread::hardware_concurrency());
    properties_.memory_bytes =
        static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  }

  const Properties& properties() const override { return properties_; }

  void* allocate(std::size_t bytes) override {
    if (bytes == 0) return nullptr;
    const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    void* memory = rounded < bytes ? nullptr : std::aligned_alloc(kAlignment, rounded);
    if (memory == nullptr)
      throw OutOfMemory({.what = "host memory",
                         .where = "cpu",
                         .expected = {},
                         .got = "a request for " + std::to_string(bytes) + " bytes"});
    return memory;
  }
  void release(void* memory) noexcept override { std::free(memory); }
  void* allocate_pinned(std::size_t bytes) override { return allocate(bytes); }
  void release_pinned(void* memory) noexcept override { release(memory); }

  std::unique_ptr<Stream> make_stream() override { return std::make_unique<CpuStream>(); }
  std::unique_ptr<Stream> wrap_stream(void*) override { refuse("a stream of the caller's"); }
  std::unique_ptr<Event> make_event(bool) override { return std::make_unique<CpuEvent>(); }

  void copy(void* to, const void* from, std::size_t bytes, CopyKind, Stream&) override {
    if (bytes != 0) std::memmove(to, from, bytes);
  }
  void fill(void* to, unsigned char value, std::size_t bytes, Stream&) override {
    if (bytes != 0) std::memset(to, value, bytes);
  }

  std::unique_ptr<Module> load(std::span<const char>) override { refuse("load of a module"); }
  void launch_on(Kernel, const LaunchShape&, std::span<void* const>, void*) override {
    refuse("launch of a module's kernel");
  }
  std::unique_ptr<Graph> make_graph() override { refuse("a graph of launches"); }
  void synchronize() override {}

 private:
  Properties properties_;
};

}  // namespace

std::unique_ptr<Device> open_cpu() { return std::make_unique<CpuDevice>(); }

}  // namespace heddle::device::cpu
