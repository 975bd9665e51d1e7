//! Qwen-Image's transformer (`QwenImageTransformer2DModel`): a stream of text and one of pictures,
//! which attend to each other.

use mlx_ffi::{Array, Dtype, Result, ops};

use super::attend::{Angles, Projected, Sees, attend, heads};
use super::nn::{silu_between, time_embedding};
use crate::config::Config;
use crate::error::{Error, Result as Read};
use crate::kernels::{Activation, Branch, Kernels, ScaledNorm, silu};
use crate::layers::{Fusion, Linear, Pace, RmsNorm};
use crate::weights::Weights;

/// Values of a time's embedding.
const TIME: i32 = 256;
const EPS: f32 = 1e-6;
/// Positions that the reference has in one direction.
const POSITIONS: i32 = 4096;

/// The transformer.
#[derive(Debug)]
pub(super) struct QwenImage {
    picture_in: Linear,
    text_norm: RmsNorm,
    text_in: Linear,
    time: [Linear; 2],
    blocks: Vec<Block>,
    last_modulation: Linear,
    last: Linear,
    axes: [i32; 3],
    /// Given pictures are modulated as if they had no noise.
    zero_time: bool,
    kernels: Kernels,
}

#[derive(Debug)]
struct Block {
    picture: Stream,
    text: Stream,
    head_dim: i32,
    kernels: Kernels,
}

/// The half of a block that is one stream's.
#[derive(Debug)]
struct Stream {
    modulation: Linear,
    q: Linear,
    k: Linear,
    v: Linear,
    out: Linear,
    norms: [RmsNorm; 2],
    up: Linear,
    down: Linear,
}

/// The inputs that all steps share, made from a prompt and the pictures' sizes.
#[derive(Debug)]
pub(super) struct QwenPrepared {
    /// `[1, ids, dim]`.
    text: Array,
    /// Of the text, then of the pictures.
    angles: Angles,
    /// Positions of the picture that is made.
    tokens: i32,
}

/// Time embeddings that modulate a block, `[1, dim]`; those of given pictures where these differ.
struct Times {
    noise: Array,
    given: Option<Array>,
}

struct Names {
    modulation: &'static str,
    qkv: [&'static str; 3],
    out: &'static str,
    norms: [&'static str; 2],
    mlp: &'static str,
}

const PICTURE: Names = Names {
    modulation: "img_mod.1",
    qkv: ["attn.to_q", "attn.to_k", "attn.to_v"],
    out: "attn.to_out.0",
    norms: ["attn.norm_q", "attn.norm_k"],
    mlp: "img_mlp",
};
const TEXT: Names = Names {
    modulation: "txt_mod.1",
    qkv: ["attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"],
    out: "attn.to_add_out",
    norms: ["attn.norm_added_q", "attn.norm_added_k"],
    mlp: "txt_mlp",
};

impl Stream {
    fn load(w: &Weights, dim: i32, head_dim: i32, names: &Names) -> Read<Stream> {
        let square = |name: &str| w.linear(name, dim, dim, true);
        let [q, k, v] = names.qkv;
        let [of_q, of_k] = names.norms;
        let mlp = w.at(names.mlp);
        Ok(Stream {
            modulation: w.linear(names.modulation, dim, 6 * dim, true)?,
            q: square(q)?,
            k: square(k)?,
            v: square(v)?,
            out: square(names.out)?,
            norms: [w.rms_norm(of_q, head_dim, EPS)?, w.rms_norm(of_k, head_dim, EPS)?],
            up: mlp.linear("net.0.proj", dim, 4 * dim, true)?,
            down: mlp.linear("net.2", 4 * dim, dim, true)?,
        })
    }

    /// Queries, keys and values of modulated rows.
    fn projected(&self, x: &Array) -> Result<Projected<'_>> {
        let qkv = [self.q.forward(x)?, self.k.forward(x)?, self.v.forward(x)?];
        Ok(Projected { qkv, norms: Some(&self.norms) })
    }
}

impl QwenImage {
    /// Takes the transformer's tensors.
    ///
    /// # Errors
    /// A config that is not known; tensors that do not fit.
    pub fn load(config: &Config, w: &Weights) -> Read<QwenImage> {
        for key in ["guidance_embeds", "use_additional_t_cond", "use_layer3d_rope"] {
            if config.opt_flag(key)? == Some(true) {
                let reason =
                    format!("`{key}` is true, which is not known (Qwen-Image-Layered has it)");
                return Err(Error::model(reason));
            }
        }
        if config.opt_size("patch_size")?.is_some_and(|size| size != 2) {
            return Err(Error::model("`patch_size` is not 2"));
        }
        let head_dim = config.size("attention_head_dim")?;
        let dim = config.size("num_attention_heads")?.saturating_mul(head_dim);
        let axes = config.opt_indices("axes_dims_rope")?.unwrap_or(vec![16, 56, 56]);
        let axes: Vec<i32> = axes.into_iter().map(|size| size.min(1 << 16) as i32).collect();
        let axes: [i32; 3] =
            axes.try_into().map_err(|_| Error::model("`axes_dims_rope` has not three sizes"))?;
        if axes.iter().sum::<i32>() != head_dim || axes.iter().any(|size| size % 2 != 0) {
            let reason = format!("`axes_dims_rope` {axes:?} do not add up to a head's {head_dim}");
            return Err(Error::model(reason));
        }
        let input = config.size("in_channels")?;
        let output = config.opt_size("out_channels")?.unwrap_or(16) * 4;
        let joint = config.size("joint_attention_dim")?;
        let time = w.at("time_text_embed.timestep_embedder");
        let blocks = (0..config.size("num_layers")?).map(|index| {
            let w = w.at(&format!("transformer_blocks.{index}"));
            Ok(Block {
                picture: Stream::load(&w, dim, head_dim, &PICTURE)?,
                text: Stream::load(&w, dim, head_dim, &TEXT)?,
                head_dim,
                kernels: w.kernels(),
            })
        });
        Ok(QwenImage {
            picture_in: w.linear("img_in", input, dim, true)?,
            text_norm: w.rms_norm("txt_norm", joint, EPS)?,
            text_in: w.linear("txt_in", joint, dim, true)?,
            time: [
                time.linear("linear_1", TIME, dim, true)?,
                time.linear("linear_2", dim, dim, true)?,
            ],
            blocks: blocks.collect::<Read<_>>()?,
            last_modulation: w.linear("norm_out.linear", dim, 2 * dim, true)?,
            last: w.linear("proj_out", dim, output, true)?,
            axes,
            zero_time: config.opt_flag("zero_cond_t")?.unwrap_or(false),
            kernels: w.kernels(),
        })
    }

