//! Turns that a conversation forgets: the last one, the oldest ones, those that have no room.

use inference_core::Role;

use super::Session;
use crate::failure::{Failure, Result};
use crate::output::{counted, note};

/// The share of the context that is left to an answer whose length nothing bounds.
const ROOM: usize = 4;

impl Session<'_> {
    /// Forgets the last question and all that followed.
    ///
    /// # Errors
    /// Nothing was asked.
    pub fn undo(&mut self) -> Result<()> {
        if self.state.unanswered.take().is_some() {
            return Ok(());
        }
        let question = self.last_question()?;
        self.state.messages.truncate(question);
        Ok(())
    }

    /// Forgets so many turns, the oldest first: a question and all up to the next one. Returns how
    /// many messages that were.
    ///
    /// # Errors
    /// There are fewer turns.
    pub fn drop_oldest(&mut self, turns: usize) -> Result<usize> {
        let questions = self.questions();
        if turns == 0 || turns > questions.len() {
            let count = counted(questions.len(), "turn");
            return Err(Failure::Usage(format!("the conversation has {count}")));
        }
        let end = questions.get(turns).copied().unwrap_or(self.state.messages.len());
        // What stands in front of the first question belongs to no turn.
        self.state.messages.drain(questions[0]..end);
        Ok(end - questions[0])
    }

    /// Forgets the oldest turns until the last question and an answer have room.
    pub(super) fn make_room(&mut self, max_tokens: Option<usize>) -> Result<()> {
        let context = self.context();
        if context == 0 {
            return Ok(());
        }
        let room = max_tokens.unwrap_or(usize::MAX).min(context / ROOM);
        let mut dropped = 0;
        while self.questions().len() > 1 && self.tokens()? + room > context {
            self.drop_oldest(1)?;
            dropped += 1;
        }
        if dropped > 0 {
            let turns = match dropped {
                1 => "oldest turn".to_owned(),
                _ => format!("{dropped} oldest turns"),
            };
            note(format_args!(
                "the context of {context} tokens is full: the {turns} gave way (--rolling-context)"
            ));
        }
        Ok(())
    }

    /// The tokens of the conversation as the model would get them.
    pub(super) fn tokens(&self) -> Result<usize> {
        Ok(self.model.render_chat(&self.said(), &self.chat)?.ids.len())
    }

    /// The places of the questions.
    fn questions(&self) -> Vec<usize> {
        let messages = self.state.messages.iter().enumerate();
        messages.filter(|(_, message)| message.role == Role::User).map(|(at, _)| at).collect()
    }
}
