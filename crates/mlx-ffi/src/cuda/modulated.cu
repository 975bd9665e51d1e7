// x plus what a gate lets through of y, and the norm of that, scaled and shifted: a block for each row, whose values
// its threads keep, EACH packs of eight. What is rounded is what is written. Inputs that are not there are x.

let_next_begin();
wait_for_last();
constexpr int PACKS = COLUMNS / 8;
const int64_t row = static_cast<int64_t>(blockIdx.x) * COLUMNS;
const int64_t by = OF_ROWS ? row : 0;
const float epsilon = __int_as_float(EPS);
__shared__ float parts[3][32];

auto sum_of = [&](float total, int which) {
  #pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    total += __shfl_xor_sync(0xffffffff, total, offset);
  }
  if (threadIdx.x % 32 == 0) {
    parts[which][threadIdx.x / 32] = total;
  }
  __syncthreads();
  total = 0;
  for (int i = 0; i < blockDim.x / 32; i++) {
    total += parts[which][i];
  }
  return total;
};
auto read = [](const T* from, int pack, float* to) {
  const uint4 words = *reinterpret_cast<const uint4*>(from + pack * 8);
  const unsigned of[4] = {words.x, words.y, words.z, words.w};
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    const float2 pair = unpack<T>(of[i]);
    to[2 * i] = pair.x;
    to[2 * i + 1] = pair.y;
  }
};

float values[EACH][8];
float total = 0;
if (HAS_OUT_NORM) {
  #pragma unroll
  for (int p = 0; p < EACH; p++) {
    const int pack = threadIdx.x + p * blockDim.x;
    if (pack < PACKS) {
      read(y + row, pack, values[p]);
      #pragma unroll
      for (int i = 0; i < 8; i++) {
        total += values[p][i] * values[p][i];
      }
    }
  }
}
const float out_factor = HAS_OUT_NORM ? rsqrtf(sum_of(total, 0) / COLUMNS + epsilon) : 1.0f;
total = 0;
#pragma unroll
for (int p = 0; p < EACH; p++) {
  const int pack = threadIdx.x + p * blockDim.x;
  if (pack < PACKS) {
    float own[8];
    read(x + row, pack, own);
    if (HAS_Y) {
      float gates[8];
      if (HAS_GATE) {
        read(gate + by, pack, gates);
      }
      if (HAS_OUT_NORM) {
        float weights[8];
        read(out_norm, pack, weights);
        #pragma unroll
        for (int i = 0; i < 8; i++) {
          values[p][i] *= out_factor * weights[i];
        }
      } else {
        read(y + row, pack, values[p]);
      }
      uint4 sums;
      #pragma unroll
      for (int i = 0; i < 8; i++) {
        const float open = HAS_GATE ? (TANH ? tanhf(gates[i]) : gates[i]) : 1.0f;
        const T sum = static_cast<T>(own[i] + open * values[p][i]);
        reinterpret_cast<T*>(&sums)[i] = sum;
        own[i] = static_cast<float>(sum);
      }
      *reinterpret_cast<uint4*>(h + row + pack * 8) = sums;
    }
    #pragma unroll
    for (int i = 0; i < 8; i++) {
      values[p][i] = own[i];
      total += HAS_WEIGHT ? own[i] * own[i] : own[i];
    }
  }
}
if (HAS_NORM) {
  // Without a weight it is a layer norm, otherwise one by the root of the mean square.
  total = sum_of(total, 1) / COLUMNS;
  const float mean = HAS_WEIGHT ? 0.0f : total;
  if (!HAS_WEIGHT) {
    total = 0;
    #pragma unroll
    for (int p = 0; p < EACH; p++) {
      if (threadIdx.x + p * blockDim.x < PACKS) {
        #pragma unroll
        for (int i = 0; i < 8; i++) {
          total += (values[p][i] - mean) * (values[p][i] - mean);
        }
      }
    }
    total = sum_of(total, 2) / COLUMNS;
  }
  const float factor = rsqrtf(total + epsilon);
  #pragma unroll
  for (int p = 0; p < EACH; p++) {
    const int pack = threadIdx.x + p * blockDim.x;
    if (pack < PACKS) {
      float scales[8], shifts[8], weights[8];
      if (HAS_SCALE) {
        read(scale + by, pack, scales);
      }
      if (HAS_SHIFT) {
        read(shift + by, pack, shifts);
      }
      if (HAS_WEIGHT) {
        read(norm, pack, weights);
      }
      uint4 results;
      #pragma unroll
      for (int i = 0; i < 8; i++) {
        float value = (values[p][i] - mean) * factor;
        if (HAS_WEIGHT) {
          value *= weights[i];
        }
        if (HAS_SCALE) {
          value *= ONE_MORE ? 1.0f + scales[i] : scales[i];
        }
        if (HAS_SHIFT) {
          value += shifts[i];
        }
        reinterpret_cast<T*>(&results)[i] = static_cast<T>(value);
      }
      *reinterpret_cast<uint4*>(normed + row + pack * 8) = results;
    }
  }
}
