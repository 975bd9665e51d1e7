//! Tasks of this repository: `cargo xtask COMMAND`.
#![forbid(unsafe_code)]

mod bindings;
mod build_mlx;
mod clients;
mod dist;
mod fuzz;
mod gpu_tests;
mod kernels;
mod link_costs;
mod macos;
mod manifest;
mod modules;
mod pictures;
mod real_models;
mod repository;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  build-mlx [--variant metal|cpu|cuda] [--from-source DIR | --wheel] [--fetch-only]
      finds or fetches MLX and compiles mlx-c, as the first build would; --help tells of the rest
  bindings [--check]
      regenerates crates/mlx-ffi/src/bindings.rs, or checks that it is current
  clients [NAME...]
      runs programs that others wrote against `ml serve`; their packages go below target/clients
  dist [--out DIR] [--variant metal|cpu|cuda] [--downloads URL] [--check]
      packs the program with its libraries, below target/dist; with a URL, writes install.sh for what is
      downloaded from there; with --check, tries both, and the packages of the crates that others use
  fuzz [--seconds N] [TARGET...]
      runs the fuzz targets of `fuzz`, each for so long (60 s), beginning with its seeds
  gpu-tests [--pack DIR]
      runs the tests that need an NVIDIA GPU and sums them up; or puts them into DIR, with a script
      that runs them on a machine without Rust
  kernels
      runs kernels for NVIDIA GPUs on this processor, and compiles them by NVIDIA's compiler, which needs none
  link-costs [--latency MICROSECONDS --bandwidth GB/S]
      what links between ranks cost a token, on paper: the table of docs/distributed.md, or a link's own
  macos [--link]
      checks all crates for macOS, compiles the C++ for it, and links that with each MLX for macOS; with --link,
      links the program, too; needs no Mac
  modules
      draws the modules of each crate: docs/design/modules
  real-models
      holds published checkpoints to what the references compute; they go below target/real-models (350 MB)
  tidy
      checks the rules of the house that a program can check";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next();
    let args: Vec<String> = args.collect();
    if let Some(help) = command.as_deref().and_then(|command| help(command, &args)) {
        eprintln!("{help}");
        return ExitCode::SUCCESS;
    }
    let result = match command.as_deref() {
        Some("build-mlx") => build_mlx::run(&args),
        Some("bindings") => bindings::run(&args),
        Some("clients") => clients::run(&args),
        Some("dist") => dist::run(&args),
        Some("fuzz") => fuzz::run(&args),
        Some("gpu-tests") => gpu_tests::run(&args),
        Some("kernels") => kernels::run(&args),
        Some("link-costs") => link_costs::run(&args),
        Some("macos") => macos::run(&args),
        Some("modules") => pictures::run(repository::root()),
        Some("real-models") => real_models::run(&args),
        Some("tidy") => tidy::run(repository::root()),
        Some("help" | "--help" | "-h") => {
            eprintln!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Some(other) => Err(anyhow::anyhow!("unknown command `{other}`\n{USAGE}")),
        None => Err(anyhow::anyhow!("no command given\n{USAGE}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The help of a command, where its arguments ask for it.
fn help(command: &str, args: &[String]) -> Option<String> {
    if !args.iter().any(|arg| arg == "--help" || arg == "-h") {
        return None;
    }
    let own = USAGE
        .split("\n  ")
        .skip_while(|part| part.split([' ', '\n']).next().is_none_or(|name| name != command));
    let mut own = own.enumerate().take_while(|(at, part)| *at == 0 || part.starts_with("    "));
    let (_, call) = own.next()?;
    let about: Vec<&str> = own.map(|(_, line)| line.trim()).collect();
    let more = if command == "build-mlx" { build_mlx::HELP } else { "" };
    Some(format!("usage: cargo xtask {call}\n\n{}\n{more}", about.join("\n")).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::{USAGE, help};

    #[test]
    fn each_command_tells_its_own_help() {
        let names: Vec<&str> = USAGE
            .lines()
            .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        assert!(names.contains(&"build-mlx") && names.contains(&"tidy"), "{names:?}");
        for name in &names {
            let text = help(name, &["--help".to_owned()]).unwrap();
            assert!(text.starts_with(&format!("usage: cargo xtask {name}")), "{text}");
            let others = names.iter().filter(|other| other != &name);
            assert!(
                others.into_iter().all(|other| !text.contains(&format!("xtask {other}"))),
                "{text}"
            );
            assert!(text.lines().count() > 2, "{text}");
        }
        assert_eq!(help("build-mlx", &["--wheel".to_owned()]), None);
        assert_eq!(help("bogus", &["--help".to_owned()]), None);
    }

    #[test]
    fn the_help_of_build_mlx_names_each_variable() {
        let text = help("build-mlx", &["--fetch-only".to_owned(), "-h".to_owned()]).unwrap();
        for name in [
            "MLX_ROOT",
            "MLX_VARIANT",
            "MLX_PYTHON",
            "CXX",
            "CMAKE",
            "CARGO_TARGET_DIR",
            "MACOSX_DEPLOYMENT_TARGET",
            "--from-source",
            "--wheel",
            "--fetch-only",
            "--variant",
        ] {
            assert!(text.contains(name), "{name}: {text}");
        }
    }
}
