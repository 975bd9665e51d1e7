//! `cargo xtask build-mlx`: what the first build does, done visibly.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use mlx_build::build_script::{installed_from_env, variant_from_env};
use mlx_build::{
    Goal, HOST, PLATFORMS, Platform, Request, Source, Target, location, provision, python_from_env,
};

use crate::root;

/// Provides MLX in the folder where the build looks for it.
pub fn run(args: &[String]) -> Result<()> {
    let start = Instant::now();
    let request = request(args)?;
    let mlx = provision(&request)?;
    let done = if request.goal == Goal::Fetched { "fetched" } else { "ready to link" };
    let seconds = start.elapsed().as_secs_f64();
    eprintln!("MLX is {done} in {} ({seconds:.1} s)", mlx.lib_dir.display());
    Ok(())
}

fn request(args: &[String]) -> Result<Request> {
    let mut target = Target::host();
    let mut variant = variant_from_env(&target.os)?;
    let mut source = installed_from_env()?.map_or(Source::Wheel, Source::Installed);
    let mut goal = Goal::Linkable;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--variant" => variant = args.next().context("--variant needs a name")?.parse()?,
            "--from-source" => {
                let folder = args.next().context("--from-source needs a folder")?;
                source = Source::Checkout(PathBuf::from(folder));
            }
            "--fetch-only" => goal = Goal::Fetched,
            other => bail!("unknown argument `{other}` of build-mlx"),
        }
    }
    if goal == Goal::Fetched && Platform::find(PLATFORMS, variant, &target).is_err() {
        // Fetching for another kind of machine: take the oldest that the variant runs on.
        let foreign = PLATFORMS.iter().find(|platform| platform.variant == variant);
        target = foreign.map_or(target, Platform::target);
    }
    let ffi = root().join("crates/mlx-ffi");
    Ok(Request {
        variant,
        source,
        goal,
        platforms: PLATFORMS,
        target,
        triple: HOST.to_owned(),
        cache: location::cache_of_workspace(&ffi)?,
        manifest_dir: ffi,
        python: python_from_env(),
        progress: |line| eprintln!("{line}"),
    })
}
