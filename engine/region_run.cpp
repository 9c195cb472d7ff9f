#include "engine/region_run.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "engine/batch_runs.h"
#include "engine/failure.h"
#include "engine/late_phase.h"
#include "engine/nested_clock.h"
#include "heddle/error.h"
#include "jit/program.h"
#include "memory/allocator.h"
#include "scheduler/stop.h"

namespace heddle::engine {

using scheduler::BoundStep;
using scheduler::Executor;

namespace {

class CpuMachine : public RegionMachine {
 public:
  explicit CpuMachine(Executor& executor) : executor_(executor) {}
  std::int32_t run(Frame& frame) override {
    if (NestedClock* clock = NestedClock::current()) [[unlikely]]
      return clock->run(frame.plan(), frame.steps(), executor_);
    return executor_.run(frame.steps(), frame.stages(), frame.is_backwards());
  }
  std::int32_t bring_to_host(std::span<Bytes>) override { return 0; }
  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
  void clear(void* memory, std::size_t bytes) override {
    if (bytes != 0) std::memset(memory, 0, bytes);
  }
  std::shared_ptr<void> allocate(std::size_t bytes) override {
    auto& host = memory::CachingAllocator::host();
    return {host.allocate(bytes), [&host](void* block) { host.release(block); }};
  }

