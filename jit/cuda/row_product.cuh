// Device functions of products of a few rows, straight from memory. The rules of prelude.cuh hold, whose continuation this is.

// A stored element as what its products are summed in.
static __device__ __forceinline__ float hd_as_sum(hd_f16 stored) { return hd_widen(stored); }
static __device__ __forceinline__ float hd_as_sum(hd_bf16 stored) { return hd_widen(stored); }
static __device__ __forceinline__ float hd_as_sum(float stored) { return stored; }
static __device__ __forceinline__ unsigned int hd_as_sum(signed char stored) {
  return (unsigned int)(int)stored;
}
static __device__ __forceinline__ unsigned int hd_as_sum(unsigned char stored) { return stored; }

// The elements of 16 bytes so, `each` at a time: `at` is a multiple of so many.
template <class T, int each>
static __device__ __forceinline__ void hd_read_parts(typename hd_sum_of<T>::type* out, const T* at) {
#pragma unroll
  for (int k = 0; k < 16 / (int)sizeof(T); k += each) {
    const hd_lanes<T, each> part = *(const hd_lanes<T, each>*)(at + k);
#pragma unroll
    for (int e = 0; e < each; ++e) out[k + e] = hd_as_sum(part.at[e]);
  }
}

// The elements of 16 bytes so, zeros from `left` on. `wide`: `at` is 16-aligned; else it is read in parts of 8 or 4 bytes
// where it is a multiple of these.
template <class T>
static __device__ __forceinline__ void hd_read_piece(typename hd_sum_of<T>::type* out, const T* at,
                                                     long long left, bool wide) {
  constexpr int count = 16 / (int)sizeof(T);
  if (wide && left >= count) {
    const hd_sixteen all = *(const hd_sixteen*)at;
    T elements[count];
    memcpy(elements, &all, 16);
#pragma unroll
    for (int k = 0; k < count; ++k) out[k] = hd_as_sum(elements[k]);
    return;
  }
  const unsigned int place = (unsigned int)(unsigned long long)at;
  if (left >= count && place % 8 == 0) return hd_read_parts<T, 8 / (int)sizeof(T)>(out, at);
  if (sizeof(T) < 4 && left >= count && place % 4 == 0)
    return hd_read_parts<T, sizeof(T) < 4 ? 4 / (int)sizeof(T) : 1>(out, at);
#pragma unroll
  for (int k = 0; k < count; ++k) out[k] = k < left ? hd_as_sum(at[k]) : 0;
}

