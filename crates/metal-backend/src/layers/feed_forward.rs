//! The second half of a block: what each position passes by itself.

use mlx_ffi::{Array, Dtype, Result};

use super::{DenseAndMoe, Fusion, LatentMoe, Mlp, Moe, PlainMlp, ScaledMoe, Workspace};

/// The second half of a block.
#[derive(Debug)]
pub(crate) enum FeedForward {
    /// One network for all positions.
    Mlp(Box<Mlp>),
    /// One network for all positions, without a gate.
    Plain(Box<PlainMlp>),
    /// A few of many.
    Moe(Box<Moe>),
    /// One network for all positions and a few of many.
    DenseAndMoe(Box<DenseAndMoe>),
    /// A few of many, which see fewer values.
    Latent(Box<LatentMoe>),
    /// One of many, which sees its input by its score.
    Scaled(Box<ScaledMoe>),
    /// Nothing: the block is a token mixer alone.
    Nothing,
}

impl From<Mlp> for FeedForward {
    fn from(mlp: Mlp) -> FeedForward {
        FeedForward::Mlp(Box::new(mlp))
    }
}

impl From<PlainMlp> for FeedForward {
    fn from(mlp: PlainMlp) -> FeedForward {
        FeedForward::Plain(Box::new(mlp))
    }
}

impl From<Moe> for FeedForward {
    fn from(moe: Moe) -> FeedForward {
        FeedForward::Moe(Box::new(moe))
    }
}

impl From<LatentMoe> for FeedForward {
    fn from(moe: LatentMoe) -> FeedForward {
        FeedForward::Latent(Box::new(moe))
    }
}

impl From<ScaledMoe> for FeedForward {
    fn from(moe: ScaledMoe) -> FeedForward {
        FeedForward::Scaled(Box::new(moe))
    }
}

impl From<DenseAndMoe> for FeedForward {
    fn from(both: DenseAndMoe) -> FeedForward {
        FeedForward::DenseAndMoe(Box::new(both))
    }
}

impl FeedForward {
    /// Bytes that its products take beside the activations, which are of `dtype`.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        match self {
            FeedForward::Mlp(mlp) => mlp.workspace(dtype),
            FeedForward::Plain(mlp) => mlp.workspace(dtype),
            FeedForward::Moe(moe) => moe.workspace(dtype),
            FeedForward::DenseAndMoe(both) => both.workspace(dtype),
            FeedForward::Latent(moe) => moe.workspace(dtype),
            FeedForward::Scaled(moe) => moe.workspace(dtype),
            FeedForward::Nothing => Workspace::default(),
        }
    }

    /// `[b, l, hidden_size]` to the same, with its `fusion`.
    pub fn forward(&self, x: &Array, fusion: Fusion<'_>) -> Result<Array> {
        match self {
            FeedForward::Mlp(mlp) => mlp.forward(x, fusion),
            FeedForward::Plain(mlp) => mlp.forward(x, fusion),
            FeedForward::Moe(moe) => match moe.on_cuda(x) {
                Some(network) => moe.at_once(x, &network, fusion),
                None => fusion.epilogue(moe.kernels, moe.forward(&fusion.prologue(x)?)?),
            },
            FeedForward::DenseAndMoe(both) => both.forward(x, fusion),
            FeedForward::Latent(latent) => {
                fusion.epilogue(latent.moe.kernels, latent.forward(&fusion.prologue(x)?)?)
            }
            FeedForward::Scaled(scaled) => {
                fusion.epilogue(scaled.moe.kernels, scaled.forward(&fusion.prologue(x)?)?)
            }
            FeedForward::Nothing => {
                Err(mlx_ffi::Error::new("a block without a feed-forward network computed one"))
            }
        }
    }
}
