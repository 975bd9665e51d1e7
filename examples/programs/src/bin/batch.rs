//! Many prompts at once, a line of stdin each: `cargo run --release --bin batch -- MODEL <
//! prompts.txt`.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::error::Error;
use std::io;

use inference_core::{GenerateOptions, LoadOptions, Prompt};

fn main() -> Result<(), Box<dyn Error>> {
    let model = std::env::args().nth(1).ok_or("usage: batch MODEL")?;
    metal_backend::register()?;
    let model = inference_core::load_model(model.as_ref(), &LoadOptions::default())?;

    let lines = io::stdin().lines().collect::<Result<Vec<String>, _>>()?;
    let prompts: Vec<Prompt> = lines.iter().map(|line| Prompt::from(line.as_str())).collect();
    let options =
        GenerateOptions { max_tokens: Some(32), temperature: Some(0.0), ..Default::default() };
    for (prompt, result) in lines.iter().zip(model.batch_generate(&prompts, &options)?) {
        let text: String = result.tokens.iter().map(|token| token.text.as_str()).collect();
        match result.error {
            // One prompt's error leaves the others alone.
            Some(error) => eprintln!("{prompt}: {error}"),
            None => println!("{prompt}{text}"),
        }
    }
    if let Some(metrics) = model.metrics() {
        eprintln!("{} tokens", metrics.generated_tokens);
    }
    Ok(())
}
