// As `one_row.cu`, for weights of eight bits that are read in a moment: lanes multiply, and blocks are small. A warp goes from one
// group of ROWS rows of w to a later one while its loads run ahead, over the ends of the rows; where there are fewer groups than
// warps, several warps share one. A lane has VALUES columns at a time.

constexpr int EACH = GATE ? 2 : 1;
constexpr int DOTS = ROWS * EACH;
constexpr int DEPTH = 4;
constexpr int BITS = 8;
constexpr int VALUES = PACKED_VALUES;
struct alignas(VALUES) Pack {
  unsigned words[VALUES / 4];
};

const int groups = scales_shape[1];
const int columns = groups * GROUP_SIZE;
const int rows_of_out = w_shape[0] / EACH;
const int teams = (rows_of_out + ROWS - 1) / ROWS;
const int warps = gridDim.x * WARPS;
// How many warps share a group of rows; they are of one block.
const int split = SPLIT_FOR(teams, warps);
const int warp = threadIdx.x / 32;
const int lane = threadIdx.x % 32;
const int part = warp % split;
const int first = (blockIdx.x * WARPS + warp) / split;
const int stride = warps / split;
const int step = 32 * VALUES * split;
const int begin = (part * 32 + lane) * VALUES;
// Every lane makes as many steps, so that a warp stays together.
const int steps = (columns + step - 1) / step;

let_next_begin();
// The loads run ahead: at step `ahead` of the rows of team `next`.
int next = first;
int ahead = 0;
const char* from[DOTS];
const T* scale_from[DOTS];
const T* bias_from[DOTS];
auto aim = [&]() {
  #pragma unroll
  for (int d = 0; d < DOTS; d++) {
    const int64_t row = min(next * ROWS + d % ROWS, rows_of_out - 1) + d / ROWS * rows_of_out;
    from[d] = reinterpret_cast<const char*>(w) + row * columns + begin;
    scale_from[d] = reinterpret_cast<const T*>(scales) + row * groups + begin / GROUP_SIZE;
    bias_from[d] = reinterpret_cast<const T*>(biases) + row * groups + begin / GROUP_SIZE;
  }
};
aim();
Pack codes[DEPTH][DOTS];
T scale[DEPTH][DOTS];
T bias_of[DEPTH][DOTS];
auto load = [&](int depth) {
  const int k = begin + ahead * step;
  if (next < teams && k < columns) {
    #pragma unroll
    for (int d = 0; d < DOTS; d++) {
      stream_in(reinterpret_cast<const Pack*>(from[d]), codes[depth][d]);
      from[d] += step;
      scale[depth][d] = *scale_from[d];
      bias_of[depth][d] = *bias_from[d];
      scale_from[d] += step / GROUP_SIZE;
      bias_from[d] += step / GROUP_SIZE;
    }
  }
  if (++ahead == steps) {
    ahead = 0;
    next += stride;
    aim();
  }
};
#pragma unroll
for (int depth = 0; depth < DEPTH; depth++) {
  load(depth);
}

// So far only what nothing changes was read.
wait_for_last();

// Sixteen bytes of x for each place; the places of a warp's lanes for their first values, then for the next.
// They are floats where there is room for them. Sums of eight stand beside them.
using Held = Either<WIDE, float, T>::Type;
constexpr int EACH_PLACE = 16 / sizeof(Held);
constexpr int MOST_HELD = (WIDE ? MOST_WIDE_COLUMNS : MOST_COLUMNS) + 32 * VALUES;
__shared__ alignas(16) Held values[MOST_HELD];
__shared__ alignas(8) float eights[MOST_HELD / 8];
__shared__ float totals[WARPS];
auto place_of = [&](int k) {
  return k / (32 * VALUES) * (32 * VALUES) +
      (k / EACH_PLACE % (VALUES / EACH_PLACE) * 32 + k / VALUES % 32) * EACH_PLACE;
};
auto hold = [&](int k, uint4 pack) {
  if constexpr (WIDE) {
    const float2 a = unpack<T>(pack.x);
    const float2 b = unpack<T>(pack.y);
    const float2 c = unpack<T>(pack.z);
    const float2 d = unpack<T>(pack.w);
    *reinterpret_cast<float4*>(values + place_of(k)) = make_float4(a.x, a.y, b.x, b.y);
    *reinterpret_cast<float4*>(values + place_of(k + 4)) = make_float4(c.x, c.y, d.x, d.y);
  } else {
    *reinterpret_cast<uint4*>(values + place_of(k)) = pack;
  }
  const unsigned words[4] = {pack.x, pack.y, pack.z, pack.w};
  float sum = 0;
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    const float2 pair = unpack<T>(words[i]);
    sum += pair.x + pair.y;
  }
  eights[k / 8] = sum;
};
const int own = threadIdx.x * 8;
uint4 own_pack;
uint4 norm_pack;
if (HAS_NORM && own < columns) {
  norm_pack = *reinterpret_cast<const uint4*>(norm + own);
}
float total = 0;
for (int k = own; k < columns; k += WARPS * 256) {
  const uint4 pack = *reinterpret_cast<const uint4*>(x + k);
  if (k == own) {
    own_pack = pack;
  }
  if (!HAS_NORM) {
    hold(k, pack);
  } else {
    const unsigned words[4] = {pack.x, pack.y, pack.z, pack.w};
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const float2 pair = unpack<T>(words[i]);
      total += pair.x * pair.x + pair.y * pair.y;
    }
  }
}
if (HAS_NORM) {
  const float factor = rsqrtf(sum_of_block<WARPS>(total, totals) / columns + *epsilon);
  for (int k = own; k < columns; k += WARPS * 256) {
    if (k != own) {
      norm_pack = *reinterpret_cast<const uint4*>(norm + k);
    }
    uint4 pack = k == own ? own_pack : *reinterpret_cast<const uint4*>(x + k);
    #pragma unroll
    for (int i = 0; i < 8; i++) {
      T& value = reinterpret_cast<T*>(&pack)[i];
      value = scaled_value(value, factor, reinterpret_cast<const T*>(&norm_pack)[i]);
    }
    hold(k, pack);
  }
}
__syncthreads();

