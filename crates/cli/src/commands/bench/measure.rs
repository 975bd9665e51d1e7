//! The tests, each measured several times.

use std::thread;
use std::time::{Duration, Instant};

use inference_core::{GenerateMetrics, GenerateOptions, Prompt, TextModel};
use serde::Serialize;

use super::step::Step;
use crate::failure::{Failure, Result};

/// The measurements of one test.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// `pp512`, `tg128`, `c32 pp512+tg128`.
    pub test: String,
    /// The mean; of several requests, the tokens of all of them from the first request to the last
    /// token.
    pub tokens_per_second: f64,
    /// The standard deviation of what was measured.
    pub stddev: f64,
    /// Each measurement.
    pub samples: Vec<f64>,
    /// The most memory in use, in bytes.
    pub peak_memory_bytes: u64,
    /// For several requests at once.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub together: Option<Together>,
    /// The draft tokens, in answers that are measured with them.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub drafts: Option<Drafts>,
    /// The parts of a decode step's time, where they are asked for.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
}

/// The draft tokens of all measured runs.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Drafts {
    /// Those that were verified.
    pub draft_tokens: usize,
    /// Those of them that were drawn.
    pub accepted_draft_tokens: usize,
}

impl Drafts {
    fn add(&mut self, metrics: &GenerateMetrics) {
        self.draft_tokens += metrics.draft_tokens;
        self.accepted_draft_tokens += metrics.accepted_draft_tokens;
    }
}

/// The rate and the times of several requests at once.
#[derive(Debug, Serialize)]
pub struct Together {
    /// Tokens a second of all of them while each decodes; `None` where there was no such time.
    pub decode_tokens_per_second: Option<f64>,
    /// From a request to its first token.
    pub time_to_first_token_seconds: Spread,
    /// From a token to the next one.
    pub time_per_token_seconds: Spread,
}

/// The middle and the slow end of times, in seconds.
#[derive(Debug, Default, Serialize)]
pub struct Spread {
    /// Half of them are shorter.
    pub p50: f64,
    /// All but a twentieth are shorter.
    pub p95: f64,
}

impl Spread {
    fn of(mut seconds: Vec<f64>) -> Spread {
        seconds.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let last = seconds.len().saturating_sub(1);
            seconds.get((share * last as f64).round() as usize).copied().unwrap_or_default()
        };
        Spread { p50: at(0.5), p95: at(0.95) }
    }
}

/// The run that warms up, of which nothing is kept.
const WARM_UP: usize = 0;

/// A model under test.
pub struct Bench<'a> {
    /// The model.
    pub model: &'a dyn TextModel,
    /// How often each test is measured.
    pub repeat: usize,
    /// The most draft tokens of a pass; `None`: as the load has it.
    pub draft_tokens: Option<usize>,
    /// The temperature of draws.
    pub temperature: f32,
    /// The time of a decode step is split into its parts.
    pub breakdown: bool,
}

/// When the tokens of one request came.
struct Arrivals {
    asked: Instant,
    at: Vec<Instant>,
    metrics: GenerateMetrics,
}

