#include "engine/completion.h"

#include <utility>

#include "engine/executable.h"
#include "jit/index_report.h"

namespace heddle::engine {

Completion::Completion(Point end, const std::int32_t* status,
                       std::shared_ptr<const Executable> executable)
    : end_(std::move(end)), status_word_(status), executable_(std::move(executable)) {}

void Completion::keep_outcome(std::exception_ptr error) noexcept {
  if (settled_) return;
  // The call itself is passed where no other was given a number meanwhile.
  if (error == nullptr)
    end_.progress->pass(end_.before + 1 == end_.number ? end_.number : end_.before);
  error_ = std::move(error);
  status_ = error_ == nullptr ? *status_word_ : -1;
  if (status_ > 0)
    error_ = std::make_exception_ptr(jit::index_error(executable_->program(), status_, {}));
  executable_.reset();
  settled_.store(true, std::memory_order_release);
}

bool Completion::done() {
  const std::scoped_lock lock(mutex_);
  if (settled_) return true;
  try {
    if (!known_done() && !end_.event->done()) return false;
  } catch (...) {
    return false;  // who waits will see
  }
  keep_outcome(nullptr);
  return true;
}

namespace {

/// What kept the host from waiting for `event`; null: nothing.
std::exception_ptr wait_for(const device::Event& event) {
  try {
    event.synchronize();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

/// The event may be recorded anew meanwhile: then somebody has kept the outcome. An error that the context
/// survives tells nothing about the work, so the wait is tried again.
void Completion::settle() noexcept {
  {
    const std::scoped_lock lock(mutex_);
    if (known_done()) return keep_outcome(nullptr);
  }
  std::exception_ptr error = wait_for(*end_.event);
  if (error != nullptr) error = wait_for(*end_.event);
  const std::scoped_lock lock(mutex_);
  keep_outcome(std::move(error));
}

void Completion::wait() {
  settle();
  const std::scoped_lock lock(mutex_);
  if (error_ != nullptr) std::rethrow_exception(error_);
}

std::int32_t Completion::status() {
  const std::scoped_lock lock(mutex_);
  return status_;
}

bool Completion::order_before(device::Stream& stream) {
  if (stream.native() == end_.stream) return false;
  const std::scoped_lock lock(mutex_);
  const bool waits = !known_done();
  if (waits) stream.wait(*end_.event);
  return waits;
}

bool PendingUses::order(device::Stream& stream, bool writes) {
  const bool has_uses = has_writer_.load(std::memory_order_acquire) ||
                        (writes && has_readers_.load(std::memory_order_acquire));
  if (!has_uses) return false;
  const std::scoped_lock lock(mutex_);
  bool waits = writer_ != nullptr && writer_->order_before(stream);
  if (!writes) return waits;
  for (const CompletionPtr& reader : readers_) waits = reader->order_before(stream) || waits;
  return waits;
}

void PendingUses::add(const CompletionPtr& use, bool writes) {
  const std::scoped_lock lock(mutex_);
  if (writes) {
    writer_ = use;
    readers_.clear();
    has_readers_.store(false, std::memory_order_release);
    has_writer_.store(true, std::memory_order_release);
    return;
  }
  has_readers_.store(true, std::memory_order_release);
  if (readers_.size() == 1 && use->implies(*readers_.front())) {
    readers_.front() = use;
    return;
  }
  std::erase_if(readers_, [&](const CompletionPtr& reader) {
    return use->implies(*reader) || reader->known_done();
  });
  readers_.push_back(use);
}

void PendingUses::wait() {
  CompletionPtr writer;
  {
    const std::scoped_lock lock(mutex_);
    writer = writer_;
  }
  if (writer != nullptr) writer->wait();
}

}  // namespace heddle::engine
