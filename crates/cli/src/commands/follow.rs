//! Ranks after the first: each loads the model as the first one does, and follows it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use inference_core::{LoadOptions, TextModel};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::{bench, chat, serve};
use crate::args::Command;
use crate::failure::{Failure, Result};
use crate::ranks;
use crate::source::Source;

/// Loads the model of `command`, and computes what the first rank orders until that one ends.
///
/// # Errors
/// A command that ranks do not run; a model that cannot be loaded; a rank that is lost.
pub fn run(command: &Command) -> Result<()> {
    // A terminal sends Ctrl-C to all, as others send what ends a service. The first rank decides
    // what it ends.
    let all = if ranks::launcher().is_some() { &[SIGINT, SIGTERM, SIGHUP][..] } else { &[SIGINT] };
    for signal in all {
        let ignored = signal_hook::flag::register(*signal, Arc::<AtomicBool>::default());
        ignored.map_err(|error| Failure::Other(format!("signal handling: {error}")))?;
    }
    Ok(load(command)?.follow()?)
}

/// The model, loaded with the options of the first rank.
fn load(command: &Command) -> Result<Box<dyn TextModel>> {
    let quietly = |source: Source, options: LoadOptions| source.load(&options, true);
    match command {
        Command::Generate(args) => quietly(Source::choose(&args.load)?, args.load.options()?),
        Command::Classify(args) => quietly(Source::choose(&args.load)?, args.load.options()?),
        Command::Chat(args) => {
            chat::load_with_cache(&Source::of(args.model())?, args.load.options()?, args)
        }
        Command::Bench(args) => bench::load(args, &bench::options(args)?),
        Command::Serve(args) => {
            let serve::Served { source, load, .. } = serve::served(args)?;
            quietly(source, load)
        }
        _ => Err(Failure::Usage("this command does not run in several ranks".to_owned())),
    }
}
