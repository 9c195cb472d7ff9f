#include "engine/started_loop.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/late_phase.h"
#include "engine/unit.h"
#include "heddle/error.h"
#include "jit/lower/region.h"
#include "memory/planner.h"

namespace heddle::engine {

namespace {

/// Elements of the first block of a stack; each has twice as many as the one before, up to so many bytes, or one element.
constexpr std::int64_t kFirstBlock = 16;
constexpr std::int64_t kBlockBytes = 1 << 20;

/// Of NestedCall::regions.
constexpr std::size_t kCondition = 0;
constexpr std::size_t kBody = 1;

/// @param k  output of the plan
DType output_dtype(const BoundSteps& plan, std::uint32_t k) {
  return plan.unit->schedule().record.buffers[plan.unit->program().outputs[k]].dtype;
}

/// A size below 0 is reported where the body runs.
Sizes evaluated(const ir::Dims& dims, const base::SymbolValues& values) {
  Sizes sizes;
  for (const ir::SymExpr& dim : dims)
    sizes.push_back(std::max<std::int64_t>(0, dim.evaluate(values)));
  return sizes;
}

std::size_t bytes_of(DType dtype, const Sizes& sizes) {
  return size_of(dtype) * static_cast<std::size_t>(ir::element_count(sizes));
}

/// Of memory for what may grow: as much as it grows by half, so that it is seldom taken anew.
std::size_t with_room(std::size_t bytes) { return bytes + bytes / 2; }

}  // namespace

/// A nested plan with memory of its own; none for one that is refused, which only the iteration that comes to it reports.
struct StartedLoop::Nested {
  Nested(std::shared_ptr<const BoundSteps> steps, void* request_of_loop, RegionMachine& machine)
      : sizes(steps->sizes), request(request_of_loop) {
    std::erase_if(sizes, [](const auto& entry) { return jit::is_workspace(entry.first); });
    take(std::move(steps), machine);
  }

  void take(std::shared_ptr<const BoundSteps> steps, RegionMachine& machine) {
    const std::shared_ptr<const BoundSteps> before = std::exchange(plan, std::move(steps));
    if (plan->refusal) return;
    const Needs needs = needs_of(*plan);
    const auto bytes = static_cast<std::size_t>(needs.bytes);
    if (bytes > room) {
      room = before == nullptr ? bytes : with_room(bytes);
      memory.reset();
      memory = machine.allocate(room);
    }
    auto* arena = static_cast<char*>(memory.get());
    frame.prepare(*plan, {{arena}, arena + needs.scratch, needs.stride, request});
  }

  /// @throws ShapeError when it is refused.
  Frame& ready() {
    if (plan->refusal) throw ShapeError(*plan->refusal);
    return frame;
  }

