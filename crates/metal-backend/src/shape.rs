//! The sizes that every architecture's config states, and the parts built from them.

mod attention;
mod delta;
mod ears;
mod encoder;
mod experts;
mod heads;
mod indexed;
mod kinds;
mod language;
mod latent;
mod layer_inputs;
mod mamba;
mod mixture;
mod networks;
mod norms;
mod rg_lru;
mod shared_expert;
mod short_convolution;
mod split;
mod state_space;
mod towers;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{
    Block, Decoder, Ending, FeedForward, GateUp, Head, Mixer, Mlp, ModelPart, Residual, RmsNorm,
    Rope,
};
use crate::weights::{Linears, Weights};
use mlx_ffi::Array;
use split::{InnerNames, inner_of_rank};

pub(crate) use attention::{AttentionParts, NormSpan, Values, sharing};
pub(crate) use ears::{gemma3n_ears, gemma4_ears};
pub(crate) use encoder::{EncoderSizes, scores};
pub(crate) use experts::{ExpertNames, Experts};
pub(crate) use heads::HeadNames;
pub(crate) use indexed::IndexParts;
pub(crate) use kinds::{attention_layers, layer_ropes, qwen_windows, qwen2_moe_windows, windows};
pub(crate) use language::Language;
pub(crate) use latent::LatentParts;
pub(crate) use mamba::{MambaParts, NormPlace, check_mamba, mamba_sizes, step_limits};
pub(crate) use mixture::{Mixture, sparse_layers};
pub(crate) use networks::Ungated;
pub(crate) use norms::Norms;
pub(crate) use rg_lru::{RgLruSizes, rounded_to_bf16};
pub(crate) use shared_expert::{SharedExperts, SparseLayers};
pub(crate) use state_space::{StateSpaceBiases, expanded};
pub(crate) use towers::{
    gemma4_tower, pixtral_tower, qwen_tower, qwen2_5_tower, qwen2_tower, siglip_tower,
};

/// Tensors of an output layer that repeat the embeddings, packed or not.
const COPIES_OF_EMBEDDINGS: [&str; 5] =
    ["weight", "scales", "biases", "weight_scale", "weight_scale_inv"];
/// More layers than any model has; lists with an entry for each layer stay small.
const MAX_LAYERS: i32 = 10_000;

/// The sizes of a decoder, under the names of `config.json`.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub hidden_size: i32,
    pub intermediate_size: i32,
    pub num_hidden_layers: i32,
    pub num_attention_heads: i32,
    pub num_key_value_heads: i32,
    pub head_dim: i32,
    pub vocab_size: i32,
    pub rms_norm_eps: f32,
    pub max_position_embeddings: Option<i32>,
    pub norms: Norms,
    /// The name of the embeddings.
    pub embeddings: &'static str,
    /// The name of the blocks.
    pub layers: &'static str,
    /// The name of the norm behind the last block.
    pub final_norm: &'static str,
    /// The name of the output layer.
    pub head: &'static str,
    /// The output layer may have a bias, also where its matrix is that of the embeddings.
    pub head_bias: bool,
}

impl Shape {
    /// The sizes that `config` states.
    ///
    /// # Errors
    /// A key that is missing or wrong; heads that do not divide.
    pub fn read(config: &Config) -> Result<Shape> {
        Shape::of_heads(config, config.opt_size("head_dim")?)
    }

    /// The sizes that `config` states, with heads of so many values.
    fn of_heads(config: &Config, head_dim: Option<i32>) -> Result<Shape> {
        let hidden_size = config.size("hidden_size")?;
        let num_attention_heads = config.size("num_attention_heads")?;
        if head_dim.is_none() && hidden_size % num_attention_heads != 0 {
            return Err(Error::model(format!(
                "config.json: `hidden_size` {hidden_size} is no multiple of `num_attention_heads` {num_attention_heads}, and `head_dim` is missing"
            )));
        }
        let shape = Shape {
            hidden_size,
            intermediate_size: config.size("intermediate_size")?,
            num_hidden_layers: config.size("num_hidden_layers")?,
            num_attention_heads,
            num_key_value_heads: config
                .opt_size("num_key_value_heads")?
                .unwrap_or(num_attention_heads),
            head_dim: head_dim.unwrap_or(hidden_size / num_attention_heads),
            vocab_size: config.size("vocab_size")?,
            rms_norm_eps: config.opt_positive("rms_norm_eps")?.unwrap_or(1e-6) as f32,
            max_position_embeddings: config.opt_size("max_position_embeddings")?,
            norms: Norms::Rms,
            embeddings: "embed_tokens",
            layers: "layers",
            final_norm: "norm",
            head: "lm_head",
            head_bias: false,
        };
        shape.check()?;
        Ok(shape)
    }

