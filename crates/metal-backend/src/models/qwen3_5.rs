//! Qwen 3.5, 3.6 and 3.8: three gated delta nets to one attention layer, whose output is gated.

use crate::config::{Config, RopeConfig, RopeSections};
use crate::error::Result;
use crate::kernels::Activation;
use crate::layers::{Decoder, DeltaSizes, Drafter, FeedForward, Mixer};
use crate::shape::{
    AttentionParts, HeadNames, Language, NormSpan, Norms, Shape, activation, attention_layers,
    qwen_tower,
};
use crate::weights::Weights;

/// The base of the wavelengths where config.json does not state it.
pub(super) const THETA: f64 = 10_000_000.0;

/// Which pairs turn by time, row and column where config.json does not state it.
const SECTIONS: RopeSections = RopeSections { sizes: [11, 11, 10], interleaved: true };

/// The prefixes of the vision tower's tensors.
pub(super) const VISION: [&str; 2] = ["visual.", "vision_tower."];

/// Builds `Qwen3_5ForConditionalGeneration`; the layer that predicts a
/// further token drafts, or is set aside.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let tower = qwen_tower(config, w, Language::width(config)?)?;
    let Language { config, head, model } = Language::of(config, w, &VISION)?;
    Ok(Decoder { tower, ..build(&config, &head, &model)? })
}

/// Builds `Qwen3_5ForCausalLM`, the language model by itself.
pub(super) fn load_text(config: &Config, w: &Weights) -> Result<Decoder> {
    build(config, w, &w.at("model"))
}

/// Builds the model of `config` whose blocks are under `model`, the output layer beside it under
/// `w`.
fn build(config: &Config, w: &Weights, model: &Weights) -> Result<Decoder> {
    let hybrid = Hybrid::read(config, model, THETA)?;
    let act = activation(config, "hidden_act", Activation::Silu)?;
    hybrid.decoder(config, w, model, |w, _| hybrid.shape.mlp(&w.at("mlp"), act, false))
}

/// Gated delta nets beside attention with a gated output, whatever the feed-forward networks are.
pub(super) struct Hybrid {
    pub shape: Shape,
    /// Of each layer; the others are gated delta nets.
    has_attention: Vec<bool>,
    delta: DeltaSizes,
    rope: RopeConfig,
    /// Projections of attention have biases.
    bias: bool,
    output_gate: bool,
}

impl Hybrid {
    /// Reads `config` of a model whose blocks are under `model`. `theta` is the base of the
    /// wavelengths where `config` does not state it.
    ///
    /// # Errors
    /// A key that is missing or wrong.
    pub fn read(config: &Config, model: &Weights, theta: f64) -> Result<Hybrid> {
        let shape = Shape::read(config)?;
        let interval = config.opt_size("full_attention_interval")?.unwrap_or(4);
        let is_attention = |index: i32| (index + 1) % interval == 0;
        let has_attention =
            attention_layers(config, shape.num_hidden_layers, &["linear_attention"], is_attention)?;
        // Released norms are stored as their distance from 1, converted ones as they are.
        let is_released = is_released(model, &has_attention);
        let norms = if is_released { Norms::OffsetRms } else { Norms::Rms };
        let shape = Shape { norms, ..shape };
        let rope = config
            .with_default_number("partial_rotary_factor", 0.25)
            .partial_rope("full_attention", theta)?;
        let sections = rope.sections.unwrap_or(SECTIONS);
        Ok(Hybrid {
            delta: shape.delta_sizes(config)?,
            has_attention,
            rope: RopeConfig { sections: Some(sections), ..rope },
            bias: config.opt_flag("attention_bias")?.unwrap_or(false),
            output_gate: config.opt_flag("attn_output_gate")?.unwrap_or(true),
            shape,
        })
    }

    /// Builds the model whose blocks are under `model`, the output layer beside it under `w`. `mlp`
    /// builds the feed-forward network of the block under a cursor, by its index.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn decoder(
        &self,
        config: &Config,
        w: &Weights,
        model: &Weights,
        mlp: impl Fn(&Weights, usize) -> Result<FeedForward>,
    ) -> Result<Decoder> {
        let drafter = self.heads(w, &mlp)?;
        let prefix = w.prefix();
        w.leave_part("MTP layers", |name| {
            name.starts_with("mtp.")
                || name.strip_prefix(&prefix).is_some_and(|n| n.starts_with("mtp."))
        });
        let shape = &self.shape;
        let decoder = shape.decoder(config, w, model, |w, index| {
            let mixer: Mixer = if self.has_attention[index] {
                self.attention(w)?
            } else {
                shape.delta_net(&w.at("linear_attn"), self.delta)?.into()
            };
            shape.pre_norm_block(w, mixer, mlp(w, index)?)
        })?;
        Ok(Decoder { drafter, ..decoder })
    }

    /// The attention of the block under `w`.
    fn attention(&self, w: &Weights) -> Result<Mixer> {
        let parts = AttentionParts {
            qkv_bias: self.bias,
            o_bias: self.bias,
            qk_norms: NormSpan::Head,
            output_gate: self.output_gate,
            ..AttentionParts::PLAIN
        };
        Ok(self.shape.attention(&w.at("self_attn"), Some(&self.rope), parts)?.into())
    }

    /// The layer that drafts, where the checkpoint has one that is to be taken.
    fn heads(
        &self,
        w: &Weights,
        mlp: &impl Fn(&Weights, usize) -> Result<FeedForward>,
    ) -> Result<Option<Box<dyn Drafter>>> {
        let names = HeadNames::QWEN;
        let Some(w) = w.heads_at("mtp", names.project) else { return Ok(None) };
        // No release has more than one, and several would have to follow each other.
        if !w.at("layers.1").is_empty() {
            return Ok(None);
        }
        w.heads(|w| {
            let block = w.at("layers.0");
            let attention = self.attention(&block)?;
            let block = self.shape.pre_norm_block(&block, attention, mlp(&block, 0)?)?;
            self.shape.heads(w, names, block)
        })
    }
}

/// Returns true for weights as released: their convolutions have the taps last.
fn is_released(model: &Weights, has_attention: &[bool]) -> bool {
    let first = has_attention.iter().position(|has| !has).unwrap_or(0);
    let shape = model.shape(&format!("layers.{first}.linear_attn.conv1d.weight"));
    shape.is_some_and(|shape| shape.last() != Some(&1))
}
