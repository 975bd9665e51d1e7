//! The wishes of a request and its usage, for the log and its spans.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::futures::TaskLocalFuture;

use super::part::Usage;
use super::phases::Phase;
use crate::error::ApiError;

tokio::task_local! {
    /// The tally of the request that a task answers.
    static CURRENT: Tally;
}

/// The usage of a request so far, and what ended it early. Whoever computes for the request adds
/// to it, and the log reads it as the request ends.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<Mutex<Tallied>>);

/// The state of a tally at one moment.
#[derive(Clone, Debug, Default)]
pub struct Tallied {
    /// The model that was asked for by name.
    pub asked: Option<String>,
    /// The model that answers.
    pub model: Option<String>,
    /// How tokens are to be drawn, where any are.
    pub drawing: Option<Drawing>,
    /// The stretches of its generations.
    pub phases: Vec<Phase>,
    /// Why its generations ended, those that did.
    pub finish_reasons: Vec<&'static str>,
    /// Tokens, where there are any.
    pub usage: Option<Usage>,
    /// The reason why the answer broke off, where it did.
    pub error: Option<String>,
}

/// How a request wants its tokens drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Drawing {
    /// Answers to each prompt.
    pub choices: usize,
    /// The most tokens of an answer.
    pub max_tokens: Option<usize>,
    /// The temperature.
    pub temperature: Option<f32>,
    /// The nucleus.
    pub top_p: Option<f32>,
    /// The seed.
    pub seed: Option<u64>,
}

impl Tally {
    /// The tally of the request that this task answers; one that nobody reads elsewhere.
    pub fn current() -> Tally {
        CURRENT.try_with(Clone::clone).unwrap_or_default()
    }

    /// `answer`, whose task answers the request of this tally.
    pub fn scope<F: Future>(self, answer: F) -> TaskLocalFuture<Tally, F> {
        CURRENT.scope(self, answer)
    }

    /// The request names this model.
    pub fn asks_for(&self, model: Option<&str>) {
        self.with(|tallied| tallied.asked = model.map(str::to_owned));
    }

    /// Tokens are drawn so.
    pub fn draws(&self, drawing: Drawing) {
        self.with(|tallied| tallied.drawing = Some(drawing));
    }

    /// A generation went through `phases`.
    pub fn went_through(&self, phases: Vec<Phase>) {
        self.with(|tallied| tallied.phases.extend(phases));
    }

    /// A generation ended for this reason.
    pub fn finished(&self, reason: &'static str) {
        self.with(|tallied| tallied.finish_reasons.push(reason));
    }

    /// The model called so answers.
    pub fn answered_by(&self, model: &str) {
        self.with(|tallied| tallied.model = Some(model.to_owned()));
    }

    /// So much was used so far.
    pub fn used(&self, usage: Usage) {
        self.with(|tallied| tallied.usage = Some(usage));
    }

    /// The answer broke off for the reason in `error`.
    pub fn failed(&self, error: &ApiError) {
        self.with(|tallied| tallied.error = Some(error.loggable().to_owned()));
    }

    /// The state at this moment.
    pub fn get(&self) -> Tallied {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn with(&self, change: impl FnOnce(&mut Tallied)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
