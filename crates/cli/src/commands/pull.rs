//! `ml pull`: a model by its name, into the hub's cache.

mod progress;

use hub::{Pull, Settings};

use crate::args::PullArgs;
use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::names;
use crate::output::print_line;
use progress::Progress;

/// Fetches the model that `args` name, and prints its folder, or its file of GGUF.
///
/// # Errors
/// The hub's refusals, files that arrive wrong, and the disk's.
pub fn run(args: &PullArgs) -> Result<()> {
    // Nothing is watched: the first signal ends the program, and what came is kept.
    Interrupt::install()?;
    let name = names::parse(&args.model)?;
    let settings = Settings::from_env()?;
    let pull = Pull { connections: args.connections, ..Pull::new(&settings) };
    let progress = (!args.quiet).then(|| Progress::new(name.to_string()));
    let pulled = pull.run(&name, &|event| {
        if let Some(progress) = &progress {
            progress.tell(&event);
        }
    });
    if let Some(progress) = &progress {
        progress.finish(pulled.is_ok());
    }
    print_line(pulled?.model.display())
}
