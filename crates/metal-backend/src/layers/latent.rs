//! Latent attention: what is remembered of a position is one vector, of which all heads' keys and
//! values are made.

use mlx_ffi::cuda::{self, LatentStep};
use mlx_ffi::fast::AttentionMask;
use mlx_ffi::{Array, Dtype, Result, cpu, fast, ops};

use super::indexer::Search;
use super::observed::Scores;
use super::{
    Fusion, HeadLinear, HeadSizes, KeyChoice, Linear, Observed, PositionScale, Positions, RmsNorm,
    Rope, Workspace,
};
use crate::cache::{KvCache, KvSpec, Mask, Slot, View, Visible};
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

/// Latent attention (DeepSeek V2 and V3), computed on the latents: a query meets them in their own
/// space, and so does what it sees, so that keys and values of heads are never made.
#[derive(Debug)]
pub(crate) struct LatentAttention {
    pub sizes: LatentSizes,
    /// The factor of scores.
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
    /// A factor of queries that grows with positions.
    pub position_scale: Option<PositionScale>,
    /// The keys that are attended to, of those that a position sees.
    pub choice: KeyChoice,
    pub o_proj: Linear,
    /// Whose kernels attend.
    pub kernels: Kernels,
}

impl LatentQueries {
    fn forward(&self, x: &Array) -> Result<Array> {
        match self {
            LatentQueries::Whole(linear) => linear.forward(x),
            LatentQueries::LowRank { up, .. } => up.forward(&self.low(x)?),
        }
    }

    /// The low rank of the queries of `x`, or `x` itself where there is none.
    fn low(&self, x: &Array) -> Result<Array> {
        match self {
            LatentQueries::Whole(_) => x.share(),
            LatentQueries::LowRank { down, norm, .. } => norm.forward(&down.forward(x)?),
        }
    }

