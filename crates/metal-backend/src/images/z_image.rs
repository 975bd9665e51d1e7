//! Z-Image's transformer (`ZImageTransformer2DModel`): one stream of picture and caption.

use mlx_ffi::{Array, Dtype, Result, fast, ops};

use super::attend::{Angles, Projected, Sees, angles_of, attend, heads};
use super::nn::{one_more, silu_between, time_embedding};
use crate::config::Config;
use crate::error::{Error, Result as Read};
use crate::kernels::{Activation, Branch, Columns, Kernels, ScaledNorm, silu};
use crate::layers::{Fusion, Linear, Pace, RmsNorm};
use crate::weights::Weights;

/// Pictures and captions are filled up to multiples of so many positions.
const MULTIPLE: i32 = 32;
/// Values of a time's embedding.
const TIME: i32 = 256;
/// The widest embedding of a time that modulates blocks.
const MODULATION: i32 = 256;
/// Pixels of a latent patch's side.
pub(super) const PATCH: i32 = 2;

/// The transformer.
#[derive(Debug)]
pub(super) struct ZImage {
    x_embedder: Linear,
    x_pad: Array,
    caption_norm: RmsNorm,
    caption: Linear,
    caption_pad: Array,
    time: [Linear; 2],
    noise_refiner: Vec<Block>,
    context_refiner: Vec<Block>,
    layers: Vec<Block>,
    last_modulation: Linear,
    last: Linear,
    axes: [i32; 3],
    lengths: [i32; 3],
    theta: f64,
    time_scale: f32,
}

#[derive(Debug)]
struct Block {
    attention: Attention,
    gate: Linear,
    up: Linear,
    down: Linear,
    /// Before and behind attention, before and behind the network.
    norms: [RmsNorm; 4],
    modulation: Option<Linear>,
    kernels: Kernels,
}

#[derive(Debug)]
struct Attention {
    q: Linear,
    k: Linear,
    v: Linear,
    out: Linear,
    norms: Option<[RmsNorm; 2]>,
    head_dim: i32,
    kernels: Kernels,
}

/// The inputs that all steps share, made from a caption and a picture's size.
#[derive(Debug)]
pub(super) struct Prepared {
    /// The refined caption, `[1, caption, dim]`.
    caption: Array,
    picture: Angles,
    all: Angles,
    /// Positions of the picture, and those that fill it up.
    tokens: i32,
    filled: i32,
}

struct Sizes {
    dim: i32,
    heads: i32,
    eps: f32,
    normed: bool,
}

impl Sizes {
    fn block(&self, w: &Weights, is_modulated: bool) -> Read<Block> {
        let Sizes { dim, heads, eps, normed } = *self;
        let (a, f) = (w.at("attention"), w.at("feed_forward"));
        let head_dim = dim / heads;
        let square = |name: &str| a.linear(name, dim, dim, false);
        let inner = (i64::from(dim) * 8 / 3) as i32;
        let head_norms = || {
            let norm = |name| a.rms_norm(name, head_dim, 1e-5);
            Ok::<_, Error>([norm("norm_q")?, norm("norm_k")?])
        };
        let norm = |name| w.rms_norm(name, dim, eps);
        let modulation = || w.linear("adaLN_modulation.0", dim.min(MODULATION), 4 * dim, true);
        Ok(Block {
            attention: Attention {
                q: square("to_q")?,
                k: square("to_k")?,
                v: square("to_v")?,
                out: square("to_out.0")?,
                norms: normed.then(head_norms).transpose()?,
                head_dim,
                kernels: w.kernels(),
            },
            gate: f.linear("w1", dim, inner, false)?,
            up: f.linear("w3", dim, inner, false)?,
            down: f.linear("w2", inner, dim, false)?,
            norms: [
                norm("attention_norm1")?,
                norm("attention_norm2")?,
                norm("ffn_norm1")?,
                norm("ffn_norm2")?,
            ],
            modulation: is_modulated.then(modulation).transpose()?,
            kernels: w.kernels(),
        })
    }
}

