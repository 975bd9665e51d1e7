//! Words of 32 bits of vectors exchanged with the vectors.

use std::arch::x86_64::*;

/// Word `j` of vector `i` becomes word `i` of vector `j`.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn transpose(rows: [__m512i; 16]) -> [__m512i; 16] {
    let mut pairs = rows;
    for i in 0..8 {
        pairs[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
        pairs[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
    }
    // Quarter q of vector 4 i + j: word 4 q + j of rows 4 i to 4 i + 3.
    let mut fours = pairs;
    for i in 0..4 {
        let [a, b, c, d] = [pairs[4 * i], pairs[4 * i + 1], pairs[4 * i + 2], pairs[4 * i + 3]];
        fours[4 * i] = _mm512_unpacklo_epi64(a, c);
        fours[4 * i + 1] = _mm512_unpackhi_epi64(a, c);
        fours[4 * i + 2] = _mm512_unpacklo_epi64(b, d);
        fours[4 * i + 3] = _mm512_unpackhi_epi64(b, d);
    }
    let mut columns = rows;
    for j in 0..4 {
        let [a, b, c, d] = [fours[j], fours[4 + j], fours[8 + j], fours[12 + j]];
        let (ab, cd) = (_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0x88>(c, d));
        columns[j] = _mm512_shuffle_i32x4::<0x88>(ab, cd);
        columns[8 + j] = _mm512_shuffle_i32x4::<0xdd>(ab, cd);
        let (ab, cd) = (_mm512_shuffle_i32x4::<0xdd>(a, b), _mm512_shuffle_i32x4::<0xdd>(c, d));
        columns[4 + j] = _mm512_shuffle_i32x4::<0x88>(ab, cd);
        columns[12 + j] = _mm512_shuffle_i32x4::<0xdd>(ab, cd);
    }
    columns
}
