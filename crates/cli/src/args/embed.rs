//! `ml embed` and `ml rerank`.

use std::path::PathBuf;

use clap::Args;
use inference_core::{Dtype, EmbeddingLoadOptions, Pooling, Truncate};

use super::values;
use crate::bytes;
use crate::failure::{Failure, Result};
use crate::files;

/// `ml embed`.
#[derive(Args, Debug)]
#[command(after_help = "\
Each text becomes one line of JSON on stdout: its index, its tokens and its embedding. With
--output, a file that ends in .npy gets all vectors as one array of float32, [texts, dimensions];
any other file gets the lines. How tokens become a vector, prompts and lengths come from the model's
own files.

Examples:
  ml pull Qwen/Qwen3-Embedding-0.6B
  ml embed --model Qwen/Qwen3-Embedding-0.6B 'A fox in the snow'
  ml embed -m Qwen/Qwen3-Embedding-0.6B --prompt-name query 'Where does the fox run?'
  ml embed -m ~/models/bge-m3 --file lines.txt --output vectors.npy
  cat lines.txt | ml embed -m ~/models/bge-m3 --truncate end > vectors.jsonl")]
pub struct EmbedArgs {
    /// Texts; `-` or nothing reads stdin, a text a line
    pub texts: Vec<String>,
    /// Take the texts from the lines of a file (`-`: stdin)
    #[arg(long, short = 'f', value_name = "FILE", conflicts_with = "texts", help_heading = "Text")]
    pub file: Option<PathBuf>,
    /// Put the model's prompt of this name before each text; `ml info` lists them
    #[arg(long, value_name = "NAME", conflicts_with = "prompt", help_heading = "Text")]
    pub prompt_name: Option<String>,
    /// Put this text before each text
    #[arg(long, value_name = "TEXT", help_heading = "Text")]
    pub prompt: Option<String>,
    /// Part that a text with too many tokens loses: none (it is refused), end or start
    #[arg(long, value_name = "PART", value_parser = truncate, default_value = "none",
          help_heading = "Text")]
    pub truncate: Truncate,
    /// Make vectors of tokens one by cls, lasttoken (or last), mean, max, mean_sqrt_len_tokens or
    /// weightedmean [default: as the model's files say]
    #[arg(long, value_name = "NAME", value_parser = pooling, help_heading = "Vectors")]
    pub pooling: Option<Pooling>,
    /// Keep the first N values of each vector [default: all]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true,
          help_heading = "Vectors")]
    pub dimensions: Option<usize>,
    /// Scale vectors to the length 1: true or false [default: as the model's files say]
    #[arg(long, visible_alias = "normalize", value_name = "BOOL", help_heading = "Vectors")]
    pub normalise: Option<bool>,
    /// How it is loaded.
    #[command(flatten)]
    pub load: EmbeddingLoadArgs,
    /// Write the vectors here; a file that ends in .npy gets one array [default: stdout]
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// No statistics and no progress on stderr
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
}

/// `ml rerank`.
#[derive(Args, Debug)]
#[command(after_help = "\
Documents are printed with their scores between 0 and 1, the best one first.

Examples:
  ml pull Qwen/Qwen3-Reranker-0.6B
  ml rerank --model Qwen/Qwen3-Reranker-0.6B 'Where does the fox run?' 'In the snow.' 'At noon.'
  ml rerank -m ~/models/bge-reranker-v2-m3 'What is a KV cache?' --file passages.txt --top 3 --json")]
pub struct RerankArgs {
    /// Query that the documents are scored against
    pub query: String,
    /// Texts that may answer it; `-` or nothing reads stdin, a text a line
    pub documents: Vec<String>,
    /// Take the documents from the lines of a file (`-`: stdin)
    #[arg(
        long,
        short = 'f',
        value_name = "FILE",
        conflicts_with = "documents",
        help_heading = "Text"
    )]
    pub file: Option<PathBuf>,
    /// Task that says which documents fit, for models that take one [default: the model's own]
    #[arg(long, value_name = "TEXT", help_heading = "Text")]
    pub instruction: Option<String>,
    /// Part that a document loses in a pair of too many tokens: none (it is refused), end or start
    #[arg(long, value_name = "PART", value_parser = truncate, default_value = "none",
          help_heading = "Text")]
    pub truncate: Truncate,
    /// How it is loaded.
    #[command(flatten)]
    pub load: EmbeddingLoadArgs,
    /// Print the best N [default: all]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true,
          help_heading = "Output")]
    pub top: Option<usize>,
    /// Print logits in place of scores between 0 and 1
    #[arg(long, help_heading = "Output")]
    pub raw_scores: bool,
    /// Print one JSON object for each document, a line each
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// No statistics and no progress on stderr
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
}

/// How an embedding model is loaded.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Model")]
pub struct EmbeddingLoadArgs {
    /// Model folder, or a name that `ml pull` fetched [env: ML_EMBEDDING_MODEL]
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// Device to run on: metal, cuda or cpu [default: the best one, see `ml doctor`]
    #[arg(long, visible_alias = "device", value_name = "NAME")]
    pub backend: Option<String>,
    /// Compute in f32, f16 or bf16 [default: the checkpoint's own]
    #[arg(long, value_name = "TYPE", value_parser = values::dtype)]
    pub dtype: Option<Dtype>,
    /// The most tokens of a text [default: as the model's files say]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    pub max_tokens: Option<usize>,
    /// Bytes for weights and activations together, such as 16GiB [default: the device's]
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse, allow_hyphen_values = true)]
    pub memory_limit: Option<u64>,
    /// Compute with N threads, at most 1024, where the backend runs on a CPU [default: all cores]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true,
          env = "ML_THREADS")]
    pub threads: Option<usize>,
}

impl EmbeddingLoadArgs {
    /// As the contract takes them. How vectors are pooled concerns `ml embed` alone.
    pub fn options(&self) -> EmbeddingLoadOptions {
        EmbeddingLoadOptions {
            backend: self.backend.clone(),
            dtype: self.dtype,
            pooling: None,
            max_tokens: self.max_tokens,
            memory_limit: self.memory_limit,
            queue_limit: None,
            threads: self.threads,
        }
    }
}

/// Parses the value of `--truncate`.
fn truncate(text: &str) -> Result<Truncate, String> {
    text.parse().map_err(|_| "expected none, end or start".to_owned())
}

/// How tokens become one vector.
pub fn pooling(text: &str) -> Result<Pooling, String> {
    text.parse()
        .map_err(|_| format!("expected one of {}", Pooling::ALL.map(Pooling::as_str).join(", ")))
}

/// Texts that are given as arguments, as the lines of a file or on stdin.
///
/// # Errors
/// None at all, an unreadable file.
pub fn lines(given: &[String], file: Option<&PathBuf>, what: &str) -> Result<Vec<String>> {
    let dashes = given.iter().filter(|text| *text == "-").count();
    if dashes > 0 && given.len() > 1 {
        let reason = format!("`-` reads all {what}s from stdin: give it alone");
        return Err(Failure::Usage(reason));
    }
    let texts = match file {
        Some(path) => files::read_lines(path)?,
        None if dashes > 0 => files::read_lines("-".as_ref())?,
        None if !given.is_empty() => return Ok(given.to_vec()),
        None if files::stdin_is_terminal() => Vec::new(),
        None => files::read_lines("-".as_ref())?,
    };
    if texts.is_empty() {
        return Err(Failure::Usage(format!(
            "no {what}: give some as arguments or as lines of --file FILE, or pipe lines into stdin"
        )));
    }
    Ok(texts)
}
