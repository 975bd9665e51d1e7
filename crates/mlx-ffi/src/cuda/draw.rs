//! Draws of ids from rows of logits.

use super::constants::{DRAWING, SETTINGS};
use super::kernel::{Constant, Launch, Source};
use super::launch::{ON_DEVICE, launch};
use crate::{Array, Dtype, Error, Indices, Result};

const DRAW: Source = Source {
    name: c"draw",
    inputs: &[c"logits", c"settings", c"steps"],
    outputs: &[c"ids", c"next"],
    body: include_str!("draw.cu"),
    header: include_str!("drawing.cu"),
    takes_strides: false,
    written: &[],
};

const LARGEST: Source = Source {
    name: c"largest",
    inputs: &[c"logits"],
    outputs: &[c"out"],
    body: include_str!("largest.cu"),
    header: "",
    takes_strides: false,
    written: &[],
};

/// How the ids of a row are drawn: by top-p, min-p, top-k and temperature, in this order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drawing {
    /// Divisor of the log probabilities; `None`: the most likely id is taken.
    pub temperature: Option<f32>,
    /// The most likely ids whose probabilities reach this; 1: all.
    pub top_p: f32,
    /// Ids at least so many times as likely as the most likely one; 0: all.
    pub min_p: f32,
    /// The most ids to draw among; 0: all. Of equally likely ones, those that come first.
    pub top_k: u32,
    /// The seed of a row. A draw depends on it and on the draw's number.
    pub seed: u64,
}

impl Drawing {
    /// The most likely id.
    pub const MOST_LIKELY: Drawing =
        Drawing { temperature: None, top_p: 1.0, min_p: 0.0, top_k: 0, seed: 0 };

    fn numbers(&self) -> [i32; SETTINGS] {
        let bits = |value: f32| value.to_bits() as i32;
        let inverse = self.temperature.map_or(0.0, f32::recip);
        [
            bits(inverse),
            bits(self.top_p),
            bits(self.min_p.ln()),
            i32::try_from(self.top_k).unwrap_or(i32::MAX),
            self.seed as u32 as i32,
            (self.seed >> 32) as u32 as i32,
        ]
    }
}

/// The rows of a batch and how many draws they had, on the device: what comes from the host in each
/// step would have to wait for it.
#[derive(Debug, Default)]
pub struct Drawer {
    known: Option<Known>,
}

#[derive(Debug)]
struct Known {
    rows: Vec<Drawing>,
    /// How many draws each row had.
    steps: Vec<u32>,
    settings: Array,
    on_device: Array,
}

/// Returns true when [`Drawer::draw`] supports `logits`.
fn takes_draw(logits: &Array) -> bool {
    let &[b, n] = logits.shape() else { return false };
    (logits.dtype().is_half() || logits.dtype() == Dtype::F32) && b > 0 && n > 0
}

impl Drawer {
    /// Draws an id for each row of `logits`, `[b, n]`, of which `rows` says how, and how many draws
    /// it had: `[b]`. Nobody looks at what is drawn where it says nothing. The draw is the largest
    /// of the log probabilities with Gumbel noise, which MLX's `random::uniform` makes of the first
    /// half of a key. The key is SplitMix64's of seed and number.
    ///
    /// # Errors
    /// Logits that are no floats of 16 or 32 bits; other rows than those of the logits; a device
    /// without CUDA.
    pub fn draw(&mut self, logits: &Array, rows: &[Option<(Drawing, u32)>]) -> Result<Indices> {
        let b = logits.shape().first().copied().unwrap_or(0);
        if !takes_draw(logits) || rows.len() != b as usize {
            return Err(Error::new(format!("{} rows are not drawn from {logits:?}", rows.len())));
        }
        let is_next = |known: &Known| {
            let mut all = known.rows.iter().zip(&known.steps).zip(rows);
            let is_next = |((row, step), wanted): ((&Drawing, &u32), &Option<_>)| {
                wanted.is_none_or(|wanted| wanted == (*row, *step))
            };
            known.rows.len() == rows.len() && all.all(is_next)
        };
        let Known { settings, on_device, rows, steps } = match self.known.take().filter(is_next) {
            Some(known) => known,
            None => Known::new(rows)?,
        };
        let dtype = logits.dtype();
        let constants =
            [(c"T", Constant::Type(dtype)), (c"IS_BF16", Constant::Bool(dtype == Dtype::Bf16))];
        let counts = [on_device.shape()[0]];
        let outputs: [(&[i32], Dtype); 2] = [(&counts, Dtype::U32), (&counts, Dtype::U32)];
        let all = Launch {
            grid: [DRAWING * b, 1, 1],
            block: [DRAWING, 1, 1],
            constants: &constants,
            outputs: &outputs,
        };
        let found = launch(&DRAW, &[logits, &settings, &on_device], &all)?;
        let [ids, next] = <[Array; 2]>::try_from(found)
            .map_err(|found| Error::new(format!("{} results of a draw", found.len())))?;
        let steps = steps.iter().map(|step| step.wrapping_add(1)).collect();
        self.known = Some(Known { rows, steps, settings, on_device: next });
        Indices::along(logits, -1, crate::ops::slice_axis(&ids, 0, 0, b)?)
    }
}

/// The largest of each row of `logits`, `[b, n]`: `[b]`, F32. It is NaN where one of them is,
/// whatever the rest is.
///
/// # Errors
/// Logits that are no floats of 16 or 32 bits; a device without CUDA.
pub fn largest(logits: &Array) -> Result<Array> {
    if !takes_draw(logits) {
        return Err(Error::new(format!("the largest of a row is not found in {logits:?}")));
    }
    let b = logits.shape()[0];
    let all = Launch {
        grid: [DRAWING * b, 1, 1],
        block: [DRAWING, 1, 1],
        constants: &[(c"T", Constant::Type(logits.dtype()))],
        outputs: &[(&[b], Dtype::F32)],
    };
    launch(&LARGEST, &[logits], &all)?.pop().ok_or_else(|| Error::new("a launch has no result"))
}

impl Known {
    fn new(rows: &[Option<(Drawing, u32)>]) -> Result<Known> {
        let rows: Vec<(Drawing, u32)> =
            rows.iter().map(|row| row.unwrap_or((Drawing::MOST_LIKELY, 0))).collect();
        let numbers: Vec<i32> = rows.iter().flat_map(|(row, _)| row.numbers()).collect();
        let settings = Array::from_i32(&numbers, &[numbers.len() as i32])?;
        let (rows, steps): (Vec<Drawing>, Vec<u32>) = rows.iter().copied().unzip();
        let mut padded = steps.clone();
        padded.resize(steps.len().max(ON_DEVICE), 0);
        let on_device = Array::from_u32(&padded, &[padded.len() as i32])?;
        Ok(Known { rows, steps, settings, on_device })
    }
}