 private:
  Executor& executor_;
};

}  // namespace

Frame::Frame() = default;
Frame::Frame(Frame&&) noexcept = default;
Frame::~Frame() = default;

void Frame::prepare(const BoundSteps& plan, Memory memory, FrameIo* io) {
  regions_.clear();
  prepare(plan, std::move(memory), io, regions_);
}

void Frame::prepare(const BoundSteps& plan, Memory memory, FrameIo* io, RegionFrames& regions) {
  plan_ = &plan;
  memory_ = std::move(memory);
  late_.reset();
  own_io_.reset();
  io_ = io;
  if (io == nullptr && has_next()) {
    own_io_ = std::make_unique<FrameIo>();
    io_ = own_io_.get();
  }
  table_.assign(plan.table.size(), nullptr);
  for (std::size_t k = 0; k < plan.table.size(); ++k)
    if (plan.table[k].kind == AddressSource::Kind::Fixed) table_[k] = plan.table[k].address;
  put_memory();
  steps_ = plan.steps;
  for (std::size_t k = 0; k < steps_.size(); ++k) {
    steps_[k].buffers = table_.data() + plan.table_start[k];
    steps_[k].request = memory_.request;
    if (plan.regions[k] != nullptr) steps_[k].state = region_frame(plan, k, regions);
  }
  batches_.clear();
  for (const auto& batch : plan.batches) {
    batches_.push_back(std::make_unique<BatchFrame>(*batch));
    steps_[batch->first].state = batches_.back().get();
  }
  put_scratch();
}

RegionFrame* Frame::region_frame(const BoundSteps& plan, std::size_t step, RegionFrames& regions) {
  const BoundRegion& region = *plan.regions[step];
  std::unique_ptr<RegionFrame>& frame = regions[&region];
  if (frame != nullptr) return frame.get();
  frame = std::make_unique<RegionFrame>();
  frame->region = &region;
  frame->workspace_at = plan.table_end(step) - 1 - plan.table_start[step];
  auto* workspace = static_cast<char*>(table_[plan.table_end(step) - 1]);
  for (const auto& nested : region.plans)
    frame->frames.emplace_back().prepare(
        *nested, {{workspace}, memory_.scratch, memory_.scratch_stride, memory_.request}, nullptr,
        regions);
  return frame.get();
}

void Frame::move_to(std::span<char* const> arenas, void* scratch, std::int64_t scratch_stride) {
  if (!std::ranges::equal(memory_.arenas, arenas)) {
    memory_.arenas.assign(arenas.begin(), arenas.end());
    put_memory();
  }
  if (memory_.scratch == scratch && memory_.scratch_stride == scratch_stride) return;
  memory_.scratch = scratch;
  memory_.scratch_stride = scratch_stride;
  put_scratch();
}

void Frame::put_memory() {
  for (std::size_t k = 0; k < plan_->table.size(); ++k) {
    const AddressSource& source = plan_->table[k];
    if (source.kind == AddressSource::Kind::Arena)
      table_[k] = memory_.arenas[source.position] + source.offset;
  }
}

void Frame::put_scratch() {
  for (BoundStep& step : steps_) {
    step.scratch = memory_.scratch;
    step.scratch_stride = memory_.scratch_stride;
  }
}

namespace {

void put(std::vector<void*>& addresses, std::uint32_t position, void* address) {
  if (position >= addresses.size()) addresses.resize(position + 1, nullptr);
  addresses[position] = address;
}

}  // namespace

void Frame::set_input(std::uint32_t position, void* address) {
  if (io_ != nullptr) put(io_->inputs, position, address);
  for (const auto& [entry, input] : plan_->input_slots)
    if (input == position) table_[entry] = address;
}

void Frame::set_output(std::uint32_t position, void* address) {
  if (io_ != nullptr) put(io_->outputs, position, address);
  for (const auto& [entry, output] : plan_->output_slots)
    if (output == position) table_[entry] = address;
}

void* Frame::input(std::uint32_t position) const {
  for (const auto& [entry, input] : plan_->input_slots)
    if (input == position) return table_[entry];
  return nullptr;
}

void Frame::set_decided(std::size_t plan, StartedRegion* started) {
  auto& region = *static_cast<RegionFrame*>(steps_[0].state);
  region.decided = plan;
  region.started = started;
}

void Frame::take_io() {
  for (const auto& [entry, input] : plan_->input_slots) table_[entry] = io_->inputs[input];
  for (const auto& [entry, output] : plan_->output_slots) table_[entry] = io_->outputs[output];
}

char* Frame::at(std::int64_t offset) const {
  const auto& begins = plan_->arena_begins;
  const auto after = std::upper_bound(begins.begin(), begins.end(), offset) - begins.begin();
  const auto phase = static_cast<std::size_t>(after - 1);
  return memory_.arenas[phase] + (offset - begins[phase]);
}

Frame* Frame::next(RegionMachine& machine, std::int32_t* status) {
  if (!has_next()) return nullptr;
  if (late_ == nullptr) late_ = std::make_unique<LatePhase>();
  return late_->enter(*this, machine, status);
}

namespace {

template <typename F>
std::int32_t run_each(Frame& first, RegionMachine& machine, F&& run) {
  std::int32_t status = 0;
  for (Frame* frame = &first; frame != nullptr && status == 0;) {
    scheduler::end_if_stopped();
    if (frame->plan().refusal) throw ShapeError(*frame->plan().refusal);
    status = run(*frame);
    if (status == 0) frame = frame->next(machine, &status);
  }
  return status;
}

}  // namespace

std::int32_t run_phases(Frame& frame, RegionMachine& machine) {
  return run_each(frame, machine, [&](Frame& phase) { return machine.run(phase); });
}

std::int32_t run_phases(Frame& frame, Executor& executor,
                        const std::function<std::int32_t(Frame&)>& run) {
  CpuMachine machine(executor);
  if (!run) return run_phases(frame, machine);
  return run_each(frame, machine, run);
}

namespace {

/// Where a carried value is: given by the caller, in the result's own buffer, in the workspace. One that the body updates is in its
/// result's buffer from the first iteration on.
enum class Place : std::uint8_t { Start, Result, Spare };

/// One run of a step with nested plans.
class RegionRun {
 public:
  RegionRun(const BoundStep& step, RegionMachine& machine)
      : frame_(*static_cast<RegionFrame*>(step.state)),
        region_(*frame_.region),
        machine_(machine),
        workspace_(static_cast<char*>(step.buffers[frame_.workspace_at])),
        predicate_(step.buffers[0]),
        operands_(step.buffers + (region_.kind == ir::RegionKind::Cond ? 1 : 0)),
        results_(operands_ + region_.operands) {
    // Another path of calls may have led here before, with a workspace of its own.
    for (Frame& frame : frame_.frames)
      frame.move_to({&workspace_, 1}, step.scratch, step.scratch_stride);
  }

