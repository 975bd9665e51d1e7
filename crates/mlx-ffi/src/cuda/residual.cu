// x plus y, which may be normed and then multiplied before, times a number where there is one, and the norm of that: a
// block for each row, eight values at a time for each thread. Each step is rounded as if it were an operation of its own.
// PARTS: y is the sum of so many arrays of floats, which lie one behind the other; 0 if it is one of T.

let_next_begin();
constexpr int BLOCK = BLOCK_WARPS * 32;
constexpr int EIGHTS = (COLUMNS / 8 + BLOCK - 1) / BLOCK;
__shared__ float totals[2][BLOCK_WARPS];
const int64_t row = static_cast<int64_t>(blockIdx.x) * COLUMNS;
// Whether a thread has something the i-th time, and where.
auto place_of = [](int i) { return (i * BLOCK + static_cast<int>(threadIdx.x)) * 8; };
auto has = [&](int i) { return COLUMNS % (BLOCK * 8) == 0 || place_of(i) < COLUMNS; };
auto eight_at = [](const void* from) { return *reinterpret_cast<const uint4*>(from); };
uint4 out_norms[EIGHTS], norms[EIGHTS];
#pragma unroll
for (int i = 0; i < EIGHTS; i++) {
  if (has(i)) {
    if (HAS_OUT_NORM) {
      out_norms[i] = eight_at(out_norm + place_of(i));
    }
    if (HAS_NORM) {
      norms[i] = eight_at(norm + place_of(i));
    }
  }
}
const float added_to_mean = *epsilon;

// So far only what nothing changes was read.
wait_for_last();
uint4 ours[EIGHTS], theirs[EIGHTS];
#pragma unroll
for (int i = 0; i < EIGHTS; i++) {
  if (has(i)) {
    ours[i] = eight_at(x + row + place_of(i));
    if constexpr (PARTS == 0) {
      theirs[i] = eight_at(y + row + place_of(i));
    } else {
      const int64_t of_part = static_cast<int64_t>(gridDim.x) * COLUMNS;
      #pragma unroll
      for (int half = 0; half < 2; half++) {
        const float* const from = reinterpret_cast<const float*>(y) + row + place_of(i) + half * 4;
        const float4 sum = sum_of_parts<PARTS>(from, of_part);
        T* const to = reinterpret_cast<T*>(&theirs[i]) + half * 4;
        to[0] = static_cast<T>(sum.x);
        to[1] = static_cast<T>(sum.y);
        to[2] = static_cast<T>(sum.z);
        to[3] = static_cast<T>(sum.w);
      }
    }
  }
}
auto factor_of = [&](const uint4* eights, int at) {
  float total = 0;
  #pragma unroll
  for (int i = 0; i < EIGHTS; i++) {
    if (has(i)) {
      #pragma unroll
      for (int j = 0; j < 8; j++) {
        const float value = static_cast<float>(reinterpret_cast<const T*>(&eights[i])[j]);
        total += value * value;
      }
    }
  }
  return rsqrtf(sum_of_block<BLOCK_WARPS>(total, totals[at]) / COLUMNS + added_to_mean);
};
const float out_factor = HAS_OUT_NORM ? factor_of(theirs, 0) : 1.0f;
#pragma unroll
for (int i = 0; i < EIGHTS; i++) {
  if (has(i)) {
    #pragma unroll
    for (int j = 0; j < 8; j++) {
      T value = reinterpret_cast<const T*>(&theirs[i])[j];
      if (HAS_OUT_NORM) {
        value = scaled_value(value, out_factor, reinterpret_cast<const T*>(&out_norms[i])[j]);
      }
      if (HAS_FACTOR) {
        const T factor = static_cast<T>(__int_as_float(FACTOR));
        value = static_cast<T>(static_cast<float>(value) * static_cast<float>(factor));
      }
      T& sum = reinterpret_cast<T*>(&ours[i])[j];
      sum = static_cast<T>(static_cast<float>(sum) + static_cast<float>(value));
      if (HAS_SCALE) {
        sum = static_cast<T>(static_cast<float>(sum) * static_cast<float>(*scale));
      }
    }
    *reinterpret_cast<uint4*>(h + row + place_of(i)) = ours[i];
  }
}
if (HAS_NORM) {
  const float factor = factor_of(ours, 1);
  #pragma unroll
  for (int i = 0; i < EIGHTS; i++) {
    if (has(i)) {
      #pragma unroll
      for (int j = 0; j < 8; j++) {
        T& value = reinterpret_cast<T*>(&ours[i])[j];
        value = scaled_value(value, factor, reinterpret_cast<const T*>(&norms[i])[j]);
      }
      *reinterpret_cast<uint4*>(normed + row + place_of(i)) = ours[i];
    }
  }
}
