//! A running generation: the stream of tokens that a consumer reads and a backend feeds.

use std::collections::VecDeque;
use std::fmt;
use std::iter::FusedIterator;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::{CancelToken, Error, GenerateMetrics, Result};

/// A token id with its log probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenLogprob {
    /// The id.
    pub id: u32,
    /// Natural logarithm of its probability, before filters and temperature.
    pub logprob: f32,
}

/// One generated token.
///
/// The texts of all tokens, concatenated, are the decoded text: a token whose characters are not
/// complete yet, or that may belong to a stop string, is handed over once its text is settled. The
/// tokens of a stop string that was met are handed over too, without its text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Token {
    /// The id.
    pub id: u32,
    /// The text that became final with this token; may be empty.
    pub text: String,
    /// Natural logarithm of the probability, before filters and temperature, when asked for.
    pub logprob: Option<f32>,
    /// The most likely tokens at this step, most likely first, when asked for.
    pub top_logprobs: Vec<TokenLogprob>,
    /// `[vocab_size]` logits from which the token was chosen, before any option changed them,
    /// when asked for.
    pub logits: Option<Vec<f32>>,
}

/// Why a generation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model produced one of its end-of-sequence ids.
    EndOfSequence(u32),
    /// The model produced an id of `stop_token_ids`.
    StopToken(u32),
    /// The text reached one of the `stop` strings.
    StopText(String),
    /// `max_tokens` were generated, or the context is full.
    Length,
    /// The cancel token fired, or the [`Generation`] was dropped.
    Cancelled,
}

impl FinishReason {
    /// `stop`, `length` or `cancelled`, as protocols name it.
    pub fn as_str(&self) -> &'static str {
        match self {
            FinishReason::EndOfSequence(_)
            | FinishReason::StopToken(_)
            | FinishReason::StopText(_) => "stop",
            FinishReason::Length => "length",
            FinishReason::Cancelled => "cancelled",
        }
    }
}

/// How a generation ended and what it cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// Counts, times and memory of the request.
    pub metrics: GenerateMetrics,
    /// The seed of its draws, given or chosen.
    pub seed: u64,
    /// Each token was the most likely one, at a temperature of 0. Neither the seed nor `top_k`,
    /// `top_p`, `min_p` and `xtc` changed anything.
    pub greedy: bool,
}

/// How far a prompt is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefillProgress {
    /// Tokens of the prompt.
    pub total: usize,
    /// Those of them that a cache held.
    pub cached: usize,
    /// Those that are done, cached ones included. Of a chunk that has passed some of the layers,
    /// as large a part counts.
    pub processed: usize,
    /// Since the request was taken up.
    pub elapsed: Duration,
}

impl PrefillProgress {
    /// Computed tokens a second; 0 where no time was measured.
    pub fn tokens_per_second(&self) -> f64 {
        let computed = self.processed.saturating_sub(self.cached);
        if self.elapsed.is_zero() { 0.0 } else { computed as f64 / self.elapsed.as_secs_f64() }
    }

    /// The time that the rest takes at this rate; `None` where nothing was computed yet.
    pub fn left(&self) -> Option<Duration> {
        let rate = self.tokens_per_second();
        let left = self.total.saturating_sub(self.processed) as f64;
        (rate > 0.0).then(|| Duration::try_from_secs_f64(left / rate).unwrap_or(Duration::MAX))
    }
}

#[derive(Default)]
struct State {
    tokens: VecDeque<Token>,
    prefill: Option<PrefillProgress>,
    prompt_logprobs: Option<Vec<Token>>,
    end: Option<Result<Outcome>>,
    /// The sender has ended the generation; stays when the consumer has taken `end`.
    closed: bool,
    waker: Option<Waker>,
}

#[derive(Default)]
struct Channel {
    state: Mutex<State>,
    ready: Condvar,
    /// The consumer is gone.
    dropped: AtomicBool,
}

