//! Grouped-query attention over a cache.

use mlx_ffi::fast::AttentionMask;
use mlx_ffi::{Array, Dtype, Result, cpu, fast, ops};

use super::{Linear, Product, RmsNorm, Rope};
use crate::cache::{Cache, Mask};

/// The sizes of an attention layer and how its scores are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionConfig {
    /// Query heads.
    pub n_heads: i32,
    /// Key and value heads, each shared by `n_heads / n_kv_heads` query heads.
    pub n_kv_heads: i32,
    /// Values of a head.
    pub head_dim: i32,
    /// What scores are multiplied with.
    pub scale: f32,
    /// Scores are squashed to ± this by tanh.
    pub softcap: Option<f32>,
    /// How many positions a position sees, itself included; `None`: all before it.
    pub window: Option<i32>,
}

/// Attention with optional norms on each head's queries and keys.
#[derive(Debug)]
pub(crate) struct Attention {
    pub config: AttentionConfig,
    pub q_proj: Linear,
    pub k_proj: Linear,
    pub v_proj: Linear,
    pub o_proj: Linear,
    pub q_norm: Option<RmsNorm>,
    pub k_norm: Option<RmsNorm>,
    pub rope: Rope,
    pub product: Product,
}

impl Attention {
    /// `x` is `[b, l, hidden_size]`; so is the result. Appends `l` positions to `cache`.
    pub fn forward(&self, x: &Array, mask: &Mask, cache: &mut Cache) -> Result<Array> {
        let AttentionConfig { n_heads, n_kv_heads, head_dim, .. } = self.config;
        let [b, l, _] = x.dims()?;
        // [b, l, n * head_dim] -> [b, n, l, head_dim]
        let heads = |projected: Array, n: i32, norm: &Option<RmsNorm>| -> Result<Array> {
            let split = ops::reshape(&projected, &[b, l, n, head_dim])?;
            let split = match norm {
                None => split,
                Some(norm) => norm.forward(&split)?,
            };
            ops::swap_axes(&split, 1, 2)
        };
        let q = heads(self.q_proj.forward(x)?, n_heads, &self.q_norm)?;
        let k = heads(self.k_proj.forward(x)?, n_kv_heads, &self.k_norm)?;
        let v = heads(self.v_proj.forward(x)?, n_kv_heads, &None)?;
        // Positions continue where the cache ends.
        let offset = cache.offset();
        let q = self.rope.forward(&q, offset)?;
        let k = self.rope.forward(&k, offset)?;
        let (k, v) = cache.update(&k, &v)?;
        let out = self.attend(&q, &k, &v, mask)?;
        let out = ops::reshape(&ops::swap_axes(&out, 1, 2)?, &[b, l, n_heads * head_dim])?;
        self.o_proj.forward(&out)
    }

    /// Elements that one position takes in the cache.
    pub fn kv_elements(&self) -> u64 {
        2 * self.config.n_kv_heads as u64 * self.config.head_dim as u64
    }

    /// Queries `[b, n_heads, l, d]` over keys and values `[b, n_kv_heads, n, d]`.
    fn attend(&self, q: &Array, k: &Array, v: &Array, mask: &Mask) -> Result<Array> {
        let scale = self.config.scale;
        let ours = self.product == Product::CpuKernels && q.dtype() == k.dtype();
        if ours && !matches!(mask, Mask::Array(_)) {
            let causal = matches!(mask, Mask::Causal);
            let visible = cpu::Visible { starts: &[], causal, window: None };
            return cpu::attention(q, k, v, scale, self.config.softcap, None, visible);
        }
        let Some(softcap) = self.config.softcap else {
            let mask = match mask {
                Mask::None => AttentionMask::None,
                Mask::Causal => AttentionMask::Causal,
                Mask::Array(array) => AttentionMask::Array(array),
            };
            return fast::scaled_dot_product_attention(q, k, v, scale, mask, None);
        };
        // The fused kernel has no softcap.
        let [b, n_heads, l, d] = q.dims()?;
        let [_, n_kv_heads, n, _] = k.dims()?;
        let dtype = q.dtype();
        let scalar = |value| Array::scalar(value, dtype);
        let q = ops::multiply(q, &scalar(scale)?)?;
        let q = ops::reshape(&q, &[b, n_kv_heads, n_heads / n_kv_heads, l, d])?;
        let k = ops::swap_axes(&ops::expand_dims(k, 2)?, -1, -2)?;
        let scores = ops::matmul(&q, &k)?;
        let scores = ops::tanh(&ops::divide(&scores, &scalar(softcap)?)?)?;
        let scores = ops::multiply(&scores, &scalar(softcap)?)?;
        let causal;
        let visible = match mask {
            Mask::None => None,
            Mask::Array(array) => Some(array),
            Mask::Causal => {
                causal = crate::cache::window_mask(l, n - l, n)?;
                Some(&causal)
            }
        };
        let scores = match visible {
            None => scores,
            Some(visible) => ops::where_(visible, &scores, &lowest(dtype)?)?,
        };
        let weights = ops::softmax(&scores, -1, true)?;
        let out = ops::matmul(&weights, &ops::expand_dims(v, 2)?)?;
        ops::reshape(&out, &[b, n_heads, l, d])
    }
}

/// The lowest finite value of a floating-point type, a scalar.
fn lowest(dtype: Dtype) -> Result<Array> {
    let value = match dtype {
        Dtype::F16 => -65504.0,
        Dtype::Bf16 => -3.389_531_4e38,
        _ => f32::MIN,
    };
    Array::scalar(value, dtype)
}
