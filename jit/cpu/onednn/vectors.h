// Vectors of the instruction sets that the kernels here are compiled for, one of which is taken at run time.
#pragma once

#include <cstdint>
#include <span>

namespace heddle::jit::onednn {

/// The instruction set of a kernel: AVX-512, AVX2, or what any processor has that the code is compiled for.
enum class KernelIsa { Avx512, Avx2, Any };

/// Those of this processor, the widest first; the last is Any.
std::span<const KernelIsa> kernel_isas();

/// What a kernel is made of for an instruction set.
struct Avx512 {
  using Vector = float __attribute__((vector_size(64), aligned(4), may_alias));
  using HalfVector = float __attribute__((vector_size(32), aligned(4), may_alias));
  using Doubles = double __attribute__((vector_size(64)));
  static constexpr std::int64_t kLanes = 16;
  static constexpr int kVectors = 3;  ///< of a row of a panel, at most
};
struct Avx2 {
  using Vector = float __attribute__((vector_size(32), aligned(4), may_alias));
  using HalfVector = float __attribute__((vector_size(16), aligned(4), may_alias));
  using Doubles = double __attribute__((vector_size(32)));
  static constexpr std::int64_t kLanes = 8;
  static constexpr int kVectors = 2;
};

/// Vectors of 16 bytes.
struct AnyIsa {
  using Vector = float __attribute__((vector_size(16), aligned(4), may_alias));
  using HalfVector = float __attribute__((vector_size(8), aligned(4), may_alias));
  static constexpr std::int64_t kLanes = 4;
  static constexpr int kVectors = 2;
};

// Everything is inlined into a function for each instruction set: nothing else runs them.
#define HEDDLE_INLINE [[gnu::always_inline]] inline
#define HEDDLE_AVX2 [[gnu::target("avx2,fma")]]
#define HEDDLE_AVX512 [[gnu::target("avx512f,avx512vl,avx512dq,avx512bw,prefer-vector-width=512")]]

template <typename Vector>
HEDDLE_INLINE void load(Vector& v, const float* at) {
  v = *reinterpret_cast<const Vector*>(at);
}
template <typename Vector>
HEDDLE_INLINE void store(float* at, const Vector& v) {
  *reinterpret_cast<Vector*>(at) = v;
}

}  // namespace heddle::jit::onednn
