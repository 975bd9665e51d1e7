//! A layer of a checkpoint's own that drafts: from a hidden state, and the id that was drawn from
//! it, it makes the hidden state from which the next id is drawn.

use mlx_ffi::{Array, Dtype, Indices, Result, async_eval, ops};

use super::block::Stream;
use super::{Block, Drafter, Followed, Linear, Positions, RmsNorm, Trunk, Workspace};
use crate::cache::{Caches, State, Trail};

/// A layer that drafts, as Qwen 3.5 and DeepSeek V3 have it (multi-token prediction).
///
/// Beside a position's id it sees the hidden state of the position before: the first one has none,
/// and is hidden from the others.
#[derive(Debug)]
pub(crate) struct Heads {
    /// On embeddings.
    pub embed_norm: RmsNorm,
    /// On hidden states behind the model's last norm, or behind its own.
    pub hidden_norm: RmsNorm,
    /// From both, embeddings first, to the layer's input.
    pub project: Linear,
    pub block: Block,
    /// Behind the layer.
    pub norm: RmsNorm,
}

impl Heads {
    /// Hidden states `[b, l, hidden_size]` behind its norm, of `ids`, `[b, l]`, and the `hidden`
    /// states of the positions before theirs. `state` remembers `l` more positions.
    fn forward(
        &self,
        model: &dyn Trunk,
        (ids, hidden): (&Indices, &Array),
        positions: &mut Positions,
        state: &mut State,
    ) -> Result<Array> {
        let embedded = self.embed_norm.forward(&model.embedded(ids)?)?;
        let hidden = ops::astype(&self.hidden_norm.forward(hidden)?, embedded.dtype())?;
        let both = ops::concatenate(&[&embedded, &hidden], -1)?;
        let x = Stream { h: self.project.forward(&both)?, normed: None };
        positions.hide_first();
        let Stream { h, .. } = self.block.forward(&x, None, None, positions, state)?;
        self.norm.forward(&h)
    }
}

impl Drafter for Heads {
    fn layers(&self) -> &[Block] {
        std::slice::from_ref(&self.block)
    }

    fn is_cheap(&self) -> bool {
        true
    }

    fn takes_states(&self) -> bool {
        true
    }

    fn stream_values(&self, of_model: u64) -> u64 {
        2 * of_model
    }

    fn widest(&self) -> (i32, Workspace) {
        (0, self.block.workspace(self.embed_norm.weight.dtype()))
    }

    fn dtype(&self, of_model: Dtype) -> Dtype {
        of_model
    }

    fn follow(&self, model: &dyn Trunk, pass: &Followed<'_>, caches: &mut Caches) -> Result<()> {
        let mut positions = Positions::after(caches);
        positions.set_lengths(pass.lengths.to_vec());
        let (first, [b, l, size]) = (self.first(caches), pass.h.dims()?);
        let normed = model.normed(pass.h)?;
        let last = caches.trail().last([b, size], normed.dtype())?;
        let before = match l {
            1 => last,
            _ => ops::concatenate(&[&last, &ops::slice_axis(&normed, 1, 0, l - 1)?], 1)?,
        };
        let state = &mut caches.layers_mut()[first];
        // Nobody needs what it makes of them: only its keys and values are computed.
        self.forward(model, (pass.ids, &before), &mut positions, state)?;
        caches.set_trail(Trail::of_pass(normed.share()?)?);
        async_eval(caches.arrays_from(first).chain([&normed]))
    }

    fn next(
        &self,
        model: &dyn Trunk,
        (ids, hidden): (&Indices, &mut Array),
        mut positions: Positions,
        caches: &mut Caches,
    ) -> Result<Array> {
        let first = self.first(caches);
        let state = &mut caches.layers_mut()[first];
        *hidden = self.forward(model, (ids, hidden), &mut positions, state)?;
        model.logits_behind_norm(hidden)
    }
}
