//! Mixtures of experts with attention of their own kinds.

use serde_json::json;

use super::building::{
    SHARED_EXPERTS, copy_numbers, expect_sigmoid, grouped_experts, window_types,
};
use crate::error::Result;
use crate::gguf::metadata::{Config, Family, Metadata, PLAIN};

pub(super) const FAMILIES: [Family; 4] = [
    Family {
        name: "glm4moe",
        model_type: "glm4_moe",
        modules: &[SHARED_EXPERTS],
        reads: &[
            "expert_count",
            "expert_gating_func",
            "expert_group_count",
            "expert_shared_count",
            "expert_weights_norm",
            "expert_weights_scale",
            "leading_dense_block_count",
            "nextn_predict_layers",
            "rope.dimension_count",
        ],
        needs_range: true,
        config: glm,
        ..PLAIN
    },
    Family {
        name: "minimax-m2",
        model_type: "minimax_m2",
        modules: &[&[
            ("ffn_gate_inp", "block_sparse_moe.gate"),
            ("exp_probs_b.bias", "block_sparse_moe.e_score_correction_bias"),
            ("ffn_gate_exps", "block_sparse_moe.switch_mlp.gate_proj"),
            ("ffn_up_exps", "block_sparse_moe.switch_mlp.up_proj"),
            ("ffn_down_exps", "block_sparse_moe.switch_mlp.down_proj"),
        ]],
        reads: &["expert_count", "expert_gating_func", "rope.dimension_count"],
        needs_range: true,
        config: minimax,
        ..PLAIN
    },
    Family {
        name: "ernie4_5-moe",
        model_type: "ernie4_5_moe",
        modules: &[
            &[("exp_probs_b.bias", "mlp.moe_statics.e_score_correction_bias")],
            SHARED_EXPERTS,
        ],
        reads: &[
            "expert_count",
            "expert_shared_count",
            "interleave_moe_layer_step",
            "leading_dense_block_count",
        ],
        needs_range: true,
        config: ernie,
        ..PLAIN
    },
    Family {
        name: "laguna",
        model_type: "laguna",
        modules: &[&[
            ("attn_gate", "self_attn.g_proj"),
            ("ffn_gate_shexp", "mlp.shared_expert.gate_proj"),
            ("ffn_up_shexp", "mlp.shared_expert.up_proj"),
            ("ffn_down_shexp", "mlp.shared_expert.down_proj"),
            ("exp_probs_b.bias", "mlp.gate.e_score_correction_bias"),
        ]],
        reads: &[
            "attention.sliding_window",
            "attention.sliding_window_pattern",
            "expert_count",
            "expert_gating_func",
            "expert_shared_count",
            "expert_weights_scale",
            "leading_dense_block_count",
            "rope.dimension_count",
            "rope.freq_base_swa",
        ],
        by_layer: &["attention.head_count"],
        needs_range: true,
        config: laguna,
        ..PLAIN
    },
];

fn glm(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    grouped_experts(metadata, config, false)?;
    let head_dim = metadata.head_dim()?;
    let rotated = metadata.number("rope.dimension_count")?.unwrap_or(head_dim / 2);
    config.extend([
        ("partial_rotary_factor".into(), json!(rotated as f64 / head_dim.max(1) as f64)),
        ("use_qk_norm".into(), json!(metadata.has("blk.0.attn_q_norm.weight"))),
    ]);
    Ok(())
}

fn minimax(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    expect_sigmoid(metadata)?;
    let head_dim = metadata.head_dim()?;
    let rotated = metadata.number("rope.dimension_count")?.unwrap_or(head_dim);
    config.insert("rotary_dim".into(), json!(rotated));
    config.insert("use_qk_norm".into(), json!(metadata.has("blk.0.attn_q_norm.weight")));
    copy_numbers(
        metadata,
        config,
        &[
            ("expert_count", "num_local_experts"),
            ("expert_used_count", "num_experts_per_tok"),
            ("expert_feed_forward_length", "intermediate_size"),
        ],
    )
}

