//! From logits to a token id, on the device.
//!
//! The order is mlx-lm's: logit bias, repetition, presence and frequency penalties, DRY; log
//! probabilities are taken here; then the constraint, top-n-sigma, typical-p, top-p, min-p, XTC,
//! top-k, temperature, draw.

use std::hash::{BuildHasher, Hasher, RandomState};

use inference_core::{GenerateOptions, PenaltyScope};
use inference_text::constraint::{Guide, Mask};
use mlx_ffi::cuda::{Drawer, Drawing};
use mlx_ffi::{Array, Dtype, Indices, Result, ops, random};

/// Below this temperature a draw cannot differ from the most likely token, but the scaled log
/// probabilities could exceed f32.
const GREEDY_BELOW: f32 = 1e-30;

/// The most ids that ranks send in place of all logits.
const MOST_TOP: usize = 256;

/// The best token alone has more than this; a smaller bound could become 0, which all reach.
const LEAST_TOP_P: f32 = 1e-30;

/// The draw of one step for one row; nothing is computed until it is read.
pub(crate) struct Draw {
    /// `[1]`, U32.
    pub id: Indices,
    pub report: Report,
}

impl Draw {
    /// Everything that will be read.
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        std::iter::once(&*self.id).chain(self.report.arrays())
    }
}

/// The requested outputs of a draw beside its id.
#[derive(Default)]
pub(crate) struct Report {
    /// `[1]`: the log probability of the id.
    pub logprob: Option<Array>,
    /// `[n]` ids and `[n]` log probabilities of the most likely tokens, in no order.
    pub top: Option<(Indices, Array)>,
    /// `[vocab_size]` f32 as the model made them.
    pub logits: Option<Array>,
    /// With a sequence's first draw, `[1]`: finite if the model's logits are numbers.
    pub check: Option<Array>,
}

impl Report {
    /// Everything that will be asked for.
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        let top = self.top.iter().flat_map(|(ids, logprobs)| [&**ids, logprobs]);
        self.logprob.iter().chain(top).chain(&self.logits).chain(&self.check)
    }
}

/// The sampling state of one sequence. A draw depends on the seed, the step and the logits.
pub(crate) struct Sampler {
    options: GenerateOptions,
    seed: u64,
    step: u64,
    /// The ids that the penalties look at, oldest first.
    history: Vec<u32>,
    /// Ids `[1, n]` and what is added to their logits `[1, n]`.
    bias: Option<(Indices, Array)>,
    /// `[1, vocab_size]`, false for the ids that XTC never drops.
    xtc_droppable: Option<Array>,
    /// The constraint that the text must conform to and the bound of its reasoning.
    guide: Option<Guide>,
    /// Ids that it allows the next draw to choose, once they are known.
    mask: Option<Mask>,
    /// The penalty on going on with what was there before.
    repeats: Option<Repeats>,
    /// Ids `[1, n]` that are not drawn before `min_tokens`.
    ends: Option<Indices>,
    /// Those ids.
    end_ids: Vec<u32>,
    /// Our kernel for CUDA draws.
    by_kernel: bool,
}

