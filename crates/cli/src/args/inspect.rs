//! `ml inspect`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{LoadArgs, PictureArgs, TemplateArgs, values};
use crate::failure::{Failure, Result};
use crate::files;

/// `ml inspect`.
#[derive(Args, Debug)]
#[command(after_help = "\
One prefill of the prompt; nothing is generated. The table tells of each head the mean entropy of
its queries' weights in nats, the token that gets most of its attention, and what the last token
looks at.

Examples:
  ml inspect 'Tell me a story about a fox'
  ml inspect --raw 'Once upon a time' --layers 0,3 --svg attention.svg
  ml inspect --raw 'Once upon a time' --safetensors attention.safetensors -q
  ml inspect --raw 'Once upon a time' --json | jq '.layers[0].entropy'")]
pub struct InspectArgs {
    /// The prompt; `-` or nothing reads stdin
    pub prompt: Option<String>,
    /// Take the text as it is, without the chat template
    #[arg(long, conflicts_with_all = ["system", "tools", "chat_template_kwargs", "reasoning_effort"],
          help_heading = "Prompt")]
    pub raw: bool,
    /// Pictures, which each prompt comes after.
    #[command(flatten)]
    pub images: PictureArgs,
    /// The conversation's template.
    #[command(flatten)]
    pub template: TemplateArgs,
    /// The model.
    #[command(flatten)]
    pub load: LoadArgs,
    /// Only these layers, from 0 on, with commas between them
    #[arg(long, value_name = "LAYERS", value_delimiter = ',', help_heading = "Output")]
    pub layers: Option<Vec<usize>>,
    /// Print one JSON object: tokens, shapes and entropies
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Also the values of queries, keys and weights
    #[arg(long, help_heading = "Output")]
    pub values: bool,
    /// Write queries, keys, weights and entropies into a safetensors file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub safetensors: Option<PathBuf>,
    /// Draw the weights of each layer as a heat map, the mean of its heads
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub svg: Option<PathBuf>,
    /// Draw these heads, from 0 on, instead of their mean
    #[arg(long, value_name = "HEADS", value_delimiter = ',', help_heading = "Output")]
    pub head: Vec<usize>,
    /// Stop after so many seconds and exit with 1
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds,
          allow_hyphen_values = true, help_heading = "Output")]
    pub timeout: Option<Duration>,
    /// No table and no statistics
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
}

impl InspectArgs {
    /// The prompt's text.
    ///
    /// # Errors
    /// None at all, an empty one, stdin that is no text.
    pub fn text(&self) -> Result<String> {
        let text = match self.prompt.as_deref() {
            Some(text) if text != "-" => text.to_owned(),
            None if files::stdin_is_terminal() => {
                return Err(Failure::Usage(
                    "no prompt: give it as an argument, or pipe it into stdin".into(),
                ));
            }
            _ => files::read_stdin()?,
        };
        let is_empty = if self.raw { text.is_empty() } else { text.trim().is_empty() };
        if is_empty { Err(Failure::Usage("the prompt is empty".into())) } else { Ok(text) }
    }
}
