//! The steps of a report, one after the other.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use inference_core::CancelToken;

use super::answers::{Answers, Distance, allowed};
use super::doctor;
use super::memory::Memory;
use super::networks;
use super::private::Private;
use super::process::{Ended, Processes, Why};
use super::speed::{self, Measured, Speed};
use super::written::{Compared, FORM, Finding, Report, verdict};
use crate::args::{Network, ReportArgs};
use crate::failure::{Failure, Result};
use crate::output::note;

/// Variables that turn our own kernels off.
const KERNELS: [&str; 3] = ["ML_CPU_KERNELS", "ML_CUDA_KERNELS", "ML_METAL_KERNELS"];
/// A variable by which this program knows with which libraries it was started.
const STARTED: &str = "ML_STARTED_WITH_CUDA";
/// The longest time in which Python finds mlx-lm.
const LONGEST_IMPORT: Duration = Duration::from_secs(20);
/// Apple's Python, which asks the user to install it where it is not there.
const STAND_IN: &str = "/usr/bin/python3";

/// The times of a report.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// No step begins after so long, and none takes longer than what is left of it.
    whole: Duration,
    /// The longest time of a step: MLX compiles kernels at their first use.
    step: Duration,
    /// The longest time of a measurement.
    speed: Duration,
}

impl Limits {
    /// No step begins with less time: one that has as much and does not end is at fault.
    const LEAST: Duration = Duration::from_secs(30);

    /// The limits that `args` ask for.
    pub fn of(args: &ReportArgs) -> Limits {
        let limits = |whole, step, speed| {
            let [whole, step, speed] = [whole, step, speed].map(Duration::from_secs);
            Limits { whole, step, speed }
        };
        match (args.budget, args.quick) {
            (Some(whole), _) => limits(whole, whole / 2, whole / 2),
            (None, true) => limits(100, 40, 45),
            (None, false) => limits(570, 120, 45),
        }
    }

    /// The time of a step that takes `most`, once `elapsed` are over; `None` where too little is
    /// left.
    fn left(&self, most: Duration, elapsed: Duration) -> Option<Duration> {
        let left = self.whole.checked_sub(elapsed)?;
        (left >= Limits::LEAST).then(|| left.min(most))
    }
}

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
    limits: Limits,
    processes: Processes,
    report: Report,
}

