//! The commands, one a file.

mod bench;
mod chat;
mod classify;
mod completions;
mod doctor;
mod embed;
mod generate;
mod image;
mod info;
mod inspect;
mod launch;
mod list;
mod manual;
mod models;
mod pull;
mod quantise;
mod rerank;
mod rm;
mod serve;
mod setup;
mod version;
mod warm;

use crate::args::{Cli, Command};
use crate::failure::{Failure, Result};
use crate::ranks;

/// Does what the command line asks.
///
/// # Errors
/// The command's own.
pub fn run(cli: Cli) -> Result<()> {
    if cli.version {
        return version::run();
    }
    check_ranks(cli.command.as_ref())?;
    match cli.command {
        // clap prints the help where nothing at all is asked.
        None => Ok(()),
        Some(Command::Generate(args)) => generate::run(&args),
        Some(Command::Chat(args)) => chat::run(&args),
        Some(Command::Classify(args)) => classify::run(&args),
        Some(Command::Inspect(args)) => inspect::run(&args),
        Some(Command::Image(args)) => image::run(&args),
        Some(Command::Embed(args)) => embed::run(&args),
        Some(Command::Rerank(args)) => rerank::run(&args),
        Some(Command::Serve(args)) => serve::run(&args),
        Some(Command::Launch(args)) => launch::run(&args),
        Some(Command::Bench(args)) => bench::run(&args),
        Some(Command::Info(args)) => info::run(&args),
        Some(Command::Pull(args)) => pull::run(&args),
        Some(Command::Quantise(args)) => quantise::run(&args),
        Some(Command::Rm(args)) => rm::run(&args),
        Some(Command::List(args)) => list::run(&args),
        Some(Command::Models(args)) => models::run(&args),
        Some(Command::Doctor(args)) => doctor::run(&args),
        Some(Command::Setup(args)) => setup::run(&args),
        Some(Command::Completions { shell }) => completions::run(shell),
        Some(Command::Manual { folder }) => manual::run(&folder),
    }
}

/// Refuses what several ranks cannot do together: each would do it by itself.
fn check_ranks(command: Option<&Command>) -> Result<()> {
    let refused = match command {
        Some(Command::Chat(_)) => "chat",
        Some(Command::Serve(_)) => "serve",
        Some(Command::Classify(_)) => "classify",
        Some(Command::Inspect(_)) => "inspect",
        Some(Command::Image(_)) => "image",
        Some(Command::Embed(_)) => "embed",
        Some(Command::Rerank(_)) => "rerank",
        Some(Command::Quantise(_)) => "quantise",
        Some(Command::Pull(_)) => "pull",
        Some(Command::Rm(_)) => "rm",
        _ => return Ok(()),
    };
    match ranks::from_environment()? {
        None => Ok(()),
        Some(_) => Err(Failure::Usage(format!(
            "`ml {refused}` does not run in several ranks; `ml generate` and `ml bench` do"
        ))),
    }
}
