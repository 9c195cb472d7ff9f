// Device functions of matrices: fragments of the tensor cores, asynchronous copies, tiles in shared memory. The rules of prelude.cuh hold, whose continuation this is.
//
// Source of fragment layouts: PTX ISA, "Matrix multiply-accumulate operation using mma instruction".

// What is moved at once.
struct __align__(16) hd_sixteen {
  unsigned int words[4];
};

#ifndef HEDDLE_CUDA_SIM
static __device__ __forceinline__ unsigned int hd_shared_address(const void* at) {
  unsigned int address;
  asm("{ .reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide; }"
      : "=r"(address) : "l"(at));
  return address;
}
#endif

// Four 8 x 8 matrices of 16 bits: lane k gives the address of row k % 8 of matrix k / 8, and gets of each
// matrix elements (k / 4, 2 * (k % 4)) and the one right of it.
#ifndef HEDDLE_CUDA_SIM
static __device__ __forceinline__ void hd_load_matrices(unsigned int* out, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(hd_shared_address(row)) : "memory");
}
#endif

// The same of the transposed matrices.
#ifndef HEDDLE_CUDA_SIM
static __device__ __forceinline__ void hd_load_transposed(unsigned int* out, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(hd_shared_address(row)) : "memory");
}
#endif

// Copies of 16 bytes of global into shared memory that go on while the thread does other things: `valid` bytes
// from an address that is 16-aligned, zeros for the rest. A thread waits for all of its groups of copies but
// the last `pending`; others see them after a barrier.
#ifndef HEDDLE_CUDA_SIM
static __device__ __forceinline__ void hd_copy_async(void* to, const void* from, unsigned int valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"(hd_shared_address(to)), "l"(from), "r"(valid) : "memory");
}
static __device__ __forceinline__ void hd_copy_async(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(hd_shared_address(to)), "l"(from) : "memory");
}
// The same of 8 or 4 bytes from an address that is a multiple of so many.
template <int bytes>
static __device__ __forceinline__ void hd_copy_async_part(void* to, const void* from, unsigned int valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
               :: "r"(hd_shared_address(to)), "l"(from), "n"(bytes), "r"(valid) : "memory");
}
static __device__ __forceinline__ void hd_copy_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int pending>
static __device__ __forceinline__ void hd_copy_wait() {
  asm volatile("cp.async.wait_group %0;" :: "n"(pending) : "memory");
}
#endif

// sums += a . b of a warp: a is 16 x 16, b 16 x 8, sums 16 x 8.
#ifndef HEDDLE_CUDA_SIM
static __device__ __forceinline__ void hd_mma_f16(float* sums, const unsigned int* a,
                                                  const unsigned int* b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
static __device__ __forceinline__ void hd_mma_bf16(float* sums, const unsigned int* a,
                                                   const unsigned int* b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

// The same of bytes, with a sign or without, a being 16 x 32 and b 32 x 8; sums wrap.
#ifndef HEDDLE_CUDA_SIM
template <bool left_signed, bool right_signed>
static __device__ __forceinline__ void hd_mma_bytes(unsigned int* sums, const unsigned int* a,
                                                    const unsigned int* b) {
  if constexpr (left_signed && right_signed) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else if constexpr (left_signed) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else if constexpr (right_signed) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}
#endif

// To the nearest float with 10 bits of fraction, ties away from zero.
#ifndef HEDDLE_CUDA_SIM
static __device__ __forceinline__ unsigned int hd_to_tf32(unsigned int bits) {
  unsigned int rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__int_as_float((int)bits)));
  return rounded;
}
#endif