    /// The type of the activations.
    pub fn dtype(&self) -> Dtype {
        self.text_norm.weight.dtype()
    }

    /// Prepares the inputs that all steps share, from `text`, `[1, ids, size]`. `grids` are the
    /// rows and columns of the pictures' patches, the one that is made first.
    ///
    /// # Errors
    /// More ids than the model has positions; those of MLX.
    pub fn prepare(&self, text: &Array, grids: &[[i32; 2]]) -> Read<QwenPrepared> {
        let [_, count, _] = text.dims()?;
        let first = grids.iter().flatten().map(|side| side / 2).max().unwrap_or(0);
        if first + count > POSITIONS {
            let limit = (POSITIONS - first).max(0) as usize;
            return Err(
                inference_core::Error::PromptTooLong { tokens: count as usize, limit }.into()
            );
        }
        let mut at: Vec<[i32; 3]> = (first..first + count).map(|place| [place; 3]).collect();
        for (frame, &[rows, columns]) in (0..).zip(grids) {
            let centred = |size: i32| -(size - size / 2)..size / 2;
            at.extend(centred(rows).flat_map(|y| centred(columns).map(move |x| [frame, y, x])));
        }
        let rates: Vec<(usize, f32)> = self
            .axes
            .into_iter()
            .enumerate()
            .flat_map(|(axis, size)| {
                let rate = move |i: i32| 10_000f32.powf(2.0 * i as f32 / size as f32).recip();
                (0..size / 2).map(move |i| (axis, rate(i)))
            })
            .collect();
        let angle = |at: &[i32; 3], (axis, rate): (usize, f32)| at[axis] as f32 * rate;
        let angles: Vec<f32> =
            at.iter().flat_map(|at| rates.iter().map(move |rate| angle(at, *rate))).collect();
        let text = ops::astype(text, self.dtype())?;
        let text = self.text_in.forward(&self.text_norm.forward(&text)?)?;
        text.eval()?;
        let angles = Angles::new(&angles, rates.len())?;
        Ok(QwenPrepared { text, angles, tokens: grids[0].iter().product() })
    }

    /// The prediction for `patches`, `[1, tokens, 4 · channels]`, beside those of `given` pictures,
    /// at the noise level `sigma`: as many values as `patches`.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn forward(
        &self,
        patches: &Array,
        given: Option<&Array>,
        sigma: f32,
        shared: &QwenPrepared,
    ) -> Result<Array> {
        let time = |sigma: f32| -> Result<Array> {
            let time = ops::astype(&time_embedding(sigma * 1000.0, TIME)?, self.dtype())?;
            silu(&silu_between(&self.time[0], &self.time[1], &time)?)
        };
        let zero = (self.zero_time && given.is_some()).then(|| time(0.0)).transpose()?;
        let times = Times { noise: time(sigma)?, given: zero };
        let patches = match given {
            None => ops::astype(patches, self.dtype())?,
            Some(given) => ops::astype(&ops::concatenate(&[patches, given], 1)?, self.dtype())?,
        };
        let mut picture = self.picture_in.forward(&patches)?;
        let mut text = shared.text.share()?;
        let mut pace = Pace::default();
        for block in &self.blocks {
            [text, picture] = block.forward(&text, &picture, &times, shared)?;
            pace.after(&[&text, &picture])?;
        }
        let picture = ops::slice_axis(&picture, 1, 0, shared.tokens)?;
        let [scale, shift] = parts(&self.last_modulation.forward(&times.noise)?)?;
        let picture = self.kernels.scaled_norm(&picture, &scaled(&scale, &shift), EPS)?;
        self.last.forward(&picture)
    }
}

