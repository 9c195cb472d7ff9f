#include "tests/cuda_sim/block.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>

#include "tests/cuda_sim/meter.h"

namespace heddle::sim {
namespace {

constexpr std::uint32_t kWarp = 32;
/// Floats of these bytes are NaN, integers -1.
constexpr unsigned char kPoison = 0xff;
/// Of dynamic shared memory: what addresses of wgmma's matrices are counted from.
constexpr std::size_t kSharedAlignment = 1024;

std::vector<std::uint32_t> order_of_blocks(std::uint32_t count, std::uint64_t order) {
  std::vector<std::uint32_t> blocks(count);
  std::iota(blocks.begin(), blocks.end(), 0u);
  if (order != 0) std::shuffle(blocks.begin(), blocks.end(), std::mt19937_64(order));
  return blocks;
}

std::size_t static_bytes(const Call& call) {
  return static_cast<std::size_t>(call.shared_end - call.shared_begin);
}

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
  state_->fence = &fence;
  state_->proxy_fence = &proxy_fence;
  state_->shuffle_xor = &shuffle_xor;
  state_->exchange = &exchange;
  state_->copy = &copy;
  state_->commit_copies = &commit_copies;
  state_->wait_copies = &wait_copies;
  state_->defer = &defer;
  state_->commit_work = &commit_work;
  state_->wait_work = &wait_work;
  state_->mbarrier_init = &mbarrier_init;
  state_->mbarrier_arrive = &mbarrier_arrive;
  state_->mbarrier_arrive_copies = &mbarrier_arrive_copies;
  state_->mbarrier_wait = &mbarrier_wait;
  state_->named_barrier = &named_barrier;
  const std::uint32_t count = call.block.x;
  if (call.block.y != 1 || call.block.z != 1 || call.grid.y != 1 || call.grid.z != 1)
    return "the simulator runs grids and blocks of one dimension";
  while (threads_.size() < count) threads_.push_back(std::make_unique<Thread>());
  warps_.resize(std::max<std::size_t>(warps_.size(), (count + kWarp - 1) / kWarp));
  dynamic_shared_.resize(call.dynamic_shared_bytes + kSharedAlignment);
  const auto address = reinterpret_cast<std::uintptr_t>(dynamic_shared_.data());
  state_->dynamic_shared =
      dynamic_shared_.data() + (kSharedAlignment - address % kSharedAlignment) % kSharedAlignment;
  state_->block_size = call.block;
  state_->grid_size = call.grid;
  races_.begin(count);
  for (const std::uint32_t block : order_of_blocks(call.grid.x, call.order)) {
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
  races_.begin_block();
  races_.begin_block(call.shared_begin, static_bytes(call));
  races_.begin_block(dynamic_shared_.data(), dynamic_shared_.size());
  proxy_.begin_block(count, static_bytes(call) + dynamic_shared_.size());
  mbarriers_.clear();
  of_copy_ = nullptr;
  named_ = {};
  epoch_ = 0;
  for (std::uint32_t k = 0; k < count; ++k) {
    threads_[k]->wait = Wait::None;
    threads_[k]->shuffles = 0;
    threads_[k]->fences = 0;
    threads_[k]->copies.clear();
    threads_[k]->deferred.clear();
    threads_[k]->work_groups = 0;
    threads_[k]->groups = 0;
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
    if (std::all_of(threads_.begin(), threads_.begin() + count, done)) {
      Meter::instance().end_block();
      return {};
    }
    if (!release(count)) return "threads wait for others that never come";
    if (!problem_.empty()) return problem_;
  }
}

bool BlockRunner::release(std::uint32_t count) {
  const auto all_wait = [&](std::uint32_t begin, std::uint32_t end, Wait why) {
    return std::all_of(threads_.begin() + begin, threads_.begin() + end,
                       [why](const auto& t) { return t->wait == why; });
  };
  const auto go_on = [&](std::uint32_t begin, std::uint32_t end) {
    Meter::instance().meet(begin, end);
    for (std::uint32_t k = begin; k < end; ++k) threads_[k]->wait = Wait::None;
  };
  if (all_wait(0, count, Wait::Barrier)) {
    if (++barriers_ != skip_barrier_) {
      ++epoch_;
      races_.barrier();
      proxy_.barrier();
    }
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
  do {
    for (std::uint32_t k = 0; k < count; ++k) {
      Thread& thread = *threads_[k];
      if (thread.wait != Wait::Gate || thread.gate->phase == thread.phase) continue;
      thread.wait = Wait::None;
      any = true;
    }
  } while (!any && end_copies_of_arrivals(count));
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

std::uint64_t BlockRunner::skip_fence(std::uint64_t n) {
  skip_fence_ = n;
  return std::exchange(fences_, 0);
}

std::uint64_t BlockRunner::skip_proxy_fence(std::uint64_t n) {
  skip_proxy_fence_ = n;
  return std::exchange(proxy_fences_, 0);
}

std::uint64_t BlockRunner::skip_mbarrier_wait(std::uint64_t n) {
  skip_mbarrier_wait_ = n;
  return std::exchange(mbarrier_waits_, 0);
}

std::string BlockRunner::touch_shared(const void* address, std::size_t bytes, bool writes) {
  const auto* at = static_cast<const unsigned char*>(address);
  const std::ptrdiff_t offset =
      within(at, call_->shared_begin, call_->shared_end)
          ? at - call_->shared_begin
          : at - dynamic_shared_.data() + static_cast<std::ptrdiff_t>(static_bytes(*call_));
  if (!writes) return proxy_.read(static_cast<std::size_t>(offset), bytes, current_);
  const Moment moment = now();
  proxy_.write(static_cast<std::size_t>(offset), bytes, current_, races_.place_of(moment),
               moment.arrivals);
  return {};
}

void BlockRunner::abandon(std::string&& why) {
  problem_ = "thread " + std::to_string(current_) + " " + why;
  std::string().swap(why);  // its owner's frame never returns
  if (!between_threads_) pause(Wait::Done);
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

void BlockRunner::fence() {
  BlockRunner& runner = instance();
  if (++runner.fences_ == runner.skip_fence_) return;
  ++runner.threads_[runner.current_]->fences;
  runner.races_.fence(runner.now());
}

void BlockRunner::proxy_fence() {
  BlockRunner& runner = instance();
  if (++runner.proxy_fences_ != runner.skip_proxy_fence_)
    runner.proxy_.fence(runner.current_, runner.races_.seen(runner.current_));
}

unsigned int BlockRunner::shuffle_xor(unsigned int value, int mask) {
  const std::uint32_t me = instance().current_;
  const unsigned int* const all = exchange(&value, 1);
  const std::uint32_t other = (me % kWarp) ^ static_cast<std::uint32_t>(mask);
  const bool exists = me / kWarp * kWarp + other < instance().state_->block_size.x;
  return exists ? all[other] : value;
}

const unsigned int* BlockRunner::exchange(const unsigned int* words, unsigned int count) {
  BlockRunner& runner = instance();
  const std::uint32_t me = runner.current_;
  Thread& thread = *runner.threads_[me];
  Turn& turn = runner.warps_[me / kWarp][thread.shuffles++ % 2];
  const bool first = std::none_of(
      runner.threads_.begin() + me / kWarp * kWarp,
      runner.threads_.begin() +
          std::min<std::ptrdiff_t>(me / kWarp * kWarp + kWarp, runner.state_->block_size.x),
      [&](const auto& t) { return t->wait == Wait::Shuffle && t->shuffles == thread.shuffles; });
  if (first) turn.count = count;
  if (turn.count != count) runner.abandon("meets other lanes of its warp at another instruction");
  std::copy_n(words, count, turn.words.begin() + me % kWarp * count);
  runner.pause(Wait::Shuffle);
  return turn.words.data();
}

void BlockRunner::copy(void* to, const void* from, unsigned int bytes, unsigned int valid) {
  BlockRunner& runner = instance();
  Thread& thread = *runner.threads_[runner.current_];
  const auto address = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at); };
  if (address(to) % bytes != 0 || (valid != 0 && address(from) % bytes != 0))
    runner.abandon("copies from or to an address that is not aligned");
  if (valid > bytes) runner.abandon("copies more than there is room for");
  // What others still read must not be overwritten from now on.
  const void* const site = __builtin_return_address(0);
  if (valid != 0) runner.state_->access(address(from), valid, 0, site);
  Copy copy{static_cast<unsigned char*>(to),
            {},
            bytes,
            thread.groups,
            runner.races_.copies_arrived(runner.current_)};
  runner.of_copy_ = &copy;
  runner.state_->access(address(to), bytes, 1, site);
  runner.of_copy_ = nullptr;
  if (valid != 0) std::memcpy(copy.bytes.data(), from, valid);
  std::memset(to, kPoison, bytes);
  thread.copies.push_back(copy);
}

void BlockRunner::defer(void (*work)(const void*), const void* data, unsigned int bytes) {
  BlockRunner& runner = instance();
  Thread& thread = *runner.threads_[runner.current_];
  Work one{work, {}, thread.work_groups};
  if (bytes > one.data.size()) runner.abandon("defers work with more data than there is room for");
  std::memcpy(one.data.data(), data, bytes);
  thread.deferred.push_back(one);
}

void BlockRunner::commit_work() {
  BlockRunner& runner = instance();
  ++runner.threads_[runner.current_]->work_groups;
}

void BlockRunner::wait_work(unsigned int pending) {
  BlockRunner& runner = instance();
  Thread& thread = *runner.threads_[runner.current_];
  while (!thread.deferred.empty() && thread.deferred.front().group + pending < thread.work_groups) {
    const Work one = thread.deferred.front();
    thread.deferred.pop_front();
    one.work(one.data.data());
  }
}

void BlockRunner::commit_copies() {
  BlockRunner& runner = instance();
  ++runner.threads_[runner.current_]->groups;
}

void BlockRunner::wait_copies(unsigned int pending) {
  BlockRunner& runner = instance();
  Thread& thread = *runner.threads_[runner.current_];
  while (!thread.copies.empty() && thread.copies.front().group + pending < thread.groups)
    runner.end_copy(thread);
}

void BlockRunner::end_copy(Thread& thread) {
  const Copy copy = thread.copies.front();
  thread.copies.pop_front();
  if (copy.arrival != nullptr) return arrive(mbarriers_.at(copy.arrival), copy.known);
  of_copy_ = between_threads_ ? &copy : nullptr;  // else the thread has waited for it
  state_->access(reinterpret_cast<std::uintptr_t>(copy.to), copy.count, 1, nullptr);
  of_copy_ = nullptr;
  std::memcpy(copy.to, copy.bytes.data(), copy.count);
}

bool BlockRunner::end_copies_of_arrivals(std::uint32_t count) {
  bool any = false;
  between_threads_ = true;
  for (current_ = 0; current_ < count; ++current_) {
    Thread& thread = *threads_[current_];
    const auto hangs = [](const Copy& copy) { return copy.arrival != nullptr; };
    if (std::none_of(thread.copies.begin(), thread.copies.end(), hangs)) continue;
    while (!hangs(thread.copies.front())) end_copy(thread);
    end_copy(thread);
    any = true;
  }
  between_threads_ = false;
  return any;
}

BlockRunner::Gate& BlockRunner::mbarrier_at(void* at) {
  state_->access(reinterpret_cast<std::uintptr_t>(at), 8, 2, nullptr);
  const auto found = mbarriers_.find(at);
  if (found == mbarriers_.end()) abandon("uses an mbarrier that nobody made");
  return found->second;
}

void BlockRunner::mbarrier_init(void* at, unsigned int arrivals) {
  BlockRunner& runner = instance();
  if (reinterpret_cast<std::uintptr_t>(at) % 8 != 0 || !runner.is_shared(at) || arrivals == 0)
    runner.abandon("makes an mbarrier where none can be");
  runner.state_->access(reinterpret_cast<std::uintptr_t>(at), 8, 1, nullptr);
  runner.mbarriers_[at] = {arrivals, 0, 0};
}

void BlockRunner::arrive(Gate& gate, const std::vector<std::uint32_t>& known) {
  races_.arrive(&gate, known);
  if (++gate.arrived < gate.expected) return;
  gate.arrived = 0;
  ++gate.phase;
  races_.complete(&gate);
}

void BlockRunner::wait_at(const Gate& gate, std::uint32_t phase) {
  const std::uint32_t me = current_;
  if (gate.phase == phase) {
    threads_[me]->gate = &gate;
    threads_[me]->phase = phase;
    pause(Wait::Gate);
  }
  races_.acquire(&gate, me);
}

void BlockRunner::mbarrier_arrive(void* at) {
  BlockRunner& runner = instance();
  Gate& gate = runner.mbarrier_at(at);
  runner.arrive(gate, runner.races_.set_out(runner.current_, false));
}

void BlockRunner::mbarrier_arrive_copies(void* at) {
  BlockRunner& runner = instance();
  runner.mbarrier_at(at);
  Thread& thread = *runner.threads_[runner.current_];
  thread.copies.push_back(
      {nullptr, {}, 0, thread.groups, 0, at, runner.races_.set_out(runner.current_, true)});
}

void BlockRunner::mbarrier_wait(void* at, unsigned int parity) {
  BlockRunner& runner = instance();
  const Gate& gate = runner.mbarrier_at(at);
  if (++runner.mbarrier_waits_ == runner.skip_mbarrier_wait_) return;
  const bool is_over = gate.phase % 2 != parity;
  runner.wait_at(gate, is_over ? gate.phase - 1 : gate.phase);
}

void BlockRunner::named_barrier(unsigned int number, unsigned int threads, bool waits) {
  BlockRunner& runner = instance();
  if (number == 0 || number >= runner.named_.size() || threads % kWarp != 0)
    runner.abandon("meets others at a barrier that there is not");
  Gate& gate = runner.named_[number];
  if (gate.arrived != 0 && gate.expected != threads)
    runner.abandon("meets others at a barrier that they expect other numbers of threads at");
  gate.expected = threads;
  const std::uint32_t phase = gate.phase;
  runner.arrive(gate, runner.races_.set_out(runner.current_, false));
  if (waits) runner.wait_at(gate, phase);
}

}  // namespace heddle::sim
