//! Warm-up of `ml doctor --warm`: the device compiles what a model's requests will need.

use std::thread;
use std::time::{Duration, Instant};

use inference_core::{GenerateOptions, LoadOptions, Prompt, TextModel};

use crate::failure::Result;
use crate::source::Source;

/// Ids of prompts: kernels differ for one position, a few, and many.
const LENGTHS: [usize; 5] = [1, 6, 40, 200, 700];
/// Requests at once: kernels differ for one row, a few, and many.
const ROWS: [usize; 4] = [1, 2, 12, 40];
/// Ids of an answer, after which a step is repeated as one operation.
const TOKENS: usize = 80;

/// Answers requests of all kinds of sizes with `model`, and says how long that took.
pub(super) fn warm(source: &Source) -> Result<String> {
    let begun = Instant::now();
    let model = source.load(&LoadOptions::default(), true)?;
    let loaded = begun.elapsed();
    let room = model.info().context_length.saturating_sub(TOKENS);
    for length in LENGTHS.into_iter().filter(|length| *length <= room) {
        answer(&*model, length)?;
    }
    for rows in ROWS {
        thread::scope(|scope| -> Result<()> {
            let all: Vec<_> =
                (0..rows).map(|_| scope.spawn(|| answer(&*model, LENGTHS[1]))).collect();
            all.into_iter().try_for_each(|row| row.join().unwrap_or(Ok(())))
        })?;
    }
    let seconds = |time: Duration| time.as_secs_f64();
    Ok(format!(
        "{}: loaded in {:.3} s, all kinds of requests in {:.3} s",
        source.name(),
        seconds(loaded),
        seconds(begun.elapsed())
    ))
}

/// Answers a prompt of so many ids.
fn answer(model: &dyn TextModel, length: usize) -> Result<()> {
    let options = GenerateOptions {
        max_tokens: Some(TOKENS),
        temperature: Some(0.0),
        ignore_eos: true,
        ..Default::default()
    };
    let prompt = Prompt::Ids((0..length).map(|at| (at % 100) as u32).collect());
    model.generate(&prompt, &options)?.try_for_each(|token| Ok(token.map(|_| ())?))
}
