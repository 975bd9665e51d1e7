//! A stopwatch for the parts of decode steps.

use std::time::{Duration, Instant};

use inference_core::StepTimes;

/// A part of a step; see [`StepTimes`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Build,
    Encode,
    Wait,
    Sample,
    Detokenize,
    Rest,
}

/// A stopwatch that gives each stretch of time to one part, so that the parts sum to the whole.
pub(super) struct StepClock {
    last: Instant,
    times: StepTimes,
}

impl StepClock {
    /// Runs from now on.
    pub fn start() -> StepClock {
        StepClock { last: Instant::now(), times: StepTimes::default() }
    }

    /// Counts a pass that begins.
    pub fn count(&mut self) {
        self.times.steps += 1;
    }

    /// Gives the time since the last call to `part`.
    pub fn lap(&mut self, part: Part) {
        let time = self.since_last();
        let StepTimes { build, encode, wait, sample, detokenize, rest, .. } = &mut self.times;
        let sum = match part {
            Part::Build => build,
            Part::Encode => encode,
            Part::Wait => wait,
            Part::Sample => sample,
            Part::Detokenize => detokenize,
            Part::Rest => rest,
        };
        *sum += time;
    }

    /// Gives the time since the last call to no part.
    pub fn skip(&mut self) {
        self.since_last();
    }

    /// The sums until now.
    pub fn times(&self) -> StepTimes {
        self.times
    }

    fn since_last(&mut self) -> Duration {
        let now = Instant::now();
        now.saturating_duration_since(std::mem::replace(&mut self.last, now))
    }
}
