//! gpt-oss: mixtures of experts in mxfp4 with a clipped gate, a sink beside the scores of each
//! head, every other layer with a sliding window.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{Decoder, ExpertLinear, GateUp, Moe, Routing};
use crate::shape::{AttentionParts, Experts, Shape, windows};
use crate::weights::Weights;

/// Builds the model under the names of `GptOssForCausalLM`, as released or as mlx-lm converts them.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = &config.with_defaults(&[
        ("head_dim", 64),
        ("num_key_value_heads", 8),
        ("num_experts_per_tok", 4),
        ("sliding_window", 128),
    ]);
    let shape = Shape::read(config)?;
    let rope = config.rope("full_attention", 150_000.0)?;
    let bias = config.opt_flag("attention_bias")?.unwrap_or(true);
    let sliding_window = config.opt_size("sliding_window")?;
    let windows = windows(config, shape.num_hidden_layers, sliding_window, |index| index % 2 == 0)?;
    let experts = Experts::read(config, ["num_local_experts", "num_experts"])?;
    let number = |key, default| Ok::<_, Error>(config.opt_positive(key)?.unwrap_or(default));
    // `hidden_act` says silu and means this one.
    let activation = Activation::ClippedSilu {
        alpha: number("swiglu_alpha", 1.702)? as f32,
        limit: number("swiglu_limit", 7.0)? as f32,
    };
    let decoder = shape.decoder(config, w, &w.at("model"), |w, index| {
        let parts = AttentionParts {
            qkv_bias: bias,
            o_bias: bias,
            sinks: true,
            window: windows[index],
            ..AttentionParts::PLAIN
        };
        let attention = shape.attention(&w.at("self_attn"), Some(&rope), parts)?;
        let mlp = w.at("mlp");
        let (gate_up, down_proj) = expert_linears(&mlp.at("experts"), &shape, &experts)?;
        let moe = Moe {
            router: mlp.router("router", shape.hidden_size, experts.count, true)?,
            routing: Routing::Logits,
            experts_per_token: experts.per_token,
            gate_up,
            down_proj,
            activation,
            shared: None,
            kernels: w.kernels(),
        };
        shape.pre_norm_block(w, attention, moe.into())
    })?;
    Ok(experts.widen(decoder, shape.intermediate_size))
}

/// The experts' projections in and out.
fn expert_linears(
    w: &Weights,
    shape: &Shape,
    experts: &Experts,
) -> Result<(GateUp<ExpertLinear>, ExpertLinear)> {
    let (hidden, inner) = (shape.hidden_size, shape.intermediate_size);
    let both = shape.both_intermediate()?;
    let is_packed = w.has("gate_up_proj_blocks");
    if is_packed || w.has("gate_up_proj") {
        let own = |name, parts: &[&str], shape| match is_packed {
            true => w.mxfp4_expert_linear(name, parts, shape),
            false => w.turned_expert_linear(name, parts, shape),
        };
        let parts = ["gate_proj", "up_proj"];
        let gate_up = own("gate_up_proj", &parts, [experts.count, both, hidden])?;
        let down = own("down_proj", &["down_proj"], [experts.count, hidden, inner])?;
        return Ok((GateUp::Interleaved(gate_up), down));
    }
    let linear = |name, input, output| w.expert_linear(name, [experts.count, output, input], true);
    let gate_up = GateUp::Separate {
        gate_proj: linear("gate_proj", hidden, inner)?,
        up_proj: linear("up_proj", hidden, inner)?,
    };
    Ok((gate_up, linear("down_proj", inner, hidden)?))
}
