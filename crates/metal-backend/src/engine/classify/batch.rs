//! Prompts that are computed together, then what their labels need beyond the first token.

use std::ops::Range;

use inference_core::TokenLogprob;
use mlx_ffi::{Array, Dtype, Indices, memory, ops};

use super::job::{ClassifyJob, DrawOptions, Scores};
use super::run::{Run, Wanted};
use crate::cache::Caches;
use crate::engine::memory::HEAD_ROWS;
use crate::engine::prompt_logprobs::ranked;
use crate::engine::served::Served;
use crate::error::{Result, not_numbers};
use crate::layers::Decoder;
use crate::sampling::{Repeats, Sampler, fresh_seed, normalise};

/// Positions that may be filled up, however many that is of all.
const FREE_PADDING: usize = 32;

/// How many prompts of `lengths`, longest first, are computed together: what they are filled up
/// with stays a small part, and all of it within a chunk.
pub(super) fn rows(lengths: &[usize], chunk: usize) -> usize {
    let longest = lengths.first().copied().unwrap_or(1);
    let (mut rows, mut real) = (1, longest);
    for length in &lengths[1..] {
        let padded = (rows + 1) * longest;
        real += length;
        if padded > chunk || padded - real > FREE_PADDING + real / 4 {
            break;
        }
        rows += 1;
    }
    rows
}

/// Returns true when a prompt of so many ids and a label is computed by itself, as in a generation:
/// where the options ask for it, and where it outgrows a bounded context.
pub(super) fn is_alone(served: &Served, ids: usize, label: usize) -> bool {
    let total = ids + label.saturating_sub(1);
    served.alone || !Caches::new(&served.specs, served.storage, 1, total).can_join()
}

/// Rows of labels that are computed together after prompts of up to `longest` ids.
fn label_rows(served: &Served, longest: usize, label: usize) -> usize {
    if is_alone(served, longest, label) { 1 } else { (served.chunk / (longest + label)).max(1) }
}

/// Bytes that such a batch takes: `rows` prompts of up to `longest` ids, labels of up to `label`.
pub(super) fn needs(served: &Served, rows: usize, longest: usize, label: usize) -> u64 {
    let budget = &served.budget;
    let logits = HEAD_ROWS.min(rows.max(label));
    let prompts = budget.together(rows, longest, logits);
    if label < 2 {
        return prompts;
    }
    // The copies of the prompts' caches, and once more as they are written to.
    let label_rows = label_rows(served, longest, label);
    prompts + 2 * budget.together(label_rows, longest + label, logits)
}

/// Some of a label's ids after a prompt of the batch; each is asked for the one that follows it.
#[derive(Clone)]
struct Pair {
    row: usize,
    label: usize,
    /// Which of the label's ids.
    ids: Range<usize>,
    /// From these ids on, all positions are encoded otherwise: the prompt's caches are of no use.
    anew: bool,
}

/// The pairs to compute for a label after a prompt; the label's last id is not needed.
fn pairs(
    job: &ClassifyJob,
    prompt: usize,
    (row, label): (usize, usize),
    served: &Served,
) -> Vec<Pair> {
    let (length, end) = (job.prompts[prompt].len(), job.labels[label].len() - 1);
    let factors = |ids: usize| served.model.rope_factors(length + ids);
    let alike = (0..end).take_while(|at| factors(at + 1) == factors(0)).count();
    let pair = |ids: Range<usize>| Pair { row, label, anew: ids.start == alike, ids };
    [0..alike, alike..end].into_iter().filter(|ids| !ids.is_empty()).map(pair).collect()
}

/// A batch that is being computed.
pub(super) struct Batch {
    /// Which of the job's prompts they are.
    prompts: Vec<usize>,
    run: Run,
    /// The hidden states whose logits are being read, and how many have been.
    reading: Option<(Array, usize)>,
    /// The pairs that `run` computes; `None` while it computes the prompts.
    pairs: Option<Vec<Pair>>,
    /// The prompts' caches, kept for their labels.
    held: Option<Caches>,
    /// The pairs that are left, first one last.
    later: Vec<Pair>,
    /// Bytes set aside.
    pub needed: u64,
}

impl Batch {
    /// The batch of these prompts of the job, longest last, for which `needed` bytes are set aside.
    pub fn new(
        mut prompts: Vec<usize>,
        job: &ClassifyJob,
        served: &Served,
        needed: u64,
    ) -> Result<Batch> {
        prompts.reverse();
        let ids: Vec<Vec<u32>> =
            prompts.iter().map(|prompt| job.prompts[*prompt].clone()).collect();
        let longest = ids.first().map_or(0, Vec::len);
        let label = job.labels.iter().map(Vec::len).max().unwrap_or(0);
        let total = longest + label.saturating_sub(1);
        let mut caches = Caches::new(&served.specs, served.storage, ids.len(), total)
            .with_rope_factors(served.model.rope_factors(longest));
        let scene = prompts.first().and_then(|prompt| job.scenes[*prompt].clone());
        if let Some(scene) = &scene {
            caches = caches.with_shift(scene.delta());
        }
        let alone = is_alone(served, longest, label);
        if longest <= served.chunk && !alone {
            caches.leave_no_room();
        }
        let mut run = Run::new(ids, caches, Wanted::Last, served.chunk).seeing(scene);
        if alone {
            run = run.last_apart();
        }
        let of_row = |(row, prompt): (usize, &usize)| -> Vec<Pair> {
            let all = 0..job.labels.len();
            all.flat_map(|label| pairs(job, *prompt, (row, label), served)).collect()
        };
        let mut later: Vec<Pair> = prompts.iter().enumerate().flat_map(of_row).collect();
        later.reverse();
        Ok(Batch { prompts, run, reading: None, pairs: None, held: None, later, needed })
    }

