//! Mamba layers alone, and Mamba 2 layers with attention in some layers or beside it.

use serde_json::json;

use super::building::{decays, grouped_experts, pairs};
use super::llama::granite_factors;
use crate::error::{Error, Result};
use crate::gguf::metadata::{Change, Config, Family, Metadata, Modules, PLAIN};
use crate::gguf::reader::shown;

/// The parts of a Mamba 2 layer.
const MAMBA: Modules = &[
    ("ssm_in", "mamba.in_proj"),
    ("ssm_conv1d", "mamba.conv1d"),
    ("ssm_dt.bias", "mamba.dt_bias"),
    ("ssm_a", "mamba.A_log"),
    ("ssm_d", "mamba.D"),
    ("ssm_norm", "mamba.norm"),
    ("ssm_out", "mamba.out_proj"),
];

const GRANITE: Modules = &[
    ("ffn_gate_inp", "block_sparse_moe.router.layer"),
    ("ffn_gate_exps", "block_sparse_moe.switch_mlp.gate_proj"),
    ("ffn_up_exps", "block_sparse_moe.switch_mlp.up_proj"),
    ("ffn_down_exps", "block_sparse_moe.switch_mlp.down_proj"),
    ("ffn_gate_shexp", "mlp.gate_proj"),
    ("ffn_up_shexp", "mlp.up_proj"),
    ("ffn_down_shexp", "mlp.down_proj"),
];

/// Each layer is one thing.
const NEMOTRON: Modules = &[
    ("token_embd", "backbone.embeddings"),
    ("output_norm", "backbone.norm_f"),
    ("attn_norm", "norm"),
    ("attn_q", "mixer.q_proj"),
    ("attn_k", "mixer.k_proj"),
    ("attn_v", "mixer.v_proj"),
    ("attn_output", "mixer.o_proj"),
    ("ssm_in", "mixer.in_proj"),
    ("ssm_conv1d", "mixer.conv1d"),
    ("ssm_dt.bias", "mixer.dt_bias"),
    ("ssm_a", "mixer.A_log"),
    ("ssm_d", "mixer.D"),
    ("ssm_norm", "mixer.norm"),
    ("ssm_out", "mixer.out_proj"),
    ("ffn_up", "mixer.up_proj"),
    ("ffn_down", "mixer.down_proj"),
    ("ffn_gate_inp", "mixer.gate"),
    ("exp_probs_b.bias", "mixer.gate.e_score_correction_bias"),
    ("ffn_up_exps", "mixer.switch_mlp.fc1"),
    ("ffn_down_exps", "mixer.switch_mlp.fc2"),
    ("ffn_up_shexp", "mixer.shared_experts.up_proj"),
    ("ffn_down_shexp", "mixer.shared_experts.down_proj"),
    ("ffn_latent_down", "mixer.fc1_latent_proj"),
    ("ffn_latent_up", "mixer.fc2_latent_proj"),
];

/// Layers of state spaces alone.
const ALONE: Modules = &[
    ("token_embd", "backbone.embeddings"),
    ("output_norm", "backbone.norm_f"),
    ("attn_norm", "norm"),
    ("ssm_in", "mixer.in_proj"),
    ("ssm_conv1d", "mixer.conv1d"),
    ("ssm_a", "mixer.A_log"),
    ("ssm_d", "mixer.D"),
    ("ssm_out", "mixer.out_proj"),
];

pub(super) const FAMILIES: [Family; 6] = [
    Family {
        name: "mamba",
        model_type: "mamba",
        modules: &[ALONE, &[("ssm_x", "mixer.x_proj"), ("ssm_dt", "mixer.dt_proj")]],
        layers: "backbone.layers",
        reads: &["ssm.inner_size", "ssm.dt_b_c_rms"],
        needs_range: true,
        change: |_, tensor| Ok(decays(tensor)),
        config: mamba,
        ..PLAIN
    },
    Family {
        name: "mamba2",
        model_type: "mamba2",
        modules: &[ALONE, &[("ssm_norm", "mixer.norm"), ("ssm_dt.bias", "mixer.dt_bias")]],
        layers: "backbone.layers",
        reads: &["ssm.inner_size"],
        needs_range: true,
        change: |_, tensor| Ok(decays(tensor)),
        config: mamba2,
        ..PLAIN
    },
    Family {
        name: "granitehybrid",
        model_type: "granitemoehybrid",
        modules: &[MAMBA, GRANITE],
        reads: &[
            "attention.scale",
            "embedding_scale",
            "residual_scale",
            "logit_scale",
            "expert_count",
            "ssm.inner_size",
        ],
        by_layer: &["attention.head_count_kv"],
        needs_range: true,
        change: |metadata, tensor| {
            Ok(Change { value: decays(tensor).value, ..pairs(metadata, tensor)? })
        },
        config: granite,
        ..PLAIN
    },
    Family {
        name: "falcon-h1",
        model_type: "falcon_h1",
        modules: &[
            &[
                ("output_norm", "model.final_layernorm"),
                // Files have it without a part.
                ("ffn_norm", "pre_ff_layernorm.weight"),
                ("ffn_norm.weight", "pre_ff_layernorm.weight"),
                ("ffn_gate", "feed_forward.gate_proj"),
                ("ffn_up", "feed_forward.up_proj"),
                ("ffn_down", "feed_forward.down_proj"),
            ],
            MAMBA,
        ],
        reads: &["ssm.inner_size"],
        needs_range: true,
        change: |_, tensor| Ok(decays(tensor)),
        config: falcon,
        ..PLAIN
    },
    Family {
        name: "nemotron_h",
        model_type: "nemotron_h",
        modules: &[NEMOTRON],
        layers: "backbone.layers",
        reads: &["ssm.inner_size", "rope.dimension_count"],
        by_layer: &["attention.head_count_kv", "feed_forward_length"],
        needs_range: true,
        change: |_, tensor| Ok(decays(tensor)),
        config: nemotron,
        ..PLAIN
    },
    Family {
        name: "nemotron_h_moe",
        model_type: "nemotron_h",
        modules: &[NEMOTRON],
        layers: "backbone.layers",
        reads: &[
            "ssm.inner_size",
            "rope.dimension_count",
            "expert_count",
            "expert_gating_func",
            "expert_group_count",
            "expert_shared_count",
            "expert_weights_norm",
            "expert_weights_scale",
            "nextn_predict_layers",
        ],
        by_layer: &["attention.head_count_kv", "feed_forward_length"],
        needs_range: true,
        change: |_, tensor| Ok(decays(tensor)),
        config: nemotron,
        ..PLAIN
    },
];

