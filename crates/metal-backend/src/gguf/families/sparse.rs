//! Mixtures of experts whose attention is an older model's.

use serde_json::json;

use super::building::{SHARED_EXPERTS, copy_numbers, expect_sigmoid, grouped_experts, pairs};
use super::llama::{granite_factors, windowed};
use crate::error::{Error, Result};
use crate::gguf::metadata::{Config, Family, Metadata, Modules, PLAIN};

/// Experts under the module that they are released in.
const STACKED: Modules = &[
    ("ffn_gate_exps", "mlp.experts.gate_proj"),
    ("ffn_up_exps", "mlp.experts.up_proj"),
    ("ffn_down_exps", "mlp.experts.down_proj"),
];

/// Ling's modules.
const BAILING: Modules = &[
    ("token_embd", "model.word_embeddings"),
    ("attn_q", "attention.q_proj"),
    ("attn_k", "attention.k_proj"),
    ("attn_v", "attention.v_proj"),
    ("attn_qkv", "attention.query_key_value"),
    ("attn_output", "attention.dense"),
    ("attn_q_norm", "attention.query_layernorm"),
    ("attn_k_norm", "attention.key_layernorm"),
    ("exp_probs_b.bias", "mlp.gate.expert_bias"),
];

/// Metadata of experts.
const READS: &[&str] = &[
    "expert_count",
    "expert_gating_func",
    "expert_group_count",
    "expert_shared_count",
    "expert_weights_norm",
    "expert_weights_scale",
    "leading_dense_block_count",
    "nextn_predict_layers",
    "rope.dimension_count",
];

pub(super) const FAMILIES: [Family; 6] = [
    Family {
        name: "olmoe",
        model_type: "olmoe",
        reads: &["expert_count"],
        config: |metadata, config| experts(metadata, config, "num_experts"),
        ..PLAIN
    },
    Family {
        name: "dots1",
        model_type: "dots1",
        modules: &[STACKED, SHARED_EXPERTS],
        reads: READS,
        config: |metadata, config| grouped_experts(metadata, config, false),
        ..PLAIN
    },
    Family {
        name: "afmoe",
        model_type: "afmoe",
        modules: &[
            STACKED,
            &[
                ("attn_gate", "self_attn.gate_proj"),
                ("ffn_norm", "pre_mlp_layernorm"),
                ("post_ffw_norm", "post_mlp_layernorm"),
                ("ffn_gate_inp", "mlp.router.gate"),
                ("exp_probs_b.bias", "mlp.expert_bias"),
            ],
            SHARED_EXPERTS,
        ],
        reads: &[
            "attention.sliding_window",
            "attention.sliding_window_pattern",
            "expert_count",
            "expert_gating_func",
            "expert_group_count",
            "expert_shared_count",
            "expert_weights_scale",
            "leading_dense_block_count",
        ],
        needs_range: true,
        config: afmoe,
        ..PLAIN
    },
    Family {
        name: "bailingmoe",
        model_type: "bailing_moe",
        modules: &[BAILING, SHARED_EXPERTS],
        reads: READS,
        change: pairs,
        config: bailing,
        ..PLAIN
    },
    Family {
        name: "bailingmoe2",
        model_type: "bailing_moe",
        modules: &[BAILING, SHARED_EXPERTS],
        reads: READS,
        needs_range: true,
        config: bailing,
        ..PLAIN
    },
    Family {
        name: "granitemoe",
        model_type: "granitemoe",
        modules: &[&[
            ("ffn_gate_inp", "block_sparse_moe.router.layer"),
            ("ffn_gate_exps", "block_sparse_moe.switch_mlp.gate_proj"),
            ("ffn_up_exps", "block_sparse_moe.switch_mlp.up_proj"),
            ("ffn_down_exps", "block_sparse_moe.switch_mlp.down_proj"),
            ("ffn_gate_shexp", "mlp.gate_proj"),
            ("ffn_up_shexp", "mlp.up_proj"),
            ("ffn_down_shexp", "mlp.down_proj"),
        ]],
        reads: &[
            "attention.scale",
            "embedding_scale",
            "residual_scale",
            "logit_scale",
            "expert_count",
            "expert_shared_count",
        ],
        change: pairs,
        config: granite,
        ..PLAIN
    },
];

