// Packed keys and values.

const PackedKeys<T, BITS, SIZE> held{
    const_cast<uint32_t*>(keys) + row * keys_strides[0] + kv_head * keys_strides[1],
    const_cast<uint32_t*>(values) + row * values_strides[0] + kv_head * values_strides[1],
    {const_cast<T*>(key_scales) + row * key_scales_strides[0] + kv_head * key_scales_strides[1],
     const_cast<T*>(key_biases) + row * key_biases_strides[0] + kv_head * key_biases_strides[1]},
    {const_cast<T*>(value_scales) + row * value_scales_strides[0] + kv_head * value_scales_strides[1],
     const_cast<T*>(value_biases) + row * value_biases_strides[0] + kv_head * value_biases_strides[1]},
    keys_strides[2],
    values_strides[2],
    key_scales_strides[2],
    value_scales_strides[2],
    end};
using Part = typename Either<
    TILED,
    ByPackedTiles<T, TILED ? D : 64, TILED ? GROUP : 1, BITS, TILES>,
    ByLanes<PackedKeys<T, BITS, SIZE>, T, D, GROUP>>::Type;
// The new key and value are packed once they are whole.
auto put_key = [&](int at, T value) {};
__shared__ T value_of_new_position[D];
auto put_value = [&](int at, T value) { value_of_new_position[at] = value; };
__shared__ NewPacked<T, D, BITS, SIZE> packed;
// Splits that end before it see nothing of it.
const bool sees_new = !BORROWS && end == n;
auto takes_value = [&](bool is_writer) { return sees_new && !V_NORM && warp == GROUP % BLOCK_WARPS; };
auto settle = [&](const T* key, const T* value, bool is_writer) {
  const PackedKeys<T, BITS, SIZE> own = packed.held();
  if (sees_new) {
    constexpr int GROUPS = D / SIZE;
    for (int unit = warp; unit < 2 * GROUPS; unit += BLOCK_WARPS) {
      const T* const made_value = V_NORM ? value : value_of_new_position;
      packed.pack(unit / GROUPS, unit % GROUPS, unit < GROUPS ? key : made_value);
    }
    __syncthreads();
    if (is_writer) {
      packed.write(held, index_of_new);
    }
  }
  return own;
};