/// Numbers of Mamba 2 layers: heads, values of a head, groups, of a state, and taps.
struct Sizes {
    heads: u64,
    head_dim: u64,
    groups: u64,
    state: u64,
    taps: u64,
}

impl Sizes {
    fn of(metadata: &Metadata<'_>) -> Result<Sizes> {
        let heads = metadata.required("ssm.time_step_rank")?;
        let inner = metadata.required("ssm.inner_size")?;
        Ok(Sizes {
            heads,
            head_dim: inner / heads.max(1),
            groups: metadata.required("ssm.group_count")?,
            state: metadata.required("ssm.state_size")?,
            taps: metadata.required("ssm.conv_kernel")?,
        })
    }

    /// Under the keys of Granite and Falcon.
    fn write(&self, metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
        let inner = self.heads * self.head_dim;
        let hidden = metadata.required("embedding_length")?.max(1);
        config.extend([
            ("mamba_n_heads".into(), json!(self.heads)),
            ("mamba_d_head".into(), json!(self.head_dim)),
            ("mamba_n_groups".into(), json!(self.groups)),
            ("mamba_d_state".into(), json!(self.state)),
            ("mamba_d_conv".into(), json!(self.taps)),
            ("mamba_d_ssm".into(), json!(inner)),
            ("mamba_expand".into(), json!(inner / hidden)),
        ]);
        Ok(())
    }
}

/// The keys that all models of state spaces alone have.
fn alone(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    let inner = metadata.required("ssm.inner_size")?;
    let hidden = metadata.required("embedding_length")?.max(1);
    let epsilon = config.get("rms_norm_eps").cloned();
    config.extend([
        ("intermediate_size".into(), json!(inner)),
        ("expand".into(), json!(inner as f64 / hidden as f64)),
        ("state_size".into(), json!(metadata.required("ssm.state_size")?)),
        ("conv_kernel".into(), json!(metadata.required("ssm.conv_kernel")?)),
        ("layer_norm_epsilon".into(), epsilon.unwrap_or(json!(1e-5))),
        ("use_bias".into(), json!(metadata.some_layer_has("ssm_in.bias"))),
        ("use_conv_bias".into(), json!(metadata.some_layer_has("ssm_conv1d.bias"))),
    ]);
    // Files say that there are 0 heads.
    for key in ["num_attention_heads", "num_key_value_heads", "head_dim"] {
        config.remove(key);
    }
    Ok(())
}

fn mamba(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    alone(metadata, config)?;
    config.insert("time_step_rank".into(), json!(metadata.required("ssm.time_step_rank")?));
    if metadata.flag("ssm.dt_b_c_rms")?.unwrap_or(false) {
        config.insert("model_type".into(), json!("falcon_mamba"));
    }
    Ok(())
}

fn mamba2(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    alone(metadata, config)?;
    let Sizes { heads, head_dim, groups, .. } = Sizes::of(metadata)?;
    config.extend([
        ("num_heads".into(), json!(heads)),
        ("head_dim".into(), json!(head_dim)),
        ("n_groups".into(), json!(groups)),
    ]);
    Ok(())
}

