// Products of a row of x with the matrices of the experts that it chose, one after the other (GATE), or their
// weighted sum. A warp goes from one row of a matrix to a later one while its loads run ahead. blockIdx.y is the
// row of x. Where it ROUTES, each block finds by the router's logits what its row chose, and one of them writes that.

constexpr int EACH = GATE != 0 && LAYOUT != SAME ? 2 : 1;
// Matrices that a result is summed over, and results for each row of x.
constexpr int SUMMED = GATE != 0 ? 1 : CHOICES;
constexpr int RESULTS = GATE != 0 ? CHOICES * ROWS : ROWS;
constexpr bool PACKED = KIND != DENSE;
// Loads that run ahead: as many as leave registers for three blocks on a multiprocessor.
constexpr int DEPTH = PACKED ? 3 : 4;
constexpr int VALUES = AT_ONCE<BITS>;
constexpr int PARTS = COLUMNS / VALUES;
constexpr int ALL_PARTS = SUMMED * PARTS;
constexpr int STEPS = (ALL_PARTS + 31) / 32;
constexpr int PIECES = VALUES / 8;
// Packed weights are multiplied with floats where there is room for them.
constexpr bool WIDE = PACKED && STEPS * 32 * VALUES <= MOST_WIDE_COLUMNS;
using Held = Either<WIDE, float, T>::Type;
constexpr int EACH_PLACE = 16 / sizeof(Held);
constexpr int PLACES = VALUES / EACH_PLACE;
constexpr int SCALES = PACKED && VALUES > GROUP_SIZE ? VALUES / GROUP_SIZE : 1;
constexpr int GROUPS = PACKED ? COLUMNS / GROUP_SIZE : 1;

let_next_begin();
wait_for_last();

const int warp = threadIdx.x / 32;
const int lane = threadIdx.x % 32;
const int stride = gridDim.x * WARPS;
const int token = blockIdx.y;
const T* const own = x + static_cast<int64_t>(token) * SUMMED * COLUMNS;
const char* const codes_of[2] = {reinterpret_cast<const char*>(w), reinterpret_cast<const char*>(w_up)};
const void* const scales_of[2] = {scales, scales_up};
const T* const minima_of[2] = {reinterpret_cast<const T*>(minima), reinterpret_cast<const T*>(minima_up)};
const T* const biases_of[2] = {bias, bias_up};

__shared__ int experts[CHOICES];
__shared__ float shares[CHOICES];
if constexpr (ROUTES) {
  if (warp == 0) {
    unsigned expert;
    float weight;
    choose<T, EXPERTS, CHOICES, BY_SIGMOID, HAS_CORRECTION, NORMALISES, EXPERT_GROUPS, KEPT, HAS_SCALES>(
        logits + token * EXPERTS, correction, scaling, own_scales, expert, weight);
    if (lane < CHOICES) {
      experts[lane] = static_cast<int>(expert);
      if (blockIdx.x == 0) {
        chosen[token * CHOICES + lane] = expert;
        chosen_weights[token * CHOICES + lane] = static_cast<T>(weight);
      }
    }
  }
} else if (threadIdx.x < CHOICES) {
  experts[threadIdx.x] = static_cast<int>(indices[token * CHOICES + threadIdx.x]);
  if (GATE == 0) {
    shares[threadIdx.x] = static_cast<float>(weights[token * CHOICES + threadIdx.x]);
  }
}
__syncthreads();

