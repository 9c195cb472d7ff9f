#include "engine/plan_cache.h"

#include <algorithm>
#include <bit>

namespace heddle::engine {

namespace {

bool same_words(const BoundPlan& plan, std::span<const std::int64_t> words) {
  return plan.words.size() == words.size() &&
         std::equal(words.begin(), words.end(), plan.words.begin());
}

}  // namespace

Reclaimer::Reader::Reader(Reclaimer& owner) noexcept {
  const std::uint64_t generation = owner.generation_.load(std::memory_order_seq_cst);
  counter_ = &owner.stripes_[base::thread_stripe()].readers[generation & 1];
  counter_->fetch_add(1, std::memory_order_seq_cst);
}

Reclaimer::Reader::~Reader() { counter_->fetch_sub(1, std::memory_order_release); }

void Reclaimer::advance() {
  const std::uint64_t next = generation_.load(std::memory_order_seq_cst) + 1;
  std::int64_t readers = 0;
  for (Stripe& stripe : stripes_)
    readers += stripe.readers[next & 1].load(std::memory_order_seq_cst);
  if (readers == 0) generation_.store(next, std::memory_order_seq_cst);
}

void Reclaimer::retire(std::unique_ptr<BoundPlan> plan) {
  retired_.push_back({generation_.load(std::memory_order_seq_cst), std::move(plan)});
  advance();
  const std::uint64_t now = generation_.load(std::memory_order_seq_cst);
  std::erase_if(retired_, [&](const Retired& item) { return item.generation + 2 < now; });
}

PlanCache::PlanCache(std::size_t capacity, std::int64_t most_bytes)
    : capacity_(std::max<std::size_t>(capacity, 2)),
      most_bytes_(most_bytes),
      mask_(std::bit_ceil(capacity_ * 2) - 1),
      slots_(new Slot[mask_ + 1]()) {}

PlanCache::~PlanCache() = default;

const BoundPlan* PlanCache::find(std::span<const std::int64_t> words,
                                 std::uint64_t hash) const noexcept {
  for (std::size_t at = hash & mask_;; at = (at + 1) & mask_) {
    const BoundPlan* plan = slots_[at].load(std::memory_order_acquire);
    if (plan == nullptr) return nullptr;
    if (plan->hash == hash && same_words(*plan, words)) return plan;
  }
}

const BoundPlan* PlanCache::insert(std::unique_ptr<BoundPlan> plan) {
  const std::int64_t bytes = plan->held_bytes();
  const std::scoped_lock lock(mutex_);
  if (const BoundPlan* present = find(plan->words, plan->hash)) {
    reclaimer_.retire(std::move(plan));
    return present;
  }
  while (plans_.size() == capacity_ || (plans_.size() > 1 && held_bytes_ + bytes > most_bytes_))
    drop_older_half();
  held_bytes_ += bytes;
  plans_.push_back({std::move(plan), bytes});
  put(*plans_.back().plan);
  return plans_.back().plan.get();
}

void PlanCache::drop_older_half() {
  const auto half = plans_.begin() + static_cast<std::ptrdiff_t>((plans_.size() + 1) / 2);
  std::vector<Held> dropped(std::make_move_iterator(plans_.begin()), std::make_move_iterator(half));
  plans_.erase(plans_.begin(), half);
  rebuild();
  for (Held& old : dropped) reclaimer_.retire(std::move(old.plan));
}

template <typename F>
void PlanCache::erase_if(F&& is_dropped) {
  const std::scoped_lock lock(mutex_);
  std::vector<std::unique_ptr<BoundPlan>> dropped;
  for (Held& held : plans_) {
    if (is_dropped(*held.plan)) dropped.push_back(std::move(held.plan));
  }
  std::erase_if(plans_, [](const Held& held) { return held.plan == nullptr; });
  rebuild();
  for (auto& old : dropped) reclaimer_.retire(std::move(old));
}

void PlanCache::erase(const Executable* executable) {
  erase_if([&](const BoundPlan& plan) { return plan.executable.get() == executable; });
}

void PlanCache::replace(std::unique_ptr<BoundPlan> plan) {
  erase_if(
      [&](const BoundPlan& old) { return old.hash == plan->hash && old.words == plan->words; });
  insert(std::move(plan));
}

std::size_t PlanCache::size() const {
  const std::scoped_lock lock(mutex_);
  return plans_.size();
}

void PlanCache::put(const BoundPlan& plan) {
  std::size_t at = plan.hash & mask_;
  while (slots_[at].load(std::memory_order_relaxed) != nullptr) at = (at + 1) & mask_;
  slots_[at].store(&plan, std::memory_order_release);
}

/// A reader that meets a slot in between finds nothing and takes the slow path, which is right too.
void PlanCache::rebuild() {
  for (std::size_t k = 0; k <= mask_; ++k) slots_[k].store(nullptr, std::memory_order_release);
  held_bytes_ = 0;
  for (const Held& held : plans_) {
    held_bytes_ += held.bytes;
    put(*held.plan);
  }
}

}  // namespace heddle::engine
