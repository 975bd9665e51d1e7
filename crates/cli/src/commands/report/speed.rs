//! Speeds of random models in the sizes of released ones, cut to some layers.

use serde::Serialize;
use serde_json::Value;

use super::process::{Ended, Why};
use crate::args::{Bits, Shape};
use crate::commands::bench::{name, shapes};
use crate::output::counted;

/// The program that measures mlx-lm, where Python has it.
pub const MLX_LM: &str = include_str!("mlx_lm.py");

/// Bytes for the largest model, whose embedding and output layer are drawn in 32 bits.
const LARGE: u64 = 10 << 30;

/// A model that is measured.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// The sizes.
    pub shape: Shape,
    /// Bits of a weight; `None`: as released.
    pub bits: Option<Bits>,
    /// Layers of it.
    pub layers: usize,
    /// Positions of the prompt.
    pub prompt: usize,
    /// Tokens of the answer.
    pub new: usize,
}

/// The models of a report on `device`.
pub fn all(device: &str, quick: bool) -> Vec<Measured> {
    // A CPU takes seconds for a layer where it computes with MLX's kernels.
    let (prompt, new) = if device == "cpu" { (32, 4) } else { (512, 64) };
    let one = |shape, bits, layers| Measured { shape, bits, layers, prompt, new };
    let four = Some(Bits::Four);
    if quick {
        return vec![one(Shape::Qwen3Small, four, 1)];
    }
    vec![
        one(Shape::Qwen3, four, 4),
        one(Shape::Llama32, Some(Bits::Sixteen), 4),
        one(Shape::Qwen3Moe, four, 2),
        // Its output layer has to be drawn, for which a CPU takes a minute.
        if device == "cpu" { one(Shape::Lfm2, four, 4) } else { one(Shape::GptOss, None, 2) },
        one(Shape::Qwen35Medium, four, 4),
        one(Shape::Nemotron3, four, 7),
    ]
}

impl Measured {
    /// Returns true where it can be drawn within so many bytes.
    pub fn fits(&self, memory: u64) -> bool {
        self.shape != Shape::GptOss || memory >= LARGE
    }

    /// The words that name it.
    pub fn name(&self) -> String {
        let bits = match self.bits {
            Some(Bits::Four) => ", 4 bits",
            Some(Bits::Eight) => ", 8 bits",
            Some(Bits::Sixteen) => ", 16 bits",
            None => "",
        };
        format!("{}{bits}, {}", name(self.shape), counted(self.layers, "layer"))
    }

    /// The arguments of `ml` that measure it on `device`.
    pub fn arguments(&self, device: &str) -> Vec<String> {
        let mut all: Vec<String> = ["bench", "--json", "--quiet", "--repeat", "1"]
            .map(String::from)
            .into_iter()
            .chain(["--shape".into(), name(self.shape)])
            .chain(["--layers".into(), self.layers.to_string()])
            .chain(["--prompt".into(), self.prompt.to_string()])
            .chain(["--new".into(), self.new.to_string()])
            .chain(["--depth".into(), self.prompt.to_string()])
            .chain(["--backend".into(), device.to_owned()])
            .collect();
        let bits = self.bits.map(|bits| match bits {
            Bits::Four => "4",
            Bits::Eight => "8",
            Bits::Sixteen => "16",
        });
        all.extend(bits.into_iter().flat_map(|bits| ["--bits".to_owned(), bits.to_owned()]));
        all
    }

    /// The arguments of Python that measure mlx-lm with the same sizes.
    pub fn of_mlx_lm(&self) -> Vec<String> {
        let config = shapes::config(self.shape, self.bits, Some(self.layers)).to_string();
        vec!["-c".into(), MLX_LM.into(), config, self.prompt.to_string(), self.new.to_string()]
    }
}

/// Tokens a second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Speed {
    /// See [`Measured::name`].
    pub model: String,
    /// `ours`, `mlx`, or `mlx-lm` for that program.
    pub kernels: String,
    /// Of a prompt.
    pub prompt_tokens_per_second: Option<f64>,
    /// Of an answer.
    pub answer_tokens_per_second: Option<f64>,
    /// Why there are no figures.
    pub failure: Option<String>,
}

