//! The stack of transformer blocks that every architecture here is an instance of.

use std::iter;

use mlx_ffi::{Array, Result, ops};

use super::{Around, Attention, Embedding, FeedForward, Linear, Positions, Reach, RmsNorm, Seen};
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

/// The residual stream, and what the next norm makes of it where that is known already.
#[derive(Debug)]
struct Stream {
    /// `[b, l, hidden_size]`.
    h: Array,
    normed: Option<Array>,
}

impl Stream {
    /// What is done around a half of a block, `norm` before it.
    fn around<'a>(&'a self, norm: &'a Option<RmsNorm>, onto: Option<&'a Array>) -> Around<'a> {
        Around { norm: norm.as_ref(), normed: self.normed.as_ref(), onto }
    }
}

impl Block {
    /// `[b, l, hidden_size]` to the same, with `next`, the norm of what follows, where that is one
    /// operation with it. Appends `l` positions to `cache`.
    fn forward(
        &self,
        x: &Stream,
        next: Option<&RmsNorm>,
        positions: &mut Positions,
        cache: &mut Cache,
    ) -> Result<Stream> {
        let attend = |onto: Option<&Array>| {
            self.attention.forward(&x.h, x.around(&self.input_norm, onto), positions, cache)
        };
        let h = self.added(x, attend, &self.attention_out_norm, self.mlp_norm.as_ref())?;
        let feed = |onto: Option<&Array>| self.mlp.forward(&h.h, h.around(&self.mlp_norm, onto));
        self.added(&h, feed, &self.mlp_out_norm, next)
    }

    /// The residual stream after a half of a block, which may be told to add its result to it itself: a
    /// norm on the result comes first.
    fn added(
        &self,
        x: &Stream,
        half: impl FnOnce(Option<&Array>) -> Result<Array>,
        out_norm: &Option<RmsNorm>,
        next: Option<&RmsNorm>,
    ) -> Result<Stream> {
        let product = self.attention.product;
        if out_norm.is_none() && !product.adds_rows(&x.h) {
            return Ok(Stream { h: half(Some(&x.h))?, normed: None });
        }
        let out = half(None)?;
        if let Some(both) = product.residual(&x.h, &out, out_norm.as_ref(), next) {
            let (h, normed) = both?;
            return Ok(Stream { h, normed });
        }
        let out = out_norm.as_ref().map_or_else(|| out.share(), |norm| norm.forward(&out))?;
        Ok(Stream { h: product.sum(&x.h, &out)?, normed: None })
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
    /// As the last layer left it.
    stream: Stream,
    /// Layers that are done.
    layer: usize,
    pub(super) positions: Positions,
}

impl Pass {
    /// `[b, l, hidden_size]`, as the last layer left it.
    pub fn h(&self) -> &Array {
        &self.stream.h
    }

    /// What is still needed of the last layer, for evaluation.
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        iter::once(&self.stream.h).chain(&self.stream.normed)
    }

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
    /// Whether kernels for CUDA compute it.
    pub fn is_on_cuda(&self) -> bool {
        self.layers.first().is_some_and(|layer| layer.attention.product.is_on_cuda())
    }

    /// How the positions of a sequence of `length` ids are encoded. Where this changes as a sequence
    /// grows, its caches are of no use any more.
    pub fn reach(&self, length: usize) -> Reach {
        match self.original_context {
            Some(original) if length > original as usize => Reach::Extended,
            _ => Reach::Original,
        }
    }

    /// The pass of `ids`, `[b, l]`, before its first layer.
    pub fn begin(&self, ids: &Array, caches: &Caches) -> Result<Pass> {
        let mut h = self.embed_tokens.forward(ids)?;
        if let Some(scale) = self.embed_scale {
            h = ops::multiply(&h, &Array::scalar(scale as f32, h.dtype())?)?;
        }
        let stream = Stream { h, normed: None };
        Ok(Pass { stream, layer: 0, positions: Positions::after(caches) })
    }

    /// Norms what goes into the first layer, where the sum before a layer does that otherwise.
    pub(super) fn prepare(&self, pass: &mut Pass) -> Result<()> {
        if let Some(first) = self.layers.first()
            && first.attention.product.adds_rows(&pass.stream.h)
            && let Some(norm) = &first.input_norm
        {
            pass.stream.normed = Some(norm.forward(&pass.stream.h)?);
        }
        Ok(())
    }

    /// Takes a pass through its next `count` layers. True once it is through all of them; the
    /// caches then count its positions.
    pub fn advance(&self, pass: &mut Pass, caches: &mut Caches, count: usize) -> Result<bool> {
        let end = self.layers.len().min(pass.layer + count);
        for index in pass.layer..end {
            let cache = &mut caches.layers_mut()[index];
            let next = self.layers.get(index + 1).and_then(|next| next.input_norm.as_ref());
            let (layer, positions) = (&self.layers[index], &mut pass.positions);
            pass.stream = layer.forward(&pass.stream, next, positions, cache)?;
        }
        pass.layer = end;
        let through = end == self.layers.len();
        if through {
            let [_, l, _] = pass.stream.h.dims()?;
            caches.advance(l);
        }
        Ok(through)
    }

    /// Hidden states `[b, l, hidden_size]` to logits `[b, l, vocab_size]`.
    pub fn logits(&self, hidden: &Array) -> Result<Array> {
        let around = Around { norm: Some(&self.norm), ..Around::default() };
        let logits = match &self.lm_head {
            Head::Tied => self.embed_tokens.project(hidden, around)?,
            Head::Own(linear) => linear.forward_around(hidden, around)?,
        };
        let Some(softcap) = self.logit_softcap else { return Ok(logits) };
        let softcap = Array::scalar(softcap, logits.dtype())?;
        ops::multiply(&ops::tanh(&ops::divide(&logits, &softcap)?)?, &softcap)
    }
}
