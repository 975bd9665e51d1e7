//! The tensors of layers with a recurrent state.

use mlx_ffi::{Array, Dtype, ops};

use super::Weights;
use crate::error::Result;
use crate::weights::Cut;

impl Weights {
    /// The weight of a convolution of each channel by itself, stored as `[channels, 1, taps]` or
    /// `[channels, taps, 1]`: `[taps, channels]`.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn depthwise(&self, name: &str, channels: i32, taps: i32) -> Result<Array> {
        // Of all ranks, where several compute the layer together.
        let all = self.cut_of(name).map_or(channels, Cut::of);
        let shape = match self.shape(name) {
            Some(found) if found == [all, 1, taps] => [channels, 1, taps],
            _ => [channels, taps, 1],
        };
        let weight = self.tensor(name, &shape)?;
        if self.describes() {
            return Ok(weight);
        }
        let values = ops::astype(&weight, Dtype::F32)?.to_vec_f32()?;
        let (channels, taps) = (channels as usize, taps as usize);
        let turned: Vec<f32> = (0..taps)
            .flat_map(|tap| (0..channels).map(move |channel| (tap, channel)))
            .map(|(tap, channel)| values[channel * taps + tap])
            .collect();
        let turned = Array::from_f32(&turned, &[taps as i32, channels as i32])?;
        let turned = ops::astype(&turned, weight.dtype())?;
        turned.eval()?;
        Ok(turned)
    }

    /// The weights of convolutions of so many channels each, as those of one over all their
    /// channels in turn: `[taps, channels]`. They are as [`depthwise`](Self::depthwise) takes them.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn depthwise_in_turn<const N: usize>(
        &self,
        names: [&str; N],
        channels: i32,
        taps: i32,
    ) -> Result<Array> {
        let parts = names.iter().map(|name| self.depthwise(name, channels, taps));
        let mut parts = parts.collect::<Result<Vec<_>>>()?;
        if self.describes() {
            return Ok(parts.remove(0));
        }
        let all = ops::concatenate(&parts.iter().collect::<Vec<_>>(), 1)?;
        all.eval()?;
        Ok(all)
    }

    /// The `size` values of the tensor `name` in F32, in whatever shape they are stored.
    ///
    /// # Errors
    /// A tensor that is missing or has another number of values.
    pub fn vector_f32(&self, name: &str, size: i32) -> Result<Array> {
        let all = self.cut_of(name).map_or(size, Cut::of);
        if let Some(header) = self.shared.left.borrow_mut().get_mut(&self.name(name))
            && header.shape.iter().map(|dim| i64::from(*dim)).product::<i64>() == i64::from(all)
        {
            header.shape = vec![all];
        }
        self.tensor_f32(name, &[size])
    }
}
