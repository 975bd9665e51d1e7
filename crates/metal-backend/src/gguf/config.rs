//! What stands for the `config.json` of a file.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use super::architecture::Architecture;
use super::blocks::GROUP;
use super::pieces::Piece;
use super::reader::{Header, Value};
use crate::error::{Error, Result};

/// Layers of the largest Gemma 2 and Gemma 3, whose scores have another scale than the root of a head's size.
const LARGEST_GEMMA: [u64; 2] = [46, 62];

/// What divides the speeds of rotations, by the name of the tensor that says so.
pub(super) type Factors = BTreeMap<&'static str, Vec<f32>>;

/// The text of the config.
///
/// # Errors
/// Metadata that is missing or not known, by name.
pub(super) fn text(
    header: &Header,
    of: Architecture,
    pieces: &[Piece],
    factors: &Factors,
) -> Result<String> {
    let has = |name: &str| header.tensors.contains_key(name);
    let required = |key: &str| of.required(header, key);
    let (hidden, heads) = (required("embedding_length")?, required("attention.head_count")?);
    let head_dim = match of.number(header, "attention.key_length")? {
        Some(size) => size,
        None => hidden / heads.max(1),
    };
    if of.number(header, "attention.value_length")?.is_some_and(|size| size != head_dim) {
        let [value, key] =
            ["attention.value_length", "attention.key_length"].map(|key| of.key(key));
        return Err(Error::model(format!("`{value}` is not `{key}`, which alone works")));
    }
    let vocab = header.tensors.get("token_embd.weight").and_then(|found| found.shape.first());
    let vocab = vocab.ok_or_else(|| Error::model("has no tensor `token_embd.weight`"))?;
    let each = of.kv_heads(header)?.unwrap_or_else(|| vec![heads]);
    let kv_heads = each.iter().copied().max().unwrap_or(heads);
    if of != Architecture::Lfm2 && each.iter().any(|count| *count != kv_heads) {
        let key = of.key("attention.head_count_kv");
        return Err(Error::model(format!("`{key}` differs between layers, which is not known")));
    }
    let theta = of.float(header, "rope.freq_base")?;
    let theta = theta.unwrap_or(if of == Architecture::Gemma3 { 1e6 } else { 1e4 });
    let epsilon = of.float(header, "attention.layer_norm_rms_epsilon")?.unwrap_or(1e-6);
    let Json::Object(mut config) = json!({
        "model_type": of.model_type(),
        "hidden_size": hidden,
        "num_hidden_layers": required("block_count")?,
        "intermediate_size": required("feed_forward_length")?,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "vocab_size": vocab,
        "max_position_embeddings": required("context_length")?,
        "tie_word_embeddings": !has("output.weight"),
        "attention_bias": of != Architecture::Qwen2 && has("blk.0.attn_q.bias"),
        "mlp_bias": has("blk.0.ffn_gate.bias"),
        "rms_norm_eps": epsilon,
        "rope_theta": theta,
    }) else {
        unreachable!("it is an object")
    };
    own(&mut config, header, of, head_dim)?;
    if let Some(scaling) = scaling(header, of, (head_dim, theta), factors)? {
        config.insert("rope_scaling".into(), scaling);
    }
    let token = |key: &str| match header.metadata.get(&format!("tokenizer.ggml.{key}_token_id")) {
        Some(Value::Unsigned(id)) => Some(*id),
        _ => None,
    };
    if let Some(id) = token("bos") {
        config.insert("bos_token_id".into(), json!(id));
    }
    let ends: Vec<u64> = ["eos", "eot", "eom"].into_iter().filter_map(token).collect();
    if !ends.is_empty() {
        config.insert("eos_token_id".into(), json!(ends));
    }
    if let Some(quantization) = quantization(pieces) {
        config.insert("quantization".into(), quantization);
    }
    Ok(Json::Object(config).to_string())
}

