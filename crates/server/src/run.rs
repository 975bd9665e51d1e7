//! Generations under way for one request, read without a thread of their own.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use inference_core::{
    FinishReason, GenerateMetrics, GenerateOptions, Generation, TextModel, Token,
};
use serde_json::{Value as Json, json};
use tokio::sync::watch;

use crate::admission::Permit;
use crate::error::ApiError;
use crate::state::State;

/// Tokens of a prompt that are told at once.
const PROMPT_PART: usize = 64;

/// What happens to one of the generations.
#[derive(Debug)]
pub enum Event {
    /// Some of its prompt's tokens with their log probabilities, in order; before anything else of
    /// it.
    Prompt(Vec<Token>),
    /// It has a further token.
    Token(Token),
    /// It ended, for this reason of OpenAI's.
    End(&'static str),
    /// It failed, which is the end of the request.
    Failed(ApiError),
}

struct One {
    /// `None` when it has ended. Dropping it cancels.
    generation: Option<(Generation, Permit)>,
    tokens: usize,
    /// Its prompt's log probabilities were asked for and have not come.
    awaits_prompt: bool,
}

/// The generations of a request. Dropping it cancels those that still run.
pub struct Run {
    state: Arc<State>,
    choices: Vec<One>,
    /// How many of them, one after the other, have the same prompt.
    per_prompt: usize,
    /// What comes after the event that was told last. As long as there is any, no generation is
    /// asked.
    follows: VecDeque<(usize, Event)>,
    /// Which one is asked first the next time, so that none waits for another.
    turn: usize,
    cuts: watch::Receiver<bool>,
    /// The field that made the constraint, for errors about it.
    constrained_by: &'static str,
    usage: Usage,
}

/// Tokens of a request, as OpenAI counts them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    prompt: usize,
    cached: usize,
    completion: usize,
}

impl Usage {
    /// Of `prompt` tokens alone.
    pub fn of_prompt(prompt: usize) -> Usage {
        Usage { prompt, ..Usage::default() }
    }

    /// OpenAI's `usage`.
    pub fn to_json(self) -> Json {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        })
    }
}

impl Run {
    /// Follows `generations`, of which each `per_prompt` have one prompt.
    pub fn new(
        state: &Arc<State>,
        generations: Vec<Generation>,
        permits: Vec<Permit>,
        per_prompt: usize,
    ) -> Run {
        let one = |pair| One { generation: Some(pair), tokens: 0, awaits_prompt: false };
        Run {
            state: Arc::clone(state),
            choices: generations.into_iter().zip(permits).map(one).collect(),
            per_prompt: per_prompt.max(1),
            follows: VecDeque::new(),
            turn: 0,
            cuts: state.cuts(),
            constrained_by: "",
            usage: Usage::default(),
        }
    }

    /// The same, of generations whose constraint comes from the field `field`.
    pub fn constrained_by(mut self, field: &'static str) -> Run {
        self.constrained_by = field;
        self
    }

    /// The same, of generations that tell of their prompts.
    pub fn with_prompts(mut self) -> Run {
        self.choices.iter_mut().for_each(|one| one.awaits_prompt = true);
        self
    }

    /// The next event with the number of its generation; `None` when all have ended. Nothing is
    /// lost where the future is dropped.
    pub async fn next(&mut self) -> Option<(usize, Event)> {
        if !self.follows.is_empty() {
            // Writing down a long prompt's tokens takes a while: others come in between.
            tokio::task::yield_now().await;
            return self.follows.pop_front();
        }
        loop {
            if self.choices.iter().all(|one| one.generation.is_none()) {
                return None;
            }
            if *self.cuts.borrow_and_update() {
                let running = self.choices.iter().position(|one| one.generation.is_some())?;
                self.stop(running);
                return Some((running, self.cut(running)));
            }
            let mut cuts = self.cuts.clone();
            tokio::select! {
                biased;
                (index, item) = poll_fn(|context| self.poll(context)) => {
                    return Some((index, self.prompt_or(index, item)));
                }
                _ = cuts.changed() => {}
            }
        }
    }

