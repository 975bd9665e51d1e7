//! A conversation: `cargo run --release --bin chat -- MODEL`, then a message a line.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::error::Error;
use std::io::{self, BufRead, Write};

use inference_core::{ChatOptions, GenerateOptions, LoadOptions, Message, Piece};

fn main() -> Result<(), Box<dyn Error>> {
    let model = std::env::args().nth(1).ok_or("usage: chat MODEL")?;
    metal_backend::register()?;
    let model = inference_core::load_model(model.as_ref(), &LoadOptions::default())?;
    let options = GenerateOptions { max_tokens: Some(256), ..Default::default() };

    let mut messages = Vec::new();
    for line in io::stdin().lock().lines() {
        messages.push(Message::user(line?));
        // Reasoning, content and calls come apart; what was said before is in the prefix cache.
        let mut answering = model.answer(&messages, &ChatOptions::default(), &options)?;
        for piece in answering.by_ref() {
            if let Piece::Content(text) = piece? {
                print!("{text}");
                io::stdout().flush()?;
            }
        }
        println!();
        messages.push(answering.answer().to_message(programs::value));
    }
    Ok(())
}
