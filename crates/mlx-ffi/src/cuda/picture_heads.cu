// The heads of two streams, the second behind the first: queries and keys normed and rotated, values as they are. A
// block makes all heads of a position, a warp one after the other, a lane four values of each 128.
// cosines, sines: of the pairs 2 i and 2 i + 1 of each position. Inputs that are not there are others.

let_next_begin();
wait_for_last();
constexpr int EACH = (D + 127) / 128;
const int lane = threadIdx.x % 32;
const int warp = threadIdx.x / 32;
const int l = q_shape[1];
const int n_heads = q_shape[2] / D;
const int n_kv_heads = k_shape[2] / D;
const int64_t position = blockIdx.x;
const bool is_second = position >= l;
const int64_t from = is_second ? position - l : position;
const T* const own_q = (is_second ? next_q : q) + from * n_heads * D;
const T* const own_k = (is_second ? next_k : k) + from * n_kv_heads * D;
const T* const own_v = (is_second ? next_v : v) + from * n_kv_heads * D;
const T* const by_q = is_second ? next_q_norm : q_norm;
const T* const by_k = is_second ? next_k_norm : k_norm;

float2 cosine[EACH], sine[EACH];
#pragma unroll
for (int e = 0; e < EACH; e++) {
  const int at = e * 128 + lane * 4;
  if (at < D) {
    const int64_t pair = position * (D / 2) + at / 2;
    cosine[e] = *reinterpret_cast<const float2*>(cosines + pair);
    sine[e] = *reinterpret_cast<const float2*>(sines + pair);
  }
}
auto read = [](const T* of, float* to) {
  const uint2 words = *reinterpret_cast<const uint2*>(of);
  const float2 first = unpack<T>(words.x), second = unpack<T>(words.y);
  to[0] = first.x;
  to[1] = first.y;
  to[2] = second.x;
  to[3] = second.y;
};
for (int head = warp; head < n_heads + n_kv_heads; head += WARPS) {
  const bool is_key = head >= n_heads;
  const int own = is_key ? head - n_heads : head;
  const T* const made_of = (is_key ? own_k : own_q) + own * D;
  const T* const by = is_key ? by_k : by_q;
  T* const to = (is_key ? keys + (position * n_kv_heads + own) * D : queries + (position * n_heads + own) * D);
  float plain[EACH][4];
  float total = 0;
  #pragma unroll
  for (int e = 0; e < EACH; e++) {
    const int at = e * 128 + lane * 4;
    if (at < D) {
      read(made_of + at, plain[e]);
      #pragma unroll
      for (int i = 0; i < 4; i++) {
        total += plain[e][i] * plain[e][i];
      }
    }
  }
  float factor = 1;
  if (NORM) {
    #pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      total += __shfl_xor_sync(0xffffffff, total, offset);
    }
    factor = rsqrtf(total / D + __int_as_float(EPS));
  }
  #pragma unroll
  for (int e = 0; e < EACH; e++) {
    const int at = e * 128 + lane * 4;
    if (at < D) {
      if (NORM) {
        float weights[4];
        read(by + at, weights);
        #pragma unroll
        for (int i = 0; i < 4; i++) {
          plain[e][i] *= factor * weights[i];
        }
      }
      const float2 cos = cosine[e], sin = sine[e];
      alignas(8) const T turned[4] = {
          static_cast<T>(plain[e][0] * cos.x - plain[e][1] * sin.x),
          static_cast<T>(plain[e][0] * sin.x + plain[e][1] * cos.x),
          static_cast<T>(plain[e][2] * cos.y - plain[e][3] * sin.y),
          static_cast<T>(plain[e][2] * sin.y + plain[e][3] * cos.y)};
      *reinterpret_cast<uint2*>(to + at) = *reinterpret_cast<const uint2*>(turned);
    }
  }
}
for (int pack = threadIdx.x; pack < n_kv_heads * D / 8; pack += THREADS) {
  const int64_t to = position * n_kv_heads * D + pack * 8;
  *reinterpret_cast<uint4*>(values + to) = *reinterpret_cast<const uint4*>(own_v + pack * 8);
}
