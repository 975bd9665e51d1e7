//! The phases and steps of a picture on stderr, with the time that is left.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use inference_core::{ImageEvent, ImagePhase};

use crate::output::{Spinner, dim_note};

/// Progress of a picture: one line that changes on a terminal, else one line for each phase and
/// step.
#[derive(Default)]
pub struct Progress {
    spinner: Option<Spinner>,
    denoising_since: Option<Instant>,
}

impl Progress {
    /// Shows what happened.
    pub fn show(&mut self, event: &ImageEvent) {
        let text = match event {
            ImageEvent::Phase(phase) => {
                if *phase == ImagePhase::Denoise {
                    self.denoising_since = Some(Instant::now());
                }
                match phase {
                    ImagePhase::Encode => "encoding the prompt".to_owned(),
                    ImagePhase::Denoise => "loading the transformer".to_owned(),
                    ImagePhase::Decode => "decoding the picture".to_owned(),
                    other => other.as_str().to_owned(),
                }
            }
            ImageEvent::Step { step, steps } => {
                // The first step's time has the loading in it.
                if *step == 1 {
                    self.denoising_since = Some(Instant::now());
                }
                let since = self.denoising_since.map(|since| since.elapsed());
                step_line(*step, *steps, since.unwrap_or_default())
            }
            _ => return,
        };
        self.spinner = None;
        if std::io::stderr().is_terminal() {
            self.spinner = Some(Spinner::new(text));
        } else {
            dim_note(text);
        }
    }
}

/// `step 3 of 9, 12 s left`; `since` is the time from the end of the first step.
fn step_line(step: usize, steps: usize, since: Duration) -> String {
    let left = match step {
        1 => return format!("step 1 of {steps}"),
        _ => since.as_secs_f64() / (step - 1) as f64 * steps.saturating_sub(step) as f64,
    };
    match left {
        left if left >= 100.0 => format!("step {step} of {steps}, {:.0} min left", left / 60.0),
        left => format!("step {step} of {steps}, {left:.0} s left"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_that_of_the_steps_so_far() {
        let seconds = Duration::from_secs;
        assert_eq!(step_line(1, 9, seconds(0)), "step 1 of 9");
        assert_eq!(step_line(3, 9, seconds(8)), "step 3 of 9, 24 s left");
        assert_eq!(step_line(9, 9, seconds(8)), "step 9 of 9, 0 s left");
        assert_eq!(step_line(2, 50, seconds(10)), "step 2 of 50, 8 min left");
    }
}
