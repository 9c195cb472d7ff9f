// What the kernels of simulated libraries share: elements of f32 (0), f16 (2) and bf16 (any other number).
#pragma once

namespace heddle::sim {

inline constexpr const char* kLibraryText = R"(
static __device__ __forceinline__ float element(const void* from, int type, long long at) {
  if (type == 0) return ((const float*)from)[at];
  const unsigned short bits = ((const unsigned short*)from)[at];
  if (type == 2) return hd_cvt_f32_f16(bits);
  const unsigned int wide = (unsigned int)bits << 16;
  float value;
  __builtin_memcpy(&value, &wide, 4);
  return value;
}
static __device__ __forceinline__ unsigned short to_bf16(float value) {
  unsigned int bits;
  __builtin_memcpy(&bits, &value, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (unsigned short)((bits >> 16) | 0x40u);
  return (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
)";

}  // namespace heddle::sim
