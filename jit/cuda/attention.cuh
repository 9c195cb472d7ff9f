// Device functions of attention on the tensor cores. The rules of prelude.cuh hold, whose continuation this is.
//
// Source of the way: Dao, "FlashAttention-2", 2023. That sums of one mma are, rounded, the left operand of the next:
// PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type".

// A score as an exponent of 2. What is finite stays so: the smallest float, as a mask adds it, hides a key among others,
// but not all keys of a row, as minus infinity does.
static __device__ __forceinline__ float hd_as_exponent(float score) {
  const float scaled = score * 1.44269504f;
  return score >= -3.40282347e+38f ? fmaxf(scaled, -3.40282347e+38f) : scaled;
}

// Where lines begin that are `stride` elements apart.
template <class T>
struct hd_lines {
  typedef T type;
  const T* from;
  long long stride;
  __device__ __forceinline__ const T* at(int line) const { return from + line * stride; }
  __device__ __forceinline__ bool is_wide() const { return hd_is_wide(from, stride); }
};

// Where queries of heads begin, `apart` elements from each other, of which `group` share keys and values: all of the group's
// of one query, then those of the next. Line 0 is number `first` of these, as which `from` does not count.
template <class T, int group>
struct hd_group_lines {
  typedef T type;
  const T* from;
  long long stride;
  long long apart;
  int first;
  __device__ __forceinline__ const T* at(int line) const {
    return from + (first + line) / group * stride + (first + line) % group * apart;
  }
  __device__ __forceinline__ bool is_wide() const { return hd_is_wide(from, stride) && hd_is_wide(from, apart); }
};

// Puts lines of `pieces` pieces of 16 bytes, an even number, where a Tile has them: Tile::place(). Zeros where there are none:
// `lines_left` lines of `count` elements.
template <class Tile, int lines, int pieces, class Lines>
static __device__ __forceinline__ void hd_fetch_lines(hd_sixteen* to, const Lines& from, long long lines_left,
                                                      int count) {
  typedef typename Lines::type T;
  constexpr int each = 16 / (int)sizeof(T);
  constexpr int threads = Tile::threads;
  const bool wide = from.is_wide();
  const int there = lines_left >= lines ? lines : (int)lines_left;
  if (threads % pieces == 0 && lines % (threads / pieces) == 0 && wide && count == each * pieces) {
    constexpr int apart = threads / pieces;
    const int first = (int)threadIdx.x / pieces;
    const int piece = (int)threadIdx.x % pieces;
    if (apart % 8 == 0 && there == lines) {  // places are as far apart as lines
      constexpr int step = Tile::template place<lines, pieces>(apart, 0);
      hd_sixteen* const place = to + Tile::template place<lines, pieces>(first, piece);
#pragma unroll
      for (int n = 0; n < lines / apart; ++n) hd_copy_async(place + n * step, from.at(first + n * apart) + each * piece);
      return;
    }
#pragma unroll
    for (int n = 0; n < lines / apart; ++n) {
      const int line = first + n * apart;
      const T* const at = line < there ? from.at(line) + each * piece : from.from;
      hd_copy_async(to + Tile::template place<lines, pieces>(line, piece), at, line < there ? 16 : 0);
    }
    return;
  }
#pragma unroll 1
  for (int k = threadIdx.x; k < lines * pieces; k += threads) {
    const int line = k / pieces;
    const int piece = k % pieces;
    const int left = line < there ? count - each * piece : 0;
    const int valid = left <= 0 ? 0 : left >= each ? each : left;
    const T* const at = valid == 0 ? from.from : from.at(line) + each * piece;
    hd_sixteen* const place = to + Tile::template place<lines, pieces>(line, piece);
    if (wide) {
      hd_copy_async(place, at, (int)sizeof(T) * valid);
    } else {
      hd_fetch_piece<T, each>(place, at, valid);
    }
  }
}

