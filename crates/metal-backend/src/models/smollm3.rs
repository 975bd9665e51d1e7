//! SmolLM 3: Llama's form, in which every fourth layer does not see positions.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::Decoder;
use crate::shape::{AttentionParts, Shape, activation, windows};
use crate::weights::Weights;

/// Builds the model under the names of `SmolLM3ForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let shape = Shape::read(config)?;
    let rope = config.rope("full_attention", 2_000_000.0)?;
    let attention_bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let mlp_bias = config.opt_flag("mlp_bias")?.unwrap_or(false);
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let has_rope = layers_with_rope(config, shape.num_hidden_layers)?;
    let uses_window = config.opt_flag("use_sliding_window")?.unwrap_or(false);
    let window = config.opt_size("sliding_window")?.filter(|_| uses_window);
    let windows =
        windows(config, shape.num_hidden_layers, window, |index| !has_rope[index as usize])?;
    shape.decoder(config, w, &w.at("model"), |w, index| {
        let parts = AttentionParts {
            qkv_bias: attention_bias,
            o_bias: attention_bias,
            window: windows[index],
            ..AttentionParts::PLAIN
        };
        let rope = has_rope[index].then_some(&rope);
        let attention = shape.attention(&w.at("self_attn"), rope, parts)?;
        shape.pre_norm_block(w, attention, shape.mlp(&w.at("mlp"), act, mlp_bias)?)
    })
}

/// Flags of the layers that see positions. In `no_rope_layers`, 1 means, against its name, that a
/// layer does. Without it all do but each `no_rope_layer_interval`th.
fn layers_with_rope(config: &Config, layers: i32) -> Result<Vec<bool>> {
    const KEY: &str = "no_rope_layers";
    let interval = config.opt_size("no_rope_layer_interval")?.unwrap_or(4);
    let Some(flags) = config.opt_indices(KEY)? else {
        return Ok((1..=layers).map(|number| number % interval != 0).collect());
    };
    if flags.len() < layers as usize {
        return Err(Error::model(format!(
            "config.json: `{KEY}` has {} entries for {layers} layers",
            flags.len()
        )));
    }
    Ok(flags.into_iter().map(|flag| flag != 0).collect())
}
