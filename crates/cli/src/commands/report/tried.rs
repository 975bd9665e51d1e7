//! The steps of a report, one after the other.

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use inference_core::CancelToken;

use super::answers::{Answers, Distance, allowed};
use super::doctor;
use super::memory::Memory;
use super::networks;
use super::process::{self, Ended, Why};
use super::speed::{self, Measured, Speed};
use super::written::{Compared, FORM, Finding, Report, verdict};
use crate::args::{Network, ReportArgs};
use crate::failure::{Failure, Result};
use crate::output::note;

/// Variables that turn our own kernels off.
const KERNELS: [&str; 3] = ["ML_CPU_KERNELS", "ML_CUDA_KERNELS", "ML_METAL_KERNELS"];
/// The longest time of a step: MLX compiles kernels at their first use.
const LONGEST: Duration = Duration::from_secs(120);
/// The longest time of a measurement.
const LONGEST_SPEED: Duration = Duration::from_secs(45);

/// Whose kernels a step computes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernels {
    Ours,
    Mlx,
}

impl Kernels {
    fn name(self) -> &'static str {
        match self {
            Kernels::Ours => "ours",
            Kernels::Mlx => "mlx",
        }
    }

    fn told(self) -> &'static str {
        match self {
            Kernels::Ours => "our kernels",
            Kernels::Mlx => "MLX's kernels",
        }
    }
}

/// The answers of one process.
struct Computed {
    answers: Vec<Answers>,
    ended: Ended,
}

/// A report that is being made.
pub struct Trial<'a> {
    args: &'a ReportArgs,
    program: PathBuf,
    began: Instant,
    budget: Duration,
    cancel: CancelToken,
    report: Report,
}

impl<'a> Trial<'a> {
    /// Before the first step of one that takes `budget`.
    ///
    /// # Errors
    /// The program does not find itself.
    pub fn new(args: &'a ReportArgs, budget: Duration, cancel: CancelToken) -> Result<Self> {
        let program = env::current_exe()
            .map_err(|error| Failure::Other(format!("this program's own file: {error}")))?;
        let report = Report {
            report: FORM,
            version: env!("CARGO_PKG_VERSION"),
            quick: args.quick,
            ..Report::default()
        };
        Ok(Trial { args, program, began: Instant::now(), budget, cancel, report })
    }

    /// All steps.
    ///
    /// # Errors
    /// [`Failure::Interrupted`] alone.
    pub fn all(mut self) -> Result<Report> {
        self.report.system = self.system()?;
        self.doctor()?;
        for network in self.networks() {
            self.answers(network)?;
        }
        self.memory()?;
        let mlx_lm = self.has_mlx_lm()?;
        let memory = self.report.doctor["system"]["memory_limit_bytes"].as_u64().unwrap_or(0);
        for measured in speed::all(&self.report.device, self.args.quick) {
            match measured.fits(memory) {
                true => self.speeds(measured, mlx_lm)?,
                false => {
                    let told = format!("{}: the memory is too small for it", measured.name());
                    self.report.left_out.push(told);
                }
            }
        }
        self.report.seconds = (self.began.elapsed().as_secs_f64() * 10.0).round() / 10.0;
        self.report.verdict = verdict(&self.report);
        Ok(self.report)
    }

    fn networks(&self) -> Vec<Network> {
        match self.args.quick {
            true => vec![Network::Packed, Network::Delta, Network::Mamba],
            false => Network::value_variants().to_vec(),
        }
    }

    /// The ways in which a model is computed: device and kernels.
    fn ways(&self) -> Vec<(String, Kernels)> {
        let device = self.report.device.clone();
        let cpu = ("cpu".to_owned(), Kernels::Ours);
        let mut ways = Vec::new();
        if device != "cpu" {
            ways.extend([(device.clone(), Kernels::Ours), (device, Kernels::Mlx)]);
        }
        if self.has_own_for_cpu() || ways.is_empty() {
            ways.push(cpu);
        }
        ways
    }

    /// Returns true where a CPU has kernels of our own.
    fn has_own_for_cpu(&self) -> bool {
        self.report.doctor["system"]["cpu_kernels"] != "MLX's"
    }

    /// The system as `uname` tells it but for the host's name, and the release of macOS.
    fn system(&self) -> Result<String> {
        let mut told = Vec::new();
        for (program, arguments) in [("uname", "-srm"), ("sw_vers", "-productVersion")] {
            if program == "sw_vers" && !cfg!(target_os = "macos") {
                continue;
            }
            let mut command = Command::new(program);
            command.arg(arguments);
            let ended = process::run(command, Duration::from_secs(5), &self.cancel)?;
            told.push(ended.stdout.trim().to_owned());
        }
        Ok(told.join(", macOS "))
    }

