// Behind `step_held.cu` or `step_packed_held.cu`, which tell how keys and values are held and the new ones written.

const T* const new_value = v + row * v_strides[0] + V_AT + kv_head * D;
Part part;
const int own_first = first + warp * Part::AT_ONCE;
// The queries, then the key, and the value where it is normed: a warp makes some of them, one after the other. What is loaded first arrives
// first, so keys and values come behind what is needed before them.
constexpr int MADE = GROUP + (BORROWS ? 0 : V_NORM ? 2 : 1);
constexpr int ROUNDS = (MADE + BLOCK_WARPS - 1) / BLOCK_WARPS;
constexpr int THREADS_OF_BLOCK = 32 * BLOCK_WARPS;
constexpr int ANGLES = (DIMS / 2 + THREADS_OF_BLOCK - 1) / THREADS_OF_BLOCK;
__shared__ alignas(16) T made[GROUP + (V_NORM ? 2 : 1)][D];
__shared__ float plain[BLOCK_WARPS][D];
__shared__ float sines[DIMS > 1 ? DIMS / 2 : 1];
__shared__ float cosines[DIMS > 1 ? DIMS / 2 : 1];
float angles[ANGLES + 1];
#pragma unroll
for (int i = 0; i < ANGLES; i++) {
  const int pair = threadIdx.x + i * THREADS_OF_BLOCK;
  angles[i] = pair < DIMS / 2 ? position * reinterpret_cast<const float*>(radians)[pair] : 0.0f;
}
OfLane<T, D> by[ROUNDS];
#pragma unroll
for (int i = 0; i < ROUNDS; i++) {
  const int made_at = warp + i * BLOCK_WARPS;
  if (V_NORM && made_at == GROUP + 1) {
    by[i].load(v_norm);
  } else if (NORM && made_at < MADE) {
    by[i].load(made_at == GROUP ? k_norm : q_norm);
  }
}
// The new position is taken from elsewhere, unless another layer wrote it.
if (!BORROWS && first < end) {
  part.load(held, own_first);
}
#pragma unroll
for (int i = 0; i < ANGLES; i++) {
  const int pair = threadIdx.x + i * THREADS_OF_BLOCK;
  if (pair < DIMS / 2) {
    float sin, cos;
    sincosf(angles[i], &sin, &cos);
    sines[pair] = sin * __int_as_float(MAGNITUDE);
    cosines[pair] = cos * __int_as_float(MAGNITUDE);
  }
}
// So far only what earlier steps wrote is read, and what nothing changes.
wait_for_last();
if (BORROWS && first < end) {
  part.load(held, own_first);
}

OfLane<T, D> own[ROUNDS];
#pragma unroll
for (int i = 0; i < ROUNDS; i++) {
  const int made_at = warp + i * BLOCK_WARPS;
  if (V_NORM && made_at == GROUP + 1) {
    own[i].load(new_value);
  } else if (made_at < MADE) {
    const bool is_key = made_at == GROUP;
    own[i].load(is_key ? k + row * k_strides[0] + K_AT + kv_head * D : q + row * q_strides[0] + Q_AT + (head + made_at) * D);
  }
}
const bool is_writer = !BORROWS && head % SHARED_BY == 0 && split == splits - 1;
const bool writes_value = takes_value(is_writer);
OfLane<T, D> value_of_new;
if (writes_value) {
  value_of_new.load(new_value);
}
// The sines are there.
__syncthreads();
#pragma unroll
for (int i = 0; i < ROUNDS; i++) {
  const int made_at = warp + i * BLOCK_WARPS;
  if constexpr (V_NORM) {
    if (made_at == GROUP + 1) {
      auto write = [&](int at, T value) {
        made[GROUP + 1][at] = value;
        if (is_writer) {
          put_value(at, value);
        }
      };
      make_head<T, D, 0, true>(own[i], by[i], __int_as_float(EPS), plain[warp], sines, cosines, write);
      continue;
    }
  }
  if (made_at >= MADE) {
    break;
  }
  const bool is_key = made_at == GROUP;
  auto write = [&](int at, T value) {
    made[made_at][at] = value;
    if (is_key && is_writer) {
      put_key(at, value);
    }
  };
  make_head<T, D, DIMS, NORM>(own[i], by[i], __int_as_float(EPS), plain[warp], sines, cosines, write);
}
if (writes_value) {
  #pragma unroll
  for (int i = 0; i < D / 32; i++) {
    put_value(threadIdx.x % 32 + i * 32, value_of_new.all[i]);
  }
}
__syncthreads();