    /// Ids that the next part computes; 0 where it reads logits.
    pub fn part(&self) -> usize {
        if self.reading.is_some() { 0 } else { self.run.part() }
    }

    /// Bytes of the caches.
    pub fn kv_bytes(&self) -> u64 {
        self.run.caches.nbytes() + self.held.as_ref().map_or(0, Caches::nbytes)
    }

    /// Computes the next part: layers, or the logits of some positions. True once all is done.
    pub fn advance(
        &mut self,
        job: &ClassifyJob,
        scores: &mut [Scores],
        served: &Served,
        layers: usize,
    ) -> Result<bool> {
        let model = &served.model;
        let Some((hidden, read)) = self.reading.take() else {
            self.reading = self.run.advance(served, layers)?.map(|hidden| (hidden, 0));
            return Ok(false);
        };
        let count = hidden.shape()[0] as usize;
        let end = count.min(read + HEAD_ROWS);
        let part = ops::slice_axis(&hidden, 0, read as i32, end as i32)?;
        let logits = logits(model, &part)?;
        let taken_in = match &self.pairs {
            _ if served.ranks.follow() => Ok(logits.eval()?),
            None => self.read_prompts(job, scores, read, &logits),
            Some(pairs) => read_labels(job, scores, (&self.prompts, pairs), read, &logits),
        };
        served.ranks.agree_on(taken_in)?;
        if end < count {
            self.reading = Some((hidden, end));
            return Ok(false);
        }
        self.go_on_with_labels(job, served)
    }

    /// Begins the next run over labels; true where none is left.
    fn go_on_with_labels(&mut self, job: &ClassifyJob, served: &Served) -> Result<bool> {
        if self.later.is_empty() {
            memory::clear_cache()?;
            return Ok(true);
        }
        let length = |row: usize| job.prompts[self.prompts[row]].len();
        let longest = length(0);
        let label = job.labels.iter().map(Vec::len).max().unwrap_or(0);
        let rows = label_rows(served, longest, label).min(self.later.len());
        let rows = self.later.iter().rev().take(rows).take_while(|pair| !pair.anew).count();
        if rows == 0 {
            return self.go_on_anew(job, served);
        }
        let mut pairs = self.later.split_off(self.later.len() - rows);
        pairs.reverse();
        let own = |pair: &Pair| job.labels[pair.label][pair.ids.clone()].to_vec();
        let ids: Vec<Vec<u32>> = pairs.iter().map(own).collect();
        let columns = ids.iter().map(Vec::len).max().unwrap_or(0);
        let held = self.held.get_or_insert_with(|| {
            let empty = Caches::new(&[], served.storage, 0, 0);
            std::mem::replace(&mut self.run.caches, empty)
        });
        let copies: Vec<(usize, i32)> =
            pairs.iter().map(|pair| (pair.row, (longest - length(pair.row)) as i32)).collect();
        // What outgrows a bounded context goes on position by position, as a generation does.
        let chunk = if held.can_join() { served.chunk } else { 1 };
        let caches = held.copies(&copies, columns.min(chunk) as i32)?;
        self.run = Run::new(ids, caches, Wanted::From(0), chunk);
        self.pairs = Some(pairs);
        Ok(false)
    }

    /// Begins the next pair's run from its first id on, because its prompt's caches are of no use.
    fn go_on_anew(&mut self, job: &ClassifyJob, served: &Served) -> Result<bool> {
        let Some(pair) = self.later.pop() else { return Ok(true) };
        let prompt = &job.prompts[self.prompts[pair.row]];
        let scene = job.scenes[self.prompts[pair.row]].clone();
        let shift = scene.as_ref().map_or(0, |scene| scene.delta());
        let first = Wanted::From(prompt.len() + pair.ids.start);
        let ids = [prompt, &job.labels[pair.label][..pair.ids.end]].concat();
        let factors = served.model.rope_factors(ids.len());
        let caches =
            Caches::new(&served.specs, served.storage, 1, ids.len()).with_rope_factors(factors);
        let caches = caches.with_shift(shift);
        let run = Run::new(vec![ids], caches, first, served.chunk).seeing(scene);
        let before = std::mem::replace(&mut self.run, run);
        self.held.get_or_insert(before.caches);
        self.pairs = Some(vec![pair]);
        Ok(false)
    }

