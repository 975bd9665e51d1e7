//! `ml manual`: the pages of the manual.

use std::fs;
use std::io;
use std::path::Path;

use clap::CommandFactory;

use crate::args::Cli;
use crate::failure::{Failure, Result};
use crate::output::note;

/// Writes `ml.1`, `ml-generate.1` and so on.
///
/// # Errors
/// A folder that cannot be written to.
pub fn run(folder: &Path) -> Result<()> {
    let written = fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(command(), folder))
        .map_err(|error: io::Error| Failure::Other(format!("{}: {error}", folder.display())));
    written?;
    note(format_args!("{}: the pages of the manual", folder.display()));
    Ok(())
}

/// The program's commands; `help` needs no page.
fn command() -> clap::Command {
    Cli::command().disable_help_subcommand(true)
}
