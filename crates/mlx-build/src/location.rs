//! The locations of the cache folder and of mlx-c's sources.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::Error;

/// The crate that carries mlx-c, and its version, which is that of mlx-c.
pub(crate) const CARRIER: (&str, &str) = ("mlx-sys", "0.7.0");

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
/// [`Error::Metadata`] when `cargo metadata` fails.
pub fn cache_of_workspace(manifest_dir: &Path) -> Result<PathBuf, Error> {
    let metadata = cargo_metadata(manifest_dir, &["--no-deps", "--offline"])?;
    // Build scripts run under the build folder, which may differ from the target folder.
    let folder = metadata["build_directory"].as_str().or(metadata["target_directory"].as_str());
    let folder = folder.ok_or_else(|| failed("cargo metadata names no target folder"))?;
    Ok(Path::new(folder).join("mlx"))
}

/// The folder with the sources of mlx-c, as cargo unpacked them; downloads them if need be.
///
/// # Errors
/// [`Error::Metadata`] when cargo cannot tell.
pub fn mlx_c_sources(manifest_dir: &Path) -> Result<PathBuf, Error> {
    // Offline first: that takes no network and no time once everything is there.
    let metadata = cargo_metadata(manifest_dir, &["--locked", "--offline"])
        .or_else(|_| cargo_metadata(manifest_dir, &["--locked"]))?;
    let sources = sources_in(&metadata)?;
    if sources.join("CMakeLists.txt").is_file() {
        Ok(sources)
    } else {
        Err(failed(&format!("{} holds no CMakeLists.txt", sources.display())))
    }
}

fn sources_in(metadata: &Value) -> Result<PathBuf, Error> {
    let (name, version) = CARRIER;
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let manifest = packages
        .iter()
        .find(|package| package["name"] == name && package["version"] == version)
        .and_then(|package| package["manifest_path"].as_str())
        .ok_or_else(|| failed(&format!("the lock file has no {name} {version}")))?;
    Ok(Path::new(manifest).with_file_name("src").join("mlx-c"))
}

fn cargo_metadata(manifest_dir: &Path, args: &[&str]) -> Result<Value, Error> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--manifest-path"])
        .arg(manifest_dir.join("Cargo.toml"))
        .args(args)
        .output()
        .map_err(|error| failed(&format!("cargo does not start: {error}")))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(&error.to_string()))
}

fn failed(reason: &str) -> Error {
    Error::Metadata { reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(out_dir: &str) -> PathBuf {
        cache_under(Path::new(out_dir), "x86_64-unknown-linux-gnu")
    }

    #[test]
    fn the_cache_is_in_the_target_folder_whatever_that_is_called() {
        for (out_dir, expected) in [
            ("/w/target/debug/build/mlx-ffi-1f/out", "/w/target/mlx"),
            ("/w/target/release/build/mlx-ffi-1f/out", "/w/target/mlx"),
            ("/w/t/x86_64-unknown-linux-gnu/dist/build/cli-1f/out", "/w/t/mlx"),
            ("/build/build/debug/build/mlx-ffi-1f/out", "/build/build/mlx"),
            ("/w/target/llvm-cov-target/debug/build/cli-1f/out", "/w/target/llvm-cov-target/mlx"),
        ] {
            assert_eq!(cache(out_dir), Path::new(expected), "{out_dir}");
        }
    }

    #[test]
    fn the_sources_are_beside_the_manifest_of_the_locked_crate() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "mlx-sys", "version": "0.6.0", "manifest_path": "/r/old/Cargo.toml" },
            { "name": "mlx-sys", "version": "0.7.0", "manifest_path": "/r/new/Cargo.toml" },
        ] });
        assert_eq!(sources_in(&metadata).unwrap(), Path::new("/r/new/src/mlx-c"));
        let text = sources_in(&serde_json::json!({})).unwrap_err().to_string();
        assert!(text.contains("mlx-sys 0.7.0") && text.contains("cargo fetch"), "{text}");
    }

    #[test]
    fn this_workspace_has_the_sources_and_one_cache() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(mlx_c_sources(here).unwrap().join("mlx/c/private/array.h").is_file());
        assert!(cache_of_workspace(here).unwrap().ends_with("mlx"));
    }
}
