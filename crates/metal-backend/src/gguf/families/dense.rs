//! Dense models of other forms than Llama's: with layer norms, networks without a gate, or parts of
//! heads rotated.

use serde_json::json;

use super::building::{norms_less_one, pairs};
use crate::error::{Error, Result};
use crate::gguf::metadata::{Config, Family, Metadata, PLAIN};

/// The epsilon of layer norms.
const EPSILON: &str = "attention.layer_norm_epsilon";
/// Values of each head that are rotated.
const ROTATED: &str = "rope.dimension_count";

pub(super) const FAMILIES: [Family; 13] = [
    Family {
        name: "gemma",
        model_type: "gemma",
        needs_range: true,
        change: norms_less_one,
        config: |_, config| {
            config.insert("hidden_act".into(), json!("gelu_pytorch_tanh"));
            Ok(())
        },
        ..PLAIN
    },
    Family {
        name: "glm4",
        model_type: "glm4",
        modules: &[&[
            ("post_attention_norm", "post_self_attn_layernorm"),
            ("post_ffw_norm", "post_mlp_layernorm"),
            ("ffn_up", "mlp.gate_up_proj"),
        ]],
        reads: &[ROTATED],
        needs_range: true,
        config: rotated,
        ..PLAIN
    },
    Family {
        name: "command-r",
        model_type: "cohere",
        reads: &[EPSILON, "logit_scale"],
        config: |metadata, config| {
            epsilon(metadata, config, "layer_norm_eps")?;
            let has_norms = metadata.has("blk.0.attn_q_norm.weight");
            config.insert("use_qk_norm".into(), json!(has_norms));
            config.insert("logit_scale".into(), json!(metadata.float("logit_scale")?));
            Ok(())
        },
        ..PLAIN
    },
    Family {
        name: "phi2",
        model_type: "phi",
        modules: &[&[
            ("output_norm", "model.final_layernorm"),
            ("attn_output", "self_attn.dense"),
            ("ffn_up", "mlp.fc1"),
            ("ffn_down", "mlp.fc2"),
        ]],
        reads: &[EPSILON, ROTATED],
        config: |metadata, config| {
            epsilon(metadata, config, "layer_norm_eps")?;
            config.insert("hidden_act".into(), json!("gelu_new"));
            // The converter writes four times the size of states, whatever it is.
            let up = metadata.header.tensors.get("blk.0.ffn_up.weight");
            if let Some(inner) = up.and_then(|up| up.shape.first()) {
                config.insert("intermediate_size".into(), json!(inner));
            }
            rotated(metadata, config)
        },
        ..PLAIN
    },
    Family {
        name: "starcoder2",
        model_type: "starcoder2",
        modules: &[&[("ffn_up", "mlp.c_fc"), ("ffn_down", "mlp.c_proj")]],
        reads: &[EPSILON, "attention.sliding_window"],
        config: |metadata, config| {
            epsilon(metadata, config, "norm_epsilon")?;
            // That of all releases, which the converter leaves out.
            let window = metadata.number("attention.sliding_window")?.unwrap_or(4096);
            config.extend([
                ("hidden_act".into(), json!("gelu_pytorch_tanh")),
                ("use_bias".into(), json!(metadata.has("blk.0.attn_q.bias"))),
                ("sliding_window".into(), json!((window > 0).then_some(window))),
            ]);
            Ok(())
        },
        ..PLAIN
    },
    Family {
        name: "stablelm",
        model_type: "stablelm",
        modules: &[&[
            ("attn_q_norm", "self_attn.q_layernorm"),
            ("attn_k_norm", "self_attn.k_layernorm"),
        ]],
        reads: &[EPSILON, ROTATED],
        config: |metadata, config| {
            epsilon(metadata, config, "layer_norm_eps")?;
            // The flag says true where releases do not say it.
            let is_parallel = !metadata.has("blk.0.ffn_norm.weight");
            config.extend([
                ("use_qkv_bias".into(), json!(metadata.has("blk.0.attn_q.bias"))),
                ("qk_layernorm".into(), json!(metadata.has("blk.0.attn_q_norm.weight"))),
                ("use_parallel_residual".into(), json!(is_parallel)),
            ]);
            rotated(metadata, config)
        },
        ..PLAIN
    },
    Family {
        name: "nemotron",
        model_type: "nemotron",
        reads: &[EPSILON, ROTATED],
        change: norms_less_one,
        config: |metadata, config| {
            epsilon(metadata, config, "norm_eps")?;
            squared(metadata, config);
            rotated(metadata, config)
        },
        ..PLAIN
    },
    Family {
        name: "arcee",
        model_type: "arcee",
        change: pairs,
        config: |metadata, config| {
            squared(metadata, config);
            Ok(())
        },
        ..PLAIN
    },
    Family {
        name: "olmo",
        model_type: "olmo",
        reads: &[EPSILON, "attention.clamp_kqv"],
        change: pairs,
        config: |metadata, config| {
            let clip = metadata.float("attention.clamp_kqv")?.filter(|limit| *limit > 0.0);
            config.insert("clip_qkv".into(), json!(clip));
            Ok(())
        },
        ..PLAIN
    },
    // The matrix of queries, keys and values is taken apart, and what is left is Llama.
    Family { name: "internlm2", model_type: "llama", change: pairs, ..PLAIN },
    // Llama under other names.
    Family {
        name: "exaone",
        model_type: "llama",
        // The epsilon of root-mean-square norms, in files of some converters.
        reads: &[EPSILON],
        config: |metadata, config| match metadata.float(EPSILON)? {
            Some(_) => epsilon(metadata, config, "rms_norm_eps"),
            None => Ok(()),
        },
        ..PLAIN
    },
    Family {
        name: "minicpm",
        model_type: "minicpm",
        reads: &["embedding_scale", "residual_scale", "logit_scale", "rope_factors"],
        change: pairs,
        config: minicpm,
        ..PLAIN
    },
    Family {
        name: "gptneox",
        model_type: "gpt_neox",
        modules: &[&[
            ("token_embd", "gpt_neox.embed_in"),
            ("output_norm", "gpt_neox.final_layer_norm"),
            ("attn_qkv", "attention.qkv_proj"),
            ("attn_output", "attention.dense"),
            ("ffn_up", "mlp.dense_h_to_4h"),
            ("ffn_down", "mlp.dense_4h_to_h"),
        ]],
        layers: "gpt_neox.layers",
        reads: &[EPSILON, ROTATED],
        config: |metadata, config| {
            epsilon(metadata, config, "layer_norm_eps")?;
            let is_parallel = metadata.flag("use_parallel_residual")?.unwrap_or(true);
            config.extend([
                ("hidden_act".into(), json!("gelu")),
                ("attention_bias".into(), json!(metadata.has("blk.0.attn_qkv.bias"))),
                ("use_parallel_residual".into(), json!(is_parallel)),
            ]);
            rotated(metadata, config)
        },
        ..PLAIN
    },
];

