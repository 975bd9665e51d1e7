// Two ways in which a block attends for QUERIES positions of a head. A warp has 16 of them.

template <typename T>
struct Chunk {
  const T* queries;  // Its first query; the next one lies `by_query` further.
  int64_t by_query;
  int n_queries;
  const T* keys;
  int64_t by_key;
  const T* values;
  int64_t by_value;
  int first;  // The first key that any of them sees, and the one behind the last.
  int end;
  int own_first;  // The index of the warp's first query.
};
// Sixteen bytes are moved at once.
constexpr int PACK = 8;
// Whether all of a warp's queries see all of these keys.
template <int KEYS, int WINDOW, typename T>
__device__ __forceinline__ bool sees_all(const Chunk<T>& chunk, int from) {
  return from + KEYS - 1 <= chunk.own_first && (WINDOW == 0 || from > chunk.own_first + 15 - WINDOW);
}

// By the instructions of warps, which know each type and D of 32, 64, 128 and 256. Keys and values come KEYS at a time, the next ones while
// the last are multiplied.
template <typename T, int D, int WINDOW, int CAP>
struct ByWarps {
  static constexpr int KEYS = D >= 256 ? 16 : D >= 128 ? 32 : 64;
  static constexpr int PACKS = D / PACK;
  static constexpr int ROWS_OF_BANKS = PACKS < 8 ? 8 / PACKS : 1;
  using Soft = Softmax<T, KEYS, D, WINDOW, CAP>;

  // Where a pack of a row lies, so that the same pack of eight rows is in all banks.
  static __device__ __forceinline__ int place(int of, int pack) {
    return (of * PACKS + (pack ^ (of / ROWS_OF_BANKS & (PACKS < 8 ? PACKS - 1 : 7)))) * PACK;
  }
  static __device__ __forceinline__ void attend(const Chunk<T>& chunk, Soft& softmax, float* sums) {
    // Keys and values of two tiles; before them, the queries.
    __shared__ alignas(128) T tiles[2][2][KEYS * D];
    static_assert(4 * KEYS * D >= QUERIES * D, "room for the queries");
    T* const staged = &tiles[0][0][0];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    auto load = [&](int tile, int from) {
      for (int i = threadIdx.x; i < KEYS * PACKS; i += ATTENDING) {
        const int of = i / PACKS, pack = i % PACKS;
        const bool is_there = from + of < chunk.end;
        const int64_t index = is_there ? from + of : max(chunk.end - 1, 0);
        copy_ahead(tiles[tile][0] + place(of, pack), chunk.keys + index * chunk.by_key + pack * PACK, is_there);
        copy_ahead(tiles[tile][1] + place(of, pack), chunk.values + index * chunk.by_value + pack * PACK, is_there);
      }
      end_copies();
    };
    // A warp's queries, sixteen columns of the tensor cores' operand at a time.
    unsigned query[D / 16][4];
    for (int i = threadIdx.x; i < QUERIES * PACKS; i += ATTENDING) {
      const int of = i / PACKS, pack = i % PACKS;
      copy_ahead(
          staged + place(of, pack), chunk.queries + min(of, chunk.n_queries - 1) * chunk.by_query + pack * PACK, true);
    }
    end_copies();
    wait_for_copies<0>();
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < D / 16; i++) {
      load_matrices(query[i], staged + place(warp * 16 + lane % 16, 2 * i + lane / 16));
    }
    __syncthreads();
    int tile = 0;
    load(0, chunk.first);
    for (int from = chunk.first; from < chunk.end; from += KEYS, tile ^= 1) {
      if (from + KEYS < chunk.end) {
        load(tile ^ 1, from + KEYS);
      } else {
        end_copies();
      }
      wait_for_copies();
      __syncthreads();
      float scores[KEYS / 2];
      #pragma unroll
      for (int i = 0; i < KEYS / 2; i++) {
        scores[i] = 0;
      }
      #pragma unroll
      for (int i = 0; i < D / 16; i++) {
        #pragma unroll
        for (int t = 0; t < KEYS / 8; t += 2) {
          unsigned key[4];
          load_matrices(key, tiles[tile][0] + place(t * 8 + lane / 16 * 8 + lane % 8, 2 * i + lane / 8 % 2));
          accumulate<T>(scores + t * 4, query[i], key[0], key[1]);
          accumulate<T>(scores + t * 4 + 4, query[i], key[2], key[3]);
        }
      }
      unsigned weights[KEYS / 4];
      softmax.take(scores, from, sees_all<KEYS, WINDOW>(chunk, from), sums, weights);
      #pragma unroll
      for (int t = 0; t < KEYS / 8; t += 2) {
        #pragma unroll
        for (int i = 0; i < D / 8; i += 2) {
          unsigned value[4];
          load_transposed(value, tiles[tile][1] + place(t * 8 + lane % 16, i + lane / 16));
          accumulate<T>(sums + i * 4, weights + t * 2, value[0], value[1]);
          accumulate<T>(sums + i * 4 + 4, weights + t * 2, value[2], value[3]);
        }
      }
      __syncthreads();
    }
  }
};

