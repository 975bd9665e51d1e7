//! `cargo xtask build-mlx`: what the first build does, done visibly.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use mlx_build::build_script::{installed_from_env, variant_from_env};
use mlx_build::{
    Goal, HOST, PLATFORMS, Platform, Request, Source, Target, location, provision, python_from_env,
};

use crate::repository::root;

/// The options and the environment, printed below the command line's usage.
pub const HELP: &str = "
  --variant NAME     which build of MLX
  --from-source DIR  compiles MLX from a checkout of its sources; later builds keep it
  --wheel            fetches the pinned wheel, in place of an MLX that was compiled here
  --fetch-only       fetches MLX and compiles nothing; also for a variant of another machine

The environment, as each build reads it:
  MLX_ROOT                  an installed MLX, a folder with lib and include; nothing is fetched
  MLX_VARIANT               metal, cpu or cuda [default: metal on macOS, cpu on Linux]
  MLX_PYTHON                the Python 3 that gets and unpacks wheels [default: python3]
  CXX, CXXFLAGS, CMAKE      the C++ compiler, its flags, and cmake
  CARGO_TARGET_DIR          moves MLX's folder together with the target folder
  MACOSX_DEPLOYMENT_TARGET  the release of macOS to take MLX for [default: this machine's]
pip's own variables, such as PIP_INDEX_URL and PIP_PROXY, work as always.";

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
    let mut target = Target::host()?;
    let mut variant = variant_from_env(&target.os)?;
    let mut source = installed_from_env()?.map_or(Source::Any, Source::Installed);
    let mut goal = Goal::Linkable;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--variant" => variant = args.next().context("--variant needs a name")?.parse()?,
            "--from-source" => {
                let folder = args.next().context("--from-source needs a folder")?;
                source = Source::Checkout(PathBuf::from(folder));
            }
            "--wheel" => source = Source::Wheel,
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

#[cfg(test)]
mod tests {
    use mlx_build::Variant;

    use super::*;

    fn parse(args: &[&str]) -> Result<Request> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        request(&args)
    }

    #[test]
    fn a_foreign_variant_can_be_fetched() {
        for (variant, os) in [(Variant::Metal, "macos"), (Variant::Cuda, "linux")] {
            let request = parse(&["--fetch-only", "--variant", variant.name()]).unwrap();
            assert_eq!((request.variant, request.target.os.as_str()), (variant, os));
            assert_eq!(request.goal, Goal::Fetched);
        }
    }

    #[test]
    fn without_arguments_it_is_what_the_build_wants() {
        let request = parse(&[]).unwrap();
        assert_eq!(request.goal, Goal::Linkable);
        assert_eq!(request.target, Target::host().unwrap());
        assert!(request.cache.ends_with("mlx"));
        // An MLX that was compiled here stays, as in the first build.
        assert!(matches!(request.source, Source::Any | Source::Installed(_)));
    }

    #[test]
    fn the_wheel_takes_the_place_of_a_compiled_mlx_where_it_is_asked_for() {
        assert_eq!(parse(&["--wheel"]).unwrap().source, Source::Wheel);
    }

    #[test]
    fn a_checkout_is_taken_by_its_folder() {
        let request = parse(&["--from-source", "some/mlx"]).unwrap();
        assert_eq!(request.source, Source::Checkout("some/mlx".into()));
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (args, name) in [
            (&["--bogus"][..], "--bogus"),
            (&["--variant"], "--variant needs"),
            (&["--variant", "gpu"], "`gpu`"),
            (&["--from-source"], "--from-source needs"),
        ] {
            let text = parse(args).unwrap_err().to_string();
            assert!(text.contains(name), "{text}");
        }
    }
}
