//! `cargo xtask real-models`: holds published checkpoints to what the references compute.
//!
//! `real-models/fetch.py` gets them from packages, below `target/real-models`. `check.py` asks the
//! program and a server; a test of `metal-backend` asks the library.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::clients::environment::{self, Environment, Prepared, Script};
use crate::clients::program;
use crate::repository::{root, target_folder};

/// Fetches what is not there, and checks all of it.
pub fn run(args: &[String]) -> Result<()> {
    if let Some(unknown) = args.first() {
        bail!("unknown argument `{unknown}`: this command has none");
    }
    let sources = root().join("real-models");
    let target = target_folder()?;
    let home = target.join("real-models");
    let list = Environment::Python(sources.join("requirements.txt"));
    let script = match list.prepare(&sources, &home.join("packages"))? {
        Prepared::Ready(script) => script,
        Prepared::Missing { what, .. } => bail!("{what}"),
    };
    let models = home.join("models");
    python(&script, &sources.join("fetch.py"), &models, None)?;
    let program = program(&target)?;
    python(&script, &sources.join("check.py"), &models, Some(&program))?;

    let mut library = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    library.args([
        "test",
        "--workspace",
        "--test",
        "parity",
        "--",
        "--ignored",
        "--nocapture",
        "real::",
    ]);
    library.env("ML_REAL_MODELS", &models).current_dir(root());
    if !library.status()?.success() {
        bail!("the library differs from the references: the test above says where");
    }
    Ok(())
}

/// Runs a script of `real-models` for the checkpoints in `models`.
fn python(script: &Script, file: &Path, models: &Path, program: Option<&Path>) -> Result<()> {
    let mut command = Command::new(&script.program);
    command.arg(file).arg(models).env("PYTHONDONTWRITEBYTECODE", "1");
    if let Some(program) = program {
        command.env("ML_PROGRAM", program);
    }
    let (success, said) = environment::output(&mut command)?;
    eprintln!("{}", said.trim_end());
    if !success {
        bail!("{} failed", file.display());
    }
    Ok(())
}
