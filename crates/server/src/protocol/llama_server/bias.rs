//! `logit_bias` as llama.cpp's requests have it: keys are ids, or texts whose tokens are meant.

use std::collections::BTreeMap;

use inference_core::{GenerateOptions, TextModel};
use serde_json::{Value as Json, json};

use crate::error::{ApiError, Result};
use crate::fields::json::number;
use crate::fields::reader::Reader;
use crate::protocol::openai::options::bias_of;
use crate::protocol::tokens::bare;

/// Texts with the bias of each of their tokens.
pub struct OfTexts {
    texts: Vec<(String, f32)>,
    /// The most tokens that have a bias.
    most: usize,
}

/// Takes the entries of `logit_bias` that are texts; the others stay.
///
/// # Errors
/// A bias is no number from -100 to 100, or there are more than `most` texts.
pub fn of_texts(reader: &mut Reader, most: usize) -> Result<OfTexts> {
    let texts = taken(reader)?;
    if texts.len() > most {
        return Err(ApiError::value("logit_bias", format!("has more than {most} texts")));
    }
    Ok(OfTexts { texts, most })
}

fn taken(reader: &mut Reader) -> Result<Vec<(String, f32)>> {
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

impl OfTexts {
    /// The biases of the ids of `by_id` and of the tokens of these texts.
    ///
    /// # Errors
    /// They are too many, a token has two different ones, or the tokenizer fails.
    pub fn with(
        &self,
        by_id: &BTreeMap<u32, f32>,
        model: &dyn TextModel,
    ) -> Result<BTreeMap<u32, f32>> {
        let mut biases = by_id.clone();
        for (text, bias) in &self.texts {
            for id in bare(model, text)? {
                if biases.insert(id, *bias).is_some_and(|before| before != *bias) {
                    let reason = format!("gives the token {id} of `{text}` two biases");
                    return Err(ApiError::value("logit_bias", reason));
                }
            }
            if biases.len() > self.most {
                let reason = format!("has more than {} tokens", self.most);
                return Err(ApiError::value("logit_bias", reason));
            }
        }
        Ok(biases)
    }
}

/// The biases of an answer, as llama.cpp tells them: `null` is never.
pub fn told(options: &GenerateOptions, model: &dyn TextModel) -> Json {
    let ends = model.info().eos_token_ids.iter().filter(|_| options.ignore_eos);
    let never = ends.map(|id| json!({"token": id, "bias": null}));
    let bias = |bias: f32| if bias.is_finite() { number(bias) } else { Json::Null };
    let own = options.logit_bias.iter().map(|(id, by)| json!({"token": id, "bias": bias(*by)}));
    own.chain(never).collect()
}