    fn doctor(&mut self) -> Result<()> {
        let asked = self.args.backend.clone();
        let ended = self.ml(&["doctor", "--json"].map(String::from), Kernels::Ours, LONGEST)?;
        let Some(ended) = ended else { return Ok(()) };
        let kept = doctor::kept(&ended.stdout);
        let device = kept.as_ref().and_then(|kept| kept["system"]["device"].as_str());
        self.report.device = asked.or(device.map(str::to_owned)).unwrap_or_else(|| "cpu".into());
        let failed = kept.as_ref().map(doctor::failed).unwrap_or_default();
        self.report.doctor = kept.unwrap_or_default();
        match (failed.is_empty(), &ended.failure) {
            (false, _) => failed.into_iter().for_each(|what| self.wrong("doctor", what)),
            (true, Some(why)) => self.wrong("doctor", why.to_string()),
            (true, None) => {}
        }
        self.progress("doctor", &format!("computes on {}", self.report.device), &ended);
        Ok(())
    }

    /// A model in all ways, and in each type.
    fn answers(&mut self, network: Network) -> Result<()> {
        let expected = self.computed(network, "cpu", Kernels::Mlx, &["f32"])?;
        let Some(Computed { answers, ended }) = expected else { return Ok(()) };
        self.progress(&step(network, "cpu", Kernels::Mlx), "computed for comparison", &ended);
        let Some(expected) = answers.into_iter().next() else { return Ok(()) };
        for (device, kernels) in self.ways() {
            let dtypes = match device == "cpu" && !self.has_own_for_cpu() {
                // Of MLX's own, some take f32 alone there.
                true => &["f32"],
                false => networks::dtypes(network, self.args.quick),
            };
            if let Some(found) = self.computed(network, &device, kernels, dtypes)? {
                self.compare(network, (&device, kernels), found, &expected);
            }
        }
        Ok(())
    }

    fn compare(
        &mut self,
        network: Network,
        (device, kernels): (&str, Kernels),
        found: Computed,
        expected: &Answers,
    ) {
        let step = step(network, device, kernels);
        let mut told = Vec::new();
        for Answers { dtype, answers } in found.answers {
            let allowed_difference = allowed(&dtype, device);
            let distance = Distance::of(&answers, &expected.answers, allowed_difference);
            told.push(format!("{dtype} {:.1e} off", distance.largest_difference));
            if let Some(wrong) = &distance.wrong {
                self.wrong(&step, format!("{dtype}, {wrong}"));
            }
            let (device, kernels) = (device.to_owned(), kernels.name());
            let one = Compared { network, device, kernels, dtype, allowed_difference, distance };
            self.report.answers.push(one);
        }
        self.progress(&step, &told.join(", "), &found.ended);
    }

    /// The answers of a model on `device`, in those of `dtypes` that came; `None`: no time is left.
    fn computed(
        &mut self,
        network: Network,
        device: &str,
        kernels: Kernels,
        dtypes: &[&str],
    ) -> Result<Option<Computed>> {
        let name = name(network);
        let words = ["report", "--probe", "answers", "--network", &name, "--backend", device];
        let mut arguments = words.map(String::from).to_vec();
        arguments.extend(["--dtypes".to_owned(), dtypes.join(",")]);
        let step = step(network, device, kernels);
        let Some(ended) = self.ml_told(&step, &arguments, kernels)? else { return Ok(None) };
        let lines = ended.stdout.lines();
        let answers: Vec<Answers> =
            lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
        if ended.failure.is_none() && answers.len() != dtypes.len() {
            self.wrong(&step, format!("{} of {} types came", answers.len(), dtypes.len()));
        }
        Ok(Some(Computed { answers, ended }))
    }

    fn memory(&mut self) -> Result<()> {
        let device = self.report.device.clone();
        let words = ["report", "--probe", "memory", "--backend", &device].map(String::from);
        let step = format!("memory on {device}");
        let Some(ended) = self.ml_told(&step, &words, Kernels::Ours)? else { return Ok(()) };
        let memory: Option<Memory> = serde_json::from_str(&ended.stdout).ok();
        self.progress(&step, memory.as_ref().map_or("nothing came", Memory::told), &ended);
        match &memory {
            Some(memory) => memory.wrong().into_iter().for_each(|what| self.wrong(&step, what)),
            None if ended.failure.is_none() => self.wrong(&step, "it printed nothing".into()),
            None => {}
        }
        self.report.memory = memory;
        Ok(())
    }