/// Adds what only some architectures state.
///
/// # Errors
/// Metadata that is missing or not known, by name.
fn own(
    config: &mut Map<String, Json>,
    header: &Header,
    of: Architecture,
    head_dim: u64,
) -> Result<()> {
    let required = |key: &str| of.required(header, key);
    let float = |key: &str| of.float(header, key);
    let rotated = of.number(header, "rope.dimension_count")?.unwrap_or(head_dim);
    if rotated != head_dim && of != Architecture::Phi3 {
        let key = of.key("rope.dimension_count");
        return Err(Error::model(format!("`{key}` is not {head_dim}, the size of a head")));
    }
    let mut set = |key: &str, value: Json| config.insert(key.to_owned(), value);
    if of.is_gemma() {
        let is_largest = LARGEST_GEMMA.contains(&required("block_count")?);
        let whole = required("embedding_length")? / required("attention.head_count")?.max(1);
        set("query_pre_attn_scalar", json!(if is_largest { whole } else { head_dim }));
        set("sliding_window", json!(required("attention.sliding_window")?));
        set("hidden_activation", json!("gelu_pytorch_tanh"));
        set("final_logit_softcapping", json!(float("final_logit_softcapping")?));
    } else {
        set("hidden_act", json!("silu"));
    }
    match of {
        Architecture::Gemma2 => {
            set("attn_logit_softcapping", json!(float("attn_logit_softcapping")?));
        }
        Architecture::Gemma3 => {
            set("sliding_window_pattern", json!(6));
            let local = float("rope.freq_base_swa")?.unwrap_or(10_000.0);
            set("rope_local_base_freq", json!(local));
        }
        Architecture::Granite => {
            let usual = (head_dim as f64).sqrt().recip();
            set("attention_multiplier", json!(float("attention.scale")?.unwrap_or(usual)));
            for (theirs, key) in [
                ("embedding_scale", "embedding_multiplier"),
                ("residual_scale", "residual_multiplier"),
                ("logit_scale", "logits_scaling"),
            ] {
                set(key, json!(float(theirs)?.unwrap_or(1.0)));
            }
        }
        Architecture::Qwen3Moe => {
            set("num_experts", json!(required("expert_count")?));
            set("num_experts_per_tok", json!(required("expert_used_count")?));
            set("moe_intermediate_size", json!(required("expert_feed_forward_length")?));
            set("norm_topk_prob", json!(true));
        }
        Architecture::GptOss => {
            set("num_local_experts", json!(required("expert_count")?));
            set("num_experts_per_tok", json!(required("expert_used_count")?));
            set("intermediate_size", json!(required("expert_feed_forward_length")?));
            set("sliding_window", json!(required("attention.sliding_window")?));
        }
        Architecture::Lfm2 => {
            let each = of.kv_heads(header)?.unwrap_or_default();
            let with_attention = (0..each.len()).filter(|layer| each[*layer] > 0);
            set("full_attn_idxs", json!(with_attention.collect::<Vec<_>>()));
            set("conv_L_cache", json!(required("shortconv.l_cache")?));
            set("conv_bias", json!(false));
            set("block_auto_adjust_ff_dim", json!(false));
            let epsilon = float("attention.layer_norm_rms_epsilon")?;
            set("norm_eps", json!(epsilon.unwrap_or(1e-5)));
        }
        Architecture::Phi3 => {
            set("partial_rotary_factor", json!(rotated as f64 / head_dim as f64));
            let window = of.number(header, "attention.sliding_window")?;
            set("sliding_window", json!(window.filter(|window| *window > 0)));
            let original = of.number(header, "rope.scaling.original_context_length")?;
            if let Some(original) = original {
                set("original_max_position_embeddings", json!(original));
            }
        }
        _ => {}
    }
    Ok(())
}

/// How modules are packed: in the form that most have, and those by name that have others.
fn quantization(pieces: &[Piece]) -> Option<Json> {
    let packed = || pieces.iter().filter_map(|piece| Some((&piece.module, piece.form()?)));
    let mut counts: BTreeMap<(usize, &str), usize> = BTreeMap::new();
    packed().for_each(|(_, form)| *counts.entry(form).or_default() += 1);
    let (&usual, _) = counts.iter().max_by_key(|(_, count)| **count)?;
    let form =
        |(bits, mode): (usize, &str)| json!({"group_size": GROUP, "bits": bits, "mode": mode});
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
fn scaling(
    header: &Header,
    of: Architecture,
    (head_dim, base): (u64, f64),
    factors: &Factors,
) -> Result<Option<Json>> {
    let by = of.float(header, "rope.scaling.attn_factor")?.unwrap_or(1.0);
    if by != 1.0 && of != Architecture::Phi3 {
        return Err(Error::model(format!(
            "`{}` is {by}, which is not known; use a folder of safetensors",
            of.key("rope.scaling.attn_factor")
        )));
    }
    if let Some(factors) = factors.get("rope_freqs.weight") {
        return llama3(factors, head_dim, base).map(Some);
    }
    let long = ["rope_factors_long.weight", "rope_factors_short.weight"];
    match long.map(|name| factors.get(name)) {
        [None, None] => {}
        [Some(long), Some(short)] if of == Architecture::Phi3 => {
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
    let key = of.key("rope.scaling.type");
    // Older files have the factor alone, under this or an older name.
    let factor = match of.float(header, "rope.scaling.factor")? {
        None => of.float(header, "rope.scale_linear")?,
        factor => factor,
    };
    let factor = factor.filter(|factor| *factor != 0.0).unwrap_or(1.0);
    let way = match header.metadata.get(&key) {
        Some(Value::Text(text)) => text.as_str(),
        _ if factor != 1.0 => "linear",
        _ => "none",
    };
    match way {
        "none" => Ok(None),
        "linear" => Ok(Some(json!({"rope_type": "linear", "factor": factor}))),
        "yarn" => yarn(header, of, factor).map(Some),
        other => Err(Error::model(format!("`{key}` is `{other}`; none, linear, yarn work"))),
    }
}

/// YaRN's parameters.
///
/// # Errors
/// One that is no number.
fn yarn(header: &Header, of: Architecture, factor: f64) -> Result<Json> {
    let mut all = Map::new();
    all.insert("rope_type".into(), json!("yarn"));
    all.insert("factor".into(), json!(factor));
    if of == Architecture::GptOss {
        // Files do not say it.
        all.insert("truncate".into(), json!(false));
    }
    let original = of.number(header, "rope.scaling.original_context_length")?;
    all.extend(original.map(|n| ("original_max_position_embeddings".into(), json!(n))));
    for (theirs, key) in [
        ("yarn_beta_fast", "beta_fast"),
        ("yarn_beta_slow", "beta_slow"),
        ("yarn_attn_factor", "attention_factor"),
    ] {
        let found = of.float(header, &format!("rope.scaling.{theirs}"))?;
        all.extend(found.map(|value| (key.into(), json!(value))));
    }
    Ok(Json::Object(all))
}

/// How Llama 3.1 and its successors stretch positions, whose files have the factors alone: what divides the speed
/// of each pair.
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
