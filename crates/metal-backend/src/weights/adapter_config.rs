//! `adapter_config.json` in mlx-lm's layout and in PEFT's: what is honoured, and what is refused.

use serde_json::Value;

use crate::config::Config;
use crate::error::{Error, Result};

/// The file that both layouts have.
pub(super) const CONFIG: &str = "adapter_config.json";

/// How an adapter's tensors are named and laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// `….lora_a`, `[in, r]`, and `….lora_b`, `[r, out]`.
    MlxLm,
    /// `base_model.model.….lora_A.weight`, `[r, in]`, and `….lora_B.weight`, `[out, r]`.
    Peft,
}

impl Layout {
    /// The file with the tensors.
    pub fn weights_file(self) -> &'static str {
        match self {
            Layout::MlxLm => "adapters.safetensors",
            Layout::Peft => "adapter_model.safetensors",
        }
    }
}

/// The config of a LoRA adapter.
#[derive(Debug)]
pub(super) struct AdapterConfig {
    pub layout: Layout,
    /// Names of modules, or their last parts, that must have tensors.
    pub targets: Vec<String>,
    /// The most layers that have tensors.
    pub num_layers: Option<usize>,
    rank: i32,
    /// Ranks of the modules whose names end thus; the first match counts.
    ranks: Vec<(String, i32)>,
    strength: Strength,
}

/// The factor of `(x a) b`.
#[derive(Debug)]
enum Strength {
    Scale(f64),
    /// `alpha / r`, or `alpha / √r`.
    Alpha {
        alpha: f64,
        /// Alphas of the modules whose names end thus; the first match counts.
        alphas: Vec<(String, f64)>,
        by_root: bool,
    },
}

/// PEFT's keys under which any value but these refuses the adapter, with what the key asks for.
const REFUSED: [(&str, &str); 15] = [
    ("use_dora", "DoRA"),
    ("modules_to_save", "whole modules trained beside the adapter"),
    ("lora_bias", "biases of its own"),
    ("fan_in_fan_out", "transposed base weights"),
    ("use_qalora", "QALoRA"),
    ("use_bdlora", "BD-LoRA"),
    ("layer_replication", "replicated layers"),
    ("target_parameters", "parameters that are no projection"),
    ("trainable_token_indices", "retrained tokens"),
    ("alora_invocation_tokens", "an adapter that begins within the prompt"),
    ("arrow_config", "a router of adapters"),
    ("velora_config", "VeLoRA"),
    ("kasa_config", "KaSA"),
    ("monteclora_config", "MonteCLoRA"),
    ("ensure_weight_tying", "adapters that tied weights share"),
];

/// Ways to initialise that change the base's weights too, so that the adapter alone does not fit
/// the base.
const CHANGES_THE_BASE: [&str; 5] = ["pissa", "olora", "corda", "loftq", "lora_ga"];

impl AdapterConfig {
    /// Reads the text of the file.
    ///
    /// # Errors
    /// A layout that is not known; what is not honoured, by its key.
    pub fn parse(text: &str) -> Result<AdapterConfig> {
        let config = Config::parse(CONFIG, text)?;
        if config.get("peft_type").is_some() {
            return AdapterConfig::peft(&config);
        }
        if config.get("lora_parameters").is_some() || config.get("fine_tune_type").is_some() {
            return AdapterConfig::mlx_lm(&config);
        }
        Err(Error::model(format!(
            "{CONFIG} has neither `lora_parameters`, which mlx-lm writes, nor `peft_type`, which PEFT writes"
        )))
    }

    fn mlx_lm(config: &Config) -> Result<AdapterConfig> {
        const KIND: &str = "fine_tune_type";
        match config.opt_text(KIND)? {
            None | Some("lora") => {}
            Some("dora") => return Err(refused(KIND, "dora", "fuse it into the weights")),
            Some("full") => {
                let remedy = "it holds whole weights; load the folder that they make with the base";
                return Err(refused(KIND, "full", remedy));
            }
            Some(other) => return Err(refused(KIND, other, "known is lora")),
        }
        let parameters = config
            .object("lora_parameters")?
            .ok_or_else(|| Error::model(format!("{CONFIG}: key `lora_parameters` is missing")))?;
        let scale = parameters.opt_number("scale")?.ok_or_else(|| {
            Error::model(format!("{CONFIG}: `lora_parameters`: key `scale` is missing"))
        })?;
        let keys = parameters.opt_texts("keys")?.unwrap_or_default();
        let layers = config.get("num_layers").map(|value| {
            value.as_i64().ok_or_else(|| config.wrong("num_layers", value, "an integer"))
        });
        // mlx-lm takes 0 and below as all layers.
        let layers = layers.transpose()?.filter(|layers| *layers > 0);
        Ok(AdapterConfig {
            layout: Layout::MlxLm,
            targets: keys.into_iter().map(str::to_owned).collect(),
            num_layers: layers.map(|layers| layers as usize),
            rank: parameters.size("rank")?,
            ranks: Vec::new(),
            strength: Strength::Scale(scale),
        })
    }

