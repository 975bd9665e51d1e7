//! The check that a model's activations stay in the range of f16.

use inference_core::{
    ChatOptions, ClassifyOptions, Dtype, Error, LoadOptions, Message, Prompt, Result, TextModel,
};

use super::MlxModel;
use crate::error::not_numbers;

/// Read once as it is and once as a chat: the largest activations stand at special tokens and at a
/// prompt's beginning.
const TEXT: &str =
    "The quick brown fox jumps over the lazy dog.\n\n1 + 1 = 2; größer, 狐狸, \u{1f98a}";

impl MlxModel {
    /// Refuses f16 for a model whose activations leave its range. Only short prompts are tried:
    /// longer ones that leave it are errors of their requests.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub(super) fn check_range(&self, options: &LoadOptions) -> Result<()> {
        if options.dtype != Some(Dtype::F16) {
            return Ok(());
        }
        let chat = self.render_chat(&[Message::user(TEXT)], &ChatOptions::default());
        let prompts = [Some(TEXT.into()), chat.ok().map(|chat| chat.prompt())];
        let options = ClassifyOptions { labels: vec!["a".into()], ..ClassifyOptions::default() };
        // Behind the phase in which it was met.
        let fault = not_numbers().to_string();
        for prompt in prompts.iter().flatten() {
            match self.classify(std::slice::from_ref::<Prompt>(prompt), &options) {
                Err(Error::Engine(reason)) if reason.ends_with(&fault) => {
                    return Err(Error::InvalidOption {
                        option: "dtype",
                        reason: "the model's activations leave the range of f16, so that its \
                                 logits are no numbers: take bf16 or f32"
                            .into(),
                    });
                }
                // A context that is too short for the text says nothing of the range.
                _ => {}
            }
        }
        Ok(())
    }
}
