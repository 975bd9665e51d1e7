//! The one thread that computes: it takes requests in turn and feeds their generations.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use inference_core::{
    CancelToken, Error, FinishReason, GenerateMetrics, GenerateOptions, GenerationSender,
    LastMetrics, Outcome, Result, Token, TokenLogprob,
};

use crate::corpus::{Corpus, EOS};
use crate::stream::Stream;

/// Requests that may wait; one more is refused.
pub const QUEUE: usize = 64;

/// The most ids of a prompt and its continuation together.
pub const CONTEXT: usize = 4096;

/// A request on its way to the engine.
pub struct Job {
    pub prompt_ids: Vec<u32>,
    pub options: GenerateOptions,
    pub sender: GenerationSender,
    pub queued_at: Instant,
}

/// Starts the thread. It ends when the last sender of jobs is dropped; `closed` ends what runs.
pub fn start(
    corpus: Arc<Corpus>,
    closed: CancelToken,
    last: LastMetrics,
) -> Result<SyncSender<Job>> {
    let (jobs, queue) = sync_channel(QUEUE);
    thread::Builder::new()
        .name("echo-engine".into())
        .spawn(move || serve(&corpus, &queue, &closed, &last))
        .map_err(|error| Error::Engine(format!("the engine thread did not start: {error}")))?;
    Ok(jobs)
}

fn serve(corpus: &Corpus, queue: &Receiver<Job>, closed: &CancelToken, last: &LastMetrics) {
    for job in queue {
        let outcome = generate(corpus, &job, closed);
        // Set before the consumer learns of the end, so that it finds its own metrics.
        last.set(outcome.metrics.clone());
        // A panic above would drop the sender, which is an error for the consumer too.
        match closed.is_cancelled() {
            true => job.sender.fail(Error::Closed),
            false => job.sender.finish(outcome),
        }
    }
}

fn generate(corpus: &Corpus, job: &Job, closed: &CancelToken) -> Outcome {
    let Job { prompt_ids, options, sender, queued_at } = job;
    let taken_up = Instant::now();
    let room = CONTEXT.saturating_sub(prompt_ids.len());
    let limit = options.max_tokens.map_or(room, |max| max.min(room));
    let mut context = prompt_ids.clone();
    let mut stream = Stream::new(options.stop.clone());
    let mut first_token_at = None;
    let mut generated_tokens = 0;
    let finish_reason = loop {
        // Asked before each step, and so before the first one of a request that waited.
        if sender.is_cancelled() || closed.is_cancelled() {
            break FinishReason::Cancelled;
        }
        if generated_tokens == limit {
            break FinishReason::Length;
        }
        let next = corpus.next(&context);
        let TokenLogprob { id, logprob } = next[0];
        first_token_at.get_or_insert_with(Instant::now);
        if id == EOS && !options.ignore_eos {
            break FinishReason::EndOfSequence(id);
        }
        if options.stop_token_ids.contains(&id) {
            break FinishReason::StopToken(id);
        }
        context.push(id);
        generated_tokens += 1;
        let (settled, stop) = stream.push(Token {
            id,
            logprob: options.logprobs.then_some(logprob),
            top_logprobs: next.into_iter().take(options.top_logprobs).collect(),
            ..Default::default()
        });
        settled.into_iter().for_each(|token| sender.send(token));
        if let Some(stop) = stop {
            break FinishReason::StopText(stop);
        }
    };
    if !matches!(finish_reason, FinishReason::StopText(_)) {
        stream.finish().into_iter().for_each(|token| sender.send(token));
    }

    let ended_at = Instant::now();
    let metrics = GenerateMetrics {
        requests: 1,
        prompt_tokens: prompt_ids.len(),
        generated_tokens,
        queue_duration: taken_up - *queued_at,
        prefill_duration: first_token_at.unwrap_or(ended_at) - taken_up,
        decode_duration: first_token_at.map_or(Duration::ZERO, |first| ended_at - first),
        total_duration: ended_at - *queued_at,
        time_to_first_token: first_token_at.map(|first| first - *queued_at),
        peak_memory_bytes: corpus.bytes() + size_of_val(context.as_slice()) as u64,
        active_memory_bytes: corpus.bytes(),
        ..Default::default()
    };
    // Nothing is drawn; a seed that was given is reported all the same.
    Outcome { finish_reason, metrics, seed: options.seed.unwrap_or(0), greedy: true }
}
