// A block draws the id of a row of logits. settings: for each row the bits of 1 / temperature, 0 for the most likely id;
// those of top-p, 1 for all; those of the logarithm of min-p; top-k, 0 for all; and the two halves of the seed. steps: how
// many draws each row had.

__shared__ float shared[DRAWING / 32 * TRIED];
__shared__ int indices[DRAWING / 32];
const int row = blockIdx.x;
const int n = logits_shape[1];
const T* const values = logits + static_cast<int64_t>(row) * n;
const int* const setting = settings + SETTINGS * row;
const float inverse = __int_as_float(setting[0]);
const float top_p = __int_as_float(setting[1]);
const float log_min_p = __int_as_float(setting[2]);
const int top_k = setting[3];
const bool is_greedy = inverse == 0;
// The lower bits of what had fewer are all alike.
constexpr int UNUSED = IS_BF16 ? 16 : 0;
auto value = [&](int i) { return static_cast<float>(values[i]); };
auto key = [&](int i) { return order_of(value(i)) >> UNUSED; };

float largest = -__int_as_float(0x7f800000);
#pragma unroll 4
for (int i = threadIdx.x; i < n; i += DRAWING) {
  largest = fmaxf(largest, value(i));
}
for (int offset = 16; offset > 0; offset /= 2) {
  largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
}
if (threadIdx.x % 32 == 0) {
  shared[threadIdx.x / 32] = largest;
}
__syncthreads();
for (int w = 0; w < DRAWING / 32; w++) {
  largest = fmaxf(largest, shared[w]);
}
__syncthreads();

float log_total = 0;
unsigned least = 0;
auto is_likely = [&](int i) { return key(i) >= least && value(i) - largest >= log_min_p; };
unsigned tie = 0xffffffffu;
unsigned first_of_ties = 0;
Bits random{};
if (!is_greedy) {
  auto part = [&](int i) { return expf(value(i) - largest); };
  float total[1] = {0};
  #pragma unroll 4
  for (int i = threadIdx.x; i < n; i += DRAWING) {
    total[0] += part(i);
  }
  sum_of_block(total, shared);
  log_total = largest + logf(total[0]);
  if (top_p < 1) {
    least = bound_by_mass<32 - UNUSED>(n, top_p * total[0], key, part, shared);
  }
  if (top_k > 0 && top_k < n) {
    auto one = [&](int i) { return is_likely(i) ? 1.0f : 0.0f; };
    const unsigned bound = bound_by_mass<32 - UNUSED>(n, top_k, key, one, shared);
    float counts[2] = {0, 0};
    for (int i = threadIdx.x; i < n; i += DRAWING) {
      counts[0] += key(i) > bound ? one(i) : 0.0f;
      counts[1] += key(i) == bound ? one(i) : 0.0f;
    }
    sum_of_block(counts, shared);
    // Of equals at the end, the first ones.
    if (counts[0] + counts[1] > top_k) {
      auto is_tie = [&](int i) { return key(i) == bound ? one(i) : 0.0f; };
      auto from_end = [&](int i) { return static_cast<unsigned>(n - 1 - i); };
      first_of_ties = bound_by_mass<32>(n, top_k - counts[0], from_end, is_tie, shared);
      tie = bound;
    }
    least = max(least, bound);
  }
  // The first of the two keys into which that of seed and step is split.
  unsigned long long z = (static_cast<unsigned long long>(setting[5]) << 32) |
      static_cast<unsigned>(setting[4]);
  z += (static_cast<unsigned long long>(steps[row]) + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  z ^= z >> 31;
  const Bits of_step{static_cast<unsigned>(z >> 32), static_cast<unsigned>(z)};
  random = {threefry(of_step, {0, 2}).first, threefry(of_step, {1, 3}).first};
}

float best = -__int_as_float(0x7f800000);
int best_at = n - 1;
for (int i = threadIdx.x; i < n; i += DRAWING) {
  float score = value(i);
  if (!is_greedy) {
    const bool is_kept = is_likely(i) && (key(i) != tie || static_cast<unsigned>(n - 1 - i) >= first_of_ties);
    if (!is_kept) {
      continue;
    }
    const float uniform = fminf(__uint2float_rn(random_at(random, i, n)) / 4294967296.0f, 0.99999994f);
    score = (score - log_total) * inverse - logf(-logf(uniform));
  }
  if (score > best) {
    best = score;
    best_at = i;
  }
}
auto take_better = [&](float other, int other_at) {
  if (other > best || (other == best && other_at < best_at)) {
    best = other;
    best_at = other_at;
  }
};
for (int offset = 16; offset > 0; offset /= 2) {
  const float other = __shfl_xor_sync(0xffffffffu, best, offset);
  const int other_at = __shfl_xor_sync(0xffffffffu, best_at, offset);
  take_better(other, other_at);
}
if (threadIdx.x % 32 == 0) {
  shared[threadIdx.x / 32] = best;
  indices[threadIdx.x / 32] = best_at;
}
__syncthreads();
if (threadIdx.x == 0) {
  for (int w = 1; w < DRAWING / 32; w++) {
    take_better(shared[w], indices[w]);
  }
  ids[row] = best_at;
  next[row] = steps[row] + 1;
}
