//! The kernels of convolutions over pictures and sounds.

use mlx_ffi::{Array, ops};

use super::Weights;
use crate::error::Result;

impl Weights {
    /// The kernels `weight` of a convolution with a square kernel, `[out, size, size, channels]`.
    ///
    /// Checkpoints of PyTorch have them as `[out, channels, size, size]`. Those of a causal
    /// convolution over frames, `[out, channels, frames, size, size]`, are cut to what a single
    /// frame meets: the last of the frames, as all before it is padding. Kernels that MLX saved are
    /// called `kernels`, and have the channels last.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn kernels2d(&self, [out, channels, size]: [i32; 3]) -> Result<Array> {
        if let Some(found) = self.shape("kernels") {
            return self.kernels_of_mlx(&found, [out, channels, size]);
        }
        let found = self.shape("weight").unwrap_or_default();
        let weight = match found.as_slice() {
            &[_, _, frames, _, _] => {
                let weight = self.tensor("weight", &[out, channels, frames, size, size])?;
                if self.describes() {
                    return Ok(weight);
                }
                ops::squeeze(&ops::slice_axis(&weight, 2, frames - 1, frames)?, 2)?
            }
            // Those of audio towers have their channels last where a program for MLX saved them.
            last if last == [out, size, size, channels] && channels != size => {
                return self.tensor("weight", last);
            }
            _ => self.tensor("weight", &[out, channels, size, size])?,
        };
        if self.describes() {
            return Ok(weight);
        }
        let kernels = ops::contiguous(&ops::transpose(&weight, &[0, 2, 3, 1])?)?;
        kernels.eval()?;
        Ok(kernels)
    }

    fn kernels_of_mlx(&self, found: &[i32], [out, channels, size]: [i32; 3]) -> Result<Array> {
        let &[_, frames, _, _, _] = found else {
            return self.tensor("kernels", &[out, size, size, channels]);
        };
        let kernels = self.tensor("kernels", &[out, frames, size, size, channels])?;
        if self.describes() {
            return Ok(kernels);
        }
        let last = ops::squeeze(&ops::slice_axis(&kernels, 1, frames - 1, frames)?, 1)?;
        let kernels = ops::contiguous(&last)?;
        kernels.eval()?;
        Ok(kernels)
    }
    /// The taps `weight` of a convolution of each of `channels` over so many places, `[taps,
    /// channels]`, that of the last place last: as PyTorch has them, `[channels, 1, taps]`, or as
    /// MLX has, `[channels, taps, 1]`.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn taps(&self, channels: i32, taps: i32) -> Result<Array> {
        let (first, last) = ([channels, 1, taps], [channels, taps, 1]);
        let has_last = self.shape("weight").is_some_and(|shape| shape == last);
        let weight = self.tensor("weight", if has_last { &last } else { &first })?;
        if self.describes() {
            return Ok(weight);
        }
        let turned = ops::swap_axes(&ops::reshape(&weight, &[channels, taps])?, 0, 1)?;
        let taps = ops::contiguous(&turned)?;
        taps.eval()?;
        Ok(taps)
    }
}
