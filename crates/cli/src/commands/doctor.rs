//! `ml doctor`: whether everything works here.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use hub::Settings;
use inference_core::{ChatOptions, GenerateOptions, LoadOptions, Message};
use metal_backend::System;
use serde::Serialize;

use super::chat::history_of_user;
use super::warm::warm;
use crate::args::DoctorArgs;
use crate::bytes;
use crate::cuda::{self, Driver};
use crate::demo;
use crate::failure::{Failure, Result};
use crate::interrupt::Interrupt;
use crate::output::{print, print_json};
use crate::source::Source;

/// The object of `--json`.
#[derive(Serialize)]
struct Diagnosis {
    healthy: bool,
    version: &'static str,
    /// `null` when the libraries cannot be asked.
    system: Option<SystemFacts>,
    architectures: &'static [&'static str],
    backends: Vec<BackendState>,
    cuda: Cuda,
    /// The folder of pulled models; `null` where no variable names one.
    models_folder: Option<PathBuf>,
    /// The program that turns text into phonemes for `ml speak`; `null` where it is not on the
    /// `PATH`.
    espeak_ng: Option<PathBuf>,
    /// `null` without a home folder.
    chat_history: Option<ChatHistory>,
    checks: Vec<Check>,
}

/// The file with what was typed in chats.
#[derive(Serialize)]
struct ChatHistory {
    file: PathBuf,
    /// `null` where it is not there.
    bytes: Option<u64>,
}

impl ChatHistory {
    fn here() -> Option<Self> {
        let file = history_of_user()?;
        let bytes = fs::metadata(&file).ok().map(|file| file.len());
        Some(ChatHistory { file, bytes })
    }
}

impl fmt::Display for ChatHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.bytes.map_or_else(|| "not there yet".to_owned(), bytes::human);
        write!(f, "{} ({size}); `ml chat --no-history` keeps nothing", self.file.display())
    }
}

#[derive(Serialize)]
struct SystemFacts {
    mlx_c_version: String,
    mlx_version: String,
    device: String,
    cpu_kernels: &'static str,
    rounded_activations: &'static str,
    device_name: String,
    /// The architecture of the device's processor; `null` where it has no name.
    architecture: Option<String>,
    /// The type in which models of bf16 are computed without `--dtype`: `bf16` or `f16`.
    type_for_bf16: &'static str,
    memory_limit_bytes: u64,
    /// `null` where nothing is wired.
    working_set_bytes: Option<u64>,
    /// `null` where the device does not tell.
    total_memory_bytes: Option<u64>,
    active_memory_bytes: u64,
}

#[derive(Serialize)]
struct BackendState {
    name: String,
    available: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// MLX's build for NVIDIA GPUs.
#[derive(Serialize)]
struct Cuda {
    /// The driver's release; `null` where there is no GPU, and empty where the driver does not
    /// tell.
    driver: Option<String>,
    /// The folder of the build, there or not; `null` where there is no place for it.
    folder: Option<PathBuf>,
    /// The build is there.
    set_up: bool,
    /// This process runs with the build.
    in_use: bool,
    /// The way to get the build to run; `null` where nothing can be done, or need not be.
    advice: Option<String>,
}

impl Cuda {
    fn here() -> Cuda {
        let driver = Driver::here();
        let is_old = driver.as_ref().is_some_and(Driver::is_old);
        let set_up = cuda::found().is_some();
        let advice = match (&driver, set_up) {
            (Some(driver), _) if is_old => {
                let least = cuda::LEAST_DRIVER;
                Some(format!("{driver} is too old: CUDA 13 wants {least} or newer"))
            }
            (Some(_), false) => Some("`ml setup cuda` fetches what is missing".to_owned()),
            _ => None,
        };
        Cuda {
            driver: driver.map(|driver| driver.release.unwrap_or_default()),
            folder: cuda::place().ok(),
            set_up,
            in_use: cuda::is_started(),
            advice,
        }
    }
}

impl fmt::Display for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.driver {
            None => f.write_str("no NVIDIA GPU with its driver")?,
            Some(release) => write!(f, "NVIDIA's driver {release}")?,
        }
        if let Some(folder) = self.folder.as_ref().filter(|_| self.set_up) {
            let state = if self.in_use { "in use" } else { "not in use" };
            write!(f, "; {} is {state}", folder.display())?;
        }
        self.advice.iter().try_for_each(|advice| write!(f, "; {advice}"))
    }
}

#[derive(Serialize)]
struct Check {
    name: &'static str,
    ok: bool,
    detail: String,
}

impl Check {
    fn of(name: &'static str, result: Result<String>) -> Self {
        match result {
            Ok(detail) => Check { name, ok: true, detail },
            Err(failure) => Check { name, ok: false, detail: failure.to_string() },
        }
    }
}

