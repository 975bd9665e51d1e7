//! Phi 3.5 MoE and Phi mini MoE: layer norms with biases, and two experts whose weights count those
//! near them alone.

use crate::config::{Config, RopeConfig, RopeScaling};
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{Decoder, Moe, Routing};
use crate::shape::{AttentionParts, ExpertNames, Experts, Norms, Shape, activation, windows};
use crate::weights::Weights;

/// Builds the model under the names of `PhimoeForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    const CHOSEN: &str = "num_experts_per_tok";
    let defaults = [(CHOSEN, 2), ("num_local_experts", 16)];
    let config = &config.with_defaults(&defaults).with_default_number("rms_norm_eps", 1e-5);
    let has_head_bias = config.opt_flag("lm_head_bias")?.unwrap_or(false);
    let shape = Shape {
        norms: Norms::Layer { has_bias: true },
        head_bias: has_head_bias,
        ..Shape::read(config)?
    };
    let rope = rope(config)?;
    let bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let window = config.opt_size("sliding_window")?;
    let windows = windows(config, shape.num_hidden_layers, window, |_| true)?;
    let experts = Experts::read(config, ["num_local_experts", "num_experts"])?;
    if experts.per_token != 2 {
        return Err(config.wrong(CHOSEN, &experts.per_token.into(), "2"));
    }
    let noise = config.opt_positive("router_jitter_noise")?.unwrap_or(0.01);
    let (hidden, inner) = (shape.hidden_size, shape.intermediate_size);
    let decoder = shape.decoder(config, w, &w.at("model"), |w, index| {
        let parts = AttentionParts {
            qkv_bias: bias,
            o_bias: bias,
            window: windows[index],
            ..AttentionParts::PLAIN
        };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        let mixture = w.at("block_sparse_moe");
        let (gate_up, down_proj) =
            experts.linears(&mixture, ExpertNames::NUMBERED, [hidden, inner])?;
        let moe = Moe {
            router: mixture.router("gate", hidden, experts.count, false)?,
            routing: Routing::Near { distance: (2.0 * noise) as f32 },
            experts_per_token: experts.per_token,
            gate_up,
            down_proj,
            activation: act,
            shared: None,
            kernels: w.kernels(),
        };
        shape.pre_norm_block(w, attention, moe.into())
    })?;
    Ok(experts.widen(decoder, inner))
}

/// The encoding, with a factor of rotated values for all lengths.
///
/// # Errors
/// Factors that differ from length to length.
fn rope(config: &Config) -> Result<RopeConfig> {
    let rope = config.rope("full_attention", 1_000_000.0)?;
    let RopeScaling::Long { short_factor, long_factor, original_max_position_embeddings, .. } =
        rope.scaling
    else {
        return Ok(rope);
    };
    let parameters = config.object("rope_parameters")?.or(config.object("rope_scaling")?);
    let factor = |key: &str| {
        let found = parameters.as_ref().map(|parameters| parameters.opt_positive(key));
        found.transpose().map(Option::flatten)
    };
    let (short, long) = (factor("short_mscale")?, factor("long_mscale")?);
    let (Some(attention_factor), true) = (short, short == long) else {
        return Err(Error::model(
            "config.json: `short_mscale` and `long_mscale` of positions must be given and the same",
        ));
    };
    let scaling = RopeScaling::Long {
        short_factor,
        long_factor,
        original_max_position_embeddings,
        attention_factor,
    };
    Ok(RopeConfig { scaling, ..rope })
}
