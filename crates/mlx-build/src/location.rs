//! Where things lie: the cache folder, and the sources of mlx-c.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::Error;

/// The crate that carries mlx-c, and its version, which is that of mlx-c.
const CARRIER: (&str, &str) = ("mlx-sys", "0.7.0");

/// The folder for MLX under the target folder to which a build script's `out_dir` belongs.
///
/// Cargo passes no target folder to build scripts, but `out_dir` is always
/// `<target>/[<triple>/]<profile>/build/<package>/out`, whatever the target folder
/// is called (`CARGO_TARGET_DIR`, `--target-dir`, coverage tools).
pub fn cache_under(out_dir: &Path, triple: &str) -> PathBuf {
    let build = out_dir.ancestors().find(|dir| dir.file_name() == Some(OsStr::new("build")));
    let profiles = build.and_then(Path::parent).and_then(Path::parent);
    let target = match profiles {
        Some(dir) if dir.file_name() == Some(OsStr::new(triple)) => dir.parent(),
        other => other,
    };
    target.unwrap_or(out_dir).join("mlx")
}

/// The folder for MLX of the workspace that `manifest_dir` belongs to: the same one
/// that [`cache_under`] finds in a build without `--target-dir`.
///
/// # Errors
/// [`Error::NoSources`] when `cargo metadata` fails.
pub fn cache_of_workspace(manifest_dir: &Path) -> Result<PathBuf, Error> {
    let metadata = cargo_metadata(manifest_dir, &["--no-deps", "--offline"])?;
    // Build scripts run under the build folder, which may differ from the target folder.
    let folder = metadata["build_directory"].as_str().or(metadata["target_directory"].as_str());
    let folder = folder.ok_or_else(|| no_sources("cargo metadata names no target folder"))?;
    Ok(Path::new(folder).join("mlx"))
}

/// The folder with the sources of mlx-c, as cargo unpacked them; downloads them if need be.
///
/// # Errors
/// [`Error::NoSources`] when cargo cannot tell.
pub fn mlx_c_sources(manifest_dir: &Path) -> Result<PathBuf, Error> {
    // Offline first: that takes no network and no time once everything is there.
    let metadata = cargo_metadata(manifest_dir, &["--locked", "--offline"])
        .or_else(|_| cargo_metadata(manifest_dir, &["--locked"]))?;
    let sources = sources_in(&metadata)?;
    if sources.join("CMakeLists.txt").is_file() {
        Ok(sources)
    } else {
        Err(no_sources(&format!("{} holds no CMakeLists.txt", sources.display())))
    }
}

fn sources_in(metadata: &Value) -> Result<PathBuf, Error> {
    let (name, version) = CARRIER;
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let manifest = packages
        .iter()
        .find(|package| package["name"] == name && package["version"] == version)
        .and_then(|package| package["manifest_path"].as_str())
        .ok_or_else(|| no_sources(&format!("the lock file has no {name} {version}")))?;
    Ok(Path::new(manifest).with_file_name("src").join("mlx-c"))
}

fn cargo_metadata(manifest_dir: &Path, args: &[&str]) -> Result<Value, Error> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--manifest-path"])
        .arg(manifest_dir.join("Cargo.toml"))
        .args(args)
        .output()
        .map_err(|error| no_sources(&format!("cargo does not start: {error}")))?;
    if !output.status.success() {
        return Err(no_sources(String::from_utf8_lossy(&output.stderr).trim()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| no_sources(&error.to_string()))
}

fn no_sources(reason: &str) -> Error {
    Error::NoSources { reason: reason.to_owned() }
}
