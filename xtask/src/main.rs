//! Tasks of this repository: `cargo xtask COMMAND`.
#![forbid(unsafe_code)]

mod bindings;
mod build_mlx;
mod clients;
mod dist;
mod gpu_tests;
mod kernels;
mod link_costs;
mod manifest;
mod modules;
mod pictures;
mod repository;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  build-mlx [--variant metal|cpu|cuda] [--from-source DIR] [--fetch-only]
      finds or fetches MLX and compiles mlx-c, as the first build would
  bindings [--check]
      regenerates crates/mlx-ffi/src/bindings.rs, or checks that it is current
  clients [NAME...]
      runs programs that others wrote against `ml serve`; their packages go below target/clients
  dist [--out DIR] [--variant metal|cpu|cuda] [--downloads URL] [--check]
      packs the program with its libraries, below target/dist; with a URL, writes install.sh for what is
      downloaded from there; with --check, tries both, and the packages of the crates that others use
  gpu-tests [--pack DIR]
      runs the tests that need an NVIDIA GPU and sums them up; or puts them into DIR, with a script
      that runs them on a machine without Rust
  kernels
      runs kernels for NVIDIA GPUs on this processor, and compiles them by NVIDIA's compiler, which needs none
  link-costs [--latency MICROSECONDS --bandwidth GB/S]
      what links between ranks cost a token, on paper: the table of docs/distributed.md, or a link's own
  modules
      draws the modules of each crate: docs/design/modules
  tidy
      checks the rules of the house that a program can check";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next();
    let args: Vec<String> = args.collect();
    let result = match command.as_deref() {
        Some("build-mlx") => build_mlx::run(&args),
        Some("bindings") => bindings::run(&args),
        Some("clients") => clients::run(&args),
        Some("dist") => dist::run(&args),
        Some("gpu-tests") => gpu_tests::run(&args),
        Some("kernels") => kernels::run(&args),
        Some("link-costs") => link_costs::run(&args),
        Some("modules") => pictures::run(repository::root()),
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