impl From<System> for SystemFacts {
    fn from(system: System) -> Self {
        SystemFacts {
            mlx_c_version: system.mlx_c_version,
            mlx_version: system.mlx_version,
            device: system.device,
            cpu_kernels: system.cpu_kernels,
            rounded_activations: system.rounded_activations,
            device_name: system.device_name,
            architecture: system.architecture,
            type_for_bf16: system.type_for_bf16,
            memory_limit_bytes: system.memory_limit_bytes,
            working_set_bytes: system.working_set_bytes,
            total_memory_bytes: system.total_memory_bytes,
            active_memory_bytes: system.active_memory_bytes,
        }
    }
}

/// Looks at the machine and generates a little.
///
/// # Errors
/// [`Failure::Unhealthy`] when a check fails; the report is printed before.
pub fn run(args: &DoctorArgs) -> Result<()> {
    Interrupt::install()?;
    let mut diagnosis = diagnose();
    if args.warm {
        let warmed = Source::of(args.model.as_deref()).and_then(|source| warm(&source));
        diagnosis.add(Check::of("warm", warmed));
    }
    if args.json {
        print_json(&diagnosis)?;
    } else {
        print(&text(&diagnosis))?;
    }
    if diagnosis.healthy { Ok(()) } else { Err(Failure::Unhealthy) }
}

impl Diagnosis {
    fn add(&mut self, check: Check) {
        self.healthy &= check.ok;
        self.checks.push(check);
    }
}

fn diagnose() -> Diagnosis {
    let registered = metal_backend::register();
    let system = metal_backend::system();
    let checks = vec![
        Check::of(
            "mlx",
            match &system {
                Ok(system) => Ok(format!("{} on {}", system.mlx_version, system.device)),
                Err(error) => Err(error.clone().into()),
            },
        ),
        Check::of(
            "backend",
            registered
                .and_then(|()| inference_core::default_backend())
                .map(|backend| backend.name().to_owned())
                .map_err(Failure::from),
        ),
        Check::of("generation", try_generation()),
    ];
    Diagnosis {
        healthy: checks.iter().all(|check| check.ok),
        version: env!("CARGO_PKG_VERSION"),
        system: system.ok().map(SystemFacts::from),
        architectures: metal_backend::architectures(),
        backends: backends(),
        cuda: Cuda::here(),
        models_folder: Settings::from_env().ok().map(|settings| settings.cache),
        espeak_ng: espeak_ng(),
        chat_history: ChatHistory::here(),
        checks,
    }
}

#[cfg(feature = "speech")]
fn espeak_ng() -> Option<PathBuf> {
    metal_backend::espeak_ng()
}

#[cfg(not(feature = "speech"))]
fn espeak_ng() -> Option<PathBuf> {
    None
}

/// The state of the program that turns text into phonemes.
fn phonemes(espeak_ng: Option<&PathBuf>) -> String {
    match espeak_ng {
        Some(program) => program.display().to_string(),
        None => "not on the PATH: `ml speak` needs it for text (`apt install espeak-ng`, `dnf install espeak-ng`, \
                 `brew install espeak-ng`); `--phonemes` goes without"
            .to_owned(),
    }
}

fn backends() -> Vec<BackendState> {
    let state = |name: String| {
        let reason = match inference_core::get_backend(&name).map(|backend| backend.available()) {
            Some(Ok(())) => None,
            Some(Err(reason)) => Some(reason),
            None => Some("not registered".to_owned()),
        };
        BackendState { name, available: reason.is_none(), reason }
    };
    inference_core::backends().into_iter().map(state).collect()
}

/// Loads the embedded model and lets it begin a story.
fn try_generation() -> Result<String> {
    let start = Instant::now();
    let model = metal_backend::load_embedded(demo::FILES, &LoadOptions::default())?;
    let loaded = start.elapsed();
    let options =
        GenerateOptions { max_tokens: Some(16), temperature: Some(0.0), ..Default::default() };
    let messages = [Message::user("Tell me a story about a fox")];
    let (text, outcome) =
        model.chat(&messages, &ChatOptions::default(), &options)?.collect_text()?;
    if text.trim().is_empty() {
        return Err(Failure::Other("the embedded model generated no text".into()));
    }
    let first = outcome.metrics.time_to_first_token.unwrap_or_default();
    Ok(format!(
        "loaded in {:.3} s, first token in {:.3} s, {} tokens at {:.1} tok/s",
        loaded.as_secs_f64(),
        first.as_secs_f64(),
        outcome.metrics.generated_tokens,
        outcome.metrics.decode_tokens_per_second(),
    ))
}

/// The type that stands for bf16 here; `None` where that stands for itself.
fn bf16(computed: &str) -> Option<String> {
    let told = || format!("in {computed}: this GPU has no units for bf16; --dtype bf16 keeps it");
    (computed != "bf16").then(told)
}

/// The effect of `--wired-limit` on this machine.
fn wired(working_set: Option<u64>) -> String {
    match working_set {
        None => {
            "none: without Metal nothing is paged out, and --wired-limit has no effect".to_owned()
        }
        Some(bytes) => format!("up to {} while requests run (--wired-limit)", bytes::human(bytes)),
    }
}

