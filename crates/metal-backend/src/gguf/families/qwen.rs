//! Qwen's models, from 2 on.

use serde_json::json;

use super::building::{copy_numbers, decays};
use crate::error::{Error, Result};
use crate::gguf::metadata::{Change, Config, Family, Metadata, PLAIN, Rows, Tiles};

/// Gated delta nets, and the expert that all positions pass.
const HYBRID: &[(&str, &str)] = &[
    ("ssm_in", "linear_attn.in_proj_qkvz"),
    ("ssm_ba", "linear_attn.in_proj_ba"),
    ("attn_qkv", "linear_attn.in_proj_qkv"),
    ("attn_gate", "linear_attn.in_proj_z"),
    ("ssm_alpha", "linear_attn.in_proj_a"),
    ("ssm_beta", "linear_attn.in_proj_b"),
    ("ssm_a", "linear_attn.A_log"),
    ("ssm_dt.bias", "linear_attn.dt_bias"),
    ("ssm_conv1d", "linear_attn.conv1d"),
    ("ssm_norm", "linear_attn.norm"),
    ("ssm_out", "linear_attn.out_proj"),
    ("ffn_gate_shexp", "mlp.shared_expert.gate_proj"),
    ("ffn_up_shexp", "mlp.shared_expert.up_proj"),
    ("ffn_down_shexp", "mlp.shared_expert.down_proj"),
    ("ffn_gate_inp_shexp", "mlp.shared_expert_gate"),
];

const READS: &[&str] = &[
    "expert_count",
    "nextn_predict_layers",
    "rope.dimension_count",
    "rope.dimension_sections",
    "ssm.inner_size",
];

pub(super) const FAMILIES: [Family; 10] = [
    Family {
        name: "qwen2",
        model_type: "qwen2",
        config: |_, config| {
            // It always has those of queries, keys and values.
            config.insert("attention_bias".into(), json!(false));
            Ok(())
        },
        ..PLAIN
    },
    Family { name: "qwen3", model_type: "qwen3", ..PLAIN },
    Family {
        name: "qwen3moe",
        model_type: "qwen3_moe",
        reads: &["expert_count"],
        config: experts,
        ..PLAIN
    },
    Family {
        name: "qwen2moe",
        model_type: "qwen2_moe",
        modules: &[HYBRID],
        reads: &["expert_count", "expert_weights_norm"],
        config: |metadata, config| {
            shared_experts(metadata, config)?;
            let normalises = metadata.flag("expert_weights_norm")?.unwrap_or(false);
            config.insert("norm_topk_prob".into(), json!(normalises));
            config.insert("attention_bias".into(), json!(false));
            Ok(())
        },
        ..PLAIN
    },
    // Their language models: files have no more of them.
    Family {
        name: "qwen2vl",
        model_type: "qwen2",
        reads: &["rope.dimension_sections"],
        config: |_, config| {
            config.insert("attention_bias".into(), json!(false));
            Ok(())
        },
        ..PLAIN
    },
    Family { name: "qwen3vl", model_type: "qwen3", reads: &["rope.dimension_sections"], ..PLAIN },
    Family {
        name: "qwen3vlmoe",
        model_type: "qwen3_moe",
        reads: &["expert_count", "rope.dimension_sections"],
        config: experts,
        ..PLAIN
    },
    Family {
        name: "qwen3next",
        model_type: "qwen3_next",
        modules: &[HYBRID],
        reads: READS,
        // Files of the first converters have rows of one head of keys behind the other everywhere.
        splits: |metadata| match metadata.some_layer_has("ssm_in.weight") {
            true => &[],
            false => &[("ssm_ba.weight", &["linear_attn.in_proj_b", "linear_attn.in_proj_a"])],
        },
        needs_range: true,
        change: paired_heads,
        config: hybrid,
        ..PLAIN
    },
    Family {
        name: "qwen35",
        model_type: "qwen3_5_text",
        modules: &[HYBRID],
        reads: READS,
        needs_range: true,
        change: tiled,
        config: hybrid,
        ..PLAIN
    },
    Family {
        name: "qwen35moe",
        model_type: "qwen3_5_moe_text",
        modules: &[HYBRID],
        reads: READS,
        needs_range: true,
        change: tiled,
        config: hybrid,
        ..PLAIN
    },
];

