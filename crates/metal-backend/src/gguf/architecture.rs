//! The architectures that are known, and the numbers of their metadata.

use super::reader::{Header, Value};
use crate::error::{Error, Result};

/// The architectures that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Architecture {
    Llama,
    Qwen2,
    Qwen3,
    Qwen3Moe,
    Gemma2,
    Gemma3,
    Granite,
    SmolLm3,
    Phi3,
    Olmo2,
    GptOss,
    Lfm2,
}

use Architecture as A;

/// Each with its name in GGUF and its `model_type`.
const ARCHITECTURES: [(A, &str, &str); 12] = [
    (A::Llama, "llama", "llama"),
    (A::Qwen2, "qwen2", "qwen2"),
    (A::Qwen3, "qwen3", "qwen3"),
    (A::Qwen3Moe, "qwen3moe", "qwen3_moe"),
    (A::Gemma2, "gemma2", "gemma2"),
    (A::Gemma3, "gemma3", "gemma3_text"),
    (A::Granite, "granite", "granite"),
    (A::SmolLm3, "smollm3", "smollm3"),
    (A::Phi3, "phi3", "phi3"),
    (A::Olmo2, "olmo2", "olmo2"),
    (A::GptOss, "gpt-oss", "gpt_oss"),
    (A::Lfm2, "lfm2", "lfm2"),
];

/// Metadata that changes what is computed, and the architectures that read it.
const READ_BY_SOME: [(&str, &[A]); 14] = [
    ("attention.sliding_window", &[A::Gemma2, A::Gemma3, A::Phi3, A::GptOss]),
    ("attention.scale", &[A::Granite]),
    ("embedding_scale", &[A::Granite]),
    ("residual_scale", &[A::Granite]),
    ("logit_scale", &[A::Granite]),
    ("attn_logit_softcapping", &[A::Gemma2]),
    ("final_logit_softcapping", &[A::Gemma2, A::Gemma3]),
    ("expert_count", &[A::Qwen3Moe, A::GptOss]),
    ("expert_shared_count", &[]),
    ("leading_dense_block_count", &[]),
    ("attention.clamp_kqv", &[]),
    ("attention.max_alibi_bias", &[]),
    ("attention.temperature_scale", &[]),
    ("rope.scaling.yarn_log_multiplier", &[]),
];

impl Architecture {
    /// The architecture of a file.
    ///
    /// # Errors
    /// One that is not known, by name; metadata that is not known.
    pub fn of(header: &Header) -> Result<Architecture> {
        let name = match header.metadata.get("general.architecture") {
            Some(Value::Text(name)) => name.as_str(),
            _ => return Err(Error::model("has no `general.architecture`")),
        };
        let known = ARCHITECTURES.iter().find(|(_, known, _)| *known == name);
        let Some((of, ..)) = known else {
            let names = ARCHITECTURES.map(|(_, name, _)| name).join(", ");
            return Err(Error::model(format!(
                "has the architecture `{name}`; {names} work in GGUF, others as folders of safetensors"
            )));
        };
        for (key, readers) in READ_BY_SOME {
            let key = of.key(key);
            let is_off = match header.metadata.get(&key) {
                None | Some(Value::Unsigned(0) | Value::Signed(0) | Value::Flag(false)) => true,
                Some(Value::Float(value)) => *value == 0.0,
                Some(_) => false,
            };
            if !is_off && !readers.contains(of) {
                return Err(Error::model(format!(
                    "has `{key}`, which is not known of this architecture; use a folder of safetensors"
                )));
            }
        }
        Ok(*of)
    }

    /// Its `model_type`.
    pub fn model_type(self) -> &'static str {
        self.names().1
    }

    fn names(self) -> (&'static str, &'static str) {
        let found = ARCHITECTURES.iter().find(|(of, ..)| *of == self);
        found.map_or(("", ""), |(_, name, model_type)| (name, model_type))
    }

    /// Norms lie before and behind both halves of a block, and the files have them one larger.
    pub fn is_gemma(self) -> bool {
        matches!(self, A::Gemma2 | A::Gemma3)
    }

    /// Its activations outgrow f16.
    pub fn needs_range(self) -> bool {
        self.is_gemma() || self == A::GptOss
    }

    /// The rows of queries and keys stand in pairs.
    pub fn has_pairs(self) -> bool {
        matches!(self, A::Llama | A::Granite | A::SmolLm3)
    }

    /// The key that the architecture has for `key`.
    pub fn key(self, key: &str) -> String {
        format!("{}.{key}", self.names().0)
    }

    /// A whole number of the architecture's own metadata.
    ///
    /// # Errors
    /// What is no such number.
    pub fn number(self, header: &Header, key: &str) -> Result<Option<u64>> {
        let key = self.key(key);
        match header.metadata.get(&key) {
            None => Ok(None),
            Some(Value::Unsigned(number)) => Ok(Some(*number)),
            Some(Value::Signed(number)) if *number >= 0 => Ok(Some(*number as u64)),
            Some(_) => Err(Error::model(format!("`{key}` is no whole number, which alone works"))),
        }
    }

    /// A whole number that every file of the architecture has.
    ///
    /// # Errors
    /// One that is missing, or is none.
    pub fn required(self, header: &Header, key: &str) -> Result<u64> {
        let found = self.number(header, key)?;
        found.ok_or_else(|| Error::model(format!("has no `{}`", self.key(key))))
    }

    /// Heads of keys and values of each layer, 0 in one without attention; one number where all layers have as many.
    ///
    /// # Errors
    /// What is no such number, and no list of them.
    pub fn kv_heads(self, header: &Header) -> Result<Option<Vec<u64>>> {
        const KEY: &str = "attention.head_count_kv";
        let Some(Value::List(list)) = header.metadata.get(&self.key(KEY)) else {
            return Ok(self.number(header, KEY)?.map(|number| vec![number]));
        };
        let number = |value: &Value| match value {
            Value::Unsigned(number) => Some(*number),
            Value::Signed(number) => u64::try_from(*number).ok(),
            _ => None,
        };
        let found: Option<Vec<u64>> = list.iter().map(number).collect();
        found
            .map(Some)
            .ok_or_else(|| Error::model(format!("`{}` is no list of whole numbers", self.key(KEY))))
    }

    /// A number with a fraction.
    ///
    /// # Errors
    /// What is no such number.
    pub fn float(self, header: &Header, key: &str) -> Result<Option<f64>> {
        match header.metadata.get(&self.key(key)) {
            None => Ok(None),
            Some(Value::Float(value)) if value.is_finite() => Ok(Some(*value)),
            Some(Value::Float(value)) => {
                Err(Error::model(format!("`{}` is {value}, expected a number", self.key(key))))
            }
            Some(_) => Err(Error::model(format!("`{}` is no number", self.key(key)))),
        }
    }
}