fn ernie(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    copy_numbers(
        metadata,
        config,
        &[
            ("expert_count", "moe_num_experts"),
            ("expert_used_count", "moe_k"),
            ("expert_feed_forward_length", "moe_intermediate_size"),
            ("leading_dense_block_count", "moe_layer_start_index"),
            ("interleave_moe_layer_step", "moe_layer_interval"),
        ],
    )?;
    let has_experts = |layer: &u64| metadata.has(&format!("blk.{layer}.ffn_gate_inp.weight"));
    let last = (0..metadata.layers()?).rev().find(has_experts);
    let shared = metadata.number("expert_shared_count")?.unwrap_or(0);
    config.extend([
        ("moe_layer_end_index".into(), json!(last)),
        ("moe_num_shared_experts".into(), json!(shared)),
        ("use_bias".into(), json!(metadata.has("blk.0.attn_q.bias"))),
    ]);
    Ok(())
}

/// Layers with a window rotate all of a head, others a part of it.
fn laguna(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    expect_sigmoid(metadata)?;
    copy_numbers(
        metadata,
        config,
        &[
            ("expert_count", "num_experts"),
            ("expert_used_count", "num_experts_per_tok"),
            ("expert_feed_forward_length", "moe_intermediate_size"),
            ("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
        ],
    )?;
    let layers = metadata.layers()?;
    let window = metadata.number("attention.sliding_window")?.filter(|size| *size > 0);
    let listed = metadata.flags("attention.sliding_window_pattern", layers)?;
    // The first of four sees everything where files do not say.
    let near = listed.unwrap_or_else(|| {
        (0..layers).map(|layer| window.is_some() && layer % 4 != 0).collect::<Vec<_>>()
    });
    let dense = metadata.number("leading_dense_block_count")?.unwrap_or(0);
    let kind = |layer| if layer < dense { "dense" } else { "sparse" };
    let heads = metadata.of_layers("attention.head_count")?;
    let head_dim = metadata.head_dim()?;
    let rotated = metadata.number("rope.dimension_count")?.unwrap_or(head_dim);
    let theta = config.get("rope_theta").cloned().unwrap_or(json!(5e5));
    let near_theta = metadata.float("rope.freq_base_swa")?;
    let near_rotated = metadata.number("rope.dimension_count_swa")?.unwrap_or(head_dim);
    let part = |rotated: u64| rotated as f64 / head_dim.max(1) as f64;
    let mut far = match config.remove("rope_scaling") {
        Some(serde_json::Value::Object(scaling)) => scaling,
        _ => Config::from_iter([("rope_type".into(), json!("default"))]),
    };
    far.insert("rope_theta".into(), theta.clone());
    far.insert("partial_rotary_factor".into(), json!(part(rotated)));
    let first_gate = metadata.header.tensors.get("blk.0.attn_gate.weight");
    let gates = first_gate.and_then(|found| found.shape.first()).copied();
    let is_by_head = gates == heads.first().copied();
    let factor = metadata.float("expert_weights_scale")?.filter(|factor| *factor != 0.0);
    config.extend([
        ("sliding_window".into(), json!(window)),
        ("layer_types".into(), json!(window_types(&near))),
        ("mlp_layer_types".into(), json!((0..layers).map(kind).collect::<Vec<_>>())),
        ("gating".into(), json!(if is_by_head { "per-head" } else { "per-element" })),
        ("moe_routed_scaling_factor".into(), json!(factor.unwrap_or(1.0))),
        (
            "rope_parameters".into(),
            json!({
                "full_attention": far,
                "sliding_attention": {
                    "rope_type": "default",
                    "rope_theta": near_theta.map_or(theta, |theta| json!(theta)),
                    "partial_rotary_factor": part(near_rotated),
                },
            }),
        ),
    ]);
    if heads.len() > 1 {
        config.insert("num_attention_heads_per_layer".into(), json!(heads));
    }
    Ok(())
}
