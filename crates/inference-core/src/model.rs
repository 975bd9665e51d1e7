//! What a loaded model is and can be asked.

use std::collections::VecDeque;
use std::fmt;

use crate::{
    AttentionInspector, Capabilities, ChatOptions, ClassifyOptions, EngineStatus, Error,
    GenerateMetrics, GenerateOptions, Generation, Message, Outcome, Result, Token,
};

/// What a model continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Text that the model's tokenizer encodes, with its beginning-of-sequence token exactly once.
    Text(String),
    /// Token ids, taken as they are.
    Ids(Vec<u32>),
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Prompt::Text(text.to_owned())
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Self {
        Prompt::Text(text)
    }
}

impl From<Vec<u32>> for Prompt {
    fn from(ids: Vec<u32>) -> Self {
        Prompt::Ids(ids)
    }
}

/// A conversation as the chat template rendered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedPrompt {
    /// The rendered text.
    pub text: String,
    /// Its token ids, as [`TextModel::chat`] feeds them.
    pub ids: Vec<u32>,
}

/// What a loaded model is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelInfo {
    /// The architecture's name, `model_type` in `config.json`.
    pub architecture: String,
    /// Entries of the vocabulary as the output layer has them.
    pub vocab_size: usize,
    /// Transformer layers.
    pub num_layers: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Bits of a quantised weight, 0 when unquantised.
    pub quant_bits: usize,
    /// Weights that share a scale, 0 when unquantised.
    pub quant_group: usize,
    /// The most positions a request may use.
    pub context_length: usize,
    /// Parameters, quantised ones counted as what they stand for.
    pub num_parameters: u64,
    /// Bytes of the loaded weights.
    pub weight_bytes: u64,
    /// Bytes that one more position adds to a request's cache, over all layers that grow.
    pub kv_bytes_per_token: u64,
    /// The type that activations are computed in: `f32`, `f16` or `bf16`.
    pub dtype: String,
    /// The device that computes.
    pub device: String,
    /// Ids that end a generation.
    pub eos_token_ids: Vec<u32>,
    /// Where the chat format comes from: a file of the checkpoint, or a known family's format.
    pub chat_template: String,
}

/// The most likely next token of one prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassifyResult {
    /// The token, with its log probability.
    pub token: Token,
    /// `[vocab_size]` logits at the last position; only when asked for.
    pub logits: Option<Vec<f32>>,
    /// One entry for each of [`ClassifyOptions::labels`], in their order.
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
    /// [`Generation::take_prompt_logprobs`] has them.
    pub prompt_logprobs: Option<Vec<Token>>,
    /// What was generated until the end or the error.
    pub tokens: Vec<Token>,
    /// How it ended, where it ended well.
    pub outcome: Option<Outcome>,
    /// Why it did not end well.
    pub error: Option<Error>,
}

/// A loaded model. Any number of threads may call it at once.
///
/// Every call validates its options first and honours each of them, or refuses it by name;
/// nothing is ignored.
pub trait TextModel: Send + Sync {
    /// Continues `prompt`.
    ///
    /// # Errors
    /// Before anything is queued: [`Error::InvalidOption`], [`Error::Unsupported`],
    /// [`Error::EmptyPrompt`], [`Error::PromptTooLong`], [`Error::Closed`]. What goes wrong later,
    /// [`Error::Memory`] included, is the last item of the [`Generation`].
    fn generate(&self, prompt: &Prompt, options: &GenerateOptions) -> Result<Generation>;

    /// Answers a conversation, rendered by the model's chat template.
    ///
    /// # Errors
    /// As [`generate`](Self::generate), and [`Error::Prompt`] when the template refuses.
    fn chat(
        &self,
        messages: &[Message],
        chat: &ChatOptions,
        options: &GenerateOptions,
    ) -> Result<Generation>;

    /// The most likely next token after each prompt, from prefill alone.
    ///
    /// # Errors
    /// As [`generate`](Self::generate); one bad prompt refuses the call.
    fn classify(
        &self,
        prompts: &[Prompt],
        options: &ClassifyOptions,
    ) -> Result<Vec<ClassifyResult>>;

