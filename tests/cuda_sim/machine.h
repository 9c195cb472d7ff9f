// Streams, events and what waits in them.
//
// Nothing runs when it is given to a stream. When the host waits for something, operations are run one at a
// time, the next one taken from any stream whose first operation may begin, until what the host waits for
// is done; the rest stays. Which stream comes next a seed decides, by priorities that change at random
// points, so that each seed is another interleaving.
//
// Source of the choice: S. Burckhardt et al., "A Randomized Scheduler with Probabilistic Guarantees of
// Finding Bugs", ASPLOS 2010.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda_sim/clock.h"
#include "tests/cuda_sim/memory.h"
#include "tests/cuda_sim/module.h"

namespace heddle::sim {

/// One recording of an event.
struct Firing {
  bool fired = false;
  VectorClock clock{};
  std::chrono::steady_clock::time_point when{};
};

struct Event {
  void* context = nullptr;
  std::shared_ptr<Firing> latest;  ///< null: never recorded
};

struct GraphNode;

struct Operation {
  enum class Kind : std::uint8_t { Launch, Copy, Fill, Record, Wait, Graph } kind = Kind::Launch;
  // Launch
  Kernel* kernel = nullptr;
  heddle_sim_uint3 grid{1, 1, 1};
  heddle_sim_uint3 block{1, 1, 1};
  std::size_t shared_bytes = 0;
  std::vector<std::uint64_t> arguments{};
  // Copy, Fill
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
  bool to_device = false;
  bool from_device = false;
  unsigned char value = 0;
  std::vector<unsigned char>
      taken{};  ///< bytes of pageable memory, read when the copy was asked for
  // Record, Wait; Graph: the end of the launch before, null for the first
  std::shared_ptr<Firing> firing{};
  // Graph
  std::vector<GraphNode> nodes{};
  std::vector<std::uint32_t> slots{};
  std::shared_ptr<Firing> end{};
  // All
  VectorClock host{};  ///< what the host knew when it gave the operation
  std::uint64_t number = 0;
};

/// An operation of a graph, after others of it.
struct GraphNode {
  Operation operation;
  std::vector<std::size_t> after;
  bool enabled = true;
  std::size_t chain =
      0;  ///< the last of so many that came from one graph, each after the one before; 0: of none
};

/// Which captures and calls mind each other: CUstreamCaptureMode.
enum class CaptureMode : int { Global = 0, ThreadLocal = 1, Relaxed = 2 };

/// What a stream is given while it is captured.
struct Capture {
  CaptureMode mode = CaptureMode::Global;
  std::thread::id thread{};  ///< that began it
  std::vector<Operation> operations{};
  bool broken = false;  ///< by something that cannot be captured
};

/// Work in order. Each node of a graph that runs has one to itself.
struct Stream {
  std::uint32_t slot = 0;
  void* context = nullptr;
  bool of_graph = false;
  std::deque<Operation> queue{};
  VectorClock clock{};
  std::uint64_t priority = 0;
  std::unique_ptr<Capture> capture{};  ///< null: it is not captured
};

class Machine {
 public:
  static Machine& instance();

  Stream* make_stream(void* context);
  bool has(const Stream* stream) const { return streams_.contains(const_cast<Stream*>(stream)); }
  /// Runs what is in it first.
  void destroy(Stream* stream);
  Event* make_event(void* context);
  bool has(const Event* event) const { return events_.contains(const_cast<Event*>(event)); }
  void destroy(Event* event) { events_.erase(event); }
  std::size_t live() const;
  std::vector<Capture*> captures() const;  ///< under way
  std::uint32_t take_slot();
  void give_slot_back(std::uint32_t slot) { free_slots_.push_back(slot); }

  void give(Stream* stream, Operation operation);
  /// Each runs until it is done, or an operation failed. False: nothing that could run would help.
  bool finish(Stream* stream);
  bool finish(const std::shared_ptr<Firing>& firing);
  bool finish_all();
  /// Runs one operation, if any may begin.
  bool run_one();
  /// Whether work that waits uses memory of [begin, begin + bytes), or a kernel of `module`.
  bool uses(const void* begin, std::size_t bytes) const;
  bool uses(const Module* module) const;

  /// What went wrong; empty: nothing. The context is lost then.
  const std::string& problem() const { return problem_; }
  bool illegal_address() const { return illegal_address_; }
  /// Forgets streams, events and what waits.
  void reset();

  /// 0: in the order in which work was given.
  void set_seed(std::uint64_t seed);
  /// The n-th wait for an event from now on does nothing, as if nobody had asked for it. For tests of the
  /// tests: the simulator must object. 0: none.
  void skip_wait(std::uint64_t n) {
    waits_ = 0;
    skip_wait_ = n;
  }
  std::uint64_t waits() const { return waits_; }
  /// Launches of kernels whose name has `part` in it take so much longer on the clock of events; empty: of none.
  void slow(std::string part, double milliseconds) {
    slow_part_ = std::move(part);
    slow_by_ = std::chrono::duration<double, std::milli>(milliseconds);
  }
  /// The same of the next such launch alone.
  void slow_once(std::string part, double milliseconds) {
    slow_once_part_ = std::move(part);
    slow_once_by_ = std::chrono::duration<double, std::milli>(milliseconds);
  }
  std::uint64_t operations() const { return operations_; }
  /// What kernels have read of the device's memory since this was last asked.
  std::uint64_t take_bytes_read() { return std::exchange(bytes_read_, 0); }

 private:
  Machine();
  bool run_until(const std::function<bool()>& done);
  /// Whether it holds for an operation that waits, those of graphs included.
  bool any_waiting(const std::function<bool(const Operation&)>& holds) const;
  static bool may_begin(const Stream& stream);
  Stream* choose();
  void run(Stream& stream);
  void execute(Stream& stream, Operation& operation);
  /// Gives each node a stream, which waits for those of the nodes before it; `stream` waits for all.
  void begin_graph(Stream& stream, Operation& operation);
  std::string launch(Operation& operation);
  std::string copy(Operation& operation);
  static void kernel_access(unsigned long address, unsigned long bytes, int kind, const void* site);
  static void kernel_meter(unsigned long address, unsigned long bytes, int kind, const void* site);
  static void kernel_undefined(const char* what, unsigned int line);

  std::map<Stream*, std::unique_ptr<Stream>> streams_;
  std::map<Event*, std::unique_ptr<Event>> events_;
  std::vector<std::uint32_t> free_slots_;
  std::vector<std::uint64_t> times_{0};  ///< by slot: operations so far; slot 0 is nobody's
  VectorClock host_;
  Toucher toucher_;
  const Operation* running_ = nullptr;
  std::mt19937_64 random_{1};
  std::uint64_t seed_ = 0;
  std::uint64_t launches_ = 0;  ///< that ran
  std::uint64_t numbers_ = 0;
  std::uint64_t operations_ = 0;
  std::uint64_t bytes_read_ = 0;
  std::uint64_t waits_ = 0;
  std::uint64_t skip_wait_ = 0;
  std::string slow_part_;
  std::chrono::duration<double, std::milli> slow_by_{};
  std::string slow_once_part_;
  std::chrono::duration<double, std::milli> slow_once_by_{};
  std::chrono::duration<double, std::milli> lag_{};  ///< of the host's clock behind that of events
  std::string problem_;
  bool illegal_address_ = false;
};

}  // namespace heddle::sim
