//! Generations under way for one request, read without a thread of their own.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use inference_core::{FinishReason, GenerateMetrics, Generation, PrefillProgress, Token};
use tokio::sync::watch;

use super::part::Usage;
use super::phases::Course;
use super::state::State;
use super::tally::Tally;
use crate::error::{ApiError, Names};
use crate::pool::admission::Permit;
use crate::pool::lease::Lease;
use crate::pool::loaded::Loaded;

/// Tokens of a prompt that are told at once.
const PROMPT_PART: usize = 64;

/// An event of one of the generations.
#[derive(Debug)]
pub enum Event {
    /// Some of its prompt's tokens with their log probabilities, in order; before anything else of
    /// it.
    Prompt(Vec<Token>),
    /// It has a further token.
    Token(Token),
    /// It ended.
    End(FinishReason),
    /// It failed, which is the end of the request.
    Failed(ApiError),
}

struct One {
    /// `None` when it has ended. Dropping it cancels.
    generation: Option<(Generation, Permit)>,
    tokens: usize,
    /// When its first token and its last one came.
    came: Option<(Instant, Instant)>,
    /// Tokens of its prompt that were told to be read.
    read: usize,
    /// Its prompt's log probabilities were asked for and have not come.
    awaits_prompt: bool,
}

/// The generations of a request. Dropping it cancels those that still run.
pub struct Generations {
    state: Arc<State>,
    /// Kept until all have ended, so that the model stays.
    loaded: Lease<Loaded>,
    choices: Vec<One>,
    /// How many of them, one after the other, have the same prompt.
    per_prompt: usize,
    /// Events still to return, with the numbers of their generations. While there are any, no
    /// generation is polled.
    follows: VecDeque<(usize, Event)>,
    /// Which one is asked first the next time, so that none waits for another.
    turn: usize,
    cuts: watch::Receiver<bool>,
    /// The request's fields, for errors about options.
    names: Names,
    usage: Usage,
    /// Told of the usage at the end.
    tally: Tally,
    began: Instant,
}

impl Generations {
    /// Follows `generations` of `loaded`, of which each `per_prompt` have one prompt.
    pub fn new(
        state: &Arc<State>,
        loaded: Lease<Loaded>,
        generations: Vec<Generation>,
        permits: Vec<Permit>,
        per_prompt: usize,
    ) -> Generations {
        let one = |pair| One {
            generation: Some(pair),
            tokens: 0,
            came: None,
            read: 0,
            awaits_prompt: false,
        };
        Generations {
            state: Arc::clone(state),
            loaded,
            choices: generations.into_iter().zip(permits).map(one).collect(),
            per_prompt: per_prompt.max(1),
            follows: VecDeque::new(),
            turn: 0,
            cuts: state.cuts(),
            names: Names::default(),
            usage: Usage::default(),
            tally: Tally::default(),
            began: Instant::now(),
        }
    }

    /// These generations, which tell the request's tally what they used, as they end.
    pub fn tallied(mut self, tally: Tally) -> Generations {
        tally.answered_by(self.loaded.name());
        self.tally = tally;
        self
    }

    /// The request's tally.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// These generations, with the request's fields in errors about options.
    pub fn named(mut self, names: Names) -> Generations {
        self.names = names;
        self
    }

