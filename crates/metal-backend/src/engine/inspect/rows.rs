//! From a chunk's arrays to the values of all positions.

use inference_core::{AttentionWeights, LayerAttention};
use mlx_ffi::Array;

use crate::error::{Error, Result};
use crate::layers::HeadSizes;

/// The result for a layer over `n` positions, all 0.
pub(super) fn empty(
    layer: usize,
    heads: HeadSizes,
    n: usize,
    with_weights: bool,
) -> LayerAttention {
    let [n_heads, n_kv_heads, head_dim] =
        [heads.n_heads, heads.n_kv_heads, heads.head_dim].map(|size| size as usize);
    let weights =
        || AttentionWeights { values: vec![0.0; n_heads * n * n], entropy: vec![0.0; n_heads * n] };
    LayerAttention {
        layer,
        n_kv_heads,
        n_heads,
        head_dim,
        positions: (0..n).collect(),
        keys: vec![0.0; n_kv_heads * n * head_dim],
        queries: vec![0.0; n_heads * n * head_dim],
        weights: with_weights.then(weights),
    }
}

/// The positions of a chunk among all.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    /// The first one.
    pub first: usize,
    /// How many.
    pub count: usize,
    /// All positions of the prompt.
    pub of: usize,
}

impl Rows {
    /// Copies `part`, `[heads, count, width]`, to its place in `all`, `[heads, of, width]`.
    pub fn take(self, part: &Array, heads: usize, all: &mut [f32]) -> Result<()> {
        let values = numbers(part)?;
        let size = values.len() / heads;
        let all_size = all.len() / heads;
        let at = self.first * (size / self.count);
        for (new, all) in values.chunks_exact(size).zip(all.chunks_exact_mut(all_size)) {
            all[at..at + size].copy_from_slice(new);
        }
        Ok(())
    }

    /// Copies `part`, `[heads, count, n]` over the last `n` keys until this chunk's end, to its
    /// place in `all`, `[heads, of, of]`.
    pub fn take_weights(self, part: &Array, all: &mut [f32]) -> Result<()> {
        let values = numbers(part)?;
        let [_, _, n] = part.dims()?;
        let (n, end) = (n as usize, self.first + self.count);
        let heads =
            values.chunks_exact(self.count * n).zip(all.chunks_exact_mut(self.of * self.of));
        for (new, all) in heads {
            let rows = all.chunks_exact_mut(self.of).skip(self.first);
            for (new, row) in new.chunks_exact(n).zip(rows) {
                row[end - n..end].copy_from_slice(new);
            }
        }
        Ok(())
    }
}

/// The values of an array.
///
/// # Errors
/// One that is no number.
fn numbers(array: &Array) -> Result<Vec<f32>> {
    let values = array.to_vec_f32()?;
    match values.iter().all(|value| value.is_finite()) {
        true => Ok(values),
        false => Err(Error::model(
            "its attention has values that are no numbers: the weights are damaged, or overflow \
             the type that they are computed in (try dtype f32)",
        )),
    }
}
