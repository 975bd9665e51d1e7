//! Attention over the keys and values of an earlier layer.

use mlx_ffi::{Array, Dtype, Result, cuda, ops};

use super::positions::SharedKv;
use super::{Attention, Fusion, Positions, Sharing};
use crate::cache::{Slot, View, Visible};
use crate::kernels::Columns;

impl Attention {
    /// `x`, `[b, l, hidden_size]`, as queries over the shared KV of an earlier layer of the same
    /// pass.
    pub fn mix_shared(
        &self,
        x: &Array,
        fusion: Fusion<'_>,
        positions: &mut Positions,
    ) -> Result<Array> {
        let Sharing::Reuses(owner) = self.config.sharing else {
            return Err(mlx_ffi::Error::new("a layer with keys of its own has no cache"));
        };
        let (q, _) = self.qkv.forward(x, fusion)?;
        let (view, k) = match positions.shared_kv(owner)? {
            SharedKv::Slot(slot) if self.steps_over_shared(q.of.dtype(), positions) => {
                let out = self.borrowed_step(&q, &slot, positions)?;
                return self.o_proj.forward_fused(&out, fusion.only_epilogue());
            }
            SharedKv::Slot(slot) => seen_in(&slot, q.of.dtype(), self.config.window)?,
            SharedKv::View(view, k) => (view, k),
        };
        let (q_norm, _) = self.qk_norms.heads();
        let q = self.turned(&q, q_norm, positions)?;
        let out = self.observed(&q, &k, &view, positions)?;
        self.o_proj.forward_fused(&out, fusion.only_epilogue())
    }

    /// Returns true when one operation does all of a step in `dtype` between the projections, for
    /// one position of each row. The step of the layer that shares its KV must be one too.
    pub fn steps_over_shared(&self, dtype: Dtype, positions: &mut Positions) -> bool {
        self.steps_on_cuda(dtype) && self.is_fusible(dtype, positions)
    }

    /// One position of each row, `[b, 1, n_heads * head_dim]`. The layer that shares its KV wrote
    /// its key and value into `slot`.
    fn borrowed_step(&self, q: &Columns, slot: &Slot, positions: &Positions) -> Result<Array> {
        let offsets = positions.step_offsets(slot, self.config.n_heads)?;
        // Only queries are looked at.
        let step = self.new_positions([q; 3], slot, (&offsets.at, &offsets.rows), positions)?;
        cuda::borrowed_step_attention(&step, &offsets.counters)
    }
}

/// The view of each row's new position, which was written into `slot`, of `window` positions; and
/// the new keys.
fn seen_in(slot: &Slot, dtype: Dtype, window: Option<i32>) -> Result<(View, Array)> {
    let end = slot.at + 1;
    let first = window.map_or(0, |window| (end - window).max(0));
    let starts = slot.starts.iter().map(|start| (start - first).max(0)).collect();
    let visible = Visible::new(starts, 1, end - first, window);
    let [keys, values] = slot.held(first, dtype)?;
    let last = ops::slice_axis(&keys, 2, slot.at - first, end - first)?;
    Ok((View { keys, values, visible }, last))
}
