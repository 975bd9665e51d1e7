//! Two answers at once on one thread, as they come: `cargo run --release --bin async_stream --
//! MODEL`.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::error::Error;
use std::time::Duration;

use futures_util::StreamExt;
use inference_core::{CancelToken, GenerateOptions, Generation, LoadOptions, Prompt};
use inference_text::GenerationStream;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let model = std::env::args().nth(1).ok_or("usage: async_stream MODEL")?;
    metal_backend::register()?;
    let model = inference_core::load_model(model.as_ref(), &LoadOptions::default())?;

    let cancel = CancelToken::new();
    let options =
        GenerateOptions { max_tokens: Some(64), cancel: cancel.clone(), ..Default::default() };
    // Both run in one batch; neither blocks the thread.
    let first = model.generate(&Prompt::from("Once upon a time"), &options)?;
    let second = model.generate(&Prompt::from("The capital of France"), &options)?;
    // The engine looks at the token between its steps.
    let limit = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        cancel.cancel();
    };
    let both = async { tokio::try_join!(whole("first", first), whole("second", second)) };
    tokio::select! {
        texts = both => {
            let (first, second) = texts?;
            println!("first: {first:?}\nsecond: {second:?}");
        }
        () = limit => eprintln!("stopped after 30 s"),
    }
    Ok(())
}

/// The text of a generation, told token by token.
async fn whole(name: &str, generation: Generation) -> inference_core::Result<String> {
    let mut text = String::new();
    let mut tokens = GenerationStream::from(generation);
    while let Some(token) = tokens.next().await {
        let token = token?;
        eprintln!("{name}: {:?}", token.text);
        text.push_str(&token.text);
    }
    Ok(text)
}
