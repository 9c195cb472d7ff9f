// Device functions of matrix products without tensor cores, operands through shared memory, and how blocks share a tile, of either
// kind. The rules of prelude.cuh hold, whose continuation this is.

// How a block multiplies without tensor cores, operands of any strides through shared memory: a thread has
// every 16th row and column of the tile. left_along, right_along: as in hd_tensor_tile, of what is read at once.
template <class L, class R, int rows, int columns, int depth, bool left_along, bool right_along>
struct hd_plain_tile {
  typedef typename hd_sum_of<L>::type Sum;
  static constexpr int threads = 256;
  static constexpr int line = columns + 1;
  static constexpr int left_line = rows + 1;
  // What gives elements of the right matrix to the thread that puts them into the tile: here from memory.
  struct Dense {
    const R* right;
    long long step, column, columns_left, depth_left;
    __device__ __forceinline__ Sum read(long long k, int n) const {
      return n < columns_left && k < depth_left ? hd_as_sum(right[k * step + n * column]) : 0;
    }
  };
  // And here of windows (right_along): a thread has one column.
  template <class Windows>
  struct Gathered {
    static_assert(right_along && threads % columns == 0, "windows are neighbours");
    const Windows& windows;
    unsigned int first;
    long long depth_left;
    typename Windows::Column own;
    __device__ __forceinline__ Sum read(long long k, int) const {
      return k < depth_left ? hd_as_sum(windows.element(own, windows.tap(first + (unsigned int)k))) : 0;
    }
  };
  // And here of bytes that stand for numbers (Given is hd_quantised), or of a few bits of words.
  template <class Given>
  struct Dequantised {
    const Given& given;
    long long columns_left, depth_left;
    __device__ __forceinline__ Sum read(long long k, int n) const {
      return n < columns_left && k < depth_left ? hd_rounded(given.element(k, n), L()) : 0;
    }
  };
  template <class Given> using Packed = Dequantised<Given>;
  // As hd_tensor_tile's.
  static __device__ __forceinline__ Sum* multiply(unsigned char* shared, const L* left, long long left_row,
                                                  long long left_step, const R* right, long long right_step,
                                                  long long right_column, long long rows_left,
                                                  long long columns_left, long long depth_left) {
    const Dense dense{right, right_step, right_column, columns_left, depth_left};
    return multiply_by(shared, left, left_row, left_step, dense, rows_left, depth_left);
  }
  template <class Windows>
  static __device__ __forceinline__ Sum* multiply(unsigned char* shared, const L* left, long long left_row,
                                                  long long left_step, const Windows& windows,
                                                  unsigned int first, long long rows_left,
                                                  long long columns_left, long long depth_left) {
    const int column = threadIdx.x % columns;
    const Gathered<Windows> gathered{windows, first, depth_left,
                                     windows.column(column, column < columns_left)};
    return multiply_by(shared, left, left_row, left_step, gathered, rows_left, depth_left);
  }
  template <class Right>
  static __device__ __forceinline__ Sum* multiply_by(unsigned char* shared, const L* left, long long left_row,
                                                     long long left_step, const Right& right,
                                                     long long rows_left, long long depth_left) {
    Sum* const left_tile = (Sum*)shared;
    Sum* const right_tile = left_tile + depth * left_line;
    const int row = threadIdx.x / 16;
    const int column = threadIdx.x % 16;
    Sum sums[rows / 16][columns / 16] = {};
#pragma unroll 1
    for (long long begin = 0; begin < depth_left; begin += depth) {
#pragma unroll
      for (int e = threadIdx.x; e < rows * depth; e += threads) {
        const int m = left_along ? e / depth : e % rows;
        const int k = left_along ? e % depth : e / rows;
        const bool exists = m < rows_left && begin + k < depth_left;
        left_tile[k * left_line + m] =
            exists ? hd_as_sum(left[m * left_row + (begin + k) * left_step]) : 0;
      }
#pragma unroll
      for (int e = threadIdx.x; e < columns * depth; e += threads) {
        const int n = right_along ? e % columns : e / depth;
        const int k = right_along ? e / columns : e % depth;
        right_tile[k * line + n] = right.read(begin + k, n);
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < depth; ++k) {
        Sum b[columns / 16];
#pragma unroll
        for (int n = 0; n < columns / 16; ++n) b[n] = right_tile[k * line + column + 16 * n];
#pragma unroll
        for (int m = 0; m < rows / 16; ++m) {
          const Sum a = left_tile[k * left_line + row + 16 * m];
#pragma unroll
          for (int n = 0; n < columns / 16; ++n) sums[m][n] += a * b[n];
        }
      }
      __syncthreads();
    }
    Sum* const out = (Sum*)shared;
#pragma unroll
    for (int m = 0; m < rows / 16; ++m) {
#pragma unroll
      for (int n = 0; n < columns / 16; ++n)
        out[(row + 16 * m) * line + column + 16 * n] = sums[m][n];
    }
    __syncthreads();
    return out;
  }
};

