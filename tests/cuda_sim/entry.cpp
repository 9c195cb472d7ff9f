#include "tests/cuda_sim/entry.h"

#include <cstdio>
#include <cstring>

#include "tests/cuda_sim/inject.h"
#include "tests/cuda_sim/memory.h"

namespace heddle::sim {
namespace {

bool is_fatal(int error) {
  return error == kIllegalAddress || error == 702 || error == 714 || error == kLaunchFailed;
}

}  // namespace

std::recursive_mutex& mutex() {
  static std::recursive_mutex one;
  return one;
}

ContextState& context_state() {
  static ContextState one;
  return one;
}

std::atomic<unsigned long>& objects() {
  static std::atomic<unsigned long> count;
  return count;
}

std::vector<void*>& context_stack() {
  thread_local std::vector<void*> stack;
  return stack;
}

int lose(int error, const std::string& why) {
  ContextState& context = context_state();
  if (context.lost == kSuccess) {
    std::fprintf(stderr, "cuda-sim: %s\n", why.c_str());
    context.why_lost = why;
  }
  return context.lost = error;
}

int usable() {
  const Machine& machine = Machine::instance();
  ContextState& context = context_state();
  if (context.lost == kSuccess && !machine.problem().empty()) {
    context.why_lost = machine.problem();
    context.lost = machine.illegal_address() ? kIllegalAddress : kLaunchFailed;
  }
  if (context.lost == kSuccess)
    if (const std::string damage = Memory::instance().damage(); !damage.empty())
      lose(kIllegalAddress, damage);
  if (context.lost != kSuccess) return context.lost;
  return context_stack().empty() ? kInvalidContext : kSuccess;
}

int waited(bool finished) {
  if (const int state = usable(); state != kSuccess) return state;
  return finished ? kSuccess : lose(kLaunchFailed, "streams wait for each other");
}

Stream* stream_of(void* handle) {
  auto* stream = static_cast<Stream*>(handle);
  const bool known = Machine::instance().has(stream) && !context_stack().empty();
  return known && stream->context == context_stack().back() ? stream : nullptr;
}

Event* event_of(void* handle) {
  auto* event = static_cast<Event*>(handle);
  const bool known = Machine::instance().has(event) && !context_stack().empty();
  return known && event->context == context_stack().back() ? event : nullptr;
}

int wild_argument(const Kernel& kernel, const std::vector<std::uint64_t>& arguments) {
  for (std::size_t k = 0; k < kernel.kinds.size(); ++k) {
    if (kernel.kinds[k] != 'p') continue;
    const auto* pointer = reinterpret_cast<const void*>(arguments[k]);
    const Memory& memory = Memory::instance();
    if (pointer != nullptr && !memory.holds(pointer, 0) && !memory.holds_pinned(pointer, 0))
      return static_cast<int>(k);
  }
  return -1;
}

int set_launch(Operation& operation, Kernel& kernel, heddle_sim_uint3 grid, heddle_sim_uint3 block,
               std::size_t shared_bytes, void** arguments) {
  if (grid.x == 0 || block.x == 0 || block.x > 1024 || shared_bytes > kernel.max_dynamic_shared)
    return kInvalidValue;
  operation.kernel = &kernel;
  operation.grid = grid;
  operation.block = block;
  operation.shared_bytes = shared_bytes;
  operation.arguments.assign(kernel.kinds.size(), 0);
  for (std::size_t k = 0; k < kernel.kinds.size(); ++k) {
    const std::size_t bytes =
        kernel.kinds[k] == 'p' ? sizeof(void*) : static_cast<std::size_t>(kernel.kinds[k] - '0');
    std::memcpy(&operation.arguments[k], arguments[k], bytes);
  }
  return kSuccess;
}

int not_captured(Stream& stream) {
  if (stream.capture == nullptr) return kSuccess;
  stream.capture->broken = true;
  return kCaptureUnsupported;
}

CaptureMode& capture_mode() {
  thread_local CaptureMode mode = CaptureMode::Global;
  return mode;
}

int apart_from_captures() {
  if (capture_mode() == CaptureMode::Relaxed) return kSuccess;
  int result = kSuccess;
  for (Capture* capture : Machine::instance().captures()) {
    const bool own = capture->thread == std::this_thread::get_id();
    const bool minds =
        own ? capture->mode != CaptureMode::Relaxed
            : capture->mode == CaptureMode::Global && capture_mode() == CaptureMode::Global;
    if (!minds) continue;
    capture->broken = true;
    result = kCaptureUnsupported;
  }
  return result;
}

Entry::Entry(const char* function) : error_(Injector::instance().enter(function)) {
  const ContextState& state = context_state();
  if (is_fatal(error_) && (state.holders > 0 || !state.contexts.empty()))
    lose(error_, std::string(function) + " was told to fail");
}

}  // namespace heddle::sim