// Begins to fetch tile `number` of the keys and values, of which keys_left are there, for a Tile: hd_attention_tile or
// hd_plain_attention_tile.
template <class Tile, class T>
static __device__ __forceinline__ void hd_fetch_keys(unsigned char* shared, long long number, const hd_lines<T>& key,
                                                     int key_count, const hd_lines<T>& value, int value_count,
                                                     long long keys_left) {
  hd_sixteen* const stage = (hd_sixteen*)shared + (int)((unsigned int)number % Tile::stages) * Tile::stage_size;
  hd_fetch_lines<Tile, Tile::keys, Tile::key_pieces>(stage, key, keys_left, key_count);
  hd_fetch_lines<Tile, Tile::keys, Tile::value_pieces>(stage + Tile::values_at, value, keys_left, value_count);
  hd_copy_commit();
}

// Begins to fetch the queries of a Tile, of which rows_left are there.
template <class Tile, class Lines>
static __device__ __forceinline__ void hd_fetch_queries(unsigned char* shared, const Lines& query, int count,
                                                        long long rows_left) {
  hd_fetch_lines<Tile, Tile::rows, Tile::key_pieces>((hd_sixteen*)shared + Tile::queries_at, query, rows_left, count);
  hd_copy_commit();
}

// How a block attends: a tile of queries meets 64 keys at a time. Keys and values come through shared memory, the next ones while
// these are used; queries, scores and sums stay in registers. `depth` is the head size of queries
// and keys and `columns` that of values, multiples of 16. A warp has 16 * row_tiles queries; warp_keys of them share
// the queries and part the keys.
//
// Scores are exponents of 2. A thread has those of rows row(r) and keys key(c) of the tile.
template <class T, int depth, int columns, int row_tiles, int warp_rows, int warp_keys>
struct hd_attention_tile {
  static constexpr int rows = 16 * row_tiles * warp_rows;
  static constexpr int keys = 64;
  static constexpr int threads = 32 * warp_rows * warp_keys;
  static constexpr int key_pieces = depth / 8;
  static constexpr int value_pieces = columns / 8;
  static constexpr int values_at = keys * (key_pieces + 1);
  static constexpr int stage_size = values_at + keys * (value_pieces + 1);
  static constexpr int stages = 2;
  static constexpr int queries_at = stage_size;  // there the second tile of keys will be
  static constexpr int warp_columns = keys / warp_keys;
  static constexpr int thread_rows = 2 * row_tiles;
  static constexpr int thread_keys = warp_columns / 4;
  static constexpr int line = columns + 8;  // of the sums: rows of a fragment lie in different banks
  static constexpr int total_at = warp_keys * rows * line;
  static constexpr int largest_at = total_at + warp_keys * rows;
  unsigned int queries[row_tiles][depth / 16][4];
  float scores[row_tiles][warp_columns / 8][4];
  float sums[row_tiles][columns / 8][4];
  float largest[row_tiles][2];
  float totals[row_tiles][2];  // of the thread's own keys
  float factor;  // that scores are yet to be multiplied by
  // Eight lines' pieces of one column lie in all 32 banks.
  template <int lines, int pieces>
  static constexpr __device__ __forceinline__ int place(int line, int piece) {
    return line * (pieces + 1) + piece;
  }
  static __device__ __forceinline__ int first_row() {
    return (int)threadIdx.x / 32 / warp_keys * 16 * row_tiles;
  }
  static __device__ __forceinline__ int first_key() {
    return (int)threadIdx.x / 32 % warp_keys * warp_columns;
  }
  static __device__ __forceinline__ int row(int r) {
    return first_row() + r / 2 * 16 + (int)threadIdx.x % 32 / 4 + r % 2 * 8;
  }
  static __device__ __forceinline__ int key(int c) {
    return first_key() + c / 2 * 8 + (int)threadIdx.x % 4 * 2 + c % 2;
  }
  __device__ __forceinline__ float& score(int r, int c) { return scores[r / 2][c / 2][r % 2 * 2 + c % 2]; }
  __device__ __forceinline__ void scale(float by) {
    if (by > 0.0f) {
      factor = by;
      return;
    }
#pragma unroll
    for (int r = 0; r < thread_rows; ++r) {
#pragma unroll
      for (int c = 0; c < thread_keys; ++c) score(r, c) *= by;
    }
  }
  // Takes the queries, after which one tile is being fetched.
  __device__ __forceinline__ void start(const unsigned char* shared) {
    hd_copy_wait<1>();
    __syncthreads();
    const hd_sixteen* const lines = (const hd_sixteen*)shared + queries_at;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
      largest[m][0] = largest[m][1] = -hd_infinity();
      totals[m][0] = totals[m][1] = 0.0f;
#pragma unroll
      for (int n = 0; n < columns / 8; ++n) {
#pragma unroll
        for (int k = 0; k < 4; ++k) sums[m][n][k] = 0.0f;
      }
#pragma unroll
      for (int k = 0; k < depth / 16; ++k)
        hd_load_matrices(queries[m][k],
                         lines + place<rows, key_pieces>(first_row() + 16 * m + lane % 16, 2 * k + lane / 16));
    }
  }
  // Waits for what was fetched, and until no thread needs the other stage.
  static __device__ __forceinline__ void arrive() {
    hd_copy_wait<0>();
    __syncthreads();
  }
  static __device__ __forceinline__ const hd_sixteen* stage_of(const unsigned char* shared, long long number) {
    return (const hd_sixteen*)shared + (int)((unsigned int)number % stages) * stage_size;
  }
  // scores = queries . keys of tile `number`
  __device__ __forceinline__ void multiply_keys(const unsigned char* shared, long long number) {
    const hd_sixteen* const lines = stage_of(shared, number);
    const int lane = threadIdx.x % 32;
    factor = 1.0f;
#pragma unroll
    for (int n = 0; n < warp_columns / 8; n += 2) {
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
        for (int k = 0; k < 4; ++k) scores[m][n][k] = scores[m][n + 1][k] = 0.0f;
      }
#pragma unroll
      for (int k = 0; k < depth / 16; ++k) {
        unsigned int b[4];
        hd_load_matrices(b, lines + place<keys, key_pieces>(first_key() + 8 * n + lane % 8 + lane / 16 * 8,
                                                            2 * k + lane / 8 % 2));
#pragma unroll
        for (int m = 0; m < row_tiles; ++m) {
          hd_mma(scores[m][n], queries[m][k], b, T(), T());
          hd_mma(scores[m][n + 1], queries[m][k], b + 2, T(), T());
        }
      }
    }
  }
  // Turns scores into weights: 2^(score - the largest so far). What was summed with a smaller one is scaled down.
  __device__ __forceinline__ void weigh() {
    float rescale[thread_rows];
#pragma unroll
    for (int r = 0; r < thread_rows; ++r) {
      float most = score(r, 0);
#pragma unroll
      for (int c = 1; c < thread_keys; ++c) most = fmaxf(most, score(r, c));
      most = fmaxf(most, hd_exchange(most, 1));
      most = fmaxf(most, hd_exchange(most, 2));
      const float before = largest[r / 2][r % 2];
      const float now = fmaxf(before, most * factor);
      // Rows that saw nothing yet: -inf - -inf would be NaN.
      const float shift = now == -hd_infinity() ? 0.0f : now;
      rescale[r] = hd_exp2(before - shift);
      float total = 0.0f;
#pragma unroll
      for (int c = 0; c < thread_keys; ++c) {
        score(r, c) = hd_exp2(score(r, c) * factor - shift);
        total += score(r, c);
      }
      largest[r / 2][r % 2] = now;
      totals[r / 2][r % 2] = totals[r / 2][r % 2] * rescale[r] + total;
    }
#pragma unroll
    for (int r = 0; r < thread_rows; ++r) {
#pragma unroll
      for (int n = 0; n < columns / 8; ++n) {
        sums[r / 2][n][r % 2 * 2] *= rescale[r];
        sums[r / 2][n][r % 2 * 2 + 1] *= rescale[r];
      }
    }
  }
  // sums += weights . values of tile `number`; the weights are rounded to T.
  __device__ __forceinline__ void multiply_values(const unsigned char* shared, long long number) {
    const hd_sixteen* const lines = stage_of(shared, number) + values_at;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < warp_columns / 16; ++k) {
      unsigned int a[row_tiles][4];
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
        for (int p = 0; p < 4; ++p)
          a[m][p] = hd_pack(scores[m][2 * k + p / 2][p % 2 * 2], scores[m][2 * k + p / 2][p % 2 * 2 + 1], T());
      }
