//! A checkpoint of Parakeet: its config and headers, and what is built of its tensors.

use inference_core::TranscriptionLoadOptions;
use mlx_ffi::{Array, Device, Dtype, ops};
use sound::NormalizedMel;

use super::decoding::{Ending, Lstm, Tdt};
use super::network::{Attention, Block, Convolution, Encoder, Entry};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::files::ModelFiles;
use crate::kernels::{Activation, Kernels, Matrix};
use crate::layers::{LayerNorm, Linear, Weight};
use crate::load::mlx_dtype;
use crate::weights::{Checkpoint, Totals, Weights};

const EPS: f32 = 1e-5;
/// The most layers of each kind, and values of a state.
const MAX_LAYERS: i32 = 1 << 10;
const MAX_WIDTH: i32 = 1 << 16;

/// The opened files of a model: its config and headers, from which it can be built.
pub(super) struct Opened {
    pub files: ModelFiles,
    pub config: Config,
    pub encoder: Config,
    pub device: Device,
    pub kernels: Kernels,
    dtype: Option<Dtype>,
    checkpoint: Checkpoint,
    /// The id that the decoder begins with, where generation_config.json says.
    start: Option<i32>,
}

impl Opened {
    /// Reads the configs and headers.
    ///
    /// # Errors
    /// A file that is missing or damaged.
    pub fn new(
        files: ModelFiles,
        options: &TranscriptionLoadOptions,
        device: Device,
        kernels: Kernels,
    ) -> Result<Opened> {
        let at_folder = |error: Error| error.at(&files.folder());
        let config = Config::parse("config.json", &files.required_text("config.json")?);
        let config = config.map_err(at_folder)?;
        let encoder = config.object("encoder_config").map_err(at_folder)?;
        let encoder = encoder.unwrap_or_else(|| config.nested("encoder_config"));
        let start = match files.text("generation_config.json")? {
            Some(text) => Config::parse("generation_config.json", &text)
                .and_then(|config| config.opt_index("decoder_start_token_id"))
                .map_err(at_folder)?,
            None => None,
        };
        let checkpoint = Checkpoint::open(&files)?;
        let dtype = options.dtype.map(mlx_dtype);
        Ok(Opened { files, config, encoder, device, kernels, dtype, checkpoint, start })
    }

    /// Builds the model on this thread. With `only_describe`, of empty placeholders.
    ///
    /// # Errors
    /// A key or a tensor that is missing or does not fit, with the folder.
    pub fn build(&self, only_describe: bool) -> Result<(Encoder, Ending, Totals)> {
        let Opened { config, checkpoint, dtype, kernels, .. } = self;
        let weights = Weights::of(checkpoint, config, *dtype, *kernels, only_describe);
        let stored = dtype.unwrap_or_else(|| checkpoint.float_dtype());
        // Our kernels multiply activations of F32 with any weights: nothing is rounded then.
        let activations = match dtype {
            None if kernels.is_ours_on_cpu() => Dtype::F32,
            _ => stored,
        };
        weights.ignore(|name| name.ends_with("num_batches_tracked"));
        let build = Builder { weights, opened: self, activations };
        let built = build.encoder().and_then(|(encoder, hidden)| {
            let ending = build.ending(hidden)?;
            Ok((encoder, ending, build.weights.finish()?))
        });
        built.map_err(|error| error.at(&self.files.folder()))
    }

    /// The features that the model hears.
    ///
    /// # Errors
    /// A value that is none of its kind, or another number of bands than the encoder has.
    pub fn mel(&self) -> Result<NormalizedMel> {
        const NAMES: [&str; 2] = ["processor_config.json", "preprocessor_config.json"];
        let name = NAMES.into_iter().find(|name| self.files.exists(name)).unwrap_or(NAMES[1]);
        let text = self.files.text(name)?.unwrap_or_else(|| "{}".into());
        let read = || -> Result<NormalizedMel> {
            let config = Config::parse(name, &text)?;
            let config = config.object("feature_extractor")?.unwrap_or(config);
            let usual = NormalizedMel::default();
            let size = |key: &str, or: usize| -> Result<usize> {
                Ok(config.opt_size(key)?.map_or(or, |size| size as usize))
            };
            let preemphasis = config.opt_number("preemphasis")?;
            let mel = NormalizedMel {
                features: size("feature_size", usual.features)?,
                rate: size("sampling_rate", usual.rate as usize)? as u32,
                fft: size("n_fft", usual.fft)?,
                window: size("win_length", usual.window)?,
                hop: size("hop_length", usual.hop)?,
                preemphasis: preemphasis.map_or(usual.preemphasis, |value| value as f32),
            };
            let own = self.encoder.opt_size("num_mel_bins")?.unwrap_or(80);
            if mel.features != own as usize {
                return Err(Error::model(format!(
                    "`feature_size` is {}, and config.json has `num_mel_bins` {own}",
                    mel.features
                )));
            }
            mel.validate().map_err(|error| Error::model(error.to_string()))?;
            Ok(mel)
        };
        read().map_err(|error| error.at(&self.files.path(name)))
    }
}

