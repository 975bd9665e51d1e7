//! `logit_bias` as llama.cpp's requests have it: keys are ids, or texts whose tokens are meant.

use inference_core::{GenerateOptions, TextModel};
use serde_json::{Value as Json, json};

use crate::error::Result;
use crate::fields::json::number;
use crate::fields::reader::Reader;
use crate::protocol::openai::options::bias_of;
use crate::protocol::tokens::bare;

/// Texts with the bias of each of their tokens.
pub type OfTexts = Vec<(String, f32)>;

/// Takes the entries of `logit_bias` that are texts; the others stay.
///
/// # Errors
/// A bias is no number from -100 to 100.
pub fn of_texts(reader: &mut Reader) -> Result<OfTexts> {
    let mut texts = Vec::new();
    let is_id = |key: &str| key.bytes().all(|byte| byte.is_ascii_digit()) && !key.is_empty();
    let left = match reader.take("logit_bias") {
        None => return Ok(texts),
        Some(Json::Object(fields)) => {
            let (ids, others) = fields.into_iter().partition(|(key, _)| is_id(key));
            let others: serde_json::Map<String, Json> = others;
            for (text, bias) in others {
                let bias = bias_of(&text, &bias)?;
                texts.push((text, bias));
            }
            Json::Object(ids)
        }
        Some(Json::Array(pairs)) => {
            let mut ids = Vec::new();
            for pair in pairs {
                match pair.as_array().map(Vec::as_slice) {
                    Some([Json::String(text), Json::Bool(false)]) => {
                        texts.push((text.clone(), f32::NEG_INFINITY));
                    }
                    Some([Json::String(text), bias]) => {
                        texts.push((text.clone(), bias_of(text, bias)?));
                    }
                    _ => ids.push(pair),
                }
            }
            Json::Array(ids)
        }
        Some(other) => other,
    };
    reader.put("logit_bias", left);
    Ok(texts)
}

/// Adds the biases of `texts` to `options`.
///
/// # Errors
/// The tokenizer fails.
pub fn add(options: &mut GenerateOptions, texts: &OfTexts, model: &dyn TextModel) -> Result<()> {
    for (text, bias) in texts {
        options.logit_bias.extend(bare(model, text)?.into_iter().map(|id| (id, *bias)));
    }
    Ok(())
}

/// The biases of an answer, as llama.cpp tells them: `null` is never.
pub fn told(options: &GenerateOptions, model: &dyn TextModel) -> Json {
    let ends = model.info().eos_token_ids.iter().filter(|_| options.ignore_eos);
    let never = ends.map(|id| json!({"token": id, "bias": null}));
    let bias = |bias: f32| if bias.is_finite() { number(bias) } else { Json::Null };
    let own = options.logit_bias.iter().map(|(id, by)| json!({"token": id, "bias": bias(*by)}));
    own.chain(never).collect()
}