#pragma unroll
      for (int n = 0; n < columns / 8; n += 2) {
        unsigned int b[4];
        hd_load_transposed(b, lines + place<keys, value_pieces>(first_key() + 16 * k + lane % 16, n + lane / 16));
#pragma unroll
        for (int m = 0; m < row_tiles; ++m) {
          hd_mma(sums[m][n], a[m], b, T(), T());
          hd_mma(sums[m][n + 1], a[m], b + 2, T(), T());
        }
      }
    }
  }
  // Makes what the warps have that share queries relative to one largest score. `all`: room for theirs.
  __device__ __forceinline__ void agree(float* all, int part) {
#pragma unroll
    for (int r = 0; r < thread_rows; ++r)
      if (threadIdx.x % 4 == 0) all[part * rows + row(r)] = largest[r / 2][r % 2];
    __syncthreads();
#pragma unroll
    for (int r = 0; r < thread_rows; ++r) {
      float now = all[row(r)];
#pragma unroll
      for (int p = 1; p < warp_keys; ++p) now = fmaxf(now, all[p * rows + row(r)]);
      const float rescale = hd_exp2(largest[r / 2][r % 2] - (now == -hd_infinity() ? 0.0f : now));
      largest[r / 2][r % 2] = now;
      totals[r / 2][r % 2] *= rescale;
#pragma unroll
      for (int n = 0; n < columns / 8; ++n) {
        sums[r / 2][n][r % 2 * 2] *= rescale;
        sums[r / 2][n][r % 2 * 2 + 1] *= rescale;
      }
    }
    __syncthreads();
  }
  // Adds up what the warps left that share queries.
  static __device__ __forceinline__ void join(float* out, float* all) {
    __syncthreads();
#pragma unroll 1
    for (int e = 4 * threadIdx.x; e < rows * columns; e += 4 * threads) {
      float* const at = out + e / columns * line + e % columns;
      hd_lanes<float, 4> sum = *(const hd_lanes<float, 4>*)at;
#pragma unroll
      for (int p = 1; p < warp_keys; ++p) {
        const hd_lanes<float, 4> other = *(const hd_lanes<float, 4>*)(at + p * rows * line);
#pragma unroll
        for (int n = 0; n < 4; ++n) sum.at[n] += other.at[n];
      }
      *(hd_lanes<float, 4>*)at = sum;
    }
    if ((int)threadIdx.x < rows) {
#pragma unroll
      for (int p = 1; p < warp_keys; ++p) all[threadIdx.x] += all[p * rows + threadIdx.x];
    }
  }
  // Leaves in `shared` the sums, element (row, column) at row * line + column, from total_at on the rows' totals, and from
  // largest_at on the scores that both are relative to, for all threads.
  __device__ __forceinline__ float* finish(unsigned char* shared) {
    arrive();
    float* const out = (float*)shared;
    float* const all = out + total_at;
    const int part = (int)threadIdx.x / 32 % warp_keys;
    if (warp_keys > 1) agree(all, part);
#pragma unroll
    for (int r = 0; r < thread_rows; ++r) {
      float total = totals[r / 2][r % 2];
      total += hd_exchange(total, 1);
      total += hd_exchange(total, 2);
      if (threadIdx.x % 4 == 0) all[part * rows + row(r)] = total;
      if (threadIdx.x % 4 == 0 && part == 0) out[largest_at + row(r)] = largest[r / 2][r % 2];
#pragma unroll
      for (int n = 0; n < columns / 8; ++n) {
        *(hd_lanes<float, 2>*)(out + (part * rows + row(r)) * line + 8 * n + (int)threadIdx.x % 4 * 2) = {
            {sums[r / 2][n][r % 2 * 2], sums[r / 2][n][r % 2 * 2 + 1]}};
      }
    }
    if (warp_keys > 1) join(out, all);
    __syncthreads();
    return out;
  }
};