    /// Ends generation `index`, of which enough was seen.
    pub fn stop(&mut self, index: usize) {
        if let Some((generation, _permit)) = self.choices[index].generation.take() {
            let metrics = GenerateMetrics {
                prompt_tokens: generation.prompt_ids().len(),
                generated_tokens: self.choices[index].tokens,
                ..GenerateMetrics::default()
            };
            self.count(index, &metrics);
        }
    }

    /// The end of generation `index`, where the server ends. Nothing can stand for what was to be
    /// told of a prompt.
    fn cut(&self, index: usize) -> Event {
        match self.choices[index].awaits_prompt {
            true => Event::Failed(inference_core::Error::Closed.into()),
            false => Event::End("length"),
        }
    }

    /// What was used so far.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<(usize, Option<inference_core::Result<Token>>)> {
        let count = self.choices.len();
        for offset in 0..count {
            let index = (self.turn + offset) % count;
            if let Some((generation, _)) = &mut self.choices[index].generation
                && let Poll::Ready(item) = generation.poll_next(context)
            {
                self.turn = (index + 1) % count;
                return Poll::Ready((index, item));
            }
        }
        Poll::Pending
    }

    /// What is told of the prompt, before the `item` that it came with; or that item.
    fn prompt_or(&mut self, index: usize, item: Option<inference_core::Result<Token>>) -> Event {
        let one = &mut self.choices[index];
        let generation = one.generation.as_mut().map(|(generation, _)| generation);
        let prompt = generation.and_then(Generation::take_prompt_logprobs);
        let event = self.event(index, item);
        let (Some(prompt), false) = (prompt, matches!(event, Event::Failed(_))) else {
            return event;
        };
        self.choices[index].awaits_prompt = false;
        let mut prompt = prompt.into_iter();
        let first: Vec<Token> = prompt.by_ref().take(PROMPT_PART).collect();
        while !prompt.as_slice().is_empty() {
            let part = prompt.by_ref().take(PROMPT_PART).collect();
            self.follows.push_back((index, Event::Prompt(part)));
        }
        self.follows.push_back((index, event));
        Event::Prompt(first)
    }

    fn event(&mut self, index: usize, item: Option<inference_core::Result<Token>>) -> Event {
        match item {
            Some(Ok(token)) => {
                self.choices[index].tokens += 1;
                Event::Token(token)
            }
            Some(Err(error)) => {
                self.choices[index].generation = None;
                Event::Failed(ApiError::from(error).rename("constraint", self.constrained_by))
            }
            None => self.ended(index),
        }
    }

    fn ended(&mut self, index: usize) -> Event {
        let ended = self.choices[index].generation.take();
        let Some(outcome) = ended.as_ref().and_then(|(generation, _)| generation.outcome()) else {
            return Event::Failed(ApiError::internal("the generation ended without an outcome"));
        };
        if outcome.finish_reason == FinishReason::Cancelled {
            return Event::Failed(inference_core::Error::Cancelled.into());
        }
        let reason = outcome.finish_reason.as_str();
        self.state.metrics.generated(reason, &outcome.metrics);
        self.state
            .admission
            .ended(outcome.metrics.prefill_duration + outcome.metrics.decode_duration);
        let metrics = outcome.metrics.clone();
        self.count(index, &metrics);
        Event::End(reason)
    }

    fn count(&mut self, index: usize, metrics: &GenerateMetrics) {
        self.usage.completion += metrics.generated_tokens;
        // Answers to the same prompt share it.
        if index.is_multiple_of(self.per_prompt) {
            self.usage.prompt += metrics.prompt_tokens;
            self.usage.cached += metrics.cached_prompt_tokens;
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let running = self.choices.iter().filter(|one| one.generation.is_some());
        running.for_each(|_| self.state.metrics.cancelled());
    }
}

/// `options` with a `max_tokens` that the context has room for, after a prompt of so many tokens.
/// A prompt that leaves no room is the model's to refuse.
pub fn clamp(options: &mut GenerateOptions, model: &dyn TextModel, prompt_tokens: usize) {
    let left = model.info().context_length.saturating_sub(prompt_tokens);
    if left > 0 {
        options.max_tokens = options.max_tokens.map(|most| most.min(left));
    }
}