    /// Continues every prompt with the same options; one prompt's error leaves the others alone.
    ///
    /// # Errors
    /// What concerns all prompts: the options, a closed model.
    fn batch_generate(
        &self,
        prompts: &[Prompt],
        options: &GenerateOptions,
    ) -> Result<Vec<BatchResult>>;

    /// The token ids of `text`, as a raw prompt has them.
    ///
    /// # Errors
    /// [`Error::Prompt`] when the tokenizer refuses the text.
    fn encode(&self, text: &str) -> Result<Vec<u32>>;

    /// The text of `ids`, special tokens left out.
    ///
    /// # Errors
    /// [`Error::Prompt`] when the tokenizer refuses the ids.
    fn decode(&self, ids: &[u32]) -> Result<String>;

    /// What [`chat`](Self::chat) would feed for these messages.
    ///
    /// # Errors
    /// [`Error::Prompt`] when the template refuses.
    fn render_chat(&self, messages: &[Message], chat: &ChatOptions) -> Result<RenderedPrompt>;

    /// The architecture's name.
    fn model_type(&self) -> &str;

    /// What the model is.
    fn info(&self) -> &ModelInfo;

    /// What the model honours and refuses.
    fn capabilities(&self) -> &Capabilities;

    /// The metrics of the call that finished last, of whichever caller. Each [`Generation`]
    /// carries its own; this is for programs that know only the older contract.
    fn metrics(&self) -> Option<GenerateMetrics>;

    /// What the engine does at this moment; an engine that reports nothing is idle.
    fn status(&self) -> EngineStatus {
        EngineStatus::default()
    }

    /// The model's attention, where it can be looked at.
    fn attention_inspector(&self) -> Option<&dyn AttentionInspector> {
        None
    }

    /// Ends running requests and frees everything. Calling it again changes nothing; any other
    /// call afterwards is [`Error::Closed`].
    fn close(&self);
}

/// What the model is, so that results that hold one can be unwrapped and logged.
impl fmt::Debug for dyn TextModel + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextModel").field("info", self.info()).finish_non_exhaustive()
    }
}

/// Queues every prompt through [`TextModel::generate`] and collects the results in order: the
/// body of [`TextModel::batch_generate`] for backends whose requests already run together. Where
/// the queue is full, the oldest request is read to its end first.
///
/// # Errors
/// [`Error::InvalidOption`], [`Error::Unsupported`] and [`Error::Closed`], which concern all.
pub fn generate_each(
    model: &dyn TextModel,
    prompts: &[Prompt],
    options: &GenerateOptions,
) -> Result<Vec<BatchResult>> {
    let mut results = Vec::with_capacity(prompts.len());
    let mut running = VecDeque::new();
    for prompt in prompts {
        let mut started = model.generate(prompt, options);
        while let Err(Error::QueueFull { .. }) = started
            && let Some(oldest) = running.pop_front()
        {
            results.push(collect(oldest));
            started = model.generate(prompt, options);
        }
        if let Err(
            error @ (Error::InvalidOption { .. } | Error::Unsupported { .. } | Error::Closed),
        ) = started
        {
            return Err(error);
        }
        running.push_back(started);
    }
    results.extend(running.into_iter().map(collect));
    Ok(results)
}

fn collect(generation: Result<Generation>) -> BatchResult {
    let mut generation = match generation {
        Ok(generation) => generation,
        Err(error) => {
            let error = Some(error);
            return BatchResult { prompt_logprobs: None, tokens: Vec::new(), outcome: None, error };
        }
    };
    let mut tokens = Vec::new();
    let mut error = None;
    for item in generation.by_ref() {
        match item {
            Ok(token) => tokens.push(token),
            Err(failure) => error = Some(failure),
        }
    }
    let prompt_logprobs = generation.take_prompt_logprobs();
    BatchResult { prompt_logprobs, tokens, outcome: generation.outcome().cloned(), error }
}
