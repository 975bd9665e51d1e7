//! Arcee's Trinity: norms before and behind both halves of a block, a gated attention, windows with
//! positions beside layers that see everything and none, and experts with corrected sigmoid scores.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{
    Attention, Decoder, FeedForward, Moe, OutputGate, Routing, Score, ScoredRouting, SharedExpert,
};
use crate::shape::{AttentionParts, ExpertNames, Experts, NormSpan, Shape, activation, windows};
use crate::weights::Weights;

/// Builds the model under the names of `AfmoeForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config =
        &config.with_defaults(&[("head_dim", 128)]).with_default_number("rms_norm_eps", 1e-5);
    let shape = Shape::read(config)?;
    let layers = shape.num_hidden_layers;
    let rope = config.rope("full_attention", 10_000.0)?;
    let bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let every = config.opt_size("global_attn_every_n_layers")?.unwrap_or(4);
    let window = config.opt_size("sliding_window")?.unwrap_or(1024);
    let windows = windows(config, layers, Some(window), |index| (index + 1) % every != 0)?;
    let dense = config.opt_index("num_dense_layers")?.unwrap_or(1) as usize;
    let mixture = Mixture::read(config)?;
    let hidden = shape.hidden_size;
    let decoder = shape.decoder(config, w, &w.at("model"), |w, index| {
        let parts = AttentionParts {
            qkv_bias: bias,
            o_bias: bias,
            qk_norms: NormSpan::Head,
            window: windows[index],
            // The gate of its output is one for all heads.
            is_whole: true,
            ..AttentionParts::PLAIN
        };
        let attn = w.at("self_attn");
        let rope = windows[index].is_some().then_some(&rope);
        let width = shape.num_attention_heads * shape.head_dim;
        let attention = Attention {
            gate: OutputGate::Sigmoid(attn.linear("gate_proj", hidden, width, false)?),
            ..shape.attention(&attn, rope, parts)?
        };
        let mlp = w.at("mlp");
        let mlp = match index < dense {
            true => shape.mlp(&mlp, mixture.activation, false)?,
            false => mixture.feed_forward(&shape, &mlp)?,
        };
        let names = [
            "input_layernorm",
            "post_attention_layernorm",
            "pre_mlp_layernorm",
            "post_mlp_layernorm",
        ];
        shape.sandwich_block_named(w, names, attention, mlp)
    })?;
    let is_scaled = config.opt_flag("mup_enabled")?.unwrap_or(false);
    let decoder = Decoder { embed_scale: is_scaled.then(|| f64::from(hidden).sqrt()), ..decoder };
    Ok(mixture.experts.widen_beside(decoder, mixture.inner, mixture.shared))
}

/// The experts that the config states.
struct Mixture {
    experts: Experts,
    factor: f32,
    /// Values between an expert's projections.
    inner: i32,
    /// Values between those of the one that all positions pass; 0: there is none.
    shared: i32,
    activation: Activation,
}

impl Mixture {
    fn read(config: &Config) -> Result<Mixture> {
        if let Some(other) = config.opt_text("score_func")?.filter(|found| *found != "sigmoid") {
            return Err(config.wrong("score_func", &other.into(), "sigmoid"));
        }
        if config.opt_flag("route_norm")? == Some(false) {
            let expected = "true: the weights of the chosen experts are divided by their sum";
            return Err(config.wrong("route_norm", &false.into(), expected));
        }
        for key in ["n_group", "num_expert_groups"] {
            if let Some(groups) = config.opt_size(key)?.filter(|groups| *groups > 1) {
                return Err(config.wrong(key, &groups.into(), "1: experts have no groups"));
            }
        }
        let inner = config.size("moe_intermediate_size")?;
        let shared = config.opt_index("num_shared_experts")?.unwrap_or(2);
        Ok(Mixture {
            experts: Experts::read(config, ["num_experts", "num_local_experts"])?,
            factor: config.opt_positive("route_scale")?.unwrap_or(1.0) as f32,
            inner,
            shared: inner.checked_mul(shared).ok_or_else(|| {
                Error::model(format!("config.json: `num_shared_experts` {shared} is too large"))
            })?,
            activation: activation(config, "hidden_act", Activation::Silu)?,
        })
    }

    fn feed_forward(&self, shape: &Shape, w: &Weights) -> Result<FeedForward> {
        let (count, hidden, act) = (self.experts.count, shape.hidden_size, self.activation);
        let (gate_up, down_proj) =
            self.experts.linears(w, ExpertNames::STACKED, [hidden, self.inner])?;
        let shared = || {
            let mlp = shape.mlp_of(&w.at("shared_experts"), self.shared, act, false)?;
            Ok::<_, Error>(SharedExpert { mlp, gate: None })
        };
        Ok(FeedForward::from(Moe {
            router: w.router("router.gate", hidden, count, false)?,
            routing: Routing::Scored(ScoredRouting {
                score: Score::Sigmoid,
                correction: Some(w.tensor_f32("expert_bias", &[count])?),
                groups: None,
                normaliser: Some(1e-20),
                factor: self.factor,
            }),
            experts_per_token: self.experts.per_token,
            gate_up,
            down_proj,
            activation: act,
            shared: (self.shared > 0).then(shared).transpose()?,
            kernels: w.kernels(),
        }))
    }
}