// How a block multiplies a few rows by a matrix that is read once: `columns` sums of at most `rows` rows. The sum of an
// element is the sum of the threads' sums, in a fixed tree.
template <class L, class R, int rows, int columns, int threads, bool right_along>
struct hd_row_tile {
  typedef typename hd_sum_of<L>::type Sum;
  static constexpr int warps = threads / 32;
  static constexpr int mine = columns / warps;  // not right_along: of a warp
  static constexpr int line = columns;
  // What brings the right matrix, `count` elements at a time: right_along, of each of `run` rows, which begin() reads and
  // row() gives; else of a column. `ahead`: reads under way, which registers bound. Here from memory, 16 bytes a thread at a
  // time.
  struct Dense {
    static constexpr int count = 16 / (int)sizeof(R);
    static constexpr int run = 1;
    static constexpr int ahead = rows == 1 ? 4 : 1;
    const R* right;
    long long stride, columns_left, depth;
    bool wide;
    Sum read[count];
    __device__ __forceinline__ void begin(long long k, int column) {
      hd_read_piece(read, right + k * stride + column, columns_left - column, wide);
    }
    __device__ __forceinline__ void row(Sum* b, int) const {
#pragma unroll
      for (int n = 0; n < count; ++n) b[n] = read[n];
    }
    __device__ __forceinline__ void column(Sum* b, long long k, int first, int n) const {
      hd_read_piece(b, right + (first + n) * stride + k, first + n < columns_left ? depth - k : 0, wide);
    }
  };
  // And here bytes that stand for numbers (Given is hd_quantised), 8 at a time, all in one group.
  template <class Given>
  struct Dequantised {
    static constexpr int count = 8;
    static constexpr int run = rows == 1 ? 8 : 4;
    static constexpr int ahead = right_along || rows != 1 ? 1 : 4;
    static constexpr int kept = right_along ? count : mine;
    const Given& given;
    long long columns_left, depth;
    bool wide;
    unsigned int group;
    unsigned int words[run][count / 4];
    float scales[kept], offsets[kept];
    __device__ __forceinline__ Dequantised(const Given& all, long long columns_there, long long depth_there)
        : given(all), columns_left(columns_there), depth(depth_there),
          wide(all.template is_wide<count>(right_along ? all.step : all.column)), group(~0u), words(), scales(),
          offsets() {}
    __device__ __forceinline__ void begin(long long k, int column) {
      if (column >= columns_left) return;
#pragma unroll
      for (int r = 0; r < run; ++r)
        if (k + r < depth)
          hd_read_bytes<count>(words[r], given.bytes + (k + r) * given.step + column, columns_left - column, wide);
      if (group == given.group_of((unsigned int)k)) return;
      group = given.group_of((unsigned int)k);
      given.template read_beside<count>(scales, offsets, group, column,
                                        (int)hd_smaller(columns_left - column, count));
    }
    static __device__ __forceinline__ void round(Sum* b) {
#pragma unroll
      for (int n = 0; n < count; n += 2) hd_round_pair(b + n, L());
    }
    __device__ __forceinline__ void row(Sum* b, int r) const {
      Given::template values<count, 1>(b, words[r], scales, offsets);
      round(b);
    }
    __device__ __forceinline__ void column(Sum* b, long long k, int first, int n) {
      const long long left = first + n < columns_left ? depth - k : 0;
      unsigned int bytes[count / 4];
      hd_read_bytes<count>(bytes, left == 0 ? given.bytes : given.bytes + (first + n) * given.column + k, left, wide);
      if (n == 0 && group != given.group_of((unsigned int)k)) {
        group = given.group_of((unsigned int)k);
#pragma unroll
        for (int each = 0; each < mine; ++each)
          if (first + each < columns_left)
            given.template read_beside<1>(scales + each % kept, offsets + each % kept, group, first + each, 1);
      }
      Given::template values<count, 0>(b, bytes, scales + n % kept, offsets + n % kept);
      round(b);
      if (left < count) {
#pragma unroll
        for (int e = 0; e < count; ++e)
          if (e >= left) b[e] = 0;
      }
    }
  };
  // And here numbers of a few bits in words (Given is hd_packed; right_along), four words side by side at a time.
  template <class Given>
  struct Packed {
    static constexpr int count = 4;
    const Given& given;
    long long columns_left, depth;
  };
  // right_along: a thread has some rows of the right matrix, and `count` columns of them.
  template <class Right>
  static __device__ __forceinline__ void add_columns(Sum (*sums)[Right::count], int column, const L* left,
                                                     long long left_row, long long left_step, Right& right,
                                                     long long rows_left, long long depth) {
    add_pieces(sums, column, left, left_row, left_step, right, rows_left, depth);
  }
  // Pieces of `lines` rows in a row are under way at a time, between which no branch lies. The elements on the left that they
  // are multiplied by are neighbours, read at once.
  static constexpr int lines = rows == 1 ? 8 : 4;
  static __device__ __forceinline__ void add_columns(Sum (*sums)[Dense::count], int column, const L* left,
                                                     long long left_row, long long left_step, Dense& right,
                                                     long long rows_left, long long depth) {
    if (column >= right.columns_left) return;
    if (!right.wide || column + Dense::count > right.columns_left)
      return add_pieces(sums, column, left, left_row, left_step, right, rows_left, depth);
    constexpr int apart = threads / (columns / Dense::count) * lines;
    const bool left_wide = left_step == 1 && hd_is_wide(left, left_row);
    long long begin = threadIdx.x / (columns / Dense::count) * lines;
    const R* from = right.right + begin * right.stride + column;
#pragma unroll 1
    for (; begin + lines <= depth; begin += apart, from += apart * right.stride) {
      hd_sixteen pieces[lines];
      hd_lanes<L, lines> a[rows];
#pragma unroll
      for (int r = 0; r < lines; ++r) pieces[r] = *(const hd_sixteen*)(from + r * right.stride);
      read_left(a, left + begin * left_step, left_row, left_step, left_wide, rows_left, lines);
      add_lines(sums, pieces, a);
    }
    if (begin >= depth) return;
    hd_sixteen pieces[lines] = {};
    hd_lanes<L, lines> a[rows];
#pragma unroll
    for (int r = 0; r < lines; ++r)
      if (begin + r < depth) pieces[r] = *(const hd_sixteen*)(from + r * right.stride);
    read_left(a, left + begin * left_step, left_row, left_step, false, rows_left, (int)(depth - begin));
    add_lines(sums, pieces, a);
  }
  // Of each row on the left `lines` elements, zeros from `left_over` on. `wide`: all are there, and neighbours that are read at once.
  static __device__ __forceinline__ void read_left(hd_lanes<L, lines>* a, const L* left, long long left_row,
                                                   long long left_step, bool wide, long long rows_left,
                                                   int left_over) {
#pragma unroll
    for (int m = 0; m < rows; ++m) {
      if (wide && m < rows_left) {
        a[m] = *(const hd_lanes<L, lines>*)(left + m * left_row);
      } else {
#pragma unroll
        for (int r = 0; r < lines; ++r)
          a[m].at[r] = m < rows_left && r < left_over ? left[m * left_row + r * left_step] : L();
      }
    }
  }
  static __device__ __forceinline__ void add_lines(Sum (*sums)[Dense::count], const hd_sixteen* pieces,
                                                   const hd_lanes<L, lines>* a) {
    constexpr int count = Dense::count;
#pragma unroll
    for (int r = 0; r < lines; ++r) {
      Sum b[count];
      widen(b, pieces[r]);
#pragma unroll
      for (int m = 0; m < rows; ++m) {
        const Sum factor = hd_as_sum(a[m].at[r]);
#pragma unroll
        for (int n = 0; n < count; ++n) sums[m][n] += factor * b[n];
      }
    }
  }
  template <class Right>
  static __device__ __forceinline__ void add_pieces(Sum (*sums)[Right::count], int column, const L* left,
                                                    long long left_row, long long left_step, Right& right,
                                                    long long rows_left, long long depth) {
    constexpr int count = Right::count;
    constexpr int run = Right::run;
    constexpr int pieces = columns / count;
    constexpr int ahead = Right::ahead;
#pragma unroll ahead
    for (long long begin = threadIdx.x / pieces * run; begin < depth; begin += threads / pieces * run) {
      right.begin(begin, column);
#pragma unroll
      for (int r = 0; r < run; ++r) {
        const long long k = begin + r;
        if (r != 0 && k >= depth) break;
        Sum b[count];
        right.row(b, r);
#pragma unroll
        for (int m = 0; m < rows; ++m) {
          const Sum a = m < rows_left ? hd_as_sum(left[m * left_row + k * left_step]) : 0;
#pragma unroll
          for (int n = 0; n < count; ++n) sums[m][n] += a * b[n];
        }
      }
    }
  }
  // Of few rows a product takes as long as its words come from memory, each once: a thread reads 16 bytes at a time, 256
  // neighbours of a row of words with its neighbours, and `ahead` of them with their scales are under way. A number takes 2.4
  // instructions and one for each row, for products are added up without the scale, which those of a run of rows share: of
  // three rows or more arithmetic takes as long.
  template <class Given>
  static __device__ __forceinline__ void add_columns(Sum (*sums)[4], int column, const L* left, long long left_row,
                                                     long long left_step, Packed<Given>& right,
                                                     long long rows_left, long long depth) {
    if (column + 4 <= right.columns_left && right.given.is_wide()) {
      add_words<true>(sums, column, 4, left, left_row, left_step, right.given, rows_left, depth);
    } else if (column < right.columns_left) {
      const int valid = (int)hd_smaller(right.columns_left - column, 4);
      add_words<false>(sums, column, valid, left, left_row, left_step, right.given, rows_left, depth);
    }
  }
  template <bool wide, class Given>
  static __device__ __forceinline__ void add_words(Sum (*sums)[4], int column, int valid, const L* left,
                                                   long long left_row, long long left_step, const Given& given,
                                                   long long rows_left, long long depth) {
    constexpr int run = 8;  // rows that are added up
    constexpr int apart = threads / (columns / 4) * Given::rows;
    constexpr int ahead = wide && rows == 1 ? 4 : 1;
    const bool left_wide = left_step == 1 && hd_is_wide(left, left_row);
#pragma unroll 1
    for (long long begin = threadIdx.x / (columns / 4) * Given::rows; begin < depth; begin += ahead * apart) {
      hd_sixteen words[ahead];
      float scales[ahead][4], offsets[ahead][4];
#pragma unroll
      for (int t = 0; t < ahead; ++t) {
        const long long k = begin + t * apart;
        if (k < depth) given.template read<wide>(words[t], scales[t], offsets[t], k, column, valid);
      }
#pragma unroll
      for (int t = 0; t < ahead; ++t) {
        if (begin + t * apart >= depth) break;
#pragma unroll
        for (int r = 0; r < Given::rows; r += run)
          add_run<run, Given>(sums, left + (begin + t * apart + r) * left_step, left_row, left_step, left_wide, words[t],
                              r, scales[t], offsets[t], rows_left);
      }
    }
  }
  // Adds to the sums products of `run` rows that lie in each of four words from row `first` on, all in one group.
  template <int run, class Given>
  static __device__ __forceinline__ void add_run(Sum (*sums)[4], const L* left, long long left_row,
                                                 long long left_step, bool left_wide, const hd_sixteen& words,
                                                 int first, const float* scales, const float* offsets,
                                                 long long rows_left) {
    constexpr int left_count = 16 / (int)sizeof(L);
    Sum b[4][run];
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
      for (int e = 0; e < run; e += 4) Given::centred(b[n] + e, words.words[n], first + e, offsets[n]);
    }
#pragma unroll
    for (int m = 0; m < rows; ++m) {
      if (m >= rows_left) break;
      Sum a[run];
      if (left_step == 1) {
#pragma unroll
        for (int e = 0; e < run; e += left_count) hd_read_piece(a + e, left + m * left_row + e, run - e, left_wide);
      } else {
#pragma unroll
        for (int e = 0; e < run; ++e) a[e] = hd_as_sum(left[m * left_row + e * left_step]);
      }
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        Sum sum = a[0] * b[n][0];
#pragma unroll
        for (int e = 1; e < run; ++e) sum += a[e] * b[n][e];
        sums[m][n] += sum * scales[n];
      }
    }
  }
  template <class Right>
  static __device__ __forceinline__ void along_columns(Sum* out, Sum* partial, const L* left,
                                                       long long left_row, long long left_step, Right& right,
                                                       long long rows_left, long long depth) {
    constexpr int count = Right::count;
    constexpr int pieces = columns / count;
    const int column = threadIdx.x % pieces * count;
    alignas(16) Sum sums[rows][count] = {};
    add_columns(sums, column, left, left_row, left_step, right, rows_left, depth);
#pragma unroll
    for (int m = 0; m < rows; ++m) {
#pragma unroll
      for (int n = 0; n < count; ++n) {
#pragma unroll
        for (int distance = 16; distance >= pieces; distance /= 2)
          sums[m][n] += hd_exchange(sums[m][n], distance);
      }
      if (threadIdx.x % 32 < pieces) {
        // Fours of all threads side by side, then the next ones.
        Sum* const to = partial + (threadIdx.x / 32 * rows + m) * columns + threadIdx.x % pieces * 4;
#pragma unroll
        for (int n = 0; n < count; n += 4)
          *(hd_lanes<Sum, 4>*)(to + n * pieces) = *(const hd_lanes<Sum, 4>*)(sums[m] + n);
      }
    }
    __syncthreads();
    for (int k = threadIdx.x; k < rows * columns; k += threads) {
      Sum sum = partial[k];
      for (int warp = 1; warp < warps; ++warp) sum += partial[warp * rows * columns + k];
      const int four = k % columns / 4;
      out[k / columns * columns + four % pieces * count + four / pieces * 4 + k % 4] = sum;
    }
  }
  // Otherwise a warp has some columns, and its lanes pieces of them: of each column those of `steps` steps are under way at a
  // time where all are there. Gives where the next step begins.
  template <class Right>
  static __device__ __forceinline__ long long add_steps(Sum (*)[mine], long long k, int, const L*, long long, bool,
                                                        const Right&, long long, long long) {
    return k;
  }
  static __device__ __forceinline__ long long add_steps(Sum (*sums)[mine], long long k, int column, const L* left,
                                                        long long left_row, bool left_wide, const Dense& right,
                                                        long long rows_left, long long depth) {
    constexpr int count = Dense::count;
    constexpr int steps = rows == 1 ? 4 : 2;
    if (!left_wide || !right.wide || column + mine > right.columns_left) return k;
    const R* from = right.right + column * right.stride + k;
#pragma unroll 1
    for (; k + (steps - 1) * 32 * count + count <= depth; k += steps * 32 * count, from += steps * 32 * count) {
      hd_sixteen pieces[steps][mine];
#pragma unroll
      for (int t = 0; t < steps; ++t)
#pragma unroll
        for (int n = 0; n < mine; ++n) pieces[t][n] = *(const hd_sixteen*)(from + n * right.stride + t * 32 * count);
#pragma unroll
      for (int t = 0; t < steps; ++t) {
        Sum b[mine][count];
#pragma unroll
        for (int n = 0; n < mine; ++n) widen(b[n], pieces[t][n]);
#pragma unroll
        for (int m = 0; m < rows; ++m) {
          if (m >= rows_left) break;
          const hd_lanes<L, count> a = *(const hd_lanes<L, count>*)(left + m * left_row + k + t * 32 * count);
#pragma unroll
          for (int n = 0; n < mine; ++n)
#pragma unroll
            for (int e = 0; e < count; ++e) sums[m][n] += hd_as_sum(a.at[e]) * b[n][e];
        }
      }
    }
    return k;
  }
  static __device__ __forceinline__ void widen(Sum* out, const hd_sixteen& piece) {
    R elements[Dense::count];
    memcpy(elements, &piece, 16);
#pragma unroll
    for (int n = 0; n < Dense::count; ++n) out[n] = hd_as_sum(elements[n]);
  }
  template <class Right>
  static __device__ __forceinline__ void along_depth(Sum* out, const L* left, long long left_row,
                                                     long long left_step, Right& right, long long rows_left,
                                                     long long depth) {
    constexpr int count = Right::count;
    constexpr int left_count = 16 / (int)sizeof(L);
    constexpr int ahead = Right::ahead;
    const bool left_wide = left_step == 1 && hd_is_wide(left, left_row);
    const int column = threadIdx.x / 32 * mine;
    const int lane = threadIdx.x % 32;
    Sum sums[rows][mine] = {};
    long long k = add_steps(sums, lane * count, column, left, left_row, left_wide, right, rows_left, depth);
#pragma unroll ahead
    for (; k < depth; k += 32 * count) {
      Sum b[mine][count];
#pragma unroll
      for (int n = 0; n < mine; ++n) right.column(b[n], k, column, n);
#pragma unroll
      for (int m = 0; m < rows; ++m) {
        if (m >= rows_left) break;
        Sum a[count];
        if (left_step == 1) {
#pragma unroll
          for (int e = 0; e < count; e += left_count)
            hd_read_piece(a + e, left + m * left_row + k + e, depth - k - e, left_wide);
        } else {
#pragma unroll
          for (int e = 0; e < count; ++e)
            a[e] = e < depth - k ? hd_as_sum(left[m * left_row + (k + e) * left_step]) : 0;
        }
#pragma unroll
        for (int n = 0; n < mine; ++n) {
#pragma unroll
          for (int e = 0; e < count; ++e) sums[m][n] += a[e] * b[n][e];
        }
      }
    }
#pragma unroll
    for (int m = 0; m < rows; ++m) {
#pragma unroll
      for (int n = 0; n < mine; ++n) {
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2)
          sums[m][n] += hd_exchange(sums[m][n], distance);
        if (lane == 0) out[m * columns + column + n] = sums[m][n];
      }
    }
  }
  // As hd_tensor_tile's.
  static __device__ __forceinline__ Sum* multiply(unsigned char* shared, const L* left, long long left_row,
                                                  long long left_step, const R* right, long long right_step,
                                                  long long right_column, long long rows_left,
                                                  long long columns_left, long long depth) {
    const long long stride = right_along ? right_step : right_column;
    Dense dense{right, stride, columns_left, depth, hd_is_wide(right, stride), {}};
    return multiply_by(shared, left, left_row, left_step, dense, rows_left, depth);
  }
  template <class Right>
  static __device__ __forceinline__ Sum* multiply_by(unsigned char* shared, const L* left, long long left_row,
                                                     long long left_step, Right& right, long long rows_left,
                                                     long long depth) {
    Sum* const out = (Sum*)shared;
    if constexpr (right_along) {
      along_columns(out, out + rows * columns, left, left_row, left_step, right, rows_left, depth);
    } else {
      along_depth(out, left, left_row, left_step, right, rows_left, depth);
    }
    __syncthreads();
    return out;
  }
};
