// Keys and values as they are.

const HeldKeys<T> held{
    const_cast<T*>(keys) + row * keys_strides[0] + kv_head * keys_strides[1],
    const_cast<T*>(values) + row * values_strides[0] + kv_head * values_strides[1],
    keys_strides[2],
    values_strides[2],
    end};
using Part = typename Either<
    TILED,
    ByTiles<T, TILED ? D : 64, TILED ? GROUP : 1>,
    ByLanes<HeldKeys<T>, T, D, GROUP>>::Type;
// The new key and value are written as they are made.
auto put_key = [&](int at, T value) { held.keys[index_of_new * held.key_stride + at] = value; };
auto put_value = [&](int at, T value) { held.values[index_of_new * held.value_stride + at] = value; };
// They are read where they were made.
auto takes_value = [&](bool is_writer) { return is_writer && !V_NORM && warp == GROUP % BLOCK_WARPS; };
auto settle = [&](const T* key, const T* value, bool is_writer) {
  return HeldKeys<T>{const_cast<T*>(key), const_cast<T*>(value), 0, 0, 1};
};
