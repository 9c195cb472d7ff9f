#include "engine/late_phase.h"

#include <algorithm>
#include <span>

#include "engine/late_plans.h"
#include "engine/started_loop.h"
#include "engine/unit.h"
#include "heddle/custom_op.h"
#include "ir/analysis/unbacked.h"
#include "memory/planner.h"

namespace heddle::engine {

using base::SymbolValues;

Needs needs_of(const BoundSteps& plan) {
  Needs needs{memory::aligned(plan.arena_bytes()), memory::aligned(plan.scratch_bytes), 0};
  needs.bytes = std::max(memory::kAlignment, needs.scratch + needs.stride * plan.threads);
  return needs;
}

namespace {

/// Asks for memory for the outputs whose sizes `plan` is the first to know.
void take_outputs(const BoundSteps& plan, FrameIo& io) {
  if (io.source == nullptr) return;
  const std::size_t count = plan.unit->program().outputs.size();
  io.outputs.resize(count, nullptr);
  for (std::uint32_t k = 0; k < count; ++k) {
    const ir::Dims& dims = plan.unit->output_sizes(k);
    if (plan.unit->phases().known_in(dims) != plan.phase) continue;
    Sizes sizes;
    for (const ir::SymExpr& dim : dims) sizes.push_back(dim.evaluate(plan.sizes));
    void* address = io.source->output(k, sizes);
    // On a device the caller's memory may stand for some that is there already.
    if (io.outputs[k] == nullptr) io.outputs[k] = address;
  }
}

std::vector<Sizes> output_sizes(const Unit& unit, const SymbolValues& values) {
  std::vector<Sizes> sizes(unit.program().outputs.size());
  for (std::size_t k = 0; k < sizes.size(); ++k)
    for (const ir::SymExpr& size : unit.output_sizes(k)) sizes[k].push_back(size.evaluate(values));
  return sizes;
}

/// The first phase in which all sizes of results are known.
std::uint32_t phase_of_results(const Unit& unit) {
  std::uint32_t phase = 0;
  for (std::size_t k = 0; k < unit.program().outputs.size(); ++k)
    phase = std::max(phase, unit.phases().known_in(unit.output_sizes(k)));
  return phase;
}

/// Runs the phases of a nested program before the one that knows the sizes of all its results. What they write of
/// results lies aside until the results have their memory.
class Started : public StartedRegion, private OutputSource {
 public:
  Started(std::shared_ptr<const BoundSteps> plan, const Frame::Memory& memory,
          RegionMachine& machine)
      : machine_(machine), plan_(std::move(plan)), aside_(plan_->unit->program().outputs.size()) {
    if (plan_->refusal) throw ShapeError(*plan_->refusal);
    const Needs needs = needs_of(*plan_);
    memory_ = machine.allocate(static_cast<std::size_t>(needs.bytes));
    auto* arena = static_cast<char*>(memory_.get());
    frame_.prepare(*plan_, {{arena}, arena + needs.scratch, needs.stride, memory.request});
  }

  void set_input(std::uint32_t position, void* address) { frame_.set_input(position, address); }

  std::int32_t run_until(std::uint32_t last) {
    FrameIo& io = *frame_.io();
    io.source = this;
    take_outputs(*plan_, io);
    frame_.take_io();
    std::int32_t status = 0;
    for (at_ = &frame_; status == 0 && at_->plan().phase < last;) {
      status = machine_.run(*at_);
      if (status != 0) break;
      if (at_->plan().phase + 1 == last) io.source = nullptr;
      at_ = at_->next(machine_, &status);
    }
    return status;
  }

  std::vector<Sizes> result_sizes() const { return output_sizes(*plan_->unit, at_->plan().sizes); }

  std::int32_t finish(void* const* results, RegionMachine& machine) override {
    FrameIo& io = *frame_.io();
    io.outputs.resize(aside_.size(), nullptr);
    for (std::size_t k = 0; k < aside_.size(); ++k)
      if (aside_[k].memory == nullptr) io.outputs[k] = results[k];
    at_->take_io();
    if (const std::int32_t status = run_phases(*at_, machine)) return status;
    for (std::size_t k = 0; k < aside_.size(); ++k)
      if (aside_[k].bytes != 0) machine.copy(results[k], aside_[k].memory.get(), aside_[k].bytes);
    return 0;
  }

 private:
  void* output(std::uint32_t position, const Sizes& sizes) override {
    const auto& buffer =
        plan_->unit->schedule().record.buffers[plan_->unit->program().outputs[position]];
    std::size_t bytes = size_of(buffer.dtype);
    for (const std::int64_t size : sizes) bytes *= static_cast<std::size_t>(size);
    aside_[position] = {machine_.allocate(std::max<std::size_t>(bytes, 1)), bytes};
    return aside_[position].memory.get();
  }

