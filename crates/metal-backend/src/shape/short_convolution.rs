//! Gated short convolutions.

use super::Shape;
use super::split::channels_of_rank;
use crate::error::Result;
use crate::layers::ShortConvolution;
use crate::weights::Weights;

impl Shape {
    /// The gated short convolution under `w`, of which a position sees `taps` positions. It has the
    /// channels that this rank computes.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn short_convolution(
        &self,
        w: &Weights,
        taps: i32,
        bias: bool,
    ) -> Result<ShortConvolution> {
        let hidden = self.hidden_size;
        let (w, channels) = &channels_of_rank(w, hidden);
        let channels = *channels;
        Ok(ShortConvolution {
            sizes: [taps, channels],
            in_proj: w.linear("in_proj", hidden, 3 * channels, bias)?,
            convolution: w.depthwise("conv.weight", channels, taps)?,
            bias: bias.then(|| w.tensor("conv.bias", &[channels])).transpose()?,
            out_proj: w.linear("out_proj", channels, hidden, bias)?,
            kernels: w.kernels(),
        })
    }
}
