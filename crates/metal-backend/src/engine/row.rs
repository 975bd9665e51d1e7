//! One running request: its draws, its text, its times. Its keys and values lie in the caches of
//! the batch that it is a row of.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use inference_core::{
    CacheMiss, Error, FinishReason, GenerateMetrics, GenerationSender, Outcome, PrefillProgress,
    Token, TokenLogprob,
};
use mlx_ffi::{Array, Indices};

use super::job::Job;
use super::output::TextState;
use super::prompt_logprobs::{PromptLogprobs, ranked};
use super::speculation::Drafts;
use super::step_clock::{Part, StepClock};
use crate::error::{Result, not_numbers};
use crate::plan::{Acceptance, Drafted};
use crate::sampling::{Report, Sampler};
use crate::sight::Scene;

/// All that belongs to one request but its keys and values.
pub(super) struct Row {
    /// How the engine calls it.
    pub number: u64,
    /// The prompt, then what was generated.
    pub ids: Vec<u32>,
    /// The prompt's pictures, where it has any.
    pub scene: Option<Arc<Scene>>,
    pub sampler: Sampler,
    /// The most tokens to generate; admitted.
    pub max_tokens: usize,
    /// The prompt's log probabilities, until they are reported.
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// Its drafts, where it asks for them.
    pub drafts: Option<Drafts>,
    /// The most memory seen in use while the request ran.
    pub peak_bytes: u64,
    /// Set once it has begun again for want of memory.
    pub was_retried: bool,
    /// Ids that chunks computed before the first step; none before they are counted, or where all
    /// are computed anew.
    pub chunked: Option<usize>,
    /// Prompt tokens that a cache held, and why not more.
    cached: (usize, Option<CacheMiss>),
    prompt_tokens: usize,
    text: Option<TextState>,
    output: GenerationSender,
    stop: Vec<String>,
    stop_token_ids: Vec<u32>,
    eos_token_ids: Vec<u32>,
    times: Times,
}

/// When things happened.
struct Times {
    queued: Instant,
    started: Instant,
    /// All of the prompt was computed.
    prefilled: Option<Instant>,
    first_known: Option<Instant>,
    last_known: Option<Instant>,
    first_sent: Option<Instant>,
    /// Computing what pictures become.
    tower: Duration,
}

impl Row {
    /// A request that begins now.
    pub fn new(job: Job, sampler: Sampler, max_tokens: usize) -> Row {
        let Job {
            number,
            ids,
            scene,
            options,
            eos_token_ids,
            prompt_logprobs,
            text,
            output,
            queued_at,
            ..
        } = job;
        Row {
            number,
            prompt_tokens: ids.len(),
            ids,
            scene,
            sampler,
            max_tokens,
            prompt_logprobs,
            drafts: None,
            peak_bytes: 0,
            was_retried: false,
            chunked: None,
            cached: (0, Some(CacheMiss::Off)),
            text,
            output: output.into_inner(),
            stop: options.stop,
            stop_token_ids: options.stop_token_ids,
            eos_token_ids: if options.ignore_eos { Vec::new() } else { eos_token_ids },
            times: Times {
                queued: queued_at,
                started: Instant::now(),
                prefilled: None,
                first_known: None,
                last_known: None,
                first_sent: None,
                tower: Duration::ZERO,
            },
        }
    }

    /// The request with these drafts.
    pub fn drafting(self, drafts: Option<Drafts>) -> Row {
        Row { drafts, ..self }
    }

