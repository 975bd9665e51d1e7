//! `cargo xtask fuzz [--seconds N] [TARGET...]`: runs the fuzz targets below `fuzz`, on a stable
//! toolchain.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail, ensure};

use crate::repository::{make_empty, root};

/// Seconds that each target runs where nothing else is said.
const SECONDS: u32 = 60;
/// Counters at each edge and the operands of comparisons, which libFuzzer reads; as cargo-fuzz sets
/// them.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                        -Cllvm-args=-sanitizer-coverage-pc-table \
                        -Cllvm-args=-sanitizer-coverage-trace-compares";
/// An input that takes more seconds, or more MiB of memory, is a fault. An input has these bytes at
/// most. A normalizer that multiplies a text up to its bound takes 17 s when compiled for coverage,
/// and three times that where all targets share two cores.
const BOUNDS: [&str; 3] = ["-timeout=120", "-rss_limit_mb=2048", "-max_len=65536"];
/// Files of the repository that are inputs of a target beside those of `fuzz/seeds`: a folder, and
/// the names that count; all of them where none is named.
const FIXTURES: [(&str, &str, &[&str]); 4] = [
    ("pictures", "crates/pictures/tests/fixtures/files", &[]),
    (
        "tokenizers",
        "crates/inference-text/tests/fixtures/tokenizers",
        &["tokenizer.json", "tokenizer_config.json"],
    ),
    (
        "safetensors",
        "crates/metal-backend/tests/fixtures/pickled/shards",
        &["pytorch_model-00002-of-00002.bin"],
    ),
    (
        "tokenizers",
        "crates/inference-text/tests/fixtures/conversions",
        &["bpe.model", "gemma.model", "unigram.model", "ranks.tiktoken", "tekken.json"],
    ),
];

/// Builds the targets and runs them side by side.
pub fn run(args: &[String]) -> Result<()> {
    let fuzz = root().join("fuzz");
    let (seconds, targets) = parse(args, &names(&fuzz)?)?;
    let home = root().join("target/fuzz");
    share_mlx(&home)?;
    let programs = build(&fuzz, &home)?;
    let runs = targets.into_iter().map(|name| {
        let (program, fuzz, home) = (programs.join(&name), fuzz.clone(), home.clone());
        thread::spawn(move || fuzz_one(&name, &program, &fuzz, &home, seconds))
    });
    let runs: Vec<_> = runs.collect();
    let mut failed = Vec::new();
    for run in runs {
        failed.extend(run.join().expect("a thread that returns its errors")?);
    }
    ensure!(failed.is_empty(), "inputs that are faults:\n{}", failed.join("\n"));
    Ok(())
}

/// Seconds, and the targets that are asked for.
fn parse(args: &[String], known: &[String]) -> Result<(u32, Vec<String>)> {
    let usage = || format!("usage: cargo xtask fuzz [--seconds N] [{}...]", known.join("|"));
    let (mut seconds, mut targets) = (SECONDS, Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--seconds" {
            let given = args.next().and_then(|given| given.parse().ok());
            // libFuzzer takes 0 for no end.
            seconds = given.filter(|given| *given > 0).with_context(usage)?;
        } else if known.contains(arg) {
            targets.push(arg.clone());
        } else {
            bail!("no target is called `{arg}`\n{}", usage());
        }
    }
    Ok((seconds, if targets.is_empty() { known.to_vec() } else { targets }))
}

/// The names of the targets.
fn names(fuzz: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(fuzz.join("targets"))? {
        let path = entry?.path();
        names.extend(path.file_stem().and_then(|name| name.to_str()).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// Lets the build below `home` take the MLX that the workspace's has made.
fn share_mlx(home: &Path) -> Result<()> {
    let (own, shared) = (home.join("mlx"), root().join("target/mlx"));
    if !shared.is_dir() || fs::symlink_metadata(&own).is_ok() {
        return Ok(());
    }
    fs::create_dir_all(home)?;
    std::os::unix::fs::symlink(&shared, &own)
        .with_context(|| format!("cannot link {} to {}", own.display(), shared.display()))
}

/// Compiles the targets for coverage; the folder of their programs.
fn build(fuzz: &Path, home: &Path) -> Result<PathBuf> {
    let version = Command::new("rustc").arg("-vV").output().context("cannot start rustc")?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc does not tell for which machine it is")?;
    // With a target, so that derives and build scripts are compiled without coverage.
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--locked", "--bins", "--target", host]);
    cargo.arg("--manifest-path").arg(fuzz.join("Cargo.toml")).arg("--target-dir").arg(home);
    let status = cargo.env("RUSTFLAGS", COVERAGE).status().context("cannot start cargo")?;
    ensure!(status.success(), "the fuzz targets do not build");
    Ok(home.join(host).join("release"))
}

/// Runs one target; how to see a fault again, where it found one.
fn fuzz_one(
    name: &str,
    program: &Path,
    fuzz: &Path,
    home: &Path,
    seconds: u32,
) -> Result<Option<String>> {
    let (found, corpus) = (home.join("found").join(name), home.join("corpus").join(name));
    make_empty(&found)?;
    fs::create_dir_all(&corpus)?;
    for (target, folder, names) in FIXTURES {
        if target == name {
            copy_fixtures(&root().join(folder), names, &corpus)?;
        }
    }
    let log = found.join("log");
    let output =
        fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let status = Command::new(program)
        .args(BOUNDS)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", found.display()))
        .args([&corpus, &fuzz.join("seeds").join(name)])
        .stdout(output.try_clone()?)
        .stderr(output)
        .status()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    let last: Vec<&str> = text.lines().rev().take(if status.success() { 1 } else { 40 }).collect();
    for line in last.iter().rev() {
        eprintln!("{name}: {line}");
    }
    if status.success() {
        return Ok(None);
    }
    Ok(Some(format!("{} {}/*-*", program.display(), found.display())))
}

/// Copies the files called one of `names` from `folder` and the folders in it.
fn copy_fixtures(folder: &Path, names: &[&str], to: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            copy_fixtures(&path, names, to)?;
        } else if names.is_empty() || names.contains(&name) {
            let within = path.strip_prefix(root())?.display().to_string();
            fs::copy(&path, to.join(within.replace('/', "-")))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<(u32, Vec<String>)> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        parse(&args, &["pictures".to_owned(), "requests".to_owned()])
    }

    #[test]
    fn targets_are_all_or_those_named_and_seconds_are_a_number() {
        assert_eq!(parsed(&[]).unwrap(), (SECONDS, vec!["pictures".into(), "requests".into()]));
        let some = parsed(&["requests", "--seconds", "5"]).unwrap();
        assert_eq!(some, (5, vec!["requests".into()]));
        for wrong in [&["--seconds"][..], &["--seconds", "0"], &["--seconds", "x"], &["gguf"]] {
            assert!(parsed(wrong).unwrap_err().to_string().contains("usage"), "{wrong:?}");
        }
    }

    #[test]
    fn each_target_is_a_program_of_the_manifest_and_has_seeds() {
        let fuzz = root().join("fuzz");
        let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
        for name in names(&fuzz).unwrap() {
            assert!(manifest.contains(&format!("path = \"targets/{name}.rs\"")), "{name}");
            let seeds = fs::read_dir(fuzz.join("seeds").join(&name)).unwrap();
            assert!(seeds.count() > 0, "{name}");
        }
    }
}