/// `x`, `[1, n · size]`, in `n` equal parts.
fn parts<const N: usize>(x: &Array) -> Result<[Array; N]> {
    let size = x.shape().last().copied().unwrap_or(0) / N as i32;
    let part = |i: usize| ops::slice_axis(x, -1, i as i32 * size, (i as i32 + 1) * size);
    let parts = (0..N).map(part).collect::<Result<Vec<_>>>()?;
    Ok(parts.try_into().expect("as many as were made"))
}

/// The modulation of a stream's rows: `[1, dim]` for all, or for each row, `[1, l, dim]`.
struct Modulation {
    shift: Array,
    scale: Array,
    gate: Array,
}

impl Modulation {
    /// How rows are normed before the half.
    fn before(&self) -> ScaledNorm<'_> {
        scaled(&self.scale, &self.shift)
    }

    /// The gated result `y` of the half, as it is added to them.
    fn behind<'a>(&'a self, y: &'a Array) -> Branch<'a> {
        Branch { y, norm: None, gate: Some(&self.gate), tanh: false }
    }
}

/// A layer norm with scale and shift.
fn scaled<'a>(scale: &'a Array, shift: &'a Array) -> ScaledNorm<'a> {
    ScaledNorm { weight: None, scale: Some(scale), one_more: true, shift: Some(shift) }
}

/// The modulations of both halves of a stream. Its first `tokens` rows are noise, where others
/// differ.
fn modulations(linear: &Linear, times: &Times, rows: i32, tokens: i32) -> Result<[Modulation; 2]> {
    let noise: [Array; 6] = parts(&linear.forward_fused(&times.noise, Fusion::default())?)?;
    let all = match &times.given {
        Some(given) if rows > tokens => {
            let given: [Array; 6] = parts(&linear.forward_fused(given, Fusion::default())?)?;
            let row = |x: &Array, count: i32| {
                let dim = x.shape().last().copied().unwrap_or(0);
                ops::broadcast_to(&ops::reshape(x, &[1, 1, dim])?, &[1, count, dim])
            };
            let joined = noise.iter().zip(&given).map(|(noise, given)| {
                ops::concatenate(&[&row(noise, tokens)?, &row(given, rows - tokens)?], 1)
            });
            let joined = joined.collect::<Result<Vec<_>>>()?;
            joined.try_into().expect("six of six")
        }
        _ => noise,
    };
    let [shift, scale, gate, shift2, scale2, gate2] = all;
    Ok([
        Modulation { shift, scale, gate },
        Modulation { shift: shift2, scale: scale2, gate: gate2 },
    ])
}

impl Block {
    /// Text, `[1, ids, dim]`, and pictures, `[1, tokens, dim]`, to the same.
    fn forward(
        &self,
        text: &Array,
        picture: &Array,
        times: &Times,
        shared: &QwenPrepared,
    ) -> Result<[Array; 2]> {
        let ([_, ids, _], [_, rows, _]) = (text.dims()?, picture.dims()?);
        let of_picture = modulations(&self.picture.modulation, times, rows, shared.tokens)?;
        let of_text = modulations(&self.text.modulation, times, 0, 0)?;
        let normed = |x: &Array, by: &Modulation| self.kernels.scaled_norm(x, &by.before(), EPS);
        let streams = [
            self.text.projected(&normed(text, &of_text[0])?)?,
            self.picture.projected(&normed(picture, &of_picture[0])?)?,
        ];
        let [q, k, v] = heads(self.kernels, &streams, &shared.angles, self.head_dim)?;
        let seen = attend(self.kernels, &q, &k, &v, Sees::All)?;
        let half = |stream: &Stream, x: &Array, [own, next]: &[Modulation; 2], range: [i32; 2]| {
            let seen = stream.out.forward(&ops::slice_axis(&seen, 1, range[0], range[1])?)?;
            let [x, y] =
                self.kernels.branched_and_normed(x, &own.behind(&seen), &next.before(), EPS)?;
            let y = stream.down.forward(&stream.up.activated(&y, Activation::GeluTanh)?)?;
            self.kernels.branched(&x, &next.behind(&y), EPS)
        };
        let text = half(&self.text, text, &of_text, [0, ids])?;
        let picture = half(&self.picture, picture, &of_picture, [ids, ids + rows])?;
        Ok([text, picture])
    }
}
