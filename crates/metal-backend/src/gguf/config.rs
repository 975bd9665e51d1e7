//! The `config.json` that is made from a file's metadata.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use super::blocks::Form;
use super::ends;
use super::metadata::Metadata;
use super::pieces::Piece;
use super::reader::{Value, shown};
use crate::error::{Error, Result};

/// The text of the config.
///
/// # Errors
/// Metadata that is missing or not known, by name.
pub(super) fn text(metadata: &Metadata<'_>, pieces: &[Piece]) -> Result<String> {
    let header = metadata.header;
    let heads = metadata.largest("attention.head_count")?;
    let heads = heads.ok_or_else(|| {
        Error::model(format!("has no `{}`", metadata.key("attention.head_count")))
    })?;
    let head_dim = metadata.head_dim()?;
    check_sizes(metadata, head_dim)?;
    let vocab = header.tensors.get("token_embd.weight").and_then(|found| found.shape.first());
    let vocab = vocab.ok_or_else(|| Error::model("has no tensor `token_embd.weight`"))?;
    let kv_heads = metadata.largest("attention.head_count_kv")?.unwrap_or(heads);
    let theta = metadata.float("rope.freq_base")?.unwrap_or(1e4);
    const EPSILON: &str = "attention.layer_norm_rms_epsilon";
    let epsilon = match metadata.float(EPSILON)? {
        Some(epsilon) => epsilon,
        // Where norms are around the mean.
        None if metadata.of.reads("attention.layer_norm_epsilon") => 1e-5,
        None => return Err(Error::model(format!("has no `{}`", metadata.key(EPSILON)))),
    };
    let Json::Object(mut config) = json!({
        "model_type": metadata.of.model_type,
        "hidden_size": metadata.required("embedding_length")?,
        "num_hidden_layers": metadata.layers()?,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "vocab_size": vocab,
        "max_position_embeddings": metadata.required("context_length")?,
        "tie_word_embeddings": !metadata.has("output.weight"),
        "attention_bias": metadata.has("blk.0.attn_q.bias"),
        "mlp_bias": metadata.has("blk.0.ffn_gate.bias"),
        "hidden_act": "silu",
        "rms_norm_eps": epsilon,
        "rope_theta": theta,
    }) else {
        unreachable!("it is an object")
    };
    // Mixtures without a dense layer have none.
    if let Some(inner) = metadata.largest("feed_forward_length")? {
        config.insert("intermediate_size".into(), json!(inner));
    }
    if let Some(scaling) = scaling(metadata, (head_dim, theta))? {
        config.insert("rope_scaling".into(), scaling);
    }
    (metadata.of.config)(metadata, &mut config)?;
    let token = |key: &str| {
        header.metadata.get(&format!("tokenizer.ggml.{key}_token_id")).and_then(Value::whole)
    };
    if let Some(id) = token("bos") {
        config.insert("bos_token_id".into(), json!(id));
    }
    let ends = ends::of(header);
    if !ends.is_empty() {
        config.insert("eos_token_id".into(), json!(ends));
    }
    if let Some(quantization) = quantization(pieces) {
        config.insert("quantization".into(), quantization);
    }
    Ok(Json::Object(config).to_string())
}

/// Refuses heads whose parts have sizes of their own, where the architecture does not read them.
///
/// # Errors
/// Such a size, by name.
fn check_sizes(metadata: &Metadata<'_>, head_dim: u64) -> Result<()> {
    for key in ["attention.value_length", "rope.dimension_count"] {
        let found = metadata.number(key)?;
        if found.is_some_and(|size| size != head_dim) && !metadata.of.reads(key) {
            return Err(Error::model(format!(
                "`{}` is not {head_dim}, the size of a head, which alone works",
                metadata.key(key)
            )));
        }
    }
    Ok(())
}

/// How modules are packed: in the form that most have, and those by name that have others.
fn quantization(pieces: &[Piece]) -> Option<Json> {
    let packed = || pieces.iter().filter_map(|piece| Some((&piece.module, piece.form()?)));
    let mut counts: BTreeMap<Form, usize> = BTreeMap::new();
    packed().for_each(|(_, form)| *counts.entry(form).or_default() += 1);
    let (&usual, _) = counts.iter().max_by_key(|(_, count)| **count)?;
    let form =
        |Form { bits, group, mode }: Form| json!({"group_size": group, "bits": bits, "mode": mode});
    let mut all = form(usual);
    for (module, own) in packed().filter(|(_, own)| *own != usual) {
        all[module.as_str()] = form(own);
    }
    Some(all)
}

