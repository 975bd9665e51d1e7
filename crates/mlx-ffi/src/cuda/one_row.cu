// `x wᵀ` for one row of x, which may be normed before and gated or added to something after, each step
// rounded as if it were an operation of its own. A block has its own rows of w. Its warps share their columns out, as one list, and each
// copies its part into a ring in shared memory, some turns ahead. What is in the ring when the kernel before this one ends needs
// no more time.
//
// Rows of w are multiplied in pairs by the tensor cores: four lanes have a stretch of columns, which is a row of the first operand for each row
// of the pair, and a column of the second. Of the products, those of a stretch with itself count. A row and its gate are a pair. The
// columns of a stretch have one scale.
// PAIRS: of rows, that a turn takes. HELD: columns of x for which there is room. MEMORY: bytes of the launch's shared memory.

constexpr bool PACKED = BITS < 16;
constexpr int VALUES = PACKED ? PACKED_VALUES : DENSE_VALUES;
constexpr int OUT_ROWS = GATE ? PAIRS : 2 * PAIRS;
// Columns of a turn. It has PARTS, one or two, of eight stretches each.
constexpr int TURN = 32 * VALUES;
constexpr int PARTS = PACKED && GROUP_SIZE < 4 * VALUES ? 4 * VALUES / GROUP_SIZE : 1;
constexpr int STRETCH = 4 * VALUES / PARTS;
constexpr int GROUPS = PACKED ? TURN / GROUP_SIZE : 0;
// Bytes of a lane, of a row, and of all; behind codes are two values of scales for each stretch and row, then two of biases.
constexpr int OF_LANE = VALUES * BITS / 8;
constexpr int OF_ROW = 32 * OF_LANE;
constexpr int SCALES_AT = 2 * PAIRS * OF_ROW;
constexpr int OF_SLOT = SCALES_AT + (PACKED ? PARTS * 8 * 4 * PAIRS * 4 : 0);
// Turns of a ring. Longer ones read so much for later that what is needed first comes late.
constexpr int MOST_SLOTS = PACKED ? 3 : 6;
constexpr int SUMS = PACKED ? HELD / STRETCH * 4 : 0;
constexpr int ROOM = (MEMORY - 2 * HELD - SUMS) / (ONE_ROW_WARPS * OF_SLOT);
constexpr int SLOTS = ROOM < MOST_SLOTS ? ROOM : MOST_SLOTS;
static_assert(SLOTS >= 2, "something comes while something is multiplied");

const int columns = PACKED ? scales_shape[1] * GROUP_SIZE : w_shape[1];
const int groups = PACKED ? scales_shape[1] : 0;
const int rows_of_out = w_shape[0] / (GATE ? 2 : 1);
const int all_teams = (rows_of_out + OUT_ROWS - 1) / OUT_ROWS;
const int warp = threadIdx.x / 32;
const int lane = threadIdx.x % 32;
const int quad = lane / 4;
const int part = lane % 4;
// Teams are the rows of a turn. Those of this block:
const int first_team = static_cast<int64_t>(all_teams) * blockIdx.x / gridDim.x;
const int teams = static_cast<int64_t>(all_teams) * (blockIdx.x + 1) / gridDim.x - first_team;
const int turns = (columns + TURN - 1) / TURN;
// Turns of the warps before one.
auto begin_of = [&](int of_warp) { return static_cast<int>(static_cast<int64_t>(teams) * turns * of_warp / ONE_ROW_WARPS); };
const int begin = begin_of(warp);
const int end = begin_of(warp + 1);

const Shared memory = memory_of_launch();
const Shared ring = memory + warp * SLOTS * OF_SLOT;
const Shared values = memory + ONE_ROW_WARPS * SLOTS * OF_SLOT;
const Shared x_sums = values + HELD * 2;

