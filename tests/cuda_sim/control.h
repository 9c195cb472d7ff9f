// What tests ask of the simulator besides the driver's functions: exported functions of the library, under
// the names that the loader below gives.
#pragma once

#include <dlfcn.h>
#include <stdexcept>
#include <string>

namespace heddle::sim {

/// The functions of a loaded simulator. Opening the library again by its path gives the one that an engine
/// uses.
struct Control {
  explicit Control(const std::string& path) : library(::dlopen(path.c_str(), RTLD_NOW)) {
    if (library == nullptr) throw std::runtime_error(::dlerror());
    load(seed, "heddle_cuda_sim_seed");
    load(multiprocessors, "heddle_cuda_sim_multiprocessors");
    load(registers, "heddle_cuda_sim_registers");
    load(libraries, "heddle_cuda_sim_libraries");
    load(fail, "heddle_cuda_sim_fail");
    load(fail_call_of, "heddle_cuda_sim_fail_call_of");
    load(failed, "heddle_cuda_sim_failed");
    load(called, "heddle_cuda_sim_called");
    load(calls, "heddle_cuda_sim_calls");
    load(calls_of, "heddle_cuda_sim_calls_of");
    load(skip_wait, "heddle_cuda_sim_skip_wait");
    load(waits, "heddle_cuda_sim_waits");
    load(skip_edge, "heddle_cuda_sim_skip_edge");
    load(edges, "heddle_cuda_sim_edges");
    load(skip_barrier, "heddle_cuda_sim_skip_barrier");
    load(skip_fence, "heddle_cuda_sim_skip_fence");
    load(skip_proxy_fence, "heddle_cuda_sim_skip_proxy_fence");
    load(skip_mbarrier_wait, "heddle_cuda_sim_skip_mbarrier_wait");
    load(slow, "heddle_cuda_sim_slow");
    load(slow_once, "heddle_cuda_sim_slow_once");
    load(problem, "heddle_cuda_sim_problem");
    load(live, "heddle_cuda_sim_live");
    load(leaked, "heddle_cuda_sim_leaked");
    load(operations, "heddle_cuda_sim_operations");
    load(memory, "heddle_cuda_sim_memory");
    load(memory_peak, "heddle_cuda_sim_memory_peak");
    load(bytes_read, "heddle_cuda_sim_bytes_read");
    load(listen, "heddle_cuda_sim_listen");
    load(recorded, "heddle_cuda_sim_recorded");
    load(meter, "heddle_cuda_sim_meter");
    load(metered, "heddle_cuda_sim_metered");
  }

  /// The seed of the next interleavings; 0: work runs in the order in which it was given, but no sooner
  /// than the host waits for something. At first $HEDDLE_CUDA_SIM_SEED, or 0.
  void (*seed)(unsigned long seed) = nullptr;

  /// How many multiprocessors the device says that it has, to those who ask from now on; 0: two, as at first.
  void (*multiprocessors)(unsigned int count) = nullptr;

  /// How many registers a thread of any kernel takes, as kernels that are loaded from now on tell; 0 at first.
  void (*registers)(unsigned int count) = nullptr;

  /// Whether the driver takes code as libraries; 0: as modules alone. At first it does.
  void (*libraries)(int there) = nullptr;

  /// Calls of entry points are counted anew, and the n-th (from 1) gives an error in place of doing its
  /// work: `error` from cu functions, NVRTC's internal error from nvrtc functions (from a compile that of missing
  /// built-ins, if `error` is 7). Functions that release
  /// something do that all the same. An error that a context does not survive stays. 0: none.
  void (*fail)(unsigned long n, int error) = nullptr;
  /// The same of the n-th call of one function, by its name without the version.
  void (*fail_call_of)(const char* function, unsigned long n, int error) = nullptr;
  /// The name of the function that gave the error; empty: none did yet.
  const char* (*failed)() = nullptr;
  /// Calls of entry points since `fail`.
  unsigned long (*calls)() = nullptr;
  /// The same of one function, by its name without the version: "cuMemAlloc".
  unsigned long (*calls_of)(const char* function) = nullptr;

  /// Those that were called: lines of a name and a number.
  const char* (*called)() = nullptr;

  /// The n-th wait of a stream for an event from now on is left out, as if nobody had asked for it; 0:
  /// none. For tests of tests: the simulator must object.
  void (*skip_wait)(unsigned long n) = nullptr;
  /// Waits of streams for events since `skip_wait`.
  unsigned long (*waits)() = nullptr;

  /// The same of the edges that nodes of graphs are given.
  void (*skip_edge)(unsigned long n) = nullptr;
  unsigned long (*edges)() = nullptr;

  /// The same of the barriers that whole blocks pass. @return how many they passed since it was last called.
  unsigned long (*skip_barrier)(unsigned long n) = nullptr;
  /// The same of the fences of threads.
  unsigned long (*skip_fence)(unsigned long n) = nullptr;
  /// The same of those by which products of warpgroups see what threads wrote.
  unsigned long (*skip_proxy_fence)(unsigned long n) = nullptr;
  /// The same of the waits of threads at mbarriers.
  unsigned long (*skip_mbarrier_wait)(unsigned long n) = nullptr;

  /// Launches of kernels whose name has `part` in it take so many milliseconds more on the clock that events show;
  /// nobody waits for them. Null: of none.
  void (*slow)(const char* part, double milliseconds) = nullptr;
  /// The same of the next such launch alone.
  void (*slow_once)(const char* part, double milliseconds) = nullptr;

  /// What the context was lost by, in words; empty: it lives.
  const char* (*problem)() = nullptr;
  /// Allocations, pinned memory, streams, events, modules and graphs that are there, programs of NVRTC, and what libraries
  /// made.
  unsigned long (*live)() = nullptr;
  /// Those of contexts that had met no error which were still there when their last holders gave them back, since this
  /// was last asked.
  unsigned long (*leaked)() = nullptr;
  /// Operations of streams that have run.
  unsigned long (*operations)() = nullptr;
  /// Bytes of the device's memory that are allocated.
  unsigned long (*memory)() = nullptr;
  /// The most there were at a time since this was last asked.
  unsigned long (*memory_peak)() = nullptr;

  /// Bytes of the device's memory that threads of kernels have read, each as often as it was, since this was last asked.
  unsigned long (*bytes_read)() = nullptr;

  /// Forgets what was recorded, and begins (or ends) to record what the host asks of the device.
  void (*listen)(int on) = nullptr;
  /// The record: lines of text, see record.h.
  const char* (*recorded)() = nullptr;

  /// Forgets what was metered, and begins (or ends) to meter the memory traffic of launches that run.
  void (*meter)(int on) = nullptr;
  /// What was metered: lines of text, see meter.h.
  const char* (*metered)() = nullptr;

  void* library;

 private:
  template <typename Function>
  void load(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(::dlsym(library, name));
    if (function == nullptr) throw std::runtime_error(std::string("no ") + name);
  }
};

}  // namespace heddle::sim