  base::SymbolValues sizes;  ///< that it is bound at
  void* request;
  std::shared_ptr<const BoundSteps> plan;
  std::shared_ptr<void> memory;
  std::size_t room = 0;  ///< bytes of `memory`
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
      next_(call.carried),
      answer_(machine.allocate(memory::kAlignment)) {
  const BoundSteps& start = *body;
  for (std::uint32_t k = 0; k < call.carried; ++k) {
    const ir::TensorMeta& meta = call.regions[kBody].inputs[k];
    const Sizes sizes = evaluated(meta.sizes, start.sizes);
    now_.push_back({sizes, bytes_of(meta.dtype, sizes), operands_[k]});
    if (call.is_updated(k) && appended_to(k) == nullptr) move_in(now_.back());
  }
  for (std::uint32_t k = call.carried; k < call.results; ++k) {
    const std::uint32_t output = call.output_of(k);
    const Sizes sizes = evaluated(start.unit->output_sizes(output), start.sizes);
    stacks_.push_back({.bytes = bytes_of(output_dtype(start, output), sizes)});
  }
  nested_.push_back(std::make_unique<Nested>(std::move(condition), request, machine));
  nested_.push_back(std::make_unique<Nested>(std::move(body), request, machine));
  for (const auto& nested : nested_) give_captured(*nested);
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

void StartedLoop::give_captured(Nested& nested) const {
  if (nested.plan->refusal) return;
  for (std::uint32_t k = call_.carried; k < call_.operands; ++k)
    nested.frame.set_input(k, operands_[k]);
}

/// Binds a nested plan to the sizes that the carried values have now.
void StartedLoop::fit(std::size_t region) {
  Nested& nested = *nested_[region];
  bool fits = true;
  const auto put = [&](const base::Symbol& symbol, std::int64_t size) {
    std::int64_t& bound = nested.sizes[symbol];
    fits = fits && bound == size;
    bound = size;
  };
  for (const jit::NestedCall::ChangingSize& changing : call_.changing)
    put(changing.symbols[region], now_[changing.carried].sizes[changing.dimension]);
  if (region == kBody)
    for (const Appended& appended : call_.appended)
      put(appended.room, have_room(appended, appended.next.evaluate(nested.sizes)));
  if (fits) return;
  auto plan = std::make_shared<BoundSteps>();
  nested.plan->unit->bind(nested.sizes, nested.plan->threads, *plan);
  nested.take(std::move(plan), machine_);
  give_captured(nested);
}

/// Puts what the body is going to overwrite into memory of the loop's own.
void StartedLoop::move_in(Carried& value) {
  value.room = std::max<std::size_t>(1, value.bytes);
  value.memory = machine_.allocate(value.room);
  if (value.bytes != 0) machine_.copy(value.memory.get(), value.address, value.bytes);
  value.address = value.memory.get();
}

const StartedLoop::Appended* StartedLoop::appended_to(std::uint32_t k) const {
  const auto found = std::ranges::find(call_.appended, k, &Appended::carried);
  return found == call_.appended.end() ? nullptr : &*found;
}

StartedLoop::Rows StartedLoop::rows_of(const Appended& appended) const {
  const Carried& value = now_[appended.carried];
  const auto at = value.sizes.begin() + appended.dimension;
  Rows rows{.used = *at};
  for (auto size = value.sizes.begin(); size != at; ++size) rows.groups *= *size;
  const DType dtype = call_.regions[kBody].inputs[appended.carried].dtype;
  rows.bytes = bytes_of(dtype, Sizes(at + 1, value.sizes.end()));
  return rows;
}

/// Copies the rows that there are between memory with room for so many in each group.
void StartedLoop::copy_rows(const Rows& rows, void* to, std::int64_t room_there, const void* from,
                            std::int64_t room_here, RegionMachine& machine) {
  const auto bytes = static_cast<std::size_t>(rows.used) * rows.bytes;
  for (std::int64_t group = 0; group < rows.groups && bytes != 0; ++group)
    machine.copy(
        static_cast<char*>(to) + static_cast<std::size_t>(group * room_there) * rows.bytes,
        static_cast<const char*>(from) + static_cast<std::size_t>(group * room_here) * rows.bytes,
        bytes);
}

/// Has room for `wanted` rows of a value that is appended to. @return for how many there is
std::int64_t StartedLoop::have_room(const Appended& appended, std::int64_t wanted) {
  Carried& value = now_[appended.carried];
  if (value.memory != nullptr && wanted <= value.rows) return value.rows;
  const Rows rows = rows_of(appended);
  const std::int64_t row =
      std::max<std::int64_t>(1, rows.groups * static_cast<std::int64_t>(rows.bytes));
  const std::int64_t least = std::min(kFirstBlock, kBlockBytes / row);  // where there is little yet
  const std::int64_t room = wanted + std::max(wanted / 2, least);
  const std::size_t bytes = static_cast<std::size_t>(rows.groups * room) * rows.bytes;
  std::shared_ptr<void> memory = machine_.allocate(std::max<std::size_t>(1, bytes));
  copy_rows(rows, memory.get(), room, value.address,
            value.memory == nullptr ? rows.used : value.rows, machine_);
  value.memory = std::move(memory);
  value.address = value.memory.get();
  value.rows = room;
  return room;
}

/// Memory for the next value of `k`.
void* StartedLoop::make_room(std::uint32_t k, Sizes sizes) {
  Carried& value = next_[k];
  value.bytes = bytes_of(output_dtype(*nested_[kBody]->plan, call_.output_of(k)), sizes);
  if (value.memory == nullptr || value.bytes > value.room) {
    value.room =
        std::max<std::size_t>(1, call_.changing.empty() ? value.bytes : with_room(value.bytes));
    value.memory.reset();
    value.memory = machine_.allocate(value.room);
  }
  value.sizes = std::move(sizes);
  return value.address = value.memory.get();
}

void* StartedLoop::output(std::uint32_t position, const Sizes& sizes) {
  std::uint32_t carried = 0;
  while (call_.is_updated(carried) || call_.output_of(carried) != position) ++carried;
  return make_room(carried, sizes);
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
  fit(kCondition);
  Frame& condition = nested_[kCondition]->ready();
  for (std::uint32_t k = 0; k < call_.carried; ++k) condition.set_input(k, now_[k].address);
  condition.set_output(0, answer_.get());
  if (const std::int32_t status = run_phases(condition, machine_)) return status;
  return machine_.truth(answer_.get(), goes_on);
}

std::int32_t StartedLoop::iterate() {
  fit(kBody);
  Frame& body = nested_[kBody]->ready();
  const BoundSteps& plan = *nested_[kBody]->plan;
  for (std::uint32_t k = 0; k < call_.carried; ++k) {
    body.set_input(k, now_[k].address);
    if (call_.is_updated(k)) continue;
    const std::uint32_t output = call_.output_of(k);
    const ir::Dims& sizes = plan.unit->output_sizes(output);
    const bool is_known = plan.unit->phases().known_in(sizes) == 0;
    body.set_output(output, is_known ? make_room(k, evaluated(sizes, plan.sizes)) : nullptr);
    if (!is_known) body.io()->source = this;
  }
  for (std::uint32_t k = call_.carried; k < call_.results; ++k)
    body.set_output(call_.output_of(k), element(stacks_[k - call_.carried]));
  body.set_backwards(iterations_ % 2 != 0);
  const std::int32_t status = run_phases(body, machine_);
  for (const Appended& appended : call_.appended)
    now_[appended.carried].sizes[appended.dimension] =
        appended.next.evaluate(nested_[kBody]->sizes);
  for (std::uint32_t k = 0; k < call_.carried; ++k)
    if (!call_.is_updated(k)) std::swap(now_[k], next_[k]);
  return status;
}

std::vector<Sizes> StartedLoop::result_sizes() const {
  std::vector<Sizes> sizes;
  for (const Carried& value : now_) sizes.push_back(value.sizes);
  const BoundSteps& body = *nested_[kBody]->plan;
  for (std::uint32_t k = call_.carried; k < call_.results; ++k) {
    sizes.push_back(evaluated(body.unit->output_sizes(call_.output_of(k)), body.sizes));
    sizes.back().insert(sizes.back().begin(), iterations_);
  }
  return sizes;
}

std::int32_t StartedLoop::finish(void* const* results, RegionMachine& machine) {
  HD_CHECK(!nested_.empty(), "a loop is finished once");
  const auto copy = [&](void* to, const void* from, std::size_t bytes) {
    if (bytes != 0) machine.copy(to, from, bytes);
  };
  for (std::uint32_t k = 0; k < call_.carried; ++k) {
    if (const Appended* appended = appended_to(k);
        appended != nullptr && now_[k].memory != nullptr) {
      const Rows rows = rows_of(*appended);
      copy_rows(rows, results[k], rows.used, now_[k].address, now_[k].rows, machine);
    } else {
      copy(results[k], now_[k].address, now_[k].bytes);
    }
  }
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
  nested_.clear();
  now_.clear();
  next_.clear();
  answer_.reset();
}

}  // namespace heddle::engine
