//! The `config.json` of the result.

use serde_json::{Map, Value};

use super::options::QuantiseOptions;
use super::python_json;
use crate::error::{Result, load};
use crate::files::ModelFiles;

/// The key of the vision tower's config.
const VISION: &str = "vision_config";

/// The text of the new config for a model of the `model_type` `family`: that of `source`, sorted,
/// with the quantisation and the end tokens of `generation_config.json`, without what says nothing
/// of the result.
///
/// # Errors
/// Files that are no JSON objects.
pub(super) fn text(
    files: &ModelFiles,
    source: &str,
    family: &str,
    options: &QuantiseOptions,
    quantization: Value,
) -> Result<String> {
    let parse = |name: &str, text: &str| -> Result<Map<String, Value>> {
        let value = python_json::parse(text).map_err(|error| load(&files.path(name), error))?;
        match value {
            Value::Object(fields) => Ok(fields),
            _ => Err(load(&files.path(name), "holds no object")),
        }
    };
    let mut fields = parse("config.json", source)?;
    if let Some(text) = files.text("generation_config.json")? {
        let ends = parse("generation_config.json", &text)?.remove("eos_token_id");
        let is_empty = |ends: &Value| match ends {
            Value::Null => true,
            Value::Array(ends) => ends.is_empty(),
            // As mlx-lm reads it: the number 0 says nothing.
            other => other.as_u64() == Some(0),
        };
        if let Some(ends) = ends.filter(|ends| !is_empty(ends)) {
            fields.insert("eos_token_id".to_owned(), ends);
        }
    }
    fill_in(family, &mut fields);
    fields.remove("_name_or_path");
    if !options.keep_vision {
        fields.remove(VISION);
    }
    fields.insert("quantization".to_owned(), quantization.clone());
    fields.insert("quantization_config".to_owned(), quantization);
    fields.sort_keys();
    Ok(python_json::dump(&Value::Object(fields)))
}

/// Adds the defaults that mlx-lm adds to a config while it reads it.
fn fill_in(family: &str, fields: &mut Map<String, Value>) {
    let vocabulary = fields.get("vocab_size").cloned();
    let Some(Value::Object(text)) = fields.get_mut("text_config") else {
        if family.starts_with("qwen3_5") {
            name_rope_type(fields);
        }
        return;
    };
    let defaults: &[(&str, Value)] = match family {
        "mistral3" => &[("tie_word_embeddings", Value::Bool(false))],
        "gemma3" => &[
            ("vocab_size", vocabulary.unwrap_or(262_208.into())),
            ("num_attention_heads", 8.into()),
            ("num_key_value_heads", 4.into()),
        ],
        "gemma4" | "gemma4_unified" => &[
            ("vocab_size", vocabulary.unwrap_or(262_144.into())),
            ("num_attention_heads", 8.into()),
            ("num_key_value_heads", 1.into()),
        ],
        _ => &[],
    };
    for (key, value) in defaults {
        text.entry(*key).or_insert_with(|| value.clone());
    }
    if family.starts_with("qwen3_5") {
        name_rope_type(text);
    }
}

/// Qwen 3.5: `rope_type` is called `type`.
fn name_rope_type(fields: &mut Map<String, Value>) {
    if let Some(Value::Object(rope)) = fields.get_mut("rope_parameters")
        && !rope.contains_key("type")
        && let Some(kind) = rope.shift_remove("rope_type")
    {
        rope.insert("type".to_owned(), kind);
    }
}
