//! The time of a decode step, by its parts.

use std::time::Duration;

use inference_core::StepTimes;
use serde::Serialize;

/// The mean step of a test.
#[derive(Debug, Serialize)]
pub struct Step {
    /// Steps that were measured.
    pub steps: u64,
    /// The mean time of one of them, by its parts.
    pub step_seconds: Parts,
}

/// Seconds; `total` is the sum of the others.
#[derive(Debug, Serialize)]
pub struct Parts {
    /// The whole step.
    pub total: f64,
    /// See [`StepTimes`], also for the others.
    pub build: f64,
    /// Handing the pass to the device.
    pub encode: f64,
    /// Waiting for the device.
    pub wait: f64,
    /// Sampling on the host.
    pub sample: f64,
    /// From ids to text.
    pub detokenize: f64,
    /// All else.
    pub rest: f64,
}

impl Step {
    /// The mean of `times`.
    pub fn of(times: &StepTimes) -> Step {
        let mean = |sum: Duration| sum.as_secs_f64() / times.steps.max(1) as f64;
        Step {
            steps: times.steps,
            step_seconds: Parts {
                total: mean(times.total()),
                build: mean(times.build),
                encode: mean(times.encode),
                wait: mean(times.wait),
                sample: mean(times.sample),
                detokenize: mean(times.detokenize),
                rest: mean(times.rest),
            },
        }
    }

    /// The rows of a table: the part, its milliseconds, its share of the step.
    pub fn rows(&self, test: &str) -> Vec<Vec<String>> {
        let Parts { total, build, encode, wait, sample, detokenize, rest } = self.step_seconds;
        let parts = [
            ("build", build),
            ("encode", encode),
            ("wait", wait),
            ("sample", sample),
            ("detokenize", detokenize),
            ("rest", rest),
            ("total", total),
        ];
        let row = |(name, seconds): (&str, f64)| {
            let share = if total > 0.0 { 100.0 * seconds / total } else { 0.0 };
            vec![name.to_owned(), format!("{:.3}", seconds * 1e3), format!("{share:.1} %")]
        };
        let head = vec![format!("step of {test}"), "ms".to_owned(), "share".to_owned()];
        [head].into_iter().chain(parts.map(row)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_the_mean_and_its_parts_sum_to_it() {
        let times = StepTimes {
            steps: 4,
            build: Duration::from_millis(4),
            wait: Duration::from_millis(35),
            rest: Duration::from_millis(1),
            ..StepTimes::default()
        };
        let step = Step::of(&times);
        assert_eq!((step.step_seconds.build, step.step_seconds.total), (0.001, 0.01));
        let rows = step.rows("tg4");
        assert_eq!(rows[0], ["step of tg4", "ms", "share"]);
        assert_eq!(rows[3], ["wait", "8.750", "87.5 %"]);
        assert_eq!(rows[7], ["total", "10.000", "100.0 %"]);
        assert_eq!(Step::of(&StepTimes::default()).rows("")[7], ["total", "0.000", "0.0 %"]);
    }
}
