//! Metrics of requests, and the status of an engine.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Counts, times and memory of one finished request.
///
/// Decode time runs on the engine only: a slow consumer does not lengthen it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerateMetrics {
    /// Requests that this is about: 1, or those of a batch whose [`sum`](Self::sum) it is. 0 counts
    /// as 1.
    pub requests: usize,
    /// Tokens of the prompt, cached ones included.
    pub prompt_tokens: usize,
    /// Tokens of the prompt that a cache held, so that they were not computed again.
    pub cached_prompt_tokens: usize,
    /// Why not more of the prompt came from the prefix cache; `None` where all that can be reused
    /// was.
    pub cache_miss: Option<CacheMiss>,
    /// Tokens generated, the end-of-sequence token not counted.
    pub generated_tokens: usize,
    /// Draft tokens that were verified; 0 without speculative decoding.
    pub draft_tokens: usize,
    /// Those of them that were drawn, and so are among the generated ones.
    pub accepted_draft_tokens: usize,
    /// From entering the queue until the engine took the request up.
    pub queue_duration: Duration,
    /// From being taken up until the first token was known, or the prompt was computed where none
    /// is asked for. Zero where neither came to pass: how much of the prompt was computed is not
    /// reported then.
    pub prefill_duration: Duration,
    /// From the first token until the last.
    pub decode_duration: Duration,
    /// Time to decode, resize and cut the prompt's pictures and sounds, before the queue. Of one
    /// kept since an earlier request, the time that it took then.
    pub picture_preparation: Duration,
    /// Time to compute the vectors of pictures and sounds, a part of the prefill: zero where all
    /// of them were kept.
    pub picture_tower: Duration,
    /// From entering the queue until the end; of a batch, from the call until all of it was done.
    pub total_duration: Duration,
    /// From entering the queue until the first token was handed over; `None` without one.
    pub time_to_first_token: Option<Duration>,
    /// The most memory that was in use in the process during the request, in bytes. A request of
    /// another model that runs at the same time counts in it.
    pub peak_memory_bytes: u64,
    /// Memory in use when the request ended and its state was freed, in bytes.
    pub active_memory_bytes: u64,
}

/// Why a prompt, or the rest of it, was not found in the prefix cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheMiss {
    /// No prefix cache was asked for at the load.
    Off,
    /// Nothing has been kept yet, or all of it was evicted.
    Empty,
    /// The kept prefix differs from the prompt here.
    Differs,
    /// The prompt goes on where the kept prefix ends.
    Ends,
    /// The request may outgrow the context length that the load options set; the caches of such
    /// ones share nothing.
    Bound,
    /// The request asked for the prompt's log probabilities, for which all of it is computed.
    PromptLogprobs,
    /// Keys and values are packed, and the prompt's first chunk, which sees its own keys as they
    /// are, is not kept whole.
    FirstChunk,
}

impl CacheMiss {
    /// `off`, `empty`, `differs`, `ends`, `bound`, `prompt_logprobs` or `first_chunk`.
    pub fn as_str(self) -> &'static str {
        match self {
            CacheMiss::Off => "off",
            CacheMiss::Empty => "empty",
            CacheMiss::Differs => "differs",
            CacheMiss::Ends => "ends",
            CacheMiss::Bound => "bound",
            CacheMiss::PromptLogprobs => "prompt_logprobs",
            CacheMiss::FirstChunk => "first_chunk",
        }
    }
}

/// State of an engine at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStatus {
    /// Requests in prefill or decode.
    pub running: usize,
    /// Requests that wait for a slot or for memory.
    pub waiting: usize,
    /// Bytes of the keys and values of running requests.
    pub kv_bytes: u64,
    /// Bytes that the prefix cache holds.
    pub prefix_cache_bytes: u64,
    /// Bytes that the process holds by the count of whoever hands them out: of a GPU's memory the
    /// driver's, with what is kept for reuse and what the driver itself takes; on a CPU the
    /// process's resident memory. `None` where nobody tells.
    pub held_bytes: Option<u64>,
    /// Since the engine last finished a step of its work; zero while it is idle. One that grows
    /// past the longest step tells of an engine that hangs.
    pub heartbeat_age: Duration,
    /// Times of decode steps by stage since the load; zero where the engine does not measure them.
    pub step_times: StepTimes,
}