let_next_begin();
// Row i of a team: rows and their gates in turn, or rows side by side.
auto row_of = [&](int team, int i) {
  return GATE ? team * PAIRS + i / 2 + i % 2 * rows_of_out : team * 2 * PAIRS + i;
};
auto is_row = [&](int team, int i) { return (GATE ? team * PAIRS + i / 2 : team * 2 * PAIRS + i) < rows_of_out; };
const int64_t of_row = static_cast<int64_t>(columns) * BITS / 8;
// Scales of a row go on by even numbers, so those that a lane copies are all the first or all the second of two.
static_assert(GROUPS % 2 == 0, "two values of scales are copied at once");
const int own_group = PACKED ? quad * STRETCH / GROUP_SIZE : 0;
auto scale_of = [&](const T* of, int row) {
  return reinterpret_cast<unsigned long long>(of + static_cast<int64_t>(row) * groups + own_group);
};
// The turns in which this lane copies columns.
const int own_turns = (columns - lane * VALUES + TURN - 1) / TURN;
int next = begin;
int next_turn = begin % turns;
int next_team = first_team + begin / turns;
// Of the first pair of rows; of scales and biases, a lane copies those of one row of four, or of both.
const char* from[2];
unsigned long long scales_from[PAIRS];
auto aim = [&]() {
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    from[i] = reinterpret_cast<const char*>(w) + row_of(next_team, i) * of_row + (next_turn * TURN + lane * VALUES) / 8 * BITS;
  }
  if constexpr (PACKED) {
    const int row = row_of(next_team, part % (2 * PAIRS));
    #pragma unroll
    for (int i = 0; i < PAIRS; i++) {
      const bool is_bias = PAIRS == 2 ? i == 1 : part >= 2;
      scales_from[i] = scale_of(is_bias ? biases : scales, row) + next_turn * GROUPS * sizeof(T);
    }
  }
};
aim();
int to = 0;
auto load = [&]() {
  if (next < end) {
    const bool has_columns = next_turn < own_turns;
    #pragma unroll
    for (int i = 0; i < 2 * PAIRS; i++) {
      const char* const row = from[i % 2] + i / 2 * (GATE ? 1 : 2) * of_row;
      copy_to<OF_LANE>(ring + to + i * OF_ROW + lane * OF_LANE, row, has_columns && is_row(next_team, i));
    }
    from[0] += OF_ROW;
    from[1] += OF_ROW;
    if constexpr (PACKED) {
      const bool has_row = is_row(next_team, part % (2 * PAIRS));
      #pragma unroll
      for (int i = 0; i < PAIRS; i++) {
        #pragma unroll
        for (int s = 0; s < PARTS; s++) {
          const bool has_group = next_turn * GROUPS + own_group + 8 * s < groups;
          const auto both = reinterpret_cast<const void*>(scales_from[i] + 8 * s * sizeof(T) & ~3ull);
          copy_to<4>(ring + to + SCALES_AT + ((i * PARTS + s) * 32 + lane) * 4, both, has_group && has_row);
        }
        scales_from[i] += GROUPS * sizeof(T);
      }
    }
    next++;
    if (++next_turn == turns) {
      next_turn = 0;
      next_team++;
      aim();
    }
  }
  end_copies();
  to = to == (SLOTS - 1) * OF_SLOT ? 0 : to + OF_SLOT;
};
#pragma unroll
for (int slot = 0; slot < SLOTS - 1; slot++) {
  load();
}
const int own = threadIdx.x * 8;
uint4 norm_pack = make_uint4(0, 0, 0, 0);
if (HAS_NORM && own < columns) {
  norm_pack = *reinterpret_cast<const uint4*>(norm + own);
}
const float added_to_mean = HAS_NORM ? *epsilon : 0.0f;

// So far only what nothing changes was read.
wait_for_last();

