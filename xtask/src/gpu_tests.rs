//! `cargo xtask gpu-tests [--pack DIR]`: the tests that are ignored where there is no NVIDIA GPU.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use mlx_build::location::cache_of_workspace;
use serde_json::Value;

use crate::repository::{make_empty, root};

/// Runs the tests of the programs that lie beside it.
const SCRIPT: (&str, &str) = ("run.sh", include_str!("gpu_tests.sh"));
/// The reason in the `#[ignore]` of such a test.
const MARK: &str = "needs an NVIDIA GPU: cargo xtask gpu-tests";
/// The folder of MLX's libraries from `cargo xtask build-mlx --variant cuda`, in the cache.
const CUDA_BUILD: &str = "cuda-0.32.2/dist/mlx/lib";

/// Builds the programs with such tests and runs them; with `--pack`, only puts them into a folder.
pub fn run(args: &[String]) -> Result<()> {
    let mlx = cache_of_workspace(root())?;
    let (folder, only_packs) = match args {
        [] => (mlx.with_file_name("gpu-tests"), false),
        [flag, folder] if flag == "--pack" => (PathBuf::from(folder), true),
        _ => bail!("usage: cargo xtask gpu-tests [--pack DIR]"),
    };
    pack(&folder)?;
    if only_packs {
        eprintln!("{} runs the tests", folder.join(SCRIPT.0).display());
        return Ok(());
    }
    // In front of the build that they are linked with, which may be the one for CPUs.
    let mut libraries = vec![mlx.join(CUDA_BUILD)];
    libraries.extend(env::split_paths(&env::var_os("LD_LIBRARY_PATH").unwrap_or_default()));
    let status = Command::new("bash")
        .arg(folder.join(SCRIPT.0))
        .env("LD_LIBRARY_PATH", env::join_paths(libraries)?)
        .status()
        .context("cannot start bash")?;
    ensure!(status.success(), "not all tests passed");
    Ok(())
}

/// Puts the programs and the script into an empty folder.
fn pack(folder: &Path) -> Result<()> {
    make_empty(folder)?;
    for program in programs(&targets(&root().join("crates"))?)? {
        let name = program.file_name().context("a program has a name")?;
        fs::copy(&program, folder.join(name))
            .with_context(|| format!("cannot copy {}", program.display()))?;
    }
    let script = folder.join(SCRIPT.0);
    fs::write(&script, SCRIPT.1).with_context(|| format!("cannot write {}", script.display()))
}

/// The names of the integration tests that have such tests: each is a file, or a folder of files.
fn targets(crates: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for package in files(crates)? {
        for test in files(&package.join("tests"))? {
            let mut sources = files(&test)?;
            if sources.is_empty() {
                sources.push(test.clone());
            } else if !test.join("main.rs").is_file() {
                continue;
            }
            sources.retain(|file| file.extension().is_some_and(|end| end == "rs"));
            let texts = sources.iter().map(fs::read_to_string).collect::<Result<Vec<_>, _>>()?;
            let name = test.file_stem().and_then(|name| name.to_str());
            let has_some = texts.iter().any(|text| text.contains(MARK));
            found.extend(name.filter(|_| has_some).map(str::to_owned));
        }
    }
    found.sort();
    ensure!(!found.is_empty(), "no test below {} says `{MARK}`", crates.display());
    Ok(found)
}

/// The entries of a folder; none where there is no folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    entries.collect()
}

/// Builds the tests of these names and tells where their programs are.
fn programs(targets: &[String]) -> Result<Vec<PathBuf>> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root()).args(["test", "--workspace", "--no-run"]);
    command.arg("--message-format=json-render-diagnostics");
    command.args(targets.iter().flat_map(|target| ["--test", target]));
    let output = command.stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    ensure!(output.status.success(), "the tests do not build");
    let text = String::from_utf8(output.stdout).context("cargo says what is no UTF-8")?;
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let tests = messages.filter(|message| message["profile"]["test"] == true);
    let programs: Vec<PathBuf> =
        tests.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).collect();
    ensure!(programs.len() == targets.len(), "{} programs of {targets:?}", programs.len());
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_that_need_a_gpu_are_found_and_say_so_by_being_ignored() {
        let crates = root().join("crates");
        let found = targets(&crates).unwrap();
        assert!(found.contains(&"cuda".to_owned()), "{found:?}");
        for package in files(&crates).unwrap() {
            for test in files(&package.join("tests")).unwrap() {
                for file in files(&test).unwrap().into_iter().chain([test]) {
                    let text = fs::read_to_string(&file).unwrap_or_default();
                    assert!(!text.contains("skipped: no"), "{}", file.display());
                }
            }
        }
    }
}
