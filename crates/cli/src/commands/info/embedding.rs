//! Facts of embedding models for `ml info` and `ml list`.

use std::path::Path;

use inference_core::{EmbeddingLoadOptions, EmbeddingModelInfo, LoadOptions, Pooling};
use serde::Serialize;

use crate::bytes;
use crate::failure::{Failure, Result};
use crate::output::{one_line, print, print_json, printable};

/// Describes the model in `folder`.
///
/// # Errors
/// Options that say nothing of one; a folder that is no usable model.
pub fn describe(name: String, folder: &Path, options: &LoadOptions, as_json: bool) -> Result<()> {
    let info = metal_backend::describe_embedding_model(folder, &of(options)?)?;
    match as_json {
        true => print_json(&Description { model: name, facts: EmbeddingFacts::from(&info) }),
        false => print(&printable(&text(&name, &info))),
    }
}

/// The options of an embedding model's load.
fn of(options: &LoadOptions) -> Result<EmbeddingLoadOptions> {
    let LoadOptions { backend, dtype, .. } = options.clone();
    let told = LoadOptions { backend, dtype, ..LoadOptions::default() };
    if *options != told {
        let reason =
            "this is an embedding model: of the model's options --backend and --dtype concern it";
        return Err(Failure::Usage(reason.into()));
    }
    let LoadOptions { backend, dtype, .. } = told;
    Ok(EmbeddingLoadOptions { backend, dtype, ..EmbeddingLoadOptions::default() })
}

#[derive(Serialize)]
struct Description {
    model: String,
    #[serde(flatten)]
    facts: EmbeddingFacts,
}

/// Facts of an embedding model, here and in a list.
#[derive(Serialize)]
pub struct EmbeddingFacts {
    architecture: String,
    parameters: u64,
    vocab_size: usize,
    num_layers: usize,
    hidden_size: usize,
    weight_bytes: u64,
    /// `null` when unquantised.
    quantization_bits: Option<usize>,
    dtype: String,
    device: String,
    max_tokens: usize,
    /// `null` where the model embeds no texts.
    dimensions: Option<usize>,
    pooling: Option<&'static str>,
    normalizes: bool,
    scores: bool,
    prompts: Vec<Prompt>,
    default_prompt: Option<String>,
    similarity: Option<String>,
}

#[derive(Serialize)]
struct Prompt {
    name: String,
    text: String,
}

impl From<&EmbeddingModelInfo> for EmbeddingFacts {
    fn from(info: &EmbeddingModelInfo) -> Self {
        let prompt =
            |(name, text): &(String, String)| Prompt { name: name.clone(), text: text.clone() };
        EmbeddingFacts {
            architecture: info.architecture.clone(),
            parameters: info.num_parameters,
            vocab_size: info.vocab_size,
            num_layers: info.num_layers,
            hidden_size: info.hidden_size,
            weight_bytes: info.weight_bytes,
            quantization_bits: (info.quant_bits > 0).then_some(info.quant_bits),
            dtype: info.dtype.clone(),
            device: info.device.clone(),
            max_tokens: info.max_tokens,
            dimensions: info.dimensions,
            pooling: info.pooling.map(Pooling::as_str),
            normalizes: info.normalizes,
            scores: info.scores,
            prompts: info.prompts.iter().map(prompt).collect(),
            default_prompt: info.default_prompt.clone(),
            similarity: info.similarity.clone(),
        }
    }
}

/// The type of unquantised weights, or bits.
pub fn quantization(info: &EmbeddingModelInfo) -> String {
    match info.quant_bits {
        0 => format!("none, {}", info.dtype),
        bits => format!("{bits} bits"),
    }
}

fn text(name: &str, info: &EmbeddingModelInfo) -> String {
    let vectors = match (info.dimensions, info.pooling) {
        (Some(size), Some(pooling)) => {
            let length = if info.normalizes { "of length 1" } else { "of any length" };
            format!("{size} values {length}, pooled by {}", pooling.as_str())
        }
        _ => "none: the model scores pairs".to_owned(),
    };
    let rows = [
        ("model", name.to_owned()),
        ("architecture", info.architecture.clone()),
        ("parameters", bytes::parameters(info.num_parameters)),
        ("layers", format!("{} of width {}", info.num_layers, info.hidden_size)),
        ("vocabulary", info.vocab_size.to_string()),
        ("quantisation", quantization(info)),
        ("weights", bytes::human(info.weight_bytes)),
        ("computes in", format!("{} on {}", info.dtype, info.device)),
        ("texts", format!("at most {} tokens", info.max_tokens)),
        ("vectors", vectors),
        ("scores pairs", if info.scores { "yes" } else { "no" }.to_owned()),
    ];
    let mut text: String =
        rows.iter().map(|(label, value)| format!("{label:<15}{}\n", one_line(value))).collect();
    for (name, prompt) in &info.prompts {
        let default = if info.default_prompt.as_ref() == Some(name) { " (default)" } else { "" };
        text += &format!("{:<15}{}{default}: {prompt:?}\n", "prompt", one_line(name));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_prompts_and_scores_are_told() {
        let info = EmbeddingModelInfo {
            dimensions: Some(1024),
            pooling: Some(Pooling::Last),
            normalizes: true,
            max_tokens: 512,
            prompts: vec![("query".into(), "Query:\n".into())],
            default_prompt: Some("query".into()),
            ..EmbeddingModelInfo::default()
        };
        let text = text("m", &info);
        for line in [
            "vectors        1024 values of length 1, pooled by lasttoken\n",
            "texts          at most 512 tokens\n",
            "scores pairs   no\n",
            "prompt         query (default): \"Query:\\n\"\n",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
        let facts = serde_json::to_value(EmbeddingFacts::from(&info)).unwrap();
        assert_eq!(facts["pooling"], "lasttoken");
        assert_eq!(facts["prompts"][0]["name"], "query");
    }
}
