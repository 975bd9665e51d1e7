//! `ml classify`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{LoadArgs, PictureArgs, TemplateArgs, values};
use crate::failure::{Failure, Result};
use crate::files;

/// `ml classify`.
#[derive(Args, Debug)]
#[command(after_help = "\
Each prompt is a user message, or with --raw the beginning of a text; a label is what may follow,
as it is written, spaces included. Its probability is its share among the labels. Without labels,
the most likely next tokens are shown. A prompt that fails is told on stderr, the others go on, and
the exit code is 1.

Examples:
  ml classify --labels positive,negative 'Classify the sentiment: Money well spent.'
  ml classify --labels-file labels.txt --file reviews.txt --json | jq -r .label
  echo 'The capital of France is' | ml classify --raw --top 3")]
pub struct ClassifyArgs {
    /// Prompts to classify; `-` or nothing reads stdin, a prompt a line
    pub prompts: Vec<String>,
    /// Take the prompts from the lines of a file (`-`: stdin)
    #[arg(
        long,
        short = 'f',
        value_name = "FILE",
        conflicts_with = "prompts",
        help_heading = "Prompt"
    )]
    pub file: Option<PathBuf>,
    /// Continue each text as it is, without the chat template
    #[arg(long, conflicts_with_all = ["system", "tools", "chat_template_kwargs", "reasoning_effort"],
          help_heading = "Prompt")]
    pub raw: bool,
    /// Pictures, which each prompt comes after.
    #[command(flatten)]
    pub images: PictureArgs,
    /// The conversation's template.
    #[command(flatten)]
    pub template: TemplateArgs,
    /// Labels to choose from, with commas between them
    #[arg(long, value_name = "LABELS", value_delimiter = ',', help_heading = "Labels")]
    pub labels: Vec<String>,
    /// Take the labels from the lines of a file (`-`: stdin)
    #[arg(long, value_name = "FILE", conflicts_with = "labels", help_heading = "Labels")]
    pub labels_file: Option<PathBuf>,
    /// Without labels, show the N most likely tokens [default: 5]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true,
          conflicts_with_all = ["labels", "labels_file"], help_heading = "Labels")]
    pub top: Option<usize>,
    /// The model.
    #[command(flatten)]
    pub load: LoadArgs,
    /// Stop after so many seconds, keep what is done and exit with 1
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds,
          allow_hyphen_values = true, help_heading = "Output")]
    pub timeout: Option<Duration>,
    /// Print one JSON object for each prompt, a line each
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// No statistics and no progress on stderr
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
}

impl ClassifyArgs {
    /// The labels, in the order given.
    ///
    /// # Errors
    /// An unreadable file, no label in it, an empty label or one that is given twice.
    pub fn labels(&self) -> Result<Vec<String>> {
        let is_stdin = |path: &Option<PathBuf>| path.as_deref().is_some_and(files::is_stdin);
        if is_stdin(&self.labels_file) && (is_stdin(&self.file) || self.dashes() > 0) {
            return Err(Failure::Usage("stdin is given for the prompts and for the labels".into()));
        }
        let labels = match &self.labels_file {
            None => self.labels.clone(),
            Some(path) => files::read_lines(path)?,
        };
        let usage = |reason: String| Err(Failure::Usage(reason));
        if labels.is_empty() && self.labels_file.is_some() {
            return usage("--labels-file: there are no labels".into());
        }
        for (index, label) in labels.iter().enumerate() {
            if label.is_empty() {
                return usage(format!("--labels: label {} is empty", index + 1));
            }
            if labels[..index].contains(label) {
                return usage(format!("--labels: `{label}` is given twice"));
            }
        }
        Ok(labels)
    }

    /// The prompts, in the order given.
    ///
    /// # Errors
    /// None at all, an unreadable file.
    pub fn prompts(&self) -> Result<Vec<String>> {
        let dashes = self.dashes();
        if dashes > 0 && self.prompts.len() > 1 {
            return Err(Failure::Usage("`-` reads all prompts from stdin: give it alone".into()));
        }
        let prompts = match &self.file {
            Some(path) => files::read_lines(path)?,
            None if dashes > 0 => files::read_lines("-".as_ref())?,
            None if !self.prompts.is_empty() => return Ok(self.prompts.clone()),
            None if self.labels_file.as_deref().is_some_and(files::is_stdin) => Vec::new(),
            None if files::stdin_is_terminal() => Vec::new(),
            None => files::read_lines("-".as_ref())?,
        };
        if prompts.is_empty() {
            return Err(Failure::Usage(
                "no prompt: give some as arguments or as lines of --file FILE, or pipe lines \
                 into stdin"
                    .into(),
            ));
        }
        Ok(prompts)
    }

    /// How often stdin is named among the prompts.
    fn dashes(&self) -> usize {
        self.prompts.iter().filter(|prompt| *prompt == "-").count()
    }
}
