//! Granite: Llama's form with factors on embeddings, scores, what blocks add, and logits. Some have
//! layers with a window, and a sink in each head.

use crate::config::{Config, RopeConfig};
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{Attention, Block, Decoder, FeedForward, Residual};
use crate::shape::{AttentionParts, Shape, activation, layer_ropes, windows};
use crate::weights::Weights;

/// Builds the model under the names of `GraniteForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    build(config, w, &Granite::read(config)?)
}

/// Builds the model under the names of `GraniteSWAForCausalLM`.
pub(super) fn load_windowed(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = &config.with_default_number("rms_norm_eps", 1e-5);
    build(config, w, &Granite::read_windowed(config)?)
}

fn build(config: &Config, w: &Weights, granite: &Granite) -> Result<Decoder> {
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let mlp_bias = config.opt_flag("mlp_bias")?.unwrap_or(false);
    granite.decoder(config, w, |w| granite.shape.mlp(&w.at("mlp"), act, mlp_bias))
}

/// Granite's sizes, factors and attention, whatever the feed-forward networks are.
pub(super) struct Granite {
    pub shape: Shape,
    /// Of scores.
    scale: f64,
    /// Of what blocks add.
    residual: f32,
    embedding: f64,
    /// The divisor of logits.
    logits: f64,
    /// Projections of attention have biases.
    bias: bool,
    /// Each head has a sink.
    has_sinks: bool,
    windows: Vec<Option<i32>>,
    ropes: Vec<Option<RopeConfig>>,
}

impl Granite {
    /// Reads `config`: all layers see everything.
    ///
    /// # Errors
    /// A key that is missing or wrong.
    pub fn read(config: &Config) -> Result<Granite> {
        let shape = Shape::read(config)?;
        let layers = shape.num_hidden_layers as usize;
        let rope = config.rope("full_attention", 10_000.0)?;
        let factor = |key| Ok::<_, Error>(config.opt_positive(key)?.unwrap_or(1.0));
        Ok(Granite {
            scale: factor("attention_multiplier")?,
            residual: factor("residual_multiplier")? as f32,
            embedding: factor("embedding_multiplier")?,
            logits: factor("logits_scaling")?,
            bias: config.opt_flag("attention_bias")?.unwrap_or(false),
            has_sinks: false,
            windows: vec![None; layers],
            ropes: vec![Some(rope); layers],
            shape,
        })
    }

    /// Reads `config`: heads have sinks, three layers of four have a window, and each has the
    /// positions that it states.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_windowed(config: &Config) -> Result<Granite> {
        let all = Granite::read(config)?;
        let layers = all.shape.num_hidden_layers;
        let window = config.opt_size("sliding_window")?.unwrap_or(128);
        let rope = config.rope("full_attention", 10_000.0)?;
        Ok(Granite {
            has_sinks: true,
            windows: windows(config, layers, Some(window), |index| index % 4 != 0)?,
            ropes: layer_ropes(config, &rope, layers)?.unwrap_or(all.ropes),
            ..all
        })
    }

    /// Builds the model whose parts are under `w`. `feed_forward` builds the network of the block
    /// under a cursor.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn decoder(
        &self,
        config: &Config,
        w: &Weights,
        feed_forward: impl Fn(&Weights) -> Result<FeedForward>,
    ) -> Result<Decoder> {
        let decoder = self.shape.decoder(config, w, &w.at("model"), |w, index| {
            let mlp = feed_forward(w)?;
            let block = self.shape.pre_norm_block(w, self.attention(w, index)?, mlp)?;
            Ok(Block { residual: Residual::Scaled(self.residual), ..block })
        })?;
        Ok(Decoder {
            embed_scale: Some(self.embedding),
            logit_scale: Some(self.logits.recip() as f32),
            ..decoder
        })
    }

    fn attention(&self, w: &Weights, index: usize) -> Result<Attention> {
        let parts = AttentionParts {
            qkv_bias: self.bias,
            o_bias: self.bias,
            scale: Some(self.scale),
            sinks: self.has_sinks,
            window: self.windows[index],
            ..AttentionParts::PLAIN
        };
        self.shape.attention(&w.at("self_attn"), self.ropes[index].as_ref(), parts)
    }
}
