//! Draws that end nothing, before the fewest tokens that a request asks for.

use mlx_ffi::{Array, Dtype, Indices, Result, ops};

use super::Sampler;

impl Sampler {
    /// Does not draw `eos`, nor the request's own ids that end it, before its `min_tokens`.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn going_on(self, eos: &[u32]) -> Result<Sampler> {
        let ids: Vec<u32> = eos.iter().chain(&self.options.stop_token_ids).copied().collect();
        if self.options.min_tokens == 0 || ids.is_empty() {
            return Ok(self);
        }
        let ends = Some(Indices::from_u32(&ids, &[1, ids.len() as i32])?);
        Ok(Sampler { ends, end_ids: ids, ..self })
    }

    /// Returns true when the next draw is none that ends.
    pub(super) fn must_go_on(&self) -> bool {
        self.ends.is_some() && self.step < self.options.min_tokens as u64
    }

    /// The ids that the next draw must not be.
    pub(super) fn forbidden_ends(&self) -> &[u32] {
        if self.must_go_on() { &self.end_ids } else { &[] }
    }

    /// The logits that a draw is held to, `[1, vocab_size]`: impossible where an id is not of
    /// `allowed`, or else an end that is not drawn yet. `None`: nothing holds it.
    pub(super) fn held(&self, logits: &Array, allowed: Option<&Array>) -> Result<Option<Array>> {
        let lowest = Array::scalar(f32::NEG_INFINITY, Dtype::F32)?;
        if let Some(allowed) = allowed {
            return Ok(Some(ops::where_(allowed, logits, &lowest)?));
        }
        let Some(ends) = self.ends.as_ref().filter(|_| self.must_go_on()) else { return Ok(None) };
        let lowest = ops::broadcast_to(&lowest, ends.shape())?;
        Ok(Some(ops::put_along_axis(logits, ends, &lowest, -1)?))
    }
}