impl Speed {
    /// The figures of a run of `ml bench`, or of mlx-lm.
    pub fn of(model: String, kernels: &str, ended: &Ended) -> Speed {
        let last = ended.stdout.lines().last().unwrap_or_default();
        let value: Value = serde_json::from_str(last).unwrap_or_default();
        let of_test = |at: usize| value["results"][at]["tokens_per_second"].as_f64();
        let prompt_tokens_per_second = of_test(0).or_else(|| value["prompt"].as_f64());
        let answer_tokens_per_second = of_test(1).or_else(|| value["answer"].as_f64());
        let is_whole = prompt_tokens_per_second.is_some() && answer_tokens_per_second.is_some();
        let failure = match &ended.failure {
            Some(why) => Some(why.to_string()),
            None => (!is_whole).then(|| "it printed no figures".to_owned()),
        };
        let kernels = kernels.to_owned();
        Speed { model, kernels, prompt_tokens_per_second, answer_tokens_per_second, failure }
    }

    /// The figures in words.
    pub fn told(&self) -> String {
        match (self.prompt_tokens_per_second, self.answer_tokens_per_second, &self.failure) {
            (Some(prompt), Some(answer), None) => {
                format!("prompt {prompt:.0} tokens/s, answer {answer:.1} tokens/s")
            }
            (_, _, failure) => failure.clone().unwrap_or_default(),
        }
    }
}

/// Returns true for a failure that tells of a fault: a slow machine and a small one have none.
pub fn is_fault(ended: &Ended, speed: &Speed) -> bool {
    let failure = speed.failure.as_deref();
    failure.is_some_and(|said| !matches!(ended.failure, Some(Why::Late(_))) && !is_of_memory(said))
}

/// Returns true where a process said that the memory is too small for what it was to measure.
fn is_of_memory(said: &str) -> bool {
    said.contains("the device is out of memory")
        || (said.contains(" needs ") && said.contains(" free: "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use inference_core::Error;

    use super::{Ended, Speed, Why, all, is_fault};
    use crate::failure::Failure;

    fn ended(stdout: &str, failure: Option<Why>) -> Ended {
        Ended { stdout: stdout.to_owned(), failure, seconds: 1.0 }
    }

    #[test]
    fn a_report_measures_six_models_and_leaves_out_what_a_small_machine_cannot_hold() {
        for device in ["metal", "cpu"] {
            assert_eq!(all(device, false).len(), 6);
            assert_eq!(all(device, true).len(), 1);
        }
        let fitting = |memory: u64| all("metal", false).iter().filter(|m| m.fits(memory)).count();
        // Of an M1 with 8 GB and an M2 with 16.
        assert_eq!([5 << 30, 12 << 30].map(fitting), [5, 6]);
    }

    #[test]
    fn figures_of_both_programs_are_read() {
        let ours = r#"{"results": [{"tokens_per_second": 100.4}, {"tokens_per_second": 9.26}]}"#;
        for text in [ours, "a warning\n{\"prompt\": 100.4, \"answer\": 9.26}\n"] {
            let speed = Speed::of("m".into(), "ours", &ended(text, None));
            assert_eq!(speed.told(), "prompt 100 tokens/s, answer 9.3 tokens/s");
        }
    }

    #[test]
    fn a_run_that_fails_or_prints_nothing_is_a_fault_and_a_slow_one_is_none() {
        let failed = ended("", Some(Why::Failed("signal 11 ended it".into())));
        let late = ended("", Some(Why::Late(Duration::from_secs(30))));
        for (run, fault) in [(failed, true), (ended("{}", None), true), (late, false)] {
            let speed = Speed::of("m".into(), "ours", &run);
            assert_eq!(is_fault(&run, &speed), fault, "{}", speed.told());
        }
    }

    #[test]
    fn a_measurement_that_the_memory_does_not_hold_is_no_fault() {
        let refused = Error::Memory {
            what: "the model".into(),
            needed: 6 << 30,
            available: 5 << 30,
            remedy: "take a smaller one".into(),
        };
        let ended_early = Error::OutOfMemory { what: "the load".into(), reason: "by Metal".into() };
        let other = Error::Engine("the kernel computes 1".into());
        for (error, fault) in [(refused, false), (ended_early, false), (other, true)] {
            let said = format!("it ended with the code 1: error: {}", Failure::Model(error));
            let run = ended("", Some(Why::Failed(said)));
            let speed = Speed::of("m".into(), "ours", &run);
            assert_eq!(is_fault(&run, &speed), fault, "{}", speed.told());
        }
    }
}