// By the instructions of a warpgroup, for D of 64 and 128. The next keys come while the softmax of the last ones is computed, the next
// values while queries are multiplied with keys.
template <typename T, int D, int WINDOW, int CAP>
struct ByWarpgroup {
  static constexpr int KEYS = 64;
  static constexpr int PACKS = D / PACK;
  // Elements of a panel of a tile, and of a tile.
  static constexpr int PANEL = KEYS * 64;
  static constexpr int TILE = KEYS * D;
  using Soft = Softmax<T, KEYS, D, WINDOW, CAP>;

  static __device__ __forceinline__ void attend(const Chunk<T>& chunk, Soft& softmax, float* sums) {
    // Queries, keys and values.
    __shared__ alignas(1024) T tiles[3 * TILE];
    static_assert(QUERIES == KEYS && 128 == ATTENDING, "tiles of one size, and a warpgroup");
    // A thread moves one pack of each of these rows.
    constexpr int ROWS = ATTENDING / PACKS;
    static_assert(ROWS % 8 == 0, "rows that are swizzled alike");
    const int pack = threadIdx.x % PACKS, of = threadIdx.x / PACKS;
    T* const own = tiles + pack / 8 * PANEL + of * 64 + (pack % 8 ^ of % 8) * PACK;
    auto load = [&](int tile, const T* of_head, int64_t by_row, int from, int end) {
      const T* at = of_head + (from + of) * by_row + pack * PACK;
      const int left = end - from - of;
      #pragma unroll
      for (int i = 0; i < KEYS; i += ROWS) {
        const bool is_there = i < left;
        copy_ahead(own + tile * TILE + i * 64, is_there ? at : of_head, is_there);
        at += ROWS * by_row;
      }
    };
    load(0, chunk.queries, chunk.by_query, 0, chunk.n_queries);
    load(1, chunk.keys, chunk.by_key, chunk.first, chunk.end);
    end_copies();
    load(2, chunk.values, chunk.by_value, chunk.first, chunk.end);
    end_copies();
    const SharedTile of_queries = tile_at(tiles, PANEL * 2);
    const SharedTile of_keys = tile_at(tiles + TILE, PANEL * 2);
    const SharedTile of_values = tile_at(tiles + 2 * TILE, PANEL * 2);
    for (int from = chunk.first; from < chunk.end; from += KEYS) {
      const bool goes_on = from + KEYS < chunk.end;
      wait_for_copies<1>();
      show_to_warpgroups();
      __syncthreads();
      float scores[KEYS / 2];
      begin_warpgroup();
      #pragma unroll
      for (int i = 0; i < D / 16; i++) {
        const int columns = i / 4 * PANEL * 2 + i % 4 * 32;
        multiply_tiles<T>(scores, moved(of_queries, columns), moved(of_keys, columns), i > 0);
      }
      commit_warpgroup();
      wait_for_warpgroup<KEYS / 2>(scores);
      __syncthreads();
      if (goes_on) {
        load(1, chunk.keys, chunk.by_key, from + KEYS, chunk.end);
      }
      end_copies();
      unsigned weights[KEYS / 4];
      softmax.take(scores, from, sees_all<KEYS, WINDOW>(chunk, from), sums, weights);
      wait_for_copies<1>();
      show_to_warpgroups();
      __syncthreads();
      begin_warpgroup();
      #pragma unroll
      for (int i = 0; i < KEYS / 16; i++) {
        multiply_rows<T, D>(sums, weights + 4 * i, moved(of_values, i * 16 * 128));
      }
      commit_warpgroup();
      wait_for_warpgroup<D / 2>(sums);
      __syncthreads();
      if (goes_on) {
        load(2, chunk.values, chunk.by_value, from + KEYS, chunk.end);
      }
      end_copies();
    }
  }
};
