//! The two traits of the facade.

use inference_core::{Message, Outcome};

use crate::{BoxError, GenOpts, Result};

/// Receives a stream's pieces, in order and none of them empty. Its error stops the generation.
pub type OnPiece<'a> = dyn FnMut(&str) -> std::result::Result<(), BoxError> + 'a;

/// A finished answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The whole text; of a stream, its pieces one after the other.
    pub text: String,
    /// Why it ended, what it cost and the seed of its draws.
    pub outcome: Outcome,
}

/// A backend that answers with whole texts. Any number of threads may call it at once.
pub trait Backend: Send + Sync {
    /// Answers `prompt`, which is the user's message for the model's own chat template. A model
    /// without a chat format continues it.
    ///
    /// # Errors
    /// The text so far with why it goes no further: an option that is refused, a cancellation, a
    /// failure of the engine.
    fn generate(&self, prompt: &str, opts: &GenOpts) -> Result<Reply>;

    /// Answers a conversation, rendered by the model's own chat template.
    ///
    /// # Errors
    /// As [`generate`](Self::generate), and messages that the template refuses.
    fn chat(&self, messages: &[Message], opts: &GenOpts) -> Result<Reply>;

    /// The name by which programs choose it.
    fn name(&self) -> &str;

    /// Returns true when it can answer here and now.
    fn available(&self) -> bool;
}

/// A backend that hands text over while it is generated.
///
/// The pieces, one after the other, are the whole text of [`Backend::generate`]: words keep the
/// spaces between them, lines their indentation, and a character of several tokens comes whole.
pub trait StreamingBackend: Backend {
    /// Continues a prompt, and hands each piece of text to `on_piece` once it is settled.
    ///
    /// # Errors
    /// As [`Backend::generate`], and the error of `on_piece`, which ends the generation.
    fn generate_stream(
        &self,
        prompt: &str,
        opts: &GenOpts,
        on_piece: &mut OnPiece<'_>,
    ) -> Result<Reply>;

    /// Answers a conversation, and hands each piece of text to `on_piece` once it is settled.
    ///
    /// # Errors
    /// As [`Backend::chat`], and the error of `on_piece`, which ends the generation.
    fn chat_stream(
        &self,
        messages: &[Message],
        opts: &GenOpts,
        on_piece: &mut OnPiece<'_>,
    ) -> Result<Reply>;
}
