//! The report as its file has it.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::answers::Distance;
use super::memory::Memory;
use super::speed::Speed;
use crate::args::Network;
use crate::output::counted;

/// The form of the file: it changes where fields do.
pub const FORM: u32 = 1;

/// The object of the file.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// See [`FORM`].
    pub report: u32,
    /// The sentence that a person reads first.
    pub verdict: String,
    /// The faults.
    pub wrong: Vec<Finding>,
    /// Steps that were not tried, and why.
    pub left_out: Vec<String>,
    /// The release of `ml`.
    pub version: &'static str,
    /// Less was tried.
    pub quick: bool,
    /// The whole time.
    pub seconds: f64,
    /// The system's name, its release and the processor's kind.
    pub system: String,
    /// The device that was tried.
    pub device: String,
    /// See [`doctor::kept`](super::doctor::kept).
    pub doctor: Value,
    /// How far answers are from those of the CPU in f32 with MLX's kernels.
    pub answers: Vec<Compared>,
    /// The findings of the part that tries memory.
    pub memory: Option<Memory>,
    /// Tokens a second.
    pub speeds: Vec<Speed>,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The step that found it.
    pub step: String,
    /// The fault.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.what)
    }
}

/// A model that was computed in one way.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// The model.
    pub network: Network,
    /// `metal`, `cuda` or `cpu`.
    pub device: String,
    /// `ours` or `mlx`.
    pub kernels: &'static str,
    /// The type of activations.
    pub dtype: String,
    /// Differences up to this are rounding.
    pub allowed_difference: f64,
    /// How far it is from what was expected.
    #[serde(flatten)]
    pub distance: Distance,
}

impl Report {
    /// Returns true where something was compared and nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.wrong.is_empty() && !self.answers.is_empty()
    }
}

/// The sentence that says what is wrong, or that nothing is.
pub fn verdict(report: &Report) -> String {
    let tried = format!(
        "{} and {} on {}",
        counted(report.answers.len(), "comparison"),
        counted(report.speeds.len(), "speed"),
        report.device
    );
    let left = match report.left_out.len() {
        0 => String::new(),
        count => format!(" {} left out.", counted(count, "step")),
    };
    match report.wrong.as_slice() {
        [] if report.answers.is_empty() => format!("Nothing could be compared.{left}"),
        [] => format!("Nothing is wrong: {tried}.{left}"),
        wrong => format!("{} wrong, of {tried}.{left}", counted(wrong.len(), "thing")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Compared, Distance, Finding, Network, Report, verdict};

    fn compared() -> Compared {
        Compared {
            network: Network::Delta,
            device: "metal".into(),
            kernels: "ours",
            dtype: "bf16".into(),
            allowed_difference: 0.1,
            distance: Distance::default(),
        }
    }

    fn report() -> Report {
        Report { device: "metal".into(), answers: vec![compared()], ..Report::default() }
    }

    #[test]
    fn the_sentence_says_that_nothing_is_wrong_or_how_much() {
        assert_eq!(verdict(&report()), "Nothing is wrong: 1 comparison and 0 speeds on metal.");
        assert!(report().is_sound());
        let finding = Finding { step: "memory".into(), what: "a prompt was taken".into() };
        assert_eq!(finding.to_string(), "memory: a prompt was taken");
        let wrong = Report { wrong: vec![finding.clone(), finding], ..report() };
        assert_eq!(verdict(&wrong), "2 things wrong, of 1 comparison and 0 speeds on metal.");
        assert!(!wrong.is_sound());
    }

    #[test]
    fn steps_that_were_left_out_are_told() {
        let some = Report { left_out: vec!["speeds: no time".into()], ..report() };
        assert!(verdict(&some).ends_with("on metal. 1 step left out."), "{}", verdict(&some));
        let none = Report { answers: Vec::new(), ..some };
        assert_eq!(verdict(&none), "Nothing could be compared. 1 step left out.");
        assert!(!none.is_sound());
    }
}
