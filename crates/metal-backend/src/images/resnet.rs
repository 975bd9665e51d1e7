//! The residual block of a VAE, which differs between them by its norm.

use mlx_ffi::{Array, Result};

use super::computed::computed;
use super::nn::{Conv2d, Norm};
use crate::error::Result as Read;
use crate::weights::Weights;

/// Two convolutions, each behind a norm and a SiLU, beside the input.
#[derive(Debug)]
pub(super) struct Resnet<N> {
    norm1: N,
    conv1: Conv2d,
    norm2: N,
    conv2: Conv2d,
    /// The convolution beside the others, where the input has other channels than the output.
    shortcut: Option<Conv2d>,
}

impl<N: Norm> Resnet<N> {
    /// The block under `w`, from so many channels to so many, with norms that `norm` loads.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn load(
        w: &Weights,
        [input, output]: [i32; 2],
        norm: impl Fn(&Weights, i32) -> Read<N>,
    ) -> Read<Resnet<N>> {
        let conv = |name: &str, from, size| Conv2d::same(&w.at(name), [from, output, size]);
        Ok(Resnet {
            norm1: norm(&w.at("norm1"), input)?,
            conv1: conv("conv1", input, 3)?,
            norm2: norm(&w.at("norm2"), output)?,
            conv2: conv("conv2", output, 3)?,
            shortcut: (input != output).then(|| conv("conv_shortcut", input, 1)).transpose()?,
        })
    }

    /// `[n, height, width, channels]` to the same with the channels of the output.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let y = computed(self.norm1.with_silu(x)?)?;
        let y = computed(self.conv1.forward(&y)?)?;
        let y = computed(self.norm2.with_silu(&y)?)?;
        let y = computed(self.conv2.forward(&y)?)?;
        computed(match &self.shortcut {
            None => self.conv2.plus(x, &y)?,
            Some(conv) => conv.plus(&conv.forward(x)?, &y)?,
        })
    }
}
