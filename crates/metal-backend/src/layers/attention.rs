//! Grouped-query attention over a cache.

use mlx_ffi::cuda::Attended;
use mlx_ffi::step::{HeadNorms, Step};
use mlx_ffi::{Array, Device, Dtype, Result, cpu, cuda, ops};

use super::observed::Scores;
use super::planned::is_for_kernels;
use super::{
    Fusion, HeadSizes, Linear, Observed, OutputGate, PositionScale, Positions, QkNorms, Qkv,
    RmsNorm, Rope, Sharing, Workspace,
};
use crate::cache::{KvCache, KvSpec, Slot, View};
use crate::config::RopePairs;
use crate::kernels::{Activation, Columns, Kernels};

/// The sizes of an attention layer and how its scores are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionConfig {
    /// Query heads.
    pub n_heads: i32,
    /// Key and value heads, each shared by `n_heads / n_kv_heads` query heads.
    pub n_kv_heads: i32,
    /// Values of a head.
    pub head_dim: i32,
    /// The factor of scores.
    pub scale: f32,
    /// Scores are squashed to ± this by tanh.
    pub softcap: Option<f32>,
    /// Queries, keys and values are held within ± this.
    pub clip: Option<f32>,
    /// How many positions a position sees, itself included; `None`: all before it.
    pub window: Option<i32>,
    /// A position sees none before its own chunk, of so many positions as the window has.
    pub in_chunks: bool,
    /// The positions of a picture see each other.
    pub sees_whole: bool,
    /// A position also sees those behind it: the layer embeds whole texts.
    pub sees_later: bool,
    pub sharing: Sharing,
}

/// Attention with optional norms on queries and keys.
#[derive(Debug)]
pub(crate) struct Attention {
    pub config: AttentionConfig,
    pub qkv: Qkv,
    pub o_proj: Linear,
    pub qk_norms: QkNorms,
    /// Over each head of values.
    pub v_norm: Option<RmsNorm>,
    /// `None`: the layer does not see positions.
    pub rope: Option<Rope>,
    /// A factor of queries that grows with positions.
    pub position_scale: Option<PositionScale>,
    /// One more logit for each head, `[n_heads]`, that takes part in the softmax and adds nothing.
    /// Never beside a softcap.
    pub sinks: Option<Array>,
    /// The gate of the output.
    pub gate: OutputGate,
    /// Whose kernels norm, rotate and attend, where the operands have one type.
    pub kernels: Kernels,
}

/// Queries, keys and values of all heads, `[b, l, …]`, before norms, and the output's gate.
pub(super) struct Projected {
    pub q: Columns,
    pub k: Columns,
    pub v: Columns,
    pub gate: Option<(Activation, Columns)>,
}

impl Attention {
    /// `x` is `[b, l, hidden_size]`; so is the result, with its `fusion`. Appends `l`
    /// positions to `cache`.
    pub fn forward(
        &self,
        x: &Array,
        fusion: Fusion<'_>,
        positions: &mut Positions,
        cache: &mut KvCache,
    ) -> Result<Array> {
        let Projected { q, k, v, gate } = self.projected(x, fusion)?;
        let out = match positions.decode_rows.take() {
            None => self.mix([q, k, v], positions, cache)?,
            Some(mut rows) => {
                let out = self.mix_both(&mut rows, [q, k, v], positions, cache)?;
                positions.decode_rows = Some(rows);
                out
            }
        };
        self.o_proj.forward_fused(&self.gated(out, gate)?, fusion.only_epilogue())
    }

    /// The heads' outputs, `[b, l, n_heads * head_dim]`, before the gate and the output projection.
    /// Appends `l` positions to `cache`.
    pub(super) fn mix(
        &self,
        [q, k, v]: [Columns; 3],
        positions: &mut Positions,
        cache: &mut KvCache,
    ) -> Result<Array> {
        let ([_, l, _], dtype) = (q.of.dims()?, q.of.dtype());
        let are_alike = [&k, &v].iter().all(|part| part.of.dtype() == dtype);
        let hides_first = positions.hides_first() && self.config.window.is_none();
        if are_alike && let Some(mut slot) = self.slot(dtype, l, positions, cache)? {
            slot.hide_first(hides_first);
            // Kernels for CUDA norm values themselves.
            let v = if self.kernels == Kernels::Cuda { v } else { self.normed(v)? };
            return self.step([&q, &k, &v], slot, positions, cache);
        }
        let v = self.normed(v)?;
        if are_alike && let Some(slot) = self.chunk_slot(dtype, l, positions, cache)? {
            let offsets = positions.chunk_offsets(&slot)?;
            let step =
                self.new_positions([&q, &k, &v], &slot, (&offsets.at, &offsets.rows), positions)?;
            let norms = step.norms.map(|norms| HeadNorms { v: None, ..norms });
            let Attended { out, buffers } = cuda::chunk_attention(&Step { norms, ..step })?;
            cache.fill(buffers, l);
            return Ok(out);
        }
        let [q, k, v] = self.placed(&q, &k, &v, positions)?;
        let mut view = cache.update(&k, &v)?;
        view.hide_first(hides_first)?;
        if let (true, Some(chunk)) = (self.config.in_chunks, self.config.window) {
            let ([_, _, l, _], [_, _, n, _]) = (q.dims()?, view.keys.dims()?);
            view.visible.within_chunks(chunk, positions.offsets(), [l, n]);
        }
        if self.config.sees_whole {
            view.visible.spans = positions.spans().to_vec();
        }
        if let Sharing::Shares(number) = self.config.sharing {
            positions.share_kv(number, (&view, &k))?;
        }
        self.observed(&q, &k, &view, positions)
    }

