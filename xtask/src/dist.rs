//! `cargo xtask dist`: an archive of the program that runs on a machine without Rust and Python.

mod archive;
mod files;
mod installed;
mod licences;
pub mod needs;
mod newcomer;
mod options;
mod packages;
mod signing;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use mlx_build::{
    Goal, HOST, Mlx, PLATFORMS, Platform, Request, Source, Target, location, provision,
};

use crate::repository::{root, target_folder};
use files::{copy, copy_all};
use options::Options;

/// The program's name.
const PROGRAM: &str = "ml";

/// Builds the program, packs it with its libraries, and says what it needs of a system.
pub fn run(args: &[String]) -> Result<()> {
    let options = Options::parse(args)?;
    let mlx = mlx(&options)?;
    let wheel = Platform::find(PLATFORMS, options.variant, &Target::host()?)?;
    let name = options::name(env!("CARGO_PKG_VERSION"), HOST, wheel);
    fs::create_dir_all(&options.out)
        .with_context(|| format!("cannot make {}", options.out.display()))?;
    let staging = tempfile::tempdir_in(&options.out).context("cannot make a folder")?;
    let program = build(staging.path())?;
    let folder = staging.path().join(&name);
    lay_out(&folder, &program, &mlx)?;
    let needs = needs::of(&folder)?;
    fs::write(folder.join("README.md"), readme(&name, &needs))?;
    let file = options.out.join(format!("{name}.tar.gz"));
    let hash = archive::write(&folder, &file)?;
    eprintln!("{}: {} bytes, SHA-256 {hash}", file.display(), fs::metadata(&file)?.len());
    eprintln!("needs {needs}");
    if let Some(downloads) = &options.downloads {
        installed::write_installer(&options.out, downloads)?;
    }
    if options.checks {
        installed::check(&file, &name)?;
        newcomer::check(&file, &name)?;
        packages::check()?;
    }
    Ok(())
}

/// MLX's libraries, for the variant that is asked for.
fn mlx(options: &Options) -> Result<Mlx> {
    let ffi = root().join("crates/mlx-ffi");
    let request = Request {
        variant: options.variant,
        source: Source::Wheel,
        goal: Goal::Fetched,
        platforms: PLATFORMS,
        target: Target::host()?,
        triple: HOST.to_owned(),
        cache: location::cache_of_workspace(&ffi)?,
        manifest_dir: ffi,
        python: mlx_build::python_from_env(),
        progress: |line| eprintln!("{line}"),
    };
    Ok(provision(&request)?)
}

/// Builds `ml`, which looks for MLX beside itself alone, into `folder`.
///
/// One that runs where cargo puts it stays there.
fn build(folder: &Path) -> Result<PathBuf> {
    let usual = target_folder()?.join("release").join(PROGRAM);
    let aside = folder.join("usual");
    let has_usual = usual.is_file();
    if has_usual {
        fs::rename(&usual, &aside).context("cannot set the program aside")?;
    }
    let program = relocatable().and_then(|program| {
        let own = folder.join("relocatable");
        copy(&program, &own)?;
        Ok(own)
    });
    if has_usual {
        fs::rename(&aside, &usual).context("cannot put the program back")?;
    }
    program
}

/// Has cargo build the program.
fn relocatable() -> Result<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root())
        .args(["build", "--release", "--locked", "--bin", PROGRAM])
        .arg("--message-format=json-render-diagnostics")
        .env("MLX_RELOCATABLE", "1")
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    ensure!(output.status.success(), "the program does not build");
    let text = String::from_utf8(output.stdout).context("cargo says what is no UTF-8")?;
    let messages = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    let mut programs = messages.filter_map(|message: serde_json::Value| {
        let is_program = message["target"]["name"] == PROGRAM;
        message["executable"].as_str().filter(|_| is_program).map(PathBuf::from)
    });
    programs.next().context("cargo names no program")
}

/// Puts everything where it is in an archive.
fn lay_out(folder: &Path, program: &Path, mlx: &Mlx) -> Result<()> {
    let bin = folder.join("bin");
    fs::create_dir_all(&bin)?;
    let ml = bin.join(PROGRAM);
    copy(program, &ml)?;
    copy_all(&mlx.lib_dir, &folder.join("lib"), &|path| !is_of_builds_alone(path))?;
    signing::sign(folder)?;
    if mlx.lib_dir.join("libmlx.so").is_file() && has_kernel_headers(&mlx.include_dir) {
        // Kernels are compiled against them at run time.
        copy_all(&mlx.include_dir, &folder.join("include"), &|_| true)?;
    }
    let share = folder.join("share");
    tool(&ml, &["manual", &share.join("man/man1").display().to_string()])?;
    for (shell, place) in [
        ("bash", "bash-completion/completions/ml"),
        ("zsh", "zsh/site-functions/_ml"),
        ("fish", "fish/vendor_completions.d/ml.fish"),
    ] {
        let place = share.join(place);
        fs::create_dir_all(place.parent().unwrap_or(&share))?;
        fs::write(&place, tool(&ml, &["completions", shell])?)?;
    }
    licences::write(&share.join("licenses").join(PROGRAM), &mlx.lib_dir)?;
    for file in ["LICENSE", "LICENSE-APACHE", "LICENSE-MIT", "CHANGELOG.md"] {
        copy(&root().join(file), &folder.join(file))?;
    }
    Ok(())
}

/// Runs the program that was laid out, as a user's own system would: it must find its libraries.
fn tool(program: &Path, args: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(program).args(args).env_remove("LD_LIBRARY_PATH").output();
    let output = output.with_context(|| format!("cannot start {}", program.display()))?;
    if !output.status.success() {
        bail!("ml {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

/// Returns true when kernels can be compiled from these headers, as MLX's CUDA build does.
fn has_kernel_headers(include: &Path) -> bool {
    include.join("cccl").is_dir()
}

/// Returns true for a file beside the libraries that serves linking alone.
fn is_of_builds_alone(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "a" || end == "cmake")
}

/// The text for a user who unpacks an archive by hand.
fn readme(name: &str, needs: &needs::Needs) -> String {
    format!(
        "# {name}\n\n\
         `bin/ml` runs language models on MLX. It runs from any folder: keep `bin` and `lib` together.\n\n\
         It needs {needs}.\n\n\
         ```sh\n\
         bin/ml doctor\n\
         bin/ml generate \"Tell me a story about a fox\"\n\
         ```\n\n\
         `man -l share/man/man1/ml.1` is the manual. `share` has completions for shells, and the licences\n\
         of all that is in here.\n"
    )
}
