//! `AutoencoderKLQwenImage`: pictures to latents and back, as in Qwen-Image and Wan.
//!
//! The network is one over frames. Of a single frame it is one over pictures: of each causal kernel
//! only the last slice meets the frame, and convolutions over time never run.

use mlx_ffi::{Array, Dtype, Result, ops};

use super::attend::{Sees, attend};
use super::computed::computed;
use super::nn::{Conv2d, Norm, doubled};
use super::vae::{Latent, Vae};
use crate::config::Config;
use crate::error::{Error, Result as Read};
use crate::kernels::Kernels;
use crate::weights::Weights;

/// The sizes of its config.
struct Sizes {
    base: i32,
    latent: i32,
    factors: Vec<i32>,
    resnets: i32,
    colours: i32,
}

/// Mean and deviation of each latent channel.
#[derive(Debug)]
struct Scale {
    /// `[channels]`, F32.
    mean: Array,
    /// `[channels]`, F32.
    deviation: Array,
}

/// From latents to pictures.
#[derive(Debug)]
pub(super) struct QwenDecoder {
    scale: Scale,
    before: Conv2d,
    conv_in: Conv2d,
    middle: Middle,
    up_blocks: Vec<(Vec<Resnet>, Option<Conv2d>)>,
    norm: RootNorm,
    conv_out: Conv2d,
}

/// From pictures to latents.
#[derive(Debug)]
pub(super) struct QwenEncoder {
    scale: Scale,
    conv_in: Conv2d,
    down_blocks: Vec<Down>,
    middle: Middle,
    norm: RootNorm,
    conv_out: Conv2d,
    behind: Conv2d,
    latent: i32,
}

#[derive(Debug)]
enum Down {
    Resnet(Box<Resnet>),
    Halving(Conv2d),
}

/// `x / |x| · √channels · gamma` over the channels, in F32.
#[derive(Debug)]
struct RootNorm {
    /// `[channels]`, F32, with the root in it.
    gamma: Array,
}

type Resnet = super::resnet::Resnet<RootNorm>;

#[derive(Debug)]
struct Middle {
    first: Resnet,
    norm: RootNorm,
    qkv: Conv2d,
    out: Conv2d,
    second: Resnet,
    kernels: Kernels,
}

impl Sizes {
    fn read(config: &Config) -> Read<Sizes> {
        let factors = config.opt_indices("dim_mult")?.unwrap_or(vec![1, 2, 4, 4]);
        let factors: Vec<i32> = factors.into_iter().map(|factor| factor.min(64) as i32).collect();
        if factors.len() != 4 || factors.contains(&0) {
            return Err(Error::model(format!(
                "the VAE's `dim_mult` is {factors:?}, not four factors"
            )));
        }
        if config.opt_list_of_numbers("attn_scales")?.is_some_and(|scales| !scales.is_empty()) {
            return Err(Error::model("the VAE's `attn_scales` are not empty, which is not known"));
        }
        Ok(Sizes {
            base: config.opt_size("base_dim")?.unwrap_or(96),
            latent: config.opt_size("z_dim")?.unwrap_or(16),
            factors,
            resnets: config.opt_size("num_res_blocks")?.unwrap_or(2),
            colours: config.opt_size("input_channels")?.unwrap_or(3),
        })
    }

    fn scale(&self, config: &Config) -> Read<Scale> {
        let part = |key: &str| -> Read<Array> {
            let values = config.opt_list_of_numbers(key)?.unwrap_or_default();
            if values.len() != self.latent as usize {
                let reason = format!(
                    "the VAE's `{key}` has {} values, expected {}",
                    values.len(),
                    self.latent
                );
                return Err(Error::model(reason));
            }
            let values: Vec<f32> = values.into_iter().map(|value| value as f32).collect();
            Ok(Array::from_f32(&values, &[self.latent])?)
        };
        Ok(Scale { mean: part("latents_mean")?, deviation: part("latents_std")? })
    }

    fn widest(&self) -> i32 {
        self.base * self.factors[3]
    }
}

