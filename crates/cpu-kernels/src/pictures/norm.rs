//! Norms of groups of channels over whole pictures.

use crate::functions::{exp, sine_squared};
use crate::level::{Kernel, run_at};
use crate::output::Output;
use crate::problem::buffer;
use crate::values::widen;
use crate::{Dtype, Error, Level, pool};

/// Pixels whose sums are one part of the whole: the same ones however many threads there are.
const PIXELS: usize = 1024;

/// The function of each value behind a norm.
#[derive(Clone, Copy, Debug)]
pub enum AfterNorm<'a> {
    /// The value itself.
    Nothing,
    /// `x · sigmoid(x)`.
    Silu,
    /// `x`, times this where it is below 0.
    LeakyRelu(f32),
    /// `x + sin²(a x) / a` with the `a` of its channel (<https://arxiv.org/abs/2006.08195>).
    Snake(&'a [f32]),
}

/// `(x - mean) / √(variance + eps) · weight + bias` with mean and variance of each group of
/// channels over a whole picture.
#[derive(Debug)]
pub struct GroupNorm<'a> {
    /// Of x and the result.
    pub dtype: Dtype,
    /// Pictures.
    pub pictures: usize,
    /// Pixels of a picture.
    pub pixels: usize,
    /// Values of a pixel.
    pub channels: usize,
    /// Groups of channels.
    pub groups: usize,
    /// Added to the variance.
    pub eps: f32,
    /// Applied to the result.
    pub after: AfterNorm<'a>,
    /// `[pictures, pixels, channels]`.
    pub x: &'a [u8],
    /// `[channels]`.
    pub weight: &'a [f32],
    /// `[channels]`.
    pub bias: &'a [f32],
    /// `[pictures, pixels, channels]`.
    pub out: &'a mut [u8],
}

/// Computes `task.out`, in f32 and rounded once.
///
/// # Errors
/// Buffers whose sizes do not fit, and groups that do not divide the channels; nothing is written
/// then.
pub fn group_norm(task: GroupNorm<'_>) -> Result<(), Error> {
    group_norm_at(Level::current(), task)
}

/// Computes `task.out` with the instructions of `level`, for tests and comparisons.
///
/// # Errors
/// Those of [`group_norm`], and a level that this processor does not have.
pub fn group_norm_at(level: Level, task: GroupNorm<'_>) -> Result<(), Error> {
    level.check()?;
    let GroupNorm { dtype, pictures, pixels, channels, groups, .. } = task;
    if groups == 0 || !channels.is_multiple_of(groups) {
        return Err(Error(format!("{channels} channels are no {groups} groups of one size")));
    }
    if task.weight.len() != channels || task.bias.len() != channels {
        let found = [task.weight.len(), task.bias.len()];
        return Err(Error(format!("weight and bias of {found:?} for {channels} channels")));
    }
    if let AfterNorm::Snake(factors) = task.after
        && factors.len() != channels
    {
        return Err(Error(format!("{} factors for {channels} channels", factors.len())));
    }
    buffer("x", task.x, &[pictures, pixels, channels, dtype.size()])?;
    buffer("out", task.out, &[pictures, pixels, channels, dtype.size()])?;
    if task.out.is_empty() {
        return Ok(());
    }
    let GroupNorm { out, .. } = task;
    let out = Output::new(out, (pictures * pixels, channels), dtype);
    let task = &GroupNorm { out: &mut [], ..task };
    for picture in 0..pictures {
        let over = Over { level, task, picture };
        let mean = over.means(&vec![0.0; channels], false);
        let variance = over.means(&mean, true);
        let scale = |(weight, variance): (&f32, &f32)| weight / (variance + task.eps).sqrt();
        let scale: Vec<f32> = task.weight.iter().zip(&variance).map(scale).collect();
        over.each(&|pixels| {
            let (mean, scale) = (&mean[..], &scale[..]);
            let kernel = Write { task, picture, pixels, mean, scale, out: &out };
            // SAFETY: the level was checked.
            unsafe { run_at(level, kernel) }
        });
    }
    Ok(())
}

/// One picture.
struct Over<'a> {
    level: Level,
    task: &'a GroupNorm<'a>,
    picture: usize,
}

