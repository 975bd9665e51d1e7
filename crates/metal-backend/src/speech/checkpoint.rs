//! A checkpoint of Whisper: its sizes, and what is built of its tensors.

use inference_core::TranscriptionLoadOptions;
use mlx_ffi::{Array, Device, Dtype, ops};

use super::network::{
    CrossAttention, DecoderBlock, EncoderBlock, Inner, Network, SelfAttention, Sizes,
};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::files::ModelFiles;
use crate::kernels::{Activation, Kernels, Matrix};
use crate::layers::{LayerNorm, Linear, Weight};
use crate::load::mlx_dtype;
use crate::weights::{Checkpoint, Totals, Weights};

const EPS: f32 = 1e-5;
/// Frames that a convolution sees.
const WIDTH: i32 = 3;

/// The opened files of a model: its config and headers, from which it can be built.
pub(super) struct Opened {
    pub files: ModelFiles,
    pub config: Config,
    pub sizes: Sizes,
    pub device: Device,
    pub kernels: Kernels,
    dtype: Option<Dtype>,
    checkpoint: Checkpoint,
}

impl Opened {
    /// Reads the config and headers.
    ///
    /// # Errors
    /// A file that is missing or damaged; another architecture.
    pub fn new(
        files: ModelFiles,
        options: &TranscriptionLoadOptions,
        device: Device,
        kernels: Kernels,
    ) -> Result<Opened> {
        let at_folder = |error: Error| error.at(&files.folder());
        let config = Config::parse("config.json", &files.required_text("config.json")?);
        let config = config.map_err(at_folder)?;
        let sizes = sizes(&config).map_err(at_folder)?;
        let checkpoint = Checkpoint::open(&files)?;
        let dtype = options.dtype.map(mlx_dtype);
        Ok(Opened { files, config, sizes, device, kernels, dtype, checkpoint })
    }

    /// Builds the model on this thread. With `only_describe`, of empty placeholders.
    ///
    /// # Errors
    /// A key or a tensor that is missing or does not fit, with the folder.
    pub fn build(&self, only_describe: bool) -> Result<(Network, Totals)> {
        let Opened { config, checkpoint, dtype, kernels, .. } = self;
        let weights = Weights::of(checkpoint, config, *dtype, *kernels, only_describe);
        let stored = dtype.unwrap_or_else(|| checkpoint.float_dtype());
        // Our kernels multiply activations of F32 with any weights: nothing is rounded then.
        let activations = match dtype {
            None if kernels.is_ours_on_cpu() => Dtype::F32,
            _ => stored,
        };
        let build = Builder { weights, sizes: self.sizes, activations };
        let network = build.network(config).and_then(|network| {
            let Builder { weights, .. } = build;
            Ok((network, weights.finish()?))
        });
        network.map_err(|error| error.at(&self.files.folder()))
    }
}

/// The sizes that `config` states.
fn sizes(config: &Config) -> Result<Sizes> {
    let model_type = config.opt_text("model_type")?.unwrap_or_default();
    if model_type != "whisper" {
        return Err(Error::model(format!(
            "`{model_type}` transcribes no speech here: take a model of the architecture whisper, parakeet_ctc or parakeet_tdt"
        )));
    }
    if config.get("n_mels").is_some() {
        return Err(Error::model(
            "is in the layout of mlx-whisper, which is not read: take the checkpoint that it was made from, such as openai/whisper-small",
        ));
    }
    let size = |key: &str| config.size(key);
    let sizes = Sizes {
        features: size("num_mel_bins")?,
        hidden: size("d_model")?,
        inner: [size("encoder_ffn_dim")?, size("decoder_ffn_dim")?],
        heads: [size("encoder_attention_heads")?, size("decoder_attention_heads")?],
        layers: [size("encoder_layers")?, size("decoder_layers")?],
        places: config.opt_size("max_source_positions")?.unwrap_or(1500),
        ids: config.opt_size("max_target_positions")?.unwrap_or(448),
        vocab: size("vocab_size")?,
    };
    for heads in sizes.heads {
        if sizes.hidden % heads != 0 {
            let hidden = sizes.hidden;
            return Err(Error::model(format!("{heads} heads do not divide {hidden} values")));
        }
    }
    if sizes.ids < 8 || sizes.places < 2 {
        let (ids, places) = (sizes.ids, sizes.places);
        return Err(Error::model(format!("{ids} ids and {places} places are too few of a window")));
    }
    Ok(sizes)
}

/// The taking of a model's tensors.
struct Builder {
    weights: Weights,
    sizes: Sizes,
    /// The type of norms, biases and positions, which is that of activations.
    activations: Dtype,
}

