//! One running request: its caches, its draws, its text, its times.

use std::time::{Duration, Instant};

use inference_core::{
    CacheMiss, FinishReason, GenerateMetrics, GenerationSender, Token, TokenLogprob,
};
use mlx_ffi::{Array, async_eval, eval_all, memory, ops};

use super::{Job, TextState};
use crate::cache::{Cache, CacheSpec};
use crate::error::Result;
use crate::layers::{Decoder, Reach};
use crate::sampling::{Draw, Sampler};

/// Steps between two clean-ups of the allocator's cache.
const CLEAR_CACHE_EVERY: usize = 256;

/// All that belongs to one request; dropping it frees everything.
pub(super) struct Sequence {
    /// The prompt and what has been generated.
    ids: Vec<u32>,
    prompt_tokens: usize,
    reach: Reach,
    caches: Vec<Cache>,
    sampler: Sampler,
    text: TextState,
    output: GenerationSender,
    stop: Vec<String>,
    stop_token_ids: Vec<u32>,
    eos_token_ids: Vec<u32>,
    max_tokens: usize,
    generated: usize,
    times: Times,
}

/// When things happened.
struct Times {
    queued: Instant,
    started: Instant,
    first_known: Option<Instant>,
    last_known: Option<Instant>,
    first_sent: Option<Instant>,
}

/// What the worker is told while a sequence runs.
pub(super) enum Signal {
    Continue,
    Closing,
}

impl Sequence {
    /// A sequence at its beginning. `max_tokens` was admitted.
    pub fn new(
        job: Job,
        sampler: Sampler,
        model: &Decoder,
        specs: &[CacheSpec],
        max_tokens: usize,
    ) -> Sequence {
        let Job { ids, options, eos_token_ids, text, output, queued_at, .. } = job;
        let reach = model.reach(ids.len());
        Sequence {
            prompt_tokens: ids.len(),
            reach,
            caches: specs.iter().map(|spec| Cache::new(*spec, reach)).collect(),
            ids,
            sampler,
            text,
            output,
            stop: options.stop,
            stop_token_ids: options.stop_token_ids,
            eos_token_ids: if options.ignore_eos { Vec::new() } else { eos_token_ids },
            max_tokens,
            generated: 0,
            times: Times {
                queued: queued_at,
                started: Instant::now(),
                first_known: None,
                last_known: None,
                first_sent: None,
            },
        }
    }

    /// Runs to the end. `between` is called between steps; it serves the queue.
    ///
    /// # Errors
    /// What failed, with the phase that it failed in.
    pub fn run(
        &mut self,
        model: &Decoder,
        chunk: usize,
        between: &mut dyn FnMut() -> Signal,
    ) -> Result<FinishReason> {
        let in_phase = |phase: String| {
            move |error: crate::error::Error| match error {
                crate::error::Error::Core(error) => crate::error::Error::Core(error),
                other => inference_core::Error::Engine(format!("{phase}: {other}")).into(),
            }
        };
        if let Some(reason) =
            self.prefill(model, chunk, between).map_err(in_phase("prefill".into()))?
        {
            return self.end(reason);
        }
        let mut draw = self.last_step(model).map_err(in_phase("prefill".into()))?;
        loop {
            let step = self.generated;
            let is_last = step + 1 == self.max_tokens;
            // The ids with the one that this step makes.
            let reach = model.reach(self.ids.len() + 1);
            let next = if !is_last && reach == self.reach {
                // Queued before this step's id is read, so that the device never waits for us.
                let next = self.step(model, &draw.id, Some(&draw.id));
                Some(next.map_err(in_phase(format!("decode step {}", step + 1)))?)
            } else {
                None
            };
            let reason = self.accept(&draw).map_err(in_phase(format!("decode step {step}")))?;
            if let Some(reason) = reason {
                return self.end(reason);
            }
            if is_last {
                return self.end(FinishReason::Length);
            }
            if let Some(reason) = self.interrupted(between)? {
                return self.end(reason);
            }
            let following = match next {
                Some(next) => next,
                // All positions are encoded anew, the last ids' too.
                None => {
                    self.reach = reach;
                    let specs: Vec<CacheSpec> = self.caches.iter().map(Cache::spec).collect();
                    self.caches = specs.iter().map(|spec| Cache::new(*spec, reach)).collect();
                    let in_phase = in_phase(format!("decode step {}", step + 1));
                    if let Some(reason) = self.prefill(model, chunk, between).map_err(&in_phase)? {
                        return self.end(reason);
                    }
                    self.last_step(model).map_err(in_phase)?
                }
            };
            if (step + 1).is_multiple_of(CLEAR_CACHE_EVERY) {
                memory::clear_cache()?;
            }
            draw = following;
        }
    }

    /// All ids but the last one, in chunks, each evaluated before the next.
    fn prefill(
        &mut self,
        model: &Decoder,
        chunk: usize,
        between: &mut dyn FnMut() -> Signal,
    ) -> Result<Option<FinishReason>> {
        // Without tokens to generate, the last id is part of the prefill.
        let end = self.ids.len() - usize::from(self.max_tokens > 0);
        let mut done = 0;
        while done < end {
            if let Some(reason) = self.interrupted(between)? {
                return Ok(Some(reason));
            }
            let part = &self.ids[done..end.min(done + chunk)];
            let ids = Array::from_u32(part, &[1, part.len() as i32])?;
            done += part.len();
            let hidden = model.hidden(&ids, &mut self.caches)?;
            // The hidden states themselves are not needed, so the last layer's end never runs.
            drop(hidden);
            eval_all(self.caches.iter().flat_map(Cache::arrays))?;
            memory::clear_cache()?;
        }
        if let Some(reason) = self.interrupted(between)? {
            return Ok(Some(reason));
        }
        Ok((self.max_tokens == 0).then_some(FinishReason::Length))
    }

