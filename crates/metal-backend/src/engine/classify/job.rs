//! The request and the result of a classification.

use std::sync::{Arc, mpsc};
use std::time::Instant;

use inference_core::{CancelToken, Error, GenerateOptions, TokenLogprob};

use crate::sampling::Breakers;
use crate::sight::Scene;

/// One classification, ready to run: checked ids, and where the result goes.
pub(crate) struct ClassifyJob {
    /// How the engine calls it, once it was taken in.
    pub number: u64,
    /// Not empty, every id below the vocabulary's size.
    pub prompts: Vec<Vec<u32>>,
    /// The pictures of each prompt, where it has any.
    pub scenes: Vec<Option<Arc<Scene>>>,
    /// As the prompts.
    pub labels: Vec<Vec<u32>>,
    /// The logits of the whole vocabulary are requested too.
    pub logits: bool,
    /// How the next id is drawn; `None`: it is the most likely one.
    pub draw: Option<Box<DrawOptions>>,
    /// Ends it.
    pub cancel: CancelToken,
    /// When the caller asked.
    pub queued_at: Instant,
    /// The channel for the result. Dropped with a job that never ran, it reports a closed model.
    pub reply: mpsc::Sender<Result<Vec<Scores>, Error>>,
}

/// How the next id after a prompt is drawn.
pub(crate) struct DrawOptions {
    /// The options of a generation, with log probabilities asked for.
    pub generate: GenerateOptions,
    /// Ids that XTC never drops.
    pub protected_ids: Vec<u32>,
    /// Texts over which no repeat goes, where repeats are penalised.
    pub breakers: Option<Arc<Breakers>>,
}

/// The scores of one prompt.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scores {
    /// The next id.
    pub id: u32,
    /// Its log probability.
    pub logprob: f32,
    /// The most likely ids, most likely first, where wanted.
    pub top: Vec<TokenLogprob>,
    /// `[vocab_size]`, where wanted.
    pub logits: Option<Vec<f32>>,
    /// The log probability of each label's ids, one after the other.
    pub labels: Vec<f32>,
}
