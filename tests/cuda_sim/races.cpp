#include "tests/cuda_sim/races.h"

#include <algorithm>

namespace heddle::sim {
namespace {

constexpr std::size_t kWord = 4;
constexpr std::uint32_t kWarpgroup = 128;
/// Beyond it the record of earlier launches is thrown away.
constexpr std::size_t kMostChunks = std::size_t{1} << 16;

bool conflicts(Access a, Access b) {
  if (a == Access::Write || b == Access::Write) return true;
  return a != b;
}

}  // namespace

void Races::begin(std::uint32_t threads) {
  threads_ = std::max(1u, threads);
  ++launch_;
  handed_.clear();
  begin_block();
  if (chunks_.size() <= kMostChunks) return;
  chunks_.clear();
  last_ = nullptr;
}

void Races::begin_block() {
  known_.clear();
  acquired_.clear();
  pending_.clear();
  released_.clear();
  gates_.clear();
  seen_.clear();
  copies_.clear();
}

void Races::begin_block(const unsigned char* shared, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(shared) / kChunk * kChunk;
  const auto end = reinterpret_cast<std::uintptr_t>(shared) + bytes;
  for (std::uintptr_t at = begin; at < end; at += kChunk)
    if (const auto found = chunks_.find(at); found != chunks_.end()) found->second.launch = 0;
}

Races::Chunk& Races::chunk_at(std::uintptr_t address) {
  const std::uintptr_t begin = address / kChunk * kChunk;
  if (last_ == nullptr || last_address_ != begin) {
    last_ = &chunks_[begin];
    last_address_ = begin;
  }
  if (last_->launch != launch_) {
    *last_ = Chunk();
    last_->launch = launch_;
  }
  return *last_;
}

void Races::narrow(Chunk& chunk) {
  if (chunk.bytes != nullptr) return;
  chunk.bytes = std::make_unique<std::array<Cell, kChunk>>();
  for (std::size_t k = 0; k < kChunk; ++k) (*chunk.bytes)[k] = chunk.words[k / kWord];
}

Races::Cell& Races::cell_at(Chunk& chunk, std::uintptr_t address) {
  const std::size_t offset = address % kChunk;
  return chunk.bytes != nullptr ? (*chunk.bytes)[offset] : chunk.words[offset / kWord];
}

std::uint32_t Races::conflict(const Cell& cell, Access kind, Moment now) const {
  for (const Access other : {Access::Read, Access::Write, Access::Atomic}) {
    if (!conflicts(kind, other)) continue;
    const Touches& touches = cell[static_cast<std::size_t>(other)];
    if (touches.earlier.thread != 0 && (touches.several || !is_ordered(touches.earlier, now)))
      return touches.earlier.thread;
    for (const Moment& touch : {touches.first, touches.second})
      if (touch.thread != 0 && !is_ordered(touch, now)) return touch.thread;
  }
  return 0;
}

bool Races::is_ordered(const Moment& earlier, const Moment& now) const {
  if (earlier.thread == now.thread) return true;
  if (block_of(earlier.thread) == block_of(now.thread))
    return earlier.epoch != now.epoch ||
           (!seen_.empty() &&
            seen_[(now.thread - 1) % threads_][place_of(earlier)] > earlier.arrivals);
  if (is_known(known_, earlier)) return true;
  const auto own = acquired_.find(now.thread);
  return own != acquired_.end() && is_known(own->second, earlier);
}

bool Races::is_known(const Known& known, const Moment& earlier) const {
  const std::uint32_t first = block_of(earlier.thread) * threads_ + 1;
  for (auto at = known.lower_bound(first); at != known.end() && at->first < first + threads_;
       ++at) {
    const Moment& until = at->second;
    if (earlier.epoch < until.epoch) return true;
    if (earlier.thread == until.thread && earlier.fences < until.fences) return true;
  }
  return false;
}

namespace {

void merge(std::map<std::uint32_t, Moment>& into, const std::map<std::uint32_t, Moment>& more) {
  for (const auto& [thread, until] : more) {
    Moment& known = into.try_emplace(thread, until).first->second;
    known.epoch = std::max(known.epoch, until.epoch);
    known.fences = std::max(known.fences, until.fences);
  }
}

}  // namespace

void Races::fence(Moment now) {
  Known& acquired = acquired_[now.thread];
  merge(acquired, pending_[now.thread]);
  Known& released = released_[now.thread];
  released = known_;
  merge(released, acquired);
  merge(released, {{now.thread, now}});
}

void Races::barrier() {
  for (const auto& [thread, known] : acquired_) merge(known_, known);
  acquired_.clear();
}

std::vector<std::uint32_t> Races::set_out(std::uint32_t thread, bool copies) {
  const std::size_t size = 2 * std::size_t{threads_};
  if (seen_.empty()) {
    seen_.assign(threads_, std::vector<std::uint32_t>(size));
    copies_.assign(threads_, 0);
  }
  if (!copies) {
    ++seen_[thread][thread];
    return seen_[thread];
  }
  std::vector<std::uint32_t> known(size);
  known[threads_ + thread] = ++copies_[thread];
  return known;
}

void Races::arrive(const void* gate, const std::vector<std::uint32_t>& known) {
  std::vector<std::uint32_t>& arrived = gates_[gate].arrived;
  arrived.resize(known.size());
  std::transform(arrived.begin(), arrived.end(), known.begin(), arrived.begin(),
                 [](std::uint32_t a, std::uint32_t b) { return std::max(a, b); });
}

void Races::acquire(const void* gate, std::uint32_t thread) {
  const std::vector<std::uint32_t>& completed = gates_[gate].completed;
  if (completed.empty()) return;
  std::vector<std::uint32_t>& seen = seen_[thread];
  std::transform(seen.begin(), seen.end(), completed.begin(), seen.begin(),
                 [](std::uint32_t a, std::uint32_t b) { return std::max(a, b); });
}

void Races::hand_over(std::uintptr_t word, std::uint32_t thread) {
  Known& handed = handed_[word];
  if (!handed.empty()) merge(pending_[thread], handed);
  if (const auto mine = released_.find(thread); mine != released_.end())
    merge(handed, mine->second);
}

/// Of more than two threads that are in no order, of which two are kept, those of different warpgroups are the ones that most often do not
/// know of each other. Blocks run one after another. Of an earlier one nothing is kept that comes before what is noted now.
void Races::note(Touches& touches, Moment now) const {
  Moment& first = touches.first;
  Moment& second = touches.second;
  const bool other_block = first.thread != 0 && block_of(first.thread) != block_of(now.thread);
  for (const Moment& touch : {first, second}) {
    if (!other_block || touch.thread == 0 || is_ordered(touch, now)) continue;
    touches.several =
        touches.several ||
        (touches.earlier.thread != 0 && block_of(touches.earlier.thread) != block_of(touch.thread));
    touches.earlier = touch;
  }
  const auto is_over = [&](const Moment& touch) {
    return touch.thread == 0 || is_ordered(touch, now);
  };
  if (other_block || (is_over(first) && is_over(second))) {
    first = now;
    second = {};
  } else if (is_over(first)) {
    first = now;
  } else if (is_over(second) || (warpgroup_of(second.thread) == warpgroup_of(first.thread) &&
                                 warpgroup_of(now.thread) != warpgroup_of(first.thread))) {
    second = now;
  }
}

std::uint32_t Races::warpgroup_of(std::uint32_t thread) const {
  return (thread - 1) % threads_ / kWarpgroup;
}

std::string Races::name_of(std::uint32_t thread) const {
  return "thread " + std::to_string((thread - 1) % threads_) + " of block " +
         std::to_string(block_of(thread));
}

std::string Races::access(const void* address, std::size_t bytes, Access kind, Moment now) {
  auto at = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t end = at + bytes;
  const bool is_narrow = at % kWord != 0 || bytes % kWord != 0;
  while (at < end) {
    Chunk& chunk = chunk_at(at);
    if (is_narrow) narrow(chunk);
    Cell& cell = cell_at(chunk, at);
    if (const std::uint32_t other = conflict(cell, kind, now); other != 0) {
      const char* verb = kind == Access::Read    ? "reads"
                         : kind == Access::Write ? "writes"
                                                 : "updates";
      return std::string(verb) + " what " + name_of(other) +
             " touched in the same launch: no barrier lies between";
    }
    note(cell[static_cast<std::size_t>(kind)], now);
    if (kind == Access::Atomic && at % kWord == 0) hand_over(at, now.thread);
    at += chunk.bytes != nullptr ? 1 : kWord;
  }
  return {};
}

}  // namespace heddle::sim
