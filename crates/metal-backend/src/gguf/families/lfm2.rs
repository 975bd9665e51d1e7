//! LFM 2: short convolutions, with attention in some layers.

use serde_json::json;

use super::building::{copy_numbers, expect_sigmoid};
use crate::error::Result;
use crate::gguf::metadata::{Config, Family, Metadata, PLAIN};

const MODULES: &[(&str, &str)] = &[
    // It is behind the layers, whatever it is called.
    ("token_embd_norm", "model.embedding_norm"),
    ("output_norm", "model.embedding_norm"),
    ("attn_norm", "operator_norm"),
    ("attn_output", "self_attn.out_proj"),
    ("attn_q_norm", "self_attn.q_layernorm"),
    ("attn_k_norm", "self_attn.k_layernorm"),
    ("ffn_norm", "ffn_norm"),
    ("ffn_gate", "feed_forward.w1"),
    ("ffn_down", "feed_forward.w2"),
    ("ffn_up", "feed_forward.w3"),
    ("ffn_gate_inp", "feed_forward.gate"),
    ("ffn_gate_exps", "feed_forward.switch_mlp.gate_proj"),
    ("ffn_up_exps", "feed_forward.switch_mlp.up_proj"),
    ("ffn_down_exps", "feed_forward.switch_mlp.down_proj"),
    ("exp_probs_b.bias", "feed_forward.expert_bias"),
    ("shortconv.conv", "conv.conv"),
    ("shortconv.in_proj", "conv.in_proj"),
    ("shortconv.out_proj", "conv.out_proj"),
];

pub(super) const FAMILIES: [Family; 2] = [
    Family {
        name: "lfm2",
        model_type: "lfm2",
        modules: &[MODULES],
        by_layer: &["attention.head_count_kv"],
        config: hybrid,
        ..PLAIN
    },
    Family {
        name: "lfm2moe",
        model_type: "lfm2_moe",
        modules: &[MODULES],
        reads: &["expert_count", "expert_gating_func", "leading_dense_block_count"],
        by_layer: &["attention.head_count_kv"],
        config: mixture,
        ..PLAIN
    },
];

fn hybrid(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    let heads = metadata.of_layers("attention.head_count_kv")?;
    let with_attention: Vec<usize> = (0..heads.len()).filter(|layer| heads[*layer] > 0).collect();
    let epsilon = metadata.float("attention.layer_norm_rms_epsilon")?.unwrap_or(1e-5);
    config.extend([
        ("full_attn_idxs".into(), json!(with_attention)),
        ("conv_L_cache".into(), json!(metadata.required("shortconv.l_cache")?)),
        ("conv_bias".into(), json!(false)),
        ("block_auto_adjust_ff_dim".into(), json!(false)),
        ("norm_eps".into(), json!(epsilon)),
    ]);
    Ok(())
}

fn mixture(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    hybrid(metadata, config)?;
    expect_sigmoid(metadata)?;
    let is_corrected = metadata.some_layer_has("exp_probs_b.bias");
    config.insert("use_expert_bias".into(), json!(is_corrected));
    config.insert("norm_topk_prob".into(), json!(true));
    copy_numbers(
        metadata,
        config,
        &[
            ("expert_count", "num_experts"),
            ("expert_used_count", "num_experts_per_tok"),
            ("expert_feed_forward_length", "moe_intermediate_size"),
            ("leading_dense_block_count", "num_dense_layers"),
        ],
    )
}
