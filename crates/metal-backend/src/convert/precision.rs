//! Which modules are packed, and into how many bits.

use mlx_ffi::{QuantMode, Quantization};
use serde_json::{Map, Value, json};

use super::options::{Recipe, Rule};
use super::value;
use crate::error::{Error, Result};

/// The decision for one module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// It stays as it is.
    Leave,
    /// It stays as it is, since groups do not divide its rows.
    Narrow,
    /// It is packed as the checkpoint is.
    Pack(Quantization),
    /// It is packed with an entry of its own, which names the mode or leaves it out.
    Own(Quantization, NamesMode),
}

/// True when an entry says `"mode"`; mlx-lm's own rules do not.
pub(super) type NamesMode = bool;

/// Decides for every module of one model.
pub(super) struct Precision<'a> {
    pub family: &'a str,
    pub default: Quantization,
    pub recipe: Option<Mixed>,
    pub rules: &'a [Rule],
}

impl Precision<'_> {
    /// Decides for the module at `path`, whose weight is `weight`.
    ///
    /// # Errors
    /// A rule of the user's whose groups do not divide the weight's columns.
    pub fn choose(&self, path: &str, weight: &value::Value) -> Result<Choice> {
        let columns = weight.shape.last().copied().unwrap_or(0);
        if weight.shape.len() < 2 || !weight.dtype.is_float() || self.is_no_linear(path) {
            return Ok(Choice::Leave);
        }
        if let Some(rule) = self.rules.iter().rev().find(|rule| rule.matches(path)) {
            let Some(quantization) = rule.quantization else { return Ok(Choice::Leave) };
            if columns % quantization.group_size != 0 {
                return Err(Error::model(format!(
                    "`{path}` has {columns} columns, which groups of {} do not divide; choose another group size for `{}`",
                    quantization.group_size, rule.pattern
                )));
            }
            return Ok(Choice::Own(quantization, true));
        }
        if columns % self.default.group_size != 0 {
            return Ok(Choice::Narrow);
        }
        if let Some(mixed) = &self.recipe {
            let bits = mixed.bits(path);
            return Ok(Choice::Own(Quantization { bits, ..self.default }, true));
        }
        if self.is_delicate(path) {
            // mlx-lm takes 64 and fails where they do not divide the columns.
            let group_size = if columns % 64 == 0 { 64 } else { 32 };
            if columns % group_size == 0 {
                let quantization = Quantization { mode: QuantMode::Affine, bits: 8, group_size };
                return Ok(Choice::Own(quantization, false));
            }
        }
        Ok(Choice::Pack(self.default))
    }

    /// Modules with a weight that is no linear layer's in mlx-lm, so that it is never packed:
    /// routers with biases of their own, and norms with a row for each head.
    fn is_no_linear(&self, path: &str) -> bool {
        let router = match self.family {
            "deepseek_v2" | "deepseek_v3" | "deepseek_v32" | "glm_moe_dsa" | "dots1"
            | "exaone_moe" | "glm4_moe" | "glm4_moe_lite" | "kimi_k25" | "solar_open" => "mlp.gate",
            "nemotron_h" => "mixer.gate",
            "recurrent_gemma" => return path.ends_with("conv_1d"),
            "cohere" => return path.ends_with("q_norm") || path.ends_with("k_norm"),
            "stablelm" => return path.ends_with("q_layernorm") || path.ends_with("k_layernorm"),
            _ => return path.ends_with("conv") || path.ends_with("conv1d"),
        };
        path.ends_with(router) || path.ends_with("conv1d")
    }

    /// Modules for which mlx-lm takes 8 bits: routers, and what underflows in Granite.
    fn is_delicate(&self, path: &str) -> bool {
        let ends = |ends: &[&str]| ends.iter().any(|end| path.ends_with(end));
        match self.family {
            "qwen3_moe" | "kimi_linear" | "mellum" => ends(&["mlp.gate"]),
            "qwen3_next" | "qwen3_5" | "qwen3_5_text" | "qwen3_5_moe" | "qwen3_5_moe_text" => {
                ends(&["mlp.gate", "shared_expert_gate"])
            }
            "afmoe" => ends(&["router.gate"]),
            "bailing_moe" => ends(&["mlp.gate.gate_proj"]),
            "gemma4" | "gemma4_text" | "gemma4_unified" => ends(&["router.proj"]),
            "lfm2_moe" => ends(&["feed_forward.gate"]),
            "granitemoehybrid" => ends(&["router.layer"]),
            "granitemoe" | "granitemoeshared" | "granitemoe_swa" => {
                path == "lm_head"
                    || ends(&["router.layer", "sparse_moe.router", "self_attn.o_proj"])
            }
            "granite" | "granite_swa" => {
                path == "lm_head" || ends(&["self_attn.o_proj", "mlp.down_proj"])
            }
            "minimax" => ends(&["block_sparse_moe.gate"]),
            "laguna" => ends(&["mlp.gate.proj"]),
            "gpt_oss" => ends(&["router"]),
            _ => false,
        }
    }
}