// The same as hd_mma_f16 of tf32, a being 16 x 8 and b 8 x 8.
#ifndef HEDDLE_CUDA_SIM
static __device__ __forceinline__ void hd_mma_tf32(float* sums, const unsigned int* a,
                                                   const unsigned int* b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

static __device__ __forceinline__ void hd_mma(float* sums, const unsigned int* a, const unsigned int* b,
                                              float, float) {
  hd_mma_tf32(sums, a, b);
}
static __device__ __forceinline__ void hd_mma(float* sums, const unsigned int* a, const unsigned int* b,
                                              hd_f16, hd_f16) {
  hd_mma_f16(sums, a, b);
}
static __device__ __forceinline__ void hd_mma(float* sums, const unsigned int* a, const unsigned int* b,
                                              hd_bf16, hd_bf16) {
  hd_mma_bf16(sums, a, b);
}
template <class L, class R>
static __device__ __forceinline__ void hd_mma(unsigned int* sums, const unsigned int* a,
                                              const unsigned int* b, L, R) {
  hd_mma_bytes<((L)-1 < 0), ((R)-1 < 0)>(sums, a, b);
}

// Byte k of the result is byte `selector >> 4 * k & 7` of the eight that low and high are.
#ifndef HEDDLE_CUDA_SIM
static __device__ __forceinline__ unsigned int hd_permute_bytes(unsigned int low, unsigned int high,
                                                                unsigned int selector) {
  unsigned int result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
  return result;
}
#endif

// Four words as a matrix of bytes, transposed: byte i of word k becomes byte k of word i.
static __device__ __forceinline__ void hd_transpose_bytes(unsigned int* words) {
  const unsigned int low_of_first = hd_permute_bytes(words[0], words[1], 0x5140);
  const unsigned int high_of_first = hd_permute_bytes(words[0], words[1], 0x7362);
  const unsigned int low_of_last = hd_permute_bytes(words[2], words[3], 0x5140);
  const unsigned int high_of_last = hd_permute_bytes(words[2], words[3], 0x7362);
  words[0] = hd_permute_bytes(low_of_first, low_of_last, 0x5410);
  words[1] = hd_permute_bytes(low_of_first, low_of_last, 0x7632);
  words[2] = hd_permute_bytes(high_of_first, high_of_last, 0x5410);
  words[3] = hd_permute_bytes(high_of_first, high_of_last, 0x7632);
}

// What products of T are summed in. Sums of bytes wrap.
template <class T> struct hd_sum_of { typedef float type; };
template <> struct hd_sum_of<signed char> { typedef unsigned int type; };
template <> struct hd_sum_of<unsigned char> { typedef unsigned int type; };

// Where piece `piece` of 16 bytes of row `row` lies in a tile of `rows` rows with `pieces` of them each (a power of two):
// eight rows' pieces of one column lie in all 32 banks. Rows of more than 128 bytes are cut: all rows' first 128 bytes come first.
template <int rows, int pieces>
static constexpr __device__ __forceinline__ int hd_swizzled(int row, int piece) {
  if (pieces > 8) return (piece / 8 * rows + row) * 8 + ((piece ^ row) & 7);
  const int turn = pieces == 8 ? row : pieces == 4 ? row / 2 : row / 4;
  return row * pieces + (piece ^ (turn & (pieces - 1)));
}

// The same of a tile of `rows` rows that a warp reads word by word (four pieces a row, or more): eight neighbouring words
// of rows k, k + apart, k + 2 * apart and k + 3 * apart, k being less than `apart` from a multiple of 4 * apart, lie in all
// 32 banks.
template <int rows, int pieces, int apart>
static __device__ __forceinline__ int hd_swizzled_words(int row, int piece) {
  const int place = row % apart * (rows / apart) + row / apart;
  const int turn = pieces >= 8 ? 2 * place : place / 2 * 2;
  return place * pieces + (piece ^ (turn & (pieces >= 8 ? 7 : 3)));
}

// Neighbours among sums in shared memory, whose rows are `line` apart. Of eight, every other four threads read the last four first: what
// eight threads read then lies in different banks.
template <int line, class T, int count>
static __device__ __forceinline__ void hd_read_sums(hd_lanes<T, count>& to, const T* from) {
  if constexpr (line % 4 == 0 && count == 8) {
    const bool turned = threadIdx.x / 4 % 2 != 0;
    const hd_lanes<T, 4> one = *(const hd_lanes<T, 4>*)(from + (turned ? 4 : 0));
    const hd_lanes<T, 4> other = *(const hd_lanes<T, 4>*)(from + (turned ? 0 : 4));
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      to.at[n] = turned ? other.at[n] : one.at[n];
      to.at[4 + n] = turned ? one.at[n] : other.at[n];
    }
    return;
  }
  constexpr int at_once = line % 4 == 0 && count % 4 == 0 ? 4 : line % 2 == 0 && count % 2 == 0 ? 2 : 1;
#pragma unroll
  for (int k = 0; k < count; k += at_once) {
    const hd_lanes<T, at_once> some = *(const hd_lanes<T, at_once>*)(from + k);
#pragma unroll
    for (int n = 0; n < at_once; ++n) to.at[k + n] = some.at[n];
  }
}