    /// The keys under which prefixes of its ids are kept.
    pub fn keys(&self) -> Cow<'_, [u32]> {
        self.scene.as_ref().map_or(Cow::Borrowed(&self.ids), |scene| scene.keys(&self.ids))
    }

    /// Returns true when its first `end` ids end inside of a picture.
    pub fn is_inside_picture(&self, end: usize) -> bool {
        self.scene.as_ref().is_some_and(|scene| scene.is_inside(end))
    }

    /// Takes note of how many ids a cache holds when the request begins, and why not more; what it
    /// finds when it begins again is not told.
    pub fn cached(&mut self, ids: usize, miss: Option<CacheMiss>) {
        if self.generated() == 0 {
            self.cached = (ids, miss);
        }
    }

    /// Returns true when the model's drafter is asked for drafts.
    pub fn asks_model_for_drafts(&self) -> bool {
        self.drafts.as_ref().is_some_and(Drafts::asks_model)
    }

    /// Forgets what was drawn and not read, so that the row can be computed again from its ids.
    pub fn begin_again(&mut self) {
        if let Some(drafts) = &mut self.drafts {
            drafts.begin_again();
        }
        self.sampler.forget_draws_after(self.ids.len() - self.prompt_tokens);
    }

    /// Returns true when the request's token fired or its consumer is gone.
    pub fn is_cancelled(&self) -> bool {
        self.output.is_cancelled()
    }

    /// When the request began.
    pub fn started(&self) -> Instant {
        self.times.started
    }

    /// Tokens generated.
    pub fn generated(&self) -> usize {
        self.ids.len() - self.prompt_tokens
    }

    /// Ids of the first pass where its end draws no token: all of the prompt but its last id, with
    /// which decoding begins then.
    pub fn first_pass(&self) -> usize {
        self.prompt_tokens - usize::from(self.max_tokens > 0)
    }

    /// The most draft tokens of a pass; 0: none.
    pub fn most_drafts(&self) -> usize {
        self.drafts.as_ref().map_or(0, Drafts::longest)
    }

    /// The draft behind its ids, at most `most` tokens, and no more than it has left to generate;
    /// of what a model drafted behind them it is the beginning. A sequence of so many ids `fits`
    /// into its caches.
    pub fn draft(
        &mut self,
        most: usize,
        drafted: Option<&[u32]>,
        fits: impl Fn(usize) -> bool,
    ) -> Vec<u32> {
        let most = self.longest_draft(most, fits);
        let Some(drafts) = &mut self.drafts else { return Vec::new() };
        match drafted {
            None => drafts.propose(&self.ids, most),
            Some(drafted) => drafts.take(&self.ids, &drafted[..most.min(drafted.len())]),
        }
    }

    /// The most tokens of its next draft, at most `most`, and no more than it has left to generate.
    /// A sequence of so many ids `fits` into its caches.
    pub fn longest_draft(&self, most: usize, fits: impl Fn(usize) -> bool) -> usize {
        let left = (self.max_tokens - self.generated()).saturating_sub(1);
        let of_row = self.drafts.as_ref().map_or(0, Drafts::longest).min(left).min(most);
        (0..of_row).take_while(|at| fits(self.ids.len() + at + 1)).count()
    }

    /// The draft of so many tokens, as the plan sees it.
    pub fn drafted(&self, length: usize) -> Drafted {
        let none = Drafted { acceptance: Acceptance::default(), length: 0 };
        self.drafts.as_ref().map_or(none, |drafts| drafts.drafted(length))
    }

    /// Tells how many ids of the prompt are computed, where no token was drawn yet.
    pub fn tell_progress(&self, processed: usize) {
        if self.generated() == 0 {
            self.output.send_prefill(PrefillProgress {
                total: self.prompt_tokens,
                cached: self.cached.0,
                processed: processed.min(self.prompt_tokens),
                elapsed: self.times.started.elapsed(),
            });
        }
    }

    /// Takes note that the prompt is computed, and tells of it for the first time.
    pub fn tell_prompt(&mut self) {
        self.times.prefilled.get_or_insert_with(Instant::now);
        if let Some(report) = self.prompt_logprobs.take() {
            self.output.send_prompt_logprobs(report.into_tokens());
        }
    }

    /// Takes in a drawn id, whose value is known, and hands its token over. Returns why the
    /// generation ends here, if so.
    ///
    /// # Errors
    /// Those of MLX; a model whose logits are no numbers.
    pub fn accept(
        &mut self,
        id: u32,
        report: &Report,
        clock: &mut StepClock,
    ) -> Result<Option<FinishReason>> {
        let now = Instant::now();
        self.times.first_known.get_or_insert(now);
        if let Some(check) = &report.check
            && !check.item_f32()?.is_finite()
        {
            return Err(not_numbers());
        }
        if self.eos_token_ids.contains(&id) {
            return Ok(Some(FinishReason::EndOfSequence(id)));
        }
        if self.stop_token_ids.contains(&id) {
            return Ok(Some(FinishReason::StopToken(id)));
        }
        self.times.last_known = Some(now);
        self.ids.push(id);
        self.sampler.observe(id);
        if let Some(drafts) = &mut self.drafts {
            drafts.compare(&self.ids);
        }
        let token = Token {
            id,
            text: String::new(),
            logprob: report.logprob.as_ref().map(Array::item_f32).transpose()?,
            top_logprobs: report.top.as_ref().map(top_logprobs).transpose()?.unwrap_or_default(),
            logits: report.logits.as_ref().map(Array::to_vec_f32).transpose()?,
        };
        clock.lap(Part::Sample);
        let stopped = self.text.as_mut().and_then(|text| text.push(token));
        if stopped.is_none() {
            self.send(false);
        }
        clock.lap(Part::Detokenize);
        if let Some(index) = stopped {
            return Ok(Some(FinishReason::StopText(self.stop[index].clone())));
        }
        if self.sampler.is_complete() {
            // What else could come is an end.
            return Ok(self.eos_token_ids.first().copied().map(FinishReason::EndOfSequence));
        }
        Ok((self.generated() >= self.max_tokens).then_some(FinishReason::Length))
    }

    /// Takes in an id that rank 0 has drawn, which hands its token over.
    pub fn follow(&mut self, id: u32) {
        self.ids.push(id);
        self.sampler.observe(id);
    }

    /// Settles the text. A stop string may be complete only now.
    pub fn end(&mut self, reason: FinishReason) -> FinishReason {
        let stopped = self.text.as_mut().and_then(TextState::finish);
        let reason = match (stopped, reason) {
            (_, reason @ FinishReason::StopText(_)) => reason,
            (Some(index), _) => FinishReason::StopText(self.stop[index].clone()),
            (None, reason) => reason,
        };
        self.send(true);
        reason
    }

    fn send(&mut self, ended: bool) {
        let Some(text) = &mut self.text else { return };
        for token in text.settled(ended) {
            self.times.first_sent.get_or_insert_with(Instant::now);
            self.output.send(token);
        }
    }

    /// Takes note of time in which the engine computed what its pictures become.
    pub fn looked(&mut self, time: Duration) {
        self.times.tower += time;
    }

    /// Metrics of the request, once it has ended with `active_bytes` in use.
    pub fn metrics(&self, active_bytes: u64) -> GenerateMetrics {
        let now = Instant::now();
        let Times { queued, started, prefilled, first_known, last_known, first_sent, tower } =
            self.times;
        // A prompt that was given up has no rate: how much of it was computed is not told.
        let prefill_end = first_known.or(prefilled).unwrap_or(started);
        let (drafted, accepted) = self.drafts.as_ref().map_or((0, 0), |drafts| drafts.verified);
        GenerateMetrics {
            requests: 1,
            prompt_tokens: self.prompt_tokens,
            cached_prompt_tokens: self.cached.0,
            cache_miss: self.cached.1,
            generated_tokens: self.generated(),
            draft_tokens: drafted,
            accepted_draft_tokens: accepted,
            queue_duration: started.saturating_duration_since(queued),
            prefill_duration: prefill_end.saturating_duration_since(started),
            decode_duration: first_known
                .zip(last_known)
                .map_or(Duration::ZERO, |(first, last)| last.saturating_duration_since(first)),
            picture_preparation: self.scene.as_ref().map_or(Duration::ZERO, |of| of.preparation()),
            picture_tower: tower,
            total_duration: now.saturating_duration_since(queued),
            time_to_first_token: first_sent.map(|sent| sent.saturating_duration_since(queued)),
            peak_memory_bytes: self.peak_bytes,
            active_memory_bytes: active_bytes,
        }
    }

    /// Tells the consumer how it ended.
    pub fn finish(self, result: Result<FinishReason, Error>, metrics: GenerateMetrics) {
        let (seed, greedy) = (self.sampler.seed(), self.sampler.is_greedy());
        match result {
            Ok(finish_reason) => {
                self.output.finish(Outcome { finish_reason, metrics, seed, greedy });
            }
            Err(error) => self.output.fail(error),
        }
    }
}

/// The most likely tokens, most likely first; equals by id.
fn top_logprobs((ids, logprobs): &(Indices, Array)) -> Result<Vec<TokenLogprob>> {
    Ok(ranked(&ids.to_vec_u32()?, &logprobs.to_vec_f32()?))
}
