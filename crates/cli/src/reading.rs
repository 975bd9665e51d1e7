//! The sign of life while a prompt is read: how much of it, how fast, and how long the rest takes.

use std::time::Duration;

use inference_core::{Generation, PrefillProgress};

use crate::output::Line;
use crate::times;

/// A prompt that takes no longer is read in silence.
const SILENCE: Duration = Duration::from_millis(500);

/// Between two looks at how far it is.
const AGAIN: Duration = Duration::from_millis(100);

/// Waits for the first token of `generation`. Where stderr is a terminal, that shows how far the
/// prompt is, and nothing of it is left behind.
pub fn wait(generation: &Generation, quiet: bool) {
    if quiet || generation.wait(SILENCE) {
        return;
    }
    let Some(line) = Line::open() else { return };
    let tokens = generation.prompt_ids().len();
    loop {
        line.say(&told(tokens, generation.prefill()));
        if generation.wait(AGAIN) {
            return;
        }
    }
}

/// `reading 2112 of 4265 tokens (49 %), 84.1 tok/s, 25 s left`.
fn told(tokens: usize, progress: Option<PrefillProgress>) -> String {
    let Some(progress) = progress else { return format!("reading {tokens} tokens") };
    let PrefillProgress { total, processed, .. } = progress;
    let percent = 100 * processed / total.max(1);
    let rate = progress.tokens_per_second();
    let rest = match progress.left() {
        Some(left) => format!(", {rate:.1} tok/s, {} left", times::human(left)),
        None => String::new(),
    };
    format!("reading {processed} of {total} tokens ({percent} %){rest}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use inference_core::PrefillProgress;

    use super::told;

    #[test]
    fn a_prompt_that_is_read_tells_how_far_how_fast_and_how_long() {
        assert_eq!(told(4265, None), "reading 4265 tokens");
        let elapsed = Duration::from_secs(10);
        let progress = PrefillProgress { total: 4200, cached: 1200, processed: 2200, elapsed };
        let line = "reading 2200 of 4200 tokens (52 %), 100.0 tok/s, 20 s left";
        assert_eq!(told(4200, Some(progress)), line);
        let begun = PrefillProgress { processed: 1200, ..progress };
        assert_eq!(told(4200, Some(begun)), "reading 1200 of 4200 tokens (28 %)");
        let slow = PrefillProgress { processed: 1210, ..progress };
        assert!(told(4200, Some(slow)).ends_with("1.0 tok/s, 49 min 50 s left"));
    }
}
