//! The options of a call, under the facade's names.

use inference_core::{CancelToken, GenerateOptions, PenaltyScope};

/// How text is generated. Two unset values mean something else than in the contract, where they
/// are the checkpoint's own choice and the end of the context.
#[derive(Clone, Debug, Default)]
pub struct GenOpts {
    /// 0 is greedy; `None`: 0.1.
    pub temperature: Option<f32>,
    /// The most tokens to generate; 0: prefill only; `None`: 2048.
    pub max_tokens: Option<usize>,
    /// The model that is meant, for programs that name one with each call: the folder's path or
    /// last part, or the architecture. `None` and the empty name: the one that is loaded; any
    /// other is refused.
    pub model: Option<String>,
    /// Keep this many of the most likely tokens; 0 and `None`: all.
    pub top_k: Option<usize>,
    /// Keep the smallest set of most likely tokens whose probability reaches this, in `[0, 1]`.
    pub top_p: Option<f32>,
    /// Divides positive and multiplies negative logits of all ids that were generated, each once;
    /// the prompt's are left out. Above 0, 1 is off.
    pub repeat_penalty: Option<f32>,
    /// Ends the call from another thread or at a deadline, while it waits for the engine too. A
    /// clone of the options shares it.
    pub cancel: CancelToken,
}

impl GenOpts {
    /// The temperature where none is given.
    pub const DEFAULT_TEMPERATURE: f32 = 0.1;
    /// The most tokens where no number is given.
    pub const DEFAULT_MAX_TOKENS: usize = 2048;

    /// The contract's options of the same meaning.
    pub fn to_generate_options(&self) -> GenerateOptions {
        GenerateOptions {
            temperature: Some(self.temperature.unwrap_or(GenOpts::DEFAULT_TEMPERATURE)),
            max_tokens: Some(self.max_tokens.unwrap_or(GenOpts::DEFAULT_MAX_TOKENS)),
            top_k: self.top_k,
            top_p: self.top_p,
            repetition_penalty: self.repeat_penalty,
            penalty_scope: match self.repeat_penalty {
                Some(_) => PenaltyScope::Generated,
                None => PenaltyScope::default(),
            },
            cancel: self.cancel.clone(),
            ..GenerateOptions::default()
        }
    }
}
