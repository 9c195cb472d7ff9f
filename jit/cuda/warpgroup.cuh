// Device functions of a warpgroup's products on the tensor cores: wgmma, of sm_90a alone; and barriers that not all threads wait at.
// The rules of prelude.cuh hold, whose continuation this is.
//
// Sources: PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions", for descriptors, the layouts of shared
// memory and the fragments; "Parallel Synchronization and Communication Instructions: mbarrier", "cp.async.mbarrier.arrive".

// A barrier in shared memory that threads arrive at and wait at by themselves. A phase ends when as many have arrived as it was made for;
// the first one is number 0. Whoever waits for a phase by the parity of its number sees what others did before they arrived.
#ifndef HEDDLE_CUDA_SIM
struct __align__(8) hd_mbarrier {
  unsigned long long state;
};
static __device__ __forceinline__ void hd_mbarrier_init(hd_mbarrier* at, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(hd_shared_address(at)), "r"(arrivals) : "memory");
}
static __device__ __forceinline__ void hd_mbarrier_arrive(hd_mbarrier* at) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" :: "r"(hd_shared_address(at)) : "memory");
}
// Arrives when all asynchronous copies are done that the thread has begun.
static __device__ __forceinline__ void hd_mbarrier_arrive_copies(hd_mbarrier* at) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(hd_shared_address(at)) : "memory");
}
static __device__ __forceinline__ void hd_mbarrier_wait(hd_mbarrier* at, unsigned int parity) {
  asm volatile("{ .reg .pred over;\n"
               "again: mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
               "@!over bra again; }"
               :: "r"(hd_shared_address(at)), "r"(parity & 1u) : "memory");
}
#endif

// Barrier `number` of the block, 1 to 15, which so many threads come to, whole warps: those that wait for all, and those that go on.
#ifndef HEDDLE_CUDA_SIM
template <int threads>
static __device__ __forceinline__ void hd_barrier_sync(int number) {
  asm volatile("bar.sync %0, %1;" :: "r"(number), "n"(threads) : "memory");
}
template <int threads>
static __device__ __forceinline__ void hd_barrier_arrive(int number) {
  asm volatile("bar.arrive %0, %1;" :: "r"(number), "n"(threads) : "memory");
}
#endif

// Where wgmma finds a matrix of 16 bits in shared memory, in lines of 128 bytes whose pieces lie as hd_swizzled puts them, from a
// multiple of 1024 bytes on. Eight lines are 1024 bytes, and the next eight follow; `leading` bytes lie between 64 elements of
// a line and the next 64, where lines are longer: only in a matrix whose lines are its depth.
#ifndef HEDDLE_CUDA_SIM
typedef unsigned long long hd_descriptor;
static __device__ __forceinline__ hd_descriptor hd_describe(const void* at, int leading) {
  const unsigned long long address = (hd_shared_address(at) & 0x3ffffu) >> 4;
  return address | (unsigned long long)(leading >> 4) << 16 | 64ull << 32 | 1ull << 62;
}
// The same matrix so many bytes further on.
static __device__ __forceinline__ hd_descriptor hd_further(hd_descriptor matrix, int bytes) {
  return matrix + (unsigned long long)(bytes >> 4);
}
#endif

// What orders a warpgroup's products: begins a group of them, whose sums and left registers no other instruction touches until the group
// is waited for; ends it; waits for all groups but the last `pending`.
#ifndef HEDDLE_CUDA_SIM
static __device__ __forceinline__ void hd_products_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void hd_products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int pending>
static __device__ __forceinline__ void hd_products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(pending) : "memory");
}
// Keeps the compiler from moving what uses these registers over a wait.
template <int count>
static __device__ __forceinline__ void hd_products_hold(float* sums) {
#pragma unroll
  for (int k = 0; k < count; ++k) asm volatile("" : "+f"(sums[k]) :: "memory");
}
// What the thread wrote to shared memory, by copies that it waited for too, is there for wgmma after the next barrier; and what others
// wrote before an mbarrier that it has waited at is there for its own.
static __device__ __forceinline__ void hd_products_publish() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
#endif

// sums += a . b of a warpgroup, where a is 64 x 16, b 16 x columns, and both are in shared memory. left_along: lines of a are its rows,
// else its depth; right_along: lines of b are its depth, else its columns. A thread's sums are those of hd_mma_bf16, side by side:
// its warp has 16 rows, and sums[4 * n] to sums[4 * n + 3] are of columns 8 * n to 8 * n + 7.
#ifndef HEDDLE_CUDA_SIM
#define HD_SUMS_8(s) "+f"((s)[0]), "+f"((s)[1]), "+f"((s)[2]), "+f"((s)[3]), "+f"((s)[4]), "+f"((s)[5]), "+f"((s)[6]), "+f"((s)[7])
#define HD_SUMS_32(s) HD_SUMS_8(s), HD_SUMS_8((s) + 8), HD_SUMS_8((s) + 16), HD_SUMS_8((s) + 24)
#define HD_SUMS_64(s) HD_SUMS_32(s), HD_SUMS_32((s) + 32)
#define HD_SUMS_128(s) HD_SUMS_64(s), HD_SUMS_64((s) + 64)
#define HD_PLACES_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define HD_PLACES_64 HD_PLACES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define HD_PLACES_128 HD_PLACES_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define HD_WGMMA(n, type, adds, sums, places, next, a, b)                                                      \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, " #adds ", 0; wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." \
               type " {" places "}, " next " }"                                                                \
               : sums                                                                                          \
               : "l"(a), "l"(b), "n"(left_along ? 0 : 1), "n"(right_along ? 1 : 0))
