//! The command line program `ml`: text from language models, at the terminal.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "speech"),
    allow(dead_code, unused_imports, reason = "parts of the command that is left out")
)]

mod answer;
mod args;
mod bytes;
mod commands;
mod cuda;
mod cut;
mod demo;
mod failure;
mod fetching;
mod files;
mod interrupt;
mod json;
mod markdown;
mod names;
mod nearest;
mod output;
mod pictures;
mod ranks;
mod reading;
mod remote;
mod signals;
mod source;
mod streaming;
mod times;

use std::io::Write;
use std::panic;

use failure::{Failure, Result};

fn main() {
    print_no_caught_panics();
    let code = match run() {
        Ok(()) => 0,
        Err(failure) => {
            output::report(&failure);
            failure.code()
        }
    };
    leave(code)
}

/// Leaves panics of the tokenizer and grammar libraries to the errors that they become.
fn print_no_caught_panics() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if !inference_text::panics::is_caught() {
            print(panic);
        }
    }));
}

/// Runs a command, or prints the help or version on stdout. Bad usage ends the process.
fn run() -> Result<()> {
    match args::Cli::read(std::env::args_os()) {
        Ok(cli) => {
            ranks::end_with_launcher();
            cuda::start(&cli);
            fetching::start(cli.yes, cli.is_quiet());
            commands::run(cli)
        }
        Err(usage) if usage.use_stderr() => usage.exit(),
        Err(help) => {
            let printed = help.print().and_then(|()| std::io::stdout().flush());
            printed.map_err(Failure::from_stdout)
        }
    }
}

/// Ends the process without the destructors of its libraries: MLX's take away what its threads, and
/// an engine in the middle of a step, still use. What was printed was flushed when it was printed.
fn leave(code: u8) {
    signal_hook::low_level::exit(code.into())
}