    /// These generations, which tell of their prompts.
    pub fn with_prompts(mut self) -> Generations {
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

    /// Ends generation `index` for `reason`, as [`FinishReason::as_str`] has it.
    pub fn stop(&mut self, index: usize, reason: &'static str) {
        if self.choices[index].generation.is_some() {
            self.tally.finished(reason);
        }
        self.leave(index);
    }

    /// Ends generation `index`, and counts what it used.
    fn leave(&mut self, index: usize) {
        self.break_off(index);
        if let Some((generation, _permit)) = self.choices[index].generation.take() {
            let metrics = GenerateMetrics {
                prompt_tokens: generation.prompt_ids().len(),
                generated_tokens: self.choices[index].tokens,
                ..GenerateMetrics::default()
            };
            let (prompt, generated) = (metrics.prompt_tokens, metrics.generated_tokens);
            self.state.metrics.computed(self.loaded.name(), prompt, generated);
            self.count(index, &metrics);
        }
    }

    /// Ends generation `index`, where the server ends. Nothing can stand for what was to be told of
    /// a prompt.
    fn cut(&mut self, index: usize) -> Event {
        if self.choices[index].awaits_prompt {
            self.leave(index);
            return Event::Failed(inference_core::Error::Closed.into());
        }
        let reason = FinishReason::Length;
        self.stop(index, reason.as_str());
        Event::End(reason)
    }

    /// How far the prompt of a generation is read that has no token yet, where that is news.
    pub fn prefill(&mut self) -> Option<(usize, PrefillProgress)> {
        let mut waiting = self.choices.iter_mut().enumerate().filter(|(_, one)| one.tokens == 0);
        waiting.find_map(|(index, one)| {
            let progress = one.generation.as_ref()?.0.prefill()?;
            let is_news = progress.processed > one.read;
            one.read = progress.processed;
            is_news.then_some((index, progress))
        })
    }

    /// How far the prompt of generation `index` was read when it was told last; `None` once the
    /// generation has ended.
    pub fn prefill_of(&self, index: usize) -> Option<PrefillProgress> {
        self.choices[index].generation.as_ref()?.0.prefill()
    }

    /// The usage of the generations that have ended.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// The usage so far, with that of generations that still run. Their times are those of tokens
    /// as they came here: the engine tells its own at the end.
    pub fn progress(&self) -> Usage {
        let mut usage = self.usage;
        for (index, one) in self.choices.iter().enumerate() {
            let Some((generation, _)) = &one.generation else { continue };
            usage.completion += one.tokens;
            let prefill = generation.prefill();
            if let Some((first, last)) = one.came {
                usage.decode_time += last - first;
                usage.decoded += one.tokens.saturating_sub(1);
                usage.prefill_time += first - self.began;
            }
            if index.is_multiple_of(self.per_prompt) {
                usage.prompt += generation.prompt_ids().len();
                usage.cached += prefill.map_or(0, |known| known.cached);
            }
        }
        usage
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

    /// The next event of generation `index`: its prompt's tokens where they came with `item`, else
    /// the event of `item`. The rest is queued in `follows`.
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
                let (now, one) = (Instant::now(), &mut self.choices[index]);
                one.tokens += 1;
                one.came = Some((one.came.map_or(now, |(first, _)| first), now));
                Event::Token(token)
            }
            Some(Err(error)) => {
                self.break_off(index);
                self.choices[index].generation = None;
                Event::Failed(ApiError::from(error).named(&self.names))
            }
            None => self.ended(index),
        }
    }

    /// The course of generation `index` so far; `None` once it has ended.
    fn course(&self, index: usize) -> Option<Course> {
        let One { generation, came, .. } = &self.choices[index];
        let prefill = generation.as_ref()?.0.prefill();
        Some(Course { generation: index, began: self.began, came: *came, prefill })
    }

    /// Tells the tally of generation `index`, which ends here if it still runs.
    fn break_off(&self, index: usize) {
        if let Some(course) = self.course(index) {
            self.tally.went_through(course.broken_off(Instant::now()));
        }
    }

    fn ended(&mut self, index: usize) -> Event {
        let course = self.course(index);
        let ended = self.choices[index].generation.take();
        let Some(outcome) = ended.as_ref().and_then(|(generation, _)| generation.outcome()) else {
            return Event::Failed(ApiError::internal("the generation ended without an outcome"));
        };
        if outcome.finish_reason == FinishReason::Cancelled {
            return Event::Failed(inference_core::Error::Cancelled.into());
        }
        let reason = outcome.finish_reason.clone();
        self.state.metrics.generated(self.loaded.name(), reason.as_str(), &outcome.metrics);
        let time = outcome.metrics.prefill_duration + outcome.metrics.decode_duration;
        self.loaded.admission().ended(time);
        let metrics = outcome.metrics.clone();
        if let Some(course) = course {
            self.tally.went_through(course.measured(&metrics, Instant::now()));
        }
        self.tally.finished(reason.as_str());
        self.count(index, &metrics);
        Event::End(reason)
    }

    fn count(&mut self, index: usize, metrics: &GenerateMetrics) {
        self.usage.completion += metrics.generated_tokens;
        self.usage.prefill_time += metrics.prefill_duration;
        self.usage.decode_time += metrics.decode_duration;
        if !metrics.decode_duration.is_zero() {
            self.usage.decoded += metrics.generated_tokens.saturating_sub(1);
        }
        // Answers to the same prompt share it.
        if index.is_multiple_of(self.per_prompt) {
            self.usage.prompt += metrics.prompt_tokens;
            self.usage.cached += metrics.cached_prompt_tokens;
        }
    }
}

impl Drop for Generations {
    fn drop(&mut self) {
        self.tally.used(self.progress());
        (0..self.choices.len()).for_each(|index| self.break_off(index));
        for one in &self.choices {
            let Some((generation, _permit)) = &one.generation else { continue };
            let metrics = &self.state.metrics;
            metrics.cancelled();
            // What still waited was not computed.
            if one.tokens > 0 {
                let prompt = generation.prompt_ids().len();
                metrics.computed(self.loaded.name(), prompt, one.tokens);
            }
        }
    }
}