fn granite(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    granite_factors(metadata, config)?;
    let heads = metadata.of_layers("attention.head_count_kv")?;
    let layers = metadata.layers()? as usize;
    let has = |layer: usize| heads.get(layer).or(heads.first()).is_some_and(|heads| *heads > 0);
    let kind = |layer| if has(layer) { "attention" } else { "mamba" };
    let types: Vec<_> = (0..layers).map(kind).collect();
    if types.contains(&"mamba") {
        Sizes::of(metadata)?.write(metadata, config)?;
    }
    // Files say so under this key; what does not say it sees them.
    let sees_positions = metadata.flag("rope.scaling.finetuned")?.unwrap_or(true);
    let inner = metadata.required("feed_forward_length")?;
    let shared = metadata.number("expert_shared_feed_forward_length")?.filter(|size| *size > 0);
    config.extend([
        ("layer_types".into(), json!(types)),
        ("position_embedding_type".into(), json!(if sees_positions { "rope" } else { "nope" })),
        ("shared_intermediate_size".into(), json!(shared.unwrap_or(inner))),
        ("mamba_conv_bias".into(), json!(metadata.some_layer_has("ssm_conv1d.bias"))),
        ("mamba_proj_bias".into(), json!(metadata.some_layer_has("ssm_in.bias"))),
        ("num_local_experts".into(), json!(metadata.number("expert_count")?.unwrap_or(0))),
        ("num_experts_per_tok".into(), json!(metadata.number("expert_used_count")?.unwrap_or(0))),
    ]);
    Ok(())
}

/// Its factors are in the weights.
///
/// # Errors
/// Metadata that is missing or wrong; embeddings that are the output layer too, whose factor is
/// lost then.
fn falcon(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    let theirs = |key: &&String| key.ends_with("_multiplier") || key.ends_with("_multipliers");
    if let Some(key) = metadata.header.metadata.keys().find(theirs) {
        return Err(Error::model(format!(
            "has `{}`: its factors are not in the weights; convert the model with llama.cpp anew",
            shown(key)
        )));
    }
    if metadata.float("rope.freq_base")?.is_none() {
        return Err(Error::model(format!("has no `{}`", metadata.key("rope.freq_base"))));
    }
    if !metadata.has("output.weight") {
        return Err(Error::model(
            "has no `output.weight`: the factor of logits is in no file without it; use a folder of safetensors",
        ));
    }
    Sizes::of(metadata)?.write(metadata, config)?;
    config.extend([
        ("mamba_rms_norm".into(), json!(metadata.some_layer_has("ssm_norm.weight"))),
        ("mamba_norm_before_gate".into(), json!(false)),
        ("mamba_conv_bias".into(), json!(metadata.some_layer_has("ssm_conv1d.bias"))),
        ("mamba_proj_bias".into(), json!(metadata.some_layer_has("ssm_in.bias"))),
    ]);
    Ok(())
}

fn nemotron(metadata: &Metadata<'_>, config: &mut Config) -> Result<()> {
    let layers = metadata.layers()? as usize;
    let kind = |layer: usize| {
        let has = |tensor: &str| metadata.has(&format!("blk.{layer}.{tensor}.weight"));
        match ["ssm_in", "attn_q", "ffn_gate_inp", "ffn_up"].map(has) {
            [true, ..] => Ok("mamba"),
            [_, true, ..] => Ok("attention"),
            [_, _, true, _] => Ok("moe"),
            [.., true] => Ok("mlp"),
            _ => Err(Error::model(format!("layer {layer} has no tensors that are known"))),
        }
    };
    let types = (0..layers).map(kind).collect::<Result<Vec<_>>>()?;
    let Sizes { heads, head_dim, groups, state, taps } = Sizes::of(metadata)?;
    let epsilon = config.get("rms_norm_eps").cloned();
    // Files state that of experts where there are such.
    let inner = types.iter().position(|kind| *kind == "mlp").and_then(|layer| {
        metadata.header.tensors.get(&format!("blk.{layer}.ffn_up.weight"))?.shape.first()
    });
    config.extend([
        ("layers_block_type".into(), json!(types)),
        ("mamba_num_heads".into(), json!(heads)),
        ("mamba_head_dim".into(), json!(head_dim)),
        ("n_groups".into(), json!(groups)),
        ("ssm_state_size".into(), json!(state)),
        ("conv_kernel".into(), json!(taps)),
        ("use_conv_bias".into(), json!(metadata.some_layer_has("ssm_conv1d.bias"))),
        ("use_bias".into(), json!(metadata.some_layer_has("ssm_in.bias"))),
        ("mlp_bias".into(), json!(metadata.some_layer_has("ffn_up.bias"))),
        ("attention_bias".into(), json!(metadata.some_layer_has("attn_q.bias"))),
        ("layer_norm_epsilon".into(), epsilon.unwrap_or(json!(1e-5))),
    ]);
    config.remove("intermediate_size");
    config.extend(inner.map(|inner| ("intermediate_size".into(), json!(inner))));
    config.remove("hidden_act");
    if !types.contains(&"moe") {
        return Ok(());
    }
    grouped_experts(metadata, config, false)?;
    let shared = metadata.number("expert_shared_feed_forward_length")?.filter(|size| *size > 0);
    config.extend([
        ("n_shared_experts".into(), json!(u64::from(shared.is_some()))),
        ("moe_shared_expert_intermediate_size".into(), json!(shared)),
        ("moe_latent_size".into(), json!(metadata.number("moe_latent_size")?)),
    ]);
    Ok(())
}
