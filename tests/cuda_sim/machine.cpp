#include "tests/cuda_sim/machine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/cuda_sim/block.h"
#include "tests/cuda_sim/meter.h"
#include "tests/cuda_sim/record.h"

namespace heddle::sim {

Machine& Machine::instance() {
  static Machine machine;
  return machine;
}

Machine::Machine() {
  if (const char* seed = std::getenv("HEDDLE_CUDA_SIM_SEED"))
    set_seed(std::strtoull(seed, nullptr, 10));
}

void Machine::set_seed(std::uint64_t seed) {
  seed_ = seed;
  random_.seed(seed);
  for (auto& [pointer, stream] : streams_) stream->priority = random_();
}

std::uint32_t Machine::take_slot() {
  if (free_slots_.empty()) {
    times_.push_back(0);
    return static_cast<std::uint32_t>(times_.size() - 1);
  }
  const std::uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

std::size_t Machine::live() const {
  const auto of_caller = [](const auto& entry) { return !entry.second->of_graph; };
  return static_cast<std::size_t>(std::count_if(streams_.begin(), streams_.end(), of_caller)) +
         events_.size();
}

std::vector<Capture*> Machine::captures() const {
  std::vector<Capture*> found;
  for (const auto& [pointer, stream] : streams_)
    if (stream->capture != nullptr) found.push_back(stream->capture.get());
  return found;
}

Stream* Machine::make_stream(void* context) {
  auto stream = std::make_unique<Stream>();
  stream->context = context;
  stream->slot = take_slot();
  stream->priority = random_();
  Stream* pointer = stream.get();
  streams_.emplace(pointer, std::move(stream));
  return pointer;
}

void Machine::destroy(Stream* stream) {
  finish(stream);
  give_slot_back(stream->slot);
  streams_.erase(stream);
}

Event* Machine::make_event(void* context) {
  auto event = std::make_unique<Event>();
  event->context = context;
  Event* pointer = event.get();
  events_.emplace(pointer, std::move(event));
  return pointer;
}

void Machine::reset() {
  for (auto& [pointer, stream] : streams_)
    if (!stream->of_graph) give_slot_back(stream->slot);
  streams_.clear();
  events_.clear();
  problem_.clear();
  illegal_address_ = false;
}

void Machine::give(Stream* stream, Operation operation) {
  if (stream->capture != nullptr)
    return stream->capture->operations.push_back(std::move(operation));
  Record::instance().given(stream, operation);
  if (operation.kind == Operation::Kind::Wait && ++waits_ == skip_wait_) return;
  operation.host = host_;
  operation.number = ++numbers_;
  stream->queue.push_back(std::move(operation));
}

bool Machine::may_begin(const Stream& stream) {
  if (stream.queue.empty()) return false;
  const Operation& first = stream.queue.front();
  const bool waits = first.kind == Operation::Kind::Wait || first.kind == Operation::Kind::Graph;
  return !waits || first.firing == nullptr || first.firing->fired;
}

/// The stream of the highest priority among those that can go on; one time in eight its priority is drawn
/// anew. Seed 0: the stream whose operation was given first.
Stream* Machine::choose() {
  Stream* best = nullptr;
  for (auto& [pointer, stream] : streams_) {
    if (!may_begin(*stream)) continue;
    const auto before = [&](const Stream& a, const Stream& b) {
      return seed_ == 0 ? a.queue.front().number < b.queue.front().number
                        : std::pair(a.priority, a.slot) > std::pair(b.priority, b.slot);
    };
    if (best == nullptr || before(*stream, *best)) best = pointer;
  }
  if (best != nullptr && seed_ != 0 && random_() % 8 == 0) best->priority = random_();
  return best;
}

bool Machine::run_one() {
  if (!problem_.empty()) return false;
  Stream* stream = choose();
  if (stream == nullptr) return false;
  run(*stream);
  return true;
}

bool Machine::run_until(const std::function<bool()>& done) {
  while (!done())
    if (!run_one()) return false;
  return true;
}

bool Machine::finish(Stream* stream) {
  if (!run_until([&] { return stream->queue.empty(); })) return false;
  host_.join(stream->clock);
  return true;
}

bool Machine::finish(const std::shared_ptr<Firing>& firing) {
  if (firing == nullptr) return true;
  if (!run_until([&] { return firing->fired; })) return false;
  host_.join(firing->clock);
  return true;
}

bool Machine::finish_all() {
  const auto idle = [](const auto& entry) { return entry.second->queue.empty(); };
  if (!run_until([&] { return std::all_of(streams_.begin(), streams_.end(), idle); })) return false;
  for (auto& [pointer, stream] : streams_) host_.join(stream->clock);
  return true;
}

bool Machine::any_waiting(const std::function<bool(const Operation&)>& holds) const {
  for (const auto& [pointer, stream] : streams_) {
    for (const Operation& operation : stream->queue) {
      if (holds(operation)) return true;
      for (const GraphNode& node : operation.nodes)
        if (node.enabled && holds(node.operation)) return true;
    }
  }
  return false;
}

bool Machine::uses(const void* begin, std::size_t bytes) const {
  const auto low = reinterpret_cast<std::uint64_t>(begin);
  const auto inside = [&](std::uint64_t address) { return address - low < bytes; };
  return any_waiting([&](const Operation& operation) {
    if (inside(reinterpret_cast<std::uint64_t>(operation.to)) ||
        inside(reinterpret_cast<std::uint64_t>(operation.from)))
      return true;
    for (std::size_t k = 0; k < operation.arguments.size(); ++k)
      if (operation.kernel->kinds[k] == 'p' && inside(operation.arguments[k])) return true;
    return false;
  });
}

bool Machine::uses(const Module* module) const {
  return any_waiting([&](const Operation& operation) {
    return operation.kernel != nullptr && operation.kernel->module == module;
  });
}

void Machine::run(Stream& stream) {
  Operation operation = std::move(stream.queue.front());
  stream.queue.pop_front();
  ++operations_;
  stream.clock.join(operation.host);
  const std::uint64_t time = ++times_[stream.slot];
  toucher_ = {Stamp(stream.slot, time), &stream.clock};
  execute(stream, operation);
  stream.clock.set(stream.slot, time);
  if (operation.kind == Operation::Kind::Record) operation.firing->clock = stream.clock;
  if (stream.of_graph && stream.queue.empty()) streams_.erase(&stream);
}

void Machine::begin_graph(Stream& stream, Operation& operation) {
  if (operation.firing != nullptr) stream.clock.join(operation.firing->clock);
  std::vector<std::shared_ptr<Firing>> ends;
  const auto wait_for = [this](const std::shared_ptr<Firing>& firing) {
    Operation wait;
    wait.kind = Operation::Kind::Wait;
    wait.firing = firing;
    wait.number = ++numbers_;
    return wait;
  };
  const auto record = [this](const std::shared_ptr<Firing>& firing) {
    Operation end;
    end.kind = Operation::Kind::Record;
    end.firing = firing;
    end.number = ++numbers_;
    return end;
  };
  for (std::size_t k = 0; k < operation.nodes.size(); ++k) {
    GraphNode& node = operation.nodes[k];
    auto own = std::make_unique<Stream>();
    own->slot = operation.slots[k];
    own->of_graph = true;
    own->priority = random_();
    own->clock = stream.clock;
    for (const std::size_t before : node.after) own->queue.push_back(wait_for(ends[before]));
    if (node.enabled) {
      node.operation.number = ++numbers_;
      own->queue.push_back(std::move(node.operation));
    }
    ends.push_back(std::make_shared<Firing>());
    own->queue.push_back(record(ends.back()));
    Stream* pointer = own.get();
    streams_.emplace(pointer, std::move(own));
  }
  stream.queue.push_front(record(operation.end));
  for (const auto& end : ends) stream.queue.push_front(wait_for(end));
}

namespace {
bool is_of(const std::string& part, const Kernel& kernel) {
  return !part.empty() && kernel.name.find(part) != std::string::npos;
}
}  // namespace

void Machine::execute(Stream& stream, Operation& operation) {
  std::string wrong;
  switch (operation.kind) {
    case Operation::Kind::Launch:
      wrong = launch(operation);
      if (is_of(slow_part_, *operation.kernel)) lag_ += slow_by_;
      if (is_of(slow_once_part_, *operation.kernel)) {
        lag_ += slow_once_by_;
        slow_once_part_.clear();
      }
      break;
    case Operation::Kind::Copy:
    case Operation::Kind::Fill:
      wrong = copy(operation);
      break;
    case Operation::Kind::Record:
      operation.firing->fired = true;
      operation.firing->when = std::chrono::steady_clock::now() +
                               std::chrono::duration_cast<std::chrono::nanoseconds>(lag_);
      break;
    case Operation::Kind::Wait:
      stream.clock.join(operation.firing->clock);
      break;
    case Operation::Kind::Graph:
      begin_graph(stream, operation);
      break;
  }
  if (wrong.empty()) return;
  problem_ = wrong;
  std::fprintf(stderr, "cuda-sim: %s\n", problem_.c_str());
}

void Machine::kernel_meter(unsigned long address, unsigned long bytes, int kind, const void* site) {
  Meter& meter = Meter::instance();
  if (!meter.is_on()) return;
  const BlockRunner& runner = BlockRunner::instance();
  const bool shared = runner.is_shared(reinterpret_cast<const void*>(address));
  meter.access(runner.thread(), {site, static_cast<Access>(std::min(kind, 2)), shared}, address,
               static_cast<std::uint32_t>(bytes));
}

void Machine::kernel_access(unsigned long address, unsigned long bytes, int kind,
                            const void* site) {
  Machine& machine = instance();
  BlockRunner& runner = BlockRunner::instance();
  const auto* at = reinterpret_cast<const void*>(address);
  if (runner.is_own(at)) return;
  constexpr int kCounter = 3;
  constexpr int kProduct = 4;
  const Access how = kind == kCounter   ? Access::Atomic
                     : kind == kProduct ? Access::Read
                                        : static_cast<Access>(kind);
  const Access of_launch = kind == kCounter ? Access::Write : how;
  std::string wrong;
  const bool shared = runner.is_shared(at);
  if (!shared) {
    wrong = Memory::instance().access(at, bytes, of_launch, machine.toucher_);
    if (how == Access::Read) machine.bytes_read_ += bytes;
  }
  if (wrong.empty()) wrong = runner.races().access(at, bytes, how, runner.now());
  if (wrong.empty() && shared && (kind == kProduct || how != Access::Read))
    wrong = runner.touch_shared(at, bytes, how != Access::Read);
  if (wrong.empty()) {
    if (site != nullptr) kernel_meter(address, bytes, kind, site);
    return;
  }
  machine.illegal_address_ = true;
  runner.abandon(std::move(wrong));
}

void Machine::kernel_undefined(const char* what, unsigned int line) {
  BlockRunner::instance().abandon(std::string(what) + " in line " + std::to_string(line) +
                                  " of the text");
}

std::string Machine::launch(Operation& operation) {
  const Kernel& kernel = *operation.kernel;
  std::vector<void*> pointers;
  for (std::uint64_t& argument : operation.arguments) pointers.push_back(&argument);
  Call call;
  call.kernel = kernel.entry;
  call.state = kernel.state;
  call.arguments = pointers.data();
  call.grid = operation.grid;
  call.block = operation.block;
  call.dynamic_shared_bytes = operation.shared_bytes;
  call.shared_begin = kernel.shared_begin;
  call.shared_end = kernel.shared_end;
  if (seed_ != 0) call.order = seed_ * 0x9e3779b97f4a7c15ull + ++launches_;
  call.state->access = &kernel_access;
  call.state->meter = &kernel_meter;
  call.state->undefined = &kernel_undefined;
  Meter::instance().begin(operation);
  const std::string problem = BlockRunner::instance().run(call);
  Meter::instance().end();
  return problem.empty() ? std::string() : kernel.name + ": " + problem;
}

std::string Machine::copy(Operation& operation) {
  Memory& memory = Memory::instance();
  std::string wrong;
  if (operation.from_device)
    wrong = memory.access(operation.from, operation.bytes, Access::Read, toucher_);
  if (wrong.empty() && operation.to_device)
    wrong = memory.access(operation.to, operation.bytes, Access::Write, toucher_);
  if (!wrong.empty()) {
    illegal_address_ = true;
    return (operation.kind == Operation::Kind::Fill ? "a fill " : "a copy ") + wrong;
  }
  if (operation.kind == Operation::Kind::Fill) {
    std::memset(operation.to, operation.value, operation.bytes);
  } else {
    std::memcpy(operation.to, operation.taken.empty() ? operation.from : operation.taken.data(),
                operation.bytes);
  }
  return {};
}

}  // namespace heddle::sim
