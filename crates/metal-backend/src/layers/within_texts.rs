//! Attention within whole texts, which nothing continues: no cache is kept.

use mlx_ffi::{Array, Result, cpu, ops};

use super::attention::{AttentionConfig, Projected};
use super::texts::Group;
use super::{Attention, Fusion, Positions, QkNorms};
use crate::cache::{View, Visible};
use crate::kernels::{Columns, Kernels};

impl Attention {
    /// `x`, `[1, l, hidden_size]`, is of whole texts; so is the result, with its `fusion`. Nothing
    /// is remembered.
    pub fn within_texts(
        &self,
        x: &Array,
        fusion: Fusion<'_>,
        positions: &mut Positions,
    ) -> Result<Array> {
        let projected = self.projected(x, fusion)?;
        let projected = Projected { v: self.normed(projected.v)?, ..projected };
        let texts = positions.texts().cloned().unwrap_or_default();
        let heads = match self.kernels {
            Kernels::Cpu(_) => Some(self.heads_within(&projected, positions)?),
            _ => None,
        };
        let has_one_type =
            |[q, k, v]: &[Array; 3]| k.dtype() == q.dtype() && v.dtype() == q.dtype();
        let out = if let Some([q, k, v]) = heads.filter(has_one_type) {
            let AttentionConfig { scale, softcap, window, sees_later, .. } = self.config;
            let visible = cpu::Visible { starts: &[], causal: !sees_later, window };
            let runs = texts.groups().map(|group| group.run).collect();
            cpu::attention_within([&q, &k, &v], scale, softcap, self.sinks.as_ref(), visible, runs)?
        } else {
            let of_group = |group| self.within_group(&projected, &group, positions);
            let parts = texts.groups().map(of_group).collect::<Result<Vec<_>>>()?;
            match parts.as_slice() {
                [one] => one.share()?,
                _ => ops::concatenate(&parts.iter().collect::<Vec<_>>(), 1)?,
            }
        };
        self.o_proj.forward_fused(&self.gated(out, projected.gate)?, fusion.only_epilogue())
    }

    /// Attention within each text of a group, `[1, l, n_heads * head_dim]`; `projected` is of all
    /// texts.
    fn within_group(
        &self,
        projected: &Projected,
        group: &Group<'_>,
        positions: &mut Positions,
    ) -> Result<Array> {
        let cpu::Run { first, count, length } = group.run;
        let columns = |of: &Columns| -> Result<Columns> {
            let rows = ops::slice_axis(&of.of, 1, first, group.end())?;
            let of_texts = ops::reshape(&rows, &[count, length, -1])?;
            Ok(Columns { of: of_texts, range: of.range.clone() })
        };
        let Projected { q, k, v, .. } = projected;
        let (q, k, v) = (columns(q)?, columns(k)?, columns(v)?);
        // Each text begins at the place 0.
        let [q, keys, values] = self.placed(&q, &k, &v, &mut Positions::at_start())?;
        let AttentionConfig { window, sees_later, .. } = self.config;
        let visible = Visible {
            causal: !sees_later && length > 1,
            window: window.filter(|window| *window < length),
            // No position of a text sees what comes behind it where none sees what comes later.
            ends: if sees_later { group.ends() } else { Vec::new() },
            ..Visible::default()
        };
        let out = self.attended(&q, &View { keys, values, visible }, positions)?;
        ops::reshape(&out, &[1, count * length, -1])
    }

    /// Heads of queries, keys and values at their positions, `[1, n, l, head_dim]` each. They are
    /// copied only where they are normed or rotated: nothing remembers them.
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