impl Channel {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A generation under way: an iterator of tokens, which can also be polled.
///
/// Dropping it cancels the request. After the last item, [`outcome`](Self::outcome) tells how it
/// ended; an error is the last item instead. The tokens that came before an error, or before a
/// cancellation, have been handed over by then.
///
/// ```
/// use inference_core::{CancelToken, FinishReason, Generation, Outcome, Token};
///
/// // A backend keeps the sender and feeds it from its own thread.
/// let (sender, mut generation) = Generation::channel(vec![7], CancelToken::new());
/// sender.send(Token { id: 8, text: "fox".into(), ..Default::default() });
/// sender.finish(Outcome {
///     finish_reason: FinishReason::Length,
///     metrics: Default::default(),
///     seed: 0,
///     greedy: true,
/// });
///
/// // A program reads it.
/// for token in generation.by_ref() {
///     assert_eq!(token?.text, "fox");
/// }
/// assert_eq!(generation.outcome().unwrap().finish_reason, FinishReason::Length);
/// # Ok::<(), inference_core::Error>(())
/// ```
pub struct Generation {
    channel: Arc<Channel>,
    prompt_ids: Vec<u32>,
    prompt_logprobs: Option<Vec<Token>>,
    outcome: Option<Outcome>,
    ended: bool,
}

impl Generation {
    /// A generation of `prompt_ids` and the sender that a backend feeds it through. `cancel` is
    /// the request's token, which the sender watches together with the consumer's presence.
    pub fn channel(prompt_ids: Vec<u32>, cancel: CancelToken) -> (GenerationSender, Generation) {
        let channel = Arc::new(Channel::default());
        let sender = GenerationSender { channel: Arc::clone(&channel), cancel };
        let generation =
            Generation { channel, prompt_ids, prompt_logprobs: None, outcome: None, ended: false };
        (sender, generation)
    }

    /// The prompt as the model saw it.
    pub fn prompt_ids(&self) -> &[u32] {
        &self.prompt_ids
    }

    /// The prompt's tokens with their log probabilities, where
    /// [`prompt_logprobs`](crate::GenerateOptions::prompt_logprobs) asked for them: one for each of
    /// [`prompt_ids`](Self::prompt_ids), the first of which has none. The texts, concatenated, are
    /// the decoded prompt. They are here once, from the first item on; also where that is the end.
    pub fn take_prompt_logprobs(&mut self) -> Option<Vec<Token>> {
        self.prompt_logprobs.take()
    }

    /// How it ended. `None` while it runs, which is until the iterator has returned `None`; and
    /// `None` for ever when it ended with an error.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// How far the prompt is computed, as the backend told it last; `None` before the first time,
    /// and where a backend does not tell.
    pub fn prefill(&self) -> Option<PrefillProgress> {
        self.channel.lock().prefill
    }

    /// Waits until the next item is there, and no longer than `timeout`. Returns true when it is:
    /// the iterator does not block then.
    pub fn wait(&self, timeout: Duration) -> bool {
        let is_empty = |state: &mut State| state.tokens.is_empty() && state.end.is_none();
        let state = self.channel.lock();
        if self.ended {
            return true;
        }
        let waited = self.channel.ready.wait_timeout_while(state, timeout, is_empty);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// The next token without blocking: [`Poll::Pending`] registers the waker, in place of an
    /// earlier one. `Ready(None)` ends the stream. An async function awaits a token with
    /// `std::future::poll_fn(|context| generation.poll_next(context)).await`.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Token>>> {
        let channel = Arc::clone(&self.channel);
        let mut state = channel.lock();
        match self.take(&mut state) {
            Some(item) => Poll::Ready(item),
            None => {
                let waker = context.waker();
                let replaced = match &state.waker {
                    Some(registered) if registered.will_wake(waker) => None,
                    _ => state.waker.replace(waker.clone()),
                };
                drop(state);
                // Outside the lock: dropping a waker may drop the task behind it.
                drop(replaced);
                Poll::Pending
            }
        }
    }

    /// Reads to the end, blocking: the whole text and how it ended.
    ///
    /// # Errors
    /// The generation's own error; the text before it is lost, so iterate where it matters.
    pub fn collect_text(mut self) -> Result<(String, Outcome)> {
        let mut text = String::new();
        for token in self.by_ref() {
            text.push_str(&token?.text);
        }
        match self.outcome.take() {
            Some(outcome) => Ok((text, outcome)),
            None => Err(Error::Engine("the generation had already ended with an error".into())),
        }
    }