    /// Queues the step after the last id that is known.
    fn last_step(&mut self, model: &Decoder) -> Result<Draw> {
        let last = self.ids[self.ids.len() - 1];
        self.step(model, &Array::from_u32(&[last], &[1])?, None)
    }

    /// Queues the step after `id`, `[1]`. `pending` is that id where it has not been read yet.
    fn step(&mut self, model: &Decoder, id: &Array, pending: Option<&Array>) -> Result<Draw> {
        let ids = ops::reshape(id, &[1, 1])?;
        let hidden = model.hidden(&ids, &mut self.caches)?;
        // [1, 1, vocab_size] -> [1, vocab_size]
        let logits = ops::squeeze(&model.logits(&hidden)?, 1)?;
        let draw = self.sampler.draw(&logits, pending)?;
        async_eval(draw.arrays())?;
        Ok(draw)
    }

    /// Waits for a draw and hands its token over. Returns why the generation ends here, if so.
    fn accept(&mut self, draw: &Draw) -> Result<Option<FinishReason>> {
        let id = draw.id.item_u32()?;
        let now = Instant::now();
        self.times.first_known.get_or_insert(now);
        if let Some(check) = &draw.check
            && !check.item_f32()?.is_finite()
        {
            return Err(crate::error::Error::model(
                "the model's logits are no numbers: its weights are damaged, or overflow the type that it is computed in (try dtype f32)",
            ));
        }
        if self.eos_token_ids.contains(&id) {
            return Ok(Some(FinishReason::EndOfSequence(id)));
        }
        if self.stop_token_ids.contains(&id) {
            return Ok(Some(FinishReason::StopToken(id)));
        }
        self.times.last_known = Some(now);
        self.generated += 1;
        self.ids.push(id);
        self.sampler.observe(id);
        let token = Token {
            id,
            text: String::new(),
            logprob: draw.logprob.as_ref().map(Array::item_f32).transpose()?,
            top_logprobs: draw.top.as_ref().map(top_logprobs).transpose()?.unwrap_or_default(),
            logits: draw.logits.as_ref().map(Array::to_vec_f32).transpose()?,
        };
        let matched = self.text.push(token);
        if let Some(index) = matched {
            return Ok(Some(FinishReason::StopText(self.stop[index].clone())));
        }
        self.send(false);
        Ok(None)
    }

    /// Settles the text. A stop string may be complete only now.
    fn end(&mut self, reason: FinishReason) -> Result<FinishReason> {
        let reason = match (self.text.finish(), reason) {
            (_, reason @ FinishReason::StopText(_)) => reason,
            (Some(index), _) => FinishReason::StopText(self.stop[index].clone()),
            (None, reason) => reason,
        };
        self.send(true);
        Ok(reason)
    }

    fn send(&mut self, ended: bool) {
        for token in self.text.settled(ended) {
            self.times.first_sent.get_or_insert_with(Instant::now);
            self.output.send(token);
        }
    }

    fn interrupted(&self, between: &mut dyn FnMut() -> Signal) -> Result<Option<FinishReason>> {
        match between() {
            Signal::Closing => Err(inference_core::Error::Closed.into()),
            Signal::Continue => Ok(self.output.is_cancelled().then_some(FinishReason::Cancelled)),
        }
    }

    /// Frees the caches and the pending work; what is left is the way to the consumer.
    pub fn finish(self) -> (GenerationSender, GenerateMetrics, u64) {
        let now = Instant::now();
        let Times { queued, started, first_known, last_known, first_sent } = self.times;
        let metrics = GenerateMetrics {
            prompt_tokens: self.prompt_tokens,
            cached_prompt_tokens: 0,
            cache_miss: Some(CacheMiss::Off),
            generated_tokens: self.generated,
            queue_duration: started.saturating_duration_since(queued),
            prefill_duration: first_known.unwrap_or(now).saturating_duration_since(started),
            decode_duration: first_known
                .zip(last_known)
                .map_or(Duration::ZERO, |(first, last)| last.saturating_duration_since(first)),
            total_duration: now.saturating_duration_since(queued),
            time_to_first_token: first_sent.map(|sent| sent.saturating_duration_since(queued)),
            peak_memory_bytes: 0,
            active_memory_bytes: 0,
        };
        (self.output, metrics, self.sampler.seed())
    }
}

/// The most likely tokens, most likely first; equals by id.
fn top_logprobs((ids, logprobs): &(Array, Array)) -> Result<Vec<TokenLogprob>> {
    let ids = ids.to_vec_u32()?;
    let logprobs = logprobs.to_vec_f32()?;
    let mut top: Vec<TokenLogprob> =
        ids.into_iter().zip(logprobs).map(|(id, logprob)| TokenLogprob { id, logprob }).collect();
    top.sort_by(|a, b| b.logprob.total_cmp(&a.logprob).then(a.id.cmp(&b.id)));
    Ok(top)
}
