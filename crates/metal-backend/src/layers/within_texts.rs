//! Attention within whole texts, which nothing continues: no cache is kept.

use mlx_ffi::{Array, Result};

use super::{Attention, Fusion, Positions};
use crate::cache::{View, Visible};

impl Attention {
    /// `x`, `[1, l, hidden_size]`, is of whole texts; so is the result, with its `fusion`. Nothing is
    /// remembered.
    pub fn within_texts(
        &self,
        x: &Array,
        fusion: Fusion<'_>,
        positions: &mut Positions,
    ) -> Result<Array> {
        let projected = self.projected(x, fusion)?;
        let [q, k, v] = self.placed(&projected.q, &projected.k, &projected.v, positions)?;
        let texts = positions.texts().cloned().unwrap_or_default();
        let out = texts.attend([&q, &k, &v], |[q, keys, values]| {
            let [_, _, l, _] = q.dims()?;
            let causal = !self.config.sees_later;
            let window = self.config.window.filter(|window| *window < l);
            let visible = Visible { causal: causal && l > 1, window, ..Visible::default() };
            self.attended(&q, &View { keys, values, visible }, positions)
        })?;
        self.o_proj.forward_fused(&self.gated(out, projected.gate)?, fusion.only_epilogue())
    }
}
