//! Audio towers, built from the config of each family.

mod gemma3n;
mod gemma4;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{
    EarAttention, EarBlock, EarNetwork, EarWindow, LightConvolution, RelativePositions,
};
use crate::weights::Weights;

pub(crate) use gemma3n::gemma3n_ears;
pub(crate) use gemma4::gemma4_ears;

/// The most values of a tower's hidden states, and channels of its convolutions.
const MAX_WIDTH: i32 = 1 << 16;
/// The most places that are computed together, or lie beside them.
const MAX_WINDOW: i32 = 1 << 12;
/// The number that keeps the root from 0 in norms whose classes take no other value.
const EPS: f32 = 1e-6;

/// The sizes of an audio tower.
struct EarSizes {
    hidden: i32,
    layers: i32,
    heads: i32,
    channels: [i32; 2],
    /// Places that the short convolutions see.
    taps: i32,
    eps: f32,
    /// Places that are computed together, and those that they see before and behind themselves.
    chunk: i32,
    left: i32,
    right: i32,
    softcap: f32,
    part: f32,
    limit: f32,
    activation: Activation,
}

/// The keys of the sizes in a family's config.
struct EarKeys {
    layers: &'static str,
    heads: &'static str,
    channels: &'static str,
    taps: &'static str,
    chunk: &'static str,
    left: &'static str,
    right: &'static str,
    softcap: &'static str,
    part: &'static str,
}

impl EarSizes {
    /// The sizes that `config` states, with `hidden` values of a place where it states none.
    fn read(config: &Config, keys: &EarKeys, hidden: i32) -> Result<EarSizes> {
        let size = |key: &str, usual: i32, most: i32| -> Result<i32> {
            let size = config.opt_size(key)?.unwrap_or(usual);
            match size <= most {
                true => Ok(size),
                false => Err(wrong(format!("`{key}` is {size}, at most {most} are supported"))),
            }
        };
        let number = |key: &str, usual: f64| -> Result<f32> {
            Ok(config.opt_number(key)?.unwrap_or(usual) as f32)
        };
        let channels = config.opt_indices(keys.channels)?.unwrap_or_else(|| vec![128, 32]);
        let channels: Vec<i32> =
            channels.into_iter().map(|size| size.min(1 << 20) as i32).collect();
        let channels = <[i32; 2]>::try_from(channels)
            .ok()
            .filter(|sizes| sizes.iter().all(|size| (1..=MAX_WIDTH).contains(size)))
            .ok_or_else(|| {
                wrong(format!("`{}` are no two sizes from 1 to {MAX_WIDTH}", keys.channels))
            })?;
        let (hidden, heads) =
            (size("hidden_size", hidden, MAX_WIDTH)?, size(keys.heads, 8, MAX_WIDTH)?);
        if hidden % heads != 0 || hidden % 2 != 0 {
            return Err(wrong(format!(
                "`hidden_size` {hidden} is no multiple of `{}` {heads}, or is odd",
                keys.heads
            )));
        }
        let left = size(keys.left, 13, MAX_WINDOW)?;
        let right = config.opt_index(keys.right)?.unwrap_or(0);
        if left < 2 || right > MAX_WINDOW {
            return Err(wrong(format!(
                "`{}` is {left} and `{}` {right}, expected 2 on and {MAX_WINDOW} at most",
                keys.left, keys.right
            )));
        }
        let name = config.opt_text("hidden_act")?.unwrap_or("silu");
        let activation = Activation::from_name(name)
            .ok_or_else(|| wrong(format!("`hidden_act` is `{name}`, which is not known")))?;
        Ok(EarSizes {
            hidden,
            heads,
            layers: size(keys.layers, 12, super::MAX_LAYERS)?,
            channels,
            taps: size(keys.taps, 5, MAX_WINDOW)?,
            eps: config.opt_positive("rms_norm_eps")?.unwrap_or(1e-6) as f32,
            chunk: size(keys.chunk, 12, MAX_WINDOW)?,
            left,
            right,
            softcap: number(keys.softcap, 50.0)?,
            part: number(keys.part, 0.5)?,
            limit: number("gradient_clipping", 1e10)?,
            activation,
        })
    }

    fn head_dim(&self) -> i32 {
        self.hidden / self.heads
    }

    /// A place sees those before it that are less than `sees[0]` away, and those behind it that are
    /// less than `sees[1]` away.
    fn window(&self, sees: [i32; 2]) -> EarWindow {
        EarWindow { chunk: self.chunk, around: [self.left - 1, self.right], sees }
    }

    /// The block under `w`.
    fn block(&self, w: &Weights, names: &BlockNames, parts: AttentionScores) -> Result<EarBlock> {
        let (hidden, activation) = (self.hidden, self.activation);
        let network = |name: &str| -> Result<EarNetwork> {
            let w = w.at(name);
            Ok(EarNetwork {
                norms: [
                    w.rms_norm("pre_layer_norm", hidden, EPS)?,
                    w.rms_norm("post_layer_norm", hidden, EPS)?,
                ],
                linears: [
                    w.clipped_linear("ffw_layer_1", hidden, 4 * hidden)?,
                    w.clipped_linear("ffw_layer_2", 4 * hidden, hidden)?,
                ],
                activation,
                part: self.part,
            })
        };
        let (attention, light) = (w.at(names.attention), w.at("lconv1d"));
        let into = |name| attention.clipped_linear(name, hidden, hidden);
        let AttentionScores { window, key_scale, unseen, distances } = parts;
        // The factor of a head that is scaled by nothing else.
        let scale = f64::from(self.head_dim()).sqrt().recip() / 2f64.ln();
        Ok(EarBlock {
            networks: [network(names.networks[0])?, network(names.networks[1])?],
            attention_norms: [
                w.rms_norm(names.norms[0], hidden, EPS)?,
                w.rms_norm(names.norms[1], hidden, EPS)?,
            ],
            attention: EarAttention {
                n_heads: self.heads,
                window,
                qkv: [into("q_proj")?, into("k_proj")?, into("v_proj")?],
                query_scale: scale as f32,
                per_dim_scale: attention.tensor("per_dim_scale", &[self.head_dim()])?,
                key_scale,
                softcap: self.softcap,
                unseen,
                positions: RelativePositions {
                    projection: attention.linear(names.positions, hidden, hidden, false)?,
                    distances,
                },
                out: w.clipped_linear(names.out, hidden, hidden)?,
            },
            convolution: LightConvolution {
                norm: light.rms_norm("pre_layer_norm", hidden, self.eps)?,
                start: light.clipped_linear("linear_start", hidden, 2 * hidden)?,
                taps: light.at("depthwise_conv1d").taps(hidden, self.taps)?,
                inner_norm: light.rms_norm("conv_norm", hidden, self.eps)?,
                activation,
                end: light.clipped_linear("linear_end", hidden, hidden)?,
            },
            norm: w.rms_norm(names.norms[2], hidden, EPS)?,
            limit: self.limit,
        })
    }
}

/// The names of a block's parts in a family's checkpoints.
struct BlockNames {
    networks: [&'static str; 2],
    attention: &'static str,
    /// Of the keys of distances, under `attention`.
    positions: &'static str,
    out: &'static str,
    /// Before attention, behind it, and behind all.
    norms: [&'static str; 3],
}

/// The parts of the scores of a family's attention.
struct AttentionScores {
    window: EarWindow,
    key_scale: f32,
    unseen: f32,
    distances: Vec<i32>,
}

fn wrong(reason: String) -> Error {
    Error::model(format!("config.json: `audio_config`: {reason}"))
}