impl RootNorm {
    /// The norm under `w`, whose `gamma` has `ones` further dimensions of size 1, or none as MLX
    /// saves it.
    fn load(w: &Weights, channels: i32, ones: usize) -> Read<RootNorm> {
        let ones = if w.shape("gamma").is_some_and(|shape| shape.len() == 1) { 0 } else { ones };
        let shape: Vec<i32> = [channels].into_iter().chain(std::iter::repeat_n(1, ones)).collect();
        let gamma = w.tensor_f32("gamma", &shape)?;
        if gamma.size() != channels as usize {
            // A stand-in.
            return Ok(RootNorm { gamma });
        }
        let root = Array::scalar((channels as f32).sqrt(), Dtype::F32)?;
        let gamma = ops::multiply(&ops::reshape(&gamma, &[channels])?, &root)?;
        gamma.eval()?;
        Ok(RootNorm { gamma })
    }
}

impl Norm for RootNorm {
    fn forward(&self, x: &Array) -> Result<Array> {
        let wide = ops::astype(x, Dtype::F32)?;
        let square = ops::sum(&ops::multiply(&wide, &wide)?, -1, true)?;
        // As torch's `normalize` has it.
        let length = ops::maximum(&ops::sqrt(&square)?, &Array::scalar(1e-12, Dtype::F32)?)?;
        ops::astype(&ops::multiply(&ops::divide(&wide, &length)?, &self.gamma)?, x.dtype())
    }
}

/// The block under `w`, from so many channels to so many.
fn resnet(w: &Weights, input: i32, output: i32) -> Read<Resnet> {
    Resnet::load(w, [input, output], |w, channels| RootNorm::load(w, channels, 3))
}

impl Middle {
    fn load(w: &Weights, size: i32) -> Read<Middle> {
        let attention = w.at("attentions.0");
        Ok(Middle {
            first: resnet(&w.at("resnets.0"), size, size)?,
            norm: RootNorm::load(&attention.at("norm"), size, 2)?,
            qkv: Conv2d::same(&attention.at("to_qkv"), [size, 3 * size, 1])?,
            out: Conv2d::same(&attention.at("proj"), [size, size, 1])?,
            second: resnet(&w.at("resnets.1"), size, size)?,
            kernels: w.kernels(),
        })
    }

    fn forward(&self, x: &Array) -> Result<Array> {
        let x = self.first.forward(x)?;
        let [n, height, width, channels] = x.dims()?;
        let qkv = self.qkv.forward(&self.norm.forward(&x)?)?;
        let qkv = ops::reshape(&qkv, &[n, 1, height * width, 3 * channels])?;
        let part = |i: i32| ops::slice_axis(&qkv, -1, i * channels, (i + 1) * channels);
        let y = attend(self.kernels, &part(0)?, &part(1)?, &part(2)?, Sees::All)?;
        let y = self.out.forward(&ops::reshape(&y, x.shape())?)?;
        self.second.forward(&ops::add(&x, &y)?)
    }
}

impl QwenDecoder {
    /// Takes the decoder's tensors and leaves the encoder's.
    ///
    /// # Errors
    /// A config that is not known; tensors that do not fit.
    pub fn load(config: &Config, w: &Weights) -> Read<QwenDecoder> {
        let sizes = Sizes::read(config)?;
        w.ignore(|name| {
            let is_encoders = name.starts_with("encoder.") || name.starts_with("quant_conv.");
            is_encoders || name.contains(".time_conv.")
        });
        let (latent, widest) = (sizes.latent, sizes.widest());
        let before = Conv2d::same(&w.at("post_quant_conv"), [latent, latent, 1])?;
        let w = w.at("decoder");
        let mut channels = widest;
        let mut up_blocks = Vec::new();
        for (index, factor) in sizes.factors.iter().rev().enumerate() {
            let (block, size) = (w.at(&format!("up_blocks.{index}")), sizes.base * factor);
            let mut resnets = Vec::new();
            for index in 0..=sizes.resnets {
                resnets.push(resnet(&block.at(&format!("resnets.{index}")), channels, size)?);
                channels = size;
            }
            let doubling = if index < 3 {
                channels = size / 2;
                let conv = block.at("upsamplers.0.resample.1");
                Some(Conv2d::same(&conv, [size, channels, 3])?)
            } else {
                None
            };
            up_blocks.push((resnets, doubling));
        }
        Ok(QwenDecoder {
            scale: sizes.scale(config)?,
            before,
            conv_in: Conv2d::same(&w.at("conv_in"), [latent, widest, 3])?,
            middle: Middle::load(&w.at("mid_block"), widest)?,
            up_blocks,
            norm: RootNorm::load(&w.at("norm_out"), channels, 3)?,
            conv_out: Conv2d::same(&w.at("conv_out"), [channels, sizes.colours, 3])?,
        })
    }
}

