//! `ml pull`: a model by its name, into the hub's cache.

use hub::{Pull, Settings};

use crate::args::PullArgs;
use crate::failure::Result;
use crate::fetching::fetch;
use crate::interrupt::Interrupt;
use crate::names;
use crate::output::print_line;

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
    print_line(fetch(&pull, &name, args.quiet)?.model.display())
}
