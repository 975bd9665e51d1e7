//! The body of a generation's thread: it sends the tokens of one answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use inference_core::{
    Error, FinishReason, GenerateMetrics, GenerateOptions, GenerationSender, Outcome, Result,
    Token, TokenLogprob,
};

use crate::Seen;

/// The id of the first token that is said; the others count up from it.
pub const FIRST_ID: u32 = 1000;

/// One answer: its tokens' texts, and how it ends.
#[derive(Clone, Debug)]
pub struct Line {
    /// The texts.
    pub tokens: Vec<&'static str>,
    /// The end; `max_tokens` may end it before.
    pub end: Result<FinishReason>,
}

impl Line {
    /// An answer that ends with the end-of-sequence token, which has the id 2.
    pub fn of(tokens: &[&'static str]) -> Line {
        Line { tokens: tokens.to_vec(), end: Ok(FinishReason::EndOfSequence(2)) }
    }
}

/// A request that is answered on a thread of its own.
pub(crate) struct Speech {
    pub seen: Arc<Seen>,
    pub prompt: Vec<u32>,
    pub options: GenerateOptions,
    pub line: Line,
    /// Says the prompt's ids in place of the line, and fails at [`u32::MAX`].
    pub echoes: bool,
    /// Goes on for ever after the line.
    pub endless: bool,
    pub delay: Duration,
    pub metrics: GenerateMetrics,
}

impl Speech {
    pub fn run(self, sender: GenerationSender) {
        let ended = self.say(&sender);
        let seen = Arc::clone(&self.seen);
        if matches!(ended, Ok((FinishReason::Cancelled, _))) && sender.is_cancelled() {
            seen.cancelled.fetch_add(1, Ordering::SeqCst);
        }
        seen.running.fetch_sub(1, Ordering::SeqCst);
        match ended {
            Err(error) => sender.fail(error),
            Ok((finish_reason, generated_tokens)) => {
                let (requests, prompt_tokens) = (1, self.prompt.len());
                let metrics =
                    GenerateMetrics { requests, prompt_tokens, generated_tokens, ..self.metrics };
                let seed = self.options.seed.unwrap_or(7);
                let greedy = self.options.temperature.unwrap_or(0.0) == 0.0;
                sender.finish(Outcome { finish_reason, metrics, seed, greedy });
            }
        }
    }

    /// Says it all; the end and how many tokens there were.
    fn say(&self, sender: &GenerationSender) -> Result<(FinishReason, usize)> {
        while self.seen.held.load(Ordering::SeqCst) {
            if sender.is_cancelled() {
                return Ok((FinishReason::Cancelled, 0));
            }
            thread::sleep(Duration::from_millis(1));
        }
        if self.options.prompt_logprobs {
            sender.send_prompt_logprobs(prompt_logprobs(&self.prompt, self.options.top_logprobs));
        }
        let count = if self.echoes { self.prompt.len() } else { self.line.tokens.len() };
        let most = self.options.max_tokens.unwrap_or(usize::MAX);
        for index in 0..count.min(most) {
            thread::sleep(self.delay);
            self.seen.may_panic("step");
            if sender.is_cancelled() {
                return Ok((FinishReason::Cancelled, index));
            }
            sender.send(self.token(index)?);
        }
        if self.endless {
            while !sender.is_cancelled() {
                thread::yield_now();
            }
            return Ok((FinishReason::Cancelled, count));
        }
        match most < count {
            true => Ok((FinishReason::Length, most)),
            false => Ok((self.line.end.clone()?, count)),
        }
    }

    fn token(&self, index: usize) -> Result<Token> {
        let (id, text) = match self.echoes {
            true => (self.prompt[index], self.prompt[index].to_string()),
            false => (FIRST_ID + index as u32, self.line.tokens[index].to_owned()),
        };
        if id == u32::MAX {
            return Err(Error::Engine(format!("decode step {index}: bad id")));
        }
        // Answers of other seeds are less likely, so that the best one is known.
        let logprob = -0.25 - self.options.seed.unwrap_or(0) as f32;
        let top = (0..self.options.top_logprobs as u32)
            .map(|rank| TokenLogprob { id: id + rank, logprob: logprob - rank as f32 });
        Ok(Token {
            id,
            text,
            logprob: self.options.logprobs.then_some(logprob),
            top_logprobs: top.collect(),
            logits: self.options.logits.then(|| vec![logprob, 0.5]),
        })
    }
}

/// Log probabilities of the prompt `ids`, with the `top` likeliest tokens at each position.
///
/// The first token has none. They fall by 0.5 with each position and each rank; the ids of the
/// likeliest count up from the token's own.
pub fn prompt_logprobs(ids: &[u32], top: usize) -> Vec<Token> {
    let token = |(at, id): (usize, &u32)| {
        let logprob = |rank: u32| -0.5 * (at as f32 + rank as f32);
        let ranks = 0..if at == 0 { 0 } else { top as u32 };
        Token {
            id: *id,
            text: char::from_u32(*id).unwrap_or(char::REPLACEMENT_CHARACTER).to_string(),
            logprob: (at > 0).then(|| logprob(0)),
            top_logprobs: ranks
                .map(|rank| TokenLogprob { id: id + rank, logprob: logprob(rank) })
                .collect(),
            logits: None,
        }
    };
    ids.iter().enumerate().map(token).collect()
}