impl ZImage {
    /// Takes the transformer's tensors.
    ///
    /// # Errors
    /// A config that is not known; tensors that do not fit.
    pub fn load(config: &Config, w: &Weights) -> Read<ZImage> {
        for (key, expected) in [("all_patch_size", PATCH as u64), ("all_f_patch_size", 1)] {
            let found = config.opt_indices(key)?.unwrap_or(vec![expected]);
            if found != [expected] {
                return Err(Error::model(format!("`{key}` is {found:?}, [{expected}] works")));
            }
        }
        if config.get("siglip_feat_dim").is_some() {
            return Err(Error::model(
                "`siglip_feat_dim` is set: Z-Image Omni is not known, Turbo and base work",
            ));
        }
        let (dim, heads) = (config.size("dim")?, config.size("n_heads")?);
        if config.opt_size("n_kv_heads")?.is_some_and(|kv| kv != heads) || dim % heads != 0 {
            return Err(Error::model(
                "`n_kv_heads` differs from `n_heads`, or these do not divide `dim`",
            ));
        }
        let three = |key: &str, default: [u64; 3]| -> Read<[i32; 3]> {
            let found = config.opt_indices(key)?.unwrap_or(default.to_vec());
            let sizes: Vec<i32> = found.iter().map(|size| (*size).min(1 << 20) as i32).collect();
            sizes.try_into().map_err(|_| Error::model(format!("`{key}` has not three sizes")))
        };
        let axes = three("axes_dims", [32, 48, 48])?;
        if axes.iter().sum::<i32>() != dim / heads || axes.iter().any(|size| size % 2 != 0) {
            let reason = format!("`axes_dims` {axes:?} do not add up to a head's {}", dim / heads);
            return Err(Error::model(reason));
        }
        let eps = config.opt_positive("norm_eps")?.unwrap_or(1e-5) as f32;
        let normed = config.opt_flag("qk_norm")?.unwrap_or(true);
        let sizes = Sizes { dim, heads, eps, normed };
        let (input, caption) = (config.size("in_channels")?, config.size("cap_feat_dim")?);
        let patch = input * PATCH * PATCH;
        let time = dim.min(MODULATION);
        let middle = w.shape("t_embedder.mlp.0.weight").and_then(|s| s.first().copied());
        let middle = middle.unwrap_or(1024);
        let blocks = |name: &str, count: i32, is_modulated: bool| -> Read<Vec<Block>> {
            (0..count).map(|i| sizes.block(&w.at(&format!("{name}.{i}")), is_modulated)).collect()
        };
        let refiners = config.opt_index("n_refiner_layers")?.unwrap_or(2);
        Ok(ZImage {
            x_embedder: w.linear("all_x_embedder.2-1", patch, dim, true)?,
            x_pad: w.tensor("x_pad_token", &[1, dim])?,
            caption_norm: w.rms_norm("cap_embedder.0", caption, eps)?,
            caption: w.linear("cap_embedder.1", caption, dim, true)?,
            caption_pad: w.tensor("cap_pad_token", &[1, dim])?,
            time: [
                w.linear("t_embedder.mlp.0", TIME, middle, true)?,
                w.linear("t_embedder.mlp.2", middle, time, true)?,
            ],
            noise_refiner: blocks("noise_refiner", refiners, true)?,
            context_refiner: blocks("context_refiner", refiners, false)?,
            layers: blocks("layers", config.size("n_layers")?, true)?,
            last_modulation: w.linear("all_final_layer.2-1.adaLN_modulation.1", time, dim, true)?,
            last: w.linear("all_final_layer.2-1.linear", dim, patch, true)?,
            axes,
            lengths: three("axes_lens", [1536, 512, 512])?,
            theta: config.opt_positive("rope_theta")?.unwrap_or(256.0),
            time_scale: config.opt_positive("t_scale")?.unwrap_or(1000.0) as f32,
        })
    }

    /// The type of the activations.
    pub fn dtype(&self) -> Dtype {
        self.x_pad.dtype()
    }

    /// Prepares the inputs that all steps share. `caption` is `[1, tokens, caption size]`; the
    /// picture has so many rows and columns of patches.
    ///
    /// # Errors
    /// A picture that has more rows or columns than the model has positions; those of MLX.
    pub fn prepare(&self, caption: &Array, [rows, columns]: [i32; 2]) -> Read<Prepared> {
        let [_, count, _] = caption.dims()?;
        let length = up_to_multiple(count);
        let [first, most @ ..] = self.lengths;
        if length + 1 > first || rows > most[0] || columns > most[1] {
            return Err(inference_core::Error::InvalidOption {
                option: "height",
                reason: format!(
                    "{} × {} pixels with {count} tokens: the model has positions for {} × {} pixels and {} tokens",
                    columns * 16, rows * 16, most[1] * 16, most[0] * 16, first - 1
                ),
            }
            .into());
        }
        let pairs = self.axes.iter().sum::<i32>() as usize / 2;
        let angles = |at: &[[f64; 3]]| Angles::new(&angles_of(at, self.axes, self.theta), pairs);
        let of_caption: Vec<[f64; 3]> = (0..length).map(|i| [f64::from(i + 1), 0.0, 0.0]).collect();
        let frame = f64::from(length + 1);
        let mut of_picture: Vec<[f64; 3]> = (0..rows)
            .flat_map(|y| (0..columns).map(move |x| [frame, f64::from(y), f64::from(x)]))
            .collect();
        let tokens = rows * columns;
        let filled = up_to_multiple(tokens);
        of_picture.resize(filled as usize, [0.0; 3]);
        let (picture, of_caption) = (angles(&of_picture)?, angles(&of_caption)?);
        let x = ops::astype(caption, self.caption_norm.weight.dtype())?;
        let x = self.caption.forward(&self.caption_norm.forward(&x)?)?;
        let mut x = fill_up(&x, length - count, &self.caption_pad)?;
        for block in &self.context_refiner {
            x = block.forward(&x, None, &of_caption)?;
        }
        let all = picture.then(&of_caption)?;
        x.eval()?;
        Ok(Prepared { caption: x, picture, all, tokens, filled })
    }

