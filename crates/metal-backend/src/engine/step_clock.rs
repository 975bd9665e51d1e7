//! A stopwatch for decode steps, and for the parts of them.

use std::time::{Duration, Instant};

use inference_core::StepTimes;

use crate::plan::PassCosts;

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
    /// How long whole passes take.
    pub costs: PassCosts,
}

impl StepClock {
    /// Runs from now on, for a GPU or for a CPU.
    pub fn start(on_gpu: bool) -> StepClock {
        let (last, times) = (Instant::now(), StepTimes::default());
        StepClock { last, times, costs: PassCosts::new(on_gpu) }
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
