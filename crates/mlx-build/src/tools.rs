//! Build tools as Python packages, for machines that have none of their own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use crate::Error;
use crate::python::Python;
use crate::stamp::Stamped;

/// A program or library in a Python package.
struct Tool {
    name: &'static str,
    version: &'static str,
    /// Its folder in the installed package.
    inside: &'static str,
}

const CMAKE: Tool = Tool { name: "cmake", version: "4.4.4", inside: "cmake/data/bin" };
const NINJA: Tool = Tool { name: "ninja", version: "1.13.2", inside: "bin" };
const LIBCLANG: Tool = Tool { name: "libclang", version: "18.1.1", inside: "clang/native" };

/// A folder of build tools, each installed when it is first asked for.
pub(crate) struct Tools<'a> {
    /// The folder; each tool has its own in it.
    pub(crate) dir: PathBuf,
    pub(crate) python: &'a Python,
    pub(crate) progress: fn(&str),
}

impl Tools<'_> {
    /// The folder of the program `cmake`.
    pub(crate) fn cmake(&self) -> Result<PathBuf, Error> {
        self.install(&CMAKE)
    }

    /// The folder of the program `ninja`.
    pub(crate) fn ninja(&self) -> Result<PathBuf, Error> {
        self.install(&NINJA)
    }

    /// The folder of the library `libclang`.
    pub(crate) fn libclang(&self) -> Result<PathBuf, Error> {
        self.install(&LIBCLANG)
    }

    fn install(&self, tool: &Tool) -> Result<PathBuf, Error> {
        let package = format!("{}=={}", tool.name, tool.version);
        let folder = Stamped { dir: self.dir.join(tool.name) };
        if folder.content().as_ref() != Some(&package) {
            (self.progress)(&format!("installing {package} into {}", folder.dir.display()));
            folder
                .make(&package, SystemTime::now(), |out| self.pip_install(&package, out))
                .map_err(|error| Error::NoTool { tool: tool.name, cause: Box::new(error) })?;
        }
        Ok(folder.dir.join(tool.inside))
    }

    fn pip_install(&self, package: &str, out: &Path) -> Result<(), Error> {
        // `--target` leaves the machine's own packages alone and needs no rights to them.
        self.python.pip(package, |command: &mut Command| {
            command.args(["install", "--no-deps", "--only-binary=:all:", "--progress-bar=off"]);
            command.arg("--target").arg(out).arg(package);
        })
    }
}