  std::int32_t cond() {
    if (frame_.started != nullptr) return frame_.started->finish(results_, machine_);
    if (frame_.decided) return once(frame_.frames[*frame_.decided]);
    bool answer = false;
    if (const std::int32_t status = machine_.truth(predicate_, answer)) return status;
    return once(frame_.frames[answer ? 0 : 1]);
  }
  std::int32_t once() {
    if (frame_.started != nullptr) return frame_.started->finish(results_, machine_);
    return once(frame_.frames[0]);
  }

  std::int32_t loop() {
    if (frame_.started != nullptr) return frame_.started->finish(results_, machine_);
    Frame& condition = frame_.frames[0];
    Frame& body = frame_.frames[1];
    char* condition_at = workspace_ + region_.condition_offset;
    for (Frame* frame : {&condition, &body})
      for (std::uint32_t k = region_.carried; k < region_.operands; ++k)
        frame->set_input(k, operands_[k]);
    condition.set_output(0, condition_at);
    move_in();
    Place place = Place::Start;
    for (;;) {
      read_carried(condition, place);
      if (const std::int32_t status = run(condition)) return status;
      bool go_on = false;
      if (const std::int32_t status = machine_.truth(condition_at, go_on)) return status;
      if (!go_on) break;
      const Place next = place == Place::Result ? Place::Spare : Place::Result;
      read_carried(body, place);
      write_carried(body, next);
      if (const std::int32_t status = run(body)) return status;
      place = next;
    }
    settle(place);
    return 0;
  }

  /// The places alternate so that the last iteration writes the results.
  std::int32_t scan() {
    Frame& body = frame_.frames[0];
    for (std::uint32_t k = region_.carried + region_.scanned; k < region_.operands; ++k)
      body.set_input(k, operands_[k]);
    std::int64_t steps = region_.length;
    if (const std::int32_t status = take_count(steps)) return status;
    move_in();
    Place place = Place::Start;
    for (std::int64_t step = 0; step < steps; ++step) {
      const std::int64_t at = region_.reverse ? steps - 1 - step : step;
      for (std::uint32_t k = 0; k < region_.scanned; ++k)
        body.set_input(region_.carried + k,
                       moved(operands_[region_.carried + k], at * region_.slice_bytes[k]));
      for (std::uint32_t k = region_.carried; k < region_.results; ++k)
        body.set_output(region_.call->output_of(k),
                        moved(results_[k], at * region_.element_bytes[k - region_.carried]));
      const bool even = (steps - 1 - step) % 2 == 0;
      const Place next = even ? Place::Result : Place::Spare;
      read_carried(body, place);
      write_carried(body, next);
      body.set_backwards(step % 2 != 0);
      if (const std::int32_t status = run(body)) return status;
      place = next;
    }
    settle(place);
    return 0;
  }

 private:
  static void* moved(void* address, std::int64_t bytes) {
    return static_cast<char*>(address) + bytes;
  }

  std::int32_t run(Frame& frame) { return run_phases(frame, machine_); }

  /// Of a scan that is told how many slices to run; the elements of the others are cleared.
  std::int32_t take_count(std::int64_t& steps) {
    if (!region_.counted) return 0;
    std::int64_t count = 0;
    const void* address = operands_[region_.carried + region_.scanned];
    if (const std::int32_t status = machine_.number(address, count)) return status;
    steps = std::clamp<std::int64_t>(count, 0, region_.length);
    for (std::uint32_t k = region_.carried; k < region_.results; ++k) {
      const std::int64_t bytes = region_.element_bytes[k - region_.carried];
      machine_.clear(moved(results_[k], steps * bytes),
                     static_cast<std::size_t>((region_.length - steps) * bytes));
    }
    return 0;
  }