    fn has_mlx_lm(&mut self) -> Result<bool> {
        let mut command = Command::new("python3");
        command.args(["-c", "import mlx_lm"]);
        let ended = process::run(command, Duration::from_secs(20), &self.cancel)?;
        if ended.failure.is_some() {
            self.report.left_out.push("mlx-lm: `python3` has no mlx_lm".to_owned());
        }
        Ok(ended.failure.is_none())
    }

    /// A model's speed with our kernels and with MLX's, and mlx-lm's where it is there. MLX's on a
    /// CPU take longer than a quick report does.
    fn speeds(&mut self, measured: Measured, mlx_lm: bool) -> Result<()> {
        let device = self.report.device.clone();
        for kernels in [Kernels::Ours, Kernels::Mlx] {
            if kernels == Kernels::Mlx && self.args.quick && device == "cpu" {
                continue;
            }
            let step = format!("{} on {device}, {}", measured.name(), kernels.told());
            let arguments = measured.arguments(&device);
            match self.ml(&arguments, kernels, LONGEST_SPEED)? {
                Some(ended) => {
                    self.speed(&step, Speed::of(measured.name(), kernels.name(), &ended), &ended)
                }
                None => self.leave_out(&step),
            }
        }
        if !mlx_lm {
            return Ok(());
        }
        let step = format!("{}, mlx-lm", measured.name());
        let Some(limit) = self.left(LONGEST_SPEED) else {
            self.leave_out(&step);
            return Ok(());
        };
        let mut command = Command::new("python3");
        command.args(measured.of_mlx_lm());
        let ended = process::run(command, limit, &self.cancel)?;
        let speed = Speed::of(measured.name(), "mlx-lm", &ended);
        self.progress(&step, &speed.told(), &ended);
        // What fails in another program is no fault of this one.
        self.report.speeds.push(speed);
        Ok(())
    }

    fn speed(&mut self, step: &str, speed: Speed, ended: &Ended) {
        self.progress(step, &speed.told(), ended);
        match &speed.failure {
            Some(failure) if speed::is_fault(ended, &speed) => self.wrong(step, failure.clone()),
            Some(failure) => self.report.left_out.push(format!("{step}: {failure}")),
            None => {}
        }
        self.report.speeds.push(speed);
    }

    /// [`ml`](Self::ml), with what fails told.
    fn ml_told(
        &mut self,
        step: &str,
        arguments: &[String],
        kernels: Kernels,
    ) -> Result<Option<Ended>> {
        let Some(ended) = self.ml(arguments, kernels, LONGEST)? else {
            self.leave_out(step);
            return Ok(None);
        };
        match &ended.failure {
            // A machine that has no time left is not at fault.
            Some(Why::Late(limit)) if *limit < LONGEST => {
                self.report.left_out.push(format!("{step}: it had {} s left", limit.as_secs()));
            }
            Some(why) => self.wrong(step, why.to_string()),
            None => {}
        }
        Ok(Some(ended))
    }

    /// Runs this program with `arguments` and such kernels; `None` where no time is left.
    fn ml(&self, arguments: &[String], kernels: Kernels, most: Duration) -> Result<Option<Ended>> {
        let Some(limit) = self.left(most) else { return Ok(None) };
        let mut command = Command::new(&self.program);
        command.args(arguments).env_remove("ML_MODEL");
        for variable in KERNELS {
            match kernels {
                Kernels::Mlx => command.env(variable, "off"),
                Kernels::Ours if env::var_os(variable).is_some_and(|value| value == "off") => {
                    command.env_remove(variable)
                }
                Kernels::Ours => &mut command,
            };
        }
        process::run(command, limit, &self.cancel).map(Some)
    }

    /// The time of a step that takes `most`; `None` where none is left.
    fn left(&self, most: Duration) -> Option<Duration> {
        let left = self.budget.checked_sub(self.began.elapsed())?;
        Some(left.min(most))
    }

    fn leave_out(&mut self, step: &str) {
        self.report.left_out.push(format!("{step}: no time was left"));
    }

    fn wrong(&mut self, step: &str, what: String) {
        note(format_args!("{step}: WRONG: {what}"));
        self.report.wrong.push(Finding { step: step.to_owned(), what });
    }

    fn progress(&self, step: &str, came: &str, ended: &Ended) {
        let elapsed = self.began.elapsed().as_secs();
        note(format_args!("{elapsed:>4} s  {step}: {came} ({:.1} s)", ended.seconds));
    }
}

fn step(network: Network, device: &str, kernels: Kernels) -> String {
    format!("{} on {device}, {}", name(network), kernels.told())
}

/// As the command line spells it.
fn name(network: Network) -> String {
    network.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