// What a block leaves in memory that shares queries with others and has a part of the keys: sums of `rows` rows without
// anything in between, their totals, and their largest scores.
template <class Tile, int columns>
static __device__ __forceinline__ void hd_leave_part(float* share, const float* sums, int rows) {
  constexpr int each = hd_neighbours(columns);
  for (int e = each * threadIdx.x; e < rows * columns; e += each * Tile::threads)
    *(hd_lanes<float, each>*)(share + e) =
        *(const hd_lanes<float, each>*)(sums + e / columns * Tile::line + e % columns);
  if ((int)threadIdx.x < rows) {
    share[rows * columns + threadIdx.x] = sums[Tile::total_at + threadIdx.x];
    share[rows * (columns + 1) + threadIdx.x] = sums[Tile::largest_at + threadIdx.x];
  }
}

// Turns the largest scores that `parts` blocks left for one row, `pitch` apart, into what their sums are to be multiplied by;
// the row's total, for all lanes of the warp that calls this.
static __device__ __forceinline__ float hd_weigh_parts(float* largest, const float* totals, int pitch,
                                                       unsigned int parts) {
  const unsigned int lane = threadIdx.x % 32;
  float most = -hd_infinity();
  for (unsigned int k = lane; k < parts; k += 32) most = fmaxf(most, largest[(long long)k * pitch]);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) most = fmaxf(most, hd_exchange(most, distance));
  const float shift = most == -hd_infinity() ? 0.0f : most;
  float total = 0.0f;
  for (unsigned int k = lane; k < parts; k += 32) {
    const float weight = hd_exp2(largest[(long long)k * pitch] - shift);
    largest[(long long)k * pitch] = weight;
    total += totals[(long long)k * pitch] * weight;
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) total += hd_exchange(total, distance);
  return total;
}

