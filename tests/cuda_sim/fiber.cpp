#include "tests/cuda_sim/fiber.h"

#include <cstddef>
#include <cstdint>
#include <new>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace heddle::sim {

#if defined(__x86_64__)
// Saves the registers that a callee keeps, stores the stack pointer in *from and goes on at `to`.
extern "C" void heddle_sim_switch(void** from, void* to);
// Where a fiber begins: rbx holds the Fiber, r12 the function that takes it.
extern "C" void heddle_sim_trampoline();
asm(R"(
.text
.hidden heddle_sim_switch
.globl heddle_sim_switch
.type heddle_sim_switch, @function
heddle_sim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size heddle_sim_switch, .-heddle_sim_switch
.hidden heddle_sim_trampoline
.globl heddle_sim_trampoline
.type heddle_sim_trampoline, @function
heddle_sim_trampoline:
  movq %rbx, %rdi
  callq *%r12
  ud2
.size heddle_sim_trampoline, .-heddle_sim_trampoline
)");
#endif

struct Fiber::Context {
  unsigned char* stack = nullptr;
#if defined(__x86_64__)
  void* inside = nullptr;   ///< stack pointer of the fiber while it is away
  void* outside = nullptr;  ///< of its caller while it runs
#else
  ucontext_t inside;
  ucontext_t outside;
#endif
#if defined(__SANITIZE_ADDRESS__)
  bool clean = true;  ///< no frames stand on the stack
  void* fake_stack = nullptr;
  const void* caller_bottom = nullptr;
  std::size_t caller_size = 0;
#endif
#if defined(__SANITIZE_THREAD__)
  void* tsan_fiber = nullptr;
  void* tsan_caller = nullptr;
#endif
};

Fiber::Fiber() : context_(new Context) {
  void* memory = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  // The lowest page catches overflow.
  ::mprotect(memory, 4096, PROT_NONE);
  context_->stack = static_cast<unsigned char*>(memory);
}

namespace {

#if defined(__SANITIZE_ADDRESS__)
/// The marks that ASan keeps of frames which never return would be taken for those of what comes next.
void forget_frames(unsigned char* stack, std::size_t from = 0) {
  __asan_unpoison_memory_region(stack + from, Fiber::kStackBytes - from);
}
#endif

}  // namespace

Fiber::~Fiber() {
#if defined(__SANITIZE_ADDRESS__)
  if (!context_->clean) forget_frames(context_->stack);
#endif
#if defined(__SANITIZE_THREAD__)
  if (context_->tsan_fiber != nullptr) __tsan_destroy_fiber(context_->tsan_fiber);
#endif
  ::munmap(context_->stack, kStackBytes);
  delete context_;
}

void Fiber::start(Fiber* self) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &self->context_->caller_bottom,
                                  &self->context_->caller_size);
#endif
  self->entry_(self->argument_);
  __builtin_trap();
}

std::pair<const unsigned char*, const unsigned char*> Fiber::stack() const {
  return {context_->stack, context_->stack + kStackBytes};
}

void Fiber::prepare(void (*entry)(void*), void* argument) {
  entry_ = entry;
  argument_ = argument;
  Context& c = *context_;
#if defined(__SANITIZE_ADDRESS__)
  if (!c.clean) forget_frames(c.stack);
  c.clean = false;
  c.fake_stack = nullptr;
#endif
#if defined(__SANITIZE_THREAD__)
  if (c.tsan_fiber != nullptr) __tsan_destroy_fiber(c.tsan_fiber);
  c.tsan_fiber = __tsan_create_fiber(0);
#endif
#if defined(__x86_64__)
  // The switch pops six registers, then returns into the trampoline.
  auto* top = reinterpret_cast<std::uint64_t*>(c.stack + kStackBytes - 64);
  top[0] = 0;
  top[-1] = reinterpret_cast<std::uint64_t>(&heddle_sim_trampoline);
  top[-2] = 0;                                                                              // rbp
  top[-3] = reinterpret_cast<std::uint64_t>(this);                                          // rbx
  top[-4] = reinterpret_cast<std::uint64_t>(static_cast<void (*)(Fiber*)>(&Fiber::start));  // r12
  top[-5] = top[-6] = top[-7] = 0;
  c.inside = top - 7;
#else
  ::getcontext(&c.inside);
  c.inside.uc_stack.ss_sp = c.stack;
  c.inside.uc_stack.ss_size = kStackBytes;
  c.inside.uc_link = nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(this);
  ::makecontext(&c.inside, reinterpret_cast<void (*)()>(+[](unsigned low, unsigned high) {
    start(reinterpret_cast<Fiber*>(static_cast<std::uintptr_t>(high) << 32 | low));
  }),
                2, static_cast<unsigned>(address), static_cast<unsigned>(address >> 32));
#endif
}

void Fiber::resume() {
  Context& c = *context_;
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, c.stack, kStackBytes);
#endif
#if defined(__SANITIZE_THREAD__)
  c.tsan_caller = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(c.tsan_fiber, 0);
#endif
#if defined(__x86_64__)
  heddle_sim_switch(&c.outside, c.inside);
#else
  ::swapcontext(&c.outside, &c.inside);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}

void Fiber::leave([[maybe_unused]] bool done) {
  Context& c = *context_;
#if defined(__SANITIZE_ADDRESS__)
  c.clean = done;
  if (done) {
    constexpr std::ptrdiff_t kThisFrame = 4096;
    const auto* frame = static_cast<unsigned char*>(__builtin_frame_address(0));
    // No temporaries from here on: where they end they are marked as dead, and this frame never returns.
    const std::ptrdiff_t above = frame - c.stack - kThisFrame;
    forget_frames(c.stack, above > 0 ? static_cast<std::size_t>(above) : 0);
  }
  __sanitizer_start_switch_fiber(done ? nullptr : &c.fake_stack, c.caller_bottom, c.caller_size);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(c.tsan_caller, 0);
#endif
#if defined(__x86_64__)
  heddle_sim_switch(&c.inside, c.outside);
#else
  ::swapcontext(&c.inside, &c.outside);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(c.fake_stack, &c.caller_bottom, &c.caller_size);
#endif
}

}  // namespace heddle::sim
