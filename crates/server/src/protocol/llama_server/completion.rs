//! `POST /completion` and `POST /infill`.

use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::response::Response;
use inference_core::Prompt;
use serde_json::Value as Json;

use super::bias::{self, OfTexts};
use super::prompts::{encoded, prompts};
use super::tables;
use super::wire::{Answer, LlamaWire, Told};
use crate::error::{ApiError, Result};
use crate::fields::reader::Reader;
use crate::fields::told::take_hint;
use crate::pool::loaded::Loaded;
use crate::protocol::generate::{Asked, Delivery, Started, generate};
use crate::protocol::infill::{Infill, Shown, infill};
use crate::protocol::openai::options::{Sampling, UsageEvent, most_tokens, sampling};
use crate::protocol::openai::{foreign, tables as openai};
use crate::protocol::request::{Checked, checked};
use crate::run::part::Usage;
use crate::run::reading::Reading;
use crate::run::state::State;

/// The most names of `response_fields`.
const MOST_FIELDS: usize = 64;

/// The fields that both requests have, read.
struct Wanted {
    /// The generations.
    asked: Asked,
    /// The parts that are told of them.
    told: Told,
    /// Biases of the tokens of texts.
    biases: OfTexts,
}

/// Text that is continued.
struct Begun {
    ids: Vec<u32>,
    text: String,
    /// Tokens that end an answer.
    ends: Vec<u32>,
}

/// Continues texts.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn complete(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    let tables = &[openai::SAMPLING, foreign::GENERATING, tables::BOTH, tables::COMPLETION];
    let Checked { mut reader, loaded, bytes } = checked(&state, request, tables).await?;
    let Wanted { mut asked, told, biases } = wanted(&mut reader, &state, loaded.name())?;
    let prompt = reader.take("prompt").unwrap_or_default();
    let prompts = prompts("prompt", prompt, state.config.limits.prompts)?;
    reader.finish()?;
    asked.prompts = prompts.len();
    generate(&state, &loaded, asked, bytes, move |loaded, asked| {
        let begun = |prompt| {
            let (ids, text) = encoded(loaded.model.as_ref(), prompt)?;
            Ok(Begun { ids, text, ends: Vec::new() })
        };
        let begun = prompts.into_iter().map(begun).collect::<Result<Vec<_>>>()?;
        started(loaded, asked, begun, told, &biases)
    })
    .await
}

/// Fills in a text between two others.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn fill_in(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    let tables = &[openai::SAMPLING, foreign::GENERATING, tables::BOTH, tables::INFILL];
    let Checked { mut reader, loaded, bytes } = checked(&state, request, tables).await?;
    let Wanted { mut asked, told, biases } = wanted(&mut reader, &state, loaded.name())?;
    asked.text_field = "input_prefix";
    let mut prefix = reader.text("input_prefix")?.unwrap_or_default();
    prefix.push_str(&reader.text("prompt")?.unwrap_or_default());
    let suffix = reader.text("input_suffix")?.unwrap_or_default();
    let shown = shown(reader.list("input_extra")?.unwrap_or_default())?;
    reader.finish()?;
    generate(&state, &loaded, asked, bytes, move |loaded, asked| {
        let texts = (prefix.as_str(), suffix.as_str());
        let Infill { text, ids, ends } =
            infill(loaded.model.as_ref(), &shown, texts, "input_suffix")?;
        started(loaded, asked, vec![Begun { ids, text, ends }], told, &biases)
    })
    .await
}

/// Starts the answers to what has `begun`.
fn started(
    loaded: &Loaded,
    asked: &Asked,
    begun: Vec<Begun>,
    told: Told,
    biases: &OfTexts,
) -> Result<Started<LlamaWire>> {
    let model = &loaded.model;
    let biases = biases.with(&asked.options.logit_bias, model.as_ref())?;
    let (mut generations, mut answers) = (Vec::new(), Vec::new());
    for Begun { ids, text, ends } in begun {
        asked.check_context(ids.len())?;
        let (count, prompt) = (ids.len(), Prompt::Ids(ids));
        for index in 0..asked.per_prompt {
            let mut options = asked.options_of(index, model.as_ref(), count);
            options.stop_token_ids.extend(&ends);
            options.logit_bias.clone_from(&biases);
            let of_tokens = bias::told(&options, model.as_ref());
            let most = asked.options.max_tokens;
            answers.push(Answer::new(text.clone(), count, &options, most, of_tokens));
            let generation = model.generate(&prompt, &options)?;
            generations.push((generation, Reading::of_text(Some(Arc::clone(model)))));
        }
    }
    let own = model.info().context_length;
    let context = asked.context.map_or(own, |most| most.min(own));
    let wire = LlamaWire { context, answers, told, progress: Usage::default() };
    Ok(Started { generations, wire })
}

/// The fields that both requests have.
fn wanted(reader: &mut Reader, state: &State, model: &str) -> Result<Wanted> {
    let limits = &state.config.limits;
    let biases = bias::of_texts(reader, limits.logit_bias)?;
    let Sampling { mut asked, usage, times } = sampling(reader, limits)?;
    if usage != UsageEvent::Untold {
        take_hint("stream_options", "the last piece tells the usage in any case")?;
    }
    asked.options.max_tokens = most_tokens(reader, "max_tokens")?.flatten();
    let top = reader.count("n_probs")?.unwrap_or(0);
    (asked.options.logprobs, asked.options.top_logprobs) = (top > 0, top);
    (asked.count_field, asked.text_field) = ("prompt", "prompt");
    let tokens = reader.bool("return_tokens")?.unwrap_or(false);
    let fields = reader.texts("response_fields")?.unwrap_or_default();
    if fields.len() > MOST_FIELDS {
        let reason = format!("has more than {MOST_FIELDS} names");
        return Err(ApiError::value("response_fields", reason));
    }
    // Pieces of a stream have them in any case.
    let tokens = tokens && asked.delivery == Delivery::Whole;
    let model = model.to_owned();
    let told = Told { model, times, tokens, probabilities: top > 0, fields };
    Ok(Wanted { asked, told, biases })
}

fn shown(items: Vec<Json>) -> Result<Vec<Shown>> {
    let one = |(index, item)| {
        let mut file = Reader::new(format!("input_extra[{index}]"), item)?;
        let text = file.text("text")?;
        let text = file.need("text", text)?;
        let name = file.text("filename")?.unwrap_or_else(|| format!("file{index}"));
        file.finish()?;
        Ok(Shown { name, text })
    };
    items.into_iter().enumerate().map(one).collect()
}
