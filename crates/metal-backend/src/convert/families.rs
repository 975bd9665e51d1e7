//! mlx-lm's changes to the released tensors of each family: names, and forms.

use super::falcon_h1;
use super::sight::is_of_tower;
use super::tensors::Tensors;
use super::value::Value;
use crate::config::Config;
use crate::error::{Error, Result};

/// The projections of experts under their released names and mlx-lm's.
const SAME: &[(&str, &str)] =
    &[("gate_proj", "gate_proj"), ("up_proj", "up_proj"), ("down_proj", "down_proj")];
const NUMBERED: &[(&str, &str)] = &[("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj")];
const TWO_LAYERS: &[(&str, &str)] = &[("up_proj", "fc1"), ("down_proj", "fc2")];

/// The tensors of a packed module; a plain one has the first.
const PARTS: [&str; 3] = ["weight", "scales", "biases"];

/// The names of gate, up and down where the tensors of all experts are put together.
const SWITCH_MLP: [&str; 3] =
    [".switch_mlp.gate_proj.weight", ".switch_mlp.up_proj.weight", ".switch_mlp.down_proj.weight"];
const SWITCH_GLU: [&str; 3] = [
    ".experts.switch_glu.gate_proj.weight",
    ".experts.switch_glu.up_proj.weight",
    ".experts.switch_glu.down_proj.weight",
];

const STACKED: [&str; 3] =
    [".experts.gate_proj.weight", ".experts.up_proj.weight", ".experts.down_proj.weight"];

/// The key of a config which says that the embeddings are the output layer.
pub(super) const TIE: &str = "tie_word_embeddings";
/// Token embeddings where no module stands around the model.
const ENTRIES: [&str; 2] = ["embed_tokens.", "embeddings.tok_embeddings."];

/// Returns true when no output layer is written: the config says that the embeddings are it.
///
/// # Errors
/// A value that is no flag.
pub(super) fn is_tied(config: &Config) -> Result<bool> {
    Ok(config.of_text()?.opt_flag(TIE)?.or(config.opt_flag(TIE)?) == Some(true))
}

/// Gives the tensors the names and forms that mlx-lm writes for the `model_type` `family`.
///
/// # Errors
/// Tensors that do not fit the config; a name that two would have.
pub(super) fn arrange(family: &str, config: &Config, tensors: &mut Tensors) -> Result<()> {
    let text = config.of_text()?;
    tensors.leave_out(|name| is_of_tower(name) || is_leftover(name));
    if tensors.all.keys().any(|name| ENTRIES.iter().any(|entry| name.starts_with(entry))) {
        // Saved without what stands around it, as models that embed texts are.
        tensors.rename(|name| format!("model.{name}"))?;
    }
    if let Some(layers) = text.opt_index("num_hidden_layers")? {
        // Layers behind the last one predict several tokens at once.
        tensors.leave_out(|name| layer_of(name).is_some_and(|layer| layer >= layers));
    }
    tensors.rename(|name| renamed(family, name))?;
    if is_tied(config)? {
        // A bias is no part of the copy.
        tensors.leave_out(|name| PARTS.iter().any(|part| is_part(name, "lm_head", part)));
    }
    match family {
        "qwen2_moe" | "qwen3_moe" | "glm4_moe" | "laguna" | "ernie4_5_moe" | "olmoe"
        | "solar_open" | "mellum" | "exaone_moe" | "deepseek_v2" | "hunyuan_v1_moe"
        | "cohere2_moe" => tensors.stack_experts("switch_mlp", SAME)?,
        "dots1" | "afmoe" => tensors.stack_experts("experts", SAME)?,
        "bailing_moe" => {
            tensors.stack_experts("switch_mlp", SAME)?;
            if text.opt_flag("norm_head")? == Some(true) {
                tensors.change(|name, value| {
                    (name == "lm_head.weight").then(|| value.clone().unit_columns()).transpose()
                })?;
            }
        }
        "qwen3_next" => {
            tensors.stack_experts("switch_mlp", SAME)?;
            offset_norms(tensors)?;
        }
        "qwen3_5" | "qwen3_5_text" | "qwen3_5_moe" | "qwen3_5_moe_text" => {
            halve_experts(tensors, SWITCH_MLP)?;
            offset_norms(tensors)?;
        }
        "qwen3_vl_moe" => halve_turned_experts(tensors, SWITCH_MLP)?,
        "apertus" => tensors.change(|name, value| {
            let is_slope = [".alpha_p", ".alpha_n"].iter().any(|end| name.ends_with(end));
            is_slope.then(|| value.clone().reshape(Vec::new())).transpose()
        })?,
        "llama4" | "llama4_text" => halve_turned_experts(tensors, STACKED)?,
        "mixtral" | "minimax" | "minimax_m2" | "phimoe" => {
            tensors.stack_experts("switch_mlp", NUMBERED)?
        }
        "lfm2" | "lfm3" | "mamba" | "mamba2" | "falcon_mamba" | "recurrent_gemma" => {
            channels_last(tensors)?
        }
        "lfm2_moe" => {
            tensors.stack_experts("switch_mlp", SAME)?;
            channels_last(tensors)?;
        }
        "nemotron_h" => {
            tensors.stack_experts("switch_mlp", TWO_LAYERS)?;
            channels_last(tensors)?;
        }
        "gemma4" | "gemma4_text" | "gemma4_unified" => {
            halve_experts(tensors, SWITCH_GLU)?;
            unshared_keys(&text, tensors)?;
        }
        "glm4_moe_lite" | "deepseek_v3" | "deepseek_v32" | "glm_moe_dsa" | "kimi_k25"
        | "kimi_linear" => {
            tensors.stack_experts("switch_mlp", SAME)?;
            channels_last(tensors)?;
            tensors.change(|name, value| {
                let is_list = name.ends_with(".dt_bias") && value.shape.len() > 1;
                is_list.then(|| value.clone().flatten()).transpose()
            })?;
            split_latents(&text, tensors)?;
        }
        "mistral4" | "mistral3" if text.opt_text("model_type")? == Some("mistral4") => {
            halve_experts(tensors, SWITCH_MLP)?;
            split_latents(&text, tensors)?;
        }
        "granitemoehybrid" => {
            channels_last(tensors)?;
            granite(&text, tensors)?;
        }
        "granitemoe" | "granitemoeshared" => granite(&text, tensors)?,
        "granitemoe_swa" => {
            granite(&text, tensors)?;
            halve_experts(tensors, SWITCH_MLP)?;
        }
        "falcon_h1" => falcon_h1::arrange(config, tensors)?,
        "gpt_oss" => gpt_oss(tensors)?,
        _ => {}
    }
    Ok(())
}

