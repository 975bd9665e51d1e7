//! A layer of a checkpoint's own that drafts: from a hidden state, and the id that was drawn from
//! it, it makes the hidden state from which the next id is drawn.

use mlx_ffi::{Array, Indices, Result, ops};

use super::block::Stream;
use super::{Block, Decoder, Linear, Positions, RmsNorm};
use crate::cache::State;

/// A layer that drafts, as Qwen 3.5 and DeepSeek V3 have it (multi-token prediction).
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
    ///
    /// # Errors
    /// Those of MLX.
    pub fn forward(
        &self,
        model: &Decoder,
        ids: &Indices,
        hidden: &Array,
        positions: &mut Positions,
        state: &mut State,
    ) -> Result<Array> {
        let embedded = self.embed_norm.forward(&model.embed(ids)?)?;
        let hidden = ops::astype(&self.hidden_norm.forward(hidden)?, embedded.dtype())?;
        let both = ops::concatenate(&[&embedded, &hidden], -1)?;
        let h = self.project.forward(&both)?;
        let x = Stream { h, normed: None };
        let Stream { h, .. } = self.block.forward(&x, None, None, positions, state)?;
        self.norm.forward(&h)
    }
}
