//! The decoder: frames of phonemes, a pitch and a loudness to a wave
//! (<https://arxiv.org/abs/2203.02395>).

use mlx_ffi::{Array, Dtype, Error, Result, ops};

use super::blocks::{Rate, StyledBlock, WaveBlock};
use super::layers::{Conv, Moves, Upsample, stored};
use super::source::{HARMONICS, Noise, Source, Spectra};
use crate::config::Config;
use crate::error::{Error as Fault, Result as Read};
use crate::kernels::leaky_relu;
use crate::weights::Weights;

/// Blocks behind the first one; the last doubles the places.
const BLOCKS: i32 = 4;
/// The most layers of each kind, and the most of any size.
const MOST: u64 = 1 << 12;

/// The sizes under `istftnet` in `config.json`.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    /// Rate and taps of each growth.
    growths: Vec<[i32; 2]>,
    /// Channels before the first growth; each halves them.
    channels: i32,
    /// Taps and dilations of the blocks behind each growth.
    blocks: Vec<(i32, Vec<i32>)>,
    spectra: [usize; 2],
}

impl Sizes {
    /// # Errors
    /// A key that is missing or does not fit.
    pub fn read(config: &Config) -> Read<Sizes> {
        let list = |key: &str| -> Read<Vec<i32>> {
            let found = config.opt_indices(key)?.unwrap_or_default();
            match found.is_empty() || found.iter().any(|size| !(1..MOST).contains(size)) {
                false => Ok(found.iter().map(|size| *size as i32).collect()),
                true => Err(Fault::model(format!("config.json: `{key}` is no list of sizes"))),
            }
        };
        let dilations = config.get("resblock_dilation_sizes");
        let dilations: Option<Vec<Vec<i32>>> =
            dilations.and_then(|found| serde_json::from_value(found.clone()).ok());
        let (rates, taps) = (list("upsample_rates")?, list("upsample_kernel_sizes")?);
        let (blocks, dilations) = (list("resblock_kernel_sizes")?, dilations.unwrap_or_default());
        let in_range = |size: &i32| (1..MOST as i32).contains(size);
        let channels = config.size("upsample_initial_channel")?;
        let (size, hop) = (config.size("gen_istft_n_fft")?, config.size("gen_istft_hop_size")?);
        // Samples of half a frame. Three frames, the fewest of a piece, have half a window or more.
        let samples = rates.iter().try_fold(hop, |all, rate| all.checked_mul(*rate));
        let is_bounded = samples.is_some_and(|all| all <= 1 << 14 && 6 * all > size / 2);
        let is_whole = rates.len() == taps.len()
            && is_bounded
            && rates.iter().zip(&taps).all(|(rate, taps)| taps >= rate && (taps - rate) % 2 == 0)
            && rates.len() < 8
            && channels % (1 << rates.len()) == 0
            && blocks.len() == dilations.len()
            && blocks.iter().all(|taps| taps % 2 == 1)
            && dilations.iter().flatten().all(in_range)
            && size % 2 == 0
            && (4..=1 << 10).contains(&size)
            && hop < size;
        if !is_whole {
            return Err(Fault::model("config.json: sizes of `istftnet` do not fit each other"));
        }
        Ok(Sizes {
            growths: rates.into_iter().zip(taps).map(|(rate, taps)| [rate, taps]).collect(),
            channels,
            blocks: blocks.into_iter().zip(dilations).collect(),
            spectra: [size as usize, hop as usize],
        })
    }

    /// Samples of half a frame.
    pub fn scale(&self) -> usize {
        self.growths.iter().map(|[rate, _]| *rate as usize).product::<usize>() * self.spectra[1]
    }

    /// The most values that are held at once for each frame.
    pub fn values(&self) -> u64 {
        let (mut places, mut channels, mut most) = (2, self.channels as u64, 0);
        for [rate, _] in &self.growths {
            (places, channels) = (places * *rate as u64, channels / 2);
            most = most.max(places * channels);
        }
        8 * most
    }
}

/// A decoder and its generator.
pub(super) struct Decoder {
    curves: [Conv; 2],
    beside: Conv,
    entry: StyledBlock,
    blocks: Vec<StyledBlock>,
    source: Source,
    spectra: Spectra,
    stages: Vec<Stage>,
    end: Conv,
}

/// A growth of the generator, with the source beside it.
struct Stage {
    source: (Conv, WaveBlock),
    growth: Upsample,
    blocks: Vec<WaveBlock>,
}