fn experts(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    config.insert("norm_topk_prob".into(), json!(true));
    copy_numbers(
        metadata,
        config,
        &[
            ("expert_count", "num_experts"),
            ("expert_used_count", "num_experts_per_tok"),
            ("expert_feed_forward_length", "moe_intermediate_size"),
        ],
    )
}

/// Experts beside one that all positions pass.
fn shared_experts(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    experts(metadata, config)?;
    let shared = ("expert_shared_feed_forward_length", "shared_expert_intermediate_size");
    copy_numbers(metadata, config, &[shared])
}

/// Gated delta nets beside attention with a gated output.
fn hybrid(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    copy_numbers(
        metadata,
        config,
        &[
            ("ssm.group_count", "linear_num_key_heads"),
            ("ssm.time_step_rank", "linear_num_value_heads"),
            ("ssm.state_size", "linear_key_head_dim"),
            ("ssm.conv_kernel", "linear_conv_kernel_dim"),
        ],
    )?;
    let heads = metadata.required("ssm.time_step_rank")?;
    let values = metadata.required("ssm.inner_size")? / heads.max(1);
    config.insert("linear_value_head_dim".into(), json!(values));
    let layers = metadata.layers()?;
    let interval = metadata.number("full_attention_interval")?.unwrap_or(4).max(1);
    let recurrent = metadata.flags("attention.recurrent_layers", layers)?;
    let recurrent = recurrent
        .unwrap_or_else(|| (1..=layers).map(|layer| !layer.is_multiple_of(interval)).collect());
    let kind = |is: &bool| if *is { "linear_attention" } else { "full_attention" };
    config.insert("layer_types".into(), json!(recurrent.iter().map(kind).collect::<Vec<_>>()));
    let head_dim = metadata.head_dim()?;
    let rotated = metadata.number("rope.dimension_count")?.unwrap_or(head_dim / 4);
    config.insert("partial_rotary_factor".into(), json!(rotated as f64 / head_dim.max(1) as f64));
    if metadata.number("expert_count")?.is_some_and(|count| count > 0) {
        shared_experts(metadata, config)?;
    }
    Ok(())
}

/// Heads of values that belong to each head of keys.
///
/// # Errors
/// Numbers that are missing or do not fit.
fn heads_of_group(metadata: &Metadata<'_>) -> Result<u64> {
    const HEADS: &str = "ssm.time_step_rank";
    const GROUPS: &str = "ssm.group_count";
    let (heads, groups) = (metadata.required(HEADS)?, metadata.required(GROUPS)?);
    if heads == 0 || groups == 0 || heads % groups != 0 || heads > i32::MAX as u64 {
        return Err(Error::model(format!(
            "`{}` is {heads} and `{}` {groups}, which do not fit",
            metadata.key(HEADS),
            metadata.key(GROUPS)
        )));
    }
    Ok(heads / groups)
}

/// Changes of Qwen 3 Next: decays, and two projections that are stored as one.
/// Of each head of keys, the rows of one projection stand before those of the other.
fn paired_heads(metadata: &Metadata<'_>, tensor: &str) -> Result<Change> {
    let size = heads_of_group(metadata)?;
    let rows = match tensor {
        "linear_attn.in_proj_b" => Rows::Picked { first: 0, size, of: 2 * size },
        "linear_attn.in_proj_a" => Rows::Picked { first: size, size, of: 2 * size },
        _ => Rows::InOrder,
    };
    Ok(Change { rows, ..decays(tensor) })
}

/// Changes of Qwen 3.5: decays, and heads of values in another order.
fn tiled(metadata: &Metadata<'_>, tensor: &str) -> Result<Change> {
    let groups = metadata.required("ssm.group_count")?;
    let tiles = Tiles { groups, heads: heads_of_group(metadata)? };
    let keys = groups.saturating_mul(2).saturating_mul(metadata.required("ssm.state_size")?);
    let change = decays(tensor);
    Ok(match tensor {
        "attn_qkv.weight" | "ssm_conv1d.weight" => {
            Change { rows: Rows::Tiled(keys, tiles), ..change }
        }
        "attn_gate.weight" | "ssm_alpha.weight" | "ssm_beta.weight" | "ssm_a" | "ssm_dt.bias" => {
            Change { rows: Rows::Tiled(0, tiles), ..change }
        }
        "ssm_out.weight" => Change { columns: Some(tiles), ..change },
        _ => change,
    })
}