/// Times of decode steps by stage, summed over `steps`. The stages do not overlap and leave nothing
/// out. Prefills and other work between two steps are in none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepTimes {
    /// Passes of the model that were begun, each for all requests of a batch.
    pub steps: u64,
    /// Describing the pass: the graph of its operations.
    pub build: Duration,
    /// Handing the pass to the device, until the engine may go on.
    pub encode: Duration,
    /// Waiting for the device.
    pub wait: Duration,
    /// Sampling on the host: penalties, constraints, and describing the draw. What the device does
    /// of it is in `wait`.
    pub sample: Duration,
    /// From ids to text, stop strings, handing tokens over.
    pub detokenize: Duration,
    /// All else: admission, requests that join and leave, memory.
    pub rest: Duration,
}

impl StepTimes {
    /// All parts together.
    pub fn total(&self) -> Duration {
        self.build + self.encode + self.wait + self.sample + self.detokenize + self.rest
    }

    /// Returns the times since `earlier`, a reading of the same engine.
    #[must_use]
    pub fn since(&self, earlier: &StepTimes) -> StepTimes {
        StepTimes {
            steps: self.steps.saturating_sub(earlier.steps),
            build: self.build.saturating_sub(earlier.build),
            encode: self.encode.saturating_sub(earlier.encode),
            wait: self.wait.saturating_sub(earlier.wait),
            sample: self.sample.saturating_sub(earlier.sample),
            detokenize: self.detokenize.saturating_sub(earlier.detokenize),
            rest: self.rest.saturating_sub(earlier.rest),
        }
    }
}

impl GenerateMetrics {
    /// Computed prompt tokens a second; 0 where no time was measured.
    pub fn prefill_tokens_per_second(&self) -> f64 {
        rate(self.prompt_tokens.saturating_sub(self.cached_prompt_tokens), self.prefill_duration)
    }

    /// Tokens a second after each request's first one, which prefill produced; 0 where there are no
    /// others.
    pub fn decode_tokens_per_second(&self) -> f64 {
        rate(self.generated_tokens.saturating_sub(self.requests.max(1)), self.decode_duration)
    }

    /// The sums over the requests of a batch: of their counts and of their durations, so that rates
    /// are means over the requests, whose times overlap. The time to the first token is the
    /// shortest, the peak of memory the highest, and the memory in use that of the last request. A
    /// reason for a cache miss stays where it is the same for all.
    pub fn sum<'a>(requests: impl IntoIterator<Item = &'a GenerateMetrics>) -> GenerateMetrics {
        requests.into_iter().cloned().reduce(GenerateMetrics::add).unwrap_or_default()
    }

    fn add(self, next: GenerateMetrics) -> GenerateMetrics {
        GenerateMetrics {
            requests: self.requests.max(1) + next.requests.max(1),
            prompt_tokens: self.prompt_tokens + next.prompt_tokens,
            cached_prompt_tokens: self.cached_prompt_tokens + next.cached_prompt_tokens,
            cache_miss: self.cache_miss.filter(|miss| next.cache_miss == Some(*miss)),
            generated_tokens: self.generated_tokens + next.generated_tokens,
            draft_tokens: self.draft_tokens + next.draft_tokens,
            accepted_draft_tokens: self.accepted_draft_tokens + next.accepted_draft_tokens,
            queue_duration: self.queue_duration + next.queue_duration,
            prefill_duration: self.prefill_duration + next.prefill_duration,
            decode_duration: self.decode_duration + next.decode_duration,
            picture_preparation: self.picture_preparation + next.picture_preparation,
            picture_tower: self.picture_tower + next.picture_tower,
            total_duration: self.total_duration + next.total_duration,
            time_to_first_token: [self.time_to_first_token, next.time_to_first_token]
                .into_iter()
                .flatten()
                .min(),
            peak_memory_bytes: self.peak_memory_bytes.max(next.peak_memory_bytes),
            active_memory_bytes: next.active_memory_bytes,
        }
    }
}

/// The metrics of the call that finished last, kept by a model together with its engine: clones
/// share them.
///
/// ```
/// use inference_core::{GenerateMetrics, LastMetrics};
///
/// let kept = LastMetrics::default();
/// assert_eq!(kept.get(), None);
/// kept.clone().set(GenerateMetrics { generated_tokens: 3, ..Default::default() });
/// assert_eq!(kept.get().unwrap().generated_tokens, 3);
/// ```
#[derive(Clone, Debug, Default)]
pub struct LastMetrics(Arc<Mutex<Option<GenerateMetrics>>>);

impl LastMetrics {
    /// Keeps `metrics` in place of earlier ones.
    pub fn set(&self, metrics: GenerateMetrics) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(metrics);
    }

    /// The metrics that were set last; `None` before the first.
    pub fn get(&self) -> Option<GenerateMetrics> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn rate(count: usize, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}
