//! Command with a mixture of experts: Cohere 2's blocks, of which most have experts, perhaps beside
//! one that all positions pass.

use crate::config::{Config, RopeConfig, RopePairs};
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{Decoder, FeedForward, Moe, Routing, Score, ScoredRouting, SharedExpert};
use crate::shape::{
    AttentionParts, ExpertNames, Experts, Norms, Shape, activation, sparse_layers, windows,
};
use crate::weights::Weights;

/// Builds the model under the names of `Cohere2MoeForCausalLM`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = &config.with_defaults(&[
        ("head_dim", 128),
        ("sliding_window", 4096),
        ("first_k_dense_replace", 0),
        ("num_experts", 8),
        ("num_experts_per_tok", 2),
    ]);
    // Where it has an epsilon of its own, norms are around zero.
    let (rms_norm_eps, norms) = match config.opt_positive("rms_norm_eps")? {
        Some(eps) => (eps as f32, Norms::Rms),
        None => {
            let eps = config.opt_positive("layer_norm_eps")?.unwrap_or(1e-5) as f32;
            (eps, Norms::Layer { has_bias: false })
        }
    };
    let shape = Shape { rms_norm_eps, norms, ..Shape::read(config)? };
    let layers = shape.num_hidden_layers;
    let rope =
        RopeConfig { pairs: RopePairs::Neighbours, ..config.rope("sliding_attention", 10_000.0)? };
    let bias = config.opt_flag("attention_bias")?.unwrap_or(false);
    let scale = config.opt_positive("logit_scale")?.unwrap_or(0.0625) as f32;
    let sparse = sparse_layers(config, layers)?;
    let near = Windows::read(config, layers)?;
    let mixture = Mixture::read(config, &shape)?;
    let dense_inner = config.opt_size("prefix_dense_intermediate_size")?;
    let dense_inner = dense_inner.unwrap_or(shape.intermediate_size);
    let decoder = shape.decoder(config, w, &w.at("model"), |w, index| {
        let window = near.windows[index];
        let parts =
            AttentionParts { qkv_bias: bias, o_bias: bias, window, ..AttentionParts::PLAIN };
        let sees_positions = window.is_some() || near.dense_see_positions && !sparse[index];
        let rope = sees_positions.then_some(&rope);
        let mlp = w.at("mlp");
        let mlp = match sparse[index] {
            true => mixture.feed_forward(&shape, &mlp)?,
            false => shape.mlp_of(&mlp, dense_inner, mixture.activation, false)?.into(),
        };
        shape.parallel_block(w, shape.attention(&w.at("self_attn"), rope, parts)?, mlp)
    })?;
    let decoder = Decoder {
        logit_scale: Some(scale),
        intermediate_size: decoder.intermediate_size.max(dense_inner),
        ..decoder
    };
    Ok(mixture.experts.widen_beside(decoder, mixture.inner, mixture.shared))
}

/// Which layers have a window. The dense ones at the beginning have a pattern of their own.
struct Windows {
    windows: Vec<Option<i32>>,
    /// Dense layers see positions without a window, too.
    dense_see_positions: bool,
}

impl Windows {
    fn read(config: &Config, layers: i32) -> Result<Windows> {
        let window = config.opt_size("sliding_window")?;
        let pattern = config.opt_size("sliding_window_pattern")?.unwrap_or(4);
        let of_dense = config.opt_size("prefix_dense_sliding_window_pattern")?.unwrap_or(1);
        let dense = config.opt_index("first_k_dense_replace")?.unwrap_or(0);
        let windows = windows(config, layers, window, |index| match index < dense {
            true => (index + 1) % of_dense != 0,
            false => (index - dense + 1) % pattern != 0,
        })?;
        Ok(Windows { windows, dense_see_positions: of_dense == 1 })
    }
}

/// The experts that the config states.
struct Mixture {
    experts: Experts,
    score: Score,
    /// The scores of the chosen are divided by their sum.
    normalises: bool,
    /// Values between an expert's projections.
    inner: i32,
    /// Values between those of the one that all positions pass; 0: there is none.
    shared: i32,
    /// Of the experts' results and of the shared one's.
    factor: f32,
    activation: Activation,
}

impl Mixture {
    fn read(config: &Config, shape: &Shape) -> Result<Mixture> {
        const FUNCTION: &str = "expert_selection_fn";
        const STRATEGY: &str = "shared_expert_combination_strategy";
        let divides = config.opt_flag("norm_topk_prob")?.unwrap_or(true);
        let (score, normalises) = match config.opt_text(FUNCTION)? {
            None | Some("softmax") => (Score::Softmax, true),
            Some("sigmoid") => (Score::Sigmoid, divides),
            Some(other) => return Err(config.wrong(FUNCTION, &other.into(), "softmax or sigmoid")),
        };
        let inner = shape.intermediate_size;
        let count = config.opt_index("num_shared_experts")?.unwrap_or(0);
        let factor = match config.opt_text(STRATEGY)? {
            Some("sum") => 1.0,
            None | Some("average") if count > 0 => 0.5,
            None | Some("average") => 1.0,
            Some(other) => return Err(config.wrong(STRATEGY, &other.into(), "sum or average")),
        };
        Ok(Mixture {
            experts: Experts::read(config, ["num_experts", "num_local_experts"])?,
            score,
            normalises,
            inner,
            shared: inner.checked_mul(count).ok_or_else(|| {
                Error::model(format!("config.json: `num_shared_experts` {count} is too large"))
            })?,
            factor,
            activation: activation(config, "hidden_act", Activation::Silu)?,
        })
    }

    fn feed_forward(&self, shape: &Shape, w: &Weights) -> Result<FeedForward> {
        let (hidden, act) = (shape.hidden_size, self.activation);
        let (gate_up, down_proj) =
            self.experts.linears(w, ExpertNames::PROJ, [hidden, self.inner])?;
        let shared = || {
            let mut mlp = shape.mlp_of(&w.at("shared_experts"), self.shared, act, false)?;
            mlp.multipliers = (self.factor != 1.0).then_some([1.0, self.factor]);
            Ok::<_, Error>(SharedExpert { mlp, gate: None })
        };
        Ok(FeedForward::from(Moe {
            router: w.router("gate", hidden, self.experts.count, false)?,
            routing: Routing::Scored(ScoredRouting {
                score: self.score,
                correction: None,
                groups: None,
                normaliser: self.normalises.then_some(0.0),
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
