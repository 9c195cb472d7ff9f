#include "memory/caps.h"

namespace heddle::memory {

void Caps::set(std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  set_ = bytes;
  choose();
}

std::shared_ptr<const void> Caps::hold(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const auto held = [&] {
    const std::scoped_lock lock(mutex_);
    const auto place = held_.insert(bytes);
    choose();
    return place;
  }();
  return {&*held, [this, held](const void*) { let_go(held); }};
}

void Caps::let_go(std::multiset<std::size_t>::iterator held) {
  const std::scoped_lock lock(mutex_);
  held_.erase(held);
  choose();
}

}  // namespace heddle::memory