const auto fresh = settle(made[GROUP], V_NORM ? made[GROUP + 1] : new_value, is_writer);
part.begin(made);
const Scoring scoring{__int_as_float(SCALE), __int_as_float(SOFTCAP)};
constexpr int STRIDE = BLOCK_WARPS * Part::AT_ONCE;
for (int base = own_first; base < end; base += STRIDE) {
  if (!BORROWS) {
    // The new position may not have been written when it was loaded.
    part.replace(base, end, index_of_new, fresh);
  }
  part.attend(held, base, base + STRIDE, scoring);
}

__shared__ float all_sums[BLOCK_WARPS][GROUP][D];
__shared__ float bounds[BLOCK_WARPS][GROUP];
__shared__ float totals[BLOCK_WARPS][GROUP];
part.write(all_sums[warp], bounds[warp], totals[warp]);
constexpr float LOG2_E = 1.44269504f;
__syncthreads();
const int64_t head_at = static_cast<int64_t>(row) * heads + head;
for (int index = threadIdx.x; index < GROUP * D; index += (32 * BLOCK_WARPS)) {
  const int g = index / D;
  float highest = bounds[0][g];
  for (int w = 1; w < BLOCK_WARPS; w++) {
    highest = fmaxf(highest, bounds[w][g]);
  }
  const float sink = HAS_SINKS ? static_cast<float>(sinks[head + g]) * LOG2_E : 0.0f;
  if (HAS_SINKS && splits == 1) {
    highest = fmaxf(highest, sink);
  }
  float all = HAS_SINKS && splits == 1 ? exp2f(sink - highest) : 0.0f;
  float value = 0;
  for (int w = 0; w < BLOCK_WARPS; w++) {
    const float factor = exp2f(bounds[w][g] - highest);
    all += totals[w][g] * factor;
    value += all_sums[w][g][index % D] * factor;
  }
  if (splits > 1) {
    const int64_t own = (head_at + g) * most_splits + split;
    sums[own * D + index % D] = value;
    if (index % D == 0) {
      parts[own * 2] = highest;
      parts[own * 2 + 1] = all;
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
    // Sums of the first splits are on their way while it is found what each split counts for, by head.
    constexpr int OF_THREAD = (GROUP * D + 32 * BLOCK_WARPS - 1) / (32 * BLOCK_WARPS);
    constexpr int EARLY = 32 / OF_THREAD < 16 ? 32 / OF_THREAD : 16;
    float early[OF_THREAD][EARLY];
    #pragma unroll
    for (int i = 0; i < OF_THREAD; i++) {
      const int index = threadIdx.x + i * 32 * BLOCK_WARPS;
      const float* const of_head = sums + (head_at + index / D) * most_splits * D + index % D;
      #pragma unroll
      for (int s = 0; s < EARLY; s++) {
        early[i][s] = index < GROUP * D && s < splits ? __ldcg(of_head + static_cast<int64_t>(s) * D) : 0.0f;
      }
    }
    __shared__ float shares[GROUP][MOST_SPLITS];
    if (warp < GROUP) {
      const float* const of_head = parts + (head_at + warp) * most_splits * 2;
      const int lane = threadIdx.x % 32;
      const float sink = HAS_SINKS ? static_cast<float>(sinks[head + warp]) * LOG2_E : -1e30f;
      float highest = sink;
      for (int s = lane; s < splits; s += 32) {
        highest = fmaxf(highest, __ldcg(of_head + 2 * s));
      }
      #pragma unroll
      for (int offset = 16; offset > 0; offset /= 2) {
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffff, highest, offset));
      }
      float all = 0;
      for (int s = lane; s < splits; s += 32) {
        const float factor = exp2f(__ldcg(of_head + 2 * s) - highest);
        shares[warp][s] = factor;
        all += factor * __ldcg(of_head + 2 * s + 1);
      }
      #pragma unroll
      for (int offset = 16; offset > 0; offset /= 2) {
        all += __shfl_xor_sync(0xffffffff, all, offset);
      }
      all += HAS_SINKS ? exp2f(sink - highest) : 0.0f;
      for (int s = lane; s < splits; s += 32) {
        shares[warp][s] = all > 0 ? shares[warp][s] / all : 0.0f;
      }
    }
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < OF_THREAD; i++) {
      const int index = threadIdx.x + i * 32 * BLOCK_WARPS;
      if (index >= GROUP * D) {
        break;
      }
      const float* const of_head = sums + (head_at + index / D) * most_splits * D + index % D;
      float value = 0;
      #pragma unroll
      for (int s = 0; s < EARLY; s++) {
        value += s < splits ? early[i][s] * shares[index / D][s] : 0.0f;
      }
      #pragma unroll 8
      for (int s = EARLY; s < splits; s++) {
        value += __ldcg(of_head + static_cast<int64_t>(s) * D) * shares[index / D][s];
      }
      out[head_at * D + index] = static_cast<T>(value);
    }
  }
}
