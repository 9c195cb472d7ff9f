#include "tests/cuda_sim/races.h"

#include <algorithm>

namespace heddle::sim {
namespace {

constexpr std::size_t kWord = 4;
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
  if (chunks_.size() <= kMostChunks) return;
  chunks_.clear();
  last_ = nullptr;
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
    if (touches.earlier_block != 0 && block_of(touches.earlier_block) != block_of(now.thread))
      return touches.earlier_block;
    for (const std::uint32_t thread : {touches.first.thread, touches.second}) {
      if (thread == 0 || thread == now.thread) continue;
      if (block_of(thread) != block_of(now.thread) || touches.first.epoch == now.epoch)
        return thread;
    }
  }
  return 0;
}

/// Blocks run one after another, so one thread stands for all earlier blocks.
void Races::note(Touches& touches, Moment now) const {
  Moment& first = touches.first;
  const bool other_block = first.thread != 0 && block_of(first.thread) != block_of(now.thread);
  if (other_block) touches.earlier_block = first.thread;
  if (first.thread == 0 || other_block || first.epoch != now.epoch) {
    first = now;
    touches.second = 0;
  } else if (first.thread != now.thread && touches.second == 0) {
    touches.second = now.thread;
  }
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
    at += chunk.bytes != nullptr ? 1 : kWord;
  }
  return {};
}

}  // namespace heddle::sim
