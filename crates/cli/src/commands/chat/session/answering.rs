//! An answer to the last message of a conversation.

use inference_core::{CancelToken, Error, FinishReason, Message, Piece};

use super::{Answer, Last, Session};
use crate::failure::{Failure, Result};
use crate::{json, reading, streaming};

impl Session<'_> {
    /// Answers the last message; what was said becomes a message, its reasoning and calls in fields
    /// of their own.
    pub(super) fn answer(
        &mut self,
        cancel: CancelToken,
        mut sink: impl FnMut(&Piece) -> Result<()>,
    ) -> Result<Answer> {
        let mut options = self.state.settings.sampling.options()?;
        options.cancel = cancel;
        let max_tokens = options.max_tokens;
        self.state.last = None;
        self.calls.clear();
        if self.rolls {
            self.make_room(max_tokens)?;
        }
        let messages = self.said();
        let mut said = inference_core::Answer::default();
        let mut read = None;
        let answering = self.model.answer(&messages, &self.chat, &options).map_err(Failure::from);
        let outcome = answering.and_then(|mut answering| {
            reading::wait(answering.generation(), self.quiet);
            let outcome = streaming::read_answer(&mut answering, |step| {
                step.pieces.iter().try_for_each(&mut sink)
            });
            said = answering.answer().clone();
            read = answering.generation().prefill();
            outcome
        });
        let answer = match outcome {
            Ok(outcome) => {
                let cancelled = outcome.finish_reason == FinishReason::Cancelled;
                // A call that was cut off is none.
                if !cancelled && outcome.finish_reason != FinishReason::Length {
                    self.calls.clone_from(&said.tool_calls);
                }
                self.state.last = Some(Last { outcome, read, max_tokens });
                if cancelled { Answer::Cancelled } else { Answer::Complete }
            }
            Err(Failure::Model(Error::Cancelled)) => Answer::Cancelled,
            Err(failure) => return Err(failure),
        };
        // Reasoning alone is no answer yet.
        let is_begun = !said.content.is_empty() || !said.tool_calls.is_empty();
        if answer == Answer::Complete || is_begun {
            self.state.messages.push(said.to_message(json::arguments));
        }
        Ok(answer)
    }

    /// The conversation as the model gets it.
    pub(super) fn said(&self) -> Vec<Message> {
        self.state.system.iter().chain(&self.state.messages).cloned().collect()
    }
}