// As a Tile's multiply(), by a matrix of bytes or of a few bits that stand for numbers: Given is hd_quantised or hd_packed.
template <class Tile, class L, class Given>
static __device__ __forceinline__ typename Tile::Sum* hd_multiply_quantised(
    unsigned char* shared, const L* left, long long left_row, long long left_step, const Given& given,
    long long rows_left, long long columns_left, long long depth_left) {
  typename Given::template right_of<Tile> right{given, columns_left, depth_left};
  return Tile::multiply_by(shared, left, left_row, left_step, right, rows_left, depth_left);
}

// Of `parts` blocks that share a tile, where part number `part` begins in the depth: multiples of `step`, `depth` for
// the end of the last one. Divisions of 64 bits are long: none where there is one part.
template <int step>
static __device__ __forceinline__ long long hd_part_begin(long long depth, unsigned int part,
                                                          unsigned int parts) {
  if (part == 0) return 0;
  if (part == parts) return depth;
  const unsigned int steps = (unsigned int)((depth + step - 1) / step);
  return hd_smaller(depth, (long long)((steps + parts - 1) / parts) * part * step);
}

// Which of the `parts` blocks that share each of `tiles` tiles this one is. Of as many blocks as there are tiles, or fewer,
// each has tiles of its own.
static __device__ __forceinline__ unsigned int hd_part_of_block(long long tiles, unsigned int& parts) {
  const bool shares = gridDim.x > tiles && tiles != 0;
  parts = shares ? gridDim.x / (unsigned int)tiles : 1u;
  return shares ? blockIdx.x / (unsigned int)tiles : 0u;
}

// Whether this block is the last of `parts` to come here with what it has written, which it then sees of all. `arrived`
// is 0 before and after; `room` is shared memory that the block has read, and is not to be written before a barrier.
static __device__ __forceinline__ bool hd_is_last_part(unsigned int* arrived, unsigned int parts, unsigned int* room) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    *room = atomicInc(arrived, parts - 1);
    __threadfence();
  }
  __syncthreads();
  return *room == parts - 1;
}

// Adds up the sums of the `parts` blocks that share a tile, in the order of their numbers, whichever comes last: that one
// gets true, and the totals in `sums`. Of these `rows` rows are there. `shares` has room for the sums of all parts, with
// nothing between rows; `arrived` is 0 before and after.
template <class Sum, int columns, int line, int threads>
static __device__ __forceinline__ bool hd_join_parts(Sum* sums, Sum* shares, unsigned int* arrived,
                                                     unsigned int part, unsigned int parts, int rows) {
  // As many at a time as lie side by side in `sums`, too.
  constexpr int each = hd_neighbours(line);
  static_assert(columns % 4 == 0, "whole rows of fours");
  typedef hd_lanes<Sum, each> Lanes;
  const int count = rows * columns;
  for (int e = each * threadIdx.x; e < count; e += each * threads)
    *(Lanes*)(shares + (long long)part * count + e) = *(const Lanes*)(sums + e / columns * line + e % columns);
  if (!hd_is_last_part(arrived, parts, (unsigned int*)sums)) return false;
  __syncthreads();
  for (int e = each * threadIdx.x; e < count; e += each * threads) {
    Lanes total = *(const Lanes*)(shares + e);
#pragma unroll 4
    for (unsigned int k = 1; k < parts; ++k) {
      const Lanes share = *(const Lanes*)(shares + (long long)k * count + e);
#pragma unroll
      for (int n = 0; n < each; ++n) total.at[n] += share.at[n];
    }
    *(Lanes*)(sums + e / columns * line + e % columns) = total;
  }
  __syncthreads();
  return true;
}

// Where tile number `tile` of the rows of all groups lies, each group ending in a tile of its own, and after the groups
// the rows that belong to none: whether there is a matrix for it, and its number. No rows: there are not so many tiles.
template <int tile_rows>
static __device__ __forceinline__ bool hd_place_in_groups(const long long* ends, long long stride,
                                                          long long groups, long long rows,
                                                          long long tile, long long& group,
                                                          long long& row, long long& row_end) {
  long long begin = 0;
  for (long long g = 0; g <= groups; ++g) {
    const long long end = g != groups ? hd_larger(begin, hd_smaller(ends[g * stride], rows)) : rows;
    const long long tiles = (end - begin + (tile_rows - 1)) / tile_rows;
    if (tile < tiles) {
      group = g != groups || g == 0 ? g : g - 1;
      row = begin + tile * tile_rows;
      row_end = end;
      return g != groups;
    }
    tile -= tiles;
    begin = end;
  }
  group = 0;
  row = row_end = rows;
  return false;
}

// Where tile `number` of a matrix of tiles is: down columns of 8 tiles, so that neighbours share operands in
// the second-level cache.
static __device__ __forceinline__ void hd_place_tile(long long number, long long row_tiles,
                                                     long long column_tiles, long long& row,
                                                     long long& column) {
  const long long band = number / (8 * column_tiles) * 8;
  const long long height = hd_smaller(8, row_tiles - band);
  const long long rest = number % (8 * column_tiles);
  row = band + rest % height;
  column = rest / height;
}
