//! Gemma 2, 3 and 4.

use serde_json::json;

use super::building::{copy_numbers, norms_less_one};
use super::llama::windowed;
use crate::error::{Error, Result};
use crate::gguf::metadata::{Change, Config, Family, Metadata, PLAIN, Rows, Splits};

/// Layers of the largest Gemma 2 and Gemma 3, whose scores have another scale than the root of a
/// head's size.
const LARGEST: [u64; 2] = [46, 62];

/// Norms lie before and behind both halves of a block.
const MODULES: &[(&str, &str)] = &[("ffn_norm", "pre_feedforward_layernorm")];

/// From the first residual stream to the others, and back.
const STREAMS: [&[&str]; 2] = [
    &["model.altup_projections.0", "model.altup_projections.1", "model.altup_projections.2"],
    &[
        "model.altup_unembed_projections.0",
        "model.altup_unembed_projections.1",
        "model.altup_unembed_projections.2",
    ],
];
/// Of three streams, and of four.
const OF_THREE: Splits = &[
    ("altup_proj.weight", STREAMS[0].split_at(2).0),
    ("altup_unembd_proj.weight", STREAMS[1].split_at(2).0),
];
const OF_FOUR: Splits =
    &[("altup_proj.weight", STREAMS[0]), ("altup_unembd_proj.weight", STREAMS[1])];

pub(super) const FAMILIES: [Family; 4] = [
    Family {
        name: "gemma2",
        model_type: "gemma2",
        modules: &[MODULES],
        reads: &["attention.sliding_window", "attn_logit_softcapping", "final_logit_softcapping"],
        needs_range: true,
        change: norms_less_one,
        config: |metadata, config| {
            let softcap = metadata.float("attn_logit_softcapping")?;
            config.insert("attn_logit_softcapping".into(), json!(softcap));
            early(metadata, config)
        },
        ..PLAIN
    },
    Family {
        name: "gemma3",
        model_type: "gemma3_text",
        modules: &[MODULES],
        reads: &["attention.sliding_window", "final_logit_softcapping", "rope.freq_base_swa"],
        needs_range: true,
        change: norms_less_one,
        config: |metadata, config| {
            let local = metadata.float("rope.freq_base_swa")?.unwrap_or(10_000.0);
            config.insert("sliding_window_pattern".into(), json!(6));
            config.insert("rope_local_base_freq".into(), json!(local));
            let far = metadata.float("rope.freq_base")?.unwrap_or(1e6);
            config.insert("rope_theta".into(), json!(far));
            early(metadata, config)
        },
        ..PLAIN
    },
    Family {
        name: "gemma3n",
        model_type: "gemma3n_text",
        modules: &[&[
            ("ffn_norm", "pre_feedforward_layernorm"),
            ("per_layer_token_embd", "model.embed_tokens_per_layer"),
            ("per_layer_model_proj", "model.per_layer_model_projection"),
            ("per_layer_proj_norm", "model.per_layer_projection_norm"),
            ("inp_gate", "per_layer_input_gate"),
            ("proj", "per_layer_projection"),
            ("post_norm", "post_per_layer_input_norm"),
            ("altup_correct_coef", "altup.correction_coefs"),
            ("altup_correct_scale.weight", "altup.correct_output_scale"),
            ("altup_predict_coef", "altup.prediction_coefs"),
            ("altup_router", "altup.modality_router"),
            ("altup_router_norm", "altup.router_norm"),
            ("laurel_l", "laurel.linear_left"),
            ("laurel_r", "laurel.linear_right"),
            ("laurel_post_norm", "laurel.post_laurel_norm"),
        ]],
        reads: &[
            "activation_sparsity_scale",
            "altup.num_inputs",
            "attention.sliding_window",
            "attention.sliding_window_pattern",
            "attention.shared_kv_layers",
            "embedding_length_per_layer_input",
            "final_logit_softcapping",
            "rope.freq_base_swa",
        ],
        by_layer: &["feed_forward_length"],
        needs_range: true,
        splits: |metadata| match metadata.number("altup.num_inputs") {
            Ok(Some(3)) => OF_THREE,
            _ => OF_FOUR,
        },
        change: of_stream,
        config: gemma3n,
        ..PLAIN
    },
    Family {
        name: "gemma4",
        model_type: "gemma4_text",
        modules: &[&[
            ("ffn_norm", "pre_feedforward_layernorm"),
            ("layer_output_scale.weight", "layer_scalar"),
            ("per_layer_token_embd", "model.embed_tokens_per_layer"),
            ("per_layer_model_proj", "model.per_layer_model_projection"),
            ("per_layer_proj_norm", "model.per_layer_projection_norm"),
            ("inp_gate", "per_layer_input_gate"),
            ("proj", "per_layer_projection"),
            ("post_norm", "post_per_layer_input_norm"),
            ("pre_ffw_norm_2", "pre_feedforward_layernorm_2"),
            ("post_ffw_norm_1", "post_feedforward_layernorm_1"),
            ("post_ffw_norm_2", "post_feedforward_layernorm_2"),
            ("ffn_gate_inp.weight", "router.proj.weight"),
            ("ffn_gate_inp.scale", "router.scale"),
            ("ffn_down_exps.scale", "router.per_expert_scale"),
            ("ffn_gate_exps", "experts.switch_glu.gate_proj"),
            ("ffn_up_exps", "experts.switch_glu.up_proj"),
            ("ffn_gate_up_exps", "experts.switch_glu.gate_up_proj"),
            ("ffn_down_exps", "experts.switch_glu.down_proj"),
        ]],
        reads: &[
            "attention.sliding_window",
            "attention.sliding_window_pattern",
            "attention.key_length_swa",
            "attention.value_length_swa",
            "attention.shared_kv_layers",
            "embedding_length_per_layer_input",
            "final_logit_softcapping",
            "expert_count",
            "rope.dimension_count",
            "rope.freq_base_swa",
            "rope_freqs",
        ],
        by_layer: &["attention.head_count_kv", "feed_forward_length"],
        needs_range: true,
        config: gemma4,
        ..PLAIN
    },
];

