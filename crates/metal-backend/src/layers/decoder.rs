//! The stack of transformer blocks that every architecture here is an instance of.

use mlx_ffi::{Array, Result, ops};

use super::{Attention, Embedding, FeedForward, Linear, Positions, Reach, RmsNorm, Seen};
use crate::cache::{Cache, Caches};

/// One transformer block: attention, then the feed-forward network, each added to the residual
/// stream. Architectures differ in where norms stand.
#[derive(Debug)]
pub(crate) struct Block {
    /// Before attention.
    pub input_norm: Option<RmsNorm>,
    pub attention: Attention,
    /// On what attention adds.
    pub attention_out_norm: Option<RmsNorm>,
    /// Before the feed-forward network.
    pub mlp_norm: Option<RmsNorm>,
    pub mlp: FeedForward,
    /// On what the feed-forward network adds.
    pub mlp_out_norm: Option<RmsNorm>,
}

impl Block {
    /// `[b, l, hidden_size]` to the same. Appends `l` positions to `cache`.
    fn forward(&self, x: &Array, positions: &mut Positions, cache: &mut Cache) -> Result<Array> {
        let out = self.attention.forward(&normed(x, &self.input_norm)?, positions, cache)?;
        let h = ops::add(x, &normed(&out, &self.attention_out_norm)?)?;
        let out = self.mlp.forward(&normed(&h, &self.mlp_norm)?)?;
        ops::add(&h, &normed(&out, &self.mlp_out_norm)?)
    }
}

fn normed(x: &Array, norm: &Option<RmsNorm>) -> Result<Array> {
    match norm {
        None => x.share(),
        Some(norm) => norm.forward(x),
    }
}

/// From hidden states to logits.
#[derive(Debug)]
pub(crate) enum Head {
    /// The token embeddings serve as the output layer.
    Tied,
    /// An output layer of its own.
    Own(Linear),
}

/// Some positions on their way through the layers. It may rest between two layers, so that a long
/// one can be computed in parts.
#[derive(Debug)]
pub(crate) struct Pass {
    /// `[b, l, hidden_size]`, as the last layer left it.
    pub h: Array,
    /// Layers that are done.
    layer: usize,
    positions: Positions,
}

impl Pass {
    /// Layers that are done.
    pub fn layer(&self) -> usize {
        self.layer
    }

    /// From now on, each layer leaves what its attention sees.
    pub fn watch(&mut self) {
        self.positions.watch();
    }

    /// What the attention of the layer that was computed last saw, where it is watched.
    pub fn take_seen(&mut self) -> Option<Seen> {
        self.positions.watched().and_then(Option::take)
    }
}

/// A decoder-only transformer.
#[derive(Debug)]
pub(crate) struct Decoder {
    pub embed_tokens: Embedding,
    /// What embeddings are multiplied with.
    pub embed_scale: Option<f64>,
    pub layers: Vec<Block>,
    pub norm: RmsNorm,
    pub lm_head: Head,
    /// Logits are squashed to ± this by tanh.
    pub logit_softcap: Option<f32>,
    pub vocab_size: i32,
    pub hidden_size: i32,
    pub intermediate_size: i32,
    /// The most positions that the model was made for, where its config says.
    pub max_position_embeddings: Option<i32>,
    /// The longest sequence whose positions are encoded as in the model's first training (LongRoPE);
    /// all positions of a longer one are encoded in another way.
    pub original_context: Option<i32>,
}

impl Decoder {
    /// How the positions of a sequence of `length` ids are encoded. Where this changes as a sequence
    /// grows, its caches are of no use any more.
    pub fn reach(&self, length: usize) -> Reach {
        match self.original_context {
            Some(original) if length > original as usize => Reach::Extended,
            _ => Reach::Original,
        }
    }

    /// `ids`, `[b, l]`, to hidden states `[b, l, hidden_size]`. Appends `l` positions to each
    /// layer's cache.
    pub fn hidden(&self, ids: &Array, caches: &mut Caches) -> Result<Array> {
        let mut pass = self.begin(ids, caches)?;
        self.advance(&mut pass, caches, self.layers.len())?;
        Ok(pass.h)
    }

    /// The pass of `ids`, `[b, l]`, before its first layer.
    pub fn begin(&self, ids: &Array, caches: &Caches) -> Result<Pass> {
        let mut h = self.embed_tokens.forward(ids)?;
        if let Some(scale) = self.embed_scale {
            h = ops::multiply(&h, &Array::scalar(scale as f32, h.dtype())?)?;
        }
        Ok(Pass { h, layer: 0, positions: Positions::after(caches)? })
    }

    /// Takes a pass through its next `count` layers. True once it is through all of them; the
    /// caches then count its positions.
    pub fn advance(&self, pass: &mut Pass, caches: &mut Caches, count: usize) -> Result<bool> {
        let end = self.layers.len().min(pass.layer + count);
        for index in pass.layer..end {
            let cache = &mut caches.layers_mut()[index];
            pass.h = self.layers[index].forward(&pass.h, &mut pass.positions, cache)?;
        }
        pass.layer = end;
        let through = end == self.layers.len();
        if through {
            let [_, l, _] = pass.h.dims()?;
            caches.advance(l);
        }
        Ok(through)
    }

    /// Hidden states `[b, l, hidden_size]` to logits `[b, l, vocab_size]`.
    pub fn logits(&self, hidden: &Array) -> Result<Array> {
        let normed = self.norm.forward(hidden)?;
        let logits = match &self.lm_head {
            Head::Tied => self.embed_tokens.project(&normed)?,
            Head::Own(linear) => linear.forward(&normed)?,
        };
        let Some(softcap) = self.logit_softcap else { return Ok(logits) };
        let softcap = Array::scalar(softcap, logits.dtype())?;
        ops::multiply(&ops::tanh(&ops::divide(&logits, &softcap)?)?, &softcap)
    }
}
