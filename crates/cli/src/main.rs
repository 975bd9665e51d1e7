//! The command line program `ml`: text from language models, at the terminal.

#![forbid(unsafe_code)]

mod args;
mod attention;
mod bytes;
mod chat;
mod classified;
mod commands;
mod demo;
mod failure;
mod heat_map;
mod interrupt;
mod json;
mod output;
mod prompt;
mod report;
#[cfg(test)]
mod scripted;
mod source;
mod streaming;

use clap::Parser;

fn main() {
    let code = match commands::run(args::Cli::parse()) {
        Ok(()) => 0,
        Err(failure) => {
            failure.report();
            failure.code()
        }
    };
    leave(code)
}

/// Ends the process without the destructors of its libraries: MLX's take away what its threads, and
/// an engine in the middle of a step, still use. What was printed was flushed when it was printed.
fn leave(code: u8) {
    signal_hook::low_level::exit(code.into())
}