fn early(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    let head_dim = metadata.head_dim()?;
    let heads = metadata.required("attention.head_count")?;
    let whole = metadata.required("embedding_length")? / heads.max(1);
    let is_largest = LARGEST.contains(&metadata.required("block_count")?);
    let softcap = metadata.float("final_logit_softcapping")?;
    config.extend([
        ("query_pre_attn_scalar".into(), json!(if is_largest { whole } else { head_dim })),
        ("sliding_window".into(), json!(metadata.required("attention.sliding_window")?)),
        ("hidden_activation".into(), json!("gelu_pytorch_tanh")),
        ("final_logit_softcapping".into(), json!(softcap)),
    ]);
    config.remove("hidden_act");
    Ok(())
}

/// The layers without a window have larger heads, and the last layers no keys of their own.
fn gemma4(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    let layers = metadata.layers()?;
    windowed(metadata, config, metadata.required("attention.sliding_window")?, 6)?;
    let is_near = metadata.flags("attention.sliding_window_pattern", layers)?;
    let is_near = is_near.ok_or_else(|| {
        Error::model(format!("has no `{}`", metadata.key("attention.sliding_window_pattern")))
    })?;
    let by_kind = |key: &str, near: bool| -> Result<Option<u64>> {
        let all = metadata.of_layers(key)?;
        Ok(match all.as_slice() {
            [one] => Some(*one),
            all => all.iter().zip(&is_near).find(|(_, is)| **is == near).map(|(one, _)| *one),
        })
    };
    let heads = |near| by_kind("attention.head_count_kv", near);
    let (near, far) = (heads(true)?, heads(false)?);
    let far_layer = is_near.iter().position(|is_near| !is_near);
    let has_values = |layer: usize| metadata.has(&format!("blk.{layer}.attn_v.weight"));
    let keys_are_values = far_layer.is_some_and(|layer| !has_values(layer));
    let widths = metadata.of_layers("feed_forward_length")?;
    let inner = widths.first().copied();
    let is_double = widths.last() > widths.first();
    let softcap = metadata.float("final_logit_softcapping")?;
    let near_theta = metadata.float("rope.freq_base_swa")?.unwrap_or(1e4);
    let far_theta = metadata.float("rope.freq_base")?.unwrap_or(1e6);
    let part = far_part(metadata)?;
    for (key, size) in [
        ("rope.dimension_count", "attention.key_length"),
        ("rope.dimension_count_swa", "attention.key_length_swa"),
        ("attention.value_length", "attention.key_length"),
        ("attention.value_length_swa", "attention.key_length_swa"),
    ] {
        let (found, expected) = (metadata.number(key)?, metadata.required(size)?);
        if found.is_some_and(|found| found != expected) {
            let [key, size] = [key, size].map(|key| metadata.key(key));
            return Err(Error::model(format!("`{key}` is not `{size}`, which alone works")));
        }
    }
    let inputs = metadata.number("embedding_length_per_layer_input")?.unwrap_or(0);
    let borrowing = metadata.number("attention.shared_kv_layers")?.unwrap_or(0);
    config.extend([
        ("head_dim".into(), json!(metadata.required("attention.key_length_swa")?)),
        ("global_head_dim".into(), json!(metadata.required("attention.key_length")?)),
        ("num_key_value_heads".into(), json!(near)),
        ("attention_k_eq_v".into(), json!(keys_are_values)),
        ("intermediate_size".into(), json!(inner)),
        ("use_double_wide_mlp".into(), json!(is_double)),
        ("num_kv_shared_layers".into(), json!(borrowing)),
        ("hidden_size_per_layer_input".into(), json!(inputs)),
        ("hidden_activation".into(), json!("gelu_pytorch_tanh")),
        ("final_logit_softcapping".into(), json!(softcap)),
        (
            "rope_parameters".into(),
            json!({
                "sliding_attention": {"rope_type": "default", "rope_theta": near_theta},
                "full_attention": {
                    "rope_type": "proportional", "rope_theta": far_theta,
                    "partial_rotary_factor": part,
                },
            }),
        ),
    ]);
    if keys_are_values {
        config.insert("num_global_key_value_heads".into(), json!(far));
    }
    config.remove("hidden_act");
    config.remove("rope_theta");
    let rows = metadata.header.tensors.get("per_layer_token_embd.weight");
    if let Some(rows) = rows.and_then(|found| found.shape.first()) {
        config.insert("vocab_size_per_layer_input".into(), json!(rows));
    }
    if metadata.number("expert_count")?.is_some_and(|count| count > 0) {
        config.insert("enable_moe_block".into(), json!(true));
        let keys = [
            ("expert_count", "num_experts"),
            ("expert_used_count", "top_k_experts"),
            ("expert_feed_forward_length", "moe_intermediate_size"),
        ];
        copy_numbers(metadata, config, &keys)?;
    }
    Ok(())
}

