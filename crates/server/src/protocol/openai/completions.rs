//! `POST /v1/completions`.

use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::response::Response;
use inference_core::{Capabilities, Error, Feature, Prompt, Support, TextModel};

use super::completions_wire::{Answer, CompletionWire};
use super::head::Head;
use super::logprobs::Place;
use super::options::{Sampling, most_tokens, sampling};
use super::{foreign, tables};
use crate::error::{ApiError, Result};
use crate::fields::bounds::check_repeated;
use crate::fields::prompts::prompts;
use crate::fields::reader::Reader;
use crate::protocol::generate::{Asked, Delivery, Started, generate};
use crate::protocol::infill::{Infill, infill};
use crate::protocol::request::{Checked, checked};
use crate::run::reading::Reading;
use crate::run::state::State;

/// OpenAI's own, where a request sets none.
const MAX_TOKENS: usize = 16;

/// The fields of a request, read and checked.
struct Completion {
    prompts: Vec<Prompt>,
    sampling: Sampling,
    /// How many answers are told for each prompt.
    n: usize,
    echo: bool,
    logprobs: bool,
    /// The text behind the answer.
    suffix: Option<String>,
}

impl Completion {
    /// Sets `ignore_eos` where one token is asked for beside the prompt's, so that it is always
    /// reported. Clients that want the prompt's alone take the last entry off, whatever it is.
    fn tell_the_end(&mut self, capabilities: &Capabilities) {
        let options = &mut self.sampling.asked.options;
        if options.prompt_logprobs
            && options.max_tokens == Some(1)
            && options.constraint.is_none()
            && capabilities.support(Feature::Stop) == Support::Yes
        {
            options.ignore_eos = true;
        }
    }
}

/// Continues texts.
///
/// # Errors
/// As the documentation of errors has them.
pub async fn create(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    let tables = &[tables::SAMPLING, tables::COMPLETIONS, foreign::GENERATING, foreign::OF_LLAMA];
    let Checked { mut reader, loaded, bytes } = checked(&state, request, tables).await?;
    let mut completion = read(&mut reader, &state)?;
    reader.finish()?;
    completion.tell_the_end(loaded.model.capabilities());
    let Completion { prompts, sampling, n, echo, logprobs, suffix } = completion;
    let Sampling { asked, usage, times } = sampling;
    let head = Head::new(state.id("cmpl-"), loaded.name(), usage).telling(times);
    let most = state.config.limits.prompt_logprobs;
    generate(&state, &loaded, asked, bytes, move |loaded, asked| {
        // The prompt's tokens, where they are told, are its text, and the first of them begins it.
        let tells_prompt = asked.options.prompt_logprobs;
        let needs_text = (echo || logprobs) && !tells_prompt || suffix.is_some();
        let encoded = encode(loaded.model.as_ref(), prompts, needs_text)?;
        check_prompt_logprobs(asked, &encoded, most)?;
        let (mut generations, mut answers) = (Vec::new(), Vec::new());
        for (mut ids, text) in encoded {
            let mut ends = Vec::new();
            if let Some(suffix) = &suffix {
                let texts = (text.as_str(), suffix.as_str());
                Infill { ids, ends, .. } = infill(loaded.model.as_ref(), &[], texts, "suffix")?;
            }
            let place = Place::behind(text.chars().count());
            let echo = if echo { text } else { String::new() };
            let answer = Answer { echo, place };
            let (count, prompt) = (ids.len(), Prompt::Ids(ids));
            asked.check_context(count)?;
            for index in 0..asked.per_prompt {
                let mut options = asked.options_of(index, loaded.model.as_ref(), count);
                options.stop_token_ids.extend(&ends);
                let scores = options.logprobs.then(|| Arc::clone(&loaded.model));
                let generation = loaded.model.generate(&prompt, &options)?;
                generations.push((generation, Reading::of_text(scores)));
                answers.push(answer.clone());
            }
        }
        let best_of = asked.per_prompt;
        Ok(Started { generations, wire: CompletionWire { head, answers, best_of, n, logprobs } })
    })
    .await
}

fn read(reader: &mut Reader, state: &State) -> Result<Completion> {
    let limits = &state.config.limits;
    let mut sampling = sampling(reader, limits)?;
    let asked = &mut sampling.asked;
    let n = asked.per_prompt;
    let echo = reader.bool("echo")?.unwrap_or(false);
    let top = reader.count("logprobs")?;
    let best_of = reader.count("best_of")?.unwrap_or(n);
    if best_of < n {
        return Err(ApiError::value("best_of", format!("is less than `n`, which is {n}")));
    }
    if best_of > n && asked.delivery == Delivery::Stream {
        return Err(ApiError::value("best_of", "the best is known at the end, not in a stream"));
    }
    let options = &mut asked.options;
    options.max_tokens = most_tokens(reader, "max_tokens")?.unwrap_or(Some(MAX_TOKENS));
    options.top_logprobs = top.unwrap_or(0);
    options.logprobs = top.is_some() || best_of > n;
    options.prompt_logprobs = echo && top.is_some();
    let prompt = reader.take("prompt").unwrap_or_default();
    let prompts = prompts("prompt", prompt, limits.prompts)?;
    let suffix = reader.text("suffix")?.filter(|suffix| !suffix.is_empty());
    if suffix.is_some() {
        if !prompts.iter().all(|prompt| matches!(prompt, Prompt::Text(_))) {
            return Err(ApiError::value("suffix", "belongs to prompts of text, and not of ids"));
        }
        if options.prompt_logprobs {
            let reason = "cannot be combined with `echo` and `logprobs`: the prompt has it inside";
            return Err(ApiError::value("suffix", reason));
        }
        check_repeated("suffix", suffix.as_deref().map_or(0, str::len), prompts.len())?;
    }
    asked.names.add("prompt_logprobs", "echo");
    asked.prompts = prompts.len();
    asked.per_prompt = best_of;
    (asked.count_field, asked.text_field) = ("prompt", "prompt");
    Ok(Completion { prompts, sampling, n, echo, logprobs: top.is_some(), suffix })
}

/// Each prompt's ids, with its text where the answers need it.
fn encode(
    model: &dyn TextModel,
    prompts: Vec<Prompt>,
    needs_text: bool,
) -> Result<Vec<(Vec<u32>, String)>> {
    let one = |prompt| {
        Ok(match prompt {
            Prompt::Ids(ids) => {
                let text = if needs_text { model.decode(&ids)? } else { String::new() };
                (ids, text)
            }
            Prompt::Text(text) => {
                let ids = model.encode(&text)?;
                (ids, if needs_text { text } else { String::new() })
            }
            Prompt::Parts(_) => {
                return Err(Error::Unsupported {
                    what: "images".into(),
                    reason: "a completion continues text or ids".into(),
                }
                .into());
            }
        })
    };
    prompts.into_iter().map(one).collect()
}

/// Checks that the log probabilities of the prompts fit into one answer.
fn check_prompt_logprobs(asked: &Asked, prompts: &[(Vec<u32>, String)], most: usize) -> Result<()> {
    if !asked.options.prompt_logprobs {
        return Ok(());
    }
    let tokens = prompts.iter().map(|(ids, _)| ids.len()).sum::<usize>();
    let each = asked.options.top_logprobs.saturating_add(1);
    let count = tokens.saturating_mul(asked.per_prompt).saturating_mul(each);
    if count <= most {
        return Ok(());
    }
    let reason = format!(
        "asks for {count} log probabilities of prompts, at most {most} are told at once: \
         send fewer prompts, or a smaller `logprobs`"
    );
    Err(ApiError::value("echo", reason))
}
