// Device functions of matrix products on tensor cores. The rules of prelude.cuh hold, whose continuation this is.

// How a block multiplies: a tile of `rows` x `columns` sums, `depth` products at a time, in `stages` buffers
// that are filled ahead; warps lie side by side as warp_rows x warp_columns. L and R, of one size, are what the left
// and the right matrix hold. left_along (right_along): elements of a row of the left (right) matrix are neighbours
// in memory; otherwise those of a column are. Of bytes the left matrix has to be along its rows.
//
// Instructions take 32 bytes of the depth, neighbours of which share a register. ldmatrix turns a matrix of 16 bits
// round, but no other: floats are read one by one there. Of bytes, where the right one is along its rows, a lane reads
// words, four columns of one row each, and turns four of them. These are columns of four fragments, whose columns
// therefore lie four apart. Floats are rounded to tf32 once they are in registers.
//
// warpgroups: wgmma multiplies numbers of 16 bits, of steps of 64 products, straight from shared memory; warps lie as 4 * groups x 1.
template <class L, class R, int rows, int columns, int depth, int warp_rows, int warp_columns, int stages,
          bool left_along, bool right_along, bool turned = false, bool warpgroups = false>
struct hd_tensor_tile {
  typedef typename hd_sum_of<L>::type Sum;
  static constexpr int count = 16 / (int)sizeof(L);  // elements of a piece
  static constexpr bool by_word = right_along && sizeof(R) == 1;
  static constexpr bool is_float = sizeof(L) == 4;
  static constexpr int threads = 32 * warp_rows * warp_columns;
  static constexpr int row_tiles = rows / warp_rows / 16;
  static constexpr int column_pairs = columns / warp_columns / 16;
  static constexpr int left_pieces = (left_along ? depth : rows) / count;
  static constexpr int right_pieces = (right_along ? columns : depth) / count;
  static constexpr int left_size = rows * depth / count;
  static constexpr int stage_size = left_size + columns * depth / count;
  // Of the sums: what a warp writes at once lies in as few banks as can be, and if they are read by columns (turned), what it
  // reads lies in different ones.
  static constexpr int line = columns + (by_word ? 1 : turned ? 5 : 8);
  // The fragment of the left matrix at (row, k), of 16 rows.
  static __device__ __forceinline__ void left_fragment(unsigned int* a, const hd_sixteen* tile, int row,
                                                       int k) {
    const int lane = threadIdx.x % 32;
    if (left_along) {
      hd_load_matrices(a, tile + hd_swizzled<rows, left_pieces>(row + lane % 16, k / count + lane / 16));
    } else if constexpr (is_float) {
#pragma unroll
      for (int n = 0; n < 4; ++n) a[n] = word<left_pieces>(tile, k + n / 2 * 4, row + n % 2 * 8);
    } else {
      hd_load_transposed(a, tile + hd_swizzled<depth, left_pieces>(k + lane % 8 + lane / 16 * 8,
                                                                   row / count + lane / 8 % 2));
    }
    round(a);
  }
  // Of a tile of floats whose rows are the depth, the lane's own of the 4 x 8 from (k, at) on.
  template <int pieces>
  static __device__ __forceinline__ unsigned int word(const hd_sixteen* tile, int k, int at) {
    const int lane = threadIdx.x % 32;
    const int column = at + lane / 4;
    return tile[hd_swizzled_words<depth, pieces, 1>(k + lane % 4, column / 4)].words[column % 4];
  }
  static __device__ __forceinline__ void round(unsigned int* fragment) {
    if constexpr (is_float) {
#pragma unroll
      for (int n = 0; n < 4; ++n) fragment[n] = hd_to_tf32(fragment[n]);
    }
  }
  // Two fragments of the right matrix, of 8 columns each: at (k, column) and (k, column + 8).
  static __device__ __forceinline__ void right_fragments(unsigned int* b, const hd_sixteen* tile, int k,
                                                         int column) {
    const int lane = threadIdx.x % 32;
    if constexpr (right_along && is_float) {
#pragma unroll
      for (int n = 0; n < 4; ++n) b[n] = word<right_pieces>(tile, k + n % 2 * 4, column + n / 2 * 8);
    } else if (right_along) {
      hd_load_transposed(b, tile + hd_swizzled<depth, right_pieces>(k + lane % 16, column / count + lane / 16));
    } else {
      hd_load_matrices(b, tile + hd_swizzled<columns, right_pieces>(column + lane % 8 + lane / 16 * 8,
                                                                    k / count + lane / 8 % 2));
    }
    round(b);
  }
  // Four fragments of a matrix of bytes, in two pairs: of number n the columns column + n, column + n + 4, ...
  static __device__ __forceinline__ void right_fragments_by_word(unsigned int (*b)[4], const hd_sixteen* tile,
                                                                 int k, int column) {
    const int lane = threadIdx.x % 32;
    const int first = column + lane / 4 * 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      unsigned int words[4];
#pragma unroll
      for (int n = 0; n < 4; ++n)
        words[n] = tile[hd_swizzled_words<depth, right_pieces, 4>(k + 16 * half + lane % 4 * 4 + n, first / 16)]
                       .words[first / 4 % 4];
      hd_transpose_bytes(words);
#pragma unroll
      for (int n = 0; n < 4; ++n) b[n / 2][n % 2 * 2 + half] = words[n];
    }
  }
  // The column of the tile that column `at` of a warp's fragment n is, which begins at `column`.
  static __device__ __forceinline__ int column_of(int column, int n, int at) {
    return column + (by_word ? n / 4 * 32 + 4 * at + n % 4 : 8 * n + at);
  }
  // What brings the left matrix.
  typedef hd_tile_source<L, left_along ? rows : depth, left_pieces, threads, !left_along && is_float, left_along> Left;
  // What brings the right matrix: begin() a step's part of it, finish() it once the products of another step are done.
  // Here from memory, by copies that are under way meanwhile.
  struct Dense {
    hd_tile_source<R, right_along ? depth : columns, right_pieces, threads, by_word || (right_along && is_float), !right_along>
        source;
    __device__ __forceinline__ Dense(const R* right, long long stride, long long columns_left, long long depth_left)
        : source(right, stride, columns_left, depth_left) {}
    __device__ __forceinline__ void begin(hd_sixteen* tile, long long step) { source.fetch(tile, step); }
    __device__ __forceinline__ void finish(hd_sixteen*) {}
  };
  // And here a matrix of windows (right_along), element by element: a thread has the same columns in each step, as many as
  // a word holds, and keeps what it read in registers meanwhile.
  template <class Windows>
  struct Gathered {
    static constexpr int each = 4 / (int)sizeof(R);
    static constexpr int words = columns / each;  // of a row
    static constexpr int apart = threads / words;
    static constexpr int mine = depth / apart;
    static_assert(right_along, "windows are neighbours");
    static_assert(apart * words == threads && mine * apart == depth, "whole rows of words");
    const Windows& windows;
    unsigned int first;  // row of windows
    long long depth_left;
    typename Windows::Column own[each];
    R values[mine][each];
    __device__ __forceinline__ Gathered(const Windows& all, unsigned int from, long long columns_left,
                                        long long left)
        : windows(all), first(from), depth_left(left) {
#pragma unroll
      for (int e = 0; e < each; ++e) {
        const int column = (int)threadIdx.x % words * each + e;
        own[e] = windows.column(column, column < columns_left);
      }
    }
    __device__ __forceinline__ void begin(hd_sixteen*, long long step) {
#pragma unroll
      for (int n = 0; n < mine; ++n) {
        const long long k = step * depth + threadIdx.x / words + n * apart;
        const typename Windows::Tap tap = windows.tap(first + (unsigned int)k);
#pragma unroll
        for (int e = 0; e < each; ++e) values[n][e] = k < depth_left ? windows.element(own[e], tap) : R();
      }
    }
    __device__ __forceinline__ void finish(hd_sixteen* tile) {
      const int word = threadIdx.x % words;
#pragma unroll
      for (int n = 0; n < mine; ++n) {
        const int row = threadIdx.x / words + n * apart;
        unsigned int packed;
        memcpy(&packed, values[n], 4);
        tile[by_word || is_float ? hd_swizzled_words<depth, right_pieces, by_word ? 4 : 1>(row, word / 4)
                                 : hd_swizzled<depth, right_pieces>(row, word / 4)]
            .words[word % 4] = packed;
      }
    }
  };
  // And here windows whose channels are neighbours (not right_along), each piece of which is of one tap: a thread has the
  // same windows in each step, and pieces of each that lie at the same place. Copies are under way meanwhile.
  template <class Windows>
  struct Pieces {
    static constexpr int apart = threads / right_pieces;
    static constexpr int mine = columns / apart;
    static_assert(apart * right_pieces == threads && mine * apart == columns, "whole windows");
    const Windows& windows;
    unsigned int first;  // row of windows
    long long depth_left;
    bool wide;
    typename Windows::Column own[mine];
    __device__ __forceinline__ Pieces(const Windows& all, unsigned int from, long long columns_left, long long left)
        : windows(all), first(from), depth_left(left), wide(all.is_wide()) {
#pragma unroll
      for (int n = 0; n < mine; ++n) own[n] = windows.column(line_of(n), line_of(n) < columns_left);
    }
    static __device__ __forceinline__ int line_of(int n) { return (int)threadIdx.x / right_pieces + n * apart; }
    __device__ __forceinline__ void begin(hd_sixteen* tile, long long step) {
      const int piece = (int)threadIdx.x % right_pieces;
      const long long k = step * depth + piece * count;
      const typename Windows::Tap tap = windows.tap(first + (unsigned int)k);
#pragma unroll
      for (int n = 0; n < mine; ++n)
        windows.fetch(tile + hd_swizzled<columns, right_pieces>(line_of(n), piece), own[n], tap, k < depth_left, wide);
    }
    __device__ __forceinline__ void finish(hd_sixteen*) {}
  };
  // And here bytes that stand for numbers (Given is hd_quantised), as many side by side as a piece holds numbers: a thread
  // has the same of them in each step, and keeps what it read in registers meanwhile. Each piece lies in one group.
  template <class Given>
  struct Dequantised {
    static constexpr int pieces = (right_along ? columns : depth) / count;  // of a line
    static constexpr int mine = (right_along ? depth : columns) * pieces / threads;
    static constexpr int kept = right_along ? count : mine;
    static_assert(threads % pieces == 0 && mine * threads == columns * depth / count, "whole lines");
    static_assert(!right_along || 8 % mine == 0, "a thread's lines lie in one group");
    const Given& given;
    long long depth_left;
    int columns_there, depth_there;  // of the tile, and of a step
    unsigned int from;               // where the step begins in the depth
    bool wide;
    unsigned int group;
    unsigned int words[mine][count / 4];
    float scales[kept], offsets[kept];
    __device__ __forceinline__ Dequantised(const Given& all, long long columns_left, long long depth_of_all)
        : given(all), depth_left(depth_of_all), columns_there((int)hd_smaller(columns_left, columns)), depth_there(0),
          from(0), wide(all.template is_wide<count>(right_along ? all.step : all.column)), group(~0u), words(),
          scales(), offsets() {}
    static __device__ __forceinline__ int line_of(int n) {
      const int first = (int)threadIdx.x / pieces;
      return right_along ? first * mine + n : first + n * (threads / pieces);
    }
    static __device__ __forceinline__ int at() { return (int)threadIdx.x % pieces * count; }
    // Of line n, bytes that are there from the thread's on.
    __device__ __forceinline__ int left_of(int n) const {
      if (line_of(n) >= (right_along ? depth_there : columns_there)) return 0;
      return (right_along ? columns_there : depth_there) - at();
    }
    __device__ __forceinline__ void begin(hd_sixteen*, long long step) {
      from = (unsigned int)(step * depth);
      depth_there = (int)hd_smaller(depth_left - step * depth, depth);
      const long long stride = right_along ? given.step : given.column;
      const auto* const bytes = given.bytes + (right_along ? step * depth * stride : step * depth) + at();
#pragma unroll
      for (int n = 0; n < mine; ++n) {
        const int left = left_of(n);
        hd_read_bytes<count>(words[n], left <= 0 ? given.bytes : bytes + line_of(n) * stride, left, wide);
      }
    }
    __device__ __forceinline__ void read_beside() {
      const int k = right_along ? line_of(0) : at();
      const unsigned int of = given.group_of(from + (unsigned int)k);
      if (k >= depth_there || group == of) return;
      group = of;
      if constexpr (right_along) {
        if (at() < columns_there)
          given.template read_beside<count>(scales, offsets, group, at(), columns_there - at());
      } else {
#pragma unroll
        for (int n = 0; n < mine; ++n)
          if (line_of(n) < columns_there)
            given.template read_beside<1>(scales + n, offsets + n, group, line_of(n), 1);
      }
    }
    __device__ __forceinline__ void finish(hd_sixteen* tile) {
      read_beside();
#pragma unroll
      for (int n = 0; n < mine; ++n) {
        float values[count];
        const int own = right_along ? 0 : n % kept;
        Given::template values<count, right_along ? 1 : 0>(values, words[n], scales + own, offsets + own);
        const int left = left_of(n);
        if (right_along ? line_of(n) >= depth_there : left < count) {
#pragma unroll
          for (int e = 0; e < count; ++e)
            if (right_along || e >= left) values[e] = 0.0f;
        }
        tile[right_along && is_float ? hd_swizzled_words<depth, right_pieces, 1>(line_of(n), at() / count)
                                     : hd_swizzled<right_along ? depth : columns, right_pieces>(line_of(n), at() / count)] =
            hd_stored_piece(values, L());
      }
    }
  };
  // And here numbers of a few bits in words (Given is hd_packed; not right_along), each of which holds whole pieces of one
  // column: a thread has the same words of the same column in each step, neighbours of which are of neighbouring lanes. Those
  // of the step after the next are under way meanwhile, for there are few bytes to a step.
  template <class Given>
  struct Packed {
    static constexpr int lines = depth / Given::rows;  // of words in a step
    static constexpr int mine = lines * columns > threads ? lines * columns / threads : 1;
    static constexpr int kept = Given::group_rows % (mine * Given::rows) == 0 ? 1 : mine;  // scales
    static_assert(!right_along && threads % columns == 0 && depth % Given::rows == 0, "whole words of columns");
    static_assert(threads / columns * mine >= lines, "all words of a step");
    struct Read {
      unsigned int words[mine];
      float scales[kept], offsets[kept];
    };
    const Given& given;
    long long depth_left;
    bool is_column;  // the thread's is there
    long long from;  // where the step begins in the depth
    Read now, coming;
    __device__ __forceinline__ Packed(const Given& all, long long columns_left, long long depth_of_all)
        : given(all), depth_left(depth_of_all), is_column(column() < columns_left), from(0), now(),
          coming() {
      read(coming, 0);
    }
    static __device__ __forceinline__ int column() { return (int)threadIdx.x % columns; }
    static __device__ __forceinline__ int line_of(int n) { return (int)threadIdx.x / columns * mine + n; }
    __device__ __forceinline__ bool is_there(long long k, int n) const {
      return is_column && line_of(n) < lines && k < depth_left;
    }
    __device__ __forceinline__ void read(Read& to, long long step) const {
#pragma unroll
      for (int n = 0; n < mine; ++n) {
        const long long line = step * lines + line_of(n);
        const bool there = is_there(line * Given::rows, n);
        to.words[n] = there ? (unsigned int)given.words[line * given.step + column()] : 0u;
        if (n < kept && there)
          given.read_beside(to.scales[n % kept], to.offsets[n % kept], line * Given::rows, column());
      }
    }
    __device__ __forceinline__ void begin(hd_sixteen*, long long step) {
      now = coming;
      read(coming, step + 1);
      from = step * depth;
    }
    __device__ __forceinline__ void finish(hd_sixteen* tile) const {
#pragma unroll
      for (int n = 0; n < mine; ++n) {
        if (line_of(n) >= lines) break;
        const bool there = is_there(from + line_of(n) * Given::rows, n);
#pragma unroll
        for (int r = 0; r < Given::rows; r += count) {
          float values[count];
#pragma unroll
          for (int e = 0; e < count; e += 4) Given::centred(values + e, now.words[n], r + e, now.offsets[n % kept]);
#pragma unroll
          for (int e = 0; e < count; ++e) values[e] = there ? values[e] * now.scales[n % kept] : 0.0f;
          tile[hd_swizzled<columns, right_pieces>(column(), (line_of(n) * Given::rows + r) / count)] =
              hd_stored_piece(values, L());
        }
      }
    }
  };
  // Leaves in `shared` the sums of left . right, element (m, n) at m * line + n, for all threads.
  // `left` and `right` are where the tile's matrices begin, which have rows_left rows, columns_left columns
  // and depth_left products a sum; left_row is the distance of two rows of the left one, left_step that of two
  // columns, right_step and right_column the same of the right one.
  static __device__ __forceinline__ Sum* multiply(unsigned char* shared, const L* left, long long left_row,
                                                  long long left_step, const R* right, long long right_step,
                                                  long long right_column, long long rows_left,
                                                  long long columns_left, long long depth_left) {
    const long long stride = right_along ? right_step : right_column;
    Dense dense(right, stride, columns_left, depth_left);
    return multiply_by(shared, left, left_row, left_step, dense, rows_left, depth_left);
  }
  // The same where the right matrix is of windows, of which row `first` is the tile's first.
  template <class Windows>
  static __device__ __forceinline__ Sum* multiply(unsigned char* shared, const L* left, long long left_row,
                                                  long long left_step, const Windows& windows,
                                                  unsigned int first, long long rows_left,
                                                  long long columns_left, long long depth_left) {
    if constexpr (right_along) {
      Gathered<Windows> gathered(windows, first, columns_left, depth_left);
      return multiply_by(shared, left, left_row, left_step, gathered, rows_left, depth_left);
    } else {
      Pieces<Windows> pieces(windows, first, columns_left, depth_left);
      return multiply_by(shared, left, left_row, left_step, pieces, rows_left, depth_left);
    }
  }
  template <class Right>
  static __device__ __forceinline__ Sum* multiply_by(unsigned char* shared, const L* left, long long left_row,
                                                     long long left_step, Right& right, long long rows_left,
                                                     long long depth_left) {
    const Left lines(left, left_along ? left_row : left_step, rows_left, depth_left);
    Sum sums[row_tiles][2 * column_pairs][4] = {};
    if constexpr (warpgroups) {
      multiply_by_warpgroups(sums, (hd_sixteen*)shared, lines, right, (depth_left + depth - 1) / depth);
    } else {
      multiply_by_warps(sums, (hd_sixteen*)shared, lines, right, (depth_left + depth - 1) / depth);
    }
    leave(sums, (Sum*)shared);
    return (Sum*)shared;
  }
  // Brings the first `count_ahead` steps.
  template <int count_ahead, class Right>
  static __device__ __forceinline__ void begin(hd_sixteen* tiles, const Left& lines, Right& right, long long steps) {
#pragma unroll 1
    for (int k = 0; k < count_ahead; ++k) {
      if (k < steps) {
        hd_sixteen* const stage = tiles + k * stage_size;
        lines.fetch(stage, k);
        right.begin(stage + left_size, k);
        right.finish(stage + left_size);
      }
      hd_copy_commit();
    }
  }
  template <class Right>
  static __device__ __forceinline__ void multiply_by_warps(Sum (*sums)[2 * column_pairs][4], hd_sixteen* tiles,
                                                           const Left& lines, Right& right, long long steps) {
    const int row = (int)threadIdx.x / 32 / warp_columns * (rows / warp_rows);
    const int column = (int)threadIdx.x / 32 % warp_columns * (columns / warp_columns);
    begin<stages - 1>(tiles, lines, right, steps);
    int filled = stages - 1;
    int used = 0;
#pragma unroll 1
    for (long long step = 0; step < steps; ++step) {
      hd_copy_wait<stages - 2>();
      __syncthreads();
      const long long next = step + stages - 1;
      hd_sixteen* const stage = tiles + filled * stage_size;
      if (next < steps) {
        lines.fetch(stage, next);
        right.begin(stage + left_size, next);
      }
      hd_copy_commit();
      const hd_sixteen* const tile = tiles + used * stage_size;
#pragma unroll
      for (int k = 0; k < depth; k += 2 * count) {
        unsigned int a[row_tiles][4];
        unsigned int b[column_pairs][4];
#pragma unroll
        for (int m = 0; m < row_tiles; ++m) left_fragment(a[m], tile, row + 16 * m, k);
        if constexpr (by_word) {
#pragma unroll
          for (int n = 0; n < column_pairs; n += 2)
            right_fragments_by_word(b + n, tile + left_size, k, column + 16 * n);
        } else {
#pragma unroll
          for (int n = 0; n < column_pairs; ++n) right_fragments(b[n], tile + left_size, k, column + 16 * n);
        }
#pragma unroll
        for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
          for (int n = 0; n < 2 * column_pairs; ++n) hd_mma(sums[m][n], a[m], b[n / 2] + n % 2 * 2, L(), R());
        }
      }
      if (next < steps) right.finish(stage + left_size);
      filled = filled + 1 == stages ? 0 : filled + 1;
      used = used + 1 == stages ? 0 : used + 1;
    }
    hd_copy_wait<0>();
    __syncthreads();
  }
  // Warpgroups have 64 rows each, and all columns. Products of a step go on while the next one's begin, so that the step before
  // those makes room for the one that is fetched.
  template <class Right>
  static __device__ __forceinline__ void multiply_by_warpgroups(Sum (*sums)[2 * column_pairs][4], hd_sixteen* tiles,
                                                                const Left& lines, Right& right, long long steps) {
    constexpr int ahead = stages - 2;
    constexpr int left_lines = left_along ? rows : depth;
    constexpr int right_lines = right_along ? depth : columns;
    const int group = (int)threadIdx.x / 128;
    const int left_at = group * 64 * (left_along ? 8 : left_lines / 8);
    begin<ahead>(tiles, lines, right, steps);
    int filled = ahead;
    int used = 0;
#pragma unroll 1
    for (long long step = 0; step < steps; ++step) {
      hd_copy_wait<ahead - 1>();
      hd_products_publish();
      __syncthreads();
      const hd_sixteen* const tile = tiles + used * stage_size;
      const hd_descriptor a = hd_describe(tile + left_at, left_lines * 128);
      const hd_descriptor b = hd_describe(tile + left_size, right_lines * 128);
      hd_products_begin();
#pragma unroll
      for (int k = 0; k < depth / 16; ++k)
        hd_wgmma<columns, left_along, right_along>(&sums[0][0][0], hd_further(a, k * (left_along ? 32 : 2048)),
                                                   hd_further(b, k * (right_along ? 2048 : 32)), L());
      hd_products_commit();
      const long long next = step + ahead;
      hd_sixteen* const stage = tiles + filled * stage_size;
      if (next < steps) {
        lines.fetch(stage, next);
        right.begin(stage + left_size, next);
        right.finish(stage + left_size);
      }
      hd_copy_commit();
      hd_products_wait<1>();
      filled = filled + 1 == stages ? 0 : filled + 1;
      used = used + 1 == stages ? 0 : used + 1;
    }
    hd_products_wait<0>();
    hd_products_hold<row_tiles * 8 * column_pairs>(&sums[0][0][0]);
    hd_copy_wait<0>();
    __syncthreads();
  }
  // Puts the sums where all threads find them.
  static __device__ __forceinline__ void leave(const Sum (*sums)[2 * column_pairs][4], Sum* out) {
    const int row = (int)threadIdx.x / 32 / warp_columns * (rows / warp_rows);
    const int column = (int)threadIdx.x / 32 % warp_columns * (columns / warp_columns);
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (int n = 0; n < 2 * column_pairs; ++n) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          Sum* const at = out + (row + 16 * m + lane / 4 + half * 8) * line + column_of(column, n, lane % 4 * 2);
          if constexpr (line % 2 == 0) {
            *(hd_lanes<Sum, 2>*)at = {{sums[m][n][2 * half], sums[m][n][2 * half + 1]}};
          } else {
            at[0] = sums[m][n][2 * half];
            at[column_of(0, n, 1) - column_of(0, n, 0)] = sums[m][n][2 * half + 1];
          }
        }
      }
    }
    __syncthreads();
  }
};
