// The experts that each row of logits chooses, and their weights: a warp for each row. A logit that is no
// number counts as the smallest. Where there are several groups of neighbours, only the experts of KEPT are chosen from.

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
    if ((HAS_CORRECTION || GROUPS > 1) && expert < EXPERTS) {
      choice[i] = fmaxf(score[i] + (HAS_CORRECTION ? static_cast<float>(correction[expert]) : 0.0f), LOWEST);
    }
  }
  unsigned taken = 0;
  if constexpr (GROUPS > 1) {
    // A group is as good as its two best experts together; each lane gets that of its own group.
    constexpr int SIZE = EXPERTS / GROUPS;
    float of_own = LOWEST;
    for (int group = 0; group < GROUPS; group++) {
      float first = LOWEST;
      float second = LOWEST;
      auto take = [&](float value) {
        second = fmaxf(second, fminf(first, value));
        first = fmaxf(first, value);
      };
      #pragma unroll
      for (int i = 0; i < EACH; i++) {
        if ((i * 32 + lane) / SIZE == group) {
          take(choice[i]);
        }
      }
      #pragma unroll
      for (int offset = 16; offset > 0; offset /= 2) {
        const float other = __shfl_xor_sync(0xffffffff, first, offset);
        const float other_second = __shfl_xor_sync(0xffffffff, second, offset);
        take(other);
        take(other_second);
      }
      of_own = lane == group ? first + second : of_own;
    }
    int better = 0;
    for (int group = 0; group < GROUPS; group++) {
      const float other = __shfl_sync(0xffffffff, of_own, group);
      better += other > of_own || (other == of_own && group > lane);
    }
    const unsigned kept = __ballot_sync(0xffffffff, lane < GROUPS && better < KEPT);
    #pragma unroll
    for (int i = 0; i < EACH; i++) {
      const int expert = i * 32 + lane;
      if (expert < EXPERTS && (kept >> expert / SIZE & 1) == 0) {
        taken |= 1u << i;
      }
    }
  }
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
    if (HAS_SCALES) {
      chosen_weight *= static_cast<float>(scales[chosen]);
    }
    indices[row * CHOICES + lane] = chosen;
    weights[row * CHOICES + lane] = static_cast<T>(chosen_weight);
  }
}
