//! A transformer block: a token mixer, then a feed-forward network.

use mlx_ffi::{Array, Dtype, Result};

use super::{FeedForward, Fusion, Mixer, Positions, RmsNorm, Workspace};
use crate::cache::State;
use crate::kernels::Kernels;

/// One transformer block: the mixer, then the feed-forward network, each added to the residual
/// stream. Architectures differ in where norms stand.
#[derive(Debug)]
pub(crate) struct Block {
    /// Before the mixer.
    pub input_norm: Option<RmsNorm>,
    pub mixer: Mixer,
    /// On what the mixer adds.
    pub mixer_out_norm: Option<RmsNorm>,
    /// Before the feed-forward network.
    pub mlp_norm: Option<RmsNorm>,
    pub mlp: FeedForward,
    /// On what the feed-forward network adds.
    pub mlp_out_norm: Option<RmsNorm>,
    /// Whose kernels add to the residual stream.
    pub kernels: Kernels,
}

/// The residual stream, and what the next norm makes of it where that is known already.
#[derive(Debug)]
pub(crate) struct Stream {
    /// `[b, l, hidden_size]`.
    pub h: Array,
    pub normed: Option<Array>,
}

impl Stream {
    /// What can be fused with a half of a block that has `norm` before it.
    fn fusion<'a>(&'a self, norm: &'a Option<RmsNorm>, residual: Option<&'a Array>) -> Fusion<'a> {
        Fusion { norm: norm.as_ref(), normed: self.normed.as_ref(), residual }
    }
}

impl Block {
    /// `[b, l, hidden_size]` to the same. `next`, the norm of what follows, is computed too where that is
    /// one operation with it. `state` remembers `l` more positions.
    pub fn forward(
        &self,
        x: &Stream,
        next: Option<&RmsNorm>,
        positions: &mut Positions,
        state: &mut State,
    ) -> Result<Stream> {
        let mix = |residual: Option<&Array>| {
            self.mixer.forward(&x.h, x.fusion(&self.input_norm, residual), positions, state)
        };
        let h = self.added(x, mix, &self.mixer_out_norm, self.mlp_norm.as_ref())?;
        let feed =
            |residual: Option<&Array>| self.mlp.forward(&h.h, h.fusion(&self.mlp_norm, residual));
        self.added(&h, feed, &self.mlp_out_norm, next)
    }

    /// Norms what comes in, where the sum before a block does that otherwise.
    pub fn prepare(&self, x: &mut Stream) -> Result<()> {
        if self.kernels.adds_rows(&x.h)
            && let Some(norm) = &self.input_norm
        {
            x.normed = Some(norm.forward(&x.h)?);
        }
        Ok(())
    }

    /// Bytes that its products take beside the activations, which are of `dtype`.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        self.mixer.workspace(dtype).then(self.mlp.workspace(dtype))
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
        let kernels = self.kernels;
        if out_norm.is_none() && !kernels.adds_rows(&x.h) {
            return Ok(Stream { h: half(Some(&x.h))?, normed: None });
        }
        let out = half(None)?;
        let norms = [out_norm.as_ref(), next].map(|norm| norm.map(RmsNorm::weights));
        if let Some(both) = kernels.residual(&x.h, &out, norms[0], norms[1]) {
            let (h, normed) = both?;
            return Ok(Stream { h, normed });
        }
        let out = out_norm.as_ref().map_or_else(|| out.share(), |norm| norm.forward(&out))?;
        Ok(Stream { h: kernels.sum(&x.h, &out)?, normed: None })
    }
}
