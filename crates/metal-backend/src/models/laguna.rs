//! Laguna: layers with and without a window that differ in heads and in the part of a head that is
//! rotated, a gate on each head's output, and experts with corrected sigmoid scores.

use crate::config::{Config, RopeConfig};
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{
    Attention, Decoder, FeedForward, Moe, OutputGate, Routing, Score, ScoredRouting, SharedExpert,
};
use crate::shape::{
    AttentionParts, ExpertNames, Experts, NormSpan, Shape, activation, sparse_layers, windows,
};
use crate::weights::Weights;

/// Builds the model under the names of `LagunaForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let shape = Shape::read(config)?;
    let layers = shape.num_hidden_layers;
    let heads = heads(config, &shape)?;
    let window = config.opt_size("sliding_window")?;
    let windows = windows(config, layers, window, |_| false)?;
    let ropes = ropes(config)?;
    let bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let qkv_bias = bias || config.opt_flag("qkv_bias")?.unwrap_or(false);
    let gate = Gate::read(config)?;
    let mixture = Mixture::read(config)?;
    let sparse = sparse_layers(config, layers)?;
    let decoder = shape.decoder(config, w, &w.at("model"), |w, index| {
        let own = Shape { num_attention_heads: heads[index], ..shape.clone() };
        let parts = AttentionParts {
            qkv_bias,
            o_bias: bias,
            qk_norms: NormSpan::Head,
            window: windows[index],
            // The gate of its output is one for all heads.
            is_whole: true,
            ..AttentionParts::PLAIN
        };
        let rope = &ropes[usize::from(windows[index].is_some())];
        let attn = w.at("self_attn");
        let attention = own.attention(&attn, Some(rope), parts)?;
        let gate = match gate {
            Gate::None => OutputGate::None,
            Gate::Heads => gate_of(&attn, &own, own.num_attention_heads)?,
            Gate::Values => gate_of(&attn, &own, own.num_attention_heads * own.head_dim)?,
        };
        let attention = Attention { gate, ..attention };
        let mlp = w.at("mlp");
        let feed = match sparse[index] {
            false => shape.mlp(&mlp, mixture.activation, false)?,
            true => mixture.feed_forward(&shape, &mlp)?,
        };
        shape.pre_norm_block(w, attention, feed)
    })?;
    Ok(mixture.experts.widen_beside(decoder, mixture.inner, mixture.shared))
}

/// The gate of the output of attention.
#[derive(Clone, Copy)]
enum Gate {
    None,
    Heads,
    Values,
}

impl Gate {
    fn read(config: &Config) -> Result<Gate> {
        if config.get("gating").is_some_and(serde_json::Value::is_boolean) {
            return Ok(if config.opt_flag("gating")? == Some(false) {
                Gate::None
            } else {
                Gate::Heads
            });
        }
        match config.opt_text("gating")? {
            None | Some("per-head") => Ok(Gate::Heads),
            Some("per-element") => Ok(Gate::Values),
            Some(other) => {
                Err(config.wrong("gating", &other.into(), "true, false, per-head or per-element"))
            }
        }
    }
}

fn gate_of(w: &Weights, shape: &Shape, values: i32) -> Result<OutputGate> {
    w.linear("g_proj", shape.hidden_size, values, false).map(OutputGate::Softplus)
}

/// Query heads of each layer.
fn heads(config: &Config, shape: &Shape) -> Result<Vec<i32>> {
    const KEY: &str = "num_attention_heads_per_layer";
    let layers = shape.num_hidden_layers as usize;
    let Some(heads) = config.opt_indices(KEY)? else {
        return Ok(vec![shape.num_attention_heads; layers]);
    };
    if heads.len() != layers {
        return Err(Error::model(format!(
            "config.json: `{KEY}` has {} entries for {layers} layers",
            heads.len()
        )));
    }
    let checked = |heads: u64| {
        let num_attention_heads = i32::try_from(heads).ok().filter(|heads| *heads > 0);
        let num_attention_heads = num_attention_heads
            .ok_or_else(|| Error::model(format!("config.json: `{KEY}` names {heads} heads")))?;
        Shape { num_attention_heads, ..shape.clone() }.check()?;
        Ok(num_attention_heads)
    };
    heads.into_iter().map(checked).collect()
}

/// The encodings of layers that see everything, and of those with a window.
fn ropes(config: &Config) -> Result<[RopeConfig; 2]> {
    let full = match config.get("rope_parameters") {
        None => config.with_default_number("partial_rotary_factor", 0.5),
        Some(_) => config.clone(),
    };
    let full = full.partial_rope("full_attention", 500_000.0)?;
    Ok([full, config.partial_rope("sliding_attention", 10_000.0)?])
}

/// The experts that the config states.
struct Mixture {
    experts: Experts,
    score: Score,
    factor: f32,
    inner: i32,
    shared: i32,
    activation: Activation,
}

impl Mixture {
    fn read(config: &Config) -> Result<Mixture> {
        const EARLY: &str = "moe_apply_router_weight_on_input";
        if config.opt_flag(EARLY)? == Some(true) {
            return Err(config.wrong(EARLY, &true.into(), "false: experts' results are weighed"));
        }
        if let Some(other) = config.opt_text("moe_router_score_func")?.filter(|f| *f != "sigmoid") {
            return Err(config.wrong("moe_router_score_func", &other.into(), "sigmoid"));
        }
        let cap = config.opt_number("moe_router_logit_softcapping")?.filter(|cap| *cap > 0.0);
        Ok(Mixture {
            experts: Experts::read(config, ["num_experts", "num_local_experts"])?,
            score: cap.map_or(Score::Sigmoid, |cap| Score::CappedSigmoid(cap as f32)),
            factor: config.opt_positive("moe_routed_scaling_factor")?.unwrap_or(1.0) as f32,
            inner: config.size("moe_intermediate_size")?,
            shared: config.size("shared_expert_intermediate_size")?,
            activation: activation(config, "hidden_act", Activation::Silu)?,
        })
    }

    fn feed_forward(&self, shape: &Shape, w: &Weights) -> Result<FeedForward> {
        let (count, hidden) = (self.experts.count, shape.hidden_size);
        // Released beside the experts, and converted by mlx-lm to the router's.
        let router = w.at("gate");
        const CORRECTION: &str = "e_score_correction_bias";
        let holder = if router.has(CORRECTION) { router.clone() } else { w.at("experts") };
        let correction = holder.tensor_f32(CORRECTION, &[count])?;
        let router = match router.at("proj").is_empty() {
            true => w.router("gate", hidden, count, false)?,
            false => router.router("proj", hidden, count, false)?,
        };
        let (gate_up, down_proj) =
            self.experts.linears(w, ExpertNames::PROJ, [hidden, self.inner])?;
        let plural = w.at("shared_experts");
        let shared = if plural.is_empty() { w.at("shared_expert") } else { plural };
        Ok(FeedForward::from(Moe {
            routing: Routing::Scored(ScoredRouting {
                score: self.score,
                correction: Some(correction),
                groups: None,
                normaliser: Some(0.0),
                factor: self.factor,
            }),
            router,
            experts_per_token: self.experts.per_token,
            gate_up,
            down_proj,
            activation: self.activation,
            shared: Some(SharedExpert {
                mlp: shape.mlp_of(&shared, self.shared, self.activation, false)?,
                gate: None,
            }),
            kernels: w.kernels(),
        }))
    }
}
