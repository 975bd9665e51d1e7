//! The largest of several ranks' values, and which one it is.

/// Each value, F32, with its index behind `first`, U32: what a rank sends.
pub(super) fn paired(values: &[u8], indices: &[u8], first: u32) -> Vec<u8> {
    let indices = indices.as_chunks::<4>().0.iter();
    let pairs = values.as_chunks::<4>().0.iter().zip(indices);
    let of_all = |index: &[u8; 4]| u32::from_ne_bytes(*index).saturating_add(first).to_ne_bytes();
    pairs.flat_map(|(value, index)| [*value, of_all(index)]).flatten().collect()
}

/// Of each row, the index of the largest value in `all`, which are pairs of each rank in turn, of
/// `bytes` bytes each. Of equals, the first one; a value that is no number is less than all.
pub(super) fn choose(all: &[u8], bytes: usize, out: &mut [u8]) {
    let pair = |rank: usize, row: usize| {
        let pair = &all[rank * bytes + 8 * row..][..8];
        let (value, index) = pair.split_at(4);
        let value = value.try_into().map_or(f32::NAN, f32::from_ne_bytes);
        (value, <[u8; 4]>::try_from(index).unwrap_or_default())
    };
    let ranks = all.len() / bytes.max(1);
    for (row, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let (mut most, mut chosen) = pair(0, row);
        for rank in 1..ranks {
            let (value, index) = pair(rank, row);
            if value > most || most.is_nan() {
                (most, chosen) = (value, index);
            }
        }
        *out = chosen;
    }
}