int next = blockIdx.x * WARPS + warp;
int ahead = 0;
uint4 codes[DEPTH][EACH];
float scale[DEPTH][EACH][SCALES];
float minimum[DEPTH][EACH];
auto load = [&](int depth) {
  const int part = ahead * 32 + lane;
  if (next < RESULTS && part < ALL_PARTS) {
    const int choice = SUMMED == 1 ? next / ROWS : part / PARTS;
    const int row = SUMMED == 1 ? next % ROWS : next;
    const int at = SUMMED == 1 ? part : part % PARTS;
    #pragma unroll
    for (int e = 0; e < EACH; e++) {
      const int from = LAYOUT == SEPARATE ? e : 0;
      const int64_t line = row_of<LAYOUT, ROWS>(experts[choice], row, e);
      stream_in(reinterpret_cast<const uint4*>(codes_of[from]) + line * PARTS + at, codes[depth][e]);
      if constexpr (PACKED) {
        const int64_t group = line * GROUPS + at * VALUES / GROUP_SIZE;
        #pragma unroll
        for (int s = 0; s < SCALES; s++) {
          scale[depth][e][s] = scale_at<T, KIND, GROUP_SIZE>(scales_of[from], group + s);
        }
        if constexpr (KIND == AFFINE) {
          minimum[depth][e] = static_cast<float>(minima_of[from][group]);
        }
      }
    }
  }
  if (++ahead == STEPS) {
    ahead = 0;
    next += stride;
  }
};
#pragma unroll
for (int depth = 0; depth < DEPTH; depth++) {
  load(depth);
}

// Sixteen bytes of x for each place: those of a warp's lanes for their first values, then for the next.
__shared__ alignas(16) Held values[STEPS * 32 * VALUES];
__shared__ alignas(16) float eights[KIND == AFFINE ? STEPS * 32 * PIECES : 4];
__shared__ float totals[WARPS];
auto hold = [&](int k, uint4 pack) {
  const int part = k / VALUES;
  auto place_of = [&](int k) {
    return ((part / 32 * PLACES + k / EACH_PLACE % PLACES) * 32 + part % 32) * EACH_PLACE;
  };
  const float2 a = unpack<T>(pack.x), b = unpack<T>(pack.y), c = unpack<T>(pack.z), d = unpack<T>(pack.w);
  if constexpr (WIDE) {
    *reinterpret_cast<float4*>(values + place_of(k)) = make_float4(a.x, a.y, b.x, b.y);
    *reinterpret_cast<float4*>(values + place_of(k + 4)) = make_float4(c.x, c.y, d.x, d.y);
  } else {
    *reinterpret_cast<uint4*>(values + place_of(k)) = pack;
  }
  if constexpr (KIND == AFFINE) {
    eights[k / 8] = ((a.x + a.y) + (b.x + b.y)) + ((c.x + c.y) + (d.x + d.y));
  }
};
if (!HAS_NORM) {
  for (int k = threadIdx.x * 8; k < SUMMED * COLUMNS; k += THREADS * 8) {
    hold(k, *reinterpret_cast<const uint4*>(own + k));
  }
} else {
  float total = 0;
  for (int k = threadIdx.x * 8; k < COLUMNS; k += THREADS * 8) {
    const uint4 pack = *reinterpret_cast<const uint4*>(own + k);
    const unsigned words[4] = {pack.x, pack.y, pack.z, pack.w};
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const float2 pair = unpack<T>(words[i]);
      total += pair.x * pair.x + pair.y * pair.y;
    }
  }
  const float factor = rsqrtf(sum_of_block<WARPS>(total, totals) / COLUMNS + *epsilon);
  for (int k = threadIdx.x * 8; k < COLUMNS; k += THREADS * 8) {
    uint4 pack = *reinterpret_cast<const uint4*>(own + k);
    const uint4 by = *reinterpret_cast<const uint4*>(norm + k);
    #pragma unroll
    for (int i = 0; i < 8; i++) {
      T& value = reinterpret_cast<T*>(&pack)[i];
      value = scaled_value(value, factor, reinterpret_cast<const T*>(&by)[i]);
    }
    hold(k, pack);
  }
}
__syncthreads();

