//! Inputs that each layer has for itself, built from a config.

use super::Shape;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{LayerInput, LayerInputs};
use crate::weights::Weights;

impl Shape {
    /// The embeddings and the projection that make the inputs of all layers, under `model`.
    /// Each layer's input has `size` values.
    ///
    /// # Errors
    /// A key or a tensor that is missing or does not fit.
    pub fn layer_inputs(&self, config: &Config, model: &Weights, size: i32) -> Result<LayerInputs> {
        let vocab_size = config.opt_size("vocab_size_per_layer_input")?.unwrap_or(self.vocab_size);
        let all = size.checked_mul(self.num_hidden_layers).ok_or_else(|| {
            Error::model(format!(
                "config.json: `hidden_size_per_layer_input` {size} times {} layers exceeds 2³¹ - 1",
                self.num_hidden_layers
            ))
        })?;
        let hidden = self.hidden_size;
        Ok(LayerInputs {
            embed: model.embedding("embed_tokens_per_layer", vocab_size, all)?,
            vocab_size,
            projection: model.linear("per_layer_model_projection", hidden, all, false)?,
            norm: self.norm(model, "per_layer_projection_norm", size)?,
            size,
        })
    }

    /// The part of the layer under `w` that adds its own input of `size` values.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn layer_input(
        &self,
        w: &Weights,
        size: i32,
        activation: Activation,
    ) -> Result<LayerInput> {
        Ok(LayerInput {
            gate: w.linear("per_layer_input_gate", self.hidden_size, size, false)?,
            projection: w.linear("per_layer_projection", size, self.hidden_size, false)?,
            norm: self.norm(w, "post_per_layer_input_norm", self.hidden_size)?,
            activation,
            kernels: w.kernels(),
        })
    }
}
