//! The stack of transformer blocks that every architecture here is an instance of.

use mlx_ffi::{Array, Indices, Result, ops};

use super::{Block, Embedding, Fusion, Linear, Pass, Positions, RmsNorm, StepCapture, Workspace};
use crate::cache::{Caches, RopeFactors};
use crate::kernels::Kernels;

/// From hidden states to logits.
#[derive(Debug)]
pub(crate) enum Head {
    /// The token embeddings serve as the output layer.
    Tied,
    /// An output layer of its own.
    Own(Linear),
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
    /// What logits are multiplied with, before they are squashed.
    pub logit_scale: Option<f32>,
    /// Logits are squashed to ± this by tanh.
    pub logit_softcap: Option<f32>,
    pub vocab_size: i32,
    pub hidden_size: i32,
    /// Values between the projections of a feed-forward network, of all experts that a position passes.
    pub intermediate_size: i32,
    /// The most positions that the model was made for, where its config says.
    pub max_position_embeddings: Option<i32>,
    /// The longest sequence whose positions are encoded as in the model's first training (LongRoPE);
    /// all positions of a longer one are encoded in another way.
    pub original_context: Option<i32>,
    /// Whose kernels compute it.
    pub kernels: Kernels,
}

impl Decoder {
    /// Which factors stretch the positions of a sequence of `length` ids. Where they change as a sequence
    /// grows, its caches are of no use any more.
    pub fn rope_factors(&self, length: usize) -> RopeFactors {
        match self.original_context {
            Some(original) if length > original as usize => RopeFactors::Long,
            _ => RopeFactors::Short,
        }
    }

    /// `ids`, `[b, l]`, to what goes into the first layer, `[b, l, hidden_size]`.
    pub fn embed(&self, ids: &Indices) -> Result<Array> {
        let h = self.embed_tokens.forward(ids)?;
        match self.embed_scale {
            Some(scale) => ops::multiply(&h, &Array::scalar(scale as f32, h.dtype())?),
            None => Ok(h),
        }
    }

    /// The pass of `ids`, `[b, l]`, before its first layer. Rows whose input is no ids begin with
    /// [`Pass::new`].
    pub fn begin(&self, ids: &Indices, caches: &Caches) -> Result<Pass> {
        Ok(Pass::new(self.embed(ids)?, Positions::after(caches)))
    }

    /// Takes a pass through its next `count` layers. True once it is through all of them; the
    /// caches then count its positions.
    pub fn advance(&self, pass: &mut Pass, caches: &mut Caches, count: usize) -> Result<bool> {
        let end = self.layers.len().min(pass.layer + count);
        for index in pass.layer..end {
            let state = &mut caches.layers_mut()[index];
            let next = self.layers.get(index + 1).and_then(Block::first_norm);
            let (layer, positions) = (&self.layers[index], &mut pass.positions);
            pass.stream = layer.forward(&pass.stream, next, positions, state)?;
        }
        pass.layer = end;
        let through = end == self.layers.len();
        if through {
            let [_, l, _] = pass.stream.h.dims()?;
            caches.advance(l);
        }
        Ok(through)
    }

    /// `ids`, `[b, l]`, to hidden states `[b, l, hidden_size]`, which must be sent to the device before
    /// the next call. Appends `l` positions to each layer's cache. A step of one position is captured
    /// and replayed where the device allows it.
    pub fn hidden(
        &self,
        ids: &Indices,
        caches: &mut Caches,
        capture: &mut StepCapture,
    ) -> Result<Array> {
        let h = self.embed(ids)?;
        let mut pass = Pass::new(h, Positions::of_step(caches, capture.places()));
        let Some(inputs) = capture.inputs(&self.layers, &mut pass, caches)? else {
            self.advance(&mut pass, caches, self.layers.len())?;
            return pass.h().share();
        };
        if let Some(h) = capture.replay(&inputs)? {
            caches.fill_in_place();
            return Ok(h);
        }
        self.advance(&mut pass, caches, self.layers.len())?;
        capture.note(pass.h(), &inputs)?;
        pass.h().share()
    }

    /// Hidden states `[b, l, hidden_size]` to logits `[b, l, vocab_size]`.
    pub fn logits(&self, hidden: &Array) -> Result<Array> {
        let fusion = Fusion { norm: Some(&self.norm), ..Fusion::default() };
        let logits = match &self.lm_head {
            Head::Tied => self.embed_tokens.project(hidden, fusion)?,
            Head::Own(linear) => linear.forward_fused(hidden, fusion)?,
        };
        let logits = match self.logit_scale {
            None => logits,
            Some(scale) => ops::multiply(&logits, &Array::scalar(scale, logits.dtype())?)?,
        };
        let Some(softcap) = self.logit_softcap else { return Ok(logits) };
        let softcap = Array::scalar(softcap, logits.dtype())?;
        ops::multiply(&ops::tanh(&ops::divide(&logits, &softcap)?)?, &softcap)
    }

    /// Bytes that the products of the layers, and of the embeddings before them, take beside the
    /// activations.
    pub fn workspace(&self) -> Workspace {
        let dtype = self.embed_tokens.dtype();
        let layers = self.layers.iter().map(|layer| layer.workspace(dtype));
        let largest = layers.fold(self.embed_tokens.workspace(), Workspace::or);
        // While the device computes a layer, the next one is prepared.
        Workspace { unpacked: 2 * largest.unpacked, ..largest }
    }

    /// Bytes that the output layer takes beside the logits.
    pub fn head_workspace(&self) -> Workspace {
        match &self.lm_head {
            Head::Own(linear) => linear.workspace(self.embed_tokens.dtype()),
            Head::Tied => self.embed_tokens.head_workspace(),
        }
    }
}
