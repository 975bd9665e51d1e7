//! Messages from callers to the engine thread.

use std::sync::{Arc, mpsc};
use std::time::Instant;

use inference_core::{Error, GenerateOptions};
use inference_text::constraint::Guide;

use super::classify::ClassifyJob;
use super::inspect::InspectJob;
use super::output::TextState;
use super::prompt_logprobs::PromptLogprobs;
use super::shared::Sender as JobSender;
use crate::sampling::Repeats;
use crate::sight::Scene;

/// One request, ready to run: validated options and ids, and where its tokens go.
pub(crate) struct Job {
    /// How the engine calls it, once it was taken in.
    pub number: u64,
    /// The prompt; not empty, every id below the vocabulary's size.
    pub ids: Vec<u32>,
    /// Its pictures, where it has any.
    pub scene: Option<Arc<Scene>>,
    /// Validated, with the model's own defaults filled in.
    pub options: GenerateOptions,
    /// Ids that end the generation.
    pub eos_token_ids: Vec<u32>,
    /// Ids that XTC never drops.
    pub protected_ids: Vec<u32>,
    /// The penalty on repeats, which knows the prompt.
    pub repeats: Option<Repeats>,
    /// The constraint that the text must conform to and the bound of its reasoning, at its
    /// beginning.
    pub guide: Option<Guide>,
    /// Log probabilities of the prompt, where they are requested.
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// From ids to text, where anybody wants that.
    pub text: Option<TextState>,
    /// The channel for tokens and the outcome.
    pub output: JobSender,
    /// When the caller asked.
    pub queued_at: Instant,
}

/// A message to the engine thread.
pub(super) enum Command {
    Run(Box<Job>),
    Classify(Box<ClassifyJob>),
    Inspect(Box<InspectJob>),
    /// Freed memory goes back; whoever asked waits for that.
    ClearCache(mpsc::Sender<Result<(), Error>>),
    Close,
    /// Another rank is lost, for this reason.
    Lost(String),
}
