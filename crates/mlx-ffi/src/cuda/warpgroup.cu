// The matrix instructions of a warpgroup (Hopper): each of its four warps has 16 rows of the first operand in registers, and all have
// the second one in shared memory. Only where HAS_WARPGROUPS.

template <typename T>
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
constexpr bool HAS_WARPGROUPS = true;
#else
constexpr bool HAS_WARPGROUPS = false;
#endif
// A tile in shared memory, which begins at a multiple of 1024 bytes. Its rows are cut into panels of 128 bytes, BY_PANEL bytes apart.
// Sixteen bytes lie where the swizzle of 128 bytes has them: piece p of row r of a panel is piece p ^ r % 8.
struct SharedTile {
  unsigned long long descriptor;
};
__device__ __forceinline__ SharedTile tile_at(const void* at, int by_panel) {
  return {static_cast<unsigned long long>(shared_address(at) >> 4 & 0x3fff) | static_cast<unsigned long long>(by_panel >> 4) << 16 |
      static_cast<unsigned long long>(1024 >> 4) << 32 | 1ull << 62};
}
// The same, so many bytes further.
__device__ __forceinline__ SharedTile moved(SharedTile tile, int bytes) {
  return {tile.descriptor + (bytes >> 4)};
}
// Stands before instructions whose registers were written.
__device__ __forceinline__ void begin_warpgroup() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_warpgroup() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits for all that was committed. Nothing reads the sums before.
template <int COUNT>
__device__ __forceinline__ void wait_for_warpgroup(float* sums) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  #pragma unroll
  for (int i = 0; i < COUNT; i++) {
    asm volatile("" : "+f"(sums[i])::"memory");
  }
}
// What this thread wrote to shared memory is there for the instructions of warpgroups behind the next barrier.
__device__ __forceinline__ void show_to_warpgroups() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
#define FOUR_SUMS(s, i) "+f"(s[i]), "+f"(s[i + 1]), "+f"(s[i + 2]), "+f"(s[i + 3])
#define SIXTEEN_SUMS(s, i) FOUR_SUMS(s, i), FOUR_SUMS(s, i + 4), FOUR_SUMS(s, i + 8), FOUR_SUMS(s, i + 12)
#define NAMES_OF_32                                                                                        \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27," \
  "%28,%29,%30,%31"
#define NAMES_OF_64                                                                                      \
  NAMES_OF_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53," \
              "%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define MULTIPLY_TILE(TYPE, SIZE, NAMES, REST, ADDS, SUMS, ...)                                                 \
  asm volatile("{.reg .pred adds; setp.ne.b32 adds, " ADDS ", 0; wgmma.mma_async.sync.aligned.m64n" SIZE "k16.f32." \
               TYPE "." TYPE " {" NAMES "}, " REST ";}"                                                         \
               : SUMS                                                                                           \
               : __VA_ARGS__, "r"(static_cast<int>(adds)))
#define SUMS_OF_64 SIXTEEN_SUMS(sums, 0), SIXTEEN_SUMS(sums, 16)
#define SUMS_OF_128 SUMS_OF_64, SIXTEEN_SUMS(sums, 32), SIXTEEN_SUMS(sums, 48)
#define TILES_64(TYPE) \
  MULTIPLY_TILE(TYPE, "64", NAMES_OF_32, "%32, %33, adds, 1, 1, 0, 0", "%34", SUMS_OF_64, "l"(a.descriptor), "l"(b.descriptor))
#define ROWS_64(TYPE)                                                                                        \
  MULTIPLY_TILE(TYPE, "64", NAMES_OF_32, "{%32,%33,%34,%35}, %36, adds, 1, 1, 1", "%37", SUMS_OF_64, "r"(a[0]), \
      "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.descriptor))
#define ROWS_128(TYPE)                                                                                         \
  MULTIPLY_TILE(TYPE, "128", NAMES_OF_64, "{%64,%65,%66,%67}, %68, adds, 1, 1, 1", "%69", SUMS_OF_128, "r"(a[0]), \
      "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.descriptor))
// sums += a b for a of 64 × 16 and b of 16 × 64, whose tiles have rows of a and columns of b. Sums are those of eight products of
// 16 × 8 in `accumulate`. Unless it ADDS, they begin at zero.
template <typename T>
__device__ __forceinline__ void multiply_tiles(float* sums, SharedTile a, SharedTile b, bool adds) {
  if constexpr (IS_HALF<T>) {
    TILES_64("f16");
  } else {
    TILES_64("bf16");
  }
}
// sums += a b for b of 16 × N, whose tile has its rows. Of a, each warp has 16 rows in registers, as in `accumulate`.
template <typename T, int N>
__device__ __forceinline__ void multiply_rows(float* sums, const unsigned* a, SharedTile b) {
  static_assert(N == 64 || N == 128);
  constexpr bool adds = true;
  if constexpr (N == 64 && IS_HALF<T>) {
    ROWS_64("f16");
  } else if constexpr (N == 64) {
    ROWS_64("bf16");
  } else if constexpr (IS_HALF<T>) {
    ROWS_128("f16");
  } else {
    ROWS_128("bf16");
  }
}