__shared__ float totals[ONE_ROW_WARPS];
// What warps have of the teams that they share: of the one in which they begin, and of the one in which they end.
__shared__ float shares[2][ONE_ROW_WARPS][2 * PAIRS];
// What is added to the results, where each thread has room for one.
__shared__ T held_onto[ONE_ROW_THREADS];
const int first_row = first_team * OUT_ROWS;
const bool holds_onto = HAS_ONTO && teams * OUT_ROWS <= ONE_ROW_THREADS;
if (holds_onto && threadIdx.x < teams * OUT_ROWS && first_row + static_cast<int>(threadIdx.x) < rows_of_out) {
  held_onto[threadIdx.x] = onto[first_row + threadIdx.x];
}
// Columns stand in the order in which a lane reads them, sixteen bytes at once, and in which it unpacks the codes of a word.
auto hold = [&](int k, const uint4& pack) {
  const T* const of = reinterpret_cast<const T*>(&pack);
  uint4 held = pack;
  if constexpr (PACKED) {
    float sum = 0;
    #pragma unroll
    for (int i = 0; i < 8; i++) {
      const int place = BITS == 4 ? i / 2 + i % 2 * 4 : i / 4 * 4 + i % 4 / 2 + i % 2 * 2;
      reinterpret_cast<T*>(&held)[i] = of[place];
      sum += static_cast<float>(of[i]);
    }
    #pragma unroll
    for (int offset = 1; offset < STRETCH / 8; offset *= 2) {
      sum += __shfl_xor_sync(0xffffffff, sum, offset);
    }
    if (k % STRETCH == 0) {
      put_at(x_sums + k / STRETCH * 4, sum);
    }
  }
  // Of a lane, in the columns of a part.
  constexpr int OF_PART = VALUES / PARTS;
  const int part_of_k = k % TURN / (TURN / PARTS);
  const int lane_of_k = k % (TURN / PARTS) / OF_PART;
  const int column = part_of_k * OF_PART + k % OF_PART;
  const Shared at = values + 2 * (k / TURN * TURN + column / 8 * 256 + lane_of_k * 8);
  put_at(at, held);
};
auto x_of = [&](int k) { return k < columns ? *reinterpret_cast<const uint4*>(x + k) : make_uint4(0, 0, 0, 0); };
const uint4 own_pack = x_of(own);
float factor = 1;
if (HAS_NORM) {
  float total = 0;
  for (int k = own; k < columns; k += ONE_ROW_THREADS * 8) {
    const uint4 pack = k == own ? own_pack : x_of(k);
    const unsigned words[4] = {pack.x, pack.y, pack.z, pack.w};
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const float2 both = unpack<T>(words[i]);
      total += both.x * both.x + both.y * both.y;
    }
  }
  factor = rsqrtf(sum_of_block<ONE_ROW_WARPS>(total, totals) / columns + added_to_mean);
}
// A warp stays together, and what is behind the last column is zero.
for (int k = own; k - 8 * lane < turns * TURN; k += ONE_ROW_THREADS * 8) {
  uint4 pack = k == own ? own_pack : x_of(k);
  if (HAS_NORM && k < columns) {
    if (k != own) {
      norm_pack = *reinterpret_cast<const uint4*>(norm + k);
    }
    #pragma unroll
    for (int i = 0; i < 8; i++) {
      T& value = reinterpret_cast<T*>(&pack)[i];
      value = scaled_value(value, factor, reinterpret_cast<const T*>(&norm_pack)[i]);
    }
  }
  hold(k, pack);
}
__syncthreads();

auto with_bias = [&](int row, float dot) {
  if (HAS_BIAS) {
    const float by = static_cast<float>(bias[row]);
    dot = PACKED ? static_cast<float>(static_cast<T>(dot)) : dot;
    dot += by;
  }
  return static_cast<T>(dot);
};
// Writes what row i of a team gives. `up` is what the row that it gates gives.
auto finish = [&](int team, int i, float dot, float up) {
  if (!is_row(team, i) || (GATE && i % 2 == 1)) {
    return;
  }
  const int row = row_of(team, i);
  T y = with_bias(row, dot);
  if constexpr (GATE != 0) {
    y = gated<GATE>(y, with_bias(row + rows_of_out, up));
  }
  if (HAS_ONTO) {
    const T more = holds_onto ? held_onto[row - first_row] : onto[row];
    y = static_cast<T>(static_cast<float>(more) + static_cast<float>(y));
  }
  out[row] = y;
};