impl Builder {
    fn network(&self, config: &Config) -> Result<Network> {
        let Sizes { features, hidden, inner, layers, places, ids, vocab, .. } = self.sizes;
        let name = config.opt_text("activation_function")?.unwrap_or("gelu");
        let activation = Activation::from_name(name)
            .ok_or_else(|| Error::model(format!("the activation `{name}` is not known")))?;
        let scales = config.opt_flag("scale_embedding")?.unwrap_or(false);
        let w = self.weights.at("model");
        let (encoder, decoder) = (w.at("encoder"), w.at("decoder"));
        let encoder_block = |number: i32| -> Result<EncoderBlock> {
            let w = encoder.at(&format!("layers.{number}"));
            Ok(EncoderBlock {
                norm: self.norm(&w, "self_attn_layer_norm")?,
                attention: self.self_attention(&w.at("self_attn"))?,
                inner: self.inner(&w, inner[0])?,
            })
        };
        let decoder_block = |number: i32| -> Result<DecoderBlock> {
            let w = decoder.at(&format!("layers.{number}"));
            let cross = w.at("encoder_attn");
            Ok(DecoderBlock {
                norm: self.norm(&w, "self_attn_layer_norm")?,
                attention: self.self_attention(&w.at("self_attn"))?,
                cross_norm: self.norm(&w, "encoder_attn_layer_norm")?,
                cross: CrossAttention {
                    query: self.linear(&cross, "q_proj", [hidden, hidden])?,
                    keys_and_values: [
                        self.unbiased(&cross, "k_proj")?,
                        self.linear(&cross, "v_proj", [hidden, hidden])?,
                    ],
                    out: self.linear(&cross, "out_proj", [hidden, hidden])?,
                },
                inner: self.inner(&w, inner[1])?,
            })
        };
        let convolutions = [
            self.convolution(&encoder.at("conv1"), features)?,
            self.convolution(&encoder.at("conv2"), hidden)?,
        ];
        let words = decoder.embedding("embed_tokens", vocab, hidden)?;
        // Saved beside the embeddings, which it is.
        let is_tied = config.opt_flag("tie_word_embeddings")?.unwrap_or(true);
        let head = self.weights.at("proj_out");
        if is_tied {
            self.weights.ignore_modules(&["proj_out"]);
        }
        Ok(Network {
            sizes: self.sizes,
            kernels: self.weights.kernels(),
            dtype: self.activations,
            convolutions,
            activation,
            places: self.typed(&encoder.at("embed_positions"), "weight", &[places, hidden])?,
            encoder: (0..layers[0]).map(encoder_block).collect::<Result<_>>()?,
            encoder_norm: self.norm(&encoder, "layer_norm")?,
            words,
            word_scale: if scales { (hidden as f32).sqrt() } else { 1.0 },
            positions: self.typed(&decoder.at("embed_positions"), "weight", &[ids, hidden])?,
            decoder: (0..layers[1]).map(decoder_block).collect::<Result<_>>()?,
            decoder_norm: self.norm(&decoder, "layer_norm")?,
            head: match is_tied {
                true => None,
                false => Some(Linear::new(head.matrix(&[vocab, hidden])?, None)),
            },
        })
    }

    /// The tensor `name` in the type of activations.
    fn typed(&self, w: &Weights, name: &str, shape: &[i32]) -> Result<Array> {
        match self.activations {
            Dtype::F32 => w.tensor_f32(name, shape),
            _ => w.tensor(name, shape),
        }
    }

    fn norm(&self, w: &Weights, name: &str) -> Result<LayerNorm> {
        let (w, size) = (w.at(name), [self.sizes.hidden]);
        let weight = self.typed(&w, "weight", &size)?;
        let bias = Some(self.typed(&w, "bias", &size)?);
        Ok(LayerNorm { weight, bias, eps: EPS, kernels: w.kernels() })
    }

    fn linear(&self, w: &Weights, name: &str, [input, output]: [i32; 2]) -> Result<Linear> {
        let w = w.at(name);
        Ok(Linear::new(w.matrix(&[output, input])?, Some(self.typed(&w, "bias", &[output])?)))
    }

    /// The projection of keys, which has no bias.
    fn unbiased(&self, w: &Weights, name: &str) -> Result<Linear> {
        let hidden = self.sizes.hidden;
        Ok(Linear::new(w.at(name).matrix(&[hidden, hidden])?, None))
    }

    fn self_attention(&self, w: &Weights) -> Result<SelfAttention> {
        let hidden = self.sizes.hidden;
        let keys = self.unbiased(w, "k_proj")?;
        // Nothing is added to keys, so that the three can be joined.
        let none = ops::zeros(&[hidden], self.activations)?;
        none.eval()?;
        let keys = keys.with_bias(none);
        let qkv = [
            self.linear(w, "q_proj", [hidden, hidden])?,
            keys,
            self.linear(w, "v_proj", [hidden, hidden])?,
        ];
        let out = self.linear(w, "out_proj", [hidden, hidden])?;
        Ok(SelfAttention { qkv: w.join(qkv, true)?, out })
    }

    fn inner(&self, w: &Weights, inner: i32) -> Result<Inner> {
        let hidden = self.sizes.hidden;
        Ok(Inner {
            norm: self.norm(w, "final_layer_norm")?,
            into: self.linear(w, "fc1", [hidden, inner])?,
            out: self.linear(w, "fc2", [inner, hidden])?,
        })
    }

    /// A convolution as a product with a frame and those beside it. PyTorch has the frames last,
    /// MLX in the middle.
    fn convolution(&self, w: &Weights, input: i32) -> Result<Linear> {
        let hidden = self.sizes.hidden;
        let first = [hidden, input, WIDTH];
        let middle = [hidden, WIDTH, input];
        let is_of_mlx = w.shape("weight").is_some_and(|shape| shape == middle && shape != first);
        let kernel = self.typed(w, "weight", if is_of_mlx { &middle } else { &first })?;
        let kernel = match (self.weights.describes(), is_of_mlx) {
            (true, _) => kernel,
            (false, true) => ops::reshape(&kernel, &[hidden, WIDTH * input])?,
            (false, false) => {
                let turned = ops::contiguous(&ops::swap_axes(&kernel, 1, 2)?)?;
                ops::reshape(&turned, &[hidden, WIDTH * input])?
            }
        };
        kernel.eval()?;
        let weight = Weight { matrix: Matrix::Dense(kernel), kernels: w.kernels() };
        Ok(Linear::new(weight, Some(self.typed(w, "bias", &[hidden])?)))
    }
}
