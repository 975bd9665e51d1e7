// The experts that each row of logits chooses, and their weights: a warp for each row.

let_next_begin();
wait_for_last();
const int lane = threadIdx.x % 32;
const int64_t row = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / 32;
int rows = 1;
for (int i = 0; i + 1 < logits_ndim; i++) {
  rows *= logits_shape[i];
}
if (row < rows) {
  unsigned expert;
  float weight;
  choose<T, EXPERTS, CHOICES, BY_SIGMOID, HAS_CORRECTION, NORMALISES, EXPERT_GROUPS, KEPT, HAS_SCALES>(
      logits + row * EXPERTS, correction, scaling, scales, expert, weight);
  if (lane < CHOICES) {
    indices[row * CHOICES + lane] = expert;
    weights[row * CHOICES + lane] = static_cast<T>(weight);
  }
}
