//! Encoders of texts whose norms stand behind each half of a block (BERT).

use mlx_ffi::{Array, Indices, Result, ops};

use super::{Attention, Embedding, Fusion, LayerNorm, Linear, Pace, Positions, Texts};
use crate::kernels::{Activation, Kernels};

/// An encoder: every position of a text sees all of it.
#[derive(Debug)]
pub(crate) struct Encoder {
    pub words: Embedding,
    /// `[n, hidden_size]`, one for each place.
    pub positions: Embedding,
    /// `[kinds, hidden_size]`: the first for the first text of a pair, the second for the other
    /// one.
    pub kinds: Embedding,
    /// On the sum of these three.
    pub norm: LayerNorm,
    pub blocks: Vec<EncoderBlock>,
    pub vocab_size: i32,
    pub hidden_size: i32,
    pub intermediate_size: i32,
    /// The place that the first position of a text has among `positions`.
    pub first_place: i32,
    /// The most positions of a text.
    pub max_positions: i32,
}

/// A block of an encoder: attention, then a feed-forward network.
#[derive(Debug)]
pub(crate) struct EncoderBlock {
    pub attention: Attention,
    /// On the sums behind attention and behind the network.
    pub norms: [LayerNorm; 2],
    /// Into the network, and out of it.
    pub network: [Linear; 2],
    pub activation: Activation,
}

impl Encoder {
    /// `ids`, `[1, l]`, of whole texts to their states, `[1, l, hidden_size]`. `kinds` say of each
    /// position which text of a pair it belongs to. Each block is waited for: on a CPU before the
    /// next one, on a GPU while the next one is prepared.
    pub fn encode(&self, ids: &Indices, kinds: &[u32], texts: Texts) -> Result<Array> {
        let count = kinds.len() as i32;
        let places: Vec<u32> =
            texts.places().map(|place| (place + self.first_place) as u32).collect();
        let places = Indices::from_u32(&places, &[1, count])?;
        let kinds = Indices::from_u32(kinds, &[1, count])?;
        let words = self.words.forward(ids)?;
        let h = ops::add(&words, &self.kinds.forward(&kinds)?)?;
        let h = ops::add(&h, &self.positions.forward(&places)?)?;
        let mut h = self.norm.forward(&h)?;
        let mut positions = Positions::of_texts(texts);
        let mut pace = Pace::default();
        for block in &self.blocks {
            h = block.forward(&h, &mut positions)?;
            match block.attention.kernels {
                Kernels::Cpu(_) => h.eval()?,
                _ => pace.after(&[&h])?,
            }
        }
        Ok(h)
    }
}

impl EncoderBlock {
    /// `[1, l, hidden_size]` to the same.
    fn forward(&self, x: &Array, positions: &mut Positions) -> Result<Array> {
        let onto = |residual| Fusion { residual: Some(residual), ..Fusion::default() };
        let h = self.norms[0].forward(&self.attention.within_texts(x, onto(x), positions)?)?;
        let [into, out] = &self.network;
        let inner = into.activated(&h, self.activation)?;
        self.norms[1].forward(&out.forward_fused(&inner, onto(&h))?)
    }
}