/// How many experts there are, under `key`, and how many a position passes.
fn experts(metadata: &Metadata<'_>, config: &mut Config, key: &str) -> Result<()> {
    let keys = [("expert_count", key), ("expert_used_count", "num_experts_per_tok")];
    copy_numbers(metadata, config, &keys)
}

/// The factor of experts' weights.
fn factor(metadata: &Metadata<'_>) -> Result<f64> {
    let factor = metadata.float("expert_weights_scale")?.filter(|factor| *factor != 0.0);
    Ok(factor.unwrap_or(1.0))
}

fn afmoe(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    expect_sigmoid(metadata)?;
    experts(metadata, config, "num_experts")?;
    copy_numbers(metadata, config, &[("expert_feed_forward_length", "moe_intermediate_size")])?;
    let window = metadata.number("attention.sliding_window")?.filter(|size| *size > 0);
    windowed(metadata, config, window.unwrap_or(1), if window.is_some() { 4 } else { 1 })?;
    let number = |key| Ok::<_, Error>(metadata.number(key)?.unwrap_or(0));
    config.extend([
        ("n_group".into(), json!(number("expert_group_count")?.max(1))),
        ("num_shared_experts".into(), json!(number("expert_shared_count")?)),
        ("num_dense_layers".into(), json!(number("leading_dense_block_count")?)),
        ("route_scale".into(), json!(factor(metadata)?)),
        // Files do not say so, and their programs scale embeddings.
        ("mup_enabled".into(), json!(true)),
    ]);
    Ok(())
}

/// Ling and Ring. Columns of the output layer have the length 1 in files of the first generation.
fn bailing(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    const SOFTMAX: u64 = 1;
    let score = match metadata.number("expert_gating_func")? {
        None | Some(SOFTMAX) => "softmax",
        Some(_) => {
            expect_sigmoid(metadata)?;
            "sigmoid"
        }
    };
    experts(metadata, config, "num_experts")?;
    copy_numbers(metadata, config, &[("expert_feed_forward_length", "moe_intermediate_size")])?;
    let number = |key| Ok::<_, Error>(metadata.number(key)?.unwrap_or(0));
    let has = |tensor: &str| metadata.some_layer_has(tensor);
    let head_dim = metadata.head_dim()?;
    let rotated = metadata.number("rope.dimension_count")?.unwrap_or(head_dim);
    config.extend([
        ("score_function".into(), json!(score)),
        ("num_shared_experts".into(), json!(number("expert_shared_count")?)),
        (
            "moe_shared_expert_intermediate_size".into(),
            json!(metadata.number("expert_shared_feed_forward_length")?),
        ),
        ("first_k_dense_replace".into(), json!(number("leading_dense_block_count")?)),
        ("n_group".into(), json!(number("expert_group_count")?.max(1))),
        ("topk_group".into(), json!(number("expert_group_used_count")?.max(1))),
        ("norm_topk_prob".into(), json!(metadata.flag("expert_weights_norm")?.unwrap_or(false))),
        ("routed_scaling_factor".into(), json!(factor(metadata)?)),
        ("moe_router_enable_expert_bias".into(), json!(has("exp_probs_b.bias"))),
        ("use_qk_norm".into(), json!(has("attn_q_norm.weight"))),
        ("use_qkv_bias".into(), json!(has("attn_q.bias") || has("attn_qkv.bias"))),
        ("rotary_dim".into(), json!(rotated)),
    ]);
    Ok(())
}

fn granite(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    granite_factors(metadata, config)?;
    experts(metadata, config, "num_local_experts")?;
    let shared = metadata.number("expert_shared_feed_forward_length")?.unwrap_or(0);
    if shared > 0 {
        config.insert("model_type".into(), json!("granitemoeshared"));
        config.insert("shared_intermediate_size".into(), json!(shared));
    }
    Ok(())
}
