//! Ids to text, one at a time.
//!
//! Text that is not certain yet is held back: incomplete UTF-8, a run of byte tokens (one bad byte
//! spoils the whole run), a last word. See `decoder_steps`.

use crate::TextError;
use crate::decoder_steps::{Step, steps_of};
use crate::inner::Inner;
use crate::tokenizer::{SkipSpecial, Tokenizer};
use std::sync::Arc;

/// Decodes ids as they come.
///
/// The pieces of [`push`](Self::push) and [`finish`](Self::finish), concatenated, are
/// [`Tokenizer::decode`] of all ids, for every kind of decoder. (mlx-lm's detokenizers differ from
/// `decode`: they drop a leading space and repair runs of byte tokens.) The time of a push does not
/// depend on how much came before.
///
/// ```no_run
/// use inference_text::{Detokenizer, SkipSpecial, Tokenizer};
/// let tokenizer = Tokenizer::from_dir("path/to/model".as_ref())?;
/// let mut detokenizer = Detokenizer::new(&tokenizer, SkipSpecial::Yes)?;
/// let mut text = String::new();
/// for id in [9906, 1917] {
///     text += &detokenizer.push(id);
/// }
/// text += &detokenizer.finish();
/// # Ok::<(), inference_text::TextError>(())
/// ```
pub struct Detokenizer {
    tokenizer: Arc<Inner>,
    skip_special: SkipSpecial,
    steps: Vec<Step>,
}

impl std::fmt::Debug for Detokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Detokenizer").field("steps", &self.steps.len()).finish_non_exhaustive()
    }
}

impl Detokenizer {
    /// A detokenizer at the beginning of a text.
    ///
    /// # Errors
    /// [`TextError::Decode`] if the tokenizer's decoder is none of the known ones.
    pub fn new(tokenizer: &Tokenizer, skip_special: SkipSpecial) -> Result<Detokenizer, TextError> {
        let inner = tokenizer.inner.clone();
        let steps = match inner.tokenizer.get_decoder() {
            None => vec![Step::Spaces { first: true }],
            Some(decoder) => {
                let json = serde_json::to_value(decoder)
                    .map_err(|err| TextError::Decode(err.to_string()))?;
                let mut steps = Vec::new();
                steps_of(&json, &mut steps, &mut false).map_err(TextError::Decode)?;
                steps
            }
        };
        Ok(Detokenizer { tokenizer: inner, skip_special, steps })
    }

    /// Adds an id; returns the text that is final now.
    pub fn push(&mut self, id: u32) -> String {
        let tokenizer = &self.tokenizer.tokenizer;
        let vocabulary = tokenizer.get_added_vocabulary();
        let token = vocabulary.simple_id_to_token(id).or_else(|| tokenizer.id_to_token(id));
        let skip = self.skip_special == SkipSpecial::Yes;
        let Some(token) = token.filter(|token| !(skip && vocabulary.is_special_token(token)))
        else {
            return String::new();
        };
        self.run(0, token)
    }

    /// Ends the text; returns what was held back.
    pub fn finish(&mut self) -> String {
        let mut out = String::new();
        for at in 0..self.steps.len() {
            let mut rest = Vec::new();
            self.steps[at].finish(&mut rest);
            for token in rest {
                out.push_str(&self.run(at + 1, token));
            }
        }
        out
    }

    /// Returns true while text of an id that was pushed is held back.
    pub fn is_holding(&self) -> bool {
        self.steps.iter().any(|step| match step {
            Step::Last { waiting, .. } => waiting.is_some(),
            Step::ByteFallback { run } => !run.is_empty(),
            Step::ByteLevel { bytes } => !bytes.is_empty(),
            Step::Strip { tail, .. } => !tail.is_empty(),
            Step::Whole { text, .. } => !text.is_empty(),
            Step::Each(_) | Step::First { .. } | Step::Repeats { .. } | Step::Spaces { .. } => {
                false
            }
        })
    }

    /// Sends a token through the steps from `at` on.
    fn run(&mut self, at: usize, token: String) -> String {
        let mut tokens = vec![token];
        for step in &mut self.steps[at..] {
            let mut next = Vec::new();
            for token in tokens {
                step.push(token, &mut next);
            }
            tokens = next;
        }
        tokens.concat()
    }
}
