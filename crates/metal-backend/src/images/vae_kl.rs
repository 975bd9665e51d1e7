//! `AutoencoderKL`: pictures to latents and back, as in Z-Image and FLUX.

use mlx_ffi::{Array, Result, ops};

use super::attend::{Sees, attend};
use super::computed::computed;
use super::nn::{Conv2d, GroupNorm, Norm, doubled};
use super::vae::{Latent, Vae};
use crate::config::Config;
use crate::error::{Error, Result as Read};
use crate::kernels::Kernels;
use crate::layers::Linear;
use crate::weights::Weights;

const EPS: f32 = 1e-6;

/// The sizes of its config.
struct Sizes {
    /// Channels at each size of the picture, the full one first.
    channels: Vec<i32>,
    layers: i32,
    groups: i32,
    latent: i32,
}

/// The decoder.
#[derive(Debug)]
pub(super) struct KlDecoder {
    conv_in: Conv2d,
    middle: Middle,
    up_blocks: Vec<(Vec<Resnet>, Option<Conv2d>)>,
    norm: GroupNorm,
    conv_out: Conv2d,
    scaling: f32,
    shift: f32,
}

type Resnet = super::resnet::Resnet<GroupNorm>;

/// The blocks between encoder and decoder: two resnets around an attention.
#[derive(Debug)]
struct Middle {
    first: Resnet,
    attention: Option<Attention>,
    second: Resnet,
}

/// Attention of one head.
#[derive(Debug)]
struct Attention {
    norm: GroupNorm,
    q: Linear,
    k: Linear,
    v: Linear,
    out: Linear,
    kernels: Kernels,
}

impl Sizes {
    fn read(config: &Config) -> Read<Sizes> {
        let expect = |key: &str, expected: &str| -> Read<()> {
            match config.opt_text(key)? {
                Some(found) if found != expected => {
                    Err(Error::model(format!("the VAE's `{key}` is `{found}`; {expected} works")))
                }
                _ => Ok(()),
            }
        };
        expect("act_fn", "silu")?;
        for (key, expected) in
            [("down_block_types", "DownEncoderBlock2D"), ("up_block_types", "UpDecoderBlock2D")]
        {
            let types = config.opt_texts(key)?.unwrap_or_default();
            if let Some(other) = types.into_iter().find(|kind| *kind != expected) {
                return Err(Error::model(format!(
                    "the VAE's `{key}` names `{other}`; {expected} works"
                )));
            }
        }
        for key in ["use_quant_conv", "use_post_quant_conv"] {
            // Absent means true in diffusers, as older checkpoints have these convolutions.
            if config.opt_flag(key)?.unwrap_or(true) {
                return Err(Error::model(format!(
                    "the VAE's `{key}` is not false, which is not known"
                )));
            }
        }
        let channels = config.opt_indices("block_out_channels")?.unwrap_or_default();
        let channels: Vec<i32> =
            channels.into_iter().map(|size| size.min(1 << 20) as i32).collect();
        if channels.len() != 4 || channels.contains(&0) {
            let reason =
                format!("the VAE's `block_out_channels` are {channels:?}, expected four sizes");
            return Err(Error::model(reason));
        }
        Ok(Sizes {
            channels,
            layers: config.opt_size("layers_per_block")?.unwrap_or(1),
            groups: config.opt_size("norm_num_groups")?.unwrap_or(32),
            latent: config.size("latent_channels")?,
        })
    }

    fn resnet(&self, w: &Weights, input: i32, output: i32) -> Read<Resnet> {
        let norm = |w: &Weights, size| GroupNorm::load(w, size, self.groups, EPS);
        Resnet::load(w, [input, output], norm)
    }