    /// The prediction for `patches`, `[1, tokens, 4 · channels]`, at `time` from 0 (noise) to 1: as
    /// many values, whose sign is the reference's before it negates them.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn forward(&self, patches: &Array, time: f32, shared: &Prepared) -> Result<Array> {
        let time = time_embedding(time * self.time_scale, TIME)?;
        let time = ops::astype(&time, self.dtype())?;
        let time = silu_between(&self.time[0], &self.time[1], &time)?;
        let x = self.x_embedder.forward(&ops::astype(patches, self.dtype())?)?;
        let mut x = fill_up(&x, shared.filled - shared.tokens, &self.x_pad)?;
        let mut pace = Pace::default();
        for block in &self.noise_refiner {
            x = block.forward(&x, Some(&time), &shared.picture)?;
            pace.after(&[&x])?;
        }
        let mut x = ops::concatenate(&[&x, &shared.caption], 1)?;
        for block in &self.layers {
            x = block.forward(&x, Some(&time), &shared.all)?;
            pace.after(&[&x])?;
        }
        let x = ops::slice_axis(&x, 1, 0, shared.tokens)?;
        let scale = one_more(&self.last_modulation.forward(&silu(&time)?)?)?;
        let x = ops::multiply(&fast::layer_norm(&x, None, None, 1e-6)?, &scale)?;
        self.last.forward(&x)
    }
}

fn up_to_multiple(count: i32) -> i32 {
    (count + MULTIPLE - 1) / MULTIPLE * MULTIPLE
}

/// `x`, `[1, l, dim]`, with so many rows of `pad`, `[1, dim]`, behind it.
fn fill_up(x: &Array, count: i32, pad: &Array) -> Result<Array> {
    if count == 0 {
        return x.share();
    }
    let [_, _, dim] = x.dims()?;
    let pad = ops::broadcast_to(&ops::reshape(pad, &[1, 1, dim])?, &[1, count, dim])?;
    ops::concatenate(&[x, &ops::astype(&pad, x.dtype())?], 1)
}

/// A norm that `scale` modulates, where there is one.
fn scaled<'a>(norm: &'a RmsNorm, scale: Option<&'a Array>) -> ScaledNorm<'a> {
    ScaledNorm { weight: Some(&norm.weight), scale, one_more: true, shift: None }
}

impl Block {
    /// `x`, `[1, l, dim]`, to the same; `time` modulates, `[1, size]`.
    fn forward(&self, x: &Array, time: Option<&Array>, angles: &Angles) -> Result<Array> {
        let modulation = match (&self.modulation, time) {
            (Some(linear), Some(time)) => Some(linear.forward_fused(time, Fusion::default())?),
            _ => None,
        };
        let dim = x.shape().last().copied().unwrap_or(0);
        let part = |i: i32| {
            let of = |all: &Array| ops::slice_axis(all, -1, i * dim, (i + 1) * dim);
            modulation.as_ref().map(of).transpose()
        };
        let parts = [part(0)?, part(1)?, part(2)?, part(3)?];
        let [scale, gate, network_scale, network_gate] = parts.each_ref().map(Option::as_ref);
        let [before, behind, before_network, behind_network] = &self.norms;
        let (kernels, eps) = (self.kernels, before.eps);
        let y = self
            .attention
            .forward(&kernels.scaled_norm(x, &scaled(before, scale), eps)?, angles)?;
        let branch = Branch { y: &y, norm: Some(&behind.weight), gate, tanh: true };
        let next = scaled(before_network, network_scale);
        let [x, y] = kernels.branched_and_normed(x, &branch, &next, eps)?;
        let (gate, up) = (self.gate.forward(&y)?, self.up.forward(&y)?);
        let y = kernels.gated(Activation::Silu, &Columns::all(gate), &Columns::all(up))?;
        let y = self.down.forward(&y)?;
        let norm = Some(&behind_network.weight);
        kernels.branched(&x, &Branch { y: &y, norm, gate: network_gate, tanh: true }, eps)
    }
}

impl Attention {
    fn forward(&self, x: &Array, angles: &Angles) -> Result<Array> {
        let qkv = [self.q.forward(x)?, self.k.forward(x)?, self.v.forward(x)?];
        let stream = Projected { qkv, norms: self.norms.as_ref() };
        let [q, k, v] = heads(self.kernels, &[stream], angles, self.head_dim)?;
        self.out.forward(&attend(self.kernels, &q, &k, &v, Sees::All)?)
    }
}

impl ZImage {
    /// The longest side of a picture in pixels.
    pub fn most_side(&self) -> i32 {
        let [_, rows, columns] = self.lengths;
        rows.min(columns).saturating_mul(16)
    }
}
