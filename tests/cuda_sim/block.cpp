#include "tests/cuda_sim/block.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace heddle::sim {
namespace {

constexpr std::uint32_t kWarp = 32;
/// Floats of these bytes are NaN, integers -1.
constexpr unsigned char kPoison = 0xff;

}  // namespace

BlockRunner& BlockRunner::instance() {
  static BlockRunner runner;
  return runner;
}

std::string BlockRunner::run(const Call& call) {
  call_ = &call;
  problem_.clear();
  state_ = call.state;
  state_->barrier = &barrier;
  state_->shuffle_xor = &shuffle_xor;
  const std::uint32_t count = call.block.x;
  if (call.block.y != 1 || call.block.z != 1 || call.grid.y != 1 || call.grid.z != 1)
    return "the simulator runs grids and blocks of one dimension";
  while (threads_.size() < count) threads_.push_back(std::make_unique<Thread>());
  lanes_.resize(2 * static_cast<std::size_t>(count));
  dynamic_shared_.resize(call.dynamic_shared_bytes + 16);
  const auto address = reinterpret_cast<std::uintptr_t>(dynamic_shared_.data());
  state_->dynamic_shared = dynamic_shared_.data() + (16 - address % 16) % 16;
  state_->block_size = call.block;
  state_->grid_size = call.grid;
  races_.begin(count);
  for (std::uint32_t block = 0; block < call.grid.x; ++block) {
    state_->block = {block, 0, 0};
    if (std::string problem = run_block(call); !problem.empty())
      return "block " + std::to_string(block) + ": " + problem;
  }
  return {};
}

std::string BlockRunner::run_block(const Call& call) {
  const std::uint32_t count = call.block.x;
  std::fill(call.shared_begin, call.shared_end, kPoison);
  std::fill(dynamic_shared_.begin(), dynamic_shared_.end(), kPoison);
  races_.begin_block(call.shared_begin,
                     static_cast<std::size_t>(call.shared_end - call.shared_begin));
  races_.begin_block(dynamic_shared_.data(), dynamic_shared_.size());
  epoch_ = 0;
  for (std::uint32_t k = 0; k < count; ++k) {
    threads_[k]->wait = Wait::None;
    threads_[k]->shuffles = 0;
    threads_[k]->fiber.prepare(&enter, this);
  }
  for (std::uint32_t turn = state_->block.x;; ++turn) {
    for (std::uint32_t k = 0; k < count; ++k) {
      current_ = turn % 2 == 0 ? k : count - 1 - k;
      Thread& thread = *threads_[current_];
      if (thread.wait != Wait::None) continue;
      state_->thread = {current_, 0, 0};
      thread.fiber.resume();
      if (!problem_.empty()) return problem_;
    }
    const auto done = [](const auto& t) { return t->wait == Wait::Done; };
    if (std::all_of(threads_.begin(), threads_.begin() + count, done)) return {};
    if (!release(count)) return "threads wait for others that never come";
  }
}

bool BlockRunner::release(std::uint32_t count) {
  const auto all_wait = [&](std::uint32_t begin, std::uint32_t end, Wait why) {
    return std::all_of(threads_.begin() + begin, threads_.begin() + end,
                       [why](const auto& t) { return t->wait == why; });
  };
  const auto go_on = [&](std::uint32_t begin, std::uint32_t end) {
    for (std::uint32_t k = begin; k < end; ++k) threads_[k]->wait = Wait::None;
  };
  if (all_wait(0, count, Wait::Barrier)) {
    if (++barriers_ != skip_barrier_) ++epoch_;
    go_on(0, count);
    return true;
  }
  bool any = false;
  for (std::uint32_t begin = 0; begin < count; begin += kWarp) {
    const std::uint32_t end = std::min(begin + kWarp, count);
    if (!all_wait(begin, end, Wait::Shuffle)) continue;
    go_on(begin, end);
    any = true;
  }
  return any;
}

namespace {

bool within(const void* address, const unsigned char* begin, const unsigned char* end) {
  const auto* at = static_cast<const unsigned char*>(address);
  return at >= begin && at < end;
}

}  // namespace

bool BlockRunner::is_own(const void* address) const {
  const auto* state = reinterpret_cast<const unsigned char*>(state_);
  if (within(address, state, state + sizeof *state_)) return true;
  const auto [begin, end] = threads_[current_]->fiber.stack();
  return within(address, begin, end);
}

bool BlockRunner::is_shared(const void* address) const {
  return within(address, call_->shared_begin, call_->shared_end) ||
         within(address, dynamic_shared_.data(), dynamic_shared_.data() + dynamic_shared_.size());
}

std::uint64_t BlockRunner::skip_barrier(std::uint64_t n) {
  skip_barrier_ = n;
  return std::exchange(barriers_, 0);
}

void BlockRunner::abandon(std::string&& why) {
  problem_ = "thread " + std::to_string(current_) + " " + why;
  std::string().swap(why);  // its owner's frame never returns
  pause(Wait::Done);
}

void BlockRunner::enter(void* self) {
  auto* runner = static_cast<BlockRunner*>(self);
  runner->call_->kernel(runner->call_->arguments);
  runner->pause(Wait::Done);
}

void BlockRunner::pause(Wait why) {
  const std::uint32_t me = current_;
  threads_[me]->wait = why;
  threads_[me]->fiber.leave(why == Wait::Done);
  state_->thread = {me, 0, 0};
}

void BlockRunner::barrier() { instance().pause(Wait::Barrier); }

unsigned int BlockRunner::shuffle_xor(unsigned int value, int mask) {
  BlockRunner& runner = instance();
  const std::uint32_t me = runner.current_;
  // A lane may be one shuffle ahead of its neighbour, not two.
  const std::size_t turn = runner.threads_[me]->shuffles++ % 2;
  runner.lanes_[2 * me + turn] = value;
  runner.pause(Wait::Shuffle);
  const std::uint32_t other =
      me / kWarp * kWarp + ((me % kWarp) ^ static_cast<std::uint32_t>(mask));
  return other < runner.state_->block_size.x ? runner.lanes_[2 * other + turn] : value;
}

}  // namespace heddle::sim
