//! The way of every request that generates: checks, admission, text work, and the answer.

use std::sync::Arc;

use axum::response::Response;
use inference_core::{GenerateOptions, Generation, TextModel};

use super::respond::{Stream, whole};
use super::wire::Wire;
use crate::error::{ApiError, Names, Result};
use crate::fields::reader::Reader;
use crate::pool::lease::Lease;
use crate::pool::loaded::Loaded;
use crate::run::answers::Answers;
use crate::run::generations::Generations;
use crate::run::reading::Reading;
use crate::run::state::State;
use crate::run::tally::{Drawing, Tally};

/// The generations that a request asks for.
#[derive(Debug)]
pub struct Asked {
    /// How tokens are generated; for answer `i` to a prompt, the seed counts up by `i`.
    pub options: GenerateOptions,
    /// How many prompts there are.
    pub prompts: usize,
    /// How many answers are generated to each of them.
    pub per_prompt: usize,
    /// The most tokens of a prompt with its answer, where the request says.
    pub context: Option<usize>,
    /// The delivery of the answers: in events, or whole.
    pub delivery: Delivery,
    /// A stream tells how far the prompt is read.
    pub tells_progress: bool,
    /// The request's fields for options of the contract, for errors about them.
    pub names: Names,
    /// The field that says how many answers are generated.
    pub count_field: &'static str,
    /// The field that holds the text.
    pub text_field: &'static str,
}

impl Asked {
    /// One answer to the conversation in `field`.
    pub fn one(
        options: GenerateOptions,
        delivery: Delivery,
        names: Names,
        field: &'static str,
    ) -> Asked {
        Asked {
            options,
            prompts: 1,
            per_prompt: 1,
            context: None,
            delivery,
            tells_progress: false,
            names,
            count_field: field,
            text_field: field,
        }
    }
}

/// How an answer is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// At once, when it has ended.
    Whole,
    /// In events, as it grows.
    Stream,
}

impl Delivery {
    /// The delivery that the field `stream` asks for.
    ///
    /// # Errors
    /// It is neither true nor false.
    pub fn of(reader: &mut Reader) -> Result<Delivery> {
        let streams = reader.bool("stream")?.unwrap_or(false);
        Ok(if streams { Delivery::Stream } else { Delivery::Whole })
    }
}

impl Asked {
    /// The options of answer `index` to a prompt of so many tokens.
    pub fn options_of(
        &self,
        index: usize,
        model: &dyn TextModel,
        prompt_tokens: usize,
    ) -> GenerateOptions {
        let mut options = self.options.clone();
        options.seed = options.seed.map(|seed| seed.wrapping_add(index as u64));
        // A prompt that leaves no room is the model's to refuse.
        let left = model.info().context_length.saturating_sub(prompt_tokens);
        if left > 0 {
            options.max_tokens = options.max_tokens.map(|most| most.min(left));
        }
        if let Some(context) = self.context {
            let left = context.saturating_sub(prompt_tokens);
            options.max_tokens = Some(options.max_tokens.map_or(left, |most| most.min(left)));
        }
        if let Some(most) = options.max_tokens {
            options.min_tokens = options.min_tokens.min(most);
        }
        options
    }

    /// Checks that a prompt of so many tokens leaves room in the context that the request asks for.
    ///
    /// # Errors
    /// It does not.
    pub fn check_context(&self, tokens: usize) -> Result<()> {
        match self.context.filter(|context| tokens >= *context) {
            Some(limit) => Err(inference_core::Error::PromptTooLong { tokens, limit }.into()),
            None => Ok(()),
        }
    }
}

/// The generations of a request, started.
pub struct Started<W> {
    /// Its generations, prompt by prompt, each with what reads it.
    pub generations: Vec<(Generation, Reading)>,
    /// The writer of the answers.
    pub wire: W,
}

/// Checks what is `asked`, makes room for it, calls `start` away from the threads that serve, for a
/// request of so many `bytes`, and answers.
///
/// # Errors
/// An option that the model does not honour; no room; the errors of `start`, and those of a
/// generation before the answer has begun.
pub async fn generate<W: Wire>(
    state: &Arc<State>,
    loaded: &Lease<Loaded>,
    asked: Asked,
    bytes: usize,
    start: impl FnOnce(&Loaded, &Asked) -> Result<Started<W>> + Send + 'static,
) -> Result<Response> {
    let names = asked.names.clone();
    let options = &asked.options;
    options
        .validate()
        .and_then(|()| loaded.model.capabilities().check_generate(options))
        .map_err(|error| ApiError::from(error).named(&names))?;

    let permits = loaded.admission().take(asked.prompts * asked.per_prompt, asked.count_field)?;
    let (delivery, text_field) = (asked.delivery, asked.text_field);
    let tells_progress = asked.tells_progress;
    let (loaded, owner, tally) = (loaded.clone(), Arc::clone(state), Tally::current());
    tally.draws(Drawing {
        choices: asked.per_prompt,
        max_tokens: asked.options.max_tokens,
        temperature: asked.options.temperature,
        top_p: asked.options.top_p,
        seed: asked.options.seed,
    });
    let work = move || {
        let Started { generations, wire } = start(&loaded, &asked)?;
        let (generations, readings) = generations.into_iter().unzip();
        // Made here, so that it holds its permits and is counted even where the client has left.
        let run = Generations::new(&owner, loaded, generations, permits, asked.per_prompt);
        let run = run.named(asked.names).tallied(tally);
        let tells_prompts = asked.options.prompt_logprobs;
        let run = if tells_prompts { run.with_prompts() } else { run };
        Ok((Answers::new(run, readings), wire))
    };
    let started = state.text_work(bytes, work).await;
    let (answers, wire) = started.map_err(|error| error.named(&names).or_about(text_field))?;
    match delivery {
        Delivery::Stream => {
            let stream = Stream::new(answers, wire).telling_progress(tells_progress);
            stream.respond(state.config.timeouts.keep_alive).await
        }
        Delivery::Whole => whole(answers, wire).await,
    }
}
