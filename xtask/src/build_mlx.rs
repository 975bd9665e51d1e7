//! `cargo xtask build-mlx`: what the first build does, done visibly.

use std::env;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use mlx_build::{Goal, Python, Request, Source, Target, Variant, location, provision};

use crate::root;

/// Provides MLX in the folder where the build looks for it.
pub fn run(args: &[String]) -> Result<()> {
    let start = Instant::now();
    let request = request(args)?;
    let mlx = provision(&request)?;
    let done = if request.goal == Goal::Fetched { "fetched" } else { "ready to link" };
    let seconds = start.elapsed().as_secs_f64();
    eprintln!("MLX {} is {done} in {} ({seconds:.1} s)", request.variant, mlx.root.display());
    Ok(())
}

fn request(args: &[String]) -> Result<Request> {
    let mut variant = env::var("MLX_VARIANT").ok();
    let mut source = match env::var_os("MLX_ROOT") {
        Some(root) => Source::Installed(root.into()),
        None => Source::Wheel,
    };
    let mut goal = Goal::Linkable;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--variant" => variant = Some(args.next().context("--variant needs a name")?.clone()),
            "--from-source" => {
                let dir = args.next().context("--from-source needs a folder")?;
                source = Source::Checkout(PathBuf::from(dir));
            }
            "--fetch-only" => goal = Goal::Fetched,
            other => bail!("unknown argument `{other}` of build-mlx"),
        }
    }
    let host = Target::host();
    let variant = match variant {
        Some(name) => name.parse()?,
        None => Variant::default_for(&host.os),
    };
    let ffi = root().join("crates/mlx-ffi");
    Ok(Request {
        variant,
        source,
        goal,
        target: host,
        triple: mlx_build::HOST.to_owned(),
        cache: location::cache_of_workspace(&ffi)?,
        manifest_dir: ffi,
        python: Python::from_env(),
        progress: |line| eprintln!("{line}"),
    })
}
