//! The commands, one a file.

mod bench;
mod chat;
mod classify;
mod completions;
mod doctor;
mod embed;
mod follow;
mod generate;
mod image;
mod info;
mod inspect;
mod launch;
mod links;
mod list;
mod manual;
mod models;
mod pull;
mod quantise;
mod report;
mod rerank;
mod rm;
mod serve;
mod served;
mod service;
mod setup;
#[cfg(feature = "speech")]
mod speak;
#[cfg(feature = "speech")]
mod transcribe;
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
    if let Some(command) = &cli.command
        && follows(command)?
    {
        return follow::run(command);
    }
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
        Some(Command::Transcribe(args)) => transcribe::run(&args),
        Some(Command::Speak(args)) => speak::run(&args),
        Some(Command::Serve(args)) => serve::run(&args),
        Some(Command::Ps(args)) => served::ps(&args),
        Some(Command::Stop(args)) => served::stop(&args),
        Some(Command::Show(args)) => served::show(&args),
        Some(Command::Service(args)) => service::run(&args),
        Some(Command::Launch(args)) => launch::run(&args),
        Some(Command::Bench(args)) => bench::run(&args),
        Some(Command::Info(args)) => info::run(&args),
        Some(Command::Pull(args)) => pull::run(&args),
        Some(Command::Quantise(args)) => quantise::run(&args),
        Some(Command::Rm(args)) => rm::run(&args),
        Some(Command::List(args)) => list::run(&args),
        Some(Command::Models(args)) => models::run(&args),
        Some(Command::Doctor(args)) if args.links => links::run(args.json),
        Some(Command::Doctor(args)) => doctor::run(&args),
        Some(Command::Report(args)) => report::run(&args),
        Some(Command::Setup(args)) => setup::run(&args),
        Some(Command::Completions { shell }) => completions::run(shell),
        Some(Command::Manual { folder }) => manual::run(&folder),
    }
}

/// Returns true when the first of several ranks takes the requests, and this one follows it. A
/// command that several ranks cannot run together is refused: each would run it by itself.
fn follows(command: &Command) -> Result<bool> {
    let refused = match command {
        Command::Generate(_) | Command::Chat(_) | Command::Classify(_) | Command::Serve(_) => None,
        Command::Bench(args) if args.remote.url.is_none() => None,
        Command::Inspect(_) => Some("inspect"),
        Command::Image(_) => Some("image"),
        Command::Embed(_) => Some("embed"),
        Command::Rerank(_) => Some("rerank"),
        Command::Transcribe(_) => Some("transcribe"),
        Command::Speak(_) => Some("speak"),
        Command::Quantise(_) => Some("quantise"),
        Command::Pull(_) => Some("pull"),
        Command::Report(_) => Some("report"),
        Command::Rm(_) => Some("rm"),
        _ => return Ok(false),
    };
    match (ranks::from_environment()?, refused) {
        (None, _) => Ok(false),
        (Some(ranks), None) => Ok(ranks.rank > 0),
        (Some(_), Some(name)) => Err(Failure::Usage(format!(
            "`ml {name}` does not run in several ranks; `ml generate`, `chat`, `classify`, `serve`, `bench` and `doctor --links` do"
        ))),
    }
}

#[cfg(not(feature = "speech"))]
mod speak {
    use crate::args::SpeakArgs;
    use crate::failure::{Failure, Result};

    /// Refuses the command, which this build leaves out.
    pub fn run(_: &SpeakArgs) -> Result<()> {
        Err(Failure::Other("this program was built without the feature `speech`".into()))
    }
}

#[cfg(not(feature = "speech"))]
mod transcribe {
    use crate::args::TranscribeArgs;
    use crate::failure::{Failure, Result};

    /// Refuses the command, which this build leaves out.
    pub fn run(_: &TranscribeArgs) -> Result<()> {
        Err(Failure::Other("this program was built without the feature `speech`".into()))
    }
}
