//! The contract of a loaded embedding model.

use crate::{
    EmbedInput, EmbedOptions, EngineStatus, Error, Pooling, Result, ScoreOptions, StoredAs,
    TextPair,
};

/// Description of a loaded embedding model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EmbeddingModelInfo {
    /// The architecture, `model_type` in `config.json`.
    pub architecture: String,
    /// Values of a text's vector; `None`: the model embeds no texts.
    pub dimensions: Option<usize>,
    /// How the vectors of tokens become one.
    pub pooling: Option<Pooling>,
    /// Vectors have length 1 where a request says nothing.
    pub normalizes: bool,
    /// The model scores pairs of a query and a document.
    pub scores: bool,
    /// The instruction for scores where a request gives none; `None`: the model takes none.
    pub instruction: Option<String>,
    /// The most tokens of a text or a pair, those that the model adds included.
    pub max_tokens: usize,
    /// The prompts that may be put before texts, by name, sorted.
    pub prompts: Vec<(String, String)>,
    /// The name of the prompt that is put before texts where a request says nothing.
    pub default_prompt: Option<String>,
    /// How vectors are compared, such as `cosine`, where the model's files say.
    pub similarity: Option<String>,
    /// Entries of the vocabulary.
    pub vocab_size: usize,
    /// Transformer blocks.
    pub num_layers: usize,
    /// Values of a token's vector.
    pub hidden_size: usize,
    /// Parameters, packed ones counted as what they stand for.
    pub num_parameters: u64,
    /// Bytes of the weights as they are held in memory.
    pub weight_bytes: u64,
    /// The form that its files have them in.
    pub stored_as: StoredAs,
    /// Bits of packed weights, 0 where they are not packed.
    pub quant_bits: usize,
    /// The type of activations: `f32`, `f16` or `bf16`.
    pub dtype: String,
    /// The device that computes.
    pub device: String,
}

impl EmbeddingModelInfo {
    /// The text that `options` put before each text; empty: none.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for a name that the model has no prompt of.
    pub fn prompt<'a>(&'a self, options: &'a EmbedOptions) -> Result<&'a str> {
        if let Some(prompt) = &options.prompt {
            return Ok(prompt);
        }
        let Some(name) = options.prompt_name.as_ref().or(self.default_prompt.as_ref()) else {
            return Ok("");
        };
        let found = self.prompts.iter().find(|(known, _)| known == name);
        found.map(|(_, prompt)| prompt.as_str()).ok_or_else(|| {
            let names: Vec<_> = self.prompts.iter().map(|(name, _)| name.as_str()).collect();
            let known = match names.as_slice() {
                [] => "the model has no prompts".to_owned(),
                names => format!("the model has {}", names.join(", ")),
            };
            let reason = format!("there is no prompt `{name}`; {known}");
            Error::InvalidOption { option: "prompt_name", reason }
        })
    }
}

/// Vectors of texts, in the order of the texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Embeddings {
    /// One for each text.
    pub vectors: Vec<Vec<f32>>,
    /// Tokens of each text that were computed, prompts and the model's own included.
    pub tokens: Vec<usize>,
}

/// Scores of pairs, in the order of the pairs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PairScores {
    /// The raw score of each pair: any number, larger is better.
    pub logits: Vec<f32>,
    /// Tokens of each pair that were computed.
    pub tokens: Vec<usize>,
}

impl PairScores {
    /// The scores between 0 and 1: `1 / (1 + exp(-logit))`.
    pub fn relevance(&self) -> Vec<f32> {
        let sigmoid = |logit: &f32| (1.0 / (1.0 + (-f64::from(*logit)).exp())) as f32;
        self.logits.iter().map(sigmoid).collect()
    }

    /// The pairs' numbers, the best one first; of equals, the earlier one.
    pub fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.logits.len()).collect();
        order.sort_by(|one, other| self.logits[*other].total_cmp(&self.logits[*one]));
        order
    }
}

/// A loaded model that makes vectors of texts, or scores of pairs of texts. Any number of threads
/// may call it at once.
///
/// Every call validates its options first and honours each, or refuses it by name. What other
/// texts are computed beside a text changes its result by rounding at most.
pub trait EmbeddingModel: Send + Sync {
    /// Returns the model's description.
    fn info(&self) -> &EmbeddingModelInfo;

    /// The vectors of texts.
    ///
    /// # Errors
    /// [`Error::InvalidOption`], [`Error::EmptyPrompt`], [`Error::PromptTooLong`],
    /// [`Error::Memory`], [`Error::QueueFull`], [`Error::Cancelled`], [`Error::Closed`].
    /// [`Error::Unsupported`] where the model embeds none.
    fn embed(&self, inputs: &[EmbedInput], options: &EmbedOptions) -> Result<Embeddings>;

    /// How well the document of each pair fits its query.
    ///
    /// # Errors
    /// As [`embed`](Self::embed). [`Error::Unsupported`] where the model scores none.
    fn score(&self, pairs: &[TextPair], options: &ScoreOptions) -> Result<PairScores>;

    /// Returns the state of the engine at this moment.
    fn status(&self) -> EngineStatus {
        EngineStatus::default()
    }

    /// Cancels all requests, frees the model, and waits until both is done. Later requests are
    /// refused with [`Error::Closed`].
    fn close(&self);
}