/// How positions are stretched.
///
/// # Errors
/// A way that is not known, by name; factors of Llama 3 that are none of its releases'.
fn scaling(metadata: &Metadata<'_>, (head_dim, base): (u64, f64)) -> Result<Option<Json>> {
    let factors = metadata.factors;
    if let Some(factors) =
        factors.get("rope_freqs.weight").filter(|_| !metadata.of.reads("rope_freqs"))
    {
        return llama3(factors, head_dim, base).map(Some);
    }
    let long = ["rope_factors_long.weight", "rope_factors_short.weight"];
    match long.map(|name| factors.get(name)) {
        [None, None] => {}
        [Some(long), Some(short)] if metadata.of.reads("rope_factors") => {
            return Ok(Some(json!({
                "rope_type": "longrope", "long_factor": long, "short_factor": short,
            })));
        }
        _ => {
            let [long, short] = long;
            return Err(Error::model(format!(
                "`{long}` and `{short}` work in files of phi3 that have both"
            )));
        }
    }
    let key = metadata.key("rope.scaling.type");
    // Older files have the factor alone, under this or an older name.
    let factor = match metadata.float("rope.scaling.factor")? {
        None => metadata.float("rope.scale_linear")?,
        factor => factor,
    };
    let factor = factor.filter(|factor| *factor != 0.0).unwrap_or(1.0);
    let way = match metadata.header.metadata.get(&key) {
        Some(Value::Text(text)) => text.as_str(),
        _ if factor != 1.0 => "linear",
        _ => "none",
    };
    match way {
        "none" => Ok(None),
        "linear" => Ok(Some(json!({"rope_type": "linear", "factor": factor}))),
        "yarn" => yarn(metadata, factor).map(Some),
        other => {
            let other = shown(other);
            Err(Error::model(format!("`{key}` is `{other}`; none, linear, yarn work")))
        }
    }
}

/// YaRN's parameters.
///
/// # Errors
/// One that is no number.
fn yarn(metadata: &Metadata<'_>, factor: f64) -> Result<Json> {
    let mut all = Map::new();
    all.insert("rope_type".into(), json!("yarn"));
    all.insert("factor".into(), json!(factor));
    let original = metadata.number("rope.scaling.original_context_length")?;
    all.extend(original.map(|n| ("original_max_position_embeddings".into(), json!(n))));
    for (theirs, key) in [
        ("yarn_beta_fast", "beta_fast"),
        ("yarn_beta_slow", "beta_slow"),
        ("yarn_attn_factor", "attention_factor"),
    ] {
        let found = metadata.float(&format!("rope.scaling.{theirs}"))?;
        all.extend(found.map(|value| (key.into(), json!(value))));
    }
    Ok(Json::Object(all))
}

/// How Llama 3.1 and its successors stretch positions, whose files have the factors alone: what
/// divides the speed of each pair.
///
/// # Errors
/// Factors that are none of theirs.
fn llama3(factors: &[f32], head_dim: u64, base: f64) -> Result<Json> {
    const ORIGINAL: f64 = 8192.0;
    const LOW: f64 = 1.0;
    const HIGH: f64 = 4.0;
    let factor = f64::from(factors.iter().copied().fold(1.0, f32::max));
    let expected = |pair: usize| {
        let turn = std::f64::consts::TAU * base.powf(2.0 * pair as f64 / head_dim as f64);
        let turns = ORIGINAL / turn;
        let smooth = ((turns - LOW) / (HIGH - LOW)).clamp(0.0, 1.0);
        1.0 / ((1.0 - smooth) / factor + smooth)
    };
    let is_near =
        |(pair, found): (usize, &f32)| (f64::from(*found) / expected(pair) - 1.0).abs() < 1e-3;
    if factors.len() as u64 != head_dim / 2 || !factors.iter().enumerate().all(is_near) {
        return Err(Error::model(
            "tensor `rope_freqs.weight` has other factors than Llama 3.1 and its successors",
        ));
    }
    Ok(json!({
        "rope_type": "llama3", "factor": factor, "low_freq_factor": LOW, "high_freq_factor": HIGH,
        "original_max_position_embeddings": 8192,
    }))
}
