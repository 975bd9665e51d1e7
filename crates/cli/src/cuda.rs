//! MLX's build for NVIDIA GPUs, as `ml setup cuda` puts it into the user's folder, and a start with
//! it.
//!
//! The program is linked with one `libmlx`. The loader takes another one from `LD_LIBRARY_PATH`
//! first, so a start with the build for CUDA is the same program, run again with that variable. The
//! variable cannot be set from inside: the loader has read it before.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::Cli;
use crate::failure::{Failure, Result};
use crate::output::note;

/// The release of MLX that this program works with.
pub const MLX: &str = "0.32.2";
/// The oldest driver that runs CUDA 13.
pub const LEAST_DRIVER: u32 = 580;
/// Says to a process that it was started with the build for CUDA.
const STARTED: &str = "ML_STARTED_WITH_CUDA";
/// The folders where the loader looks first.
const LIBRARIES: &str = "LD_LIBRARY_PATH";

/// NVIDIA's driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Its release; `None` where it does not tell, as under Windows' Linux.
    pub release: Option<String>,
}

impl Driver {
    /// The driver of this machine, where this process can reach a GPU through it.
    pub fn here() -> Option<Driver> {
        if !cfg!(target_os = "linux") {
            return None;
        }
        if Path::new("/dev/nvidiactl").exists() {
            let text = fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
            return Some(Driver { release: release(&text) });
        }
        // Windows' Linux has one device for all GPUs, and NVIDIA's library where there is one of
        // theirs.
        let windows = ["/dev/dxg", "/usr/lib/wsl/lib/libcuda.so.1"];
        windows.iter().all(|file| Path::new(file).exists()).then_some(Driver { release: None })
    }

    /// Returns true when it is known to be too old.
    pub fn is_old(&self) -> bool {
        let release = self.release.as_deref().and_then(|text| text.split('.').next()?.parse().ok());
        release.is_some_and(|release: u32| release < LEAST_DRIVER)
    }
}

impl std::fmt::Display for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.release {
            Some(release) => write!(f, "NVIDIA's driver {release}"),
            None => write!(f, "NVIDIA's driver"),
        }
    }
}

/// The release in what the kernel module says: the first word of numbers and points.
fn release(text: &str) -> Option<String> {
    let is_release = |word: &&str| {
        word.contains('.') && word.chars().all(|letter| letter.is_ascii_digit() || letter == '.')
    };
    text.lines().next()?.split_whitespace().find(is_release).map(str::to_owned)
}

/// Returns the folder of the build for CUDA, there or not.
///
/// # Errors
/// Neither `XDG_DATA_HOME` nor `HOME` names a folder.
pub fn place() -> Result<PathBuf> {
    let path =
        |name| env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    let data = path("XDG_DATA_HOME").or_else(|| Some(path("HOME")?.join(".local/share")));
    let data =
        data.ok_or_else(|| Failure::Other("HOME is not set: set it to your folder".into()))?;
    Ok(data.join("ml").join(format!("cuda-{MLX}")))
}

/// The library in such a folder.
pub fn library(folder: &Path) -> PathBuf {
    folder.join("mlx/lib/libmlx.so")
}

/// The folder, where it is complete: it gets its name last.
pub fn found() -> Option<PathBuf> {
    place().ok().filter(|folder| library(folder).exists())
}

/// Returns true when this process was started with the build for CUDA.
pub fn is_started() -> bool {
    env::var_os(STARTED).is_some()
}

/// Lets `command`, this program, run with the build in `folder`.
pub fn with(command: &mut Command, folder: &Path) {
    let mut libraries = folder.join("mlx/lib").into_os_string();
    if let Some(others) = env::var_os(LIBRARIES).filter(|others| !others.is_empty()) {
        libraries.push(":");
        libraries.push(others);
    }
    command.env(LIBRARIES, libraries).env(STARTED, "1");
}

/// Starts this program again with the build for CUDA, where it is there, a GPU is, and the command
/// may use it. Returns where it is not so.
pub fn start(cli: &Cli) {
    if is_started() || !cli.may_use_gpu() || Driver::here().is_none_or(|driver| driver.is_old()) {
        return;
    }
    let (Some(folder), Ok(program)) = (found(), env::current_exe()) else { return };
    let mut arguments = env::args_os();
    let name = arguments.next().unwrap_or_else(|| OsString::from("ml"));
    let mut command = Command::new(program);
    with(command.arg0(name).args(arguments), &folder);
    let error = command.exec();
    note(format_args!("the CPU computes: {} cannot be used: {error}", folder.display()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_of_a_driver_is_read_from_both_of_its_kinds() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07  Thu Aug 21 2025\nGCC version:  gcc 12.3.0\n";
        let open =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build\n";
        assert_eq!(release(closed).as_deref(), Some("580.82.07"));
        assert_eq!(release(open).as_deref(), Some("570.124.06"));
        assert_eq!(release(""), None);
        assert_eq!(release("something else"), None);
    }

    #[test]
    fn a_driver_is_old_only_where_it_says_so() {
        let of = |release: &str| Driver { release: Some(release.to_owned()) };
        assert!(of("570.124.06").is_old());
        assert!(!of("580.1").is_old() && !of("610.0").is_old());
        assert!(!Driver { release: None }.is_old());
    }

    #[test]
    fn the_packages_are_of_the_release_that_is_linked() {
        assert_eq!(metal_backend::system().unwrap().mlx_version, MLX);
    }

    #[test]
    fn libraries_that_are_searched_already_stay() {
        let mut command = Command::new("ml");
        with(&mut command, Path::new("/cuda"));
        let value = |name: &str| {
            let mut all = command.get_envs();
            all.find(|(key, _)| *key == name).unwrap().1.unwrap().to_str().unwrap().to_owned()
        };
        assert_eq!(value(STARTED), "1");
        let others = env::var(LIBRARIES).unwrap_or_default();
        assert!(value(LIBRARIES).starts_with("/cuda/mlx/lib"));
        assert!(value(LIBRARIES).ends_with(&others));
    }
}