impl Sampler {
    /// The state before the first draw. The penalties see `prompt` where their scope is the
    /// context; `protected` are the ids that XTC never drops.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn new(
        options: GenerateOptions,
        seed: u64,
        prompt: &[u32],
        protected: &[u32],
        vocab_size: i32,
    ) -> Result<Sampler> {
        let bias = match options.logit_bias.len() {
            0 => None,
            n => {
                let ids: Vec<u32> = options.logit_bias.keys().copied().collect();
                let values: Vec<f32> = options.logit_bias.values().copied().collect();
                let shape = [1, n as i32];
                Some((Indices::from_u32(&ids, &shape)?, Array::from_f32(&values, &shape)?))
            }
        };
        let xtc_droppable = match options.xtc {
            None => None,
            Some(_) => {
                let mut droppable = vec![1u8; vocab_size as usize];
                for &id in protected {
                    if let Some(entry) = droppable.get_mut(id as usize) {
                        *entry = 0;
                    }
                }
                Some(Array::from_bytes(&droppable, &[1, vocab_size], Dtype::Bool)?)
            }
        };
        let mut sampler = Sampler {
            options,
            seed,
            step: 0,
            history: Vec::new(),
            bias,
            xtc_droppable,
            guide: None,
            mask: None,
            repeats: None,
            ends: None,
            end_ids: Vec::new(),
            by_kernel: false,
        };
        if sampler.options.penalty_scope == PenaltyScope::Context {
            prompt.iter().for_each(|id| sampler.observe(*id));
        }
        Ok(sampler)
    }

    /// The sampler with draws by our kernel for CUDA, or by operations of MLX.
    pub fn by_kernel(self, by_kernel: bool) -> Sampler {
        Sampler { by_kernel, ..self }
    }

    /// The sampler with a penalty on repeats, which know the prompt.
    pub fn against(self, repeats: Option<Repeats>) -> Sampler {
        Sampler { repeats, ..self }
    }

    /// The seed of the draws.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Takes note of an id that the penalties and the constraint will see from now on.
    pub fn observe(&mut self, id: u32) {
        if let Some(guide) = &mut self.guide {
            guide.accept(id);
            self.mask = None;
        }
        if let Some(repeats) = &mut self.repeats {
            repeats.observe(id);
        }
        let window = self.options.penalty_window_or_default();
        self.history.push(id);
        if self.history.len() > window.saturating_mul(2) {
            self.history.drain(..self.history.len() - window);
        }
    }

    /// Forgets the last draw, which was not read, so that the next one takes its place. A rank that
    /// follows another one has drawn nothing.
    pub fn forget_draw(&mut self) {
        self.step = self.step.saturating_sub(1);
    }

    /// Forgets all draws but the first `count`.
    pub fn forget_draws_after(&mut self, count: usize) {
        self.step = self.step.min(count as _);
    }

    /// Returns true when a draw depends on the ids before it, which must be read first.
    pub fn needs_history(&self) -> bool {
        let set = |value: Option<f32>, neutral: f32| value.is_some_and(|value| value != neutral);
        set(self.options.repetition_penalty, 1.0)
            || set(self.options.presence_penalty, 0.0)
            || set(self.options.frequency_penalty, 0.0)
            || self.repeats.is_some()
            || self.guide.as_ref().is_some_and(Guide::must_know)
    }

    /// Returns true when each draw is the most likely id.
    pub fn is_greedy(&self) -> bool {
        is_greedy(&self.options)
    }

    fn reports(&self) -> bool {
        self.options.logprobs || self.options.top_logprobs > 0
    }

    /// Returns true when a draw is an id of the model's own logits, with no other output requested.
    fn is_untouched(&self) -> bool {
        let told = self.options.logits || self.reports();
        self.bias.is_none() && !self.needs_history() && !told && !self.must_go_on()
    }

    /// Returns true when a draw is the most likely id and nothing else.
    fn is_plain(&self) -> bool {
        self.is_greedy() && self.is_untouched()
    }

    /// Among how many of the most likely ids the next draw chooses, where it needs no other logits,
    /// and they were found to be numbers; `None`: it needs all.
    pub fn narrow(&self) -> Option<usize> {
        if !self.is_untouched() || self.step == 0 {
            return None;
        }
        if self.is_greedy() {
            return Some(1);
        }
        let top_k = self.options.top_k.filter(|k| (1..=MOST_TOP).contains(k));
        top_k.filter(|_| !needs_filters(&self.options) && !self.by_kernel)
    }

    /// Draws where the draw is [narrow](Self::narrow), from the `logprobs`, `[1, vocab_size]`, of
    /// which all but those ids may be impossible: `[1]`.
    pub fn draw_narrow(&mut self, logprobs: &Array) -> Result<Indices> {
        let id = match self.is_greedy() {
            true => ops::argmax(logprobs, -1, false)?,
            false => self.sample(logprobs, Some(1.0))?,
        };
        self.step += 1;
        Ok(id)
    }

    /// Takes note of a draw that was made elsewhere.
    pub fn count_draw(&mut self) {
        self.step += 1;
    }

    /// How our kernel draws, where it does.
    fn drawing(&self) -> Option<Drawing> {
        let options = &self.options;
        let is_one = self.by_kernel && !needs_filters(options) && !self.is_greedy();
        is_one.then(|| Drawing {
            temperature: Some(options.temperature.unwrap_or(1.0)),
            top_p: options.top_p.map_or(1.0, |p| p.max(LEAST_TOP_P)),
            min_p: options.min_p.unwrap_or(0.0),
            top_k: options.top_k.and_then(|k| u32::try_from(k).ok()).unwrap_or(0),
            seed: self.seed,
        })
    }

    /// Draws from `logits`, `[1, vocab_size]`.
    ///
    /// # Errors
    /// Those of MLX and of [`prepare`](Self::prepare).
    pub fn draw(&mut self, logits: &Array) -> crate::error::Result<Draw> {
        let allowed = self.allowed(logits.shape()[1])?;
        Ok(self.draw_among(logits, allowed.as_ref())?)
    }

    /// Draws among the ids of `allowed`, `[1, vocab_size]`, or among all.
    fn draw_among(&mut self, logits: &Array, allowed: Option<&Array>) -> Result<Draw> {
        let raw = ops::astype(logits, Dtype::F32)?;
        let logits = self.adjust(raw.share()?)?;
        let (greedy, reports) = (self.is_greedy(), self.reports());
        let held = self.held(&logits, allowed)?;
        let logprobs =
            if reports || (!greedy && held.is_none()) { Some(normalise(&logits)?) } else { None };
        let id = match (held, &logprobs) {
            (None, Some(logprobs)) if !greedy => self.sample(logprobs, None)?,
            (None, _) => ops::argmax(&logits, -1, false)?,
            (Some(held), _) if greedy => ops::argmax(&held, -1, false)?,
            (Some(held), _) => self.sample(&normalise(&held)?, None)?,
        };
        let check = self.check(&raw)?;
        self.step += 1;
        let chosen = |logprobs: &Array| {
            let row = ops::take_along_axis(logprobs, &id.expand_dims(-1)?, -1)?;
            ops::squeeze(&row, -1)
        };
        let top = match &logprobs {
            Some(logprobs) => most_likely(logprobs, self.options.top_logprobs)?,
            None => None,
        };
        let top = match top {
            Some((ids, values)) => Some((ids.squeeze(0)?, ops::squeeze(&values, 0)?)),
            None => None,
        };
        let report = Report {
            logprob: logprobs.as_ref().filter(|_| reports).map(chosen).transpose()?,
            top,
            logits: self.options.logits.then(|| ops::squeeze(&raw, 0)).transpose()?,
            check,
        };
        Ok(Draw { id, report })
    }

    /// NaN spreads from the first draw on, so later ones need no check.
    fn check(&self, raw: &Array) -> Result<Option<Array>> {
        (self.step == 0).then(|| ops::logsumexp(raw, -1, false)).transpose()
    }

    /// Filters and draws; `[1]`. `total` is what the probabilities of all ids add up to, where some
    /// are left out.
    fn sample(&self, logprobs: &Array, total: Option<f32>) -> Result<Indices> {
        if let Some(drawing) = self.drawing() {
            return Drawer::default().draw(logprobs, &[Some((drawing, self.step as u32))]);
        }
        let options = &self.options;
        let (draw_key, xtc_key) = random::split(&random::key(mix(self.seed, self.step))?)?;
        let mut logprobs = logprobs.share()?;
        if let Some(n) = top_n_sigma(options) {
            logprobs = filter_top_n_sigma(&logprobs, n)?;
        }
        if let Some(typical_p) = typical_p(options) {
            logprobs = filter_typical(&logprobs, typical_p)?;
        }
        if let Some(top_p) = options.top_p.filter(|p| *p < 1.0) {
            logprobs = filter_top_p(&logprobs, top_p.max(LEAST_TOP_P), total)?;
        }
        if let Some(min_p) = options.min_p.filter(|p| *p > 0.0) {
            logprobs = filter_min_p(&logprobs, min_p)?;
        }
        if let (Some(xtc), Some(droppable)) = (options.xtc, &self.xtc_droppable)
            && xtc.probability > 0.0
        {
            logprobs = filter_xtc(&logprobs, xtc, droppable, &xtc_key)?;
        }
        let vocab_size = logprobs.shape()[1];
        if let Some(top_k) = options.top_k.and_then(|k| i32::try_from(k).ok())
            && (1..vocab_size).contains(&top_k)
        {
            logprobs = filter_top_k(&logprobs, top_k)?;
        }
        let temperature = options.temperature.unwrap_or(1.0);
        let scaled = ops::multiply(&logprobs, &Array::scalar(temperature.recip(), Dtype::F32)?)?;
        random::categorical(&scaled, -1, &draw_key)
    }
}