  std::int32_t once(Frame& frame) {
    for (std::uint32_t k = 0; k < region_.operands; ++k) frame.set_input(k, operands_[k]);
    for (std::uint32_t k = 0; k < region_.results; ++k) frame.set_output(k, results_[k]);
    return run(frame);
  }

  bool is_updated(std::uint32_t k) const { return region_.call->is_updated(k); }
  /// Puts values that the body updates where it does.
  void move_in() {
    for (std::uint32_t k = 0; k < region_.carried; ++k)
      if (const auto bytes = static_cast<std::size_t>(region_.carried_bytes[k]);
          is_updated(k) && bytes != 0 && results_[k] != operands_[k])
        machine_.copy(results_[k], operands_[k], bytes);
  }

  void* carried(std::uint32_t k, Place place) const {
    if (is_updated(k)) return results_[k];
    if (place == Place::Start) return operands_[k];
    return place == Place::Result ? results_[k] : workspace_ + region_.spare_offsets[k];
  }
  void read_carried(Frame& frame, Place place) const {
    for (std::uint32_t k = 0; k < region_.carried; ++k) frame.set_input(k, carried(k, place));
  }
  void write_carried(Frame& frame, Place place) const {
    for (std::uint32_t k = 0; k < region_.carried; ++k)
      if (!is_updated(k)) frame.set_output(region_.call->output_of(k), carried(k, place));
  }
  /// Brings the carried values where the results are.
  void settle(Place place) {
    if (place == Place::Result) return;
    for (std::uint32_t k = 0; k < region_.carried; ++k) {
      const auto bytes = static_cast<std::size_t>(region_.carried_bytes[k]);
      if (bytes != 0 && !is_updated(k)) machine_.copy(results_[k], carried(k, place), bytes);
    }
  }

  RegionFrame& frame_;
  const BoundRegion& region_;
  RegionMachine& machine_;
  char* workspace_;
  const void* predicate_;  ///< of a cond
  void* const* operands_;
  void* const* results_;
};

}  // namespace

std::int32_t RegionMachine::truth(const void* address, bool& answer) {
  Bytes bytes{address, 1};
  const std::int32_t status = bring_to_host({&bytes, 1});
  answer = *static_cast<const bool*>(bytes.address);
  return status;
}

std::int32_t RegionMachine::number(const void* address, std::int64_t& answer) {
  Bytes bytes{address, sizeof answer};
  const std::int32_t status = bring_to_host({&bytes, 1});
  std::memcpy(&answer, bytes.address, sizeof answer);
  return status;
}

void RegionMachine::queue_sizes(const jit::CustomCall&, const base::SymbolValues&, void* const*,
                                void*) {
  HD_CHECK(false, "a machine of the host has no function for devices");
}

void run_region(const BoundStep& step, Executor& executor, std::int32_t* status) {
  CpuMachine machine(executor);
  try {
    run_region(step, machine, status);
  } catch (...) {
    static_cast<Failure*>(step.request)->store(std::current_exception());
    *status = kFailed;
  }
}

void run_region(const BoundStep& step, RegionMachine& machine, std::int32_t* status) {
  RegionRun run(step, machine);
  switch (static_cast<const RegionFrame*>(step.state)->region->kind) {
    case ir::RegionKind::Cond:
      *status = run.cond();
      break;
    case ir::RegionKind::Once:
      *status = run.once();
      break;
    case ir::RegionKind::While:
      *status = run.loop();
      break;
    case ir::RegionKind::Scan:
      *status = run.scan();
      break;
  }
}

}  // namespace heddle::engine