/// Returns true for a tensor that keeps its type where all others are cast.
/// Routers and recurrences add these up in F32.
pub(super) fn keeps_type(family: &str, name: &str) -> bool {
    let is_bias = name.contains("e_score_correction_bias");
    match family {
        "qwen3_5" | "qwen3_5_text" | "qwen3_5_moe" | "qwen3_5_moe_text" => name.ends_with("A_log"),
        "deepseek_v3" | "deepseek_v32" | "glm_moe_dsa" | "exaone_moe" | "glm4_moe"
        | "glm4_moe_lite" | "kimi_k25" | "laguna" | "minimax" | "solar_open" => is_bias,
        "kimi_linear" => is_bias || name.ends_with("A_log") || name.ends_with("dt_bias"),
        "nemotron_h" => is_bias || name.contains("A_log"),
        "afmoe" | "bailing_moe" | "lfm2_moe" => name.contains("expert_bias"),
        _ => false,
    }
}

/// A recipe for one model: more bits for the first and the last layers and for each third one
/// between.
pub(super) struct Mixed {
    low: i32,
    high: i32,
    layers: i32,
    /// Which component of a path is the layer's number.
    component: usize,
}

impl Mixed {
    /// The recipe for a model of `layers` layers with modules at `paths`.
    ///
    /// # Errors
    /// A model without down projections.
    pub fn new<'a>(
        recipe: Recipe,
        layers: i32,
        mut paths: impl Iterator<Item = &'a str>,
    ) -> Result<Mixed> {
        let down = paths.find(|path| path.contains("down_proj")).ok_or_else(|| {
            Error::model("a mixed recipe needs modules called `down_proj`, and the model has none")
        })?;
        let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let parts = || down.split('.');
        let component = parts().position(is_number).unwrap_or(parts().count() - 1);
        let (low, high) = recipe.bits();
        Ok(Mixed { low, high, layers, component })
    }

    fn bits(&self, path: &str) -> i32 {
        let part = path.split('.').nth(self.component);
        let layer: i32 = part.and_then(|part| part.parse().ok()).unwrap_or(0);
        let (eighth, last) = (self.layers / 8, (i64::from(self.layers) * 7 / 8) as i32);
        let gets_more = layer < eighth || layer >= last || (layer - eighth).rem_euclid(3) == 2;
        let is_value = ["v_proj", "v_a_proj", "v_b_proj"].iter().any(|name| path.contains(name));
        let is_wide = (is_value || path.contains("down_proj")) && gets_more;
        if is_wide || path.contains("lm_head") { self.high } else { self.low }
    }
}

/// The entry of `config.json` for a quantisation.
pub(super) fn entry(quantization: Quantization, names_mode: NamesMode) -> Value {
    let mut entry = Map::new();
    entry.insert("group_size".into(), json!(quantization.group_size));
    entry.insert("bits".into(), json!(quantization.bits));
    if names_mode {
        entry.insert("mode".into(), json!(quantization.mode.as_str()));
    }
    Value::Object(entry)
}
