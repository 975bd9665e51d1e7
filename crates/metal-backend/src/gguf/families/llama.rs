//! Llama, and dense models of its form.

use serde_json::json;

use super::building::{copy_numbers, norms_less_one, pairs, scaling, window_types};
use crate::error::{Error, Result};
use crate::gguf::metadata::{Change, Config, Family, Metadata, PLAIN};

/// Norms of queries and keys that have one weight.
const QUERY_NORM: &str = "attn_q_norm.weight";
const KEY_NORM: &str = "attn_k_norm.weight";

pub(super) const FAMILIES: [Family; 11] = [
    Family {
        name: "llama",
        model_type: "llama",
        // Mixtral has experts.
        modules: &[&[
            ("ffn_gate_inp", "block_sparse_moe.gate"),
            ("ffn_gate_exps", "block_sparse_moe.switch_mlp.gate_proj"),
            ("ffn_up_exps", "block_sparse_moe.switch_mlp.up_proj"),
            ("ffn_down_exps", "block_sparse_moe.switch_mlp.down_proj"),
        ]],
        reads: &["expert_count"],
        change: pairs,
        config: llama,
        ..PLAIN
    },
    Family {
        name: "mistral3",
        model_type: "ministral3",
        reads: &["attention.temperature_scale", "rope.scaling.yarn_log_multiplier"],
        change: pairs,
        config: mistral3,
        ..PLAIN
    },
    Family {
        name: "granite",
        model_type: "granite",
        // Those of Granite 4 have numbers of Mamba layers that they do not have.
        reads: &[
            "attention.scale",
            "embedding_scale",
            "residual_scale",
            "logit_scale",
            "ssm.inner_size",
        ],
        change: pairs,
        config: granite,
        ..PLAIN
    },
    Family { name: "smollm3", model_type: "smollm3", change: pairs, ..PLAIN },
    Family {
        name: "phi3",
        model_type: "phi3",
        // Both projections are one.
        modules: &[&[("ffn_up", "mlp.gate_up_proj")]],
        reads: &[
            "attention.sliding_window",
            "rope.dimension_count",
            "rope.scaling.attn_factor",
            "rope_factors",
        ],
        config: phi3,
        ..PLAIN
    },
    Family {
        name: "olmo2",
        model_type: "olmo2",
        reads: &[
            "attention.sliding_window",
            "attention.sliding_window_pattern",
            "rope.freq_base_swa",
            "rope.scaling.attn_factor",
        ],
        config: olmo,
        ..PLAIN
    },
    Family {
        name: "seed_oss",
        model_type: "seed_oss",
        config: |metadata, config| {
            let has_bias = metadata.has("blk.0.attn_output.bias");
            config.insert("attention_out_bias".into(), json!(has_bias));
            Ok(())
        },
        ..PLAIN
    },
    Family {
        name: "hunyuan-dense",
        model_type: "hunyuan_v1_dense",
        modules: &[&[
            ("attn_q_norm", "self_attn.query_layernorm"),
            ("attn_k_norm", "self_attn.key_layernorm"),
        ]],
        config: |metadata, config| {
            config.insert("use_qk_norm".into(), json!(metadata.has("blk.0.attn_q_norm.weight")));
            Ok(())
        },
        ..PLAIN
    },
    Family {
        name: "exaone4",
        model_type: "exaone4",
        reads: &["attention.sliding_window", "attention.sliding_window_pattern"],
        config: exaone4,
        ..PLAIN
    },
    Family {
        name: "muse-glimmer",
        model_type: "muse_glimmer",
        modules: &[&[
            ("attn_gate", "self_attn.gate_proj"),
            ("ffn_norm", "pre_feedforward_layernorm"),
        ]],
        reads: &[
            "attention.sliding_window",
            "attention.sliding_window_pattern",
            "final_logit_softcapping",
            "logit_scale",
        ],
        needs_range: true,
        constants: &[QUERY_NORM, KEY_NORM],
        change: muse_change,
        config: muse,
        ..PLAIN
    },
    Family {
        name: "cohere2",
        model_type: "cohere2",
        reads: &["attention.layer_norm_epsilon", "attention.sliding_window", "logit_scale"],
        config: cohere2,
        ..PLAIN
    },
];

/// Muse Glimmer: norms of layers are one more, and the factor of queries is the weight of their
/// norm.
fn muse_change(metadata: &Metadata<'_>, tensor: &str) -> Result<Change> {
    const NORMS: [&str; 4] = [
        "attn_norm.weight",
        "post_attention_norm.weight",
        "ffn_norm.weight",
        "post_ffw_norm.weight",
    ];
    match NORMS.contains(&tensor) {
        true => norms_less_one(metadata, tensor),
        false => pairs(metadata, tensor),
    }
}

fn muse(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    windowed(metadata, config, metadata.required("attention.sliding_window")?, 4)?;
    let number = |name| metadata.factors.get(name).and_then(|values| values.first()).copied();
    if number(KEY_NORM) != Some(1.0) {
        return Err(Error::model(format!("`blk.0.{KEY_NORM}` is not 1, which alone works")));
    }
    let theta = config.get("rope_theta").cloned().unwrap_or(json!(5e5));
    let types = config.get("layer_types").and_then(|types| types.as_array()).cloned();
    let of_layer = |kind: &serde_json::Value| match kind.as_str() {
        Some("sliding_attention") => theta.clone(),
        _ => json!(0),
    };
    let thetas: Vec<_> = types.iter().flatten().map(of_layer).collect();
    config.extend([
        ("layer_rope_theta".into(), json!(thetas)),
        ("qk_scale_factor".into(), json!(number(QUERY_NORM))),
        ("output_multiplier".into(), json!(metadata.float("logit_scale")?)),
        ("final_logit_softcapping".into(), json!(metadata.float("final_logit_softcapping")?)),
    ]);
    Ok(())
}

