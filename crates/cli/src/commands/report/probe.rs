//! The parts of a report that compute: each in a process of its own, which may fail or hang.

use std::thread;
use std::time::{Duration, Instant};

use inference_core::{Dtype, Error, GenerateOptions, LoadOptions, Prompt, TextModel};

use super::answers::{Answer, Answers, Step};
use super::memory::Memory;
use super::networks;
use crate::args::{Network, Probe, ReportArgs};
use crate::failure::{Failure, Result};
use crate::output::print_json;

/// Lengths of prompts: some positions, more than a vector of them, several chunks, and one position
/// more than a chunk has.
const PROMPTS: [usize; 4] = [7, 40, 300, 129];
/// Positions of a chunk.
const CHUNK: usize = 128;
/// Tokens of an answer.
const NEW: usize = 12;
/// Positions that no memory limit of a part can hold.
const TOO_MANY: usize = (1 << 20) - 64;
/// The longest wait for memory that is freed behind a request, and the time between two looks.
const STEADY: Duration = Duration::from_secs(2);
const BETWEEN: Duration = Duration::from_millis(100);
/// The memory limit of the part that tries it.
const LIMIT: u64 = 1 << 30;

/// Does the part that `args` name, and prints one object of JSON for each result.
///
/// # Errors
/// The backend's, and an answer that is cut short.
pub fn run(probe: Probe, args: &ReportArgs) -> Result<()> {
    let network = args.network.unwrap_or(Network::Dense);
    let options = LoadOptions { backend: args.backend.clone(), ..LoadOptions::default() };
    if probe == Probe::Memory {
        return print_json(&memory(&options)?);
    }
    for dtype in &args.dtypes {
        let options = LoadOptions {
            dtype: Some(*dtype),
            prefill_chunk: Some(CHUNK),
            parallel_slots: Some(PROMPTS.len()),
            ..options.clone()
        };
        let model = networks::load(network, &options)?;
        print_json(&answers(model.as_ref(), *dtype)?)?;
    }
    Ok(())
}

/// Each prompt by itself, and then all of them at once.
fn answers(model: &dyn TextModel, dtype: Dtype) -> Result<Answers> {
    let mut all = Vec::new();
    for prompt in PROMPTS {
        all.push(Answer { prompt, beside: false, steps: answer(model, prompt)? });
    }
    let together = thread::scope(|scope| {
        let threads = PROMPTS.map(|prompt| scope.spawn(move || answer(model, prompt)));
        threads.map(|thread| {
            thread.join().map_err(|_| Failure::Other("a reading thread failed".into()))?
        })
    });
    for (prompt, steps) in PROMPTS.into_iter().zip(together) {
        all.push(Answer { prompt, beside: true, steps: steps? });
    }
    Ok(Answers { dtype: format!("{dtype:?}").to_lowercase(), answers: all })
}

fn answer(model: &dyn TextModel, prompt: usize) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for token in model.generate(&ids(model, prompt), &greedy(true))? {
        let token = token?;
        let logits = token.logits.unwrap_or_default();
        let number = |logit: f32| logit.is_finite().then_some(logit);
        steps.push(Step { id: token.id, logits: logits.into_iter().map(number).collect() });
    }
    Ok(steps)
}

/// Ids that look random and are the same everywhere.
fn ids(model: &dyn TextModel, count: usize) -> Prompt {
    let vocab = model.info().vocab_size.max(1) as u64;
    let id = |at: u64| ((at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % vocab) as u32;
    Prompt::Ids((1..=count as u64).map(id).collect())
}

fn greedy(logits: bool) -> GenerateOptions {
    GenerateOptions {
        max_tokens: Some(NEW),
        temperature: Some(0.0),
        ignore_eos: true,
        logits,
        ..GenerateOptions::default()
    }
}

/// The value that `read` has once it is the same twice, or after [`STEADY`]: an engine may free
/// what a request had after its last token.
fn steady(read: impl Fn() -> Result<u64>) -> Result<u64> {
    let began = Instant::now();
    let mut last = read()?;
    loop {
        thread::sleep(BETWEEN);
        let now = read()?;
        if now == last || began.elapsed() >= STEADY {
            return Ok(now);
        }
        last = now;
    }
}

/// Refuses what does not fit, goes on, and gives back what it took.
fn memory(options: &LoadOptions) -> Result<Memory> {
    let active = || steady(|| Ok(metal_backend::system()?.active_memory_bytes));
    let before_bytes = active()?;
    let options = LoadOptions { memory_limit: Some(LIMIT), ..options.clone() };
    let model = networks::load(Network::Dense, &options)?;
    let loaded_bytes = active()?;
    let refused = match model.generate(&ids(model.as_ref(), TOO_MANY), &greedy(false)) {
        Err(error) => Some(error),
        Ok(mut generation) => generation.find_map(|token| token.err()),
    };
    let is_of_memory = matches!(refused, Some(Error::Memory { .. }));
    let work = || -> Result<usize> {
        Ok(model.generate(&ids(model.as_ref(), 300), &greedy(false))?.filter(Result::is_ok).count())
    };
    // What is captured and kept for later requests is made first.
    work()?;
    work()?;
    let after_work_bytes = active()?;
    let mut tokens = 0;
    for _ in 0..3 {
        tokens = work()?;
    }
    let after_more_work_bytes = active()?;
    drop(model);
    Ok(Memory {
        limit_bytes: LIMIT,
        refused: refused.map(|error| error.to_string()),
        is_of_memory,
        answers_afterwards: tokens == NEW,
        before_bytes,
        loaded_bytes,
        after_work_bytes,
        after_more_work_bytes,
        unloaded_bytes: active()?,
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::steady;

    #[test]
    fn memory_is_read_once_it_stays() {
        let reads = Cell::new(0u64);
        let falling = || {
            reads.set(reads.get() + 1);
            Ok(10 - reads.get().min(3))
        };
        assert_eq!(steady(falling).unwrap(), 7);
        assert_eq!(reads.get(), 4);
        // It ends where nothing stays.
        let growing = || {
            reads.set(reads.get() + 1);
            Ok(reads.get())
        };
        assert!(steady(growing).unwrap() > 4);
    }
}
