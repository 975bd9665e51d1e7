//! `ml embed`: vectors of texts.

use std::path::PathBuf;
use std::time::Instant;

use inference_core::{
    CancelToken, EmbedInput, EmbedOptions, EmbeddingLoadOptions, EmbeddingModel, Embeddings, Error,
};
use serde::Serialize;

use crate::args::{EmbedArgs, EmbeddingLoadArgs, lines};
use crate::failure::{Failure, Result};
use crate::files::{self, Access};
use crate::interrupt::{Interrupt, Then};
use crate::names;
use crate::output::{Spinner, counted, dim_note, print};

/// Texts that are handed to the model together; their vectors are printed together.
const GROUP: usize = 512;

/// A line of the output.
#[derive(Serialize)]
struct Line<'a> {
    index: usize,
    tokens: usize,
    embedding: &'a [f32],
}

/// Embeds the texts that `args` tell.
///
/// # Errors
/// Bad options, an unusable model, a text that is refused, an interruption.
pub fn run(args: &EmbedArgs) -> Result<()> {
    let interrupt = Interrupt::install()?;
    let texts = lines(&args.texts, args.file.as_ref(), "text")?;
    let cancel = CancelToken::new();
    let options = EmbedOptions {
        max_tokens: None,
        prompt_name: args.prompt_name.clone(),
        prompt: args.prompt.clone(),
        dimensions: args.dimensions,
        normalize: args.normalise,
        truncate: args.truncate,
        cancel: cancel.clone(),
    };
    options.validate()?;
    let pooled = EmbeddingLoadOptions { pooling: args.pooling, ..args.load.options() };
    let model = load(&args.load, &pooled, args.quiet)?;
    let watch = interrupt.watch(&cancel, Then::Leave);
    let started = Instant::now();
    let made = embed(model.as_ref(), &texts, &options, args);
    let interrupted = watch.fired();
    drop(watch);
    let tokens = match made {
        Err(Failure::Model(Error::Cancelled)) if interrupted => return Err(Failure::Interrupted),
        Err(Failure::Model(error)) => return Err(Failure::of_text(error)),
        made => made?,
    };
    if !args.quiet {
        let speed = tokens as f64 / started.elapsed().as_secs_f64();
        dim_note(format_args!(
            "{}, {tokens} tokens, {speed:.1} tok/s",
            counted(texts.len(), "text")
        ));
    }
    Ok(())
}

/// The embedding model that `args` name, loaded by `options`.
///
/// # Errors
/// No model at all; a name that is not fetched; the backend's.
pub fn load(
    args: &EmbeddingLoadArgs,
    options: &EmbeddingLoadOptions,
    quiet: bool,
) -> Result<Box<dyn EmbeddingModel>> {
    let missing = "no embedding model is named: `--model MODEL`, or ML_EMBEDDING_MODEL; `ml pull Qwen/Qwen3-Embedding-0.6B` fetches one";
    let folder = names::folder_or_env(args.model.as_deref(), "ML_EMBEDDING_MODEL", missing)?;
    metal_backend::register()?;
    let _spinner = (!quiet).then(|| Spinner::new(format!("loading {}", folder.display())));
    Ok(inference_core::load_embedding_model(&folder, options)?)
}

/// Writes the vectors of all texts; how many tokens they have.
fn embed(
    model: &dyn EmbeddingModel,
    texts: &[String],
    options: &EmbedOptions,
    args: &EmbedArgs,
) -> Result<usize> {
    let is_array = |path: &&PathBuf| path.extension().is_some_and(|ending| ending == "npy");
    let array = args.output.as_ref().filter(is_array);
    let (mut written, mut vectors, mut tokens) = (String::new(), Vec::new(), 0);
    for (group, texts) in texts.chunks(GROUP).enumerate() {
        let inputs: Vec<EmbedInput> = texts.iter().map(|text| text.as_str().into()).collect();
        let made = model.embed(&inputs, options)?;
        tokens += made.tokens.iter().sum::<usize>();
        if array.is_some() {
            vectors.extend(made.vectors);
            continue;
        }
        let lines = json_lines(group * GROUP, &made)?;
        match args.output {
            Some(_) => written += &lines,
            None => print(&lines)?,
        }
    }
    if let Some(path) = array {
        files::replace(path, &npy(&vectors), Access::Shared)?;
    } else if let Some(path) = &args.output {
        files::replace(path, written.as_bytes(), Access::Shared)?;
    }
    Ok(tokens)
}

/// A line of JSON for each vector, of which the first one has the number `first`.
fn json_lines(first: usize, made: &Embeddings) -> Result<String> {
    let mut lines = String::new();
    for (index, (embedding, &tokens)) in made.vectors.iter().zip(&made.tokens).enumerate() {
        let line = Line { index: first + index, tokens, embedding };
        let line = serde_json::to_string(&line);
        lines += &line.map_err(|error| Failure::Other(format!("the result as JSON: {error}")))?;
        lines.push('\n');
    }
    Ok(lines)
}

/// `vectors` as a file of NumPy: one array of float32, `[texts, dimensions]`.
fn npy(vectors: &[Vec<f32>]) -> Vec<u8> {
    let columns = vectors.first().map_or(0, Vec::len);
    let about = format!(
        "{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {columns}), }}",
        vectors.len()
    );
    // Magic, version and length are 10 bytes; all of it is a multiple of 64 and ends a line.
    let padding = (64 - (10 + about.len() + 1) % 64) % 64;
    let header = format!("{about}{}\n", " ".repeat(padding));
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(vectors.iter().flatten().flat_map(|value| value.to_le_bytes()));
    bytes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_array_is_written_as_numpy_reads_it() {
        let bytes = npy(&[vec![1.0, -2.0], vec![0.5, 3.0], vec![4.0, 5.0]]);
        let header = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
        assert_eq!((10 + header) % 64, 0);
        let about = std::str::from_utf8(&bytes[10..10 + header]).unwrap();
        let expected = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }";
        assert_eq!(about.trim_end(), expected);
        assert!(about.ends_with('\n'));
        assert_eq!(bytes.len(), 10 + header + 24);
        assert_eq!(&bytes[10 + header + 4..][..4], (-2.0f32).to_le_bytes());
    }

    #[test]
    fn a_line_has_the_number_of_its_text() {
        let made = Embeddings { vectors: vec![vec![0.5], vec![1.0]], tokens: vec![3, 4] };
        let lines = json_lines(512, &made).unwrap();
        let second: serde_json::Value =
            serde_json::from_str(lines.lines().nth(1).unwrap()).unwrap();
        assert_eq!(second, json!({"index": 513, "tokens": 4, "embedding": [1.0]}));
    }
}