    /// Takes in the logits after the prompts from `first` on.
    fn read_prompts(
        &self,
        job: &ClassifyJob,
        scores: &mut [Scores],
        first: usize,
        logits: &Array,
    ) -> Result<()> {
        let logprobs = normalise(logits)?;
        let best = ops::argmax(logits, -1, false)?;
        let of_best = ops::take_along_axis(&logprobs, &best.expand_dims(-1)?, -1)?;
        let (best, of_best) = (best.to_vec_u32()?, of_best.to_vec_f32()?);
        let begins: Vec<u32> = job.labels.iter().filter_map(|ids| ids.first().copied()).collect();
        let of_begins = if begins.is_empty() {
            Vec::new()
        } else {
            let begins = Indices::from_u32(&begins, &[begins.len() as i32])?;
            ops::take(&logprobs, &begins, 1)?.to_vec_f32()?
        };
        let all = if job.logits { logits.to_vec_f32()? } else { Vec::new() };
        let width = logits.shape()[1] as usize;
        for (at, (id, logprob)) in best.into_iter().zip(of_best).enumerate() {
            if !logprob.is_finite() {
                return Err(not_numbers());
            }
            let own = |values: &[f32], n: usize| values[at * n..(at + 1) * n].to_vec();
            let prompt = self.prompts[first + at];
            let likeliest = Drawn { id, logprob, top: Vec::new() };
            let of_row = || ops::slice_axis(logits, 0, at as i32, at as i32 + 1);
            let draw = job.draw.as_deref();
            let drawn = draw.map(|draw| Drawn::new(draw, &job.prompts[prompt], &of_row()?));
            let Drawn { id, logprob, top } = drawn.transpose()?.unwrap_or(likeliest);
            scores[prompt] = Scores {
                id,
                logprob,
                top,
                logits: job.logits.then(|| own(&all, width)),
                labels: own(&of_begins, begins.len()),
            };
        }
        Ok(())
    }
}

/// The id that follows a prompt, and what is told of it.
struct Drawn {
    id: u32,
    logprob: f32,
    top: Vec<TokenLogprob>,
}

impl Drawn {
    /// The first draw of a generation after `prompt`, from its `logits`, `[1, vocab_size]`.
    fn new(draw: &DrawOptions, prompt: &[u32], logits: &Array) -> Result<Drawn> {
        let seed = draw.generate.seed.unwrap_or_else(fresh_seed);
        let (options, vocab_size) = (draw.generate.clone(), logits.shape()[1]);
        let dry = options.dry.clone().zip(draw.breakers.clone());
        let repeats = dry.map(|(dry, breakers)| Repeats::new(dry, breakers, prompt));
        let sampler = Sampler::new(options, seed, prompt, &draw.protected_ids, vocab_size)?;
        let mut sampler = sampler.against(repeats);
        let drawn = sampler.draw(logits)?;
        let id = drawn.id.item_u32()?;
        let logprob = drawn.report.logprob.as_ref().map(Array::item_f32).transpose()?;
        let top = match &drawn.report.top {
            Some((ids, logprobs)) => ranked(&ids.to_vec_u32()?, &logprobs.to_vec_f32()?),
            None => Vec::new(),
        };
        Ok(Drawn { id, logprob: logprob.unwrap_or(f32::NAN), top })
    }
}

/// Takes in the logits after labels' tokens from the `first` one of all pairs on: each is asked for
/// the token that follows it in its label.
fn read_labels(
    job: &ClassifyJob,
    scores: &mut [Scores],
    (prompts, pairs): (&[usize], &[Pair]),
    first: usize,
    logits: &Array,
) -> Result<()> {
    let count = logits.shape()[0] as usize;
    let asked = pairs.iter().flat_map(|Pair { row, label, ids, .. }| {
        let next = &job.labels[*label][ids.start + 1..ids.end + 1];
        next.iter().map(|next| (prompts[*row], *label, *next))
    });
    let asked: Vec<(usize, usize, u32)> = asked.skip(first).take(count).collect();
    let next: Vec<u32> = asked.iter().map(|(_, _, next)| *next).collect();
    let next = Indices::from_u32(&next, &[count as i32, 1])?;
    let found = ops::take_along_axis(&normalise(logits)?, &next, -1)?.to_vec_f32()?;
    for ((prompt, label, _), logprob) in asked.into_iter().zip(found) {
        if logprob.is_nan() {
            return Err(not_numbers());
        }
        scores[prompt].labels[label] += logprob;
    }
    Ok(())
}

/// `[n, hidden_size]` to logits `[n, vocab_size]`, F32.
fn logits(model: &Decoder, hidden: &Array) -> Result<Array> {
    let logits = model.logits(&ops::expand_dims(hidden, 1)?)?;
    Ok(ops::astype(&ops::squeeze(&logits, 1)?, Dtype::F32)?)
}
