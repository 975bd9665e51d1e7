//! `ml doctor`: whether everything works here.

use std::time::Instant;

use inference_core::{ChatOptions, GenerateOptions, LoadOptions, Message};
use metal_backend::System;
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::bytes;
use crate::demo;
use crate::failure::{Failure, Result};
use crate::interrupt::Interrupt;
use crate::output::{print, print_json};

/// The object of `--json`.
#[derive(Serialize)]
struct Diagnosis {
    healthy: bool,
    version: &'static str,
    /// `null` when the libraries cannot be asked.
    system: Option<SystemFacts>,
    architectures: &'static [&'static str],
    backends: Vec<BackendState>,
    checks: Vec<Check>,
}

#[derive(Serialize)]
struct SystemFacts {
    mlx_c_version: String,
    mlx_version: String,
    device: String,
    cpu_kernels: &'static str,
    device_name: String,
    memory_limit_bytes: u64,
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
            device_name: system.device_name,
            memory_limit_bytes: system.memory_limit_bytes,
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
    let diagnosis = diagnose();
    if args.json {
        print_json(&diagnosis)?;
    } else {
        print(&text(&diagnosis))?;
    }
    if diagnosis.healthy { Ok(()) } else { Err(Failure::Unhealthy) }
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
        checks,
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

fn text(diagnosis: &Diagnosis) -> String {
    let mut rows = vec![("ml", diagnosis.version.to_owned())];
    if let Some(system) = &diagnosis.system {
        rows.push(("mlx-c", system.mlx_c_version.clone()));
        rows.push(("MLX", system.mlx_version.clone()));
        rows.push(("device", format!("{} ({})", system.device, system.device_name)));
        rows.push(("CPU kernels", system.cpu_kernels.to_owned()));
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
    text += "checks\n";
    for check in &diagnosis.checks {
        let verdict = if check.ok { "ok" } else { "FAILED" };
        text += &format!("  {:<13}{verdict}: {}\n", check.name, check.detail);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{BackendState, Check, Diagnosis, text};
    use crate::failure::Failure;

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
            checks: vec![
                Check::of("mlx", Ok("0.32.2 on cpu".into())),
                Check::of("generation", Err(Failure::Other("out of memory".into()))),
            ],
        };
        let text = text(&diagnosis);
        assert!(text.contains("architectures  llama, qwen3\n"), "{text}");
        assert!(text.contains("  cuda         not available: no device\n"), "{text}");
        assert!(text.contains("  mlx          ok: 0.32.2 on cpu\n"), "{text}");
        assert!(text.contains("  generation   FAILED: out of memory\n"), "{text}");
    }
}
