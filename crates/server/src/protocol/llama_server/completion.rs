//! `POST /completion` and `POST /infill`.

use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::response::Response;
use inference_core::Prompt;
use serde_json::Value as Json;

use super::tables;
use super::wire::LlamaWire;
use crate::error::{ApiError, Result};
use crate::fields::prompts::prompts;
use crate::fields::reader::Reader;
use crate::fields::told::take_hint;
use crate::protocol::generate::{Asked, Started, generate};
use crate::protocol::infill::{Infill, Shown, infill};
use crate::protocol::openai::options::{Sampling, UsageEvent, most_tokens, sampling};
use crate::protocol::openai::{foreign, tables as openai};
use crate::protocol::request::{Checked, checked};
use crate::protocol::timings::Times;
use crate::run::reading::Reading;
use crate::run::state::State;

/// Continues a text.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn complete(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    let tables = &[openai::SAMPLING, foreign::GENERATING, tables::BOTH, tables::COMPLETION];
    let Checked { mut reader, loaded, bytes } = checked(&state, request, tables).await?;
    let (asked, times) = asked(&mut reader, &state)?;
    let mut prompts = prompts("prompt", reader.take("prompt").unwrap_or_default(), 1)?;
    reader.finish()?;
    let prompt = prompts.remove(0);
    let name = loaded.name().to_owned();
    generate(&state, &loaded, asked, bytes, move |loaded, asked| {
        let model = loaded.model.as_ref();
        let (ids, text) = match prompt {
            Prompt::Ids(ids) => {
                let text = model.decode_with_special(&ids)?;
                (ids, text)
            }
            Prompt::Text(text) => (model.encode(&text)?, text),
            Prompt::Parts(_) => {
                return Err(ApiError::value("prompt", "expected text or token ids"));
            }
        };
        asked.check_context(ids.len())?;
        let options = asked.options_of(0, model, ids.len());
        let wire = LlamaWire::new(name, text, model.info().context_length, &options);
        let wire = wire.telling(times);
        let generation = model.generate(&Prompt::Ids(ids), &options)?;
        Ok(Started { generations: vec![(generation, Reading::of_text(None))], wire })
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
    let (mut asked, times) = asked(&mut reader, &state)?;
    asked.text_field = "input_prefix";
    let mut prefix = reader.text("input_prefix")?.unwrap_or_default();
    prefix.push_str(&reader.text("prompt")?.unwrap_or_default());
    let suffix = reader.text("input_suffix")?.unwrap_or_default();
    let shown = shown(reader.list("input_extra")?.unwrap_or_default())?;
    reader.finish()?;
    let name = loaded.name().to_owned();
    generate(&state, &loaded, asked, bytes, move |loaded, asked| {
        let model = loaded.model.as_ref();
        let Infill { text, ids, ends } = infill(model, &shown, (&prefix, &suffix), "input_suffix")?;
        asked.check_context(ids.len())?;
        let mut options = asked.options_of(0, model, ids.len());
        options.stop_token_ids.extend(ends);
        let wire = LlamaWire::new(name, text, model.info().context_length, &options);
        let wire = wire.telling(times);
        let generation = model.generate(&Prompt::Ids(ids), &options)?;
        Ok(Started { generations: vec![(generation, Reading::of_text(None))], wire })
    })
    .await
}

/// The generation that both ask for, and whether pieces tell times.
fn asked(reader: &mut Reader, state: &State) -> Result<(Asked, Times)> {
    let Sampling { mut asked, usage, times } = sampling(reader, &state.config.limits)?;
    if usage != UsageEvent::Untold {
        take_hint("stream_options", "the last piece tells the usage in any case")?;
    }
    if asked.per_prompt != 1 {
        return Err(ApiError::unsupported("n", "there is one answer; see /v1/completions"));
    }
    asked.options.max_tokens = most_tokens(reader, "max_tokens")?.flatten();
    (asked.count_field, asked.text_field) = ("prompt", "prompt");
    Ok((asked, times))
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
