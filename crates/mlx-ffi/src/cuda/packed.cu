// As the dense product, with w in four bits. Its warps take turns at 64 columns, which are in one
// group. A code c becomes the bf16 number 128 + c by its bits alone; what 128 adds is taken back with
// the bias, both times the sum of x over the group.

const int groups = columns / GROUP_SIZE;
int w_rows[4];
#pragma unroll
for (int i = 0; i < 4; i++) {
  w_rows[i] = min(first + quad + 8 * i, rows_of_w - 1);
}
// The codes of the next columns are loaded while those of these are multiplied, or with them.
constexpr bool AHEAD = TILES < 4;
constexpr int UNROLL = AHEAD ? 1 : 2;
uint2 codes[4];
T scale[4];
T bias[4];
auto load = [&](int block) {
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    const uint32_t* from = w + static_cast<int64_t>(w_rows[i]) * (columns / 8) + block * 8 + part * 2;
    codes[i] = *reinterpret_cast<const uint2*>(from);
    const int64_t group = static_cast<int64_t>(w_rows[i]) * groups + block * 64 / GROUP_SIZE;
    scale[i] = scales[group];
    bias[i] = biases[group];
  }
};
if (AHEAD && warp < columns / 64) {
  load(warp);
}
#pragma unroll UNROLL
for (int block = warp; block < columns / 64; block += WARPS) {
  if (!AHEAD) {
    load(block);
  }
  uint2 own[4];
  float by[4];
  float added[4];
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    own[i] = codes[i];
    by[i] = static_cast<float>(scale[i]);
    added[i] = static_cast<float>(bias[i]) - 128 * by[i];
  }
  if (AHEAD && block + WARPS < columns / 64) {
    load(block + WARPS);
  }
  #pragma unroll
  for (int t = 0; t < TILES; t++) {
    const int row = t * 8 + quad;
    uint4 low = make_uint4(0, 0, 0, 0);
    uint4 high = make_uint4(0, 0, 0, 0);
    if (row < rows_of_x) {
      const T* from = x + row * columns + block * 64 + part * 16;
      low = *reinterpret_cast<const uint4*>(from);
      high = *reinterpret_cast<const uint4*>(from + 8);
    }
    // In the order of the codes: 0 and 4, 1 and 5, 2 and 6, 3 and 7.
    const unsigned values[8] = {
        __byte_perm(low.x, low.z, 0x5410),
        __byte_perm(low.x, low.z, 0x7632),
        __byte_perm(low.y, low.w, 0x5410),
        __byte_perm(low.y, low.w, 0x7632),
        __byte_perm(high.x, high.z, 0x5410),
        __byte_perm(high.x, high.z, 0x7632),
        __byte_perm(high.y, high.w, 0x5410),
        __byte_perm(high.y, high.w, 0x7632)};
    constexpr unsigned ONES = 0x3f803f80;
    float all[4] = {0, 0, 0, 0};
    #pragma unroll
    for (int j = 0; j < 8; j += 2) {
      multiply(all, ONES, ONES, ONES, ONES, values[j], values[j + 1]);
    }
    #pragma unroll
    for (int m = 0; m < 2; m++) {
      float dots[4] = {0, 0, 0, 0};
      #pragma unroll
      for (int j = 0; j < 8; j += 2) {
        auto weight = [&](int of, int at) {
          const unsigned word = at < 4 ? own[2 * m + of].x : own[2 * m + of].y;
          return (word >> (4 * (at % 4)) & 0x000f000f) | 0x43004300;
        };
        multiply(
            dots,
            weight(0, j),
            weight(1, j),
            weight(0, j + 1),
            weight(1, j + 1),
            values[j],
            values[j + 1]);
      }
      #pragma unroll
      for (int i = 0; i < 4; i++) {
        const int of = 2 * m + i / 2;
        sums[m][t][i] += by[of] * dots[i] + added[of] * all[i % 2];
      }
    }
  }
}
