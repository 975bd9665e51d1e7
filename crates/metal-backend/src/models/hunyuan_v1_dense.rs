//! HunYuan dense: Llama's form with norms over each head's queries and keys behind their rotation.

use crate::config::{Config, RopeConfig, RopePairs, RopeScaling};
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{Attention, Decoder};
use crate::shape::{AttentionParts, NormSpan, Shape, activation};
use crate::weights::Weights;

/// Builds the model under the names of `HunYuanDenseV1ForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = &config.with_default_number("rms_norm_eps", 1e-5);
    let shape = Shape::read(config)?;
    let attention = attention(config, &shape)?;
    let mlp_bias = config.opt_flag("mlp_bias")?.unwrap_or(false);
    let act = activation(config, "hidden_act", Activation::Silu)?;
    shape.decoder(config, w, &w.at("model"), |w, _| {
        shape.pre_norm_block(w, attention(w)?, shape.mlp(&w.at("mlp"), act, mlp_bias)?)
    })
}

/// How the attention of a layer under a cursor is built.
///
/// # Errors
/// A key that is wrong; layers that share their keys and values.
pub(super) fn attention(
    config: &Config,
    shape: &Shape,
) -> Result<impl Fn(&Weights) -> Result<Attention>> {
    if config.opt_flag("use_cla")?.unwrap_or(false) {
        return Err(Error::model(
            "config.json: `use_cla` is true, but layers that share their keys and values are not supported",
        ));
    }
    let rope = rope(config, shape.head_dim)?;
    let bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let has_norms = config.opt_flag("use_qk_norm")?.unwrap_or(true);
    Ok(move |w: &Weights| {
        let parts = AttentionParts {
            qkv_bias: bias,
            o_bias: bias,
            qk_norms: if has_norms { NormSpan::RotatedHead } else { NormSpan::None },
            norm_names: ["query_layernorm", "key_layernorm"],
            ..AttentionParts::PLAIN
        };
        shape.attention(&w.at("self_attn"), Some(&rope), parts)
    })
}

/// The encoding whose base `alpha` stretches: `theta · alpha^(d / (d - 2))`, whatever the length,
/// although the config calls it dynamic.
fn rope(config: &Config, head_dim: i32) -> Result<RopeConfig> {
    let parameters = config.object("rope_parameters")?.or(config.object("rope_scaling")?);
    let alpha = parameters.as_ref().map(|parameters| parameters.opt_positive("alpha"));
    let (Some(parameters), Some(alpha)) = (&parameters, alpha.transpose()?.flatten()) else {
        return config.rope("full_attention", 10_000.0);
    };
    let theta = match parameters.opt_positive("rope_theta")? {
        Some(theta) => theta,
        None => config.opt_positive("rope_theta")?.unwrap_or(10_000.0),
    };
    let dims = f64::from(head_dim);
    Ok(RopeConfig {
        theta: theta * alpha.powf(dims / (dims - 2.0).max(1.0)),
        scaling: RopeScaling::None,
        partial_rotary_factor: 1.0,
        pairs: RopePairs::Halves,
        sections: None,
    })
}
