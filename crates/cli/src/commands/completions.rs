//! `ml completions`: a script that teaches a shell the options.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::failure::Result;
use crate::output;

/// Prints the script.
///
/// # Errors
/// A closed stdout.
pub fn run(shell: Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ml", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