int team = first_team + begin / turns;
int turn = begin % turns;
bool begins = turn == 0;
int taken = 0;
// Of weights as they are, what counts is with the lanes that have it. Of packed ones, so it is of what scales were multiplied with.
float sums[2][4] = {};
float scaled[2 * PAIRS] = {};
auto own_of = [&](const float* dots, int which) { return quad % 2 ? dots[2 * which + 1] : dots[2 * which]; };

// Codes become numbers by their bits alone. What they are raised by is taken back with the sum of x.
constexpr bool IN_NIBBLES = BITS == 8 && !IS_HALF<T>;
constexpr float RAISED_BY = IS_HALF<T> ? 1024.0f : IN_NIBBLES ? 128.0f * 17.0f : 128.0f;
// The compiler would write what it knows anew for each use.
const unsigned unknown_zero = gridDim.z - 1;
const unsigned code = (BITS == 8 && !IN_NIBBLES ? 0x00ff00ff : 0x000f000f) | unknown_zero;
const unsigned raised = (IS_HALF<T> ? 0x64006400 : 0x43004300) | unknown_zero;
// Which of two values the scales of each row are, and the biases.
unsigned places[2 * PAIRS];
const unsigned place_of_biases = (reinterpret_cast<unsigned long long>(scales) ^ reinterpret_cast<unsigned long long>(biases)) % 4 ? FIRST_VALUE ^ SECOND_VALUE : 0;
auto find_scales = [&]() {
  #pragma unroll
  for (int i = 0; i < 2 * PAIRS; i++) {
    places[i] = scale_of(scales, row_of(team, i)) % 4 ? SECOND_VALUE : FIRST_VALUE;
  }
};
find_scales();