    /// Refuses sizes that no attention can have.
    pub fn check(&self) -> Result<()> {
        let Shape { num_attention_heads: heads, num_key_value_heads: kv_heads, .. } = self;
        if heads % kv_heads != 0 {
            return Err(Error::model(format!(
                "config.json: `num_attention_heads` {heads} is no multiple of `num_key_value_heads` {kv_heads}"
            )));
        }
        if self.head_dim % 2 != 0 {
            return Err(Error::model(format!(
                "config.json: `head_dim` {} is odd, rotary positions need pairs",
                self.head_dim
            )));
        }
        if self.num_hidden_layers > MAX_LAYERS {
            return Err(Error::model(format!(
                "config.json: `num_hidden_layers` is {}, at most {MAX_LAYERS} are supported",
                self.num_hidden_layers
            )));
        }
        let widest = (i64::from(*heads) + 2 * i64::from(*kv_heads)) * i64::from(self.head_dim);
        if widest > i64::from(i32::MAX) {
            return Err(Error::model("config.json: heads times `head_dim` exceeds 2³¹ - 1"));
        }
        Ok(())
    }

    /// The norm `name` over `size` values.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    fn norm(&self, w: &Weights, name: &str, size: i32) -> Result<RmsNorm> {
        self.norms.norm(w, name, size, self.rms_norm_eps)
    }

    /// A norm over `size` values without a weight.
    fn plain_norm(&self, w: &Weights, size: i32) -> Result<RmsNorm> {
        w.plain_rms_norm(size, self.rms_norm_eps)
    }

    /// A block with a norm before attention and one before the feed-forward network (Llama).
    pub fn pre_norm_block(
        &self,
        w: &Weights,
        mixer: impl Into<Mixer>,
        mlp: FeedForward,
    ) -> Result<Block> {
        self.pre_norm_block_named(w, ["input_layernorm", "post_attention_layernorm"], mixer, mlp)
    }

    /// A block like [`pre_norm_block`](Self::pre_norm_block), whose norms are called `names`.
    pub fn pre_norm_block_named(
        &self,
        w: &Weights,
        names: [&str; 2],
        mixer: impl Into<Mixer>,
        mlp: FeedForward,
    ) -> Result<Block> {
        let norm = |name| self.norm(w, name, self.hidden_size).map(Some);
        Ok(Block {
            input_norm: norm(names[0])?,
            mixer: mixer.into(),
            mixer_out_norm: None,
            mlp_norm: norm(names[1])?,
            mlp,
            mlp_out_norm: None,
            residual: Residual::Sum,
            ending: Ending::default(),
            kernels: w.kernels(),
        })
    }

    /// A block with norms behind both only (OLMo 2).
    pub fn post_norm_block(
        &self,
        w: &Weights,
        mixer: impl Into<Mixer>,
        mlp: FeedForward,
    ) -> Result<Block> {
        let norm = |name| self.norm(w, name, self.hidden_size).map(Some);
        Ok(Block {
            input_norm: None,
            mixer: mixer.into(),
            mixer_out_norm: norm("post_attention_layernorm")?,
            mlp_norm: None,
            mlp,
            mlp_out_norm: norm("post_feedforward_layernorm")?,
            residual: Residual::Sum,
            ending: Ending::default(),
            kernels: w.kernels(),
        })
    }

    /// A block with norms before and behind both (Gemma 2 and 3).
    pub fn sandwich_block(
        &self,
        w: &Weights,
        mixer: impl Into<Mixer>,
        mlp: FeedForward,
    ) -> Result<Block> {
        let names = [
            "input_layernorm",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "post_feedforward_layernorm",
        ];
        self.sandwich_block_named(w, names, mixer, mlp)
    }

    /// A block like [`sandwich_block`](Self::sandwich_block), whose norms are called `names`:
    /// before and behind the mixer, before and behind the network.
    pub fn sandwich_block_named(
        &self,
        w: &Weights,
        names: [&str; 4],
        mixer: impl Into<Mixer>,
        mlp: FeedForward,
    ) -> Result<Block> {
        let norm = |name| self.norm(w, name, self.hidden_size).map(Some);
        Ok(Block {
            input_norm: norm(names[0])?,
            mixer: mixer.into(),
            mixer_out_norm: norm(names[1])?,
            mlp_norm: norm(names[2])?,
            mlp,
            mlp_out_norm: norm(names[3])?,
            residual: Residual::Sum,
            ending: Ending::default(),
            kernels: w.kernels(),
        })
    }

    /// The gated feed-forward network under `w`.
    pub fn mlp(&self, w: &Weights, activation: Activation, bias: bool) -> Result<FeedForward> {
        self.mlp_of(w, self.intermediate_size, activation, bias).map(Into::into)
    }

    /// The gated feed-forward network under `w`, with `inner` values between the projections.
    pub fn mlp_of(
        &self,
        w: &Weights,
        inner: i32,
        activation: Activation,
        bias: bool,
    ) -> Result<Mlp> {
        self.mlp_named(w, ExpertNames::PROJ, inner, activation, bias)
    }

    /// A network like that of [`mlp_of`](Self::mlp_of), whose projections are called `names`.
    pub fn mlp_named(
        &self,
        w: &Weights,
        names: ExpertNames,
        inner: i32,
        activation: Activation,
        bias: bool,
    ) -> Result<Mlp> {
        let hidden = self.hidden_size;
        let of_rank = InnerNames { into: &[names.gate, names.up], both: &[], out: &[names.down] };
        // How many values a sparse gate lets through depends on all of them.
        let (w, inner) = &match activation {
            Activation::SparseGelu { .. } => (w.clone(), inner),
            _ => inner_of_rank(w, &of_rank, inner),
        };
        let inner = *inner;
        let gate_up = [(names.gate, inner), (names.up, inner)];
        let gate_up = match w.linears(gate_up, hidden, bias)? {
            Linears::Joined(both) => GateUp::Halves(both),
            Linears::Separate([gate_proj, up_proj]) => GateUp::Separate { gate_proj, up_proj },
        };
        Ok(Mlp {
            gate_up,
            down_proj: w.linear(names.down, inner, hidden, bias)?,
            activation,
            multipliers: None,
            kernels: w.kernels(),
        })
    }

    /// Rows of a matrix that is the gate and what it lets through.
    ///
    /// # Errors
    /// More than there are numbers for.
    pub fn both_intermediate(&self) -> Result<i32> {
        self.intermediate_size.checked_mul(2).ok_or_else(|| {
            let inner = self.intermediate_size;
            Error::model(format!("config.json: `intermediate_size` {inner} is too large"))
        })
    }

    /// The gated feed-forward network under `w` whose `gate_up_proj` has both projections, one
    /// behind the other.
    pub fn fused_mlp(&self, w: &Weights, activation: Activation) -> Result<FeedForward> {
        self.both_intermediate()?;
        let of_rank = InnerNames { into: &[], both: &["gate_up_proj"], out: &["down_proj"] };
        let (w, inner) = inner_of_rank(w, &of_rank, self.intermediate_size);
        let hidden = self.hidden_size;
        Ok(FeedForward::from(Mlp {
            gate_up: GateUp::Halves(w.linear("gate_up_proj", hidden, 2 * inner, false)?),
            down_proj: w.linear("down_proj", inner, hidden, false)?,
            activation,
            multipliers: None,
            kernels: w.kernels(),
        }))
    }

    /// The whole model around its blocks: embeddings and the last norm under `model`, the output
    /// layer beside it under `w`. `block` builds the layer under a cursor, by its index.
    pub fn decoder(
        &self,
        config: &Config,
        w: &Weights,
        model: &Weights,
        block: impl Fn(&Weights, usize) -> Result<Block>,
    ) -> Result<Decoder> {
        let is_tied = self.is_tied(config, w, model)?;
        let embeddings = ModelPart::Embeddings { are_head: is_tied };
        let embed_tokens = model.part(embeddings, |model| {
            model.embedding(self.embeddings, self.vocab_size, self.hidden_size)
        })?;
        let of_layer = |index: usize| {
            let build =
                |model: &Weights| block(&model.at(self.layers).at(&index.to_string()), index);
            model.part(ModelPart::Layer(index), build)
        };
        let layers =
            (0..self.num_hidden_layers as usize).map(of_layer).collect::<Result<Vec<Block>>>()?;
        let ropes = layers.iter().filter_map(|layer| layer.mixer.rope());
        let original_context = ropes.filter_map(Rope::original_context).min();
        Ok(Decoder {
            embed_tokens,
            embed_scale: None,
            embed_norm: None,
            layers,
            norm: self.norm(model, self.final_norm, self.hidden_size)?,
            lm_head: self.lm_head(w, is_tied)?,
            tied_bias: self.tied_bias(w, is_tied)?,
            split_logits: w.split_logits(self.vocab_size),
            stage: w.stage().cloned(),
            logit_scale: None,
            logit_softcap: None,
            layer_inputs: None,
            streams: None,
            vocab_size: self.vocab_size,
            hidden_size: self.hidden_size,
            intermediate_size: self.intermediate_size,
            max_position_embeddings: self.max_position_embeddings,
            original_context,
            tower: None,
            ears: None,
            drafter: None,
            kernels: w.kernels(),
        })
    }

    /// Returns true when the output layer is the embeddings under `model`.
    /// The config says so, or there is no other one. One beside them that differs is used, as by
    /// transformers.
    ///
    /// # Errors
    /// A value that is no flag; tensors that cannot be read.
    fn is_tied(&self, config: &Config, w: &Weights, model: &Weights) -> Result<bool> {
        let head = w.at(self.head);
        let has_own = head.has("weight");
        let is_said = config.opt_flag("tie_word_embeddings")?;
        let is_copy = || head.looks_like("weight", &model.at(self.embeddings));
        Ok(match is_said {
            Some(true) if has_own => is_copy()?,
            said => said.unwrap_or(!has_own),
        })
    }

    /// The embeddings, where they are the output layer, or one of its own.
    fn lm_head(&self, w: &Weights, is_tied: bool) -> Result<Head> {
        if is_tied {
            // Some checkpoints carry a copy of the embeddings here. What else lies here is no copy.
            let copy = w.at(self.head).prefix();
            w.ignore(|name| {
                name.strip_prefix(&copy).is_some_and(|last| COPIES_OF_EMBEDDINGS.contains(&last))
            });
            return Ok(Head::Tied);
        }
        let has_bias = self.head_bias && w.at(self.head).has("bias");
        let sizes = [self.hidden_size, self.vocab_size];
        let build = |w: &Weights| w.output_layer(self.head, sizes, has_bias);
        Ok(Head::Own(w.part(ModelPart::Head, build)?))
    }

    /// The bias of an output layer whose matrix is that of the embeddings, where it has one.
    fn tied_bias(&self, w: &Weights, is_tied: bool) -> Result<Option<Array>> {
        let has_bias = is_tied && self.head_bias && w.at(self.head).has("bias");
        let build = |w: &Weights| w.output_bias(self.head, self.vocab_size);
        has_bias.then(|| w.part(ModelPart::Head, build)).transpose()
    }
}

/// The activation under `key`.
///
/// # Errors
/// An activation that is not known, by name.
pub(crate) fn activation(config: &Config, key: &str, default: Activation) -> Result<Activation> {
    match config.opt_text(key)? {
        None => Ok(default),
        Some(name) => Activation::from_name(name).ok_or_else(|| {
            Error::model(format!(
                "config.json: `{key}` is `{name}`, known are silu, gelu, gelu_pytorch_tanh"
            ))
        }),
    }
}
