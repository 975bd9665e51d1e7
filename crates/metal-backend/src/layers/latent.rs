//! Latent attention: what is remembered of a position is one vector, of which all heads' keys and values
//! are made.

use mlx_ffi::fast::AttentionMask;
use mlx_ffi::{Array, Dtype, Result, cpu, fast, ops};

use super::observed::Scores;
use super::{Fusion, HeadLinear, HeadSizes, Linear, Observed, Positions, RmsNorm, Rope, Workspace};
use crate::cache::{KvCache, KvSpec, Mask, View, Visible};
use crate::kernels::Kernels;

/// The sizes of latent attention.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LatentSizes {
    pub heads: i32,
    /// Values of a latent.
    pub rank: i32,
    /// Values of a head's query and key that do not see positions.
    pub nope: i32,
    /// Values of a head's query, and of the key that all heads share, that do.
    pub rope: i32,
    /// Values of a head's value.
    pub value: i32,
}

/// The projections to queries.
#[derive(Debug)]
pub(crate) enum LatentQueries {
    /// One matrix.
    Whole(Linear),
    /// Two of a low rank, with a norm between them.
    LowRank { down: Linear, norm: RmsNorm, up: Linear },
}

/// Latent attention (DeepSeek V2 and V3), computed on the latents: a query meets them in their own space,
/// and so does what it sees, so that keys and values of heads are never made.
#[derive(Debug)]
pub(crate) struct LatentAttention {
    pub sizes: LatentSizes,
    /// What scores are multiplied with.
    pub scale: f32,
    /// To `heads * (nope + rope)` values.
    pub queries: LatentQueries,
    /// To a latent and the shared key's `rope` values.
    pub latents: Linear,
    pub latent_norm: RmsNorm,
    /// `nope` to `rank`: a query in the latents' space.
    pub embed_q: HeadLinear,
    /// `rank` to `value`: what was seen out of it.
    pub unembed_out: HeadLinear,
    /// `None`: the `rope` values do not see positions either.
    pub rope: Option<Rope>,
    pub o_proj: Linear,
    /// Whose kernels attend.
    pub kernels: Kernels,
}

impl LatentQueries {
    fn forward(&self, x: &Array) -> Result<Array> {
        match self {
            LatentQueries::Whole(linear) => linear.forward(x),
            LatentQueries::LowRank { down, norm, up } => {
                up.forward(&norm.forward(&down.forward(x)?)?)
            }
        }
    }

    fn workspace(&self, dtype: Dtype) -> Workspace {
        match self {
            LatentQueries::Whole(linear) => linear.workspace(dtype),
            LatentQueries::LowRank { down, up, .. } => {
                down.workspace(dtype).then(up.workspace(dtype))
            }
        }
    }
}

impl LatentAttention {
    /// `x` is `[b, l, hidden_size]`; so is the result, with its `fusion`. Appends `l` positions to
    /// `cache`.
    pub fn forward(
        &self,
        x: &Array,
        fusion: Fusion<'_>,
        positions: &mut Positions,
        cache: &mut KvCache,
    ) -> Result<Array> {
        let LatentSizes { heads, rank, nope, rope, value } = self.sizes;
        let x = fusion.only_prologue().prologue(x)?;
        let [b, l, _] = x.dims()?;
        let q = ops::reshape(&self.queries.forward(&x)?, &[b, l, heads, nope + rope])?;
        let q_nope = ops::slice_axis(&q, -1, 0, nope)?;
        let q_rope = ops::swap_axes(&ops::slice_axis(&q, -1, nope, nope + rope)?, 1, 2)?;
        let q_rope = self.turned(&q_rope, positions)?;
        let latents = self.latents.forward(&x)?;
        let k_rope = ops::slice_axis(&latents, -1, rank, rank + rope)?;
        let k_rope = self.turned(&ops::expand_dims(&k_rope, 1)?, positions)?;
        let latents = self.latent_norm.forward(&ops::slice_axis(&latents, -1, 0, rank)?)?;
        let latents = ops::expand_dims(&latents, 1)?;
        let keys = ops::concatenate(&[&latents, &k_rope], -1)?;
        let embedded = ops::swap_axes(&self.embed_q.forward(&q_nope)?, 1, 2)?;
        let queries = ops::concatenate(&[&embedded, &q_rope], -1)?;
        let view = cache.update_latent(&keys, rank)?;
        if let Some(observed) = positions.observer() {
            let q_nope = ops::swap_axes(&q_nope, 1, 2)?;
            let q = ops::concatenate(&[&q_nope, &q_rope], -1)?;
            let scores = Scores { scale: self.scale, softcap: None, sinks: None };
            let (keys, all) = (self.keys_of_heads(&keys)?, self.keys_of_heads(&view.keys)?);
            *observed = Some(Observed::of([q, keys, all], view.visible.clone(), scores));
        }
        let seen = ops::reshape(&self.attended(&queries, &view, positions)?, &[b, l, heads, rank])?;
        let out = ops::reshape(&self.unembed_out.forward(&seen)?, &[b, l, heads * value])?;
        self.o_proj.forward_fused(&out, fusion.only_epilogue())
    }

