// One new position of each row: its queries and its key are normed and rotated, key and value are
// written behind those of the row's earlier positions, and the queries attend to all of them. GROUP
// query heads that share a key head are computed together, so that keys are read once; a warp looks at
// several keys at a time, each shared by the threads that hold a head's values between them, and keeps
// its own softmax. The last block of a row's splits brings them together.
// at: where the position is written. rows: for each row its first position, and what makes its index a
// position. counters: a zero for each row and group, afterwards too. Inputs that are not there are keys.

constexpr int WIDTH = D < 128 ? 16 : 8;
constexpr int LANES = D / WIDTH;
constexpr int KEYS = 32 / LANES;
constexpr int AT_ONCE = D < 128 ? 2 : 4;
constexpr int PACK = 16 / sizeof(T);
constexpr int PACKS = WIDTH / PACK;
struct alignas(16) Pack {
  T values[PACK];
};

const int warp = threadIdx.x / 32;
const int lane = threadIdx.x % LANES;
const int place = threadIdx.x % 32 / LANES;
const int splits = gridDim.x;
const int split = blockIdx.x;
const int head = blockIdx.y * GROUP;
const int kv_head = head / SHARED_BY;
const int row = blockIdx.z;
const int heads = gridDim.y * GROUP;

let_next_begin();
// Whatever the arrays hold, nothing outside of the buffers is read or written.
const int index_of_new = min(max(at[0], 0), keys_shape[2] - 1);
const int n = index_of_new + 1;
const int start = max(min(max(rows[2 * row], 0), n), WINDOW > 0 ? n - WINDOW : 0);
const float position = static_cast<float>(index_of_new + rows[2 * row + 1]) * __int_as_float(SPEED);
const int share = (n - start + splits - 1) / splits;
const int first = start + split * share;
const int end = min(n, first + share);
T* const own_keys = const_cast<T*>(keys) + row * keys_strides[0] + kv_head * keys_strides[1];
T* const own_values = const_cast<T*>(values) + row * values_strides[0] + kv_head * values_strides[1];
const T* const new_value = v + row * v_strides[0] + V_AT + kv_head * D;

Pack key_packs[AT_ONCE][PACKS];
Pack value_packs[AT_ONCE][PACKS];
auto load = [&](int base) {
  #pragma unroll
  for (int a = 0; a < AT_ONCE; a++) {
    // What is not seen repeats the last key, and then counts for nothing.
    const int64_t key = min(base + a * WARPS * KEYS + place, end - 1);
    #pragma unroll
    for (int p = 0; p < PACKS; p++) {
      const int64_t offset = lane * WIDTH / PACK + p;
      key_packs[a][p] = reinterpret_cast<const Pack*>(own_keys + key * keys_strides[2])[offset];
      value_packs[a][p] = reinterpret_cast<const Pack*>(own_values + key * values_strides[2])[offset];
    }
  }
};
if (first < end) {
  load(first + warp * KEYS);
}

// So far only what earlier steps wrote was read.
wait_for_last();

// The queries and, last, the key.
__shared__ alignas(16) T made[GROUP + 1][D];
__shared__ float plain[WARPS][D];
for (int made_at = warp; made_at <= GROUP; made_at += WARPS) {
  const bool is_key = made_at == GROUP;
  const T* from = is_key ? k + row * k_strides[0] + K_AT + kv_head * D
                         : q + row * q_strides[0] + Q_AT + (head + made_at) * D;
  const bool writes = is_key && head % SHARED_BY == 0 && split == splits - 1;
  auto turn = [&](int pair, float& sin, float& cos) {
    sincosf(position * reinterpret_cast<const float*>(radians)[pair], &sin, &cos);
    sin *= __int_as_float(MAGNITUDE);
    cos *= __int_as_float(MAGNITUDE);
  };
  auto write = [&](int i, T value) {
    made[made_at][i] = value;
    if (writes) {
      own_keys[index_of_new * keys_strides[2] + i] = value;
      own_values[index_of_new * values_strides[2] + i] = new_value[i];
    }
  };
  const T* by = is_key ? k_norm : q_norm;
  make_head<T, D, DIMS, NORM>(from, by, __int_as_float(EPS), plain[warp], turn, write);
}
__syncthreads();

float query[GROUP][WIDTH];
float sum[GROUP][WIDTH];
float largest[GROUP];
float total[GROUP];
#pragma unroll
for (int g = 0; g < GROUP; g++) {
  largest[g] = -1e30f;
  total[g] = 0;
  #pragma unroll
  for (int i = 0; i < WIDTH; i++) {
    query[g][i] = static_cast<float>(made[g][lane * WIDTH + i]);
    sum[g][i] = 0;
  }
}
const float scale = __int_as_float(SCALE);
const float softcap = __int_as_float(SOFTCAP);
constexpr float LOG2_E = 1.44269504f;