impl Over<'_> {
    /// Calls `work` with ranges of pixels, first one and end, on all threads.
    fn each(&self, work: &(dyn Fn([usize; 2]) + Sync)) {
        let pixels = self.task.pixels;
        pool::run(pixels.div_ceil(PIXELS), &|part| {
            work([part * PIXELS, pixels.min((part + 1) * PIXELS)]);
        });
    }

    /// Of each channel the mean, over its group, of the distances from `middle`, or of their
    /// squares.
    fn means(&self, middle: &[f32], squares: bool) -> Vec<f32> {
        let GroupNorm { pixels, channels, groups, .. } = *self.task;
        let mut sums = vec![0.0f32; pixels.div_ceil(PIXELS) * channels];
        {
            let parts = pool::Parts::of(&mut sums);
            self.each(&|pixels| {
                let part = pixels[0] / PIXELS;
                // SAFETY: each part is one unit's.
                let sums = unsafe { parts.part(part * channels..(part + 1) * channels) };
                let (task, picture) = (self.task, self.picture);
                // SAFETY: the level was checked.
                unsafe { run_at(self.level, Add { task, picture, pixels, middle, squares, sums }) }
            });
        }
        let each = channels / groups;
        let mut means = vec![0.0; channels];
        for (group, means) in means.chunks_exact_mut(each).enumerate() {
            let of_group = |part: &[f32]| {
                part[group * each..(group + 1) * each]
                    .iter()
                    .map(|sum| f64::from(*sum))
                    .sum::<f64>()
            };
            let sum: f64 = sums.chunks_exact(channels).map(of_group).sum();
            means.fill((sum / (pixels * each) as f64) as f32);
        }
        means
    }
}

/// Channels that are computed at a time.
const SOME: usize = 64;

/// Adds up some pixels of a picture.
struct Add<'a> {
    task: &'a GroupNorm<'a>,
    picture: usize,
    pixels: [usize; 2],
    middle: &'a [f32],
    squares: bool,
    /// `[channels]`, zeros.
    sums: &'a mut [f32],
}

impl GroupNorm<'_> {
    /// Channels of a pixel from `first` on, at most [`SOME`].
    #[inline(always)]
    fn read(&self, picture: usize, pixel: usize, first: usize, to: &mut [f32]) {
        let size = self.dtype.size();
        let at = ((picture * self.pixels + pixel) * self.channels + first) * size;
        widen(self.dtype, &self.x[at..at + to.len() * size], to);
    }
}

impl Kernel for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Add { task, picture, pixels: [first, end], middle, squares, sums } = self;
        for (some, (sums, middle)) in sums.chunks_mut(SOME).zip(middle.chunks(SOME)).enumerate() {
            let (mut x, mut added, mut from) = ([0.0f32; SOME], [0.0f32; SOME], [0.0f32; SOME]);
            from[..middle.len()].copy_from_slice(middle);
            for pixel in first..end {
                task.read(picture, pixel, some * SOME, &mut x[..middle.len()]);
                for ((sum, x), middle) in added.iter_mut().zip(&x).zip(&from) {
                    let distance = x - middle;
                    *sum += if squares { distance * distance } else { distance };
                }
            }
            sums.copy_from_slice(&added[..sums.len()]);
        }
    }
}

/// Writes some pixels of a picture.
struct Write<'a> {
    task: &'a GroupNorm<'a>,
    picture: usize,
    pixels: [usize; 2],
    mean: &'a [f32],
    scale: &'a [f32],
    out: &'a Output<'a>,
}

impl Kernel for Write<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Write { task, picture, pixels: [begin, end], mean, scale, out } = self;
        for first in (0..task.channels).step_by(SOME) {
            let count = SOME.min(task.channels - first);
            let (mut x, mut means) = ([0.0f32; SOME], [0.0f32; SOME]);
            let (mut scales, mut biases) = ([0.0f32; SOME], [0.0f32; SOME]);
            means[..count].copy_from_slice(&mean[first..first + count]);
            scales[..count].copy_from_slice(&scale[first..first + count]);
            biases[..count].copy_from_slice(&task.bias[first..first + count]);
            let (mut factors, mut inverses) = ([1.0f32; SOME], [1.0f32; SOME]);
            if let AfterNorm::Snake(all) = task.after {
                factors[..count].copy_from_slice(&all[first..first + count]);
                inverses.iter_mut().zip(&factors).for_each(|(to, factor)| *to = 1.0 / factor);
            }
            for pixel in begin..end {
                task.read(picture, pixel, first, &mut x[..count]);
                for (((x, mean), scale), bias) in x.iter_mut().zip(&means).zip(&scales).zip(&biases)
                {
                    *x = (*x - mean) * scale + bias;
                }
                match task.after {
                    AfterNorm::Nothing => {}
                    AfterNorm::Silu => x.iter_mut().for_each(|x| *x /= 1.0 + exp::<FMA>(-*x)),
                    AfterNorm::LeakyRelu(slope) => {
                        x.iter_mut().for_each(|x| *x = if *x < 0.0 { *x * slope } else { *x });
                    }
                    AfterNorm::Snake(_) => {
                        for ((x, factor), inverse) in x.iter_mut().zip(&factors).zip(&inverses) {
                            *x += inverse * sine_squared::<FMA>(factor * *x);
                        }
                    }
                }
                // SAFETY: each pixel is one unit's.
                unsafe { out.store(picture * task.pixels + pixel, first, &x[..count]) };
            }
        }
    }
}
