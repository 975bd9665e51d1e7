//! `cargo xtask kernels`: what can be told of kernels for NVIDIA GPUs where there is none.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use mlx_build::location::cache_of_workspace;

use crate::clients::environment::{Environment, Prepared};
use crate::repository::{make_empty, root};

/// Runs kernels on this processor, with few sizes of what the tests for GPUs go through, and has
/// NVIDIA's compiler make machine code of each.
pub fn run(args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "usage: cargo xtask kernels");
    let home = cache_of_workspace(root())?.with_file_name("kernels");
    let texts = home.join("texts");
    make_empty(&texts)?;
    let mut tests = Command::new("cargo");
    tests.args(["test", "--workspace", "--lib", "--", "--ignored", "emulated"]).current_dir(root());
    succeed(tests.env("ML_KERNEL_TEXTS", &texts))?;
    let folder = root().join("xtask/src/kernels");
    let list = Environment::Python(folder.join("requirements.txt"));
    match list.prepare(&folder, &home.join("compiler"))? {
        Prepared::Ready(script) => {
            succeed(Command::new(script.program).args(script.args).arg(&texts))
        }
        Prepared::Missing { what, .. } => bail!("NVIDIA's compiler is missing: {what}"),
    }
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{command:?} failed");
    Ok(())
}
