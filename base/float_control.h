// How a thread's instructions take numbers below the least normal one of their type.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace heddle::base {

/// Bits of the thread's floating-point control: on x86-64 FTZ and DAZ of MXCSR, on AArch64 FZ of FPCR. Other bits, such as the
/// rounding, are left alone.
class SubnormalMode {
 public:
  static SubnormalMode current() { return SubnormalMode(read() & kBits); }
  /// Subnormal operands and results are 0.
  static SubnormalMode flushing() { return SubnormalMode(kBits); }

  void set() const {
    const std::uint64_t all = read();
    if ((all & kBits) != bits_) write((all & ~kBits) | bits_);
  }
  bool operator==(const SubnormalMode&) const = default;

 private:
  explicit SubnormalMode(std::uint64_t bits) : bits_(bits) {}

#if defined(__x86_64__)
  static constexpr std::uint64_t kBits = 0x8040;
  static std::uint64_t read() { return _mm_getcsr(); }
  static void write(std::uint64_t bits) { _mm_setcsr(static_cast<unsigned>(bits)); }
#elif defined(__aarch64__)
  static constexpr std::uint64_t kBits = std::uint64_t{1} << 24;
  static std::uint64_t read() {
    std::uint64_t bits = 0;
    asm volatile("mrs %0, fpcr" : "=r"(bits));
    return bits;
  }
  static void write(std::uint64_t bits) { asm volatile("msr fpcr, %0" ::"r"(bits)); }
#else
  static constexpr std::uint64_t kBits = 0;
  static std::uint64_t read() { return 0; }
  static void write(std::uint64_t) {}
#endif

  std::uint64_t bits_;
};

/// Sets the calling thread's mode and gives back the one that was there.
class SubnormalScope {
 public:
  explicit SubnormalScope(const SubnormalMode& mode) : before_(SubnormalMode::current()) {
    mode.set();
  }
  ~SubnormalScope() { before_.set(); }
  SubnormalScope(const SubnormalScope&) = delete;
  SubnormalScope& operator=(const SubnormalScope&) = delete;

 private:
  const SubnormalMode before_;
};

}  // namespace heddle::base
