//! A state space and attention that see the same values.

use mlx_ffi::{Array, Dtype, Result};

use super::{Attention, Fusion, Mamba2, Positions, Workspace};
use crate::cache::{KvCache, Recurrent};
use crate::kernels::Columns;

/// The factors of a part's input and output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Multipliers {
    pub input: f32,
    pub output: f32,
}

/// `mamba(x) + attention(x)` with factors around both (Falcon H1).
#[derive(Debug)]
pub(crate) struct SideBySide {
    pub mamba: Mamba2,
    pub of_mamba: Multipliers,
    pub attention: Attention,
    pub of_attention: Multipliers,
}

impl SideBySide {
    /// `x` is `[b, l, hidden_size]`; so is the result, with its `fusion`. Both parts of the state
    /// remember `l` more positions.
    pub fn forward(
        &self,
        x: &Array,
        fusion: Fusion<'_>,
        positions: &mut Positions,
        (cache, state): (&mut KvCache, &mut Recurrent),
    ) -> Result<Array> {
        let kernels = self.mamba.kernels;
        let x = Columns::all(fusion.prologue(x)?);
        let seen = kernels.scaled(&x, self.of_mamba.input)?;
        let mixed = self.mamba.forward(&seen, Fusion::default(), positions, state)?;
        let mixed = kernels.scaled(&Columns::all(mixed), self.of_mamba.output)?;
        let seen = kernels.scaled(&x, self.of_attention.input)?;
        let attended = self.attention.forward(&seen, Fusion::default(), positions, cache)?;
        let attended = kernels.scaled(&Columns::all(attended), self.of_attention.output)?;
        fusion.epilogue(kernels, kernels.sum(&mixed, &attended)?)
    }

    /// Values of one position between the projections.
    pub fn activations(&self) -> u64 {
        self.mamba.activations() + self.attention.activations()
    }

    /// Bytes that its products take beside the activations, which are of `dtype`.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        self.mamba.workspace(dtype).then(self.attention.workspace(dtype))
    }
}
