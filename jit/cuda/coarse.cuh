// Device functions of numbers that are rounded to bf16 before anybody reads them. The rules of prelude.cuh hold, whose continuation
// this is.
//
// Each is off by at most 2^-11 of itself, a quarter of what the rounding to bf16 may be; numbers below 2^-126 count as 0, and those below 2^-124 need not be told apart.

// 2^x to 2^-22 of itself; 0 where that is smaller than any normal number.
#ifndef HEDDLE_CUDA_SIM
static __device__ __forceinline__ float hd_exp2(float x) {
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}
#endif

#ifndef HEDDLE_CUDA_SIM
static __device__ __forceinline__ float hd_coarse_tanh(float x) {
  float value;
  asm("tanh.approx.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}
static __device__ __forceinline__ float hd_coarse_sqrt(float x) {
  float value;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}
static __device__ __forceinline__ float hd_coarse_rsqrt(float x) {
  float value;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}
static __device__ __forceinline__ float hd_coarse_div(float a, float b) {
  float value;
  asm("div.full.ftz.f32 %0, %1, %2;" : "=f"(value) : "f"(a), "f"(b));
  return value;
}
#endif

static __device__ __forceinline__ float hd_coarse_exp(float x) { return hd_exp2(x * 1.44269504f); }

static __device__ __forceinline__ float hd_coarse_reciprocal(float x) {
  return hd_coarse_div(1.0f, x);
}

// 1 / x for x in [1/2, 2^126), to 2^-12 of itself: to 1/20 by its bits, and from there by Halley's step. The units that make reciprocals
// have an eighth of the rate of those that multiply, and are busy with exponentials.
static __device__ __forceinline__ float hd_coarse_inverse(float x) {
  const float guess = __int_as_float(0x7ef311c3 - __float_as_int(x));
  const float rest = fmaf(-x, guess, 1.0f);
  return fmaf(guess, fmaf(rest, rest, rest), guess);
}

static __device__ __forceinline__ float hd_coarse_sigmoid(float x) {
  return hd_coarse_inverse(1.0f + hd_exp2(hd_min(x * -1.44269504f, 125.0f)));
}

// 1 + tanh(x)
static __device__ __forceinline__ float hd_coarse_tanh_gate(float x) {
  return hd_coarse_inverse(fmaf(0.5f, hd_exp2(hd_min(x * -2.88539008f, 125.0f)), 0.5f));
}
