//! Latent attention: DeepSeek V2 and V3, GLM 4.7 Flash, and Kimi Linear, which has it beside gated
//! delta nets.

use serde_json::json;

use super::building::{
    SHARED_EXPERTS, copy_numbers, decays, grouped_experts, numbers_of_experts, scaling,
};
use crate::error::Result;
use crate::gguf::metadata::{Config, Family, Metadata, Modules, PLAIN};

/// Keys and values of low rank.
const LATENT: Modules = &[
    ("attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"),
    ("attn_kv_a_norm", "self_attn.kv_a_layernorm"),
    ("attn_kv_b", "self_attn.kv_b_proj"),
    ("attn_k_b", "self_attn.embed_q"),
    ("attn_v_b", "self_attn.unembed_out"),
];

pub(super) const FAMILIES: [Family; 2] = [
    Family {
        name: "deepseek2",
        model_type: "deepseek_v3",
        modules: &[
            &[
                ("attn_q_a", "self_attn.q_a_proj"),
                ("attn_q_a_norm", "self_attn.q_a_layernorm"),
                ("attn_q_b", "self_attn.q_b_proj"),
            ],
            LATENT,
            SHARED_EXPERTS,
        ],
        reads: &[
            "attention.value_length",
            "expert_count",
            "expert_gating_func",
            "expert_group_count",
            "expert_shared_count",
            "expert_weights_norm",
            "expert_weights_scale",
            "leading_dense_block_count",
            "nextn_predict_layers",
            "rope.dimension_count",
            "rope.scaling.yarn_log_multiplier",
        ],
        needs_range: true,
        config: deepseek,
        ..PLAIN
    },
    Family {
        name: "kimi-linear",
        model_type: "kimi_linear",
        modules: &[
            &[
                ("ssm_conv1d_q", "self_attn.q_conv1d"),
                ("ssm_conv1d_k", "self_attn.k_conv1d"),
                ("ssm_conv1d_v", "self_attn.v_conv1d"),
                ("ssm_beta", "self_attn.b_proj"),
                ("ssm_f_a", "self_attn.f_a_proj"),
                ("ssm_f_b", "self_attn.f_b_proj"),
                ("ssm_g_a", "self_attn.g_a_proj"),
                ("ssm_g_b", "self_attn.g_b_proj"),
                ("ssm_a", "self_attn.A_log"),
                ("ssm_dt.bias", "self_attn.dt_bias"),
                ("ssm_norm", "self_attn.o_norm"),
            ],
            LATENT,
            SHARED_EXPERTS,
        ],
        reads: &[
            "attention.value_length",
            "expert_count",
            "expert_gating_func",
            "expert_group_count",
            "expert_shared_count",
            "expert_weights_norm",
            "expert_weights_scale",
            "kda.head_dim",
            "leading_dense_block_count",
            "rope.dimension_count",
        ],
        by_layer: &["attention.head_count_kv"],
        needs_range: true,
        change: |_, tensor| Ok(decays(tensor)),
        config: kimi,
        ..PLAIN
    },
];

fn deepseek(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    const SOFTMAX: u64 = 1;
    if metadata.number("expert_gating_func")? == Some(SOFTMAX) {
        // DeepSeek V2, whose groups are as good as their best expert.
        let groups = metadata.number("expert_group_count")?.unwrap_or(1);
        let method = if groups > 1 { "group_limited_greedy" } else { "greedy" };
        config.insert("model_type".into(), json!("deepseek_v2"));
        config.insert("topk_method".into(), json!(method));
        numbers_of_experts(metadata, config, false)?;
    } else {
        grouped_experts(metadata, config, false)?;
    }
    latent(metadata, config)?;
    let rank = metadata.number("attention.q_lora_rank")?.filter(|rank| *rank > 0);
    config.insert("q_lora_rank".into(), json!(rank));
    if let Some(multiplier) = metadata.float("rope.scaling.yarn_log_multiplier")?
        && let Some(scaling) = scaling(config)
    {
        // Files have a tenth of it. The one for the rotations is not in files, and is the other one
        // in releases.
        let all_dim = multiplier * 10.0;
        scaling.insert("mscale".into(), json!(all_dim));
        scaling.insert("mscale_all_dim".into(), json!(all_dim));
    }
    Ok(())
}

/// Latent attention.
fn latent(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    copy_numbers(
        metadata,
        config,
        &[
            ("attention.kv_lora_rank", "kv_lora_rank"),
            ("rope.dimension_count", "qk_rope_head_dim"),
            // Each head has its own keys, whatever files say.
            ("attention.head_count", "num_key_value_heads"),
        ],
    )?;
    // Files of the first converters have the sizes of whole heads alone.
    let size = |own: &str, whole: &str| match metadata.number(own)? {
        Some(size) => Ok(size),
        None => metadata.required(whole),
    };
    let keys = size("attention.key_length_mla", "attention.key_length")?;
    let values = size("attention.value_length_mla", "attention.value_length")?;
    config.insert("v_head_dim".into(), json!(values));
    let rotated = metadata.required("rope.dimension_count")?;
    config.insert("qk_nope_head_dim".into(), json!(keys.saturating_sub(rotated)));
    config.remove("head_dim");
    Ok(())
}

fn kimi(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    grouped_experts(metadata, config, true)?;
    latent(metadata, config)?;
    let heads = metadata.required("attention.head_count")?;
    let attention = metadata.of_layers("attention.head_count_kv")?;
    let layers = |has: bool| {
        let of = attention.iter().enumerate().filter(move |(_, heads)| (**heads > 0) == has);
        of.map(|(layer, _)| layer + 1).collect::<Vec<_>>()
    };
    config.extend([
        ("q_lora_rank".into(), json!(null)),
        (
            "linear_attn_config".into(),
            json!({
                "num_heads": heads,
                "head_dim": metadata.required("kda.head_dim")?,
                "short_conv_kernel_size": metadata.required("ssm.conv_kernel")?,
                "full_attn_layers": layers(true),
                "kda_layers": layers(false),
            }),
        ),
    ]);
    Ok(())
}