  struct Aside {
    std::shared_ptr<void> memory;
    std::size_t bytes = 0;
  };
  RegionMachine& machine_;
  std::shared_ptr<const BoundSteps> plan_;
  std::shared_ptr<void> memory_;
  Frame frame_;
  Frame* at_ = nullptr;
  std::vector<Aside> aside_;  ///< by result
};

/// The step that begins the phase after a frame's, and how its sizes are found.
class SizeQuery {
 public:
  SizeQuery(const Frame& frame, RegionMachine& machine)
      : frame_(frame),
        machine_(machine),
        plan_(frame.plan()),
        unit_(*plan_.unit),
        step_(unit_.phases().begin(plan_.phase + 1)),
        kernel_(unit_.schedule().record.steps[step_].kernel),
        launch_(unit_.program().launches[unit_.schedule().given[step_]]) {}

  const std::vector<base::Symbol>& late_sizes() const { return launch_.late_sizes; }

  /// What of nested plans had to be decided and run to tell sizes.
  struct Begun {
    std::size_t plan = 0;
    std::unique_ptr<StartedRegion> started;
  };

  /// All sizes that are known now. Nothing when *status says what failed.
  SymbolValues ask(std::int32_t* status, Begun& begun) const {
    const jit::ProgramKernel& kernel = unit_.program().kernels[kernel_];
    const ir::PlanKernel& named = unit_.schedule().record.kernels[kernel_];
    const std::vector<Sizes> got = kernel.custom != nullptr
                                       ? ask_op(*kernel.custom, status)
                                       : ask_graph(*kernel.nested, status, begun);
    if (*status != 0) return {};
    return ir::solve_sizes(launch_.late_results, got, launch_.late_sizes, plan_.sizes,
                           named.name + ": sizes of the results", "%" + named.nodes[0]);
  }

 private:
  std::vector<Sizes> ask_op(const jit::CustomCall& call, std::int32_t* status) const {
    if (machine_.asks_on_device() && call.op->cuda_sizes) return ask_on_device(call, status);
    const auto fail = [&](std::string why) {
      throw CustomOpError({.what = call.op->schema.name + ": the function `sizes` failed",
                           .where = call.node,
                           .expected = {},
                           .got = std::move(why)});
    };
    std::vector<RegionMachine::Bytes> arguments;
    for (const auto& [address, bytes] : jit::argument_bytes(call, plan_.sizes, frame_.query()))
      arguments.push_back({address, static_cast<std::size_t>(bytes)});
    *status = machine_.bring_to_host(arguments);
    if (*status != 0) return {};
    std::vector<const void*> on_host;
    for (const RegionMachine::Bytes& argument : arguments) on_host.push_back(argument.address);
    try {
      return jit::ask_sizes(call, plan_.sizes, plan_.threads, on_host);
    } catch (const std::exception& error) {
      fail(error.what());
    } catch (...) {
      fail("an exception that is no std::exception");
    }
    return {};
  }

  /// The op's work on the device tells the sizes of the results, one after another.
  std::vector<Sizes> ask_on_device(const jit::CustomCall& call, std::int32_t* status) const {
    std::size_t count = 0;
    for (const ir::Dims& result : launch_.late_results) count += result.size();
    const std::size_t bytes = count * sizeof(std::int64_t);
    const std::shared_ptr<void> told = machine_.allocate(bytes);
    machine_.queue_sizes(call, plan_.sizes, frame_.query(), told.get());
    RegionMachine::Bytes answer{told.get(), bytes};
    *status = machine_.bring_to_host({&answer, 1});
    if (*status != 0) return {};
    const auto* next = static_cast<const std::int64_t*>(answer.address);
    std::vector<Sizes> sizes;
    for (const ir::Dims& result : launch_.late_results) {
      sizes.emplace_back(next, next + result.size());
      next += result.size();
    }
    return sizes;
  }

  /// Which nested graph is going to run.
  std::size_t chosen(const jit::NestedCall& call, std::int32_t* status) const {
    if (call.kind != ir::RegionKind::Cond) return 0;
    bool answer = false;
    *status = machine_.truth(frame_.query()[0], answer);
    return answer ? 0 : 1;
  }