fn llama(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    if metadata.number("expert_count")?.is_none_or(|count| count == 0) {
        return Ok(());
    }
    let experts =
        [("expert_count", "num_local_experts"), ("expert_used_count", "num_experts_per_tok")];
    copy_numbers(metadata, config, &experts)?;
    config.insert("model_type".into(), json!("mixtral"));
    Ok(())
}

/// Ministral 3, whose queries grow with their position.
fn mistral3(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    let beta = metadata.float("attention.temperature_scale")?;
    let all_dim = metadata.float("rope.scaling.yarn_log_multiplier")?;
    if let Some(scaling) = scaling(config) {
        scaling.extend(beta.map(|beta| ("llama_4_scaling_beta".into(), json!(beta))));
        // The one for the rotations is not in files, and is the other one in releases.
        let both = all_dim.map(|all_dim| {
            ["mscale", "mscale_all_dim"].map(|key| (key.to_owned(), json!(all_dim)))
        });
        scaling.extend(both.into_iter().flatten());
    }
    Ok(())
}

fn granite(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    const POSITIONS: &str = "rope.scaling.finetuned";
    if metadata.flag(POSITIONS)? == Some(false) {
        return Err(Error::model(format!(
            "has `{}`, false: without positions it works as a folder of safetensors",
            metadata.key(POSITIONS)
        )));
    }
    granite_factors(metadata, config)
}

/// The factors of Granite's models.
///
/// # Errors
/// A value that is no number.
pub(super) fn granite_factors(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    let usual = (metadata.head_dim()? as f64).sqrt().recip();
    for (theirs, key, usual) in [
        ("attention.scale", "attention_multiplier", usual),
        ("embedding_scale", "embedding_multiplier", 1.0),
        ("residual_scale", "residual_multiplier", 1.0),
        ("logit_scale", "logits_scaling", 1.0),
    ] {
        config.insert(key.into(), json!(metadata.float(theirs)?.unwrap_or(usual)));
    }
    Ok(())
}

fn phi3(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    let head_dim = metadata.head_dim()?;
    let rotated = metadata.number("rope.dimension_count")?.unwrap_or(head_dim);
    config.insert("partial_rotary_factor".into(), json!(rotated as f64 / head_dim as f64));
    let window = metadata.number("attention.sliding_window")?.filter(|window| *window > 0);
    config.insert("sliding_window".into(), json!(window));
    if let Some(original) = metadata.number("rope.scaling.original_context_length")? {
        config.insert("original_max_position_embeddings".into(), json!(original));
    }
    Ok(())
}

/// OLMo 2, or OLMo 3, which has layers with a window.
fn olmo(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    let Some(window) = metadata.number("attention.sliding_window")?.filter(|size| *size > 0) else {
        return Ok(());
    };
    let base = metadata.float("rope.freq_base_swa")?;
    if base.is_some_and(|base| config.get("rope_theta") != Some(&json!(base))) {
        return Err(Error::model(format!(
            "`{}` is not `{}`, which alone works",
            metadata.key("rope.freq_base_swa"),
            metadata.key("rope.freq_base")
        )));
    }
    // The key of the first converters.
    let factor = metadata.float("rope.scaling.attn_factor")?;
    if let (Some(scaling), Some(factor)) = (scaling(config), factor) {
        scaling.entry("attention_factor").or_insert(json!(factor));
    }
    windowed(metadata, config, window, 4)?;
    config.insert("model_type".into(), json!("olmo3"));
    Ok(())
}

fn exaone4(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    match metadata.number("attention.sliding_window")?.filter(|size| *size > 0) {
        // The small ones have none.
        None => config.extend([
            ("sliding_window".into(), json!(null)),
            ("sliding_window_pattern".into(), json!(null)),
        ]),
        Some(window) => windowed(metadata, config, window, 4)?,
    }
    Ok(())
}

fn cohere2(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    let epsilon = metadata.float("attention.layer_norm_epsilon")?.unwrap_or(1e-5);
    config.insert("layer_norm_eps".into(), json!(epsilon));
    config.insert("logit_scale".into(), json!(metadata.float("logit_scale")?));
    windowed(metadata, config, metadata.required("attention.sliding_window")?, 4)?;
    Ok(())
}

/// Layers with a window beside ones without: those that the file lists, else every one with the
/// number `turn`.
///
/// # Errors
/// A value that is no list of flags.
pub(super) fn windowed(
    metadata: &Metadata<'_>,
    config: &mut Config,
    window: u64,
    turn: u64,
) -> Result<()> {
    let layers = metadata.layers()?;
    let listed = metadata.flags("attention.sliding_window_pattern", layers)?;
    let flags =
        listed.unwrap_or_else(|| (1..=layers).map(|layer| !layer.is_multiple_of(turn)).collect());
    config.insert("sliding_window".into(), json!(window));
    config.insert("layer_types".into(), json!(window_types(&flags)));
    Ok(())
}