    fn peft(config: &Config) -> Result<AdapterConfig> {
        match config.opt_text("peft_type")? {
            Some("LORA") => {}
            other => return Err(refused("peft_type", other.unwrap_or(""), "known is LORA")),
        }
        for (key, what) in REFUSED {
            let idle = |value: &Value| match value {
                Value::Bool(asks) => !asks,
                Value::Array(list) => list.is_empty(),
                Value::Object(fields) => fields.is_empty(),
                _ => false,
            };
            if let Some(value) = config.get(key).filter(|value| !idle(value)) {
                return Err(Error::model(format!(
                    "{CONFIG}: `{key}` is {value}: {what} is not supported; merge the adapter into the weights"
                )));
            }
        }
        match config.opt_text("bias")? {
            None | Some("none") => {}
            Some(other) => return Err(refused("bias", other, "merge it into the weights")),
        }
        if let Some(Value::String(way)) = config.get("init_lora_weights")
            && CHANGES_THE_BASE.iter().any(|known| way.to_lowercase().starts_with(known))
        {
            let remedy = "it changes the base's weights too; save it converted to plain LoRA";
            return Err(refused("init_lora_weights", way, remedy));
        }
        // A string is a pattern or `all-linear`: there the tensors themselves say.
        let targets = match config.get("target_modules") {
            Some(Value::Array(_)) => config.opt_texts("target_modules")?.unwrap_or_default(),
            _ => Vec::new(),
        };
        let rank = config.size("r")?;
        let alphas = pattern(config, "alpha_pattern")?.into_iter();
        let alphas = alphas.map(|(key, object)| {
            let alpha = object.opt_number(&key)?.unwrap_or_default();
            Ok((key, alpha))
        });
        let ranks = pattern(config, "rank_pattern")?.into_iter();
        let ranks = ranks.map(|(key, object)| {
            let rank = object.size(&key)?;
            Ok((key, rank))
        });
        let alpha = config.opt_number("lora_alpha")?;
        Ok(AdapterConfig {
            layout: Layout::Peft,
            targets: targets.into_iter().map(str::to_owned).collect(),
            num_layers: None,
            rank,
            ranks: ranks.collect::<Result<_>>()?,
            strength: Strength::Alpha {
                alpha: alpha.ok_or_else(|| {
                    Error::model(format!("{CONFIG}: key `lora_alpha` is missing"))
                })?,
                alphas: alphas.collect::<Result<_>>()?,
                by_root: config.opt_flag("use_rslora")?.unwrap_or(false),
            },
        })
    }

    /// The rank of the adapter of `module`.
    pub fn rank(&self, module: &str) -> i32 {
        first_match(&self.ranks, module).unwrap_or(self.rank)
    }

    /// The factor of the product of `module`'s adapter.
    pub fn scale(&self, module: &str) -> f32 {
        let scale = match &self.strength {
            Strength::Scale(scale) => *scale,
            Strength::Alpha { alpha, alphas, by_root } => {
                let rank = f64::from(self.rank(module));
                let alpha = first_match(alphas, module).unwrap_or(*alpha);
                alpha / if *by_root { rank.sqrt() } else { rank }
            }
        };
        scale as f32
    }
}

/// Returns true when `name` is `module` or its last parts.
pub(super) fn is_end_of(name: &str, module: &str) -> bool {
    module.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn first_match<T: Copy>(patterns: &[(String, T)], module: &str) -> Option<T> {
    patterns.iter().find(|(name, _)| is_end_of(name, module)).map(|(_, value)| *value)
}

/// The keys of the object under `key`, each with that object.
///
/// # Errors
/// Regular expressions: only names of modules, or their last parts, are read.
fn pattern(config: &Config, key: &str) -> Result<Vec<(String, Config)>> {
    let Some(object) = config.object(key)? else { return Ok(Vec::new()) };
    let fields = config.get(key).and_then(Value::as_object).into_iter().flatten();
    fields
        .map(|(name, _)| {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
            if name.is_empty() || !name.chars().all(plain) {
                return Err(refused(key, name, "only names of modules are read, no patterns"));
            }
            Ok((name.clone(), object.clone()))
        })
        .collect()
}

fn refused(key: &str, value: &str, remedy: &str) -> Error {
    Error::model(format!("{CONFIG}: `{key}` has `{value}`, which is not supported: {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_and_ranks_are_those_of_peft() {
        let text = r#"{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"],
            "rank_pattern": {"layers.1.q_proj": 16, "q_proj": 2}, "alpha_pattern": {"v_proj": 32}}"#;
        let config = AdapterConfig::parse(text).expect("sound");
        let found = |module| (config.rank(module), config.scale(module));
        assert_eq!(found("model.layers.1.q_proj"), (16, 0.5));
        assert_eq!(found("model.layers.11.q_proj"), (2, 4.0));
        assert_eq!(found("model.layers.1.k_proj"), (4, 2.0));
        assert_eq!(found("model.layers.1.v_proj"), (4, 8.0));
        let text = text.replace(r#""r": 4"#, r#""r": 4, "use_rslora": true"#);
        let config = AdapterConfig::parse(&text).expect("sound");
        assert_eq!(config.scale("model.layers.1.k_proj"), 4.0);
        assert_eq!(config.scale("model.layers.1.q_proj"), 2.0);
    }
}