    /// [`forward`](Self::forward) for one position of each row, with the prologue of `fusion`, such
    /// that a captured step can hold it.
    fn step(&self, x: &Array, fusion: Fusion<'_>) -> Result<Array> {
        match self {
            LatentQueries::Whole(linear) => linear.forward_fused(x, fusion),
            LatentQueries::LowRank { down, norm, up } => {
                let normed = Fusion { norm: Some(norm), ..Fusion::default() };
                let (x, before) = before_products(&down.forward_fused(x, fusion)?, normed)?;
                up.forward_fused(&x, before)
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

/// `x`, and what is fused with its products: the norm of one row is a part of them, that of several
/// is made once.
fn before_products<'a>(x: &Array, fusion: Fusion<'a>) -> Result<(Array, Fusion<'a>)> {
    match x.rows() {
        1 => Ok((x.share()?, fusion.only_prologue())),
        _ => Ok((fusion.prologue(x)?, Fusion::default())),
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
        let [b, l, _] = x.dims()?;
        let ([q, latents], search) = self.asked(x, fusion, positions)?;
        if latents.dtype() == q.dtype()
            && let Some(slot) = self.slot(q.dtype(), l, positions, cache)?
        {
            let out = self.step([&q, &latents], &slot, positions, cache)?;
            return self.o_proj.forward_fused(&out, fusion.only_epilogue());
        }
        let q = self.scaled(&ops::reshape(&q, &[b, l, heads, nope + rope])?, positions)?;
        let q_nope = ops::slice_axis(&q, -1, 0, nope)?;
        let q_rope = ops::swap_axes(&ops::slice_axis(&q, -1, nope, nope + rope)?, 1, 2)?;
        let q_rope = self.turned(&q_rope, positions)?;
        let k_rope = ops::slice_axis(&latents, -1, rank, rank + rope)?;
        let k_rope = self.turned(&ops::expand_dims(&k_rope, 1)?, positions)?;
        let latents = self.latent_norm.forward(&ops::slice_axis(&latents, -1, 0, rank)?)?;
        let latents = ops::expand_dims(&latents, 1)?;
        let keys = ops::concatenate(&[&latents, &k_rope], -1)?;
        let embedded = ops::swap_axes(&self.embed_q.forward(&q_nope)?, 1, 2)?;
        let queries = ops::concatenate(&[&embedded, &q_rope], -1)?;
        let view = self.remembered(&keys, search, positions, cache)?;
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

    /// Queries `[b, l, heads, nope + rope]` with the factor of their positions.
    fn scaled(&self, q: &Array, positions: &Positions) -> Result<Array> {
        let Some(scale) = &self.position_scale else { return q.share() };
        ops::swap_axes(&scale.apply(&ops::swap_axes(q, 1, 2)?, positions)?, 1, 2)
    }

    /// The result of [`projected`](Self::projected), and the question of `x` to an index of the
    /// layer's own.
    fn asked(
        &self,
        x: &Array,
        fusion: Fusion<'_>,
        positions: &mut Positions,
    ) -> Result<([Array; 2], Option<Search>)> {
        let (KeyChoice::Indexed(indexer), LatentQueries::LowRank { up, .. }) =
            (&self.choice, &self.queries)
        else {
            return Ok((self.projected(x, fusion)?, None));
        };
        let x = fusion.only_prologue().prologue(x)?;
        let low = self.queries.low(&x)?;
        let search = indexer.search(&x, &low, positions)?;
        Ok(([up.forward(&low)?, self.latents.forward(&x)?], Some(search)))
    }

    /// Appends `keys`, `[b, 1, l, rank + rope]`, to `cache`: what their positions see. `search`
    /// appends the index's keys too, and chooses for this layer and those that follow it.
    fn remembered(
        &self,
        keys: &Array,
        search: Option<Search>,
        positions: &mut Positions,
        cache: &mut KvCache,
    ) -> Result<View> {
        let rank = self.sizes.rank;
        let [_, _, l, _] = keys.dims()?;
        let Some(search) = search else {
            let mut view = cache.update_latent(keys, rank)?;
            view.hide_first(positions.hides_first())?;
            return Ok(view);
        };
        let mut view = cache.update(keys, &search.keys)?;
        view.hide_first(positions.hides_first())?;
        let chosen = search.choose(&view.values, positions.seen(&view, l)?)?;
        positions.chosen = chosen;
        view.values = ops::slice_axis(&view.keys, -1, 0, rank)?;
        Ok(view)
    }

    /// Queries of `x`, `[b, l, hidden_size]`, and its latents beside the shared key, as the
    /// projections make them.
    fn projected(&self, x: &Array, fusion: Fusion<'_>) -> Result<[Array; 2]> {
        let [_, l, _] = x.dims()?;
        if self.kernels == Kernels::Cuda && l == 1 {
            let (x, before) = before_products(x, fusion)?;
            return Ok([self.queries.step(&x, before)?, self.latents.forward_fused(&x, before)?]);
        }
        let x = fusion.only_prologue().prologue(x)?;
        Ok([self.queries.forward(&x)?, self.latents.forward(&x)?])
    }

    /// The slot in the cache for one position of each row, where `l` is one and there are kernels
    /// of our own for all that such a step in `dtype` does between the projections.
    pub fn slot(
        &self,
        dtype: Dtype,
        l: i32,
        positions: &mut Positions,
        cache: &mut KvCache,
    ) -> Result<Option<Slot>> {
        let projections = [self.embed_q.on_cuda(), self.unembed_out.on_cuda()];
        let norm_fits = self.latent_norm.weights().is_some_and(|norm| norm.weight.dtype() == dtype);
        let fits = self.kernels == Kernels::Cuda
            && l == 1
            && norm_fits
            && self.position_scale.is_none()
            && matches!(self.choice, KeyChoice::All)
            && positions.observer().is_none()
            && cuda::takes_latent_step(dtype, self.sizes.rope, projections);
        if fits { cache.reserve(dtype) } else { Ok(None) }
    }

    /// One position of each row: `[b, 1, heads * value]`.
    fn step(
        &self,
        [q, latents]: [&Array; 2],
        slot: &Slot,
        positions: &mut Positions,
        cache: &mut KvCache,
    ) -> Result<Array> {
        let offsets = positions.chunk_offsets(slot)?;
        let factors = positions.rope_factors();
        let step = LatentStep {
            q,
            latents,
            norm: (&self.latent_norm.weight, self.latent_norm.eps),
            embed_q: self.embed_q.on_cuda(),
            unembed_out: self.unembed_out.on_cuda(),
            held: slot.keys()?,
            at: slot.at,
            on_device: &offsets.at,
            rows: &offsets.rows,
            turn: self.rope.as_ref().map(|rope| rope.on_device(factors)),
            turns_neighbours: self.rope.as_ref().is_some_and(Rope::turns_neighbours),
            scale: self.scale,
        };
        let [out, held] = cuda::latent_step(&step)?;
        cache.fill(vec![held], 1);
        Ok(out)
    }

    /// `x`, `[b, n, l, rope]`, at these positions.
    fn turned(&self, x: &Array, positions: &mut Positions) -> Result<Array> {
        self.rope.as_ref().map_or_else(|| x.share(), |rope| rope.forward(x, positions))
    }

    /// The latents that queries `[b, heads, l, rank + rope]` see, `[b, l, heads * rank]`.
    fn attended(&self, q: &Array, view: &View, positions: &mut Positions) -> Result<Array> {
        let (k, v, scale) = (&view.keys, &view.values, self.scale);
        let chosen = match self.choice {
            KeyChoice::All => None,
            KeyChoice::Indexed(_) | KeyChoice::Last => positions.chosen.as_ref(),
        };
        if let Some(chosen) = chosen {
            return self.attended_by(q, [k, v], AttentionMask::Array(chosen));
        }
        if self.kernels.is_ours_on_cpu() && k.dtype() == q.dtype() {
            let Visible { ref starts, causal, window, .. } = view.visible;
            let visible = cpu::Visible { starts, causal, window };
            return cpu::attention(q, k, v, scale, None, None, visible);
        }
        let [_, _, l, _] = q.dims()?;
        let mask = match positions.mask(view, l)? {
            Mask::None => AttentionMask::None,
            Mask::Causal => AttentionMask::Causal,
            Mask::Array(array) => AttentionMask::Array(array),
        };
        self.attended_by(q, [k, v], mask)
    }

    /// [`attended`](Self::attended) by MLX's operation.
    fn attended_by(
        &self,
        q: &Array,
        [k, v]: [&Array; 2],
        mask: AttentionMask<'_>,
    ) -> Result<Array> {
        let [b, heads, l, _] = q.dims()?;
        let scale = self.scale;
        let out = fast::scaled_dot_product_attention(q, k, v, scale, mask, None)?;
        ops::reshape(&ops::swap_axes(&out, 1, 2)?, &[b, l, heads * self.sizes.rank])
    }

    /// The keys of all heads, `[b, heads, n, nope + rope]`, that `held`, `[b, 1, n, rank + rope]`,
    /// stands for.
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

    /// The latents that it keeps. A context length may bound their positions.
    pub fn kv_spec(&self, context_length: Option<i32>) -> KvSpec {
        let latents = KvSpec::latent(self.sizes.rank + self.sizes.rope, context_length);
        match &self.choice {
            KeyChoice::All | KeyChoice::Last => latents,
            // The index's keys stand in the place of values.
            KeyChoice::Indexed(indexer) => KvSpec { value_dim: indexer.dim, ..latents },
        }
    }

    /// The heads that an observer sees, where they attend to all keys.
    pub fn heads(&self) -> Option<HeadSizes> {
        let LatentSizes { heads, nope, rope, .. } = self.sizes;
        let all = HeadSizes { n_heads: heads, n_kv_heads: heads, head_dim: nope + rope };
        matches!(self.choice, KeyChoice::All).then_some(all)
    }

    /// Values of one position between the projections: queries of both spaces, each before and
    /// after its parts are joined, the latents likewise, and what was seen in both spaces.
    pub fn activations(&self) -> u64 {
        let LatentSizes { heads, rank, nope, rope, value } = self.sizes;
        let [heads, rank, nope, rope, value] =
            [heads, rank, nope, rope, value].map(|size| size as u64);
        let of_head = (nope + rope) + (nope + rank) + 2 * (rank + rope) + 2 * rank + value;
        let index = match &self.choice {
            KeyChoice::Indexed(indexer) => indexer.activations(),
            KeyChoice::All | KeyChoice::Last => 0,
        };
        heads * of_head + 3 * (rank + rope) + index
    }

    /// Bytes of one query's scores for one key, of all heads together: the scores and their
    /// softmax. For several positions no device has a kernel for vectors as long as these that
    /// holds none.
    pub fn score_bytes(&self) -> u64 {
        let index = match &self.choice {
            KeyChoice::Indexed(indexer) => indexer.score_bytes(),
            KeyChoice::All | KeyChoice::Last => 0,
        };
        4 * self.sizes.heads as u64 * 2 + index
    }

    /// Bytes that its products take.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        let into = self.queries.workspace(dtype).and(self.latents.workspace(dtype));
        let into = match &self.choice {
            KeyChoice::Indexed(indexer) => into.then(indexer.workspace(dtype)),
            KeyChoice::All | KeyChoice::Last => into,
        };
        into.then(self.o_proj.workspace(dtype))
    }
}