    /// Queries, keys and values of `x`, `[b, l, hidden_size]`, before they are split into heads.
    pub(super) fn projected(&self, x: &Array, fusion: Fusion<'_>) -> Result<Projected> {
        let input = self.gate.input(x, fusion)?;
        let fusion = Fusion { normed: input.as_ref().or(fusion.normed), ..fusion };
        let (q, own) = self.qkv.forward(x, fusion)?;
        let [k, v] =
            own.ok_or_else(|| mlx_ffi::Error::new("a layer that reuses keys has a cache"))?;
        let (q, gate) = self.gate.values(q, input.as_ref())?;
        let [q, k, v] = match self.config.clip {
            None => [q, k, v],
            Some(limit) => [q.within(limit)?, k.within(limit)?, v.within(limit)?],
        };
        let (q, k) = self.qk_norms.projections(q, k)?;
        Ok(Projected { q, k, v, gate })
    }

    /// Heads of queries, keys and values at their positions, `[b, n, l, head_dim]` each.
    pub(super) fn placed(
        &self,
        q: &Columns,
        k: &Columns,
        v: &Columns,
        positions: &mut Positions,
    ) -> Result<[Array; 3]> {
        let (q_norm, k_norm) = self.qk_norms.heads();
        let (q, k) = (self.turned(q, q_norm, positions)?, self.turned(k, k_norm, positions)?);
        let (q, k) = self.qk_norms.rotated(q, k)?;
        let q = match &self.position_scale {
            None => q,
            Some(scale) => scale.apply(&q, positions)?,
        };
        Ok([q, k, self.kernels.heads(v, self.config.head_dim)?])
    }

    /// The values of all heads, `[b, l, …]`, with their norm.
    pub(super) fn normed(&self, v: Columns) -> Result<Columns> {
        let Some(norm) = &self.v_norm else { return Ok(v) };
        let v = v.array()?;
        let [b, l, values] = v.dims()?;
        let heads = ops::reshape(&v, &[b, l, -1, self.config.head_dim])?;
        Ok(Columns::all(ops::reshape(&norm.forward(&heads)?, &[b, l, values])?))
    }

    /// The result of [`attended`](Self::attended), seen by observers; `k` are the last keys.
    pub(super) fn observed(
        &self,
        q: &Array,
        k: &Array,
        view: &View,
        positions: &mut Positions,
    ) -> Result<Array> {
        if let Some(observed) = positions.observer() {
            let sinks = self.sinks.as_ref().map(Array::share).transpose()?;
            let AttentionConfig { scale, softcap, .. } = self.config;
            let scores = Scores { scale, softcap, sinks };
            *observed = Some(Observed::new(q, k, view, scores)?);
        }
        self.attended(q, view, positions)
    }

    /// The output `[b, l, n_heads * d]` with its gate.
    pub(super) fn gated(&self, out: Array, gate: Option<(Activation, Columns)>) -> Result<Array> {
        match gate {
            None => Ok(out),
            Some((activation, gate)) => self.kernels.gated(activation, &gate, &Columns::all(out)),
        }
    }

    /// The slot in the cache for one position of each row, where `l` is one and there is one
    /// operation for all that such a step in `dtype` does up to the output projection. On CUDA, a
    /// row's first position gets buffers.
    pub fn slot(
        &self,
        dtype: Dtype,
        l: i32,
        positions: &mut Positions,
        cache: &mut KvCache,
    ) -> Result<Option<Slot>> {
        let on_cuda = self.steps_on_cuda(dtype) && self.values_fit(dtype);
        let is_alone = self.config.sharing == Sharing::Own;
        let is_known = self.kernels.is_ours_on_cpu() && is_alone || on_cuda;
        let AttentionConfig { n_kv_heads, head_dim, .. } = self.config;
        match is_known && l == 1 && self.is_fusible(dtype, positions) {
            true if on_cuda && is_alone && cache.is_plain() => {
                cache.reserve_chunk(dtype, 1, [n_kv_heads, head_dim])
            }
            true if on_cuda => cache.reserve_on_cuda(dtype, head_dim),
            true => cache.reserve(dtype),
            false => Ok(None),
        }
    }

