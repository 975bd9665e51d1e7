//! `cargo xtask bindings [--check]`: the declarations of mlx-c in `mlx-ffi`.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use mlx_build::{libclang, location, python_from_env};

use crate::repository::root;

const FILE: &str = "crates/mlx-ffi/src/bindings.rs";

/// Writes the bindings, or with `--check` fails when they are not what they should be.
pub fn run(args: &[String]) -> Result<()> {
    let check = match args {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => bail!("usage: cargo xtask bindings [--check]"),
    };
    let file = root().join(FILE);
    let wanted = generate()?;
    if !check {
        return fs::write(&file, wanted).with_context(|| format!("cannot write {FILE}"));
    }
    let committed = fs::read(&file).with_context(|| format!("cannot read {FILE}"))?;
    ensure!(
        committed == wanted,
        "{FILE} is not what the headers of mlx-c give; run `cargo xtask bindings` and commit it"
    );
    eprintln!("{FILE} is current");
    Ok(())
}

/// Runs the program that needs bindgen, which is compiled only for this.
fn generate() -> Result<Vec<u8>> {
    let ffi = root().join("crates/mlx-ffi");
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["run", "--quiet", "--locked", "-p", "xtask"])
        .args(["--features", "bindgen", "--bin", "generate-bindings", "--"])
        .arg(location::mlx_c_sources(&ffi)?)
        .arg(ffi.join("shim"))
        .current_dir(root());
    if env::var_os("LIBCLANG_PATH").is_none() && !has_clang() {
        let cache = location::cache_of_workspace(&ffi)?;
        let folder = libclang(&cache, python_from_env(), |line| eprintln!("{line}"))?;
        command.env("LIBCLANG_PATH", folder);
    }
    if let Some(include) = gcc_include() {
        // libclang without clang has no stddef.h of its own.
        let mut extra = env::var("BINDGEN_EXTRA_CLANG_ARGS").unwrap_or_default();
        extra.push_str(&format!(" -isystem {include}"));
        command.env("BINDGEN_EXTRA_CLANG_ARGS", extra);
    }
    let output = command.output().context("cannot run cargo")?;
    let messages = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "bindgen failed:\n{}", messages.trim());
    Ok(output.stdout)
}

/// Returns true when the machine has clang, and so libclang with headers for bindgen.
fn has_clang() -> bool {
    Command::new("clang").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// The folder with gcc's own headers, where there is gcc and no clang.
fn gcc_include() -> Option<String> {
    if has_clang() {
        return None;
    }
    let output = Command::new("gcc").arg("-print-file-name=include").output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    Path::new(&path).is_absolute().then_some(path)
}
