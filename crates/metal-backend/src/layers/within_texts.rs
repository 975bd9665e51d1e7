//! Attention within whole texts, which nothing continues: no cache is kept.

use mlx_ffi::{Array, Result, cpu, ops};

use super::attention::{AttentionConfig, Projected};
use super::{Attention, Fusion, Positions, QkNorms};
use crate::cache::{View, Visible};
use crate::kernels::{Columns, Kernels};

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
        let [q, k, v] = self.heads_within(&projected, positions)?;
        let texts = positions.texts().cloned().unwrap_or_default();
        let causal = !self.config.sees_later;
        let has_one_type = k.dtype() == q.dtype() && v.dtype() == q.dtype();
        let out = if self.kernels == Kernels::Cpu && has_one_type {
            let AttentionConfig { scale, softcap, window, .. } = self.config;
            let visible = cpu::Visible { starts: &[], causal, window };
            let (heads, runs) = ([&q, &k, &v], texts.runs());
            cpu::attention_within(heads, scale, softcap, self.sinks.as_ref(), visible, runs)?
        } else {
            texts.attend([&q, &k, &v], |[q, keys, values]| {
                let [_, _, l, _] = q.dims()?;
                let window = self.config.window.filter(|window| *window < l);
                let visible = Visible { causal: causal && l > 1, window, ..Visible::default() };
                self.attended(&q, &View { keys, values, visible }, positions)
            })?
        };
        self.o_proj.forward_fused(&self.gated(out, projected.gate)?, fusion.only_epilogue())
    }

    /// Heads of queries, keys and values at their positions, `[1, n, l, head_dim]` each. They are copied only
    /// where they are normed or rotated: nothing remembers them.
    fn heads_within(
        &self,
        Projected { q, k, v, .. }: &Projected,
        positions: &mut Positions,
    ) -> Result<[Array; 3]> {
        let seen = |x: &Columns| {
            let [b, l, _] = x.of.dims()?;
            let heads = ops::reshape(&x.array()?, &[b, l, -1, self.config.head_dim])?;
            ops::swap_axes(&heads, 1, 2)
        };
        let is_plain = matches!(self.qk_norms, QkNorms::None) && self.position_scale.is_none();
        if is_plain && self.rope.is_none() {
            return Ok([seen(q)?, seen(k)?, seen(v)?]);
        }
        let [q, k, _] = self.placed(q, k, v, positions)?;
        Ok([q, k, seen(v)?])
    }
}
