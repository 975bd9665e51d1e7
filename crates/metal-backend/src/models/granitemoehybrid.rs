//! Granite 4: Mamba 2 layers and attention, with Granite's factors; each layer has a mixture of
//! experts and one that all positions pass, or that one alone.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{
    Block, Decoder, FeedForward, GateUp, MambaSizes, Mixer, Mlp, Moe, Residual, Routing,
    SharedExpert,
};
use crate::shape::{
    AttentionParts, ExpertNames, Experts, MambaParts, NormPlace, Shape, activation,
    attention_layers, mamba_sizes, step_limits,
};
use crate::weights::Weights;

/// Builds the model under the names of `GraniteMoeHybridForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let shared_inner = config.opt_size("shared_intermediate_size")?.unwrap_or(1024);
    let shape = Shape::read(&config.with_defaults(&[("intermediate_size", shared_inner.into())]))?;
    let has_attention =
        attention_layers(config, shape.num_hidden_layers, &["mamba", "linear_attention"], |_| {
            false
        })?;
    // Where all layers have attention, keys of others mean nothing.
    let mamba = has_attention.contains(&false).then(|| mamba(config, &shape)).transpose()?;
    let act = activation(config, "hidden_act", Activation::Silu)?;
    let rope = match config.opt_text("position_embedding_type")? {
        Some("rope") => Some(config.rope("full_attention", 10_000.0)?),
        None | Some("nope") => None,
        Some(other) => {
            return Err(Error::model(format!(
                "config.json: `position_embedding_type` is `{other}`, known are rope, nope"
            )));
        }
    };
    let attention_bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let mlp_bias = config.opt_flag("mlp_bias")?.unwrap_or(false);
    let factor = |key| Ok::<_, Error>(config.opt_positive(key)?.unwrap_or(1.0));
    let scale = factor("attention_multiplier")?;
    let residual = factor("residual_multiplier")? as f32;
    let (embedding, logits) = (factor("embedding_multiplier")?, factor("logits_scaling")?);
    let experts = match config.opt_index("num_local_experts")? {
        None | Some(0) => None,
        Some(_) => Some(Experts::read(config, ["num_local_experts", "num_experts"])?),
    };
    let (hidden, inner) = (shape.hidden_size, shape.intermediate_size);
    let decoder = shape.decoder(config, w, &w.at("model"), |w, index| {
        let mixer: Mixer = match mamba {
            Some((sizes, parts)) if !has_attention[index] => {
                shape.mamba(&w.at("mamba"), sizes, parts)?.into()
            }
            _ => {
                let parts = AttentionParts {
                    qkv_bias: attention_bias,
                    o_bias: attention_bias,
                    scale: Some(scale),
                    ..AttentionParts::PLAIN
                };
                shape.attention(&w.at("self_attn"), rope.as_ref(), parts)?.into()
            }
        };
        // mlx-lm converts the network of a layer without experts to this name.
        let shared = if w.at("mlp").is_empty() {
            shared_mlp(&shape, &w.at("shared_mlp"), shared_inner, act)?
        } else {
            shape.mlp_of(&w.at("mlp"), shared_inner, act, mlp_bias)?
        };
        let Some(experts) = &experts else {
            return Ok(Block {
                residual: Residual::Scaled(residual),
                ..shape.pre_norm_block(w, mixer, shared.into())?
            });
        };
        let sparse = w.at("block_sparse_moe");
        let (gate_up, down_proj) = experts.linears(&sparse, ExpertNames::PROJ, [hidden, inner])?;
        let moe = FeedForward::from(Moe {
            router: sparse.router("router.layer", hidden, experts.count, false)?,
            routing: Routing::Normalised,
            experts_per_token: experts.per_token,
            gate_up,
            down_proj,
            activation: act,
            shared: Some(SharedExpert { mlp: shared, gate: None }),
            kernels: w.kernels(),
        });
        Ok(Block { residual: Residual::Scaled(residual), ..shape.pre_norm_block(w, mixer, moe)? })
    })?;
    let decoder = match experts {
        None => Decoder { intermediate_size: shared_inner, ..decoder },
        Some(experts) => experts.widen_beside(decoder, inner, shared_inner),
    };
    Ok(Decoder {
        embed_scale: Some(embedding),
        logit_scale: Some(logits.recip() as f32),
        ..decoder
    })
}

/// The Mamba 2 layers that `config` states.
fn mamba(config: &Config, shape: &Shape) -> Result<(MambaSizes, MambaParts)> {
    if activation(config, "hidden_act", Activation::Silu)? != Activation::Silu {
        return Err(Error::model(
            "config.json: `hidden_act` of mamba layers is known as silu only",
        ));
    }
    let expand = config.opt_size("mamba_expand")?.unwrap_or(2);
    let sizes = mamba_sizes(config, i64::from(expand) * i64::from(shape.hidden_size))?;
    let bias = config.opt_flag("mamba_proj_bias")?.unwrap_or(false);
    let parts = MambaParts {
        in_bias: bias,
        out_bias: bias,
        convolution_bias: config.opt_flag("mamba_conv_bias")?.unwrap_or(true),
        norm: NormPlace::BehindGate,
        limits: step_limits(config)?,
        multipliers: None,
    };
    Ok((sizes, parts))
}

/// The network under `w` whose `input_linear` has the gate's rows, then those of what it lets
/// through.
pub(super) fn shared_mlp(
    shape: &Shape,
    w: &Weights,
    inner: i32,
    activation: Activation,
) -> Result<Mlp> {
    let both = inner.checked_mul(2).ok_or_else(|| {
        Error::model(format!("config.json: `shared_intermediate_size` {inner} is too large"))
    })?;
    Ok(Mlp {
        gate_up: GateUp::Halves(w.linear("input_linear", shape.hidden_size, both, false)?),
        down_proj: w.linear("output_linear", inner, shape.hidden_size, false)?,
        activation,
        multipliers: None,
        kernels: w.kernels(),
    })
}
