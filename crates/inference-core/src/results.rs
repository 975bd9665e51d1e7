//! Results of a model for many prompts at once.

use crate::{Error, Outcome, Token};

/// The next token after one prompt: the most likely one, or the one that was drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassifyResult {
    /// The token, with its log probability.
    pub token: Token,
    /// `[vocab_size]` logits at the last position; only when asked for.
    pub logits: Option<Vec<f32>>,
    /// One entry for each of [`ClassifyOptions::labels`](crate::ClassifyOptions::labels), in their
    /// order.
    pub labels: Vec<LabelScore>,
}

/// How likely a label is as the continuation of a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LabelScore {
    /// Natural logarithm of the probability of the label's tokens, one after the other.
    pub logprob: f32,
    /// Tokens of the label.
    pub tokens: usize,
}

/// All tokens of one prompt of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchResult {
    /// The prompt's tokens with their log probabilities, where they were asked for; as
    /// [`Generation::take_prompt_logprobs`](crate::Generation::take_prompt_logprobs) has them.
    pub prompt_logprobs: Option<Vec<Token>>,
    /// The tokens generated until the end or the error.
    pub tokens: Vec<Token>,
    /// How it ended, where it ended well.
    pub outcome: Option<Outcome>,
    /// Why it did not end well.
    pub error: Option<Error>,
}
