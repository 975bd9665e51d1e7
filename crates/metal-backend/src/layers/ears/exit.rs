//! The exit of an audio tower: to vectors of the language model.

use mlx_ffi::{Array, Indices, Result, ops};

use crate::layers::{Linear, RmsNorm};

/// Makes the language model's vectors of those behind the last block.
#[derive(Debug)]
pub(crate) struct EarExit {
    /// Of so many places, the first one is taken.
    pub reduction: i32,
    /// Before the norm.
    pub output: Option<Linear>,
    pub norm: RmsNorm,
    pub projection: Linear,
    pub out_norm: Option<RmsNorm>,
    pub padding: Option<EarPadding>,
}

/// Vectors behind those of a sound, so that all sounds have as many (Gemma 3n).
#[derive(Debug)]
pub(crate) struct EarPadding {
    /// Vectors of a sound.
    pub count: i32,
    /// The tower's own ids, `[ids, hidden_size]`.
    pub embedding: Array,
    pub norm: RmsNorm,
    /// The row that fills up, and that of the mark behind the sound, which is no id of the language
    /// model's own.
    pub rows: [u32; 2],
}

impl EarExit {
    /// `[1, n, hidden_size]` to `[1, t, hidden_size]` of the language model: a vector for each
    /// place that is taken; where there is padding, as many as that says, and the one of the mark.
    pub fn forward(&self, h: &Array) -> Result<Array> {
        let [_, n, size] = h.dims()?;
        let places: Vec<u32> =
            (0..n).step_by(self.reduction.max(1) as usize).map(|at| at as u32).collect();
        let count = places.len() as i32;
        let h = match count == n {
            true => h.share()?,
            false => ops::take(h, &Indices::from_u32(&places, &[count])?, 1)?,
        };
        let h = self.output.as_ref().map_or_else(|| h.share(), |output| output.forward(&h))?;
        let features = self.projected(&self.norm.forward(&h)?)?;
        let Some(EarPadding { count: all, embedding, norm, rows: [fills, ends] }) = &self.padding
        else {
            return Ok(features);
        };
        let mut rows = vec![*fills; (all - count).max(0) as usize];
        rows.push(*ends);
        let own = ops::take(embedding, &Indices::from_u32(&rows, &[rows.len() as i32])?, 0)?;
        let own = ops::reshape(&own, &[1, rows.len() as i32, size])?;
        ops::concatenate(&[&features, &self.projected(&norm.forward(&own)?)?], 1)
    }

    fn projected(&self, normed: &Array) -> Result<Array> {
        let x = self.projection.forward(normed)?;
        self.out_norm.as_ref().map_or_else(|| x.share(), |norm| norm.forward(&x))
    }
}
