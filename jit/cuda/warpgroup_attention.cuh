// Device functions of attention by warpgroups, of sm_90a alone. The rules of prelude.cuh hold, whose continuation this is.
//
// Source of the way: Shah et al., "FlashAttention-3", 2024: products of one tile of keys go on while scores of the next are weighed, and
// warpgroups take turns.

// How a block of `groups` warpgroups attends by wgmma: each has 64 queries, and meets `keys` keys at a time. `depth` is the head size of
// queries and keys and `columns` that of values: 64 or 128. Queries stay in shared memory, sums in registers.
//
// A step multiplies the queries by a tile of keys, and the weights of the tile before by its values: there is one step more than tiles.
// What a step needs comes into one of three stages: its keys, and the values of the tile before. Threads wait for what they need, not
// for each other: for a stage to be full, and, before they fetch the keys of the step after the next, for the one of the step before to
// be free. Steps are counted through all tiles of queries that a block has.
//
// Scores are exponents of 2. A thread has those of rows row(r) and keys key(c) of the tile.
template <class T, int depth, int columns>
struct hd_warpgroup_attention_tile {
  static constexpr int groups = 2;
  static constexpr int rows = 64 * groups;
  static constexpr int threads = 128 * groups;
  static constexpr int keys = depth + columns <= 128 ? 64 : 128;  // of 64, there is room for two blocks
  static constexpr bool takes_turns = keys == 128;
  static constexpr int key_pieces = depth / 8;
  static constexpr int value_pieces = columns / 8;
  static constexpr int values_at = keys * key_pieces;
  static constexpr int stage_size = values_at + keys * value_pieces;
  static constexpr int stages = 3;
  static constexpr int queries_at = stages * stage_size;
  static constexpr int barriers_at = queries_at + rows * key_pieces;  // of mbarriers: stages are full, stages are free
  static constexpr int thread_rows = 2;
  static constexpr int thread_keys = keys / 4;
  static constexpr int line = columns + 8;  // of the sums: rows of a fragment lie in different banks
  static constexpr int total_at = rows * line;
  static constexpr int largest_at = total_at + rows;
  static_assert(4 * (largest_at + rows) <= 16 * barriers_at, "sums leave the barriers alone");
  float scores[keys / 8][4];
  float sums[columns / 8][4];
  float largest[2];
  float totals[2];  // of the thread's own keys
  float factor;  // that scores are yet to be multiplied by
  unsigned int weights[keys / 16][4];  // of the tile before, rounded to T
  template <int lines, int pieces>
  static constexpr __device__ __forceinline__ int place(int line, int piece) {
    return hd_swizzled<lines, pieces>(line, piece);
  }
  static __device__ __forceinline__ int group() { return (int)threadIdx.x / 128; }
  static __device__ __forceinline__ int row(int r) {
    return (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4 + r * 8;
  }
  static __device__ __forceinline__ int key(int c) { return c / 2 * 8 + (int)threadIdx.x % 4 * 2 + c % 2; }
  __device__ __forceinline__ float& score(int r, int c) { return scores[c / 2][r * 2 + c % 2]; }
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
  static __device__ __forceinline__ hd_sixteen* stage_of(unsigned char* shared, unsigned int step) {
    return (hd_sixteen*)shared + (int)(step % stages) * stage_size;
  }
  static __device__ __forceinline__ hd_mbarrier* full(unsigned char* shared, unsigned int step) {
    return (hd_mbarrier*)((hd_sixteen*)shared + barriers_at) + step % stages;
  }
  static __device__ __forceinline__ hd_mbarrier* free(unsigned char* shared, unsigned int step) {
    return full(shared, step) + stages;
  }
  // Makes the barriers, before anything else.
  static __device__ __forceinline__ void prepare(unsigned char* shared) {
    if (threadIdx.x < stages) {
      hd_mbarrier_init(full(shared, threadIdx.x), threads);
      hd_mbarrier_init(free(shared, threadIdx.x), threads / 32);
    }
    __syncthreads();
  }
  // The thread has begun to fetch all that the step needs. Where some copies are not asynchronous, it waits for the others.
  static __device__ __forceinline__ void fetched(unsigned char* shared, unsigned int step, bool wide) {
    if (wide) {
      hd_mbarrier_arrive_copies(full(shared, step));
    } else {
      hd_copy_commit();
      hd_copy_wait<0>();
      hd_mbarrier_arrive(full(shared, step));
    }
  }
  static __device__ __forceinline__ void wait_full(unsigned char* shared, unsigned int step) {
    hd_mbarrier_wait(full(shared, step), step / stages);
    hd_products_publish();
  }
  // Waits until no thread needs the stage of a step any more.
  static __device__ __forceinline__ void wait_free(unsigned char* shared, unsigned int step) {
    hd_mbarrier_wait(free(shared, step), step / stages);
  }
  // The thread's warp needs it no more.
  static __device__ __forceinline__ void leave(unsigned char* shared, unsigned int step) {
    if (threadIdx.x % 32 == 0) hd_mbarrier_arrive(free(shared, step));
  }
  // While one warpgroup's products are begun, the other has scores to weigh. The first turn is the first warpgroup's; after the last one
  // nobody waits.
  static __device__ __forceinline__ void await_turn() {
    if (takes_turns) hd_barrier_sync<threads>(1 + group());
  }
  static __device__ __forceinline__ void end_turn(bool is_last) {
    if (takes_turns && !(is_last && group() == groups - 1)) hd_barrier_arrive<threads>(1 + (group() + 1) % groups);
  }
  __device__ __forceinline__ void start() {
    if (takes_turns && group() == groups - 1) hd_barrier_arrive<threads>(1);
#pragma unroll
    for (int r = 0; r < thread_rows; ++r) {
      largest[r] = -hd_infinity();
      totals[r] = 0.0f;
    }
#pragma unroll
    for (int n = 0; n < columns / 8; ++n) {
#pragma unroll
      for (int k = 0; k < 4; ++k) sums[n][k] = 0.0f;
    }
  }
  __device__ __forceinline__ void begin_keys(unsigned char* shared, unsigned int step) {
    const hd_descriptor key = hd_describe(stage_of(shared, step), keys * 128);
    const hd_descriptor query = hd_describe((hd_sixteen*)shared + queries_at + group() * 64 * 8, rows * 128);
    hd_products_begin();
    hd_wgmma_first<keys, true, false>(&scores[0][0], query, key, T());
#pragma unroll
    for (int k = 1; k < depth / 16; ++k)
      hd_wgmma<keys, true, false>(&scores[0][0], hd_further(query, k / 4 * rows * 128 + k % 4 * 32),
                                  hd_further(key, k / 4 * keys * 128 + k % 4 * 32), T());
    hd_products_commit();
  }
  __device__ __forceinline__ void begin_values(unsigned char* shared, unsigned int step) {
    const hd_descriptor value = hd_describe(stage_of(shared, step) + values_at, keys * 128);
#pragma unroll
    for (int k = 0; k < keys / 16; ++k)
      hd_wgmma_registers<columns, true>(&sums[0][0], weights[k], hd_further(value, k * 2048), T());
    hd_products_commit();
  }
  __device__ __forceinline__ void hold_sums() { hd_products_hold<columns / 2>(&sums[0][0]); }
  __device__ __forceinline__ void multiply_first(unsigned char* shared, unsigned int step, bool is_last) {
    factor = 1.0f;
    wait_full(shared, step);
    await_turn();
    begin_keys(shared, step);
    end_turn(is_last);
    hd_products_wait<0>();
    hd_products_hold<keys / 2>(&scores[0][0]);
  }
  // Waits for the scores alone.
  __device__ __forceinline__ void multiply_next(unsigned char* shared, unsigned int step, bool is_last) {
    factor = 1.0f;
    wait_full(shared, step);
    await_turn();
    hold_sums();
    begin_keys(shared, step);
    begin_values(shared, step);
    end_turn(is_last);
    hd_products_wait<1>();
    hd_products_hold<keys / 2>(&scores[0][0]);
  }
  // The last step, which has values alone.
  __device__ __forceinline__ void multiply_last(unsigned char* shared, unsigned int step) {
    wait_full(shared, step);
    hold_sums();
    hd_products_begin();
    begin_values(shared, step);
    hd_products_wait<0>();
    hold_sums();
    leave(shared, step);
  }
  // Turns scores into weights: 2^(score - the largest so far). What was summed with a smaller one is scaled down. The step's stage is
  // left.
  __device__ __forceinline__ void weigh(unsigned char* shared, unsigned int step) {
    float rescale[thread_rows];
#pragma unroll
    for (int r = 0; r < thread_rows; ++r) {
      float most = score(r, 0);
#pragma unroll
      for (int c = 1; c < thread_keys; ++c) most = fmaxf(most, score(r, c));
      most = fmaxf(most, hd_exchange(most, 1));
      most = fmaxf(most, hd_exchange(most, 2));
      const float before = largest[r];
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
      largest[r] = now;
      totals[r] = totals[r] * rescale[r] + total;
    }
    hd_products_wait<0>();
    hold_sums();
    leave(shared, step);
#pragma unroll
    for (int k = 0; k < keys / 16; ++k) {
#pragma unroll
      for (int p = 0; p < 4; ++p)
        weights[k][p] = hd_pack(scores[2 * k + p / 2][p % 2 * 2], scores[2 * k + p / 2][p % 2 * 2 + 1], T());
    }
#pragma unroll
    for (int r = 0; r < thread_rows; ++r) {
#pragma unroll
      for (int n = 0; n < columns / 8; ++n) {
        sums[n][r * 2] *= rescale[r];
        sums[n][r * 2 + 1] *= rescale[r];
      }
    }
  }
  // Leaves in `shared` what hd_attention_tile's does.
  __device__ __forceinline__ float* finish(unsigned char* shared) {
    __syncthreads();
    float* const out = (float*)shared;
#pragma unroll
    for (int r = 0; r < thread_rows; ++r) {
      float total = totals[r];
      total += hd_exchange(total, 1);
      total += hd_exchange(total, 2);
      if (threadIdx.x % 4 == 0) {
        out[total_at + row(r)] = total;
        out[largest_at + row(r)] = largest[r];
      }
#pragma unroll
      for (int n = 0; n < columns / 8; ++n)
        *(hd_lanes<float, 2>*)(out + row(r) * line + 8 * n + (int)threadIdx.x % 4 * 2) = {
            {sums[n][r * 2], sums[n][r * 2 + 1]}};
    }
    __syncthreads();
    return out;
  }
};

// Begins to fetch what step `step` of `steps` needs, number `turn` of the block: keys, and values of the tile before, of which so many
// are there. The first step's queries were begun before it; `wide`: all their copies are asynchronous.
template <class Tile, class T>
static __device__ __forceinline__ void hd_fetch_step(unsigned char* shared, unsigned int turn, long long step, long long steps,
                                                     const hd_lines<T>& key, int key_count, long long keys_left,
                                                     const hd_lines<T>& value, int value_count, long long values_left,
                                                     bool wide) {
  if (step > steps) return;
  hd_sixteen* const stage = Tile::stage_of(shared, turn);
  if (step < steps) hd_fetch_lines<Tile, Tile::keys, Tile::key_pieces>(stage, key, keys_left, key_count);
  if (step > 0)
    hd_fetch_lines<Tile, Tile::keys, Tile::value_pieces>(stage + Tile::values_at, value, values_left, value_count);
  Tile::fetched(shared, turn, wide && key.is_wide() && value.is_wide());
}
