//! Models that make states of whole texts, and the head that scores them.

use mlx_ffi::{Array, Device, Indices, Result, ops};

use super::{Decoder, Encoder, LayerNorm, Linear, Padding, Texts};
use crate::kernels::{Activation, Kernels};

/// A group of texts takes as much time as so many more positions. On CUDA the host needs some 60 µs
/// for its operations in each layer, in which the device computes several hundred positions;
/// lengths are rounded, because products of other sizes are slow there.
const PADDING: Padding = Padding { group: 64, multiple: 1 };
const PADDING_ON_CUDA: Padding = Padding { group: 512, multiple: 8 };

/// A model that makes a state of each position of whole texts.
#[derive(Debug)]
pub(crate) enum TextEncoder {
    /// A decoder's layers, each with its norms before its halves.
    Decoder(Box<Decoder>),
    /// An encoder's blocks, each with its norms behind its halves.
    Encoder(Box<Encoder>),
}

impl TextEncoder {
    /// `ids` of whole texts, one behind the other, to the states of the row that `texts` make, `[1,
    /// l, hidden_size]`. `kinds` say of each id which text of a pair it belongs to.
    pub fn encode(&self, ids: &[u32], kinds: &[u32], texts: &Texts) -> Result<Array> {
        let ids = Indices::from_u32(&texts.laid(ids), &[1, texts.row()])?;
        match self {
            TextEncoder::Decoder(decoder) => decoder.encode(&ids, texts.clone()),
            TextEncoder::Encoder(encoder) => {
                encoder.encode(&ids, &texts.laid(kinds), texts.clone())
            }
        }
    }

    /// Texts of so many positions each, as these kernels are fast with them.
    pub fn texts(&self, lengths: Vec<i32>) -> Texts {
        match self.kernels() {
            Kernels::Cpu(_) => Texts::new(lengths),
            Kernels::Mlx | Kernels::Metal => Texts::padded(lengths, PADDING),
            Kernels::MlxOnCuda | Kernels::Cuda => Texts::padded(lengths, PADDING_ON_CUDA),
        }
    }

    /// Whose kernels it computes with.
    pub fn kernels(&self) -> Kernels {
        match self {
            TextEncoder::Decoder(decoder) => decoder.kernels,
            TextEncoder::Encoder(encoder) => {
                encoder.blocks.first().map_or(Kernels::Mlx, |block| block.attention.kernels)
            }
        }
    }

    /// Entries of the vocabulary.
    pub fn vocab_size(&self) -> i32 {
        match self {
            TextEncoder::Decoder(decoder) => decoder.vocab_size,
            TextEncoder::Encoder(encoder) => encoder.vocab_size,
        }
    }

    /// Values of a state, and those between the projections of a feed-forward network.
    pub fn widths(&self) -> [i32; 2] {
        match self {
            TextEncoder::Decoder(decoder) => [decoder.hidden_size, decoder.intermediate_size],
            TextEncoder::Encoder(encoder) => [encoder.hidden_size, encoder.intermediate_size],
        }
    }

    /// Blocks.
    pub fn num_layers(&self) -> usize {
        match self {
            TextEncoder::Decoder(decoder) => decoder.layers.len(),
            TextEncoder::Encoder(encoder) => encoder.blocks.len(),
        }
    }

    /// The type of activations.
    pub fn dtype(&self) -> mlx_ffi::Dtype {
        match self {
            TextEncoder::Decoder(decoder) => decoder.embed_tokens.dtype(),
            TextEncoder::Encoder(encoder) => encoder.words.dtype(),
        }
    }

    /// Bytes of one query's scores for one key, as `device` holds them with these kernels.
    pub fn score_bytes(&self, device: Device) -> u64 {
        let attention = match self {
            TextEncoder::Decoder(decoder) => {
                decoder.layers.first().and_then(|block| block.mixer.attention())
            }
            TextEncoder::Encoder(encoder) => encoder.blocks.first().map(|block| &block.attention),
        };
        match (self.kernels(), attention) {
            // Ours hold a few rows of them.
            (Kernels::Cpu(_), _) | (_, None) => 0,
            (Kernels::Mlx | Kernels::Metal, Some(attention)) => attention.score_bytes(device),
            // The scores, what is hidden of them, and their softmax.
            (_, Some(attention)) => 3 * attention.score_bytes(device),
        }
    }

    /// The most positions of a text, where the config bounds them.
    pub fn max_positions(&self) -> Option<i32> {
        match self {
            TextEncoder::Decoder(decoder) => {
                let (own, original) = (decoder.max_position_embeddings, decoder.original_context);
                own.into_iter().chain(original).min()
            }
            TextEncoder::Encoder(encoder) => Some(encoder.max_positions),
        }
    }
}

/// Of which state a head makes a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClassOf {
    /// That of the first position.
    First,
    /// The mean of all.
    Mean,
}

/// The head that makes one score of a pair's states.
#[derive(Debug)]
pub(crate) struct ClassHead {
    pub of: ClassOf,
    /// `hidden_size` to `hidden_size`.
    pub dense: Linear,
    /// Behind `dense`; `None`: the hyperbolic tangent.
    pub activation: Option<Activation>,
    pub norm: Option<LayerNorm>,
    /// `hidden_size` to 1.
    pub out: Linear,
    pub kernels: Kernels,
}

impl ClassHead {
    /// `pooled`, `[n, hidden_size]`, to logits, `[n, 1]`.
    pub fn forward(&self, pooled: &Array) -> Result<Array> {
        let x = self.dense.forward(pooled)?;
        let x = match self.activation {
            None => ops::tanh(&x)?,
            Some(activation) => self.kernels.activated(activation, &x)?,
        };
        let x = match &self.norm {
            None => x,
            Some(norm) => norm.forward(&x)?,
        };
        self.out.forward(&x)
    }
}