/// The part of a head that layers without a window rotate: the first pairs have the factor 1, the
/// others one that stops them.
///
/// # Errors
/// Other factors.
fn far_part(metadata: &Metadata<'_>) -> Result<f64> {
    const NAME: &str = "rope_freqs.weight";
    const STOPS: f32 = 1e20;
    let Some(factors) = metadata.factors.get(NAME) else { return Ok(0.25) };
    let turning = factors.iter().take_while(|factor| **factor == 1.0).count();
    if factors.is_empty() || factors[turning..].iter().any(|factor| *factor < STOPS) {
        return Err(Error::model(format!("tensor `{NAME}` has other factors than Gemma 4")));
    }
    Ok(turning as f64 / factors.len() as f64)
}

/// The projections of all residual streams are one tensor.
fn of_stream(metadata: &Metadata<'_>, tensor: &str) -> Result<Change> {
    let at = STREAMS.iter().find_map(|all| all.iter().position(|one| *one == tensor));
    let Some(first) = at else { return Ok(Change::default()) };
    let of = match metadata.required("altup.num_inputs")? {
        streams @ (3 | 4) => streams - 1,
        other => {
            let key = metadata.key("altup.num_inputs");
            return Err(Error::model(format!("`{key}` is {other}; 3 and 4 work")));
        }
    };
    let rows = Rows::Picked { first: first as u64, size: 1, of };
    Ok(Change { rows, ..Change::default() })
}

fn gemma3n(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    // Of the normal distribution, what 0.95 lies below; releases have no other.
    const OF_95: f64 = 1.644_853_6;
    let layers = metadata.layers()?;
    windowed(metadata, config, metadata.required("attention.sliding_window")?, 5)?;
    let deviations = metadata.floats("activation_sparsity_scale")?.unwrap_or_default();
    let part = |deviations: &f64| match *deviations {
        f64::NEG_INFINITY => Ok(0.0),
        found if (found - OF_95).abs() < 1e-4 => Ok(0.95),
        other => Err(Error::model(format!(
            "`{}` has {other}, which is not known",
            metadata.key("activation_sparsity_scale")
        ))),
    };
    let mut parts = deviations.iter().map(part).collect::<Result<Vec<f64>>>()?;
    parts.resize(layers as usize, 0.0);
    let shape =
        |name: &str| metadata.header.tensors.get(name).and_then(|found| found.shape.first());
    let widths = metadata.of_layers("feed_forward_length")?;
    let near_theta = metadata.float("rope.freq_base_swa")?.unwrap_or(1e4);
    config.extend([
        ("intermediate_size".into(), json!(metadata.largest("feed_forward_length")?)),
        ("activation_sparsity_pattern".into(), json!(parts)),
        ("rope_local_base_freq".into(), json!(near_theta)),
        ("hidden_activation".into(), json!("gelu_pytorch_tanh")),
        ("final_logit_softcapping".into(), json!(metadata.float("final_logit_softcapping")?)),
        ("vocab_size_per_layer_input".into(), json!(shape("per_layer_token_embd.weight"))),
        ("laurel_rank".into(), json!(shape("blk.0.laurel_l.weight"))),
        ("altup_active_idx".into(), json!(metadata.number("altup.active_idx")?.unwrap_or(0))),
    ]);
    if widths.len() > 1 {
        config.insert("intermediate_size".into(), json!(widths));
    }
    copy_numbers(
        metadata,
        config,
        &[
            ("altup.num_inputs", "altup_num_inputs"),
            ("attention.shared_kv_layers", "num_kv_shared_layers"),
            ("embedding_length_per_layer_input", "hidden_size_per_layer_input"),
        ],
    )?;
    config.remove("hidden_act");
    Ok(())
}