    /// `x`, `[b, n, l, rope]`, at these positions.
    fn turned(&self, x: &Array, positions: &mut Positions) -> Result<Array> {
        self.rope.as_ref().map_or_else(|| x.share(), |rope| rope.forward(x, positions))
    }

    /// The latents that queries `[b, heads, l, rank + rope]` see, `[b, l, heads * rank]`.
    fn attended(&self, q: &Array, view: &View, positions: &mut Positions) -> Result<Array> {
        let (k, v, scale) = (&view.keys, &view.values, self.scale);
        if self.kernels.is_ours_on_cpu() && k.dtype() == q.dtype() {
            let Visible { ref starts, causal, window, .. } = view.visible;
            let visible = cpu::Visible { starts, causal, window };
            return cpu::attention(q, k, v, scale, None, None, visible);
        }
        let [b, heads, l, _] = q.dims()?;
        let mask = match positions.mask(view, l)? {
            Mask::None => AttentionMask::None,
            Mask::Causal => AttentionMask::Causal,
            Mask::Array(array) => AttentionMask::Array(array),
        };
        let out = fast::scaled_dot_product_attention(q, k, v, scale, mask, None)?;
        ops::reshape(&ops::swap_axes(&out, 1, 2)?, &[b, l, heads * self.sizes.rank])
    }

    /// The keys of all heads, `[b, heads, n, nope + rope]`, that `held`, `[b, 1, n, rank + rope]`, stands
    /// for.
    fn keys_of_heads(&self, held: &Array) -> Result<Array> {
        let LatentSizes { heads, rank, rope, .. } = self.sizes;
        let [b, _, n, width] = held.dims()?;
        let latents = ops::slice_axis(held, -1, 0, rank)?;
        let matrices = ops::expand_dims(&self.embed_q.matrices(held.dtype())?, 0)?;
        let own = ops::matmul(&latents, &matrices)?;
        let shared = ops::slice_axis(held, -1, rank, width)?;
        let shared = ops::broadcast_to(&shared, &[b, heads, n, rope])?;
        ops::concatenate(&[&own, &shared], -1)
    }

    /// What it remembers, of which a context length may bound the positions.
    pub fn kv_spec(&self, context_length: Option<i32>) -> KvSpec {
        KvSpec::latent(self.sizes.rank + self.sizes.rope, context_length)
    }

    /// The heads that an observer sees.
    pub fn heads(&self) -> HeadSizes {
        let LatentSizes { heads, nope, rope, .. } = self.sizes;
        HeadSizes { n_heads: heads, n_kv_heads: heads, head_dim: nope + rope }
    }

    /// Values of one position between the projections: queries of both spaces, each before and after its
    /// parts are joined, the latents likewise, and what was seen in both spaces.
    pub fn activations(&self) -> u64 {
        let LatentSizes { heads, rank, nope, rope, value } = self.sizes;
        let [heads, rank, nope, rope, value] =
            [heads, rank, nope, rope, value].map(|size| size as u64);
        let of_head = (nope + rope) + (nope + rank) + 2 * (rank + rope) + 2 * rank + value;
        heads * of_head + 3 * (rank + rope)
    }

    /// Bytes of one query's scores for one key, of all heads together: the scores and their softmax. No
    /// device has a kernel for vectors as long as these that holds none.
    pub fn score_bytes(&self) -> u64 {
        4 * self.sizes.heads as u64 * 2
    }

    /// Bytes that its products take.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        let into = self.queries.workspace(dtype).and(self.latents.workspace(dtype));
        into.then(self.o_proj.workspace(dtype))
    }
}