auto multiply_turn = [&]() {
  const Shared codes_at = ring + taken + lane * (OF_LANE / PARTS);
  const Shared x_at = values + (turn * TURN + lane * 8) * 2;
  if constexpr (!PACKED) {
    const uint4 first = four_at(codes_at);
    const uint4 second = four_at(codes_at + OF_ROW);
    const uint4 xs = four_at(x_at);
    const unsigned upper[4] = {first.x, second.x, first.y, second.y};
    const unsigned lower[4] = {first.z, second.z, first.w, second.w};
    accumulate<T>(sums[0], upper, xs.x, xs.y);
    accumulate<T>(sums[1], lower, xs.z, xs.w);
  } else {
    const uint4 low = four_at(x_at);
    const uint4 high = four_at(x_at + 512);
    const unsigned xs[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    #pragma unroll
    for (int s = 0; s < PARTS; s++) {
      const float all = float_at(x_sums + ((turn * PARTS + s) * 8 + quad) * 4);
      #pragma unroll
      for (int pair = 0; pair < PAIRS; pair++) {
        constexpr int OF_PART = OF_LANE / PARTS;
        unsigned words[2][OF_PART / 4];
        #pragma unroll
        for (int i = 0; i < 2; i++) {
          words_at<OF_PART>(codes_at + (2 * pair + i) * OF_ROW + s * 32 * OF_PART, words[i]);
        }
        // Two sums, so that one need not wait for the other; where codes are in nibbles, of lower and of upper ones.
        float dots[2][4] = {};
        // Two pairs of codes of both rows, from one word each, and the same columns of x.
        auto multiply_codes = [&](int at, int word, int shift, int shift_of_next, int sum) {
          const unsigned a = words[0][word];
          const unsigned b = words[1][word];
          const unsigned numbers[4] = {
              a >> shift & code | raised, b >> shift & code | raised, a >> shift_of_next & code | raised, b >> shift_of_next & code | raised};
          accumulate<T>(dots[sum], numbers, xs[2 * at], xs[2 * at + 1]);
        };
        #pragma unroll
        for (int i = 0; i < 4 / PARTS; i++) {
          const int at = s * (4 / PARTS) + i;
          if constexpr (BITS == 4) {
            multiply_codes(at, i / 2, i % 2 * 8, i % 2 * 8 + 4, i % 2);
          } else if constexpr (IN_NIBBLES) {
            multiply_codes(at, i, 0, 8, 0);
            multiply_codes(at, i, 4, 12, 1);
          } else {
            multiply_codes(at, i, 0, 8, i % 2);
          }
        }
        // Scales of the rows, then biases.
        unsigned pairs_of_values[4];
        const Shared at = ring + taken + SCALES_AT + (s * 8 + quad) * 16;
        if constexpr (PAIRS == 1) {
          words_at<16>(at, pairs_of_values);
        } else {
          words_at<8>(at + pair * 8, pairs_of_values);
          words_at<8>(at + pair * 8 + PARTS * 128, pairs_of_values + 2);
        }
        #pragma unroll
        for (int i = 0; i < 2; i++) {
          const float by = value_of<T>(pairs_of_values[i], places[2 * pair + i]);
          const float added = value_of<T>(pairs_of_values[2 + i], places[2 * pair + i] ^ place_of_biases);
          const float dot = own_of(dots[0], i) + (IN_NIBBLES ? 16.0f : 1.0f) * own_of(dots[1], i);
          scaled[2 * pair + i] += by * (dot - RAISED_BY * all) + added * all;
        }
      }
    }
  }
};
// A team ends, or what this warp has of it.
auto end_team = [&](bool ends) {
  // Sums of the rows come to lanes in turn.
  float found[2 * PAIRS];
  #pragma unroll
  for (int i = 0; i < 2 * PAIRS; i++) {
    found[i] = part != quad / 2 ? 0.0f : PACKED ? scaled[i] : own_of(sums[0], i % 2) + own_of(sums[1], i % 2);
    scaled[i] = 0;
  }
  float dots[PAIRS];
  #pragma unroll
  for (int pair = 0; pair < PAIRS; pair++) {
    dots[pair] = lane % 2 ? found[2 * pair + 1] : found[2 * pair];
    dots[pair] += __shfl_xor_sync(0xffffffff, lane % 2 ? found[2 * pair] : found[2 * pair + 1], 1);
  }
  float dot = PAIRS == 2 && lane / 2 % 2 ? dots[PAIRS - 1] : dots[0];
  dot += __shfl_xor_sync(0xffffffff, PAIRS == 2 && lane / 2 % 2 ? dots[0] : dots[PAIRS - 1], 2);
  #pragma unroll
  for (int offset = 4; offset < 32; offset *= 2) {
    dot += __shfl_xor_sync(0xffffffff, dot, offset);
  }
  const float up = GATE ? __shfl_xor_sync(0xffffffff, dot, 1) : 0.0f;
  if (lane < 2 * PAIRS) {
    if (begins && ends) {
      finish(team, lane, dot, up);
    } else {
      shares[begins][warp][lane] = dot;
    }
  }
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    sums[0][i] = sums[1][i] = 0;
  }
};
for (int at = begin; at < end; at++) {
  wait_for_copies<SLOTS - 2>();
  __syncwarp();
  load();
  multiply_turn();
  taken = taken == (SLOTS - 1) * OF_SLOT ? 0 : taken + OF_SLOT;
  if (++turn == turns) {
    end_team(true);
    turn = 0;
    begins = true;
    team++;
    if (groups % 2) {
      find_scales();
    }
  }
}
if (turn != 0 && begin < end) {
  end_team(false);
}
__syncthreads();
// Of a team that warps share, all shares are brought together for the warp with its end.
if (threadIdx.x < 2 * PAIRS * ONE_ROW_WARPS) {
  const int last = threadIdx.x / (2 * PAIRS);
  const int i = threadIdx.x % (2 * PAIRS);
  const int own_begin = begin_of(last);
  const int own_end = begin_of(last + 1);
  const int shared = own_begin / turns;
  if (own_begin % turns != 0 && own_begin < own_end && own_end >= (shared + 1) * turns) {
    float dot = shares[0][last][i];
    float up = GATE ? shares[0][last][i | 1] : 0.0f;
    bool has_begun = false;
    for (int other = last - 1; !has_begun; other--) {
      if (begin_of(other) < begin_of(other + 1)) {
        has_begun = begin_of(other) <= shared * turns;
        dot += shares[has_begun][other][i];
        up += GATE ? shares[has_begun][other][i | 1] : 0.0f;
      }
    }
    finish(first_team + shared, i, dot, up);
  }
}
