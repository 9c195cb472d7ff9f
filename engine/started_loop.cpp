#include "engine/started_loop.h"

#include <algorithm>

#include "base/check.h"
#include "engine/late_phase.h"
#include "engine/unit.h"
#include "heddle/error.h"
#include "memory/planner.h"

namespace heddle::engine {

namespace {

/// Elements of the first block of a stack; each has twice as many as the one before, up to so many bytes, or one element.
constexpr std::int64_t kFirstBlock = 16;
constexpr std::int64_t kBlockBytes = 1 << 20;

std::size_t output_bytes(const BoundSteps& plan, std::size_t k) {
  const jit::Program& program = plan.unit->program();
  const ir::SymExpr& bytes = plan.unit->schedule().record.buffers[program.outputs[k]].bytes;
  // A size below 0 is reported where the body runs.
  return static_cast<std::size_t>(std::max<std::int64_t>(0, bytes.evaluate(plan.sizes)));
}

}  // namespace

/// A nested plan with memory of its own; none for one that is refused, which only the iteration that comes to it reports.
struct StartedLoop::Nested {
  Nested(std::shared_ptr<const BoundSteps> steps, void* request, RegionMachine& machine)
      : plan(std::move(steps)) {
    if (plan->refusal) return;
    const Needs needs = needs_of(*plan);
    memory = machine.allocate(static_cast<std::size_t>(needs.bytes));
    auto* arena = static_cast<char*>(memory.get());
    frame.prepare(*plan, {{arena}, arena + needs.scratch, needs.stride, request});
  }

  /// @throws ShapeError when it is refused.
  Frame& ready() {
    if (plan->refusal) throw ShapeError(*plan->refusal);
    return frame;
  }

  std::shared_ptr<const BoundSteps> plan;
  std::shared_ptr<void> memory;
  Frame frame;
};

/// Elements of one result, in blocks that grow.
struct StartedLoop::Stack {
  struct Block {
    std::shared_ptr<void> memory;
    std::int64_t count;  ///< elements that it has room for
  };
  std::size_t bytes = 0;  ///< of an element
  std::vector<Block> blocks{};
  std::int64_t left = 0;  ///< elements that the last block has room for yet
};

StartedLoop::StartedLoop(const jit::NestedCall& call, std::shared_ptr<const BoundSteps> condition,
                         std::shared_ptr<const BoundSteps> body, void* const* operands,
                         void* request, RegionMachine& machine)
    : call_(call),
      machine_(machine),
      operands_(operands, operands + call.operands),
      condition_(std::make_unique<Nested>(std::move(condition), request, machine)),
      body_(std::make_unique<Nested>(std::move(body), request, machine)),
      answer_(machine.allocate(memory::kAlignment)) {
  std::int64_t bytes = 0;
  for (std::uint32_t k = 0; k < call.carried; ++k) {
    carried_bytes_.push_back(output_bytes(*body_->plan, k));
    offsets_.push_back(static_cast<std::size_t>(bytes));
    bytes += memory::aligned(static_cast<std::int64_t>(carried_bytes_.back()));
  }
  for (std::shared_ptr<void>& place : places_)
    place = machine.allocate(static_cast<std::size_t>(std::max(bytes, memory::kAlignment)));
  for (std::uint32_t k = call.carried; k < call.results; ++k)
    stacks_.push_back({.bytes = output_bytes(*body_->plan, k)});
  for (std::uint32_t k = call.carried; k < call.operands; ++k) {
    condition_->ready().set_input(k, operands_[k]);
    if (!body_->plan->refusal) body_->frame.set_input(k, operands_[k]);
  }
  condition_->ready().set_output(0, answer_.get());
}

StartedLoop::~StartedLoop() = default;

/// Where the next element goes.
void* StartedLoop::element(Stack& stack) {
  if (stack.left == 0) {
    const std::int64_t bytes = std::max<std::int64_t>(1, static_cast<std::int64_t>(stack.bytes));
    const std::int64_t wanted = stack.blocks.empty() ? kFirstBlock : 2 * stack.blocks.back().count;
    const std::int64_t count = std::clamp<std::int64_t>(kBlockBytes / bytes, 1, wanted);
    stack.blocks.push_back({machine_.allocate(static_cast<std::size_t>(count * bytes)), count});
    stack.left = count;
  }
  const Stack::Block& block = stack.blocks.back();
  const auto at = static_cast<std::size_t>(block.count - stack.left--);
  return static_cast<char*>(block.memory.get()) + at * stack.bytes;
}

/// Where a carried value lies before an iteration.
void* StartedLoop::place(std::int64_t iteration, std::uint32_t k) const {
  if (iteration == 0) return operands_[k];
  return static_cast<char*>(places_[iteration % 2].get()) + offsets_[k];
}

std::int32_t StartedLoop::run() {
  for (;; ++iterations_) {
    bool goes_on = false;
    if (const std::int32_t status = ask(goes_on)) return status;
    if (!goes_on) return 0;
    if (const std::int32_t status = iterate()) return status;
  }
}

std::int32_t StartedLoop::ask(bool& goes_on) {
  Frame& condition = condition_->frame;
  for (std::uint32_t k = 0; k < call_.carried; ++k) condition.set_input(k, place(iterations_, k));
  if (const std::int32_t status = run_phases(condition, machine_)) return status;
  return machine_.truth(answer_.get(), goes_on);
}

std::int32_t StartedLoop::iterate() {
  Frame& body = body_->ready();
  for (std::uint32_t k = 0; k < call_.carried; ++k) {
    body.set_input(k, place(iterations_, k));
    body.set_output(k, place(iterations_ + 1, k));
  }
  for (std::uint32_t k = call_.carried; k < call_.results; ++k)
    body.set_output(k, element(stacks_[k - call_.carried]));
  body.set_backwards(iterations_ % 2 != 0);
  return run_phases(body, machine_);
}

std::vector<Sizes> StartedLoop::result_sizes() const {
  std::vector<Sizes> sizes(call_.results);
  for (std::uint32_t k = 0; k < call_.results; ++k) {
    if (k >= call_.carried) sizes[k].push_back(iterations_);
    for (const ir::SymExpr& size : body_->plan->unit->output_sizes(k))
      sizes[k].push_back(std::max<std::int64_t>(0, size.evaluate(body_->plan->sizes)));
  }
  return sizes;
}

std::int32_t StartedLoop::finish(void* const* results, RegionMachine& machine) {
  HD_CHECK(body_ != nullptr, "a loop is finished once");
  const auto copy = [&](void* to, const void* from, std::size_t bytes) {
    if (bytes != 0) machine.copy(to, from, bytes);
  };
  for (std::uint32_t k = 0; k < call_.carried; ++k)
    copy(results[k], place(iterations_, k), carried_bytes_[k]);
  for (std::size_t k = 0; k < stacks_.size(); ++k) {
    auto* to = static_cast<char*>(results[call_.carried + k]);
    std::int64_t left = iterations_;
    for (const Stack::Block& block : stacks_[k].blocks) {
      const std::size_t bytes =
          static_cast<std::size_t>(std::min(left, block.count)) * stacks_[k].bytes;
      copy(to, block.memory.get(), bytes);
      to += bytes;
      left -= std::min(left, block.count);
    }
  }
  release();
  return 0;
}

/// Until the next request there is no use for the memory.
void StartedLoop::release() {
  stacks_.clear();
  condition_.reset();
  body_.reset();
  for (std::shared_ptr<void>& place : places_) place.reset();
  answer_.reset();
}

}  // namespace heddle::engine