fn text(diagnosis: &Diagnosis) -> String {
    let mut rows = vec![("ml", diagnosis.version.to_owned())];
    if let Some(system) = &diagnosis.system {
        rows.push(("mlx-c", system.mlx_c_version.clone()));
        rows.push(("MLX", system.mlx_version.clone()));
        rows.push(("device", format!("{} ({})", system.device, system.device_name)));
        rows.extend(bf16(system.type_for_bf16).map(|told| ("models in bf16", told)));
        rows.push(("CPU kernels", system.cpu_kernels.to_owned()));
        rows.push(("int8 on a CPU", system.rounded_activations.to_owned()));
        let total = system.total_memory_bytes.map(bytes::human);
        rows.push((
            "memory",
            format!(
                "{}{} to use, {} in use",
                total.map_or_else(String::new, |total| format!("{total} in all, ")),
                bytes::human(system.memory_limit_bytes),
                bytes::human(system.active_memory_bytes),
            ),
        ));
    }
    if let Some(system) = &diagnosis.system {
        rows.push(("wired memory", wired(system.working_set_bytes)));
    }
    rows.push(("architectures", diagnosis.architectures.join(", ")));
    let mut text: String =
        rows.iter().map(|(label, value)| format!("{label:<15}{value}\n")).collect();
    text += "backends\n";
    for backend in &diagnosis.backends {
        let state = match &backend.reason {
            None => "available".to_owned(),
            Some(reason) => format!("not available: {reason}"),
        };
        text += &format!("  {:<13}{state}\n", backend.name);
    }
    if cfg!(target_os = "linux") {
        text += &format!("{:<15}{}\n", "CUDA", diagnosis.cuda);
    }
    if cfg!(feature = "speech") {
        text += &format!("{:<15}{}\n", "espeak-ng", phonemes(diagnosis.espeak_ng.as_ref()));
    }
    let folder = diagnosis.models_folder.as_ref().map(|folder| folder.display().to_string());
    let folder = folder.unwrap_or_else(|| "no folder: set HF_HUB_CACHE".to_owned());
    text += &format!("{:<15}{folder}\n", "pulled models");
    let history = diagnosis.chat_history.as_ref().map(ChatHistory::to_string);
    let history = history.unwrap_or_else(|| "no folder: set XDG_STATE_HOME".to_owned());
    text += &format!("{:<15}{history}\n", "chat history");
    text += "checks\n";
    for check in &diagnosis.checks {
        let verdict = if check.ok { "ok" } else { "FAILED" };
        text += &format!("  {:<13}{verdict}: {}\n", check.name, check.detail);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{BackendState, ChatHistory, Check, Cuda, Diagnosis, bf16, phonemes, text};
    use crate::failure::Failure;

    #[test]
    fn a_missing_program_is_told_with_the_way_to_install_it() {
        let told = phonemes(None);
        assert!(told.contains("not on the PATH") && told.contains("apt install"), "{told}");
    }

    #[test]
    fn another_type_than_bf16_is_told() {
        assert_eq!(bf16("bf16"), None);
        let told = bf16("f16").unwrap();
        assert!(told.starts_with("in f16: ") && told.contains("--dtype bf16"), "{told}");
    }

    #[test]
    fn a_failed_check_is_told_with_its_reason() {
        let diagnosis = Diagnosis {
            healthy: false,
            version: "0.0.0",
            system: None,
            architectures: &["llama", "qwen3"],
            backends: vec![BackendState {
                name: "cuda".into(),
                available: false,
                reason: Some("no device".into()),
            }],
            cuda: Cuda {
                driver: Some("580.1".into()),
                folder: Some("/u/ml/cuda".into()),
                set_up: true,
                in_use: false,
                advice: None,
            },
            models_folder: Some("/u/hub".into()),
            espeak_ng: Some("/u/espeak-ng".into()),
            chat_history: Some(ChatHistory { file: "/u/history".into(), bytes: Some(2048) }),
            checks: vec![
                Check::of("mlx", Ok("0.32.2 on cpu".into())),
                Check::of("generation", Err(Failure::Other("out of memory".into()))),
            ],
        };
        let text = text(&diagnosis);
        assert!(text.contains("architectures  llama, qwen3\n"), "{text}");
        assert!(text.contains("  cuda         not available: no device\n"), "{text}");
        assert!(
            text.contains("CUDA           NVIDIA's driver 580.1; /u/ml/cuda is not in use\n"),
            "{text}"
        );
        let line = "espeak-ng      /u/espeak-ng\n";
        assert_eq!(text.contains(line), cfg!(feature = "speech"), "{text}");
        assert!(text.contains("pulled models  /u/hub\n"), "{text}");
        let history = "chat history   /u/history (2.0 KiB); `ml chat --no-history` keeps nothing\n";
        assert!(text.contains(history), "{text}");
        assert!(text.contains("  mlx          ok: 0.32.2 on cpu\n"), "{text}");
        assert!(text.contains("  generation   FAILED: out of memory\n"), "{text}");
    }
}