    /// The cache slot for `l` positions of each row, where our kernels do all of such a chunk
    /// in `dtype` up to the output projection.
    pub fn chunk_slot(
        &self,
        dtype: Dtype,
        l: i32,
        positions: &mut Positions,
        cache: &mut KvCache,
    ) -> Result<Option<Slot>> {
        match self.chunk_sizes(dtype, l, positions) {
            Some(sizes) => cache.reserve_chunk(dtype, l, sizes),
            None => Ok(None),
        }
    }

    /// Heads of keys and values of each, where our kernels take chunks of `l` positions.
    pub fn chunk_sizes(&self, dtype: Dtype, l: i32, positions: &mut Positions) -> Option<[i32; 2]> {
        let AttentionConfig { n_kv_heads, head_dim, sees_later, sharing, .. } = self.config;
        let fits = l > 1
            && self.kernels == Kernels::Cuda
            && self.sinks_fit(dtype)
            && cuda::attends_chunks(head_dim, dtype)
            && sharing == Sharing::Own
            && !sees_later
            && is_for_kernels(positions.offsets().len(), l, positions.end(l))
            && positions.are_plain()
            && self.is_fusible(dtype, positions);
        fits.then_some([n_kv_heads, head_dim])
    }

    /// Returns true when kernels for CUDA attend in `dtype` for one position of each row.
    pub(super) fn steps_on_cuda(&self, dtype: Dtype) -> bool {
        let attends = cuda::attends(self.config.head_dim, dtype);
        self.kernels == Kernels::Cuda && self.sinks_fit(dtype) && attends
    }

    /// Returns true when kernels can make queries and keys in `dtype`, and nothing but this layer
    /// needs them.
    pub(super) fn is_fusible(&self, dtype: Dtype, positions: &mut Positions) -> bool {
        let (q_norm, k_norm) = self.qk_norms.heads();
        let norms_fit = [q_norm, k_norm].iter().flatten().all(|norm| norm.weight.dtype() == dtype);
        norms_fit && self.is_plain() && positions.observer().is_none()
    }

    /// Returns true when kernels of a step on CUDA know the norm of values beside those of queries
    /// and keys. Also true without such a norm.
    fn values_fit(&self, dtype: Dtype) -> bool {
        self.v_norm.as_ref().is_none_or(|norm| match &self.qk_norms {
            QkNorms::Heads { q_norm, .. } => {
                norm.weights().is_some_and(|v| v.eps == q_norm.eps && v.weight.dtype() == dtype)
            }
            _ => false,
        })
    }

    /// Returns true when sinks, if there are any, are of `dtype`.
    fn sinks_fit(&self, dtype: Dtype) -> bool {
        self.sinks.as_ref().is_none_or(|sinks| sinks.dtype() == dtype)
    }

    /// Returns true when kernels know how queries and keys are normed, rotated and scaled.
    fn is_plain(&self) -> bool {
        let norms_come_first = !matches!(self.qk_norms, QkNorms::RotatedHeads { .. });
        let (q_norm, k_norm) = self.qk_norms.heads();
        let are_known = [q_norm, k_norm].into_iter().flatten().all(RmsNorm::is_of_heads);
        let is_plain = self.position_scale.is_none() && !self.config.in_chunks;
        is_plain && self.has_halves() && norms_come_first && are_known
    }

    /// Returns true when values are rotated in halves, as kernels know it.
    pub(super) fn has_halves(&self) -> bool {
        self.rope.as_ref().is_none_or(|rope| rope.pairs() == RopePairs::Halves)
    }

    /// One position of each row: `[b, 1, n_heads * head_dim]`.
    fn step(
        &self,
        projected: [&Columns; 3],
        slot: Slot,
        positions: &mut Positions,
        cache: &mut KvCache,
    ) -> Result<Array> {
        let offsets = positions.step_offsets(&slot, self.config.n_heads)?;
        let step = self.new_positions(projected, &slot, (&offsets.at, &offsets.rows), positions)?;
        let (out, parts) = match self.kernels {
            Kernels::Cpu(_) => {
                let [out, keys, values] = cpu::step_attention(&step)?;
                (out, vec![keys, values])
            }
            _ => {
                let Attended { out, buffers } = cuda::step_attention(&step, &offsets.counters)?;
                (out, buffers)
            }
        };
        if let Sharing::Shares(number) = self.config.sharing {
            let parts = parts.iter().map(Array::share).collect::<Result<_>>()?;
            positions.share_slot(number, Slot { parts, ..slot });
        }
        cache.fill(parts, 1);
        Ok(out)
    }

