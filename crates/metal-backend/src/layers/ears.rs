//! Audio towers: from the features of a sound to the vectors that stand in a prompt for it. They
//! are conformers of the Universal Speech Model (<https://arxiv.org/abs/2303.01037>).

mod attention;
mod block;
mod entry;
mod exit;

use mlx_ffi::{Array, Result};
use sound::Frames;

use super::Pace;
use crate::kernels::Kernels;

pub(crate) use attention::{EarAttention, EarWindow, RelativePositions};
pub(crate) use block::{EarBlock, EarNetwork, LightConvolution};
pub(crate) use entry::{EarConvolution, EarEntry, EarNorm};
pub(crate) use exit::{EarExit, EarPadding};

/// An audio tower and what fits its output to the language model.
#[derive(Debug)]
pub(crate) struct Ears {
    pub entry: EarEntry,
    pub blocks: Vec<EarBlock>,
    pub exit: EarExit,
    pub kernels: Kernels,
}

/// A sound's state between two blocks of a tower.
#[derive(Debug)]
pub(crate) struct Listening {
    /// `[1, n, hidden_size]`.
    h: Array,
    /// Blocks that are done.
    block: usize,
    pace: Pace,
}

impl Ears {
    /// A sound before the first block.
    pub fn begin(&self, frames: &Frames) -> Result<Listening> {
        let h = self.entry.forward(frames)?;
        Ok(Listening { h, block: 0, pace: Pace::default() })
    }

    /// Takes a sound through its next block, and waits for it; on a GPU, for an earlier one. At the
    /// end, `[1, n, hidden_size]` of the language model: the vectors in the sound's places.
    pub fn advance(&self, listening: &mut Listening) -> Result<Option<Array>> {
        let Some(block) = self.blocks.get(listening.block) else {
            let features = self.exit.forward(&listening.h)?;
            features.eval()?;
            return Ok(Some(features));
        };
        listening.h = block.forward(&listening.h, self.kernels)?;
        match self.kernels {
            Kernels::Cpu(_) => listening.h.eval()?,
            _ => listening.pace.after(&[&listening.h])?,
        }
        listening.block += 1;
        Ok(None)
    }

    /// Bytes that a sound of so many frames takes on its way, in values of `dtype_size` bytes.
    pub fn bytes(&self, frames: u64, dtype_size: u64) -> u64 {
        let size = dtype_size.max(4);
        let places = frames.div_ceil(4);
        let blocks = self.blocks.iter().map(|block| block.values(places)).max().unwrap_or(0);
        size * self.entry.values(frames).max(blocks)
    }
}
