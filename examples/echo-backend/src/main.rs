//! Registers the backend and continues a prompt: `cargo run -p echo-backend -- "The old owl"`.

#![forbid(unsafe_code)]

use std::error::Error;
use std::io::Write;
use std::path::Path;

use inference_core::{GenerateOptions, LoadOptions, Prompt};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let prompt = if words.is_empty() { "The quick fox".to_owned() } else { words.join(" ") };

    echo_backend::register()?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("model");
    let options = LoadOptions { backend: Some("echo".into()), ..Default::default() };
    let model = inference_core::load_model(&folder, &options)?;

    let options = GenerateOptions { max_tokens: Some(200), ..Default::default() };
    let mut generation = model.generate(&Prompt::from(prompt), &options)?;
    let mut out = std::io::stdout().lock();
    for token in generation.by_ref() {
        out.write_all(token?.text.as_bytes())?;
        out.flush()?;
    }
    if let Some(outcome) = generation.outcome() {
        let count = outcome.metrics.generated_tokens;
        writeln!(out, "\n[{count} tokens, {}]", outcome.finish_reason.as_str())?;
    }
    Ok(())
}