#define HD_WGMMA_OF(type, sums, a, b)                                                                          \
  if constexpr (columns == 64) {                                                                               \
    HD_WGMMA(64, type, 1, HD_SUMS_32(sums), HD_PLACES_32, "%32, %33, p, 1, 1, %34, %35;", a, b);               \
  } else if constexpr (columns == 128) {                                                                       \
    HD_WGMMA(128, type, 1, HD_SUMS_64(sums), HD_PLACES_64, "%64, %65, p, 1, 1, %66, %67;", a, b);              \
  } else {                                                                                                     \
    static_assert(columns == 256, "a size that wgmma is asked for");                                           \
    HD_WGMMA(256, type, 1, HD_SUMS_128(sums), HD_PLACES_128, "%128, %129, p, 1, 1, %130, %131;", a, b);        \
  }
#define HD_NEW_8(s) "=f"((s)[0]), "=f"((s)[1]), "=f"((s)[2]), "=f"((s)[3]), "=f"((s)[4]), "=f"((s)[5]), "=f"((s)[6]), "=f"((s)[7])
#define HD_NEW_32(s) HD_NEW_8(s), HD_NEW_8((s) + 8), HD_NEW_8((s) + 16), HD_NEW_8((s) + 24)
#define HD_NEW_64(s) HD_NEW_32(s), HD_NEW_32((s) + 32)
#define HD_WGMMA_FIRST_OF(type, sums, a, b)                                                                    \
  if constexpr (columns == 64) {                                                                               \
    HD_WGMMA(64, type, 0, HD_NEW_32(sums), HD_PLACES_32, "%32, %33, p, 1, 1, %34, %35;", a, b);                \
  } else {                                                                                                     \
    static_assert(columns == 128, "a size that wgmma is asked for");                                           \
    HD_WGMMA(128, type, 0, HD_NEW_64(sums), HD_PLACES_64, "%64, %65, p, 1, 1, %66, %67;", a, b);               \
  }
template <int columns, bool left_along, bool right_along>
static __device__ __forceinline__ void hd_wgmma(float* sums, hd_descriptor a, hd_descriptor b, hd_bf16) {
  HD_WGMMA_OF("bf16", sums, a, b)
}
template <int columns, bool left_along, bool right_along>
static __device__ __forceinline__ void hd_wgmma(float* sums, hd_descriptor a, hd_descriptor b, hd_f16) {
  HD_WGMMA_OF("f16", sums, a, b)
}
// The same of sums that nothing was added to yet, whatever they hold.
template <int columns, bool left_along, bool right_along>
static __device__ __forceinline__ void hd_wgmma_first(float* sums, hd_descriptor a, hd_descriptor b, hd_bf16) {
  HD_WGMMA_FIRST_OF("bf16", sums, a, b)
}
template <int columns, bool left_along, bool right_along>
static __device__ __forceinline__ void hd_wgmma_first(float* sums, hd_descriptor a, hd_descriptor b, hd_f16) {
  HD_WGMMA_FIRST_OF("f16", sums, a, b)
}
// The same where the left matrix is in registers, a warp's 16 rows as hd_mma_bf16 takes them.
#define HD_WGMMA_REGISTERS(n, type, sums, places, next, a, b)                                                  \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." \
               type " {" places "}, " next " }"                                                                \
               : sums                                                                                          \
               : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "l"(b), "n"(right_along ? 1 : 0))
#define HD_WGMMA_REGISTERS_OF(type, sums, a, b)                                                                \
  if constexpr (columns == 64) {                                                                               \
    HD_WGMMA_REGISTERS(64, type, HD_SUMS_32(sums), HD_PLACES_32, "{%32, %33, %34, %35}, %36, p, 1, 1, %37;",   \
                       a, b);                                                                                  \
  } else {                                                                                                     \
    static_assert(columns == 128, "a size that wgmma is asked for");                                           \
    HD_WGMMA_REGISTERS(128, type, HD_SUMS_64(sums), HD_PLACES_64, "{%64, %65, %66, %67}, %68, p, 1, 1, %69;",  \
                       a, b);                                                                                  \
  }
template <int columns, bool right_along>
static __device__ __forceinline__ void hd_wgmma_registers(float* sums, const unsigned int* a, hd_descriptor b, hd_bf16) {
  HD_WGMMA_REGISTERS_OF("bf16", sums, a, b)
}
template <int columns, bool right_along>
static __device__ __forceinline__ void hd_wgmma_registers(float* sums, const unsigned int* a, hd_descriptor b, hd_f16) {
  HD_WGMMA_REGISTERS_OF("f16", sums, a, b)
}
#undef HD_WGMMA_REGISTERS_OF
#undef HD_WGMMA_REGISTERS
#undef HD_WGMMA_FIRST_OF
#undef HD_WGMMA_OF
#undef HD_WGMMA
#else
HEDDLE_WGMMA_TWINS
#endif