/// Returns true for a leftover of training or of another program, by its name alone.
fn is_leftover(name: &str) -> bool {
    const PARTS: [&str; 9] = [
        "rotary_emb.",
        "mtp.",
        "mtp_layers.",
        "mtp_block.",
        "mtp_linear_proj.",
        "mtp_hidden_norm.",
        "mtp_emb_norm.",
        "activation_scale",
        "input_scale",
    ];
    const CLIPS: [&str; 4] = ["input_max", "input_min", "output_max", "output_min"];
    PARTS.iter().any(|part| name.contains(part)) || CLIPS.iter().any(|end| name.ends_with(end))
}

/// Returns true when `name` is the `part` of a module called `module`, at any depth.
fn is_part(name: &str, module: &str, part: &str) -> bool {
    let own = name.strip_suffix(part).and_then(|rest| rest.strip_suffix('.'));
    let path = own.and_then(|path| path.strip_suffix(module));
    path.is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// The number of the layer that a tensor belongs to.
fn layer_of(name: &str) -> Option<i32> {
    name.split_once("layers.")?.1.split('.').next()?.parse().ok()
}

/// `config`, whose packed modules have mlx-lm's names.
pub(super) fn with_packed_names(family: &str, config: &Config) -> Config {
    config.with_packed_names(|module| {
        let name = renamed(family, &format!("{module}.weight"));
        name.strip_suffix(".weight").map_or_else(|| module.to_owned(), str::to_owned)
    })
}

/// mlx-lm's name for the tensor that is released as `name`.
fn renamed(family: &str, name: &str) -> String {
    let inner = |name: &str| name.replacen("model.language_model.", "language_model.model.", 1);
    match family {
        "gemma3" | "qwen2_vl" | "qwen2_5_vl" | "qwen3_vl" | "qwen3_vl_moe" | "qwen3_5"
        | "qwen3_5_moe" | "qwen3_5_text" | "qwen3_5_moe_text" | "mistral3" => {
            let name = inner(name);
            if name.starts_with("language_model.") {
                name
            } else {
                format!("language_model.{name}")
            }
        }
        "gemma4" | "gemma4_unified" => match name.strip_prefix("model.") {
            Some(own) => own.replacen("language_model.", "language_model.model.", 1),
            None => name.to_owned(),
        },
        "kimi_k25" => match name.strip_prefix("lm_head.") {
            Some(part) => format!("language_model.lm_head.{part}"),
            None => inner(name),
        },
        "bailing_moe" => PARTS.iter().fold(name.to_owned(), |name, part| {
            name.replace(&format!(".mlp.gate.{part}"), &format!(".mlp.gate.gate_proj.{part}"))
        }),
        "exaone_moe" => name.replace(".mlp.e_score", ".mlp.gate.e_score"),
        "muse_glimmer" => {
            let name = name.replacen("model.language_model.", "model.", 1);
            name.strip_prefix("language_model.").unwrap_or(&name).to_owned()
        }
        "laguna" => {
            let name = name.strip_prefix("language_model.").unwrap_or(name);
            let name = PARTS.iter().fold(name.to_owned(), |name, part| {
                name.replace(&format!(".mlp.gate.{part}"), &format!(".mlp.gate.proj.{part}"))
            });
            name.replace(
                ".mlp.experts.e_score_correction_bias",
                ".mlp.gate.e_score_correction_bias",
            )
        }
        "lfm2_moe" => named_projections(name),
        "kimi_linear" => {
            let name = name
                .replace(".block_sparse_moe.gate.e_score", ".mlp.e_score")
                .replace(".block_sparse_moe.", ".mlp.")
                .replace("_conv1d.weight", "_conv.conv.weight");
            match name.contains(".experts.") {
                true => named_projections(&name),
                false => name,
            }
        }
        _ => name.to_owned(),
    }
}

/// `name` with what a numbered projection does in place of its number.
fn named_projections(name: &str) -> String {
    let names = NUMBERED.iter().flat_map(|names| PARTS.map(|part| (names, part)));
    names.fold(name.to_owned(), |name, ((number, does), part)| {
        name.replace(&format!(".{number}.{part}"), &format!(".{does}.{part}"))
    })
}

/// The kernels of convolutions over positions with the taps before the channels: `[channels, taps,
/// 1]`.
fn channels_last(tensors: &mut Tensors) -> Result<()> {
    tensors.change(|name, value| {
        let kernels = ["conv1d.weight", "conv_1d.weight", "conv.weight"];
        let is_kernel = kernels.iter().any(|end| name.ends_with(end));
        let is_released = is_kernel && value.shape.len() == 3 && value.shape[2] != 1;
        is_released.then(|| value.clone().transpose(&[0, 2, 1])).transpose()
    })
}

/// Norms of the released checkpoints of Qwen 3.5 and Qwen 3 Next have their weights' distance
/// from 1.
fn offset_norms(tensors: &mut Tensors) -> Result<()> {
    const NORMS: [&str; 5] = [
        ".input_layernorm.weight",
        ".post_attention_layernorm.weight",
        "model.norm.weight",
        ".q_norm.weight",
        ".k_norm.weight",
    ];
    let is_released = |(name, value): (&String, &Value)| {
        name.contains("conv1d.weight") && value.shape.last() != Some(&1)
    };
    if tensors.all.iter().any(is_released) {
        tensors.change(|name, value| {
            let is_norm = NORMS.iter().any(|end| name.ends_with(end)) && value.shape.len() == 1;
            is_norm.then(|| value.clone().plus(1.0)).transpose()
        })?;
    }
    channels_last(tensors)
}

/// Takes experts of matrices with rows for inputs apart, as [`halve_experts`] does with the others.
fn halve_turned_experts(tensors: &mut Tensors, [gate, up, down]: [&'static str; 3]) -> Result<()> {
    let turned = |value: Value| value.transpose(&[0, 2, 1]);
    tensors.split(".experts.gate_up_proj", |both| halves(turned(both)?, 1, [gate, up]))?;
    tensors.split(".experts.down_proj", |value| Ok(vec![(down, turned(value)?)]))
}

/// Takes `experts.gate_up_proj` of all experts apart; `names` are those of gate, up and down then.
fn halve_experts(tensors: &mut Tensors, [gate, up, down]: [&'static str; 3]) -> Result<()> {
    tensors.split(".experts.gate_up_proj", |both| halves(both, 1, [gate, up]))?;
    tensors.split(".experts.down_proj", |value| Ok(vec![(down, value)]))
}

/// Takes the projections of keys and values out of latents apart.
fn split_latents(text: &Config, tensors: &mut Tensors) -> Result<()> {
    let head = text.opt_size("head_dim")?;
    let size = |key| Ok::<i32, Error>(text.opt_size(key)?.or(head).unwrap_or(1));
    let heads = text.size("num_attention_heads")?;
    tensors.split_latents(heads, size("qk_nope_head_dim")?, size("v_head_dim")?)
}

/// Tensors with what their names end with.
type Parts = Vec<(&'static str, Value)>;

/// The two halves of the rows along `axis`.
fn halves(both: Value, axis: usize, names: [&'static str; 2]) -> Result<Parts> {
    Ok(names.into_iter().zip(both.halves(axis)?).collect())
}

/// Layers that use the keys and values of earlier ones need no projections for them.
fn unshared_keys(text: &Config, tensors: &mut Tensors) -> Result<()> {
    let shared = text.opt_index("num_kv_shared_layers")?.unwrap_or(0);
    let first = text.size("num_hidden_layers")? - shared;
    tensors.leave_out(|name| {
        let of_keys = [".self_attn.k_proj", ".self_attn.v_proj", ".self_attn.k_norm"];
        layer_of(name).is_some_and(|layer| layer >= first)
            && of_keys.iter().any(|part| name.contains(part))
    });
    Ok(())
}

/// The joined projections of Granite 4's experts, or of its one MLP where it has no experts.
fn granite(text: &Config, tensors: &mut Tensors) -> Result<()> {
    if text.opt_index("num_local_experts")?.unwrap_or(0) > 0 {
        tensors.split(".block_sparse_moe.input_linear.weight", |both| {
            let names = [
                ".block_sparse_moe.switch_mlp.gate_proj.weight",
                ".block_sparse_moe.switch_mlp.up_proj.weight",
            ];
            halves(both, 1, names)
        })?;
        tensors.split(".block_sparse_moe.output_linear.weight", |down| {
            Ok(vec![(".block_sparse_moe.switch_mlp.down_proj.weight", down)])
        })
    } else {
        tensors.split(".shared_mlp.input_linear.weight", |both| {
            halves(both, 0, [".mlp.gate_proj.weight", ".mlp.up_proj.weight"])
        })?;
        tensors.split(".shared_mlp.output_linear.weight", |down| {
            Ok(vec![(".mlp.down_proj.weight", down)])
        })
    }
}

/// gpt-oss: packed blocks of the experts as MLX packs them, and rows of gate and up that lie in
/// turn.
fn gpt_oss(tensors: &mut Tensors) -> Result<()> {
    let packed = |blocks: Value| blocks.words()?.join_last();
    let in_turn = |both: Value, names: [&'static str; 2]| -> Result<Parts> {
        Ok(names.into_iter().zip(both.in_turn(1)?).collect())
    };
    tensors.split(".gate_up_proj_blocks", |both| {
        in_turn(packed(both)?, [".gate_proj.weight", ".up_proj.weight"])
    })?;
    for (both, parts) in [
        (".gate_up_proj_scales", [".gate_proj.scales", ".up_proj.scales"]),
        (".gate_up_proj_bias", [".gate_proj.bias", ".up_proj.bias"]),
    ] {
        tensors.split(both, |both| in_turn(both, parts))?;
    }
    tensors.split(".down_proj_blocks", |down| Ok(vec![(".down_proj.weight", packed(down)?)]))?;
    tensors.split(".down_proj_scales", |down| Ok(vec![(".down_proj.scales", down)]))?;
    tensors.split(".down_proj_bias", |down| Ok(vec![(".down_proj.bias", down)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_modules_are_renamed_with_their_tensors() {
        let named = |family: &str, module: &str| {
            let packed = format!(r#"{{"group_size": 32, "bits": 4, "{module}": {{"bits": 8}}}}"#);
            let config =
                Config::parse("config.json", &format!(r#"{{"quantization": {packed}}}"#)).unwrap();
            let fields = with_packed_names(family, &config).into_fields();
            let packed = fields["quantization"].as_object().unwrap().clone();
            let mut keys = packed.into_iter().filter(|(_, value)| value.is_object());
            keys.next().unwrap().0
        };
        let module = "model.layers.0.linear_attn.in_proj_z";
        assert_eq!(named("qwen3_5_text", module), format!("language_model.{module}"));
        assert_eq!(named("qwen3", module), module);
        let (number, name) =
            ("model.layers.0.feed_forward.w3", "model.layers.0.feed_forward.up_proj");
        assert_eq!(named("lfm2_moe", number), name);
    }
}