/// The epsilon of layer norms, as `key`.
fn epsilon(metadata: &Metadata<'_>, config: &mut Config, key: &str) -> Result<()> {
    config.insert(key.into(), json!(metadata.float(EPSILON)?.unwrap_or(1e-5)));
    Ok(())
}

/// How much of each head is rotated.
fn rotated(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    let head_dim = metadata.head_dim()?;
    let dims = metadata.number(ROTATED)?.unwrap_or(head_dim);
    config.insert("partial_rotary_factor".into(), json!(dims as f64 / head_dim as f64));
    Ok(())
}

/// A network without a gate, which squares what is above 0.
fn squared(metadata: &Metadata<'_>, config: &mut Config) {
    config.insert("hidden_act".into(), json!("relu2"));
    config.insert("mlp_bias".into(), json!(metadata.has("blk.0.ffn_up.bias")));
}

/// The factors of MiniCPM, in the forms in which its config has them.
fn minicpm(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    let factor = |key| Ok::<f64, Error>(metadata.float(key)?.unwrap_or(1.0));
    let depth = factor("residual_scale")? * (metadata.layers()? as f64).sqrt();
    let hidden = metadata.required("embedding_length")? as f64;
    let base = (hidden / factor("logit_scale")?).round();
    config.extend([
        ("scale_emb".into(), json!(factor("embedding_scale")?)),
        ("scale_depth".into(), json!(depth)),
        ("dim_model_base".into(), json!(base as u64)),
    ]);
    if let Some(original) = metadata.number("rope.scaling.original_context_length")? {
        config.insert("original_max_position_embeddings".into(), json!(original));
    }
    Ok(())
}