// Whether lines that are `stride` elements apart begin at multiples of so many bytes.
template <int bytes, class T>
static __device__ __forceinline__ bool hd_begin_at(const T* at, long long stride) {
  return ((unsigned int)(unsigned long long)at | (unsigned int)(stride * (long long)sizeof(T))) % bytes == 0;
}
template <class T>
static __device__ __forceinline__ bool hd_is_wide(const T* at, long long stride) {
  return hd_begin_at<16>(at, stride);
}

// Puts `count` elements, of which `valid` are there, and zeros for the rest.
template <class T, int count>
static __device__ __forceinline__ void hd_fill_piece(hd_sixteen* to, const T* from, int valid) {
  T* const elements = (T*)to;
#pragma unroll 1
  for (int k = 0; k < count; ++k) elements[k] = k < valid ? from[k] : T();
}

// The same, asynchronously in parts of `bytes`: `from` is a multiple of so many.
template <class T, int bytes>
static __device__ __forceinline__ void hd_copy_parts(hd_sixteen* to, const T* from, int valid) {
  const int there = (int)sizeof(T) * valid;
#pragma unroll
  for (int at = 0; at < 16; at += bytes) {
    const int left = there - at;
    const T* const part = left <= 0 ? from : from + at / (int)sizeof(T);
    hd_copy_async_part<bytes>((unsigned char*)to + at, part, left <= 0 ? 0 : left >= bytes ? bytes : left);
  }
}

// The same of what begins anywhere: asynchronously where it can be.
template <class T, int count>
static __device__ __forceinline__ void hd_fetch_piece(hd_sixteen* to, const T* from, int valid) {
  const unsigned int place = (unsigned int)(unsigned long long)from;
  if (place % 8 == 0) {
    hd_copy_parts<T, 8>(to, from, valid);
  } else if (place % 4 == 0) {
    hd_copy_parts<T, 4>(to, from, valid);
  } else {
    hd_fill_piece<T, count>(to, from, valid);
  }
}

// Puts lines x pieces pieces of 16 bytes into a tile, in parts of `bytes`, which neighbouring threads have: lines begin at
// multiples of so many. Zeros where there is nothing: `lines_left` lines of `count_left` elements. by_word: the tile is one
// of hd_swizzled_words.
template <class T, int lines, int pieces, int threads, bool by_word, int bytes>
static __device__ __forceinline__ void hd_fetch_tile_in_parts(hd_sixteen* tile, const T* from, long long stride,
                                                              long long lines_left, long long count_left) {
  constexpr int parts = 16 / bytes;
  constexpr int each = bytes / (int)sizeof(T);
#pragma unroll 2
  for (int k = threadIdx.x; k < lines * pieces * parts; k += threads) {
    const int line = k / (pieces * parts);
    const int part = k % (pieces * parts);
    const long long left = line < lines_left ? count_left - each * part : 0;
    const int valid = left <= 0 ? 0 : left >= each ? each : (int)left;
    const T* const at = valid == 0 ? from : from + line * stride + each * part;
    const int piece = part / parts;
    hd_sixteen* const to = tile + (by_word ? hd_swizzled_words<lines, pieces, 4 / (int)sizeof(T)>(line, piece)
                                           : hd_swizzled<lines, pieces>(line, piece));
    hd_copy_async_part<bytes>((unsigned char*)to + part % parts * bytes, at, (int)sizeof(T) * valid);
  }
}