impl Decoder {
    /// The modules under `w`, of frames of `hidden` values.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn load(w: &Weights, sizes: &Sizes, [hidden, style]: [i32; 2]) -> Read<Decoder> {
        // No config says how wide it is.
        let [width, ..] = stored(&w.at("encode.conv1"))?;
        let [beside, ..] = stored(&w.at("asr_res.0"))?;
        let halving = Moves { stride: 2, dilation: 1, around: 1 };
        let curve = |name: &str| Conv::load(&w.at(name), [1, 1, 3], halving);
        let block = |at: i32| {
            let (output, rate) = match at + 1 == BLOCKS {
                true => (sizes.channels, Rate::Doubled),
                false => (width, Rate::Same),
            };
            let widths = [width + 2 + beside, output];
            StyledBlock::load(&w.at(&format!("decode.{at}")), widths, style, rate)
        };
        let generator = w.at("generator");
        let bands = sizes.spectra[0] as i32 + 2;
        let stages = (0..sizes.growths.len()).map(|at| stage(&generator, sizes, at, style));
        let last = sizes.channels >> sizes.growths.len();
        Ok(Decoder {
            curves: [curve("F0_conv")?, curve("N_conv")?],
            beside: Conv::load(&w.at("asr_res.0"), [hidden, beside, 1], Moves::same(1))?,
            entry: StyledBlock::load(&w.at("encode"), [hidden + 2, width], style, Rate::Same)?,
            blocks: (0..BLOCKS).map(block).collect::<Read<_>>()?,
            source: source(&generator, sizes.scale())?,
            spectra: Spectra { size: sizes.spectra[0], hop: sizes.spectra[1] },
            stages: stages.collect::<Read<_>>()?,
            end: Conv::load(&generator.at("conv_post"), [last, bands, 7], Moves::same(7))?,
        })
    }

    /// Samples of frames, `[1, n, hidden]`, with a pitch and a loudness of each half frame, `[1,
    /// 2 n, 1]`. `goes_on` is asked now and then.
    ///
    /// # Errors
    /// Those of MLX; that it does not go on.
    pub fn forward(
        &self,
        frames: &Array,
        curves: &[Array; 2],
        style: &Array,
        noise: Noise,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Vec<f32>> {
        let [pitch, loudness] =
            [self.curves[0].forward(&curves[0])?, self.curves[1].forward(&curves[1])?];
        let x = ops::concatenate(&[frames, &pitch, &loudness], 2)?;
        let mut x = self.entry.forward(&x, style)?;
        let beside = self.beside.forward(frames)?;
        for block in &self.blocks {
            go_on(goes_on)?;
            x = ops::concatenate(&[&x, &beside, &pitch, &loudness], 2)?;
            x = block.forward(&x, style)?;
        }
        let pitch = ops::contiguous(&curves[0])?.to_vec_f32()?;
        let wave = self.source.wave(&pitch, noise);
        let spectra = self.spectra.of(&wave);
        let bands = 2 * self.spectra.bins();
        let windows = (spectra.len() / bands) as i32;
        let spectra = Array::passing_f32(&spectra, &[1, windows, bands as i32])?;
        for (at, stage) in self.stages.iter().enumerate() {
            let is_last = at + 1 == self.stages.len();
            x = stage.forward(&x, &spectra, style, is_last, goes_on)?;
        }
        let told = self.end.forward(&leaky_relu(&x, 0.01)?)?;
        Ok(self.spectra.sound(&ops::contiguous(&told)?.to_vec_f32()?))
    }
}

/// That the work goes on.
fn go_on(goes_on: &dyn Fn() -> bool) -> Result<()> {
    match goes_on() {
        true => Ok(()),
        false => Err(Error::new("nobody waits for the sound any more")),
    }
}

/// The source under `w`.
fn source(w: &Weights, scale: usize) -> Read<Source> {
    let w = w.at("m_source.l_linear");
    let found = w.tensor_f32("weight", &[1, HARMONICS as i32])?.to_vec_f32()?;
    let mut weights = [0.0; HARMONICS];
    weights.iter_mut().zip(found).for_each(|(to, weight)| *to = weight);
    Ok(Source { weights, bias: w.tensor_f32("bias", &[1])?.item_f32()?, scale })
}

/// The growth `at` of the generator under `w`.
fn stage(w: &Weights, sizes: &Sizes, at: usize, style: i32) -> Read<Stage> {
    let channels = sizes.channels >> (at + 1);
    let bands = sizes.spectra[0] as i32 + 2;
    let later: i32 = sizes.growths[at + 1..].iter().map(|[rate, _]| *rate).product();
    let is_last = at + 1 == sizes.growths.len();
    let (taps, moves, own_taps) = match is_last {
        true => (1, Moves::same(1), 11),
        false => (2 * later, Moves { stride: later, dilation: 1, around: (later + 1) / 2 }, 7),
    };
    let own = w.at(&format!("noise_res.{at}"));
    let count = sizes.blocks.len();
    let block = |(number, (taps, dilations)): (usize, &(i32, Vec<i32>))| {
        let w = w.at(&format!("resblocks.{}", at * count + number));
        WaveBlock::load(&w, [channels, *taps], dilations, style)
    };
    Ok(Stage {
        source: (
            Conv::load(&w.at(&format!("noise_convs.{at}")), [bands, channels, taps], moves)?,
            WaveBlock::load(&own, [channels, own_taps], &[1, 3, 5], style)?,
        ),
        growth: Upsample::load(
            &w.at(&format!("ups.{at}")),
            [2 * channels, channels],
            sizes.growths[at],
        )?,
        blocks: sizes.blocks.iter().enumerate().map(block).collect::<Read<_>>()?,
    })
}

impl Stage {
    /// `[1, n, channels]` to more places with half the channels. The last stage has one more place
    /// before the others, as the source has a window more than there are steps.
    fn forward(
        &self,
        x: &Array,
        spectra: &Array,
        style: &Array,
        is_last: bool,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Array> {
        go_on(goes_on)?;
        let (conv, block) = &self.source;
        let beside = block.forward(&conv.forward(spectra)?, style)?;
        let mut x = self.growth.forward(&leaky_relu(x, 0.1)?)?;
        if is_last {
            x = ops::concatenate(&[&ops::slice_axis(&x, 1, 1, 2)?, &x], 1)?;
        }
        let x = ops::add(&x, &beside)?;
        x.eval()?;
        let mut sum: Option<Array> = None;
        for block in &self.blocks {
            go_on(goes_on)?;
            let made = block.forward(&x, style)?;
            sum = Some(match sum {
                None => made,
                Some(sum) => ops::add(&sum, &made)?,
            });
        }
        let sum = sum.ok_or_else(|| Error::new("a stage has no blocks"))?;
        ops::multiply(&sum, &Array::scalar((self.blocks.len() as f32).recip(), Dtype::F32)?)
    }
}
