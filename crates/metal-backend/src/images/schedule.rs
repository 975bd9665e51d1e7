//! The noise levels of the steps: diffusers' `FlowMatchEulerDiscreteScheduler`.

use crate::config::Config;
use crate::error::{Error, Result};

/// The noise levels of each step, read from a scheduler's config.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    shift: Shift,
    /// The level before the last step.
    terminal: Option<f64>,
}

/// How levels are moved towards more noise.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shift {
    /// By one factor.
    Static(f64),
    /// By a factor that grows with the picture.
    Dynamic { base: [f64; 2], most: [f64; 2], is_exponential: bool },
}

/// Variants of the scheduler that none of the pipelines here is released with.
const UNKNOWN: [&str; 5] = [
    "use_karras_sigmas",
    "use_exponential_sigmas",
    "use_beta_sigmas",
    "invert_sigmas",
    "stochastic_sampling",
];

impl Schedule {
    /// Reads `scheduler_config.json`.
    ///
    /// # Errors
    /// Another scheduler, or a variant that is not known.
    pub fn read(config: &Config) -> Result<Schedule> {
        const CLASS: &str = "FlowMatchEulerDiscreteScheduler";
        let class = config.opt_text("_class_name")?.unwrap_or(CLASS);
        if class != CLASS {
            return Err(Error::model(format!("the scheduler is `{class}`; {CLASS} works")));
        }
        for key in UNKNOWN {
            if config.opt_flag(key)? == Some(true) {
                return Err(Error::model(format!(
                    "the scheduler asks for `{key}`, which is not known"
                )));
            }
        }
        let number = |key: &str, default: f64| -> Result<f64> {
            Ok(config.opt_positive(key)?.unwrap_or(default))
        };
        let trained = number("num_train_timesteps", 1000.0)?;
        if trained != 1000.0 {
            return Err(Error::model(format!("`num_train_timesteps` is {trained}, 1000 works")));
        }
        let shift = match config.opt_flag("use_dynamic_shifting")?.unwrap_or(false) {
            false => Shift::Static(number("shift", 1.0)?),
            true => Shift::Dynamic {
                base: [number("base_image_seq_len", 256.0)?, number("base_shift", 0.5)?],
                most: [number("max_image_seq_len", 4096.0)?, number("max_shift", 1.15)?],
                is_exponential: match config.opt_text("time_shift_type")? {
                    None | Some("exponential") => true,
                    Some("linear") => false,
                    Some(other) => {
                        let known = "exponential and linear work";
                        return Err(Error::model(format!(
                            "`time_shift_type` is `{other}`; {known}"
                        )));
                    }
                },
            },
        };
        let terminal = config.opt_positive("shift_terminal")?;
        if let Some(terminal) = terminal.filter(|terminal| *terminal >= 1.0) {
            return Err(Error::model(format!("`shift_terminal` is {terminal}, not below 1")));
        }
        Ok(Schedule { shift, terminal })
    }

    /// The factor of a static shift.
    pub fn static_shift(&self) -> Option<f64> {
        match self.shift {
            Shift::Static(factor) => Some(factor),
            Shift::Dynamic { .. } => None,
        }
    }

    /// The noise level before each of `steps` steps, and 0 after the last one, for a picture of
    /// `tokens` positions. The base levels go from 1 to `1 / steps`.
    pub fn sigmas(&self, steps: usize, tokens: usize) -> Vec<f32> {
        let last = 1.0 / steps as f64;
        let base = (0..steps).map(|i| match steps {
            1 => 1.0,
            _ => 1.0 + (last - 1.0) * i as f64 / (steps - 1) as f64,
        });
        // The reference begins with these in f32.
        let base = base.map(|sigma| f64::from(sigma as f32));
        let mut sigmas: Vec<f64> = base.map(|sigma| self.shifted(sigma, tokens)).collect();
        if let (Some(terminal), Some(&end)) = (self.terminal, sigmas.last())
            && end < 1.0
        {
            let scale = (1.0 - terminal) / (1.0 - end);
            sigmas.iter_mut().for_each(|sigma| *sigma = 1.0 - (1.0 - *sigma) * scale);
        }
        sigmas.into_iter().map(|sigma| sigma as f32).chain([0.0]).collect()
    }

    fn shifted(&self, sigma: f64, tokens: usize) -> f64 {
        match self.shift {
            Shift::Static(factor) => factor * sigma / (1.0 + (factor - 1.0) * sigma),
            Shift::Dynamic { base, most, is_exponential } => {
                let slope = (most[1] - base[1]) / (most[0] - base[0]);
                let mu = slope * tokens as f64 + base[1] - slope * base[0];
                let mu = if is_exponential { mu.exp() } else { mu };
                mu / (mu + (1.0 / sigma - 1.0))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(config: &str) -> Result<Schedule> {
        Schedule::read(&Config::parse("scheduler_config.json", config)?)
    }

    #[test]
    fn schedules_are_those_of_diffusers() {
        // diffusers 0.42.1, FlowMatchEulerDiscreteScheduler.
        let near = |found: Vec<f32>, expected: &[f32]| {
            assert_eq!(found.len(), expected.len());
            let near = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 2e-6);
            assert!(near, "{found:?} {expected:?}");
        };
        let turbo = schedule(r#"{"shift": 3.0, "use_dynamic_shifting": false}"#).expect("known");
        near(turbo.sigmas(4, 4096), &[1.0, 0.9, 0.75, 0.5, 0.0]);
        near(turbo.sigmas(1, 16), &[1.0, 0.0]);
        assert_eq!(turbo.static_shift(), Some(3.0));
        let qwen = schedule(
            r#"{"use_dynamic_shifting": true, "base_image_seq_len": 256, "base_shift": 0.5,
                "max_image_seq_len": 8192, "max_shift": 0.9, "shift_terminal": 0.02,
                "time_shift_type": "exponential", "shift": 1.0}"#,
        );
        let sigmas = qwen.expect("known").sigmas(4, 4096);
        near(sigmas[..1].to_vec(), &[1.0]);
        near(sigmas[3..].to_vec(), &[0.02, 0.0]);
    }

    #[test]
    fn other_schedulers_and_variants_are_refused_by_name() {
        for (config, name) in [
            (r#"{"_class_name": "DDIMScheduler"}"#, "DDIMScheduler"),
            (r#"{"use_karras_sigmas": true}"#, "use_karras_sigmas"),
            (r#"{"stochastic_sampling": true}"#, "stochastic_sampling"),
            (r#"{"use_dynamic_shifting": true, "time_shift_type": "cubic"}"#, "cubic"),
            (r#"{"shift_terminal": 1.5}"#, "shift_terminal"),
            (r#"{"num_train_timesteps": 500}"#, "500"),
        ] {
            let error = schedule(config).expect_err("not known").to_string();
            assert!(error.contains(name), "{error}");
        }
    }
}