impl Vae for QwenDecoder {
    fn raw(&self, latents: &Latent) -> Result<Array> {
        ops::add(&ops::multiply(latents, &self.scale.deviation)?, &self.scale.mean)
    }

    fn decode(&self, raw: &Latent) -> Result<Array> {
        let raw = ops::astype(raw, self.before.dtype())?;
        let mut x = self.conv_in.forward(&self.before.forward(&raw)?)?;
        x = self.middle.forward(&x)?;
        for (resnets, doubling) in &self.up_blocks {
            for resnet in resnets {
                x = resnet.forward(&x)?;
            }
            if let Some(conv) = doubling {
                x = computed(conv.forward(&doubled(&x)?)?)?;
            }
        }
        let x = self.conv_out.forward(&computed(self.norm.with_silu(&x)?)?)?;
        let bound = |value: f32| Array::scalar(value, x.dtype());
        ops::minimum(&ops::maximum(&x, &bound(-1.0)?)?, &bound(1.0)?)
    }
}

impl QwenEncoder {
    /// Takes the encoder's tensors and leaves the decoder's.
    ///
    /// # Errors
    /// A config that is not known; tensors that do not fit.
    pub fn load(config: &Config, w: &Weights) -> Read<QwenEncoder> {
        let sizes = Sizes::read(config)?;
        w.ignore(|name| {
            let is_decoders = name.starts_with("decoder.") || name.starts_with("post_quant_conv.");
            is_decoders || name.contains(".time_conv.")
        });
        let (latent, widest) = (2 * sizes.latent, sizes.widest());
        let behind = Conv2d::same(&w.at("quant_conv"), [latent, latent, 1])?;
        let w = w.at("encoder");
        let (mut channels, mut index) = (sizes.base, 0);
        let mut down_blocks = Vec::new();
        let mut next = || {
            index += 1;
            w.at(&format!("down_blocks.{}", index - 1))
        };
        for (level, factor) in sizes.factors.iter().enumerate() {
            let size = sizes.base * factor;
            for _ in 0..sizes.resnets {
                down_blocks.push(Down::Resnet(Box::new(resnet(&next(), channels, size)?)));
                channels = size;
            }
            if level < 3 {
                let conv = Conv2d::halving(&next().at("resample.1"), size)?;
                down_blocks.push(Down::Halving(conv));
            }
        }
        Ok(QwenEncoder {
            scale: sizes.scale(config)?,
            conv_in: Conv2d::same(&w.at("conv_in"), [sizes.colours, sizes.base, 3])?,
            down_blocks,
            middle: Middle::load(&w.at("mid_block"), widest)?,
            norm: RootNorm::load(&w.at("norm_out"), widest, 3)?,
            conv_out: Conv2d::same(&w.at("conv_out"), [widest, latent, 3])?,
            behind,
            latent: sizes.latent,
        })
    }

    /// The means and the logarithms of the variances of `colours` from -1 to 1,
    /// `[1, 8 · height, 8 · width, 3]`: `[1, height, width, 2 · channels]`.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn moments(&self, colours: &Array) -> Result<Array> {
        let mut x = self.conv_in.forward(&ops::astype(colours, self.behind.dtype())?)?;
        for block in &self.down_blocks {
            x = match block {
                Down::Resnet(resnet) => resnet.forward(&x)?,
                Down::Halving(conv) => conv.forward(&x)?,
            };
        }
        let x = self.middle.forward(&x)?;
        let x = self.conv_out.forward(&computed(self.norm.with_silu(&x)?)?)?;
        self.behind.forward(&x)
    }

    /// The normalised latents of `colours`, `[1, height, width, channels]` F32: their means.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn encode(&self, colours: &Array) -> Result<Array> {
        let mean = ops::slice_axis(&self.moments(colours)?, -1, 0, self.latent)?;
        let mean = ops::astype(&mean, Dtype::F32)?;
        ops::divide(&ops::subtract(&mean, &self.scale.mean)?, &self.scale.deviation)
    }
}
