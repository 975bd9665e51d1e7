// The gated values: an activation of columns of one array times columns of another. One value for each thread; a column of the
// gate is for EACH of the others.

const int64_t count = thread_position_in_grid.x;
const int64_t row = thread_position_in_grid.y;
const float open = activation_of<ACTIVATION>(static_cast<float>(gate[row * GATE_COLUMNS + GATE_AT + count / EACH]));
const float value = HAS_UP ? static_cast<float>(up[row * UP_COLUMNS + UP_AT + count]) : 1.0f;
out[row * COUNT + count] = static_cast<T>(open * value);