  std::vector<Sizes> ask_graph(const jit::NestedCall& call, std::int32_t* status,
                               Begun& begun) const {
    if (call.kind == ir::RegionKind::While) return ask_loop(call, status, begun);
    begun.plan = chosen(call, status);
    if (*status != 0) return {};
    const Unit& nested = *unit_.nested(kernel_)[begun.plan];
    const SymbolValues sizes = nested_sizes(call.regions[begun.plan], plan_.sizes);
    const std::uint32_t phase = phase_of_results(nested);
    if (phase == 0) return output_sizes(nested, sizes);
    auto run = std::make_unique<Started>(
        plan_.late->started(begun.plan, nested, sizes, plan_.threads), frame_.memory(), machine_);
    const std::uint32_t first = call.kind == ir::RegionKind::Cond ? 1 : 0;
    for (std::uint32_t k = 0; k < call.operands; ++k) run->set_input(k, frame_.query()[first + k]);
    *status = run->run_until(phase);
    if (*status != 0) return {};
    std::vector<Sizes> result = run->result_sizes();
    begun.started = std::move(run);
    return result;
  }

  /// How many iterations there are is known when all of them have run.
  std::vector<Sizes> ask_loop(const jit::NestedCall& call, std::int32_t* status,
                              Begun& begun) const {
    const auto started = [&](std::size_t k) {
      return plan_.late->started(k, *unit_.nested(kernel_)[k],
                                 nested_sizes(call.regions[k], plan_.sizes), plan_.threads);
    };
    auto loop = std::make_unique<StartedLoop>(call, started(0), started(1), frame_.query(),
                                              frame_.memory().request, machine_);
    *status = loop->run();
    if (*status != 0) return {};
    std::vector<Sizes> sizes = loop->result_sizes();
    begun.started = std::move(loop);
    return sizes;
  }

  const Frame& frame_;
  RegionMachine& machine_;
  const BoundSteps& plan_;
  const Unit& unit_;
  const ir::StepId step_;
  const std::uint32_t kernel_;
  const jit::Launch& launch_;
};

}  // namespace

LatePhase::Entry& LatePhase::entry_for(const BoundSteps& before,
                                       std::span<const base::Symbol> symbols,
                                       const SymbolValues& sizes) {
  std::vector<std::int64_t> late;
  for (const base::Symbol& symbol : symbols) late.push_back(sizes.at(symbol));
  const auto known =
      std::ranges::find_if(entries_, [&](const auto& entry) { return entry->late_sizes == late; });
  if (known != entries_.end()) {
    std::rotate(entries_.begin(), known, known + 1);
    return *entries_.front();
  }
  auto entry = std::make_unique<Entry>();
  entry->late_sizes = std::move(late);
  entry->plan = before.late->next(before, entry->late_sizes, sizes);
  entries_.insert(entries_.begin(), std::move(entry));
  if (entries_.size() > LatePlans::kRemembered) entries_.pop_back();
  return *entries_.front();
}

char* LatePhase::memory_of(RegionMachine& machine, std::int64_t bytes) {
  auto known = std::ranges::find(memories_, machine.lane(), &Memory::lane);
  if (known == memories_.end()) known = memories_.insert(known, Memory{.lane = machine.lane()});
  if (bytes > known->bytes) {
    known->block.reset();
    known->bytes = 0;
    known->block = machine.allocate(static_cast<std::size_t>(bytes));
    known->bytes = bytes;
  }
  return static_cast<char*>(known->block.get());
}

/// The arena of the phase and the scratch of its steps, in memory that all entries share.
void LatePhase::give_memory(Entry& entry, Frame& before, RegionMachine& machine) {
  const Needs needs = needs_of(*entry.plan);
  char* memory = memory_of(machine, needs.bytes);
  arenas_ = before.memory().arenas;
  arenas_.push_back(memory);
  char* scratch = memory + needs.scratch;
  if (entry.is_prepared) return entry.frame.move_to(arenas_, scratch, needs.stride);
  entry.frame.prepare(*entry.plan, {arenas_, scratch, needs.stride, before.memory().request},
                      before.io());
  entry.is_prepared = true;
}

Frame* LatePhase::enter(Frame& before, RegionMachine& machine, std::int32_t* status) {
  const SizeQuery query(before, machine);
  SizeQuery::Begun begun;
  const SymbolValues sizes = query.ask(status, begun);
  if (*status != 0) return nullptr;
  Entry& entry = entry_for(before.plan(), query.late_sizes(), sizes);
  if (entry.plan->refusal) throw ShapeError(*entry.plan->refusal);
  give_memory(entry, before, machine);
  started_ = std::move(begun.started);
  if (entry.plan->regions[0] != nullptr) entry.frame.set_decided(begun.plan, started_.get());
  FrameIo& io = *before.io();
  take_outputs(*entry.plan, io);
  io.peak_bytes = entry.plan->memory.peak_bytes;
  entry.frame.take_io();
  return &entry.frame;
}

}  // namespace heddle::engine
