//! Attention of queries that are made to keys and values that are held, by MLX or by kernels for
//! CPUs.

use mlx_ffi::fast::AttentionMask;
use mlx_ffi::{Array, Result, cpu, fast, ops};

use super::planned::for_plans;
use super::{Attention, AttentionConfig, Positions};
use crate::cache::{Mask, View, Visible};
use crate::kernels::lowest;

/// The most positions of a text whose scores are all held at once on CUDA where that is not needed.
const MOST_COMPOSED: i32 = 1024;

impl Attention {
    /// Queries `[b, n_heads, l, d]` over keys and values: `[b, l, n_heads * d]`.
    pub(super) fn attended(
        &self,
        q: &Array,
        view: &View,
        positions: &mut Positions,
    ) -> Result<Array> {
        let (k, v) = (&view.keys, &view.values);
        let has_one_type = k.dtype() == q.dtype() && v.dtype() == q.dtype();
        let Visible { ref starts, ref ends, causal, window, ref firsts, ref spans } = view.visible;
        let is_known = spans.is_empty() && ends.is_empty() && firsts.is_empty();
        if self.kernels.is_ours_on_cpu() && has_one_type && is_known {
            let visible = cpu::Visible { starts, causal, window };
            let AttentionConfig { scale, softcap, .. } = self.config;
            return cpu::attention(q, k, v, scale, softcap, self.sinks.as_ref(), visible);
        }
        let [b, n_heads, l, d] = q.dims()?;
        let out = self.attend(q, view, positions)?;
        ops::reshape(&ops::swap_axes(&out, 1, 2)?, &[b, l, n_heads * d])
    }

    /// Returns true when attention is made of several operations although there is a fused one.
    /// cuDNN compiles a plan for each number and length of texts, which takes longer than they do.
    fn composes(&self, view: &View, positions: &Positions) -> bool {
        let keys = view.keys.shape().get(2).copied().unwrap_or(0);
        let is_planned = self.kernels.is_on_cuda() && view.keys.dtype().is_half();
        is_planned && positions.texts().is_some() && keys <= MOST_COMPOSED && self.sinks.is_none()
    }

    /// Queries `[b, n_heads, l, d]` over keys and values by MLX's operations: `[b, n_heads, l, d]`.
    fn attend(&self, q: &Array, view: &View, positions: &mut Positions) -> Result<Array> {
        let scale = self.config.scale;
        let (k, v) = (&view.keys, &view.values);
        let [b, n_heads, l, d] = q.dims()?;
        let softcap = self.config.softcap;
        if softcap.is_none() && !self.composes(view, positions) {
            let mask = match positions.mask(view, l)? {
                Mask::None => AttentionMask::None,
                Mask::Causal => AttentionMask::Causal,
                Mask::Array(array) => AttentionMask::Array(array),
            };
            let sinks = self.sinks.as_ref();
            let [k, v] = for_plans(self.kernels, [k, v], l)?;
            return fast::scaled_dot_product_attention(q, &k, &v, scale, mask, sinks);
        }
        // The fused kernel has no softcap.
        let [_, n_kv_heads, _, _] = k.dims()?;
        let dtype = q.dtype();
        let scalar = |value| Array::scalar(value, dtype);
        let q = ops::multiply(q, &scalar(scale)?)?;
        let q = ops::reshape(&q, &[b, n_kv_heads, n_heads / n_kv_heads, l, d])?;
        let k = ops::swap_axes(&ops::expand_dims(k, 2)?, -1, -2)?;
        let scores = ops::matmul(&q, &k)?;
        let scores = match softcap {
            None => scores,
            Some(softcap) => {
                let flat = ops::tanh(&ops::divide(&scores, &scalar(softcap)?)?)?;
                ops::multiply(&flat, &scalar(softcap)?)?
            }
        };
        let scores = match positions.seen(view, l)? {
            None => scores,
            // [b or 1, 1, l, n] -> [b or 1, 1, 1, l, n]
            Some(visible) => ops::where_(&ops::expand_dims(visible, 2)?, &scores, &lowest(dtype)?)?,
        };
        let weights = ops::softmax(&scores, -1, true)?;
        let out = ops::matmul(&weights, &ops::expand_dims(v, 2)?)?;
        ops::reshape(&out, &[b, n_heads, l, d])
    }
}