    /// The inputs of kernels for new positions in `slot`; `at` and `rows` are its offsets.
    pub(super) fn new_positions<'a>(
        &'a self,
        [q, k, v]: [&'a Columns; 3],
        slot: &'a Slot,
        (at, rows): (&'a Array, &'a Array),
        positions: &Positions,
    ) -> Result<Step<'a>> {
        let AttentionConfig { n_heads, scale, softcap, window, .. } = self.config;
        let norms = match self.qk_norms.heads() {
            (Some(q), Some(k)) => {
                let v = self.v_norm.as_ref().filter(|_| self.kernels == Kernels::Cuda);
                let v = v.map(|norm| &norm.weight);
                Some(HeadNorms { q: &q.weight, k: &k.weight, v, eps: q.eps })
            }
            // What there is no key for is not looked at.
            (Some(q), None) => Some(HeadNorms { q: &q.weight, k: &q.weight, v: None, eps: q.eps }),
            _ => None,
        };
        let factors = positions.rope_factors();
        Ok(Step {
            q: q.heads(),
            k: k.heads(),
            v: v.heads(),
            n_heads,
            keys: slot.keys()?,
            values: slot.values()?,
            packing: slot.packing(),
            at: slot.at,
            on_device: at,
            rows,
            window,
            turn: self.rope.as_ref().map(|rope| rope.on_device(factors)),
            norms,
            scale,
            softcap,
            sinks: self.sinks.as_ref(),
        })
    }

    /// Queries or keys, `[b, l, n * head_dim]`, normed and rotated by heads: `[b, n, l, head_dim]`.
    pub(super) fn turned(
        &self,
        x: &Columns,
        norm: Option<&RmsNorm>,
        positions: &mut Positions,
    ) -> Result<Array> {
        let [b, l, _] = x.of.dims()?;
        let head_dim = self.config.head_dim;
        let is_known =
            norm.is_none_or(|norm| norm.weight.dtype() == x.of.dtype() && norm.is_of_heads());
        if self.kernels.is_ours_on_cpu() && is_known && self.has_halves() {
            let factors = positions.rope_factors();
            let turns = self
                .rope
                .as_ref()
                .map(|rope| positions.cos_sin(rope.rotation(factors), l))
                .transpose()?;
            let norm = norm.map(|norm| (&norm.weight, norm.eps));
            return cpu::heads(&x.of, x.range.clone(), head_dim, norm, turns.as_ref());
        }
        let x = ops::reshape(&x.array()?, &[b, l, -1, head_dim])?;
        let x = norm.map_or_else(|| x.share(), |norm| norm.forward(&x))?;
        let x = ops::swap_axes(&x, 1, 2)?;
        self.rope.as_ref().map_or_else(|| x.share(), |rope| rope.forward(&x, positions))
    }

    /// The keys and values that it keeps. A context length may bound their positions.
    pub fn kv_spec(&self, context_length: Option<i32>) -> KvSpec {
        let AttentionConfig { n_kv_heads, head_dim, window, .. } = self.config;
        KvSpec::new(n_kv_heads, head_dim, window, context_length)
    }

    /// The heads that an observer sees.
    pub fn heads(&self) -> HeadSizes {
        let AttentionConfig { n_heads, n_kv_heads, head_dim, .. } = self.config;
        HeadSizes { n_heads, n_kv_heads, head_dim }
    }

    /// Values of one position between the projections, before and after rotation.
    pub fn activations(&self) -> u64 {
        let AttentionConfig { n_heads, n_kv_heads, head_dim, .. } = self.config;
        2 * ((n_heads + 2 * n_kv_heads) * head_dim) as u64
    }

    /// Bytes of one query's scores for one key, of all heads together, as `device` holds them. A
    /// GPU computes most attention without holding any; on a CPU there are the scores and their
    /// softmax, and two more copies where sinks are put beside them and taken off again.
    pub fn score_bytes(&self, device: Device) -> u64 {
        let copies = match device {
            Device::Gpu => 1,
            Device::Cpu if self.sinks.is_some() => 4,
            Device::Cpu => 2,
        };
        4 * self.config.n_heads as u64 * copies
    }

    /// Bytes that its products take; projections of the same values may be computed at once.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        let into = self.qkv.workspace(dtype).and(self.gate.workspace(dtype));
        into.then(self.o_proj.workspace(dtype))
    }
}
