// The experts that each row of logits chooses, and their weights: a warp for each row. A logit that is no
// number counts as the smallest.

constexpr int EACH = (EXPERTS + 31) / 32;
let_next_begin();
wait_for_last();
const int lane = threadIdx.x % 32;
const int64_t row = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / 32;
int rows = 1;
for (int i = 0; i + 1 < logits_ndim; i++) {
  rows *= logits_shape[i];
}
if (row < rows) {
  constexpr float LOWEST = -3.0e38f;
  // What experts are chosen by; a chosen one is taken out.
  float choice[EACH];
  float score[EACH];
  float highest = LOWEST;
  #pragma unroll
  for (int i = 0; i < EACH; i++) {
    const int expert = i * 32 + lane;
    float logit = LOWEST;
    if (expert < EXPERTS) {
      logit = fmaxf(static_cast<float>(logits[row * EXPERTS + expert]), LOWEST);
    }
    score[i] = logit;
    highest = fmaxf(highest, logit);
  }
  #pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    highest = fmaxf(highest, __shfl_xor_sync(0xffffffff, highest, offset));
  }
  float total = 0;
  #pragma unroll
  for (int i = 0; i < EACH; i++) {
    const int expert = i * 32 + lane;
    const bool is_one = expert < EXPERTS;
    choice[i] = score[i];
    if constexpr (BY_SIGMOID) {
      score[i] = 1.0f / (1.0f + expf(-score[i]));
    } else {
      score[i] = is_one ? expf(score[i] - highest) : 0.0f;
      total += score[i];
    }
  }
  if constexpr (!BY_SIGMOID) {
    #pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      total += __shfl_xor_sync(0xffffffff, total, offset);
    }
  }
  #pragma unroll
  for (int i = 0; i < EACH; i++) {
    const int expert = i * 32 + lane;
    if constexpr (!BY_SIGMOID) {
      score[i] /= total;
    }
    if (HAS_CORRECTION && expert < EXPERTS) {
      choice[i] = fmaxf(score[i] + static_cast<float>(correction[expert]), LOWEST);
    }
  }
  unsigned taken = 0;
  float chosen_weight = 0;
  unsigned chosen = 0;
  float sum = 0;
  for (int c = 0; c < CHOICES; c++) {
    float best = LOWEST;
    int at = EXPERTS;
    float weight = 0;
    #pragma unroll
    for (int i = 0; i < EACH; i++) {
      const int expert = i * 32 + lane;
      const bool is_free = expert < EXPERTS && (taken >> i & 1) == 0;
      if (is_free && (at == EXPERTS || choice[i] > best)) {
        best = choice[i];
        at = expert;
        weight = score[i];
      }
    }
    #pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      const float other = __shfl_xor_sync(0xffffffff, best, offset);
      const int other_at = __shfl_xor_sync(0xffffffff, at, offset);
      const float other_weight = __shfl_xor_sync(0xffffffff, weight, offset);
      if (other_at < EXPERTS && (at == EXPERTS || other > best || (other == best && other_at < at))) {
        best = other;
        at = other_at;
        weight = other_weight;
      }
    }
    if (at % 32 == lane) {
      taken |= 1u << at / 32;
    }
    if (c == lane) {
      chosen = at;
      chosen_weight = weight;
    }
    sum += weight;
  }
  if (lane < CHOICES) {
    if (NORMALISES) {
      chosen_weight /= sum + scaling[0];
    }
    chosen_weight *= scaling[1];
    indices[row * CHOICES + lane] = chosen;
    weights[row * CHOICES + lane] = static_cast<T>(chosen_weight);
  }
}
