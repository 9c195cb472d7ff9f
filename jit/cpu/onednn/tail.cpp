#include "jit/cpu/onednn/tail.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "jit/cpu/onednn/vectors.h"

namespace heddle::jit::onednn {

namespace {

// The loops work on vectors of 16 and are compiled for several instruction sets, one of which is chosen at run time:
// everything is inlined into one function of each set.

using Vector = float __attribute__((vector_size(64), aligned(4)));
using Kind = EpilogueOp::Kind;
constexpr std::int64_t kLanes = kChannelBlock;
/// Floats that operations follow one another on: half of a first-level cache.
constexpr std::int64_t kChunkElements = 4096;

/// `values[k] = apply(values[k], operand[k])`; `operand` may be null, then it is not read.
template <typename F>
[[gnu::always_inline]] inline void each(float* values, const float* operand, std::int64_t count,
                                        F apply) {
  std::int64_t k = 0;
  Vector v{};
  Vector other{};
  for (; k + kLanes <= count; k += kLanes) {
    std::memcpy(&v, values + k, sizeof v);
    if (operand != nullptr) std::memcpy(&other, operand + k, sizeof other);
    apply(v, other);
    std::memcpy(values + k, &v, sizeof v);
  }
  if (k == count) return;
  const auto rest = static_cast<std::size_t>(count - k) * sizeof(float);
  v = Vector{};
  other = Vector{};
  std::memcpy(&v, values + k, rest);
  if (operand != nullptr) std::memcpy(&other, operand + k, rest);
  apply(v, other);
  std::memcpy(values + k, &v, rest);
}

/// Comparisons with NaN are false, so that it stays.
[[gnu::always_inline]] inline void clamp(Vector& v, float low, float high) {
  v = v < low ? Vector{} + low : v;
  v = v > high ? Vector{} + high : v;
}

/// One operation on `values` [positions, channels]; of Add, `operand` is laid out like them.
[[gnu::always_inline]] inline void run_op(const EpilogueOp& op, const float* operand, float* values,
                                          std::int64_t positions, std::int64_t channels) {
  const std::int64_t count = positions * channels;
  const float a = op.a;
  const float b = op.b;
  const float low = op.low;
  const float high = op.high;
  switch (op.kind) {
    case Kind::Scale:
      for (std::int64_t p = 0; p < positions; ++p)
        each(values + p * channels, operand, channels,
             [](Vector& v, Vector& other) __attribute__((always_inline)) { v *= other; });
      break;
    case Kind::Shift:
      for (std::int64_t p = 0; p < positions; ++p)
        each(values + p * channels, operand, channels,
             [](Vector& v, Vector& other) __attribute__((always_inline)) { v += other; });
      break;
    case Kind::Add:
      each(values, operand, count,
           [](Vector& v, Vector& other) __attribute__((always_inline)) { v += other; });
      break;
    case Kind::Linear:
      each(values, nullptr, count,
           [=](Vector& v, Vector&) __attribute__((always_inline)) { v = v * a + b; });
      break;
    case Kind::Clamp:
      each(values, nullptr, count,
           [=](Vector& v, Vector&) __attribute__((always_inline)) { clamp(v, low, high); });
      break;
    case Kind::Gate:
      each(values, nullptr, count, [=](Vector& v, Vector&) __attribute__((always_inline)) {
        Vector gate = v * a + b;
        clamp(gate, low, high);
        v *= gate;
      });
      break;
  }
}

/// A gate and the line after it in one pass, as of a hard swish whose result is scaled.
[[gnu::always_inline]] inline void run_gated_line(const EpilogueOp& gate, const EpilogueOp& line,
                                                  float* values, std::int64_t count) {
  const float a = gate.a;
  const float b = gate.b;
  const float low = gate.low;
  const float high = gate.high;
  const float scale = line.a;
  const float shift = line.b;
  each(values, nullptr, count, [=](Vector& v, Vector&) __attribute__((always_inline)) {
    Vector factor = v * a + b;
    clamp(factor, low, high);
    v = v * factor * scale + shift;
  });
}

[[gnu::always_inline]] inline void run_chunk(std::span<const TailOp> ops, std::int64_t begin,
                                             float* values, std::int64_t positions,
                                             std::int64_t channels) {
  for (std::size_t k = 0; k < ops.size(); ++k) {
    const TailOp& tail = ops[k];
    const bool gated_line =
        tail.op.kind == Kind::Gate && k + 1 < ops.size() && ops[k + 1].op.kind == Kind::Linear;
    if (gated_line) {
      run_gated_line(tail.op, ops[++k].op, values + begin * channels, positions * channels);
      continue;
    }
    const bool moves = tail.op.kind == Kind::Add;
    run_op(tail.op, moves ? tail.operand + begin * channels : tail.operand,
           values + begin * channels, positions, channels);
  }
}

[[gnu::always_inline]] inline std::int64_t chunk_positions(std::int64_t channels) {
  return std::max<std::int64_t>(1, kChunkElements / std::max<std::int64_t>(1, channels));
}

[[gnu::always_inline]] inline void tail_loop(std::span<const TailOp> ops, float* values,
                                             std::int64_t positions, std::int64_t channels) {
  const std::int64_t chunk = chunk_positions(channels);
  for (std::int64_t p = 0; p < positions; p += chunk)
    run_chunk(ops, p, values, std::min(chunk, positions - p), channels);
}

[[gnu::always_inline]] inline void unblock_chunk(const float* blocked, const float* added,
                                                 float* values, std::int64_t begin,
                                                 std::int64_t end, std::int64_t positions,
                                                 std::int64_t channels) {
  for (std::int64_t c = 0; c < channels; c += kLanes) {
    const float* from = blocked + c * positions;
    const auto bytes = static_cast<std::size_t>(std::min(kLanes, channels - c)) * sizeof(float);
    const bool whole = bytes == sizeof(Vector);
    for (std::int64_t p = begin; p < end; ++p) {
      Vector v;
      Vector other{};
      std::memcpy(&v, from + p * kLanes, sizeof v);
      const std::int64_t at = p * channels + c;
      if (added != nullptr && whole) std::memcpy(&other, added + at, sizeof other);
      if (added != nullptr && !whole) std::memcpy(&other, added + at, bytes);
      if (added != nullptr) v += other;
      if (whole)
        std::memcpy(values + at, &v, sizeof v);
      else
        std::memcpy(values + at, &v, bytes);
    }
  }
}

[[gnu::always_inline]] inline void unblock_loop(const float* blocked, const float* added,
                                                std::span<const TailOp> ops, float* values,
                                                std::int64_t positions, std::int64_t channels) {
  const std::int64_t chunk = chunk_positions(channels);
  for (std::int64_t p = 0; p < positions; p += chunk) {
    const std::int64_t end = std::min(p + chunk, positions);
    unblock_chunk(blocked, added, values, p, end, positions, channels);
    run_chunk(ops, p, values, end - p, channels);
  }
}

struct Loops {
  void (*run)(std::span<const TailOp>, float*, std::int64_t, std::int64_t);
  decltype(&unblock) bring;
};

[[gnu::target("avx512f,avx512vl,avx512dq,avx512bw,prefer-vector-width=512")]] void tail_avx512(
    std::span<const TailOp> ops, float* values, std::int64_t positions, std::int64_t channels) {
  tail_loop(ops, values, positions, channels);
}
[[gnu::target("avx512f,avx512vl,avx512dq,avx512bw,prefer-vector-width=512")]] void unblock_avx512(
    const float* blocked, const float* added, std::span<const TailOp> ops, float* values,
    std::int64_t positions, std::int64_t channels) {
  unblock_loop(blocked, added, ops, values, positions, channels);
}
[[gnu::target("avx2,fma")]] void tail_avx2(std::span<const TailOp> ops, float* values,
                                           std::int64_t positions, std::int64_t channels) {
  tail_loop(ops, values, positions, channels);
}
[[gnu::target("avx2,fma")]] void unblock_avx2(const float* blocked, const float* added,
                                              std::span<const TailOp> ops, float* values,
                                              std::int64_t positions, std::int64_t channels) {
  unblock_loop(blocked, added, ops, values, positions, channels);
}
void tail_plain(std::span<const TailOp> ops, float* values, std::int64_t positions,
                std::int64_t channels) {
  tail_loop(ops, values, positions, channels);
}
void unblock_plain(const float* blocked, const float* added, std::span<const TailOp> ops,
                   float* values, std::int64_t positions, std::int64_t channels) {
  unblock_loop(blocked, added, ops, values, positions, channels);
}

const Loops& loops() {
  static const Loops chosen = [] {
    const KernelIsa isa = kernel_isas().front();
    if (isa == KernelIsa::Avx512) return Loops{tail_avx512, unblock_avx512};
    if (isa == KernelIsa::Avx2) return Loops{tail_avx2, unblock_avx2};
    return Loops{tail_plain, unblock_plain};
  }();
  return chosen;
}

}  // namespace

void run_tail(std::span<const TailOp> ops, float* values, std::int64_t positions,
              std::int64_t channels, std::int64_t step) {
  if (ops.empty()) return;
  if (step == channels) return loops().run(ops, values, positions, channels);
  std::array<TailOp, kMaxEpilogue> moved;
  std::ranges::copy(ops, moved.begin());
  for (std::int64_t p = 0; p < positions; ++p) {
    loops().run({moved.data(), ops.size()}, values + p * step, 1, channels);
    for (TailOp& tail : std::span(moved).first(ops.size()))
      if (tail.op.kind == Kind::Add) tail.operand += step;
  }
}

void unblock(const float* blocked, const float* added, std::span<const TailOp> ops, float* values,
             std::int64_t positions, std::int64_t channels) {
  loops().bring(blocked, added, ops, values, positions, channels);
}

}  // namespace heddle::jit::onednn