float sums[EACH];
#pragma unroll
for (int e = 0; e < EACH; e++) {
  sums[e] = 0;
}
int result = blockIdx.x * WARPS + warp;
int step = 0;
while (result < RESULTS) {
  #pragma unroll
  for (int depth = 0; depth < DEPTH; depth++) {
    const int part = step * 32 + lane;
    if (result < RESULTS && part < ALL_PARTS) {
      float x_values[VALUES];
      #pragma unroll
      for (int p = 0; p < PLACES; p++) {
        const Held* const from = values + ((step * PLACES + p) * 32 + lane) * EACH_PLACE;
        const uint4 pack = *reinterpret_cast<const uint4*>(from);
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
      float all = 0;
      if constexpr (KIND == AFFINE) {
        #pragma unroll
        for (int p = 0; p < PIECES; p++) {
          all += eights[part * PIECES + p];
        }
      }
      const float share = GATE != 0 ? 1.0f : shares[part / PARTS];
      #pragma unroll
      for (int e = 0; e < EACH; e++) {
        const unsigned words[4] = {
            codes[depth][e].x, codes[depth][e].y, codes[depth][e].z, codes[depth][e].w};
        float found = 0;
        if constexpr (!PACKED) {
          #pragma unroll
          for (int i = 0; i < 4; i++) {
            const float2 pair = unpack<T>(words[i]);
            found += x_values[2 * i] * pair.x + x_values[2 * i + 1] * pair.y;
          }
        } else if constexpr (KIND == AFFINE) {
          float dot = 0;
          #pragma unroll
          for (int i = 0; i < VALUES; i++) {
            dot += x_values[i] * raised<BITS>(words + i / 8 * (BITS / 4), i % 8);
          }
          found = scale[depth][e][0] * (dot - RAISE<BITS> * all) + minimum[depth][e] * all;
        } else {
          #pragma unroll
          for (int s = 0; s < SCALES; s++) {
            float dot = 0;
            #pragma unroll
            for (int i = s * (4 / SCALES); i < (s + 1) * (4 / SCALES); i++) {
              #pragma unroll
              for (int j = 0; j < 4; j++) {
                const float2 pair = floats_of(words[i], j);
                dot += x_values[8 * i + j] * pair.x + x_values[8 * i + j + 4] * pair.y;
              }
            }
            found += scale[depth][e][s] * (dot * RAISED_FLOATS);
          }
        }
        sums[e] += share * found;
      }
    }
    load(depth);
    if (++step == STEPS) {
      #pragma unroll
      for (int e = 0; e < EACH; e++) {
        #pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) {
          sums[e] += __shfl_xor_sync(0xffffffff, sums[e], offset);
        }
      }
      if (lane == 0 && result < RESULTS) {
        if constexpr (GATE != 0) {
          float both[EACH];
          #pragma unroll
          for (int e = 0; e < EACH; e++) {
            both[e] = sums[e];
            if (HAS_BIAS) {
              const int64_t line = row_of<LAYOUT, ROWS>(experts[result / ROWS], result % ROWS, e);
              both[e] += static_cast<float>(biases_of[LAYOUT == SEPARATE ? e : 0][line]);
            }
          }
          out[static_cast<int64_t>(token) * RESULTS + result] = passed<GATE, T>(both[0], both[EACH - 1], limits);
        } else {
          float sum = sums[0];
          if (HAS_BIAS) {
            for (int choice = 0; choice < CHOICES; choice++) {
              const int64_t line = row_of<SEPARATE, ROWS>(experts[choice], result, 0);
              sum += shares[choice] * static_cast<float>(bias[line]);
            }
          }
          T y = static_cast<T>(sum);
          const int64_t at = static_cast<int64_t>(token) * RESULTS + result;
          if (HAS_ONTO) {
            y = static_cast<T>(static_cast<float>(onto[at]) + static_cast<float>(y));
          }
          out[at] = y;
        }
      }
      #pragma unroll
      for (int e = 0; e < EACH; e++) {
        sums[e] = 0;
      }
      step = 0;
      result += stride;
    }
  }
}