float sums[DOTS];
auto finish = [&](int row, const float* dots) {
  float results[EACH];
  #pragma unroll
  for (int e = 0; e < EACH; e++) {
    results[e] = dots[e * ROWS];
    if (HAS_BIAS) {
      const float added = static_cast<float>(bias[row + e * rows_of_out]);
      results[e] = static_cast<float>(static_cast<T>(results[e])) + added;
    }
  }
  T y = static_cast<T>(results[0]);
  if constexpr (GATE != 0) {
    y = gated<GATE>(y, static_cast<T>(results[EACH - 1]));
  }
  if (HAS_ONTO) {
    y = static_cast<T>(static_cast<float>(onto[row]) + static_cast<float>(y));
  }
  out[row] = y;
};

__shared__ float parts[WARPS][DOTS];
int team = first;
int at = 0;
#pragma unroll
for (int d = 0; d < DOTS; d++) {
  sums[d] = 0;
}
// Warps that share rows meet at their end, so all of a block make the same number of steps.
while (team - (warp / split) < teams) {
  #pragma unroll
  for (int depth = 0; depth < DEPTH; depth++) {
    const int k = begin + at * step;
    if (team < teams && k < columns) {
      const Held* from = values + k / (32 * VALUES) * (32 * VALUES) + lane * EACH_PLACE;
      float x_values[VALUES];
      #pragma unroll
      for (int p = 0; p < VALUES / EACH_PLACE; p++) {
        const uint4 pack = *reinterpret_cast<const uint4*>(from + p * 32 * EACH_PLACE);
        const unsigned words[4] = {pack.x, pack.y, pack.z, pack.w};
        #pragma unroll
        for (int i = 0; i < 4; i++) {
          if constexpr (WIDE) {
            x_values[4 * p + i] = __uint_as_float(words[i]);
          } else {
            const float2 pair = unpack<T>(words[i]);
            x_values[8 * p + 2 * i] = pair.x;
            x_values[8 * p + 2 * i + 1] = pair.y;
          }
        }
      }
      const float2 both = *reinterpret_cast<const float2*>(eights + k / 8);
      const float all = both.x + both.y;
      #pragma unroll
      for (int d = 0; d < DOTS; d++) {
        const unsigned* words = codes[depth][d].words;
        float dot = 0;
        #pragma unroll
        for (int i = 0; i < VALUES; i++) {
          dot += x_values[i] * raised<BITS>(words + i / 8 * (BITS / 4), i % 8);
        }
        sums[d] += static_cast<float>(scale[depth][d]) * dot + static_cast<float>(bias_of[depth][d]) * all;
      }
    }
    load(depth);
    if (++at == steps) {
      #pragma unroll
      for (int d = 0; d < DOTS; d++) {
        #pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) {
          sums[d] += __shfl_xor_sync(0xffffffff, sums[d], offset);
        }
      }
      if (split > 1) {
        if (lane == 0) {
          #pragma unroll
          for (int d = 0; d < DOTS; d++) {
            parts[warp][d] = sums[d];
          }
        }
        __syncthreads();
        if (part == 0) {
          #pragma unroll
          for (int d = 0; d < DOTS; d++) {
            for (int i = 1; i < split; i++) {
              sums[d] += parts[warp + i][d];
            }
          }
        }
        __syncthreads();
      }
      if (part == 0 && lane == 0 && team < teams) {
        #pragma unroll
        for (int r = 0; r < ROWS; r++) {
          if (team * ROWS + r < rows_of_out) {
            finish(team * ROWS + r, sums + r);
          }
        }
      }
      #pragma unroll
      for (int d = 0; d < DOTS; d++) {
        sums[d] = 0;
      }
      at = 0;
      team += stride;
    }
  }
}
