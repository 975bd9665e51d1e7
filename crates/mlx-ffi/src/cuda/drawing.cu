// What draws are made of: sums over a block, thresholds by mass, and MLX's random bits.

// Thresholds that are tried at once.
constexpr int TRIED = 15;

// A number whose order is that of the float.
__device__ inline unsigned order_of(float x) {
  const unsigned bits = __float_as_uint(x);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The sums over all threads, each in the same order whatever the device does.
template <int COUNT>
__device__ inline void sum_of_block(float (&own)[COUNT], float* shared) {
  const int warp = threadIdx.x / 32;
  #pragma unroll
  for (int c = 0; c < COUNT; c++) {
    for (int offset = 16; offset > 0; offset /= 2) {
      own[c] += __shfl_xor_sync(0xffffffffu, own[c], offset);
    }
    if (threadIdx.x % 32 == 0) {
      shared[warp * COUNT + c] = own[c];
    }
  }
  __syncthreads();
  #pragma unroll
  for (int c = 0; c < COUNT; c++) {
    own[c] = 0;
  }
  for (int w = 0; w < DRAWING / 32; w++) {
    #pragma unroll
    for (int c = 0; c < COUNT; c++) {
      own[c] += shared[w * COUNT + c];
    }
  }
  __syncthreads();
}

// The largest bound of so many bits that elements of a mass of at least `target` reach with their keys.
template <int BITS, typename Key, typename Mass>
__device__ inline unsigned bound_by_mass(int n, float target, Key key, Mass mass, float* shared) {
  unsigned bound = 0;
  for (int shift = BITS - 4; shift >= 0; shift -= 4) {
    float own[TRIED] = {};
    for (int i = threadIdx.x; i < n; i += DRAWING) {
      const unsigned own_key = key(i);
      const float own_mass = mass(i);
      const unsigned steps = own_key < bound ? 0 : (own_key - bound) >> shift;
      #pragma unroll
      for (unsigned j = 0; j < TRIED; j++) {
        own[j] += steps > j ? own_mass : 0.0f;
      }
    }
    sum_of_block(own, shared);
    unsigned reached = 0;
    #pragma unroll
    for (unsigned j = 0; j < TRIED; j++) {
      reached = own[j] >= target ? j + 1 : reached;
    }
    bound += reached << shift;
  }
  return bound;
}

// Threefry-2x32 with 20 rounds, as MLX uses it.
struct Bits {
  unsigned first;
  unsigned second;
};
__device__ inline Bits threefry(Bits key, Bits count) {
  constexpr int ROTATIONS[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const unsigned keys[3] = {key.first, key.second, key.first ^ key.second ^ 0x1bd11bdau};
  unsigned x = count.first + keys[0];
  unsigned y = count.second + keys[1];
  #pragma unroll
  for (int i = 0; i < 5; i++) {
    #pragma unroll
    for (int r = 0; r < 4; r++) {
      x += y;
      y = __funnelshift_l(y, y, ROTATIONS[i % 2][r]) ^ x;
    }
    x += keys[(i + 1) % 3];
    y += keys[(i + 2) % 3] + i + 1;
  }
  return {x, y};
}

// What of `n` random numbers of a key is the one at index `i`.
__device__ inline unsigned random_at(Bits key, unsigned i, unsigned n) {
  const unsigned half = n / 2;
  const unsigned odd = n % 2;
  if (i < half) {
    return threefry(key, {i, i + half + odd}).first;
  }
  return odd == 1 && i == half ? threefry(key, {half, 0}).first : threefry(key, {i - half - odd, i}).second;
}