// Joins what the `parts` blocks found that share queries and part their keys, in an order that depends on their numbers only,
// whichever comes last: that one gets true, and in `sums` what finish() gives to a block that met all keys, but for the largest
// scores. Of the tile's rows `rows` are there. `shares` has room for what hd_leave_part() leaves of all parts, each of which begins
// at a multiple of 16 bytes; `arrived` is 0 before and after.
template <class Tile, int columns>
static __device__ __forceinline__ bool hd_join_attention(float* sums, float* shares, unsigned int* arrived,
                                                         unsigned int part, unsigned int parts, int rows) {
  constexpr int each = hd_neighbours(columns);
  typedef hd_lanes<float, each> Lanes;
  const int pitch = (rows * (columns + 2) + 3) / 4 * 4;
  hd_leave_part<Tile, columns>(shares + (long long)part * pitch, sums, rows);
  if (!hd_is_last_part(arrived, parts, (unsigned int*)(sums + Tile::largest_at))) return false;
  float* const totals = shares + rows * columns;
  float* const weights = totals + rows;
  for (int row = (int)threadIdx.x / 32; row < rows; row += Tile::threads / 32) {
    const float total = hd_weigh_parts(weights + row, totals + row, pitch, parts);
    if (threadIdx.x % 32 == 0) sums[Tile::total_at + row] = total;
  }
  __syncthreads();
  for (int e = each * threadIdx.x; e < rows * columns; e += each * Tile::threads) {
    Lanes sum = {};
#pragma unroll 8
    for (unsigned int k = 0; k < parts; ++k) {
      const Lanes share = *(const Lanes*)(shares + (long long)k * pitch + e);
      const float weight = weights[(long long)k * pitch + e / columns];
#pragma unroll
      for (int n = 0; n < each; ++n) sum.at[n] += share.at[n] * weight;
    }
    *(Lanes*)(sums + e / columns * Tile::line + e % columns) = sum;
  }
  __syncthreads();
  return true;
}