    /// The next item where there is one: `Some(None)` is the end, `None` means wait.
    fn take(&mut self, state: &mut State) -> Option<Option<Result<Token>>> {
        if self.ended {
            return Some(None);
        }
        if let Some(tokens) = state.prompt_logprobs.take() {
            self.prompt_logprobs = Some(tokens);
        }
        if let Some(token) = state.tokens.pop_front() {
            return Some(Some(Ok(token)));
        }
        let end = state.end.take()?;
        self.ended = true;
        match end {
            Ok(outcome) => {
                self.outcome = Some(outcome);
                Some(None)
            }
            Err(error) => Some(Some(Err(error))),
        }
    }
}

impl Iterator for Generation {
    type Item = Result<Token>;

    fn next(&mut self) -> Option<Self::Item> {
        let channel = Arc::clone(&self.channel);
        let mut state = channel.lock();
        loop {
            if let Some(item) = self.take(&mut state) {
                return item;
            }
            state = channel.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl FusedIterator for Generation {}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generation")
            .field("prompt_tokens", &self.prompt_ids.len())
            .field("ended", &self.ended)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.channel.dropped.store(true, Ordering::Release);
        // The sender may live on for a while: nothing of the consumer's stays with it. Freed
        // outside the lock, because a waker may own the task that owned this generation.
        let mut state = self.channel.lock();
        let tokens = (std::mem::take(&mut state.tokens), state.prompt_logprobs.take());
        let unread = (tokens, state.waker.take());
        drop(state);
        drop(unread);
    }
}

/// The backend's end of a [`Generation`]. Dropped without [`finish`](Self::finish) or
/// [`fail`](Self::fail), it fails the generation, so that no consumer waits for ever.
pub struct GenerationSender {
    channel: Arc<Channel>,
    cancel: CancelToken,
}

impl GenerationSender {
    /// Returns true when the work should stop: the request's token fired or the consumer is gone.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled() || self.consumer_is_gone()
    }

    /// Hands a token over. Never blocks; without a consumer the token is dropped.
    pub fn send(&self, token: Token) {
        let mut state = self.channel.lock();
        if self.consumer_is_gone() {
            return;
        }
        state.tokens.push_back(token);
        self.notify(state);
    }

    /// Hands over the prompt's tokens with their log probabilities; before the first token.
    /// Never blocks; without a consumer they are dropped.
    pub fn send_prompt_logprobs(&self, tokens: Vec<Token>) {
        let mut state = self.channel.lock();
        if !self.consumer_is_gone() {
            // Nobody is woken: they are read with the first item.
            state.prompt_logprobs = Some(tokens);
        }
    }

    /// Tells how far the prompt is computed. Nobody is woken by it.
    pub fn send_prefill(&self, progress: PrefillProgress) {
        self.channel.lock().prefill = Some(progress);
    }

    /// Ends the generation well.
    pub fn finish(self, outcome: Outcome) {
        self.end(Ok(outcome));
    }

    /// Ends the generation with an error.
    pub fn fail(self, error: Error) {
        self.end(Err(error));
    }

    fn consumer_is_gone(&self) -> bool {
        self.channel.dropped.load(Ordering::Acquire)
    }

    fn end(&self, end: Result<Outcome>) {
        let mut state = self.channel.lock();
        if state.closed {
            return;
        }
        state.closed = true;
        state.end = Some(end);
        self.notify(state);
    }

    fn notify(&self, mut state: MutexGuard<'_, State>) {
        let waker = state.waker.take();
        drop(state);
        self.channel.ready.notify_one();
        // Outside the lock: a waker may run the consumer's code at once. Where that code panics,
        // the engine and the other requests must not suffer for it.
        if let Some(waker) = waker {
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }
}

impl Drop for GenerationSender {
    fn drop(&mut self) {
        self.end(Err(Error::Engine("the engine ended without finishing the request".into())));
    }
}

impl fmt::Debug for GenerationSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GenerationSender")
            .field("cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}
