//! The home of a client's packages: a virtual environment, or a folder with `node_modules`.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

/// The list of a client's packages.
#[derive(Debug, PartialEq, Eq)]
pub enum Environment {
    /// A `requirements.txt`.
    Python(PathBuf),
    /// A `package.json`.
    Node(PathBuf),
}

/// A script that can be run.
pub struct Script {
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

/// The result of preparing a client.
pub enum Prepared {
    Ready(Script),
    /// It cannot be run; `forgivable` for needs that a machine may well lack.
    Missing {
        what: String,
        forgivable: bool,
    },
}

impl Environment {
    /// Installs the packages into `home`, unless they are there, for the script of `folder`.
    pub fn prepare(&self, folder: &Path, home: &Path) -> Result<Prepared> {
        let list = match self {
            Environment::Python(list) | Environment::Node(list) => list,
        };
        let wanted = fs::read_to_string(list)?;
        let stamp = home.join("installed");
        let script = match self {
            Environment::Python(_) => Script {
                program: home.join("venv").join("bin/python"),
                args: vec![folder.join("check.py").into()],
            },
            // Node looks for packages beside the scripts, so that copies of them go there.
            Environment::Node(_) => {
                Script { program: "node".into(), args: vec![home.join("check.mjs").into()] }
            }
        };
        let there = fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted);
        if !there {
            let _ = fs::remove_dir_all(home);
            fs::create_dir_all(home)?;
            let missing = match self {
                Environment::Python(_) => install_python(list, &home.join("venv"))?,
                Environment::Node(_) => install_node(list, home)?,
            };
            if let Some(missing) = missing {
                return Ok(missing);
            }
            fs::write(&stamp, wanted)?;
        }
        if let Environment::Node(_) = self {
            copy_scripts(folder, home)?;
        }
        Ok(Prepared::Ready(script))
    }
}

/// Copies the scripts of `folder`, `check.mjs` and those that it imports.
fn copy_scripts(folder: &Path, home: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let script = entry?.path();
        if script.extension().is_some_and(|ending| ending == "mjs")
            && let Some(name) = script.file_name()
        {
            fs::copy(&script, home.join(name))?;
        }
    }
    Ok(())
}

fn install_python(list: &Path, venv: &Path) -> Result<Option<Prepared>> {
    let python = mlx_build::python_from_env();
    let mut create = Command::new(&python);
    create.args(["-m", "venv", "--clear"]).arg(venv);
    let what = format!("{} -m venv", python.display());
    if let Some(missing) = step(&mut create, &what)? {
        return Ok(Some(missing));
    }
    let mut install = Command::new(venv.join("bin/python"));
    install.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-compile",
        "--disable-pip-version-check",
    ]);
    step(install.arg("-r").arg(list), "pip install")
}

fn install_node(list: &Path, home: &Path) -> Result<Option<Prepared>> {
    for program in ["node", "npm"] {
        if !exists(program) {
            let what = format!("there is no {program} on this machine");
            return Ok(Some(Prepared::Missing { what, forgivable: true }));
        }
    }
    fs::copy(list, home.join("package.json"))?;
    let mut install = Command::new("npm");
    install.args(["install", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(home);
    step(&mut install, "npm install")
}

fn exists(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs a step of an installation; what is missing where it fails.
fn step(command: &mut Command, name: &str) -> Result<Option<Prepared>> {
    let missing = |what| Some(Prepared::Missing { what, forgivable: false });
    match output(command) {
        Ok((true, _)) => Ok(None),
        Ok((false, said)) => Ok(missing(format!("{name} failed:\n{said}"))),
        Err(error) => match error.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
            Some(ErrorKind::NotFound) => Ok(missing(format!("{name}: there is no such program"))),
            _ => Err(error),
        },
    }
}

/// Runs `command`; returns true for success, and its stdout followed by its stderr.
pub fn output(command: &mut Command) -> Result<(bool, String)> {
    let name = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output().context(name)?;
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    Ok((output.status.success(), said.concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_missing_and_no_error() {
        let missing = step(&mut Command::new("no-such-program"), "it").unwrap().unwrap();
        let Prepared::Missing { what, forgivable } = missing else { panic!("it is there") };
        assert!(what.contains("no such program") && !forgivable, "{what}");
    }

    #[test]
    fn a_program_that_fails_is_missing_with_what_it_said() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);
        let Some(Prepared::Missing { what, .. }) = step(&mut command, "it").unwrap() else {
            panic!("it failed")
        };
        assert!(what.contains("out") && what.contains("err"), "{what}");
    }
}