impl Bench<'_> {
    /// Prompt tokens a second until the first token is known.
    ///
    /// # Errors
    /// The model's.
    pub fn prompt(&self, tokens: usize) -> Result<Measured> {
        let measured = self.measure(format!("pp{tokens}"), |run| {
            let metrics = self.generate(run, tokens, 1)?;
            Ok((metrics.prefill_tokens_per_second(), metrics.peak_memory_bytes))
        })?;
        Ok(Measured { step: None, ..measured })
    }

    /// Tokens a second after the first one, with `depth` tokens before them.
    ///
    /// # Errors
    /// The model's.
    pub fn decode(&self, tokens: usize, depth: usize) -> Result<Measured> {
        let at = if depth > 0 { format!("@d{depth}") } else { String::new() };
        let mut drafts = Drafts::default();
        let measured = self.measure(format!("tg{tokens}{at}"), |run| {
            let metrics = self.generate(run, depth.max(1), tokens + 1)?;
            if run > WARM_UP {
                drafts.add(&metrics);
            }
            Ok((metrics.decode_tokens_per_second(), metrics.peak_memory_bytes))
        })?;
        Ok(Measured { drafts: self.told(drafts), ..measured })
    }

    fn told(&self, drafts: Drafts) -> Option<Drafts> {
        (drafts.draft_tokens > 0 || self.draft_tokens.is_some()).then_some(drafts)
    }

    /// `requests` at once.
    ///
    /// # Errors
    /// The model's.
    pub fn together(&self, requests: usize, prompt: usize, new: usize) -> Result<Measured> {
        let (mut waits, mut gaps, mut rates) = (Vec::new(), Vec::new(), Vec::new());
        let mut drafts = Drafts::default();
        let name = format!("c{requests} pp{prompt}+tg{new}");
        let mut measured = self.measure(name, |run| {
            let all = self.at_once(run, requests, prompt, new)?;
            let seconds = |from: Instant, to: Instant| to.duration_since(from).as_secs_f64();
            let began = all.iter().map(|one| one.asked).min();
            let ended = all.iter().filter_map(|one| one.at.last()).max().copied();
            let count: usize = all.iter().map(|one| one.at.len()).sum();
            if run > WARM_UP {
                // From when all of them decode until the first one has ended.
                let from = all.iter().filter_map(|one| one.at.first()).max().copied();
                let to = all.iter().filter_map(|one| one.at.last()).min().copied();
                if let Some((from, to)) = from.zip(to).filter(|(from, to)| from < to) {
                    let within = |at: &&Instant| **at > from && **at <= to;
                    let tokens = all.iter().flat_map(|one| &one.at).filter(within).count();
                    rates.push(tokens as f64 / seconds(from, to));
                }
                waits.extend(
                    all.iter().filter_map(|one| Some(seconds(one.asked, *one.at.first()?))),
                );
                let pairs = all.iter().flat_map(|one| one.at.windows(2));
                gaps.extend(pairs.map(|pair| seconds(pair[0], pair[1])));
                all.iter().for_each(|one| drafts.add(&one.metrics));
            }
            let peak = all.iter().map(|one| one.metrics.peak_memory_bytes).max().unwrap_or(0);
            let time = began.zip(ended).map_or(0.0, |(began, ended)| seconds(began, ended));
            Ok((if time > 0.0 { count as f64 / time } else { 0.0 }, peak))
        })?;
        measured.together = Some(Together {
            decode_tokens_per_second: (!rates.is_empty()).then(|| mean(&rates)),
            time_to_first_token_seconds: Spread::of(waits),
            time_per_token_seconds: Spread::of(gaps),
        });
        measured.drafts = self.told(drafts);
        Ok(measured)
    }

    /// Once to warm up, and then as often as is asked for; `once` is given the run's number and
    /// returns tokens a second and the peak of memory.
    fn measure(
        &self,
        test: String,
        mut once: impl FnMut(usize) -> Result<(f64, u64)>,
    ) -> Result<Measured> {
        once(WARM_UP)?;
        let before = self.model.status().step_times;
        let (mut samples, mut peak_memory_bytes) = (Vec::new(), 0);
        for run in 1..=self.repeat {
            let (rate, peak) = once(run)?;
            samples.push(rate);
            peak_memory_bytes = peak_memory_bytes.max(peak);
        }
        let tokens_per_second = mean(&samples);
        let squares: f64 = samples.iter().map(|rate| (rate - tokens_per_second).powi(2)).sum();
        let stddev = (squares / samples.len().saturating_sub(1).max(1) as f64).sqrt();
        let times = self.model.status().step_times.since(&before);
        let step = self.breakdown.then(|| Step::of(&times));
        Ok(Measured {
            test,
            tokens_per_second,
            stddev,
            samples,
            peak_memory_bytes,
            together: None,
            drafts: None,
            step,
        })
    }

    fn generate(&self, run: usize, prompt: usize, new: usize) -> Result<GenerateMetrics> {
        let mut generation = self.model.generate(&self.ids(run, prompt), &self.options(new))?;
        for token in generation.by_ref() {
            token?;
        }
        let outcome = generation.outcome();
        let ended = outcome.ok_or_else(|| Failure::Other("a generation had no outcome".into()))?;
        self.check(prompt, ended.metrics.generated_tokens, new)?;
        Ok(ended.metrics.clone())
    }

    fn at_once(
        &self,
        run: usize,
        requests: usize,
        prompt: usize,
        new: usize,
    ) -> Result<Vec<Arrivals>> {
        thread::scope(|scope| {
            let one = |number: usize| {
                scope.spawn(move || {
                    let ids = self.ids(run * requests + number, prompt);
                    let (asked, metrics) = (Instant::now(), GenerateMetrics::default());
                    let mut arrivals = Arrivals { asked, at: Vec::new(), metrics };
                    let mut generation = self.model.generate(&ids, &self.options(new))?;
                    for token in generation.by_ref() {
                        token?;
                        arrivals.at.push(Instant::now());
                    }
                    self.check(prompt, arrivals.at.len(), new)?;
                    if let Some(outcome) = generation.outcome() {
                        arrivals.metrics = outcome.metrics.clone();
                    }
                    Ok(arrivals)
                })
            };
            let threads: Vec<_> = (0..requests).map(one).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, Result<Arrivals>>| {
                thread.join().map_err(|_| Failure::Other("a reading thread failed".into()))?
            };
            threads.into_iter().map(join).collect()
        })
    }

    /// Refuses an answer that has fewer tokens than were wanted.
    fn check(&self, prompt: usize, found: usize, wanted: usize) -> Result<()> {
        if found >= wanted {
            return Ok(());
        }
        let context = self.model.info().context_length;
        Err(Failure::Other(format!(
            "{found} of {wanted} tokens came behind a prompt of {prompt}: the context has {context} positions; measure shorter answers"
        )))
    }

    fn options(&self, new: usize) -> GenerateOptions {
        GenerateOptions {
            max_tokens: Some(new),
            temperature: Some(self.temperature),
            draft_tokens: self.draft_tokens,
            ignore_eos: true,
            ..GenerateOptions::default()
        }
    }

    /// Ids that look random and differ from run to run, so that no cache knows them.
    fn ids(&self, run: usize, count: usize) -> Prompt {
        let vocab = self.model.info().vocab_size.max(1) as u64;
        let id = |at: usize| {
            let mixed = ((run as u64) << 32 | at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            ((mixed >> 32) % vocab) as u32
        };
        Prompt::Ids((0..count).map(id).collect())
    }
}

fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// How long `work` takes.
///
/// # Errors
/// Its own.
pub fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let began = Instant::now();
    Ok((work()?, began.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::{Spread, mean};

    #[test]
    fn the_spread_is_the_middle_and_the_slow_end() {
        let spread = Spread::of((1..=101).rev().map(f64::from).collect());
        assert_eq!((spread.p50, spread.p95), (51.0, 96.0));
        assert_eq!(Spread::of(Vec::new()).p95, 0.0);
        assert_eq!(mean(&[1.0, 2.0]), 1.5);
    }
}