impl<'a> Trial<'a> {
    /// Before the first step.
    ///
    /// # Errors
    /// The program does not find itself.
    pub fn new(args: &'a ReportArgs, cancel: CancelToken) -> Result<Self> {
        let program = env::current_exe()
            .map_err(|error| Failure::Other(format!("this program's own file: {error}")))?;
        let report = Report {
            report: FORM,
            version: env!("CARGO_PKG_VERSION"),
            quick: args.quick,
            ..Report::default()
        };
        let (limits, began) = (Limits::of(args), Instant::now());
        let processes = Processes { cancel, private: Private::here() };
        Ok(Trial { args, program, began, limits, processes, report })
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
    fn system(&mut self) -> Result<String> {
        let mut told = Vec::new();
        for (program, arguments) in [("uname", "-srm"), ("sw_vers", "-productVersion")] {
            if program == "sw_vers" && !cfg!(target_os = "macos") {
                continue;
            }
            let mut command = Command::new(program);
            command.arg(arguments);
            let ended = self.processes.run(command, Duration::from_secs(5))?;
            match &ended.failure {
                Some(why) => self.report.left_out.push(format!("the system, by {program}: {why}")),
                None => told.push(ended.stdout.trim().to_owned()),
            }
        }
        Ok(told.join(", macOS "))
    }

    fn doctor(&mut self) -> Result<()> {
        let asked = self.args.backend.clone();
        let arguments = ["doctor", "--json"].map(String::from);
        let ended = self.ml(&arguments, Kernels::Ours, self.limits.step)?;
        let Some(ended) = ended else {
            self.leave_out("doctor");
            return Ok(());
        };
        let mut kept = doctor::kept(&ended.stdout);
        kept.iter_mut().for_each(|kept| self.processes.private.clean(kept));
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
        let mut memory: Option<Memory> = serde_json::from_str(&ended.stdout).ok();
        if let Some(refused) = memory.as_mut().and_then(|memory| memory.refused.as_mut()) {
            *refused = self.processes.private.without(refused);
        }
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
        let Some(limit) = self.left(LONGEST_IMPORT) else {
            self.leave_out("mlx-lm");
            return Ok(false);
        };
        if !self.has_python(limit)? {
            self.report.left_out.push("mlx-lm: there are no command line tools".to_owned());
            return Ok(false);
        }
        let mut command = Command::new("python3");
        command.args(["-c", "import mlx_lm"]);
        let ended = self.processes.run(command, limit)?;
        let told = match &ended.failure {
            Some(late @ Why::Late(_)) => format!("mlx-lm: its import: {late}"),
            Some(Why::Failed(_)) => "mlx-lm: `python3` has no mlx_lm".to_owned(),
            None => return Ok(true),
        };
        self.report.left_out.push(told);
        Ok(false)
    }

    /// Returns false where a call of `python3` would only ask the user to install it, as macOS'
    /// own does without the command line tools.
    fn has_python(&self, limit: Duration) -> Result<bool> {
        let path = env::var_os("PATH").unwrap_or_default();
        let found = env::split_paths(&path).map(|folder| folder.join("python3"));
        let first = { found }.find(|file| file.exists());
        if !cfg!(target_os = "macos") || first.as_deref() != Some(Path::new(STAND_IN)) {
            return Ok(true);
        }
        let mut command = Command::new("xcode-select");
        command.arg("-p");
        Ok(self.processes.run(command, limit)?.failure.is_none())
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
            match self.ml(&arguments, kernels, self.limits.speed)? {
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
        let Some(limit) = self.left(self.limits.speed) else {
            self.leave_out(&step);
            return Ok(());
        };
        let mut command = Command::new("python3");
        command.args(measured.of_mlx_lm());
        let ended = self.processes.run(command, limit)?;
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
        let Some(ended) = self.ml(arguments, kernels, self.limits.step)? else {
            self.leave_out(step);
            return Ok(None);
        };
        if let Some(why) = &ended.failure {
            self.wrong(step, why.to_string());
        }
        Ok(Some(ended))
    }

    /// Runs this program with `arguments` and such kernels; `None` where no time is left.
    fn ml(&self, arguments: &[String], kernels: Kernels, most: Duration) -> Result<Option<Ended>> {
        let Some(limit) = self.left(most) else { return Ok(None) };
        let mut command = Command::new(&self.program);
        command.args(arguments);
        // What the caller's environment says of `ml` and of MLX is not tried.
        for (variable, _) in env::vars_os() {
            if variable.to_str().is_some_and(is_setting) {
                command.env_remove(variable);
            }
        }
        for variable in KERNELS {
            match kernels {
                Kernels::Mlx => command.env(variable, "off"),
                Kernels::Ours if env::var_os(variable).is_some_and(|value| value == "off") => {
                    command.env_remove(variable)
                }
                Kernels::Ours => &mut command,
            };
        }
        self.processes.run(command, limit).map(Some)
    }

    /// The time of a step that takes `most`; `None` where too little is left.
    fn left(&self, most: Duration) -> Option<Duration> {
        self.limits.left(most, self.began.elapsed())
    }

    fn leave_out(&mut self, step: &str) {
        let least = Limits::LEAST.as_secs();
        self.report.left_out.push(format!("{step}: less than {least} s were left"));
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

/// Returns true for a variable that changes what is computed, but for those of the report itself.
fn is_setting(variable: &str) -> bool {
    let is_own = KERNELS.contains(&variable) || variable == STARTED;
    !is_own && ["ML_", "MLX_"].iter().any(|start| variable.starts_with(start))
}

fn step(network: Network, device: &str, kernels: Kernels) -> String {
    format!("{} on {device}, {}", name(network), kernels.told())
}

/// As the command line spells it.
fn name(network: Network) -> String {
    network.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Limits, is_setting};

    #[test]
    fn no_step_begins_with_too_little_time() {
        let seconds = Duration::from_secs;
        let limits = Limits { whole: seconds(100), step: seconds(40), speed: seconds(45) };
        for (elapsed, left) in
            [(0, Some(40)), (60, Some(40)), (65, Some(35)), (70, Some(30)), (71, None), (101, None)]
        {
            assert_eq!(limits.left(limits.step, seconds(elapsed)), left.map(seconds), "{elapsed}");
        }
    }

    #[test]
    fn settings_of_the_caller_are_known_by_their_names() {
        for name in ["ML_MODEL", "ML_THREADS", "MLX_METAL_FAST_SYNCH"] {
            assert!(is_setting(name), "{name}");
        }
        for name in ["ML_METAL_KERNELS", "ML_STARTED_WITH_CUDA", "HOME", "HTML_X"] {
            assert!(!is_setting(name), "{name}");
        }
    }
}
