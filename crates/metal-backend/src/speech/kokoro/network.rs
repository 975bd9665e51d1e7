//! The whole network, on the thread that owns its arrays: ids of phonemes and a style to samples.

use mlx_ffi::{Array, Indices, Result, ops};

use super::albert::Albert;
use super::decoder::Decoder;
use super::prosody::{Prosody, TextEncoder};
use super::source::{Noise, RATE};
use crate::layers::Linear;

/// The model's parts.
pub(super) struct Network {
    pub albert: Albert,
    /// From ALBERT's states to those of prosody.
    pub bridge: Linear,
    pub prosody: Prosody,
    pub text: TextEncoder,
    pub decoder: Decoder,
    /// Values of each half of a style.
    pub style: usize,
    /// Samples of a frame.
    pub frame: usize,
    /// Values that are held at once for each frame.
    pub values: u64,
}

/// Phonemes that know how long they are.
pub(super) struct Lengths {
    /// Frames of the silence before, of each phoneme, and of the silence behind.
    pub frames: Vec<u32>,
    ids: Indices,
    states: Array,
    /// For the decoder, and for prosody.
    styles: [Array; 2],
}

/// A piece that was said.
pub(super) struct Said {
    pub frames: Vec<u32>,
    pub samples: Vec<f32>,
}

impl Network {
    /// The most phonemes of a piece: one place before and one behind are no phonemes.
    pub fn most_phonemes(&self) -> usize {
        (self.albert.places - 2).max(1) as usize
    }

    /// Seconds of a frame.
    pub fn frame_seconds(&self) -> f64 {
        self.frame as f64 / f64::from(RATE)
    }

    /// Values that the decoder holds at once for each frame.
    pub fn values_of_frame(&self) -> u64 {
        self.values
    }

    /// How long phonemes are at `speed`, said in `style`.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn lengths(&self, ids: &[u32], style: &[f32], speed: f32) -> Result<Lengths> {
        let framed = [&[0][..], ids, &[0]].concat();
        let n = framed.len() as i32;
        let ids = Indices::from_u32(&framed, &[n])?;
        let half = |part: &[f32]| Array::from_f32(part, &[1, part.len() as i32]);
        let (of_decoder, of_prosody) = style.split_at(self.style);
        let styles = [half(of_decoder)?, half(of_prosody)?];
        let states = self.bridge.forward(&self.albert.forward(&ids, n)?)?;
        let states = self.prosody.encode(&states, &styles[1])?;
        let frames = self.prosody.lengths(&states, speed)?;
        Ok(Lengths { frames, ids, states, styles })
    }

    /// Says phonemes. `goes_on` is asked now and then.
    ///
    /// # Errors
    /// Those of MLX; that it does not go on.
    pub fn sound(&self, of: Lengths, noise: Noise, goes_on: &dyn Fn() -> bool) -> Result<Said> {
        let Lengths { frames, ids, states, styles } = of;
        let each = frames.iter().enumerate();
        let places: Vec<u32> =
            each.flat_map(|(at, count)| std::iter::repeat_n(at as u32, *count as usize)).collect();
        let places = Indices::from_u32(&places, &[places.len() as i32])?;
        let curves = self.prosody.curves(&ops::take(&states, &places, 1)?, &styles[1])?;
        let heard = ops::take(&self.text.forward(&ids)?, &places, 1)?;
        let samples = self.decoder.forward(&heard, &curves, &styles[0], noise, goes_on)?;
        Ok(Said { frames, samples })
    }
}
