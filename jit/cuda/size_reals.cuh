// Real arithmetic inside of sizes (base/symreal.h). The rules of prelude.cuh hold, whose continuation this is. Reals are the bits of
// doubles; no product and sum become one.

static __device__ __forceinline__ long long hd_size_whole(long long a) {
  const double number = __longlong_as_double(a);
  return number < 4611686018427387904.0 && number > -4611686018427387904.0 ? (long long)number : 0;
}

static __device__ __forceinline__ long long hd_size_real(long long a) { return __double_as_longlong((double)a); }

static __device__ __forceinline__ long long hd_size_radd(long long a, long long b) {
  return __double_as_longlong(__dadd_rn(__longlong_as_double(a), __longlong_as_double(b)));
}

static __device__ __forceinline__ long long hd_size_rsub(long long a, long long b) {
  return __double_as_longlong(__dsub_rn(__longlong_as_double(a), __longlong_as_double(b)));
}

static __device__ __forceinline__ long long hd_size_rmul(long long a, long long b) {
  return __double_as_longlong(__dmul_rn(__longlong_as_double(a), __longlong_as_double(b)));
}

static __device__ __forceinline__ long long hd_size_rdiv(long long a, long long b) {
  return __double_as_longlong(__ddiv_rn(__longlong_as_double(a), __longlong_as_double(b)));
}

static __device__ __forceinline__ long long hd_size_rmin(long long a, long long b) {
  return __longlong_as_double(b) < __longlong_as_double(a) ? b : a;
}

static __device__ __forceinline__ long long hd_size_rmax(long long a, long long b) {
  return __longlong_as_double(a) < __longlong_as_double(b) ? b : a;
}

static __device__ __forceinline__ long long hd_size_rfloor(long long a) {
  return __double_as_longlong(floor(__longlong_as_double(a)));
}

static __device__ __forceinline__ long long hd_size_rceil(long long a) {
  return __double_as_longlong(ceil(__longlong_as_double(a)));
}

static __device__ __forceinline__ long long hd_size_rround(long long a) {
  return __double_as_longlong(rint(__longlong_as_double(a)));
}

static __device__ __forceinline__ long long hd_size_rsqrt(long long a) {
  return __double_as_longlong(__dsqrt_rn(__longlong_as_double(a)));
}

static __device__ __forceinline__ long long hd_size_rabs(long long a) {
  return __double_as_longlong(fabs(__longlong_as_double(a)));
}

static __device__ __forceinline__ long long hd_size_single(long long a) {
  return __double_as_longlong((double)(float)__longlong_as_double(a));
}