// The same of lines that begin anywhere, asynchronously where it can be. `wide`: hd_is_wide; then the copies are of 16 bytes.
template <class T, int lines, int pieces, int threads, bool by_word>
static __device__ __forceinline__ void hd_fetch_tile(hd_sixteen* tile, const T* from, long long stride,
                                                     long long lines_left, long long count_left, bool wide) {
  constexpr int count = 16 / (int)sizeof(T);
  if (!wide && hd_begin_at<8>(from, stride))
    return hd_fetch_tile_in_parts<T, lines, pieces, threads, by_word, 8>(tile, from, stride, lines_left, count_left);
  if (!wide && hd_begin_at<4>(from, stride))
    return hd_fetch_tile_in_parts<T, lines, pieces, threads, by_word, 4>(tile, from, stride, lines_left, count_left);
#pragma unroll
  for (int k = threadIdx.x; k < lines * pieces; k += threads) {
    const int line = k / pieces;
    const int piece = k % pieces;
    const long long left = line < lines_left ? count_left - count * piece : 0;
    const int valid = left <= 0 ? 0 : left >= count ? count : (int)left;
    const T* const at = valid == 0 ? from : from + line * stride + count * piece;
    hd_sixteen* const to = tile + (by_word ? hd_swizzled_words<lines, pieces, 4 / (int)sizeof(T)>(line, piece)
                                           : hd_swizzled<lines, pieces>(line, piece));
    if (wide) {
      hd_copy_async(to, at, (int)sizeof(T) * valid);
    } else {
      hd_fetch_piece<T, count>(to, at, valid);
    }
  }
}

// What brings tiles of lines of a matrix in memory, one for each step of the depth, as hd_fetch_tile does. A thread has the same
// pieces of each where lines begin at multiples of 16 bytes: addresses are found once. along: lines lie along the depth, of
// which a step is `pieces` pieces; else lines are the depth, and a step is all of them.
template <class T, int lines, int pieces, int threads, bool by_word, bool along>
struct hd_tile_source {
  static constexpr int count = 16 / (int)sizeof(T);
  static constexpr int depth = along ? pieces * count : lines;
  static constexpr int apart = threads / pieces;  // lines between a thread's pieces
  static constexpr bool is_even = !by_word && threads % pieces == 0;
  const T* from;
  long long stride;
  long long others_left;  // lines that are there, or elements of a line
  long long depth_left;
  const T* own;
  long long own_apart;
  int own_line, own_left, place;
  bool wide;
  __device__ __forceinline__ hd_tile_source(const T* at, long long distance, long long others, long long all)
      : from(at), stride(distance), others_left(others), depth_left(all), own_apart(apart * distance),
        own_line((int)threadIdx.x / pieces), wide(hd_is_wide(at, distance)) {
    const int piece = (int)threadIdx.x % pieces;
    own = from + own_line * stride + piece * count;
    place = hd_swizzled<lines, pieces>(own_line, piece);
    const long long left = along ? others - own_line : others - piece * count;
    own_left = left <= 0 ? 0 : left >= 4096 ? 4096 : (int)left;
  }
  __device__ __forceinline__ void fetch(hd_sixteen* tile, long long step) const {
    const long long offset = along ? step * depth : step * depth * stride;
    const long long left = depth_left - step * depth;
    if (is_even && wide && left >= depth) {
      const T* mine = own + offset;
#pragma unroll
      for (int n = 0; n < (lines + apart - 1) / apart; ++n) {
        if (lines % apart != 0 && own_line + n * apart >= lines) break;
        const int there = along ? (n * apart < own_left ? count : 0) : own_left >= count ? count : own_left;
        // Every eighth line lies alike.
        const int at = apart % 8 == 0 ? place + n * apart * (pieces < 8 ? pieces : 8)
                                      : hd_swizzled<lines, pieces>(own_line + n * apart, (int)threadIdx.x % pieces);
        hd_copy_async(tile + at, there == 0 ? from : mine, (int)sizeof(T) * there);
        mine += own_apart;
      }
    } else {
      hd_fetch_tile<T, lines, pieces, threads, by_word>(tile, from + offset, stride, along ? others_left : left,
                                                        along ? left : others_left, wide);
    }
  }
};
