//! Attention among the patches of one picture.

use mlx_ffi::fast::AttentionMask;
use mlx_ffi::{Array, Result, cpu, fast, ops};

use super::network::ClippedLinear;
use super::turns::Places;
use crate::kernels::Kernels;
use crate::layers::{Linear, RmsNorm};

/// The projections to queries, keys and values.
#[derive(Debug)]
pub(crate) enum QkvLinears {
    /// One behind the other in one matrix.
    Joined(Linear),
    Separate(Box<[ClippedLinear; 3]>),
}

/// Attention in which every patch sees all of its picture, or of its window.
#[derive(Debug)]
pub(crate) struct TowerAttention {
    pub n_heads: i32,
    pub qkv: QkvLinears,
    /// Over each head of queries, of keys and of values.
    pub norms: Option<[RmsNorm; 3]>,
    pub out: ClippedLinear,
    /// The factor of scores.
    pub scale: f32,
}

impl TowerAttention {
    /// `[1, n, hidden_size]` to the same.
    pub fn forward(&self, x: &Array, places: Places<'_>, kernels: Kernels) -> Result<Array> {
        let [q, k, v] = match &self.qkv {
            QkvLinears::Separate(linears) => {
                let [q, k, v] = &**linears;
                [q.forward(x)?, k.forward(x)?, v.forward(x)?]
            }
            QkvLinears::Joined(linear) => {
                let all = linear.forward(x)?;
                let size = all.shape().last().copied().unwrap_or(0) / 3;
                let part = |index: i32| ops::slice_axis(&all, -1, index * size, (index + 1) * size);
                [part(0)?, part(1)?, part(2)?]
            }
        };
        let [b, n, _] = q.dims()?;
        let heads = |x: &Array, norm: Option<&RmsNorm>| {
            let x = ops::reshape(x, &[b, n, self.n_heads, -1])?;
            let x = norm.map_or_else(|| x.share(), |norm| norm.forward(&x))?;
            ops::swap_axes(&x, 1, 2)
        };
        let norm = |index: usize| self.norms.as_ref().map(|norms| &norms[index]);
        let (q, k, v) = (heads(&q, norm(0))?, heads(&k, norm(1))?, heads(&v, norm(2))?);
        let turned = |x: Array| places.turns.map_or_else(|| x.share(), |turns| turns.apply(&x));
        let (q, k) = (turned(q)?, turned(k)?);
        let attend = |qkv: [&Array; 3]| self.attend(qkv, kernels);
        let out = match places.windows {
            None => attend([&q, &k, &v])?,
            Some(windows) => windows.attended([&q, &k, &v], attend)?,
        };
        self.out.forward(&out)
    }

    /// Of queries, keys and values, `[b, n_heads, n, head_dim]` each, `[b, n, n_heads · head_dim]`.
    fn attend(&self, [q, k, v]: [&Array; 3], kernels: Kernels) -> Result<Array> {
        if kernels.is_ours_on_cpu() {
            return cpu::attention(q, k, v, self.scale, None, None, cpu::Visible::default());
        }
        let mask = AttentionMask::None;
        let out = fast::scaled_dot_product_attention(q, k, v, self.scale, mask, None)?;
        let [b, n_heads, n, head_dim] = out.dims()?;
        ops::reshape(&ops::swap_axes(&out, 1, 2)?, &[b, n, n_heads * head_dim])
    }
}
