//! Ling and Ring, the first and the second generation: one projection to queries, keys and values,
//! and a mixture of experts behind the first layers.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{
    Decoder, ExpertGroups, FeedForward, GroupScore, Head, Moe, Routing, Score, ScoredRouting,
    SharedExpert,
};
use crate::shape::{
    AttentionParts, ExpertNames, Experts, NormSpan, Shape, activation, sparse_layers,
};
use crate::weights::Weights;

/// Builds the model under the names of `BailingMoeForCausalLM` and `BailingMoeV2ForCausalLM`; the
/// layers that predict further tokens are left aside.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    let config = &config.with_defaults(&[("first_k_dense_replace", 0)]);
    if config.opt_flag("use_bias")? == Some(true) {
        return Err(config.wrong("use_bias", &true.into(), "false"));
    }
    let shape = Shape { embeddings: "word_embeddings", ..Shape::read(config)? };
    let layers = shape.num_hidden_layers;
    let rope = config.rope_of_dims("rotary_dim", shape.head_dim, 10_000.0)?;
    let qkv_bias = config.opt_flag("use_qkv_bias")?.unwrap_or(false);
    let has_norms = config.opt_flag("use_qk_norm")?.unwrap_or(false);
    let mixture = Mixture::read(config)?;
    let sparse = sparse_layers(config, layers)?;
    w.leave_layers_from(layers);
    let lengths = match config.opt_flag("norm_head")? {
        Some(true) => w.column_lengths("lm_head", [shape.hidden_size, shape.vocab_size])?,
        _ => None,
    };
    let decoder = shape.decoder(config, w, &w.at("model"), |w, index| {
        let parts = AttentionParts {
            qkv_bias,
            // Files of GGUF may have a projection for each.
            fused_qkv: w.at("attention.q_proj").is_empty(),
            qkv_name: "query_key_value",
            o_name: "dense",
            qk_norms: if has_norms { NormSpan::Head } else { NormSpan::None },
            norm_names: ["query_layernorm", "key_layernorm"],
            ..AttentionParts::PLAIN
        };
        let attention = shape.attention(&w.at("attention"), Some(&rope), parts)?;
        let mlp = match sparse[index] {
            true => mixture.feed_forward(&shape, &w.at("mlp"))?,
            false => shape.mlp(&w.at("mlp"), mixture.activation, false)?,
        };
        shape.pre_norm_block(w, attention, mlp)
    })?;
    let decoder = mixture.experts.widen_beside(decoder, mixture.inner, mixture.shared);
    let Some(lengths) = lengths else { return Ok(decoder) };
    if matches!(decoder.lm_head, Head::Tied) {
        let expected = "false where the embeddings are the output layer";
        return Err(config.wrong("norm_head", &true.into(), expected));
    }
    // Columns of the output layer have the length 1: what they multiply is divided by theirs.
    let norm = decoder.norm.divided(&lengths)?;
    Ok(Decoder { norm, ..decoder })
}

/// The experts that the config states.
struct Mixture {
    experts: Experts,
    score: Score,
    /// The choice is by corrected scores.
    is_corrected: bool,
    groups: Option<ExpertGroups>,
    /// The chosen scores are divided by their sum.
    normalises: bool,
    factor: f32,
    /// Values between an expert's projections.
    inner: i32,
    /// Values between those of the one that all positions pass; 0: there is none.
    shared: i32,
    activation: Activation,
}

impl Mixture {
    fn read(config: &Config) -> Result<Mixture> {
        let experts = Experts::read(config, ["num_experts", "num_local_experts"])?;
        let inner = config.size("moe_intermediate_size")?;
        let is_shared = config.opt_flag("moe_router_enable_shared_expert")?.unwrap_or(true);
        let count = config.opt_index("num_shared_experts")?.filter(|_| is_shared).unwrap_or(0);
        let each = config.opt_size("moe_shared_expert_intermediate_size")?.unwrap_or(inner);
        let has_factor = config.opt_flag("moe_router_enable_routed_scaling")?.unwrap_or(true);
        let factor = config.opt_positive("routed_scaling_factor")?.filter(|_| has_factor);
        Ok(Mixture {
            score: match config.opt_text("score_function")? {
                None | Some("softmax") => Score::Softmax,
                Some("sigmoid") => Score::Sigmoid,
                Some(other) => {
                    let expected = "softmax or sigmoid";
                    return Err(config.wrong("score_function", &other.into(), expected));
                }
            },
            is_corrected: config.opt_flag("moe_router_enable_expert_bias")?.unwrap_or(false),
            groups: experts.groups(config, GroupScore::BestTwo)?,
            normalises: config.opt_flag("norm_topk_prob")?.unwrap_or(false)
                && experts.per_token > 1,
            factor: factor.unwrap_or(1.0) as f32,
            inner,
            shared: each.checked_mul(count).ok_or_else(|| {
                Error::model(format!("config.json: `num_shared_experts` {count} is too large"))
            })?,
            activation: activation(config, "hidden_act", Activation::Silu)?,
            experts,
        })
    }

    fn feed_forward(&self, shape: &Shape, w: &Weights) -> Result<FeedForward> {
        let (count, hidden, act) = (self.experts.count, shape.hidden_size, self.activation);
        let (gate, corrections) = (w.at("gate"), "expert_bias");
        let correction = match self.is_corrected {
            true => Some(gate.tensor_f32(corrections, &[count])?),
            // Saved all the same.
            false => {
                w.ignore(|name| name == format!("{}{corrections}", gate.prefix()));
                None
            }
        };
        // mlx-lm converts it to the second name.
        let router = match gate.at("gate_proj").is_empty() {
            true => w.router("gate", hidden, count, false)?,
            false => gate.router("gate_proj", hidden, count, false)?,
        };
        let (gate_up, down_proj) =
            self.experts.linears(w, ExpertNames::PROJ, [hidden, self.inner])?;
        let shared = || {
            let mlp = shape.mlp_of(&w.at("shared_experts"), self.shared, act, false)?;
            Ok::<_, Error>(SharedExpert { mlp, gate: None })
        };
        Ok(FeedForward::from(Moe {
            router,
            routing: Routing::Scored(ScoredRouting {
                score: self.score,
                correction,
                groups: self.groups,
                normaliser: self.normalises.then_some(1e-20),
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
