//! Which lines of stdin are most like the first one: `cargo run --release --bin embeddings --
//! MODEL`.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::error::Error;
use std::io;

use inference_core::{EmbedInput, EmbedOptions, EmbeddingLoadOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let model = std::env::args().nth(1).ok_or("usage: embeddings MODEL")?;
    metal_backend::register()?;
    let options = EmbeddingLoadOptions::default();
    let model = inference_core::load_embedding_model(model.as_ref(), &options)?;

    let lines = io::stdin().lines().collect::<Result<Vec<String>, _>>()?;
    let inputs: Vec<EmbedInput> = lines.iter().map(|line| line.as_str().into()).collect();
    let made = model.embed(&inputs, &EmbedOptions::default())?;
    let (first, others) = made.vectors.split_first().ok_or("give some lines")?;
    // Vectors of length 1: their product is the cosine of the angle between them.
    let likeness =
        |vector: &Vec<f32>| -> f32 { first.iter().zip(vector).map(|(a, b)| a * b).sum() };
    let mut ranked: Vec<(f32, &String)> = others.iter().map(likeness).zip(&lines[1..]).collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (likeness, line) in ranked {
        println!("{likeness:.3} {line}");
    }
    Ok(())
}