/// Returns true when draws by `options` are the most likely ids: because of the temperature, or
/// since a filter leaves nothing else. Of equally likely ids, the first one is taken then.
pub(crate) fn is_greedy(options: &GenerateOptions) -> bool {
    let leaves_one = options.top_p.is_some_and(|p| p <= 0.0)
        || options.min_p.is_some_and(|p| p >= 1.0)
        // It comes behind what drops the most likely ids.
        || options.top_k == Some(1) && options.xtc.is_none();
    // So may this one, which comes before all of them.
    leaves_one && typical_p(options).is_none() || options.temperature.unwrap_or(0.0) < GREEDY_BELOW
}

/// The share of typical ids that a draw is among, where that is not all.
fn typical_p(options: &GenerateOptions) -> Option<f32> {
    options.typical_p.filter(|p| *p < 1.0)
}

fn top_n_sigma(options: &GenerateOptions) -> Option<f32> {
    options.top_n_sigma.filter(|n| *n > 0.0)
}

/// Returns true when a filter is asked for that looks at all ids, and that no kernel of ours has.
fn needs_filters(options: &GenerateOptions) -> bool {
    let has_xtc = options.xtc.is_some_and(|xtc| xtc.probability > 0.0);
    has_xtc || typical_p(options).is_some() || top_n_sigma(options).is_some()
}

