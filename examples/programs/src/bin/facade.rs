//! The older way in, whole answers and a callback: `cargo run --release --bin facade -- MODEL`,
//! then a question a line.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::io::{self, BufRead, Write};

use ml::{Backend, GenOpts, Message, MlxBackend, StreamingBackend};

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let model = std::env::args().nth(1).ok_or("usage: facade MODEL")?;
    // The facade knows no engine: the program registers what shall compute.
    metal_backend::register()?;
    let mlx = MlxBackend::new(model)?;
    let opts = GenOpts { temperature: Some(0.0), max_tokens: Some(64), ..GenOpts::default() };

    for line in io::stdin().lock().lines() {
        let line = line?;
        let whole = mlx.generate(&line, &opts)?;
        // The same answer, piece by piece; an error of the callback would end it.
        let streamed = mlx.chat_stream(&[Message::user(line)], &opts, &mut |piece| {
            print!("{piece}");
            io::stdout().flush()?;
            Ok(())
        })?;
        println!();
        assert_eq!(streamed.text, whole.text);
        eprintln!("{} tokens", streamed.outcome.metrics.generated_tokens);
    }
    // Freed memory goes back before other work begins.
    mlx.clear_cache()?;
    Ok(())
}