    fn middle(&self, w: &Weights, has_attention: bool) -> Read<Middle> {
        let size = self.channels[self.channels.len() - 1];
        let attention = |w: Weights| -> Read<Attention> {
            let linear = |name: &str| w.linear(name, size, size, true);
            Ok(Attention {
                norm: GroupNorm::load(&w.at("group_norm"), size, self.groups, EPS)?,
                q: linear("to_q")?,
                k: linear("to_k")?,
                v: linear("to_v")?,
                out: linear("to_out.0")?,
                kernels: w.kernels(),
            })
        };
        Ok(Middle {
            first: self.resnet(&w.at("resnets.0"), size, size)?,
            attention: has_attention.then(|| attention(w.at("attentions.0"))).transpose()?,
            second: self.resnet(&w.at("resnets.1"), size, size)?,
        })
    }
}

impl KlDecoder {
    /// Takes the decoder's tensors and leaves the encoder's.
    ///
    /// # Errors
    /// A config that is not known; tensors that do not fit.
    pub fn load(config: &Config, w: &Weights) -> Read<KlDecoder> {
        let sizes = Sizes::read(config)?;
        let attends = config.opt_flag("mid_block_add_attention")?.unwrap_or(true);
        w.ignore(|name| name.starts_with("encoder."));
        let w = w.at("decoder");
        let widest = sizes.channels[3];
        let mut channels = widest;
        let mut up_blocks = Vec::new();
        for (index, &size) in sizes.channels.iter().rev().enumerate() {
            let block = w.at(&format!("up_blocks.{index}"));
            let mut resnets = Vec::new();
            for layer in 0..=sizes.layers {
                let resnet = block.at(&format!("resnets.{layer}"));
                resnets.push(sizes.resnet(&resnet, channels, size)?);
                channels = size;
            }
            let doubling = || Conv2d::same(&block.at("upsamplers.0.conv"), [size, size, 3]);
            up_blocks.push((resnets, (index < 3).then(doubling).transpose()?));
        }
        Ok(KlDecoder {
            conv_in: Conv2d::same(&w.at("conv_in"), [sizes.latent, widest, 3])?,
            middle: sizes.middle(&w.at("mid_block"), attends)?,
            up_blocks,
            norm: GroupNorm::load(&w.at("conv_norm_out"), channels, sizes.groups, EPS)?,
            conv_out: Conv2d::same(
                &w.at("conv_out"),
                [channels, config.opt_size("out_channels")?.unwrap_or(3), 3],
            )?,
            scaling: config.opt_positive("scaling_factor")?.unwrap_or(0.18215) as f32,
            shift: config.opt_number("shift_factor")?.unwrap_or(0.0) as f32,
        })
    }
}

impl Vae for KlDecoder {
    fn raw(&self, latents: &Array) -> Result<Array> {
        let scalar = |value: f32| Array::scalar(value, latents.dtype());
        ops::add(&ops::divide(latents, &scalar(self.scaling)?)?, &scalar(self.shift)?)
    }

    fn decode(&self, raw: &Latent) -> Result<Array> {
        let raw = ops::astype(raw, self.conv_in.dtype())?;
        let mut x = self.conv_in.forward(&raw)?;
        x = self.middle.forward(&x)?;
        for (resnets, doubling) in &self.up_blocks {
            for resnet in resnets {
                x = resnet.forward(&x)?;
            }
            if let Some(conv) = doubling {
                x = computed(conv.forward(&doubled(&x)?)?)?;
            }
        }
        self.conv_out.forward(&computed(self.norm.with_silu(&x)?)?)
    }
}

impl Middle {
    fn forward(&self, x: &Array) -> Result<Array> {
        let x = self.first.forward(x)?;
        let x = match &self.attention {
            None => x,
            Some(attention) => attention.forward(&x)?,
        };
        self.second.forward(&x)
    }
}

impl Attention {
    fn forward(&self, x: &Array) -> Result<Array> {
        let [n, height, width, channels] = x.dims()?;
        let normed = ops::reshape(&self.norm.forward(x)?, &[n, height * width, channels])?;
        let head = |linear: &Linear| ops::expand_dims(&linear.forward(&normed)?, 1);
        let (q, k, v) = (head(&self.q)?, head(&self.k)?, head(&self.v)?);
        let y = self.out.forward(&attend(self.kernels, &q, &k, &v, Sees::All)?)?;
        ops::add(x, &ops::reshape(&y, x.shape())?)
    }
}