/// The `count` most likely ids of each row of `logprobs`, `[n, vocab_size]`, in no order, and their
/// log probabilities; each `[n, count]`. None where none are asked for.
///
/// # Errors
/// Those of MLX.
pub(crate) fn most_likely(logprobs: &Array, count: usize) -> Result<Option<(Indices, Array)>> {
    let count = i32::try_from(count).unwrap_or(i32::MAX).min(logprobs.shape()[1]);
    if count == 0 {
        return Ok(None);
    }
    let order = ops::argpartition(&ops::negative(logprobs)?, count - 1, -1)?;
    let ids = order.slice_axis(-1, 0, count)?;
    let values = ops::take_along_axis(logprobs, &ids, -1)?;
    Ok(Some((ids, values)))
}

/// A seed that no request gave: entropy from the standard library's hash keys.
pub(crate) fn fresh_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A 64-bit key for a step: the finaliser of SplitMix64 over the seed and the step.
fn mix(seed: u64, step: u64) -> u64 {
    let mut z = seed.wrapping_add(step.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

mod constrained;
mod ends;
mod filters;
mod normalise;
mod penalties;
mod repeats;
mod rows;
#[cfg(test)]
mod tests;

use filters::{
    filter_min_p, filter_top_k, filter_top_n_sigma, filter_top_p, filter_typical, filter_xtc,
};
pub(crate) use normalise::{log_sum, normalise};
pub(crate) use repeats::{Breakers, Repeats};
pub(crate) use rows::{Check, Draws, take_rows};