for (int base = first + warp * KEYS; base < end; base += WARPS * KEYS * AT_ONCE) {
  #pragma unroll
  for (int a = 0; a < AT_ONCE; a++) {
    // The new position may not have been written when it was loaded.
    if (min(base + a * WARPS * KEYS + place, end - 1) == index_of_new) {
      #pragma unroll
      for (int p = 0; p < PACKS; p++) {
        const int offset = lane * WIDTH / PACK + p;
        key_packs[a][p] = reinterpret_cast<const Pack*>(made[GROUP])[offset];
        value_packs[a][p] = reinterpret_cast<const Pack*>(new_value)[offset];
      }
    }
  }
  #pragma unroll
  for (int a = 0; a < AT_ONCE; a++) {
    const bool seen = base + a * WARPS * KEYS + place < end;
    #pragma unroll
    for (int g = 0; g < GROUP; g++) {
      float dot = 0;
      #pragma unroll
      for (int i = 0; i < WIDTH; i++) {
        dot += query[g][i] * static_cast<float>(key_packs[a][i / PACK].values[i % PACK]);
      }
      #pragma unroll
      for (int offset = LANES / 2; offset > 0; offset /= 2) {
        dot += __shfl_xor_sync(0xffffffff, dot, offset);
      }
      float score = dot * scale;
      if (softcap > 0) {
        score = softcap * tanhf(score / softcap);
      }
      score = seen ? score * LOG2_E : -1e38f;
      const float highest = fmaxf(largest[g], score);
      const float factor = exp2f(largest[g] - highest);
      const float weight = exp2f(score - highest);
      largest[g] = highest;
      total[g] = total[g] * factor + weight;
      #pragma unroll
      for (int i = 0; i < WIDTH; i++) {
        const float value = static_cast<float>(value_packs[a][i / PACK].values[i % PACK]);
        sum[g][i] = sum[g][i] * factor + weight * value;
      }
    }
  }
  if (base + WARPS * KEYS * AT_ONCE < end) {
    load(base + WARPS * KEYS * AT_ONCE);
  }
}

// The places of a warp, then the warps.
__shared__ float all_sums[WARPS][GROUP][D];
__shared__ float bounds[WARPS][GROUP];
__shared__ float totals[WARPS][GROUP];
#pragma unroll
for (int g = 0; g < GROUP; g++) {
  #pragma unroll
  for (int offset = LANES; offset < 32; offset *= 2) {
    const float other = __shfl_xor_sync(0xffffffff, largest[g], offset);
    const float highest = fmaxf(largest[g], other);
    const float factor = exp2f(largest[g] - highest);
    const float other_factor = exp2f(other - highest);
    largest[g] = highest;
    total[g] = total[g] * factor + __shfl_xor_sync(0xffffffff, total[g], offset) * other_factor;
    #pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      const float value = __shfl_xor_sync(0xffffffff, sum[g][i], offset);
      sum[g][i] = sum[g][i] * factor + value * other_factor;
    }
  }
  if (place == 0) {
    #pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      all_sums[warp][g][lane * WIDTH + i] = sum[g][i];
    }
    bounds[warp][g] = largest[g];
    totals[warp][g] = total[g];
  }
}
__syncthreads();
const int64_t head_at = static_cast<int64_t>(row) * heads + head;
for (int index = threadIdx.x; index < GROUP * D; index += THREADS) {
  const int g = index / D;
  float highest = bounds[0][g];
  for (int w = 1; w < WARPS; w++) {
    highest = fmaxf(highest, bounds[w][g]);
  }
  const float sink = HAS_SINKS ? static_cast<float>(sinks[head + g]) * LOG2_E : 0.0f;
  if (HAS_SINKS && splits == 1) {
    highest = fmaxf(highest, sink);
  }
  float all = HAS_SINKS && splits == 1 ? exp2f(sink - highest) : 0.0f;
  float value = 0;
  for (int w = 0; w < WARPS; w++) {
    const float factor = exp2f(bounds[w][g] - highest);
    all += totals[w][g] * factor;
    value += all_sums[w][g][index % D] * factor;
  }
  if (splits > 1) {
    const int64_t part = (head_at + g) * splits + split;
    sums[part * D + index % D] = value;
    if (index % D == 0) {
      parts[part * 2] = highest;
      parts[part * 2 + 1] = all;
    }
  } else {
    out[(head_at + g) * D + index % D] = static_cast<T>(all > 0 ? value / all : 0.0f);
  }
}
if (splits > 1) {
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    int* const count = const_cast<int*>(counters) + row * gridDim.y + blockIdx.y;
    is_last = atomicAdd(count, 1) == splits - 1;
    if (is_last) {
      *count = 0;
    }
  }
  __syncthreads();
  if (is_last) {
    __threadfence();
    for (int index = threadIdx.x; index < GROUP * D; index += THREADS) {
      const int64_t part = (head_at + index / D) * splits;
      float highest = -1e30f;
      for (int s = 0; s < splits; s++) {
        highest = fmaxf(highest, __ldcg(parts + (part + s) * 2));
      }
      const float sink = HAS_SINKS ? static_cast<float>(sinks[head + index / D]) * LOG2_E : 0.0f;
      if (HAS_SINKS) {
        highest = fmaxf(highest, sink);
      }
      float all = HAS_SINKS ? exp2f(sink - highest) : 0.0f;
      float value = 0;
      for (int s = 0; s < splits; s++) {
        const float factor = exp2f(__ldcg(parts + (part + s) * 2) - highest);
        all += __ldcg(parts + (part + s) * 2 + 1) * factor;
        value += __ldcg(sums + (part + s) * D + index % D) * factor;
      }
      out[head_at * D + index] = static_cast<T>(all > 0 ? value / all : 0.0f);
    }
  }
}
