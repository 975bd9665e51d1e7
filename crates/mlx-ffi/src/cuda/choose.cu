// How a warp chooses experts by a row of logits, and weighs them. A logit that is no number counts as the smallest. Where
// there are several groups of neighbours, only the experts of KEPT are chosen from. The first lanes have one choice each, the
// best first.
template <typename T, int EXPERTS, int CHOICES, bool BY_SIGMOID, bool HAS_CORRECTION, bool NORMALISES, int GROUPS, int KEPT, bool HAS_SCALES>
__device__ __forceinline__ void choose(
    const T* logits, const float* correction, const float* scaling, const T* scales, unsigned& chosen, float& chosen_weight) {
  constexpr int EACH = (EXPERTS + 31) / 32;
  const int lane = threadIdx.x % 32;
  constexpr float LOWEST = -3.0e38f;
  // What experts are chosen by.
  float choice[EACH];
  float score[EACH];
  float highest = LOWEST;
  #pragma unroll
  for (int i = 0; i < EACH; i++) {
    const int expert = i * 32 + lane;
    float logit = LOWEST;
    if (expert < EXPERTS) {
      logit = fmaxf(static_cast<float>(logits[expert]), LOWEST);
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
  // Whole numbers in the order of the choices, 0 for those that are not left: a warp finds the largest at once.
  unsigned order[EACH];
  #pragma unroll
  for (int i = 0; i < EACH; i++) {
    const bool is_left = i * 32 + lane < EXPERTS && (taken >> i & 1) == 0;
    // Both zeros are one.
    const unsigned bits = choice[i] == 0.0f ? 0u : __float_as_uint(choice[i]);
    order[i] = is_left ? (bits >> 31 ? ~bits : bits | 0x80000000u) : 0u;
  }
  chosen_weight = 0;
  chosen = 0;
  float sum = 0;
  for (int c = 0; c < CHOICES; c++) {
    unsigned own = order[0];
    int own_at = lane;
    float own_score = score[0];
    #pragma unroll
    for (int i = 1; i < EACH; i++) {
      if (order[i] > own) {
        own = order[i];
        own_at = i * 32 + lane;
        own_score = score[i];
      }
    }
    // Of several, the first.
    const unsigned best = __reduce_max_sync(0xffffffff, own);
    const int at = static_cast<int>(__reduce_min_sync(0xffffffff, own == best ? own_at : 32u * EACH));
    const float weight = __shfl_sync(0xffffffff, own_score, at % 32);
    #pragma unroll
    for (int i = 0; i < EACH; i++) {
      order[i] = at == i * 32 + lane ? 0u : order[i];
    }
    if (c == lane) {
      chosen = at;
      chosen_weight = weight;
    }
    sum += weight;
  }
  if (NORMALISES) {
    chosen_weight /= sum + scaling[0];
  }
  chosen_weight *= scaling[1];
  if (HAS_SCALES && lane < CHOICES) {
    chosen_weight *= static_cast<float>(scales[chosen]);
  }
}
