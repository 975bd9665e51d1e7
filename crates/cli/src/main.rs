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

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match commands::run(args::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report();
            failure.exit_code()
        }
    }
}
