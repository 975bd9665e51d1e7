// Positions of some rows of several buffers, copied side by side: the blocks of one z copy a row's of one buffer, those of one y a head's.
// places: for each row its index, its slot, its first position, where that goes, and how many there are.

let_next_begin();
wait_for_last();
// MLX looks for the names of shapes and strides in this text, so a macro cannot make them.
const int rows = places_shape[0] / PLACE_NUMBERS;
const int* const place = places + blockIdx.z % rows * PLACE_NUMBERS;
switch (blockIdx.z / rows) {
  case 0:
    copy_positions_of(part0, part0_shape, part0_strides, kept, place);
    break;
  case 1:
    copy_positions_of(part1, part1_shape, part1_strides, kept, place);
    break;
  case 2:
    copy_positions_of(part2, part2_shape, part2_strides, kept, place);
    break;
  case 3:
    copy_positions_of(part3, part3_shape, part3_strides, kept, place);
    break;
  case 4:
    copy_positions_of(part4, part4_shape, part4_strides, kept, place);
    break;
  case 5:
    copy_positions_of(part5, part5_shape, part5_strides, kept, place);
    break;
  case 6:
    copy_positions_of(part6, part6_shape, part6_strides, kept, place);
    break;
  case 7:
    copy_positions_of(part7, part7_shape, part7_strides, kept, place);
    break;
  case 8:
    copy_positions_of(part8, part8_shape, part8_strides, kept, place);
    break;
  case 9:
    copy_positions_of(part9, part9_shape, part9_strides, kept, place);
    break;
  case 10:
    copy_positions_of(part10, part10_shape, part10_strides, kept, place);
    break;
  case 11:
    copy_positions_of(part11, part11_shape, part11_strides, kept, place);
    break;
  case 12:
    copy_positions_of(part12, part12_shape, part12_strides, kept, place);
    break;
  case 13:
    copy_positions_of(part13, part13_shape, part13_strides, kept, place);
    break;
  case 14:
    copy_positions_of(part14, part14_shape, part14_strides, kept, place);
    break;
  case 15:
    copy_positions_of(part15, part15_shape, part15_strides, kept, place);
    break;
}