/// The taking of a model's tensors.
struct Builder<'a> {
    weights: Weights,
    opened: &'a Opened,
    /// The type of norms, biases and kernels, which is that of activations.
    activations: Dtype,
}

impl Builder<'_> {
    /// The size under `key` of `config`, `usual` where it has none.
    fn size(config: &Config, key: &str, usual: i32, most: i32) -> Result<i32> {
        let size = config.opt_size(key)?.unwrap_or(usual);
        match size <= most {
            true => Ok(size),
            false => Err(Error::model(format!(
                "config.json: `{key}` is {size}, at most {most} are supported"
            ))),
        }
    }

    fn activation(config: &Config, usual: &str) -> Result<Activation> {
        let name = config.opt_text("hidden_act")?.unwrap_or(usual);
        Activation::from_name(name).ok_or_else(|| {
            Error::model(format!("config.json: the activation `{name}` is not known"))
        })
    }

    /// The encoder, and the values of its states.
    fn encoder(&self) -> Result<(Encoder, i32)> {
        let config = &self.opened.encoder;
        let size = |key, usual, most| Self::size(config, key, usual, most);
        let hidden = size("hidden_size", 1024, MAX_WIDTH)?;
        let inner = size("intermediate_size", 4096, MAX_WIDTH)?;
        let heads = size("num_attention_heads", 8, MAX_WIDTH)?;
        let taps = size("conv_kernel_size", 9, MAX_LAYERS)?;
        if hidden % heads != 0 || hidden % 2 != 0 || taps % 2 == 0 {
            return Err(Error::model(format!(
                "config.json: {heads} heads do not divide {hidden} values, or these or the {taps} places of a convolution cannot be halved around a middle"
            )));
        }
        for (key, expected) in [
            ("subsampling_factor", 8),
            ("subsampling_conv_kernel_size", 3),
            ("subsampling_conv_stride", 2),
        ] {
            let found = config.opt_size(key)?.unwrap_or(expected);
            if found != expected {
                return Err(Error::model(format!(
                    "config.json: `{key}` is {found}, expected {expected}: nothing else is supported"
                )));
            }
        }
        let has_bias = config.opt_flag("attention_bias")?.unwrap_or(true);
        let convolves_with_bias = config.opt_flag("convolution_bias")?.unwrap_or(true);
        let scales = config.opt_flag("scale_input")?.unwrap_or(true);
        let w = self.weights.at("encoder");
        let block = |number: i32| -> Result<Block> {
            let w = w.at(&format!("layers.{number}"));
            let norm = |name| self.norm(&w, name, hidden);
            let network = |name: &str| -> Result<[Linear; 2]> {
                let w = w.at(name);
                Ok([
                    self.linear(&w, "linear1", [hidden, inner], has_bias)?,
                    self.linear(&w, "linear2", [inner, hidden], has_bias)?,
                ])
            };
            let (own, light) = (w.at("self_attn"), w.at("conv"));
            let into = |name| self.linear(&own, name, [hidden, hidden], has_bias);
            let shape = [heads, hidden / heads];
            let bias = |name| -> Result<Array> {
                let bias = self.typed(&own, name, &shape)?;
                self.made(bias, |bias| Ok(ops::expand_dims(bias, 1)?))
            };
            let known = light.at("norm");
            let of_norm = |name| known.tensor_f32(name, &[hidden]);
            let depthwise = light.at("depthwise_conv");
            Ok(Block {
                norms: [
                    norm("norm_feed_forward1")?,
                    norm("norm_self_att")?,
                    norm("norm_conv")?,
                    norm("norm_feed_forward2")?,
                    norm("norm_out")?,
                ],
                networks: [network("feed_forward1")?, network("feed_forward2")?],
                attention: Attention {
                    heads,
                    qkv: [into("q_proj")?, into("k_proj")?, into("v_proj")?],
                    out: into("o_proj")?,
                    positions: self.linear(&own, "relative_k_proj", [hidden, hidden], false)?,
                    biases: [bias("bias_u")?, bias("bias_v")?],
                },
                convolution: Convolution {
                    start: self.pointwise(
                        &light.at("pointwise_conv1"),
                        &[2 * hidden, hidden, 1],
                        convolves_with_bias,
                    )?,
                    taps: depthwise.taps(hidden, taps)?,
                    bias: convolves_with_bias
                        .then(|| self.typed(&depthwise, "bias", &[hidden]))
                        .transpose()?,
                    norm: [
                        of_norm("running_mean")?,
                        of_norm("running_var")?,
                        of_norm("weight")?,
                        of_norm("bias")?,
                    ],
                    end: self.pointwise(
                        &light.at("pointwise_conv2"),
                        &[hidden, hidden, 1],
                        convolves_with_bias,
                    )?,
                },
            })
        };
        let layers = size("num_hidden_layers", 24, MAX_LAYERS)?;
        let encoder = Encoder {
            entry: self.entry(&w.at("subsampling"), hidden)?,
            input_scale: if scales { (hidden as f32).sqrt() } else { 1.0 },
            blocks: (0..layers).map(block).collect::<Result<_>>()?,
            activation: Self::activation(config, "silu")?,
            kernels: self.weights.kernels(),
            dtype: self.activations,
        };
        Ok((encoder, hidden))
    }

    /// Three convolutions: the layers between them have no tensors.
    fn entry(&self, w: &Weights, hidden: i32) -> Result<Entry> {
        let config = &self.opened.encoder;
        let channels = Self::size(config, "subsampling_conv_channels", 256, MAX_WIDTH)?;
        let bands = Self::size(config, "num_mel_bins", 80, MAX_WIDTH)?;
        let layer = |number: i32| w.at(&format!("layers.{number}"));
        let bias = |w: &Weights| self.typed(w, "bias", &[channels]);
        let kernel = self.typed(&layer(0), "weight", &[channels, 1, 3, 3])?;
        let kernel = self.made(kernel, |kernel| Ok(ops::reshape(kernel, &[channels, 3, 3, 1])?))?;
        let other = |own: i32| -> Result<([Array; 2], Linear)> {
            let (own, all) = (layer(own), layer(own + 1));
            let kernel = self.typed(&own, "weight", &[channels, 1, 3, 3])?;
            let taps = self.made(kernel, |kernel| {
                Ok(ops::swap_axes(&ops::reshape(kernel, &[channels, 9])?, 0, 1)?)
            })?;
            let all = self.pointwise(&all, &[channels, channels, 1, 1], true)?;
            Ok(([taps, bias(&own)?], all))
        };
        let inside = channels * (bands / 8);
        Ok(Entry {
            first: [kernel, bias(&layer(0))?],
            others: vec![other(2)?, other(5)?],
            projection: self.linear(w, "linear", [inside, hidden], true)?,
        })
    }

    fn ending(&self, hidden: i32) -> Result<Ending> {
        let config = &self.opened.config;
        let vocab = config.size("vocab_size")?;
        let id = |key: &str, usual: i32| -> Result<u32> {
            let id = config.opt_index(key)?.unwrap_or(usual);
            match id < vocab {
                true => Ok(id as u32),
                false => Err(Error::model(format!(
                    "config.json: `{key}` is {id}, and the vocabulary has {vocab} ids"
                ))),
            }
        };
        match config.opt_text("model_type")?.unwrap_or_default() {
            "parakeet_ctc" => {
                let head = self.weights.at("ctc_head");
                let head = self.pointwise(&head, &[vocab, hidden, 1], true)?;
                Ok(Ending::Ctc { head, blank: id("pad_token_id", vocab - 1)? })
            }
            "parakeet_tdt" => {
                let durations =
                    config.opt_indices("durations")?.unwrap_or_else(|| vec![0, 1, 2, 3, 4]);
                if !durations.iter().copied().eq(0..durations.len() as u64) {
                    return Err(Error::model(format!(
                        "config.json: `durations` are {durations:?}, expected those from 0 on, one after the other"
                    )));
                }
                let outputs = vocab + durations.len() as i32;
                let size = Self::size(config, "decoder_hidden_size", 640, MAX_WIDTH)?;
                let layers = Self::size(config, "num_decoder_layers", 2, MAX_LAYERS)?;
                let steps = Self::size(config, "max_symbols_per_step", 10, MAX_WIDTH)?;
                if config.opt_text("hidden_act")?.is_some_and(|name| name != "relu") {
                    return Err(Error::model("config.json: `hidden_act` is not relu"));
                }
                let blank = id("blank_token_id", vocab - 1)?;
                let start = self.opened.start.map_or(blank, |start| start as u32);
                if start >= vocab as u32 {
                    return Err(Error::model(format!(
                        "generation_config.json: `decoder_start_token_id` is {start}, and the vocabulary has {vocab} ids"
                    )));
                }
                let decoder = self.weights.at("decoder");
                let layer = |number: i32| -> Result<Lstm> {
                    let w = decoder.at("lstm");
                    let part = |kind: &str| -> Result<Linear> {
                        let name = format!("weight_{kind}_l{number}");
                        let matrix = self.typed(&w, &name, &[4 * size, size])?;
                        let bias =
                            self.typed(&w, &format!("bias_{kind}_l{number}"), &[4 * size])?;
                        Ok(Linear::new(self.dense(matrix), Some(bias)))
                    };
                    Ok(Lstm { input: part("ih")?, state: part("hh")? })
                };
                Ok(Ending::Tdt(Box::new(Tdt {
                    projection: self.linear(
                        &self.weights,
                        "encoder_projector",
                        [hidden, size],
                        true,
                    )?,
                    embedding: self.typed(&decoder.at("embedding"), "weight", &[vocab, size])?,
                    lstm: (0..layers).map(layer).collect::<Result<_>>()?,
                    out: self.linear(&decoder, "decoder_projector", [size, size], true)?,
                    head: self.linear(&self.weights.at("joint"), "head", [size, outputs], true)?,
                    vocab,
                    blank,
                    start,
                    skipped: vec![id("pad_token_id", 2)?],
                    most_steps: steps as usize,
                })))
            }
            other => Err(Error::model(format!(
                "config.json: `{other}` transcribes no speech here; parakeet_ctc and parakeet_tdt do"
            ))),
        }
    }

    /// A tensor as `make` makes it, contiguous; a placeholder stays what it is.
    fn made(&self, tensor: Array, make: impl Fn(&Array) -> Result<Array>) -> Result<Array> {
        if self.weights.describes() {
            return Ok(tensor);
        }
        let made = ops::contiguous(&make(&tensor)?)?;
        made.eval()?;
        Ok(made)
    }

    /// The tensor `name` in the type of activations.
    fn typed(&self, w: &Weights, name: &str, shape: &[i32]) -> Result<Array> {
        match self.activations {
            Dtype::F32 => w.tensor_f32(name, shape),
            _ => w.tensor(name, shape),
        }
    }

    fn dense(&self, matrix: Array) -> Weight {
        Weight { matrix: Matrix::Dense(matrix), kernels: self.weights.kernels() }
    }

    fn norm(&self, w: &Weights, name: &str, size: i32) -> Result<LayerNorm> {
        let w = w.at(name);
        let weight = self.typed(&w, "weight", &[size])?;
        let bias = Some(self.typed(&w, "bias", &[size])?);
        Ok(LayerNorm { weight, bias, eps: EPS, kernels: w.kernels() })
    }

    fn linear(
        &self,
        w: &Weights,
        name: &str,
        [input, output]: [i32; 2],
        has_bias: bool,
    ) -> Result<Linear> {
        let w = w.at(name);
        let bias = has_bias.then(|| self.typed(&w, "bias", &[output])).transpose()?;
        Ok(Linear::new(w.matrix(&[output, input])?, bias))
    }

    /// A convolution of one place: a product.
    fn pointwise(&self, w: &Weights, shape: &[i32], has_bias: bool) -> Result<Linear> {
        let kernel = self.typed(w, "weight", shape)?;
        let kernel = self.made(kernel, |kernel| Ok(ops::reshape(kernel, &shape[..2])?))?;
        let bias = has_bias.then(|| self.typed(w, "bias", &shape[..1])).transpose()?;
        Ok(Linear::new(self.dense(kernel), bias))
    }
}
